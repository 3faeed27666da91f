/* See node_uv.h. Birth; a step, which is an event for the core and the actions that it answers
 * with; death, when nothing is left in the loop. */
#include "node_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "guard_uv.h"
#include "net/descriptors.h"
#include "node_state_uv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUND_BYTES = 256 << 20 }; /* environments and tables of one round */

/* ---- a step --------------------------------------------------------------------------------- */

static struct agent_view view_of(struct node *node)
{
    struct agent_view view = {
        .now_ms = uv_now(&node->loop),
        .alive = node->alive,
        .hosts = node->host.server != NULL,
    };
    char why[256];

    if (node->workers != NULL) {
        view.running = ct_workers_running(node->workers);
        view.stopping = ct_workers_stopping(node->workers);
        for (uint32_t i = 0; i < node->job->slots; i++)
            node->alive[i] = ct_workers_alive(node->workers, i);
    }
    if (node->console != NULL)
        view.pipe_broken = ct_console_broken(node->console, CT_CONSOLE_OUT) ||
                           ct_console_broken(node->console, CT_CONSOLE_ERR);
    if (view.hosts && agent_core_is_ending(&node->core)) {
        enum ct_holder_duty duty = ct_rdzv_server_duty(node->host.server, why, sizeof why);

        view.can_yield = duty == CT_HOLDER_YIELDS;
        view.unserved = duty == CT_HOLDER_NEEDED && !host_leads(&node->host);
        view.jobs = ct_rdzv_server_running(node->host.server);
        view.links = ct_rdzv_server_links(node->host.server);
    }
    return view;
}

/* A line of the log at debug level, the transcript of what the core decides. */
static void trace(const struct node *node, const struct agent_event *event, uint64_t action_set)
{
    struct ct_buf line;

    if (node->log.level > CT_LOG_DEBUG || (event->kind == AGENT_ON_TICK && action_set == 0))
        return;
    ct_buf_init(&line, 0);
    agent_step_print(&node->core, event, action_set, &line);
    ct_log_event(&node->log, CT_LOG_DEBUG, "agent", "%s", ct_buf_str(&line));
    ct_buf_deinit(&line);
}

static void on_deadline(uv_timer_t *timer)
{
    node_feed(timer->data, &(struct agent_event){.kind = AGENT_ON_TICK});
}

static void arm(struct node *node)
{
    uint64_t now_ms = uv_now(&node->loop), due_ms = agent_core_deadline(&node->core);

    if (uv_is_closing((uv_handle_t *)&node->timer))
        return;
    if (due_ms == UINT64_MAX)
        (void)uv_timer_stop(&node->timer);
    else
        (void)uv_timer_start(&node->timer, on_deadline, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

void node_feed(struct node *node, const struct agent_event *event)
{
    const struct agent_view view = view_of(node);
    uint64_t actions = agent_core_step(&node->core, &view, event);

    trace(node, event, actions);
    for (int action = 0; action < AGENT_ACTIONS; action++)
        if (agent_has(actions, (enum agent_action)action))
            node_carry_out(node, (enum agent_action)action, event);
    arm(node);
}

void node_fail(struct node *node, const struct ct_error *error)
{
    if (!agent_core_is_ending(&node->core))
        node->report.error = *error;
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_FAILED, .code = error->code});
}

/* ---- birth ---------------------------------------------------------------------------------- */

static void on_room(void *context)
{
    struct node *node = context;

    if (node->workers != NULL)
        ct_workers_room(node->workers);
}

/* https://no-color.org: any value that is not empty. */
static void dress(struct node *node)
{
    const struct ct_config *cfg = &node->job->cfg;
    const char *no_colour = ct_env_find(node->job->env, "NO_COLOR");
    const char *term = ct_env_find(node->job->env, "TERM");
    enum ct_console_colour colour = (enum ct_console_colour)cfg->log.color;

    if (cfg->log.format == CT_CONFIG_LOG_FORMAT_JSON ||
        (colour == CT_CONSOLE_AUTO && no_colour != NULL && no_colour[0] != '\0'))
        colour = CT_CONSOLE_NEVER;
    ct_console_dress(node->console, colour, term == NULL || strcmp(term, "dumb") == 0);
}

static int open_node(struct node *node, struct ct_error *err)
{
    struct ct_workers_callbacks callbacks = node_workers_callbacks;
    const struct ct_config *cfg = &node->job->cfg;

    callbacks.context = node;
    node->console = ct_console_new(&node->loop, STDOUT_FILENO, STDERR_FILENO, on_room, node);
    if (node->console == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    dress(node);
    ct_console_log(node->console, &node->log, "ctrun");
    ct_console_report(node->console, &node->log,
                      !node->job->program.native && !node->job->for_output, &node->output_lost);
    node->log.level = (enum ct_log_level)cfg->log.level;
    node->log.json = cfg->log.format == CT_CONFIG_LOG_FORMAT_JSON;
    node->workers =
        ct_workers_new(&node->loop, node->console, (uint64_t)cfg->launch.grace_ms, &callbacks);
    if (node->workers == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    ct_workers_guard(node->workers, &node->guard);
    if (node->job->folder.stays && cfg->launch.log_dir[0] == '\0')
        ct_log_event(&node->log, CT_LOG_INFO, "logs", "the log files are in %s",
                     node->job->folder.path);
    for (uint32_t i = 0; i < node->job->note_count; i++)
        ct_log_event(&node->log, CT_LOG_INFO, "hardware", "%s", node->job->notes[i]);
    if (node->job->warning != NULL)
        ct_log_event(&node->log, CT_LOG_WARN, "hardware", "%s", node->job->warning);
    signals_watch(node);
    guard_watch(node);
    node->watch = watch_new(node);
    node->inquiry = inquiry_new(node);
    node->lines = lines_new(node);
    node->all_lines = all_lines_new(node);
    if (node->watch == NULL || node->inquiry == NULL || node->lines == NULL ||
        node->all_lines == NULL || script_watch_new(node, &node->scripts) != 0)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    int rc = job_events_new(node, &node->events, err);
    if (rc == 0)
        rc = wandb_new(node, &node->wandb, err);
    return rc == 0 ? ct_control_page_new(&node->page, &node->page_fd, err) : rc;
}

static int open_store(struct node *node, struct ct_error *err)
{
    node->store = store_new(node, err);
    return node->store != NULL ? 0 : err->code;
}

/* What the number of ranks must divide, so that the global batch stays as it is when nodes come and
 * go. 0 when it cannot change, or cannot be right: then the trainer says what is wrong. */
static uint32_t world_divides(const struct job *job)
{
    const struct ct_config *cfg = &job->cfg;
    uint32_t micro = CT_MAX((uint32_t)cfg->batch.micro, 1u), global = (uint32_t)cfg->batch.global;
    bool elastic = cfg->launch.nnodes.min < cfg->launch.nnodes.max;

    return elastic && job->program.native && global % micro == 0 ? global / micro : 0;
}

/* A server here warns of it itself. */
static void warn_of_certificate(struct node *node)
{
    const struct ct_key_source source = key_option_source(&node->job->cfg);
    struct ct_key key = {.kind = CT_KEY_SECRET};
    struct ct_error text = {0};

    if (node->host.server == NULL && ct_certificate_files_given(&source.tls) &&
        ct_key_source_load(&source, &key, NULL) == 0 &&
        ct_certificates_judge_time(key.certificates,
                                   (int64_t)(ct_clock_wall_ns(&ct_clock_system) / 1000000000),
                                   &text) != 0)
        ct_log_event(&node->log, CT_LOG_WARN, "certificate", "%s", text.text);
    ct_net_key_wipe(&key);
}

static int join(struct node *node, struct ct_error *err)
{
    const struct job *job = node->job;
    const struct ct_config *cfg = &job->cfg;
    struct ct_agent_callbacks callbacks = node_agent_callbacks;
    struct ct_agent_options options = {
        .run_id = cfg->launch.rdzv_id,
        .host = job->host,
        .role = cfg->launch.role,
        .slots = job->slots,
        .survivable = job->program.native,
        .reports_recovery = job->program.native,
        .node_rank = (int32_t)cfg->launch.node_rank,
        .slurm_node = -1,
        .follows_events = node->events != NULL,
        .params = ct_rdzv_params_default,
    };
    char waiting[400];

    if (cfg->launch.nnodes.min < cfg->launch.nnodes.max && !job->alone)
        warm_start_fill(node, job->slots); /* while it waits for its round */
    /* What the server tells an operator of a daemon is too much beside a job's own words. */
    node->server_log = node->log;
    if (node->log.level > CT_LOG_DEBUG)
        node->server_log.level = CT_MAX(node->log.level, CT_LOG_WARN);
    int rc = host_start(&node->host, &node->loop, job, &node->server_log, err);

    if (rc != 0)
        return rc;
    if (node->host.page != NULL)
        ct_log_event(&node->log, CT_LOG_INFO, "status", "the status page is at %s%s",
                     cfg->launch.status_tls[0] != '\0' ? "https://" : "",
                     ct_endpoint_print(ct_page_endpoint(node->host.page), waiting));
    (void)snprintf(waiting, sizeof waiting, "waiting for the rendezvous at %.320s",
                   node->host.endpoint);
    show_waiting(node, waiting);
    warn_of_certificate(node);
    callbacks.context = node;
    options.endpoint = node->host.endpoint;
    options.address = node->host.address;
    options.id = node->host.id;
    const struct ct_certificate_files tls = key_option_source(cfg).tls;
    options.key_file = cfg->launch.key_file[0] != '\0' && !job->alone ? cfg->launch.key_file : NULL;
    options.tls = !job->alone ? &tls : NULL;
    options.params.nodes_min = job->alone ? 1 : (uint32_t)cfg->launch.nnodes.min;
    options.params.nodes_max = job->alone ? 1 : (uint32_t)cfg->launch.nnodes.max;
    options.params.max_restarts = (uint32_t)cfg->launch.max_restarts;
    options.params.join_timeout_ms = (uint32_t)cfg->launch.join_timeout_ms;
    options.params.last_call_ms = (uint32_t)cfg->launch.last_call_ms;
    options.params.lease_ms = (uint32_t)cfg->launch.lease_ms;
    options.params.grow_ms = (uint32_t)cfg->launch.grow_ms;
    options.params.prepare_ms += (uint32_t)cfg->launch.grace_ms;
    options.params.config_hash = job->config_hash;
    (void)ct_str_copy(options.params.settings, sizeof options.params.settings, job->settings);
    options.params.world_divides = world_divides(job);
    return ct_agent_start(&node->agent, &node->loop, &options, &callbacks, err);
}

static void free_node(struct node *node)
{
    ct_warm_drop(&node->warm);
    store_free(node->store);
    ct_calls_deinit(&node->calls);
    ct_arena_deinit(&node->round_arena);
    free(node->survivors);
    free(node->dismissed);
    free(node->alive);
    watch_free(node->watch);
    script_watch_free(node->scripts);
    inquiry_free(node->inquiry);
    lines_free(node->lines);
    all_lines_free(node->all_lines);
    health_free(node->health);
    failures_deinit(&node->report.failures);
    ct_buf_deinit(&node->report.who);
    if (node->page != NULL) {
        ct_control_page_unmap(node->page);
        (void)close(node->page_fd);
    }
    ct_guard_stop(&node->guard);
    free(node);
}

/* What the core must know of the job. */
static struct agent_settings settings_of(const struct job *job)
{
    const struct ct_config *cfg = &job->cfg;
    struct agent_settings settings = {
        .slots = job->slots,
        .native = job->program.native,
        .alone = job->alone,
        .elastic = cfg->launch.nnodes.min < cfg->launch.nnodes.max,
        .slurm = job->slurm != NULL,
        .grace_ms = (uint64_t)cfg->launch.grace_ms,
        .same_failures = (uint32_t)cfg->launch.same_failure_restarts,
        .requeues = ct_config_requeue_signals(cfg),
    };

    ct_config_signals(cfg, &settings.ends, &settings.forwards);
    return settings;
}

/* A loop takes some descriptors. */
static int open_loop(uv_loop_t *loop, struct ct_error *err)
{
    int rc = uv_loop_init(loop);

    return rc == 0 ? 0
                   : ct_error_set(err, CT_EOS, "no event loop: %s%s", ct_strerror(rc),
                                  rc == UV_EMFILE ? "; raise `ulimit -n`" : "");
}

static struct node *new_node(const struct job *job, struct ct_error *err)
{
    struct node *node = calloc(1, sizeof *node);

    (void)ct_error_set(err, CT_ENOMEM, "out of memory");
    if (node == NULL)
        return NULL;
    ct_guard_start(&node->guard, folder_temporary(&job->folder)); /* there is no loop yet */
    node->job = job;
    node->page_fd = -1;
    node->survivors = calloc(job->slots, sizeof *node->survivors);
    node->dismissed = calloc(job->slots, sizeof *node->dismissed);
    node->alive = calloc(job->slots, sizeof *node->alive);
    if (node->survivors == NULL || node->dismissed == NULL || node->alive == NULL ||
        open_loop(&node->loop, err) != 0) {
        ct_guard_stop(&node->guard);
        free(node->survivors);
        free(node->dismissed);
        free(node->alive);
        free(node);
        return NULL;
    }
    *err = (struct ct_error){0};
    const struct agent_settings settings = settings_of(job);
    agent_core_init(&node->core, &settings, node->survivors, node->dismissed);
    (void)uv_timer_init(&node->loop, &node->timer);
    (void)uv_timer_init(&node->loop, &node->waiting.timer);
    node->timer.data = node;
    node->waiting.timer.data = node;
    node->started_ms = uv_now(&node->loop);
    ct_arena_init(&node->round_arena, ROUND_BYTES);
    ct_calls_init(&node->calls);
    failures_init(&node->report.failures);
    node->report.result.cause = node->report.unstopped = ct_failure_none;
    ct_buf_init(&node->report.who, 0);
    return node;
}

/* With fewer it would never hear from its rendezvous, and could not start a worker. */
static int check_descriptors(struct ct_error *err)
{
    enum { NEEDED = 12 }; /* the rendezvous and this node's connection with it 6, a worker 6 */
    uint32_t left = ct_descriptors_left(NEEDED);

    if (left == NEEDED)
        return 0;
    return ct_error_set(err, CT_EOS,
                        "this ctrun may open %llu files at once; a job of one worker needs %d "
                        "more than are open, and %u are left: Too many open files; raise `ulimit "
                        "-n`",
                        (unsigned long long)ct_descriptors_limit(), NEEDED, left);
}

int node_run(const struct job *job, struct ct_error *ret_err)
{
    struct node *node = new_node(job, ret_err);
    struct ct_error err = {0};

    if (node == NULL)
        return ct_exit_status(ret_err->code);
    int rc = open_node(node, &err);
    if (rc == 0)
        rc = open_store(node, &err);
    if (rc == 0)
        rc = check_descriptors(&err);
    if (rc == 0)
        rc = join(node, &err);
    node->health = health_new(node);
    if (rc == 0) {
        node_feed(node, &(struct agent_event){.kind = AGENT_ON_LINKED});
        health_watch(node->health);
        health_probe(node->health);
    } else {
        node_fail(node, &err);
    }
    (void)uv_run(&node->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&node->loop);
    int status = node->core.status;
    if (status == 0 && node->output_lost && job->for_output)
        status = ct_exit_status(CT_EIO);
    bool named_file = node->report.named_file;
    free_node(node);
    folder_drop(&job->folder, named_file);
    return status;
}
