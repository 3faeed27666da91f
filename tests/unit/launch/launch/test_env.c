/* The environment of a worker. */
#include "launch/worker_env.h"

#include "base/assert.h"
#include "base/str.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct ct_arena arena;

static void set_up(void)
{
    ct_arena_init(&arena, 1 << 20);
}

static void tear_down(void)
{
    ct_arena_deinit(&arena);
}

TestSuite(env, .timeout = 10, .init = set_up, .fini = tear_down);

static struct ct_worker_env some_env(void)
{
    struct ct_worker_env env = {
        .restart_count = 1,
        .max_restarts = 3,
        .generation = 7,
        .master_port = 4242,
        .omp_threads = 5,
        .master_addr = "127.0.0.1",
        .agent_store = "True",
        .run_id = "job",
        .error_file = "",
    };

    ct_worker_env_ranks(&env, (struct ct_node_runs){&(struct ct_wire_run){1, 2, "default"}, 1}, 0,
                        1);
    return env;
}

static size_t occurrences(char *const *list, const char *name)
{
    size_t count = 0, length = strlen(name);

    for (; *list != NULL; list++)
        count += strncmp(*list, name, length) == 0 && (*list)[length] == '=';
    return count;
}

Test(env, ranks_count_the_workers_of_uneven_nodes_and_of_each_role)
{
    static const struct ct_wire_run runs[] = {
        {2, 1, "trainer"}, {1, 3, "reader"}, {1, 1, "trainer"}, {1, 4, "trainer"}};
    static const struct {
        uint32_t node, local, slots, rank, role_rank, role_world;
        const char *role;
    } rows[] = {
        {0, 0, 1, 0, 0, 7, "trainer"}, {1, 0, 1, 1, 1, 7, "trainer"}, {2, 0, 3, 2, 0, 3, "reader"},
        {2, 2, 3, 4, 2, 3, "reader"},  {3, 0, 1, 5, 2, 7, "trainer"}, {4, 0, 4, 6, 3, 7, "trainer"},
        {4, 3, 4, 9, 6, 7, "trainer"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_worker_env env = {.rank = 99};

        ct_worker_env_ranks(&env, (struct ct_node_runs){runs, CT_COUNT(runs)}, rows[i].node,
                            rows[i].local);
        cr_assert_eq(env.rank, rows[i].rank, "row %zu", i);
        cr_assert_eq(env.world_size, 10u);
        cr_assert_eq(env.local_rank, rows[i].local);
        cr_assert_eq(env.local_world_size, rows[i].slots);
        cr_assert_eq(env.group_rank, rows[i].node);
        cr_assert_eq(env.group_world_size, 5u);
        cr_assert_eq(env.role_rank, rows[i].role_rank, "row %zu", i);
        cr_assert_eq(env.role_world_size, rows[i].role_world, "row %zu", i);
        cr_assert_str_eq(env.role_name, rows[i].role);
    }
}

Test(env, a_worker_gets_every_variable_of_torchelastic)
{
    static const char *const expected[][2] = {
        {"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "0"},
        {"GROUP_WORLD_SIZE", "1"},
        {"ROLE_NAME", "default"},
        {"ROLE_RANK", "1"},
        {"ROLE_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "4242"},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "job"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", ""},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "5"},
        {"CTRUN_GENERATION", "7"},
        {"CTRUN_CONTROL_FD", "3"},
        {"CTRUN_PAGE_FD", "4"},
        {"CTRUN_RECORD_FD", "5"},
    };
    struct ct_worker_env env = some_env();
    char *parent[] = {NULL};
    char **list = ct_worker_env_build(&arena, &env, parent);

    cr_assert_not_null(list);
    for (size_t i = 0; i < CT_COUNT(expected); i++) {
        const char *value = ct_env_find(list, expected[i][0]);

        cr_assert_not_null(value, "%s", expected[i][0]);
        cr_assert_str_eq(value, expected[i][1], "%s", expected[i][0]);
    }
}

Test(env, the_parents_environment_stays_but_ranks_are_replaced)
{
    char home[] = "HOME=/root", rank[] = "RANK=77", ranking[] = "RANKING=1", odd[] = "noequals";
    char *parent[] = {home, rank, ranking, odd, NULL};
    struct ct_worker_env env = some_env();
    char **list = ct_worker_env_build(&arena, &env, parent);

    cr_assert_str_eq(ct_env_find(list, "HOME"), "/root");
    cr_assert_str_eq(ct_env_find(list, "RANKING"), "1");
    cr_assert_str_eq(ct_env_find(list, "RANK"), "1");
    cr_assert_eq(occurrences(list, "RANK"), 1u);
    cr_assert_eq(list[2], odd, "an entry without a value is passed on as it is");
}

Test(env, the_kind_of_store_is_said_when_there_is_something_to_say_and_the_user_wins)
{
    char libuv[] = "USE_LIBUV=1";
    char *parent[] = {libuv, NULL};
    struct ct_worker_env env = some_env();

    cr_assert_null(ct_env_find(ct_worker_env_build(&arena, &env, parent + 1), "USE_LIBUV"));
    cr_assert_str_eq(ct_env_find(ct_worker_env_build(&arena, &env, parent), "USE_LIBUV"), "1");
    env.use_libuv = "0";
    cr_assert_str_eq(ct_env_find(ct_worker_env_build(&arena, &env, parent + 1), "USE_LIBUV"), "0");
    char **list = ct_worker_env_build(&arena, &env, parent);
    cr_assert_str_eq(ct_env_find(list, "USE_LIBUV"), "1");
    cr_assert_eq(occurrences(list, "USE_LIBUV"), 1u);
}

Test(env, a_workers_own_gpus_replace_the_parents_and_amds_list_follows_when_there_is_one)
{
    char cuda[] = "CUDA_VISIBLE_DEVICES=4,5", hip[] = "HIP_VISIBLE_DEVICES=4,5";
    char *parent[] = {cuda, hip, NULL};
    struct ct_worker_env env = some_env();
    char **list = ct_worker_env_build(&arena, &env, parent);

    cr_assert_str_eq(ct_env_find(list, "CUDA_VISIBLE_DEVICES"), "4,5");
    cr_assert_str_eq(ct_env_find(list, "HIP_VISIBLE_DEVICES"), "4,5");
    cr_assert_str_eq(ct_env_find(list, "LOCAL_RANK"), "1");
    env.visible_devices = "5";
    env.device_rank = 0;
    list = ct_worker_env_build(&arena, &env, parent);
    cr_assert_str_eq(ct_env_find(list, "CUDA_VISIBLE_DEVICES"), "5");
    cr_assert_str_eq(ct_env_find(list, "HIP_VISIBLE_DEVICES"), "5");
    cr_assert_str_eq(ct_env_find(list, "LOCAL_RANK"), "0");
    cr_assert_str_eq(ct_env_find(list, "RANK"), "1");
    parent[1] = NULL;
    list = ct_worker_env_build(&arena, &env, parent);
    cr_assert_str_eq(ct_env_find(list, "CUDA_VISIBLE_DEVICES"), "5");
    cr_assert_null(ct_env_find(list, "HIP_VISIBLE_DEVICES"));
}

Test(env, what_the_user_set_for_threads_wins)
{
    char omp[] = "OMP_NUM_THREADS=3";
    char *parent[] = {omp, NULL};
    struct ct_worker_env env = some_env();
    char **list = ct_worker_env_build(&arena, &env, parent);

    cr_assert_str_eq(ct_env_find(list, "OMP_NUM_THREADS"), "3");
    cr_assert_eq(occurrences(list, "OMP_NUM_THREADS"), 1u);
    env.omp_threads = 0;
    list = ct_worker_env_build(&arena, &env, parent + 1);
    cr_assert_null(ct_env_find(list, "OMP_NUM_THREADS"));
}

Test(env, a_tuning_table_that_is_named_replaces_the_parents)
{
    char tuning[] = "CTRUN_TUNING=/old";
    char *parent[] = {tuning, NULL};
    struct ct_worker_env env = some_env();

    cr_assert_str_eq(ct_env_find(ct_worker_env_build(&arena, &env, parent), "CTRUN_TUNING"),
                     "/old");
    cr_assert_null(ct_env_find(ct_worker_env_build(&arena, &env, parent + 1), "CTRUN_TUNING"));
    env.tuning = "/new";
    char **list = ct_worker_env_build(&arena, &env, parent);
    cr_assert_str_eq(ct_env_find(list, "CTRUN_TUNING"), "/new");
    cr_assert_eq(occurrences(list, "CTRUN_TUNING"), 1u);
}

Test(env, want_of_memory_is_reported)
{
    char *parent[] = {NULL};
    struct ct_worker_env env = some_env();
    struct ct_arena small;

    for (size_t limit = 0; limit < 512; limit += 64) {
        ct_arena_init(&small, limit);
        cr_assert_null(ct_worker_env_build(&small, &env, parent));
        ct_arena_deinit(&small);
    }
}

/* PyTorch from 2.2 on complains of the old name in every worker; what is before reads no other. */
Test(env, the_old_name_of_nccls_error_handling_is_the_users_alone)
{
    char old[] = "NCCL_ASYNC_ERROR_HANDLING=0", recent[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING=3";
    char *parent[] = {old, recent, NULL};
    struct ct_worker_env env = some_env();
    char **without = ct_worker_env_build(&arena, &env, parent + 2);
    char **with = ct_worker_env_build(&arena, &env, parent);

    cr_assert_null(ct_env_find(without, "NCCL_ASYNC_ERROR_HANDLING"));
    cr_assert_str_eq(ct_env_find(without, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
    cr_assert_str_eq(ct_env_find(with, "NCCL_ASYNC_ERROR_HANDLING"), "0");
    cr_assert_str_eq(ct_env_find(with, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
}
