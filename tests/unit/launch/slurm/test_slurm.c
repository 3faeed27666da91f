/* What Slurm's variables say, and the worlds that contradict them. */
#include "slurm/slurm.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
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

TestSuite(slurm, .init = set_up, .fini = tear_down, .timeout = 30);

static const char *const in_task[] = {
    "SLURM_JOB_ID=4711",
    "SLURM_STEP_ID=2",
    "SLURM_JOB_NODELIST=gpu[01-04]",
    "SLURM_JOB_NUM_NODES=4",
    "SLURM_STEP_NODELIST=gpu[02-04]",
    "SLURM_STEP_NUM_NODES=3",
    "SLURM_NNODES=3",
    "SLURM_NODEID=1",
    "SLURM_PROCID=1",
    "SLURM_NTASKS=3",
    "SLURM_STEP_TASKS_PER_NODE=1(x3)",
    "SLURM_CPUS_PER_TASK=16",
    "SLURM_CPUS_ON_NODE=32",
    "SLURM_GPUS_ON_NODE=8",
    "SLURM_RESTART_COUNT=5",
    "SLURM_LAUNCH_NODE_IPADDR=10.0.0.7",
    "SLURMD_NODENAME=gpu03",
    NULL,
};

static int read_env(const char *const *env, struct ct_slurm *slurm, struct ct_error *err)
{
    return ct_slurm_read((char *const *)(uintptr_t)env, &arena, slurm, err);
}

static struct ct_slurm read_ok(const char *const *env)
{
    struct ct_slurm slurm;
    struct ct_error err = {0};

    cr_assert_eq(read_env(env, &slurm, &err), 0, "%s", err.text);
    return slurm;
}

/* `in_task` with one variable replaced ("" removes it). */
static const char *const *with(const char *name, const char *value)
{
    static const char *env[32];
    static char texts[8][256];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    size_t count = 0;

    for (size_t i = 0; in_task[i] != NULL; i++)
        if (strncmp(in_task[i], name, strlen(name)) != 0 || in_task[i][strlen(name)] != '=')
            env[count++] = in_task[i];
    (void)snprintf(text, 256, "%s=%s", name, value);
    if (value[0] != '\0')
        env[count++] = text;
    env[count] = NULL;
    return env;
}

Test(slurm, a_task_of_srun_knows_its_step)
{
    struct ct_slurm slurm = read_ok(in_task);

    cr_assert_eq(slurm.place, CT_SLURM_TASK);
    cr_assert_eq(slurm.job_id, 4711);
    cr_assert_eq(slurm.step_id, 2);
    cr_assert_eq(slurm.nodes, 3, "the step's nodes, not the job's");
    cr_assert_str_eq(slurm.hosts[0], "gpu02");
    cr_assert_str_eq(slurm.hosts[slurm.node_rank], "gpu03");
    cr_assert_str_eq(slurm.node_name, "gpu03");
    cr_assert_eq(slurm.node_tasks, 1);
    cr_assert_eq(slurm.tasks, 3);
    cr_assert_eq(slurm.task_rank, 1);
    cr_assert_eq(slurm.cpus_per_task, 16);
    cr_assert_eq(slurm.node_cpus, 32);
    cr_assert_eq(slurm.node_gpus, 8);
    cr_assert_eq(slurm.restart_count, 5);
    cr_assert_str_eq(slurm.launch_address, "10.0.0.7");
    cr_assert_eq(slurm.array_job_id, -1);
    cr_assert_str_eq(ct_slurm_run_id(&slurm, &arena), "4711.2");
}

Test(slurm, without_a_job_there_is_nothing)
{
    const char *const env[] = {"SLURM_CONF=/etc/slurm.conf", "SLURM_NNODES=x", NULL};

    cr_assert_eq(read_ok(env).place, CT_SLURM_NONE);
}

Test(slurm, a_batch_script_is_no_task)
{
    const char *const script[] = {"SLURM_JOB_ID=1",
                                  "SLURM_JOB_NODELIST=n[1-2]",
                                  "SLURM_PROCID=0",
                                  "SLURM_NODEID=0",
                                  "SLURM_NNODES=2",
                                  "SLURM_NTASKS=2",
                                  "SLURM_TASKS_PER_NODE=1(x2)",
                                  NULL};
    const char *const old_script[] = {"SLURM_JOBID=1", "SLURM_STEPID=4294967294", "SLURM_PROCID=0",
                                      NULL};

    cr_assert_eq(read_ok(script).place, CT_SLURM_BATCH);
    cr_assert_eq(read_ok(script).nodes, 2);
    cr_assert_eq(read_ok(old_script).place, CT_SLURM_BATCH);
    struct ct_slurm slurm = read_ok(script);
    cr_assert_str_eq(ct_slurm_run_id(&slurm, &arena), "1");
}

Test(slurm, cpus_are_those_of_the_task_but_no_more_than_of_the_step)
{
    static const struct {
        const char *per_task, *on_node;
        uint32_t cpus;
    } rows[] = {{"16", "32", 16}, {"16", "8", 8}, {"16", "", 16}, {"", "32", 32}, {"", "", 0}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_slurm slurm = read_ok(with("SLURM_CPUS_PER_TASK", rows[i].per_task));
        slurm.node_cpus = rows[i].on_node[0] != '\0' ? (uint32_t)atoi(rows[i].on_node) : 0;
        cr_assert_eq(ct_slurm_cpus(&slurm), rows[i].cpus, "row %zu", i);
    }
    struct ct_slurm script = read_ok(in_task);
    script.place = CT_SLURM_BATCH;
    cr_assert_eq(ct_slurm_cpus(&script), 32, "a script has the CPUs of all its tasks");
}

Test(slurm, a_task_of_a_job_array_has_the_array_in_its_name)
{
    const char *const env[] = {"SLURM_JOB_ID=4720",     "SLURM_STEP_ID=0",
                               "SLURM_PROCID=0",        "SLURM_NODEID=0",
                               "SLURM_JOB_NODELIST=n1", "SLURM_ARRAY_JOB_ID=4711",
                               "SLURM_ARRAY_TASK_ID=9", NULL};
    struct ct_slurm slurm = read_ok(env);

    cr_assert_eq(slurm.nodes, 1);
    cr_assert_str_eq(ct_slurm_run_id(&slurm, &arena), "4711_9.0");
}

Test(slurm, all_nodes_meet_at_one_port_and_other_steps_at_another)
{
    struct ct_slurm a = read_ok(in_task), b = read_ok(with("SLURM_NODEID", "2"));
    struct ct_slurm other = read_ok(with("SLURM_STEP_ID", "3"));

    cr_assert_eq(ct_slurm_port(&a), ct_slurm_port(&b));
    cr_assert_neq(ct_slurm_port(&a), ct_slurm_port(&other));
    cr_assert(ct_slurm_port(&a) >= 20000 && ct_slurm_port(&a) < 30000);
}

Test(slurm, uneven_tasks_are_read_for_this_node)
{
    static const struct {
        const char *text;
        uint32_t node;
        int tasks; /* -1: refused */
    } rows[] = {
        {"1", 0, 1},
        {"2(x3),1", 0, 2},
        {"2(x3),1", 2, 2},
        {"2(x3),1", 3, 1},
        {"2(x3),1", 4, -1},
        {"8,4(x2)", 1, 4},
        {"8,4(x2)", 3, -1},
        {"", 0, -1},
        {"x", 0, -1},
        {"2(x0)", 0, -1},
        {"2(x", 0, -1},
        {"2(3)", 0, -1},
        {"2 ,1", 1, -1},
        {",1", 0, -1},
        {"-1", 0, -1},
        {"1(x3", 0, -1},
        {"1(x4294967295),2(x4294967295),3", 0, -1},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        uint32_t tasks = 99;
        int rc = ct_slurm_tasks_of(rows[i].text, rows[i].node, &tasks);
        cr_assert_eq(rc, rows[i].tasks < 0 ? CT_EUSAGE : 0, "row %zu", i);
        cr_assert_eq(tasks, rows[i].tasks < 0 ? 99 : (uint32_t)rows[i].tasks, "row %zu", i);
    }
}

Test(slurm, a_variable_that_cannot_be_right_is_named)
{
    static const struct {
        const char *name, *value, *expected;
    } rows[] = {
        {"SLURM_JOB_ID", "x", "SLURM_JOB_ID is \"x\""},
        {"SLURM_NODEID", "-1", "SLURM_NODEID is \"-1\""},
        {"SLURM_NODEID", "3", "SLURM_NODEID is 3, but there are 3 nodes"},
        {"SLURM_STEP_NUM_NODES", "99999999", "SLURM_STEP_NUM_NODES"},
        {"SLURM_STEP_NODELIST", "gpu[1-", "SLURM_STEP_NODELIST: "},
        {"SLURM_STEP_NODELIST", "gpu[1-2]", "names 2 hosts, but Slurm says that there are 3"},
        {"SLURM_STEP_TASKS_PER_NODE", "1", "does not say how many tasks node 1 has"},
        {"SLURM_RESTART_COUNT", "1.5", "SLURM_RESTART_COUNT"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_slurm slurm;
        struct ct_error err = {0};
        int rc = read_env(with(rows[i].name, rows[i].value), &slurm, &err);
        cr_assert_eq(rc, CT_EUSAGE, "row %zu", i);
        cr_assert(strstr(err.text, rows[i].expected) != NULL, "row %zu: %s", i, err.text);
    }
}

Test(slurm, what_is_not_said_is_not_needed)
{
    const char *const env[] = {"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0", NULL};
    struct ct_slurm slurm = read_ok(env);

    cr_assert_eq(slurm.place, CT_SLURM_TASK);
    cr_assert_null(slurm.hosts);
    cr_assert_eq(slurm.nodes, 0);
    cr_assert_str_eq(slurm.node_name, "");
}

static const struct ct_slurm_request no_request = {.min_nodes = 1, .max_nodes = 1, .node_rank = -1};

static void expect_refused(const struct ct_slurm *slurm, const struct ct_slurm_request *request,
                           const char *expected)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_slurm_check(slurm, request, &err), CT_EUSAGE, "%s", expected);
    cr_assert(strstr(err.text, expected) != NULL, "%s", err.text);
}

Test(slurm, worlds_that_contradict_slurm_are_refused)
{
    struct ct_slurm slurm = read_ok(in_task);
    struct ct_error err = {0};
    static const struct ct_slurm_request fine[] = {
        {.min_nodes = 1, .max_nodes = 1, .node_rank = -1},
        {.nodes_given = true, .min_nodes = 3, .max_nodes = 3, .node_rank = 1},
        {.nodes_given = true, .min_nodes = 1, .max_nodes = 8, .node_rank = -1},
        {.nodes_given = true, .min_nodes = 1, .max_nodes = 2, .node_rank = -1},
    };
    static const struct {
        struct ct_slurm_request request;
        const char *expected;
    } wrong[] = {
        {{.nodes_given = true, .min_nodes = 2, .max_nodes = 2, .node_rank = -1},
         "nnodes asks for 2"},
        {{.nodes_given = true, .min_nodes = 4, .max_nodes = 4, .node_rank = -1},
         "nnodes asks for 4"},
        {{.nodes_given = true, .min_nodes = 4, .max_nodes = 8, .node_rank = -1}, "--nodes=4"},
        {{.min_nodes = 1, .max_nodes = 1, .node_rank = 2},
         "node_rank is 2, but this is Slurm's node 1"},
        {{.min_nodes = 1, .max_nodes = 1, .node_rank = -1, .standalone = true}, "standalone"},
    };

    for (size_t i = 0; i < CT_COUNT(fine); i++)
        cr_assert_eq(ct_slurm_check(&slurm, &fine[i], &err), 0, "row %zu: %s", i, err.text);
    for (size_t i = 0; i < CT_COUNT(wrong); i++)
        expect_refused(&slurm, &wrong[i].request, wrong[i].expected);
}

Test(slurm, one_ctrun_a_node_is_wanted)
{
    struct ct_slurm slurm = read_ok(with("SLURM_STEP_TASKS_PER_NODE", "8(x3)"));

    expect_refused(&slurm, &no_request, "--ntasks-per-node=1 and ctrun --nproc_per_node 8");
    slurm = read_ok(with("SLURM_NTASKS", "6"));
    expect_refused(&slurm, &no_request, "6 ctrun on 3 nodes");
}

Test(slurm, a_script_on_many_nodes_must_use_srun_or_say_that_one_is_enough)
{
    const char *const script[] = {"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_PROCID=0",
                                  NULL};
    const char *const small[] = {"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n1", "SLURM_PROCID=0", NULL};
    struct ct_slurm slurm = read_ok(script), alone = read_ok(small);
    struct ct_slurm_request standalone = no_request;
    struct ct_slurm_request by_hand = {
        .nodes_given = true, .min_nodes = 2, .max_nodes = 2, .node_rank = 1};
    struct ct_error err = {0};

    standalone.standalone = true;
    expect_refused(&slurm, &no_request, "`srun ctrun`");
    cr_assert_eq(ct_slurm_check(&slurm, &standalone, &err), 0);
    cr_assert_eq(ct_slurm_check(&alone, &no_request, &err), 0);
    cr_assert_eq(ct_slurm_check(&slurm, &by_hand, &err), 0, "started by other means");
    by_hand.min_nodes = by_hand.max_nodes = 3;
    expect_refused(&slurm, &by_hand, "Slurm runs this job on 2");
    by_hand.min_nodes = by_hand.max_nodes = 1;
    expect_refused(&slurm, &by_hand, "`srun ctrun`");
}
