/* See round.h. */
#include "round.h"

#include "base/signals.h"
#include "launch/worker_env.h"
#include "output/prefix.h"

#include <limits.h>
#include <string.h>

/* How many collectives PyTorch's flight recorder keeps: its own default where it records. */
#define FLIGHT_CALLS "2000"

static const char *const names[CT_CONSOLE_STREAMS] = {"stdout.log", "stderr.log"};
static const char *const filtered_names[CT_CONSOLE_STREAMS] = {"filtered_stdout.log",
                                                               "filtered_stderr.log"};

/* RUN_FOLDER/attempt_RESTARTS_gGENERATION/LOCAL_RANK, in a temporary one attempt_..._LOCAL_RANK;
 * NULL without memory. */
static const char *folder_of(const struct job *job, const struct ct_round *round,
                             uint32_t local_rank, struct ct_arena *arena)
{
    const char *folder = folder_of_round(&job->folder, round->restarts, round->generation, arena);

    return folder != NULL
               ? ct_arena_printf(arena, "%s%c%u", folder, job->folder.stays ? '/' : '_', local_rank)
               : NULL;
}

/* Where worker `local_rank` of the round may leave an error file, in `arena`; NULL without memory,
 * "" when this node keeps no files. */
static const char *error_file_of(const struct job *job, const struct ct_round *round,
                                 uint32_t local_rank, struct ct_arena *arena)
{
    const char *folder;

    if (job->folder.path[0] == '\0')
        return "";
    folder = folder_of(job, round, local_rank, arena);
    if (folder == NULL)
        return NULL;
    /* The temporary folder has no other in it: making and removing one for each worker is a good
     * part of what a short job takes. */
    return ct_arena_printf(arena, job->folder.stays ? "%s/error.json" : "%s_error.json", folder);
}

/* The lines of a stream that are wanted twice. `folder` is the worker's: theirs is above it. */
static int filter(const struct ct_config_strs *texts, const char *folder, int stream,
                  struct ct_output_route *to, struct ct_arena *arena)
{
    if (texts->count == 0 || folder[0] == '\0')
        return 0;
    to->filter = (struct ct_filter){texts->at, (size_t)texts->count};
    to->filtered_file = ct_arena_printf(arena, "%.*s/%s", (int)(strrchr(folder, '/') - folder),
                                        folder, filtered_names[stream]);
    return to->filtered_file != NULL ? 0 : CT_ENOMEM;
}

/* Where the streams of a worker go: redirects to files only, tee to both; a log folder without
 * either means both. As torchrun it does not, and only what is tee'd has a prefix. */
static int route(const struct job *job, const char *folder, struct ct_worker_spec *spec,
                 uint32_t local_rank, struct ct_arena *arena)
{
    const struct ct_config *cfg = &job->cfg;
    const struct ct_config_ints *shown = &cfg->launch.local_ranks_filter;
    const struct ct_config_strs *const filters[] = {&cfg->launch.duplicate_stdout_filters,
                                                    &cfg->launch.duplicate_stderr_filters};
    int to_file = ct_config_streams(cfg->launch.redirects, local_rank);
    int to_both = ct_config_streams(cfg->launch.tee, local_rank);
    bool none_named = strcmp(cfg->launch.redirects, "0") == 0 && strcmp(cfg->launch.tee, "0") == 0;
    bool console = ct_filter_shows(shown->at, (size_t)shown->count, local_rank);

    to_file &= ~to_both; /* who is named twice is tee'd */
    if (none_named && !job->as_torchrun && cfg->launch.log_dir[0] != '\0' && job->folder.stays)
        to_both = 3;
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++) {
        struct ct_output_route *to = &spec->routes[i];
        int bit = 1 << i;

        to->console = console && (to_file & bit) == 0;
        to->json = cfg->log.format == CT_CONFIG_LOG_FORMAT_JSON;
        to->has_records = job->program.native;
        to->bare = job->as_torchrun && (to_both & bit) == 0;
        if (job->folder.stays && filter(filters[i], folder, i, to, arena) != 0)
            return CT_ENOMEM;
        if (((to_file | to_both) & bit) == 0 || !job->folder.stays)
            continue;
        to->file = ct_arena_printf(arena, "%s/%s", folder, names[i]);
        if (to->file == NULL)
            return CT_ENOMEM;
    }
    return 0;
}

/* The folder of a worker, with what goes into it. */
static int place(const struct round_input *input, struct ct_worker_spec *spec, uint32_t local_rank,
                 struct ct_arena *arena)
{
    const struct job *job = input->job;
    const char *folder = "";

    spec->error_file = "";
    if (job->folder.path[0] != '\0') {
        folder = folder_of(job, input->round, local_rank, arena);
        spec->error_file = error_file_of(job, input->round, local_rank, arena);
        if (folder == NULL || spec->error_file == NULL)
            return CT_ENOMEM;
        spec->folder = job->folder.stays ? folder : NULL;
    }
    return route(job, folder, spec, local_rank, arena);
}

/* The variables that are the same for all workers of the node. */
static struct ct_worker_env common_env(const struct round_input *input)
{
    const struct job *job = input->job;
    const struct ct_round *round = input->round;
    const char *tuning = job->cfg.collectives.tuning;

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
        .run_id = job->run_id,
        .run_folder = input->run_folder,
        .marks = input->marks,
        .tuning = strcmp(tuning, "auto") == 0 ? NULL : tuning,
    };
}

/* "2,10,15": the signals after which workers are stopped, whatever becomes of the job. */
static const char *stop_signals_of(const struct job *job, struct ct_arena *arena)
{
    uint64_t ends, forwards, stops;
    const char *text = "";

    ct_config_signals(&job->cfg, &ends, &forwards);
    stops = ends | ct_config_requeue_signals(&job->cfg);
    for (int signal = 1; signal < 64 && text != NULL; signal++)
        if (ct_signals_has(stops, signal))
            text = ct_arena_printf(arena, "%s%s%d", text, text[0] != '\0' ? "," : "", signal);
    return text;
}

static const char *prefix_of(const struct round_input *input, const struct ct_worker_env *env,
                             struct ct_arena *arena)
{
    const struct job *job = input->job;
    const struct ct_prefix prefix = {
        .template = job->cfg.launch.log_line_prefix_template,
        .torchrun = job->as_torchrun,
        .role = env->role_name,
        .host = job->host,
        .node = env->group_rank,
        .rank = env->rank,
        .local_rank = env->local_rank,
    };

    return ct_prefix_text(&prefix, arena);
}

static int fill(const struct round_input *input, uint32_t i, const char *stop_signals,
                struct ct_worker_spec *spec, struct ct_arena *arena)
{
    const struct job *job = input->job;
    const struct ct_round *round = input->round;
    struct ct_worker_env env = common_env(input);
    char flight_dumps[PATH_MAX];

    ct_worker_env_ranks(&env, round->runs, round->self, i);
    folder_flight_dumps(&job->folder, round->generation, flight_dumps);
    env.error_file = job->program.native ? "" : spec->error_file;
    env.heartbeat_file = input->heartbeat_files != NULL ? input->heartbeat_files[i] : NULL;
    if (input->heartbeat_files != NULL) {
        env.fault_handler = "1";
        env.flight_dumps = flight_dumps[0] != '\0' ? flight_dumps : NULL;
        env.flight_calls = env.flight_dumps != NULL ? FLIGHT_CALLS : NULL;
    }
    env.stop_signals = stop_signals;
    env.device_rank = job->virtual_local_rank ? 0 : i;
    env.visible_devices = job->gpus != NULL ? job->gpus[i] : NULL;
    spec->rank = env.rank;
    spec->cpus = job->cpus != NULL ? &job->cpus[i] : NULL;
    spec->origin = (struct ct_lines_origin){.prefix = prefix_of(input, &env, arena),
                                            .node = (int)env.group_rank,
                                            .rank = (int)env.rank};
    spec->envp = ct_worker_env_build(arena, &env, job->env);
    if (spec->origin.prefix == NULL || spec->envp == NULL)
        return CT_ENOMEM;
    return ct_program_argv(&job->program, i, arena, &spec->argv);
}

char **round_warm_env(const struct job *job, const char *marks, struct ct_arena *arena)
{
    const struct ct_worker_env env = {
        .omp_threads = job->omp_threads, .run_id = job->run_id, .marks = marks};

    return ct_worker_env_build(arena, &env, job->env);
}

int round_specs(const struct round_input *input, struct ct_arena *arena,
                const struct ct_worker_spec **ret_specs, struct ct_error *err)
{
    const struct job *job = input->job;
    struct ct_worker_spec *specs = ct_arena_array(arena, job->slots, sizeof *specs);
    const char *stop_signals = stop_signals_of(job, arena);
    int rc = specs == NULL || stop_signals == NULL ? CT_ENOMEM : 0;

    for (uint32_t i = 0; rc == 0 && i < job->slots; i++) {
        rc = place(input, &specs[i], i, arena);
        if (rc == 0)
            rc = fill(input, i, stop_signals, &specs[i], arena);
    }
    if (rc == CT_ENOMEM)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the environments of %u workers",
                            job->slots);
    if (rc == 0)
        *ret_specs = specs;
    return rc;
}

struct ct_message round_assign(const struct job *job, const struct ct_round *round,
                               uint32_t local_rank)
{
    const struct ct_round_node *self = round->own;
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
                .address = self->address,
                .runs = {.data = round->runs.data, .count = round->runs.count},
            },
    };

    if (round->base != NULL)
        message.assign.base_rank = (int32_t)round->base->first_rank;
    return message;
}
