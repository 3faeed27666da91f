/* What Slurm says; see slurm.h. */
#include "slurm/slurm.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "slurm/hostlist.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    FIRST_PORT = 20000, /* below Linux' ephemeral ports, which begin at 32768 */
    PORTS = 10000,
};

/* One number: the first variable of `names` that is set. A variable that does not hold one is an
 * error; none is 0, or -1 in `ret_signed`. */
struct number {
    const char *names[3];
    uint64_t most;
    uint64_t *ret;
};

static int read_number(char *const *env, const struct number *number, struct ct_error *err)
{
    for (size_t i = 0; i < CT_COUNT(number->names) && number->names[i] != NULL; i++) {
        const char *text = ct_env_find(env, number->names[i]);
        if (text == NULL)
            continue;
        if (ct_parse_u64(text, number->ret) != 0 || *number->ret > number->most)
            return ct_error_set(err, CT_EUSAGE, "%s is \"%.60s\", not a number up to %" PRIu64,
                                number->names[i], text, number->most);
        return 0;
    }
    return 0;
}

/* ---- tasks of a node ---- */

int ct_slurm_tasks_of(const char *text, uint32_t node, uint32_t *ret_tasks)
{
    uint64_t before = 0;

    for (;;) {
        unsigned tasks = 0, times = 1;
        int used = 0, more = 0;
        if (*text < '0' || *text > '9' || sscanf(text, "%9u%n", &tasks, &used) != 1)
            return CT_EUSAGE;
        text += used;
        if (*text == '(') {
            if (sscanf(text, "(x%9u)%n", &times, &more) != 1 || more == 0 || times == 0)
                return CT_EUSAGE;
            text += more;
        }
        before += times;
        if (node < before) {
            *ret_tasks = tasks;
            return 0;
        }
        if (*text != ',')
            return CT_EUSAGE;
        text++;
    }
}

/* Tasks on this node, by the first variable that says so. */
static int read_node_tasks(char *const *env, struct ct_slurm *slurm, struct ct_error *err)
{
    static const char *const names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"};

    for (size_t i = 0; i < CT_COUNT(names); i++) {
        const char *text = ct_env_find(env, names[i]);
        if (text == NULL)
            continue;
        if (ct_slurm_tasks_of(text, slurm->node_rank, &slurm->node_tasks) != 0)
            return ct_error_set(err, CT_EUSAGE,
                                "%s is \"%.100s\", which does not say how many tasks node %u has",
                                names[i], text, slurm->node_rank);
        return 0;
    }
    return 0;
}

/* ---- hosts ---- */

static int read_hosts(char *const *env, struct ct_arena *arena, struct ct_slurm *slurm,
                      struct ct_error *err)
{
    static const char *const names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                        "SLURM_NODELIST"};
    size_t first = slurm->place == CT_SLURM_TASK ? 0 : 1;

    for (size_t i = first; i < CT_COUNT(names); i++) {
        const char *text = ct_env_find(env, names[i]);
        size_t count = 0;
        if (text == NULL)
            continue;
        int rc = ct_hostlist_expand(text, arena, &slurm->hosts, &count, err);
        if (rc != 0)
            return ct_error_prefix(err, "%s", names[i]);
        if (slurm->nodes != 0 && slurm->nodes != count)
            return ct_error_set(err, CT_EUSAGE,
                                "%s names %zu hosts, but Slurm says that there are %u nodes",
                                names[i], count, slurm->nodes);
        slurm->nodes = (uint32_t)count;
        return 0;
    }
    return 0;
}

/* ---- all of it ---- */

static const char *text_of(char *const *env, const char *name)
{
    const char *text = ct_env_find(env, name);

    return text != NULL ? text : "";
}

static int read_numbers(char *const *env, struct ct_slurm *slurm, struct ct_error *err)
{
    uint64_t job = 0, step = 0, array_job = UINT64_MAX, array_task = UINT64_MAX, restarts = 0;
    uint64_t nodes = 0, node = 0, tasks = 0, rank = 0, cpus = 0, node_cpus = 0, gpus = 0;
    bool is_task = slurm->place == CT_SLURM_TASK;
    const struct number numbers[] = {
        {{"SLURM_JOB_ID", "SLURM_JOBID"}, INT64_MAX, &job},
        {{"SLURM_STEP_ID", "SLURM_STEPID"}, UINT32_MAX, &step},
        {{"SLURM_ARRAY_JOB_ID"}, INT64_MAX, &array_job},
        {{"SLURM_ARRAY_TASK_ID"}, INT64_MAX, &array_task},
        {{"SLURM_RESTART_COUNT"}, INT32_MAX, &restarts},
        {{is_task ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES", "SLURM_NNODES",
          "SLURM_JOB_NUM_NODES"},
         CT_HOSTLIST_MAX,
         &nodes},
        {{"SLURM_NODEID"}, CT_HOSTLIST_MAX - 1, &node},
        {{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}, INT32_MAX, &tasks},
        {{"SLURM_PROCID"}, INT32_MAX, &rank},
        {{"SLURM_CPUS_PER_TASK"}, INT32_MAX, &cpus},
        {{"SLURM_CPUS_ON_NODE"}, INT32_MAX, &node_cpus},
        {{"SLURM_GPUS_ON_NODE"}, INT32_MAX, &gpus},
    };

    for (size_t i = 0; i < CT_COUNT(numbers); i++) {
        int rc = read_number(env, &numbers[i], err);
        if (rc != 0)
            return rc;
    }
    slurm->job_id = job;
    slurm->step_id = (uint32_t)step;
    slurm->array_job_id = array_job != UINT64_MAX ? (int64_t)array_job : -1;
    slurm->array_task_id = array_task != UINT64_MAX ? (int64_t)array_task : -1;
    slurm->restart_count = (uint32_t)restarts;
    slurm->nodes = (uint32_t)nodes;
    slurm->node_rank = (uint32_t)node;
    slurm->tasks = (uint32_t)tasks;
    slurm->task_rank = (uint32_t)rank;
    slurm->cpus_per_task = (uint32_t)cpus;
    slurm->node_cpus = (uint32_t)node_cpus;
    slurm->node_gpus = (uint32_t)gpus;
    return 0;
}

/* A batch script has SLURM_PROCID 0 too, but no step, or the step that stands for scripts. */
static enum ct_slurm_place place_of(char *const *env)
{
    const char *step = ct_env_find(env, "SLURM_STEP_ID");
    uint64_t number;

    if (ct_env_find(env, "SLURM_JOB_ID") == NULL && ct_env_find(env, "SLURM_JOBID") == NULL)
        return CT_SLURM_NONE;
    if (step == NULL)
        step = ct_env_find(env, "SLURM_STEPID");
    if (step == NULL || ct_env_find(env, "SLURM_PROCID") == NULL ||
        (ct_parse_u64(step, &number) == 0 && number >= 0xfffffff0u))
        return CT_SLURM_BATCH;
    return CT_SLURM_TASK;
}

int ct_slurm_read(char *const *env, struct ct_arena *arena, struct ct_slurm *ret_slurm,
                  struct ct_error *err)
{
    struct ct_slurm slurm = {
        .place = place_of(env),
        .array_job_id = -1,
        .array_task_id = -1,
        .node_name = text_of(env, "SLURMD_NODENAME"),
        .launch_address = text_of(env, "SLURM_LAUNCH_NODE_IPADDR"),
    };
    int rc = 0;

    if (slurm.place != CT_SLURM_NONE) {
        rc = read_numbers(env, &slurm, err);
        if (rc == 0)
            rc = read_hosts(env, arena, &slurm, err);
        if (rc == 0 && slurm.nodes > 0 && slurm.node_rank >= slurm.nodes)
            rc = ct_error_set(err, CT_EUSAGE, "SLURM_NODEID is %u, but there are %u nodes",
                              slurm.node_rank, slurm.nodes);
        if (rc == 0 && slurm.place == CT_SLURM_TASK)
            rc = read_node_tasks(env, &slurm, err);
    }
    if (rc == 0)
        *ret_slurm = slurm;
    return rc;
}

/* ---- contradictions ---- */

static int check_tasks(const struct ct_slurm *slurm, struct ct_error *err)
{
    if (slurm->node_tasks > 1)
        return ct_error_set(err, CT_EUSAGE,
                            "srun starts %u ctrun on this node, but one starts all workers of a "
                            "node: give srun --ntasks-per-node=1 and ctrun --nproc_per_node %u",
                            slurm->node_tasks, slurm->node_tasks);
    if (slurm->tasks != 0 && slurm->tasks != slurm->nodes)
        return ct_error_set(err, CT_EUSAGE,
                            "srun starts %u ctrun on %u nodes, but one is needed a node: give "
                            "srun --ntasks-per-node=1",
                            slurm->tasks, slurm->nodes);
    return 0;
}

static int check_nodes(const struct ct_slurm *slurm, const struct ct_slurm_request *request,
                       struct ct_error *err)
{
    bool elastic = request->min_nodes < request->max_nodes;

    if (request->standalone && slurm->nodes > 1)
        return ct_error_set(err, CT_EUSAGE,
                            "standalone would make a job of its own on each of Slurm's %u nodes: "
                            "leave it out, or run ctrun under `env -u SLURM_JOB_ID`",
                            slurm->nodes);
    if (!request->nodes_given)
        return 0;
    if (request->min_nodes > slurm->nodes || (!elastic && request->max_nodes != slurm->nodes))
        return ct_error_set(err, CT_EUSAGE,
                            "nnodes asks for %" PRId64 " nodes, but Slurm runs this %s on %u: "
                            "leave nnodes out, or give %s --nodes=%" PRId64,
                            request->min_nodes, slurm->place == CT_SLURM_TASK ? "step" : "job",
                            slurm->nodes, slurm->place == CT_SLURM_TASK ? "srun" : "sbatch",
                            request->min_nodes);
    return 0;
}

/* Here ctrun runs once, unless the script starts it elsewhere by means of its own. */
static int check_batch(const struct ct_slurm *slurm, const struct ct_slurm_request *request,
                       struct ct_error *err)
{
    if (slurm->nodes <= 1 || request->standalone)
        return 0;
    if (request->nodes_given && request->max_nodes > 1)
        return check_nodes(slurm, request, err);
    return ct_error_set(err, CT_EUSAGE,
                        "Slurm gave this job %u nodes, but ctrun was started on one alone: start "
                        "it with `srun ctrun`, or give --standalone to use this one",
                        slurm->nodes);
}

int ct_slurm_check(const struct ct_slurm *slurm, const struct ct_slurm_request *request,
                   struct ct_error *err)
{
    if (slurm->place == CT_SLURM_NONE)
        return 0;
    if (slurm->place == CT_SLURM_BATCH)
        return check_batch(slurm, request, err);
    int rc = check_tasks(slurm, err);
    if (rc == 0)
        rc = check_nodes(slurm, request, err);
    if (rc != 0)
        return rc;
    if (request->node_rank >= 0 && request->node_rank != slurm->node_rank)
        return ct_error_set(err, CT_EUSAGE,
                            "node_rank is %" PRId64 ", but this is Slurm's node %u: leave it out",
                            request->node_rank, slurm->node_rank);
    return 0;
}

/* ---- what follows from it ---- */

const char *ct_slurm_run_id(const struct ct_slurm *slurm, struct ct_arena *arena)
{
    char step[16] = "";

    if (slurm->place == CT_SLURM_TASK)
        (void)snprintf(step, sizeof step, ".%u", slurm->step_id);
    if (slurm->array_job_id >= 0 && slurm->array_task_id >= 0)
        return ct_arena_printf(arena, "%" PRId64 "_%" PRId64 "%s", slurm->array_job_id,
                               slurm->array_task_id, step);
    return ct_arena_printf(arena, "%" PRIu64 "%s", slurm->job_id, step);
}

uint16_t ct_slurm_port(const struct ct_slurm *slurm)
{
    uint64_t key[2] = {slurm->job_id, slurm->step_id};

    return (uint16_t)(FIRST_PORT + ct_hash64(key, sizeof key, 0) % PORTS);
}

/* SLURM_CPUS_PER_TASK may be the batch script's, which srun has not taken over. */
uint32_t ct_slurm_cpus(const struct ct_slurm *slurm)
{
    bool by_task = slurm->place == CT_SLURM_TASK && slurm->cpus_per_task > 0;

    if (by_task && (slurm->node_cpus == 0 || slurm->cpus_per_task < slurm->node_cpus))
        return slurm->cpus_per_task;
    return slurm->node_cpus;
}
