/* See worker_env.h. */
#include "launch/worker_env.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum kind { NUMBER, TEXT, CONSTANT };
/* A variable of the parent wins when IF_UNSET; one that the parent lacks is not needed when IF_SET.
 * A text of NULL, and no number of threads, are nothing to say. */
enum when { ALWAYS, IF_UNSET, IF_SET };

struct row {
    const char *name;
    enum when when;
    enum kind kind;
    size_t at;        /* NUMBER, TEXT: the field */
    const char *text; /* CONSTANT */
};

#define AT(field) offsetof(struct ct_worker_env, field), NULL
_Static_assert(CT_CONTROL_FD == 3 && CT_PAGE_FD == 4 && CT_RECORD_FD == 5, "the texts below");

static const struct row table[] = {
    {"RANK", ALWAYS, NUMBER, AT(rank)},
    {"WORLD_SIZE", ALWAYS, NUMBER, AT(world_size)},
    {"LOCAL_RANK", ALWAYS, NUMBER, AT(device_rank)},
    {"LOCAL_WORLD_SIZE", ALWAYS, NUMBER, AT(local_world_size)},
    {"GROUP_RANK", ALWAYS, NUMBER, AT(group_rank)},
    {"GROUP_WORLD_SIZE", ALWAYS, NUMBER, AT(group_world_size)},
    {"ROLE_NAME", ALWAYS, TEXT, AT(role_name)},
    {"ROLE_RANK", ALWAYS, NUMBER, AT(role_rank)},
    {"ROLE_WORLD_SIZE", ALWAYS, NUMBER, AT(role_world_size)},
    {"MASTER_ADDR", ALWAYS, TEXT, AT(master_addr)},
    {"MASTER_PORT", ALWAYS, NUMBER, AT(master_port)},
    {"TORCHELASTIC_RESTART_COUNT", ALWAYS, NUMBER, AT(restart_count)},
    {"TORCHELASTIC_MAX_RESTARTS", ALWAYS, NUMBER, AT(max_restarts)},
    {"TORCHELASTIC_RUN_ID", ALWAYS, TEXT, AT(run_id)},
    {"TORCHELASTIC_USE_AGENT_STORE", ALWAYS, TEXT, AT(agent_store)},
    {"USE_LIBUV", IF_UNSET, TEXT, AT(use_libuv)},
    {"TORCHELASTIC_ERROR_FILE", ALWAYS, TEXT, AT(error_file)},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", IF_UNSET, CONSTANT, 0, "1"},
    {"CUDA_VISIBLE_DEVICES", ALWAYS, TEXT, AT(visible_devices)},
    {"HIP_VISIBLE_DEVICES", IF_SET, TEXT, AT(visible_devices)},
    {"OMP_NUM_THREADS", IF_UNSET, NUMBER, AT(omp_threads)},
    {"CTRUN_GENERATION", ALWAYS, NUMBER, AT(generation)},
    {"CTRUN_TUNING", ALWAYS, TEXT, AT(tuning)},
    {"CTRUN_RUN_FOLDER", ALWAYS, TEXT, AT(run_folder)},
    {"CTRUN_HEARTBEAT_FILE", ALWAYS, TEXT, AT(heartbeat_file)},
    {"CTRUN_STOP_SIGNALS", ALWAYS, TEXT, AT(stop_signals)},
    {"PYTHONFAULTHANDLER", IF_UNSET, TEXT, AT(fault_handler)},
    {"TORCH_FR_DUMP_TEMP_FILE", IF_UNSET, TEXT, AT(flight_dumps)},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", IF_UNSET, TEXT, AT(flight_dumps)},
    {"TORCH_FR_BUFFER_SIZE", IF_UNSET, TEXT, AT(flight_calls)},
    {CT_ENV_MARKS, ALWAYS, TEXT, AT(marks)},
    {"CTRUN_CONTROL_FD", ALWAYS, CONSTANT, 0, "3"},
    {"CTRUN_PAGE_FD", ALWAYS, CONSTANT, 0, "4"},
    {"CTRUN_RECORD_FD", ALWAYS, CONSTANT, 0, "5"},
};

void ct_worker_env_ranks(struct ct_worker_env *env, struct ct_node_runs runs, uint32_t node,
                         uint32_t local_rank)
{
    uint32_t first, count = 0, world = 0, role_before = 0, role_world = 0;
    const struct ct_wire_run *own = ct_node_runs_find(runs, node, &first);

    CT_ASSERT(local_rank < own->slots);
    for (uint32_t i = 0; i < runs.count; i++) {
        const struct ct_wire_run *run = &runs.data[i];

        if (strcmp(run->role, own->role) == 0) {
            role_before += CT_MIN(run->nodes, node > count ? node - count : 0) * run->slots;
            role_world += run->nodes * run->slots;
        }
        count += run->nodes;
        world += run->nodes * run->slots;
    }
    env->rank = first + local_rank;
    env->world_size = world;
    env->local_rank = local_rank;
    env->device_rank = local_rank;
    env->local_world_size = own->slots;
    env->group_rank = node;
    env->group_world_size = count;
    env->role_rank = role_before + local_rank;
    env->role_world_size = role_world;
    env->role_name = own->role;
}

static char *format(struct ct_arena *arena, const struct row *row, const struct ct_worker_env *env)
{
    const char *field = (const char *)env + row->at;
    uint32_t number;
    const char *text;

    switch (row->kind) {
    case NUMBER:
        memcpy(&number, field, sizeof number);
        return ct_arena_printf(arena, "%s=%u", row->name, number);
    case TEXT:
        memcpy(&text, field, sizeof text);
        return ct_arena_printf(arena, "%s=%s", row->name, text);
    case CONSTANT:
        break;
    }
    return ct_arena_printf(arena, "%s=%s", row->name, row->text);
}

/* Does the row's field hold a value that means "nothing to say"? */
static bool is_silent(const struct row *row, const struct ct_worker_env *env)
{
    const char *text;

    if (row->kind != TEXT)
        return row->at == offsetof(struct ct_worker_env, omp_threads) && env->omp_threads == 0;
    memcpy(&text, (const char *)env + row->at, sizeof text);
    return text == NULL;
}

static bool wanted(const struct row *row, const struct ct_worker_env *env, char *const *parent)
{
    const char *set = ct_env_find(parent, row->name);

    if (is_silent(row, env))
        return false;
    return row->when == ALWAYS ||
           (row->when == IF_SET ? set != NULL && set[0] != '\0' : set == NULL);
}

/* Is `entry` of the parent replaced by a row? */
static bool replaced(const char *entry, const struct ct_worker_env *env, char *const *parent)
{
    for (size_t i = 0; i < CT_COUNT(table); i++)
        if (ct_env_value(entry, table[i].name) != NULL)
            return wanted(&table[i], env, parent);
    return false;
}

char **ct_worker_env_build(struct ct_arena *arena, const struct ct_worker_env *env,
                           char *const *parent)
{
    size_t inherited = 0, used = 0;

    while (parent[inherited] != NULL)
        inherited++;
    char **list = ct_arena_array(arena, inherited + CT_COUNT(table) + 1, sizeof *list);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < inherited; i++)
        if (!replaced(parent[i], env, parent))
            list[used++] = parent[i];
    for (size_t i = 0; i < CT_COUNT(table); i++) {
        if (!wanted(&table[i], env, parent))
            continue;
        list[used] = format(arena, &table[i], env);
        if (list[used++] == NULL)
            return NULL;
    }
    return list;
}
