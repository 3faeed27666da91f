/* See round.h. */
#include "round.h"

#include "base/fs.h"
#include "launch/env.h"

#include <string.h>

static const char *const names[CT_CONSOLE_STREAMS] = {"stdout.log", "stderr.log"};

/* RUN_FOLDER/attempt_RESTARTS_gGENERATION/LOCAL_RANK; NULL without memory. */
static const char *folder_of(const struct job *job, const struct ct_round *round,
                             uint32_t local_rank, struct ct_arena *arena)
{
    const char *folder = folder_of_round(&job->folder, round->restarts, round->generation, arena);

    return folder != NULL ? ct_arena_printf(arena, "%s/%u", folder, local_rank) : NULL;
}

const char *round_error_file(const struct job *job, const struct ct_round *round,
                             uint32_t local_rank, struct ct_arena *arena)
{
    const char *folder;

    if (job->folder.path[0] == '\0')
        return "";
    folder = folder_of(job, round, local_rank, arena);
    return folder != NULL ? ct_arena_printf(arena, "%s/error.json", folder) : NULL;
}

/* Where the streams of a worker go: redirects to files only, tee to both; a log folder without
 * either means both. */
static int route(const struct job *job, const char *folder, struct ct_worker_spec *spec,
                 uint32_t local_rank, struct ct_arena *arena)
{
    int to_file = ct_config_streams(job->cfg.launch.redirects, local_rank);
    int to_both = ct_config_streams(job->cfg.launch.tee, local_rank);
    bool none_named =
        strcmp(job->cfg.launch.redirects, "0") == 0 && strcmp(job->cfg.launch.tee, "0") == 0;

    if (none_named && job->folder.stays)
        to_both = 3;
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++) {
        struct ct_output_route *to = &spec->routes[i];
        int bit = 1 << i;

        to->console = (to_file & bit) == 0;
        if (((to_file | to_both) & bit) == 0 || !job->folder.stays)
            continue;
        to->file = ct_arena_printf(arena, "%s/%s", folder, names[i]);
        if (to->file == NULL)
            return CT_ENOMEM;
    }
    return 0;
}

/* The folder of a worker, made, with what goes into it. */
static int place(const struct round_input *input, struct ct_worker_spec *spec, uint32_t local_rank,
                 struct ct_arena *arena, struct ct_error *err)
{
    const struct job *job = input->job;
    const char *folder = "";
    int rc = 0;

    spec->error_file = "";
    if (job->folder.path[0] != '\0') {
        folder = folder_of(job, input->round, local_rank, arena);
        spec->error_file = round_error_file(job, input->round, local_rank, arena);
        if (folder == NULL || spec->error_file == NULL)
            return CT_ENOMEM;
        rc = ct_fs_make_dirs(folder, err);
    }
    return rc == 0 ? route(job, folder, spec, local_rank, arena) : rc;
}

/* The variables that are the same for all workers of the node. */
static struct ct_worker_env common_env(const struct round_input *input)
{
    const struct job *job = input->job;
    const struct ct_round *round = input->round;

    return (struct ct_worker_env){
        .restart_count = round->restarts,
        .max_restarts = round->max_restarts,
        .generation = (uint32_t)round->generation,
        .master_port = input->master.port,
        .omp_threads = job->omp_threads,
        .master_addr = input->master.address,
        .agent_store = input->master.served ? "True" : "False",
        /* Not every build of PyTorch has the other one. */
        .use_libuv = input->master.served || job->program.native ? NULL : "0",
        .run_id = job->cfg.launch.rdzv_id,
    };
}

static int pin(const struct job *job, uint32_t local_rank, struct ct_worker_spec *spec,
               struct ct_arena *arena)
{
    struct ct_cpus *share;

    if (job->cpu_order == NULL)
        return 0;
    share = ct_arena_alloc(arena, sizeof *share);
    if (share == NULL)
        return CT_ENOMEM;
    if (ct_cpus_share(job->cpu_order, job->cpu_count, job->slots, local_rank, share))
        spec->cpus = share;
    return 0;
}

static int fill(const struct round_input *input, const struct ct_env_node *nodes, uint32_t i,
                struct ct_worker_spec *spec, struct ct_arena *arena)
{
    const struct job *job = input->job;
    const struct ct_round *round = input->round;
    struct ct_worker_env env = common_env(input);

    ct_worker_env_ranks(&env, nodes, round->node_count, round->self, i);
    env.error_file = job->program.native ? "" : spec->error_file;
    spec->rank = env.rank;
    spec->prefix = ct_arena_printf(arena, "[%u:%u] ", round->self, env.rank);
    spec->envp = ct_worker_env_build(arena, &env, job->env);
    return spec->prefix != NULL && spec->envp != NULL ? pin(job, i, spec, arena) : CT_ENOMEM;
}

int round_specs(const struct round_input *input, struct ct_arena *arena,
                const struct ct_worker_spec **ret_specs, struct ct_error *err)
{
    const struct job *job = input->job;
    const struct ct_round *round = input->round;
    struct ct_worker_spec *specs = ct_arena_array(arena, job->slots, sizeof *specs);
    struct ct_env_node *nodes = ct_arena_array(arena, round->node_count, sizeof *nodes);
    int rc = 0;

    if (specs == NULL || nodes == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a round of %u nodes",
                            round->node_count);
    for (uint32_t i = 0; i < round->node_count; i++)
        nodes[i] = (struct ct_env_node){round->nodes[i].slots, round->nodes[i].role};
    for (uint32_t i = 0; rc == 0 && i < job->slots; i++) {
        rc = place(input, &specs[i], i, arena, err);
        if (rc == 0)
            rc = fill(input, nodes, i, &specs[i], arena);
    }
    if (rc == CT_ENOMEM)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the environments of %u workers",
                            job->slots);
    if (rc == 0)
        *ret_specs = specs;
    return rc;
}

const struct ct_wire_place *round_places(const struct ct_round *round, struct ct_arena *arena)
{
    struct ct_wire_place *places = ct_arena_array(arena, round->node_count, sizeof *places);

    for (uint32_t i = 0; places != NULL && i < round->node_count; i++)
        places[i] = (struct ct_wire_place){
            .first_rank = round->nodes[i].first_rank,
            .slots = round->nodes[i].slots,
            .host = round->nodes[i].host,
            .address = round->nodes[i].address,
        };
    return places;
}

struct ct_message round_assign(const struct job *job, const struct ct_round *round,
                               const struct ct_wire_place *places, uint32_t local_rank)
{
    const struct ct_round_node *self = &round->nodes[round->self];
    struct ct_message message = {
        .type = CT_MSG_ASSIGN,
        .assign =
            {
                .generation = round->generation,
                .lineage = round->lineage,
                .base_step = round->base_step,
                .base_digest = round->base_digest,
                .base_rank = -1,
                .published_generation = round->published_generation,
                .published_step = round->published_step,
                .run_id = job->cfg.launch.rdzv_id,
                .rank = self->first_rank + local_rank,
                .world = round->world,
                .local_rank = local_rank,
                .local_world = self->slots,
                .node_rank = round->self,
                .restart_count = round->restarts,
                .store = 1,
                .nodes = {.data = places, .count = round->node_count},
            },
    };

    if (round->base_node >= 0)
        message.assign.base_rank = (int32_t)round->nodes[round->base_node].first_rank;
    return message;
}

int32_t round_node_of(const struct ct_round *round, int32_t rank)
{
    for (uint32_t i = 0; i < round->node_count; i++) {
        int64_t first = round->nodes[i].first_rank;

        if (rank >= first && rank < first + round->nodes[i].slots)
            return (int32_t)i;
    }
    return -1;
}
