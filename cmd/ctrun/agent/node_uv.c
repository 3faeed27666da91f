/* See node_uv.h. Birth, stopping, and the end, which is a list of things to wait for in order:
 * the agent has said good-bye -> no worker lives -> log files are written -> closing words -> other
 * nodes have left the rendezvous that is hosted here -> server, handles, console are closed ->
 * uv_run returns. */
#include "node_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "guard_uv.h"
#include "launch/host_end.h"
#include "node_state_uv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STOP_ANSWER_MS = 500,    /* how long a stop waits for the rendezvous to agree */
    LINGER_LOOK_MS = 5,      /* how often to look whether other nodes have left */
    STAY_LOOK_MS = 100,      /* how often, whether a job that went on is over */
    LEFT_MS = 200,           /* what a worker that has left has sent arrives within so long */
    ROUND_BYTES = 256 << 20, /* environments and tables of one round */
};

/* ---- the end -------------------------------------------------------------------------------- */

static void on_agent_stopped(void *context)
{
    struct node *node = context;

    node_trace(node, "> link closed");
    node->agent_stopped = true;
    node_advance(node);
}

static void on_server_stopped(void *context)
{
    struct node *node = context;

    node_trace(node, "> server stopped");
    node->host.server = NULL;
    node_advance(node);
}

/* Under Slurm, what a lost node has ended is worth another try on other nodes. */
static int outcome(const struct node *node)
{
    bool lost = node->error.code == 0 && node->result.code == CT_ENODE_LOST;

    if (node->requeue || (lost && node->stopped_by == 0 && node->job->slurm != NULL))
        return ct_exit_status(CT_EREQUEUE);
    if (node->unstopped > 0) {
        const struct ct_rdzv_failure *first = &node->unstopped_first;
        return ct_exit_shell_status(
            (struct ct_exit){.status = first->status, .signal = first->signal});
    }
    if (node->stopped_by != 0)
        return 128 + node->stopped_by;
    if (node->error.code != 0)
        return ct_exit_status(node->error.code);
    return node->result.status;
}

/* How the workers are told to end: as ctrun was, but for those that know SIGTERM alone. */
static int stop_signal(struct node *node)
{
    bool same = node->stopped_by != 0 && !node->job->program.native;

    return signals_to_send(node, same ? node->stopped_by : SIGTERM);
}

static void revoke_all(struct node *node)
{
    (void)uv_timer_stop(&node->parting);
    node_trace(node, "< revoke all");
    ct_control_page_revoke(node->page, UINT64_MAX - 1);
}

static void on_parted(uv_timer_t *timer)
{
    revoke_all(timer->data);
}

static void stop_at_once(struct node *node)
{
    node->draining = false;
    revoke_all(node);
    node_trace(node, "< stop workers");
    ct_workers_stop(node->workers, stop_signal(node));
}

/* Workers that hold parts of one state save it together before they stop, which takes collectives:
 * the round is over for them when one has left, for whom others may wait in vain, or when half of
 * launch.grace has passed. */
static void stop_in_peace(struct node *node)
{
    uint64_t grace_ms = (uint64_t)node->job->cfg.launch.grace_ms;

    node->draining = false;
    if (!uv_is_active((uv_handle_t *)&node->parting))
        (void)uv_timer_start(&node->parting, on_parted, grace_ms / 2, 0);
    node_trace(node, "< stop workers");
    ct_workers_stop(node->workers, stop_signal(node));
}

void node_left(struct node *node)
{
    if (uv_is_active((uv_handle_t *)&node->parting) &&
        uv_timer_get_due_in(&node->parting) > LEFT_MS)
        (void)uv_timer_start(&node->parting, on_parted, LEFT_MS, 0);
}

/* Has somebody asked for it, on this node or another? */
static bool is_asked_for(const struct node *node)
{
    const struct ct_rdzv_result *result = &node->result;

    return node->error.code == 0 && (node->stopped_by != 0 || result->code == CT_EREQUEUE ||
                                     (result->code == CT_ECLOSED && result->cause.rank < 0));
}

void node_end(struct node *node, const struct ct_error *error)
{
    if (node->ending)
        return;
    node->ending = true;
    node->ending_at_ms = uv_now(&node->loop);
    if (error != NULL)
        node->error = *error;
    node->status = outcome(node);
    words_waiting(node, NULL);
    words_keep_cause(node);
    node->asked |= is_asked_for(node) || node->released;
    if (is_asked_for(node))
        stop_in_peace(node);
    else
        stop_at_once(node);
    node_trace(node, "< close link");
    if (node->agent != NULL)
        ct_agent_stop(node->agent, on_agent_stopped);
    else
        node->agent_stopped = true;
    node->agent = NULL;
    node->round = NULL; /* it was the agent's */
    messages_publication_due(node);
    node_advance(node);
}

static void on_linger(uv_timer_t *timer)
{
    struct node *node = timer->data;

    if (!node->ending)
        node_end(node, NULL); /* the rendezvous did not answer a stop */
    else
        node_advance(node);
}

/* Other nodes still need the rendezvous here (host_end.h). */
static bool is_needed(struct node *node)
{
    const struct ct_host_view view = {
        .alone = node->job->alone,
        .hurry = node->hurry,
        .released = node->released,
        .jobs = ct_rdzv_server_running(node->host.server),
        .links = ct_rdzv_server_links(node->host.server),
        .waited_ms = uv_now(&node->loop) - node->ending_at_ms,
    };
    enum ct_host_end next = ct_host_next(&view);
    char text[96];

    if (next == CT_HOST_CLOSE)
        return false;
    if (next == CT_HOST_STAY) {
        node->ending_at_ms = uv_now(&node->loop); /* the others' time to leave begins later */
        if (!node->stays) {
            node_trace(node, "< stay");
            words_stay(node);
        }
        node->stays = true;
    } else {
        (void)snprintf(text, sizeof text,
                       "waiting for %zu other node%s to leave the rendezvous here", view.links,
                       view.links == 1 ? "" : "s");
        words_waiting(node, text);
    }
    (void)uv_timer_start(&node->linger, on_linger,
                         next == CT_HOST_STAY ? STAY_LOOK_MS : LINGER_LOOK_MS, 0);
    return true;
}

static void on_flushed(void *context)
{
    struct node *node = context;

    node->flushed = true;
    node_trace(node, "> flushed");
    words_waiting(node, NULL);
    node_advance(node);
}

/* What the workers have printed goes to their files before the closing words. A disk that takes
 * nothing for launch.grace has had its time; so has any once a job that was stopped should have
 * ended. */
static void flush_files(struct node *node)
{
    uint64_t grace_ms = (uint64_t)node->job->cfg.launch.grace_ms;
    struct ct_flush flush = {
        .patience_ms = node->hurry ? 0 : grace_ms,
        .until_ms = node->stopped_by != 0 ? node->stopped_at_ms + grace_ms : UINT64_MAX,
        .flushed = on_flushed,
        .context = node,
    };

    words_waiting(node, "waiting for the disk to take what the workers have printed");
    ct_log_files_flush(ct_workers_files(node->workers), &flush);
}

static void close_all(struct node *node)
{
    node->closed = true;
    node_trace(node, "< close");
    words_waiting(node, NULL);
    signals_close(node);
    guard_close(node);
    uv_close((uv_handle_t *)&node->notice, NULL);
    uv_close((uv_handle_t *)&node->linger, NULL);
    uv_close((uv_handle_t *)&node->quiesce, NULL);
    watch_close(node->watch);
    inquiry_close(node->inquiry);
    health_close(node->health);
    store_close(node->store);
    uv_close((uv_handle_t *)&node->drain, NULL);
    uv_close((uv_handle_t *)&node->parting, NULL);
    ct_workers_free(node->workers, NULL, NULL);
    ct_console_close(node->console, NULL, NULL);
}

void node_advance(struct node *node)
{
    if (node_is_stopped(node) && !node->ending && !ct_workers_running(node->workers)) {
        /* The job is stopped here; give the rendezvous a moment to say so to everybody. */
        (void)uv_timer_start(&node->linger, on_linger, node->hurry ? 0 : STOP_ANSWER_MS, 0);
        return;
    }
    if (!node->ending || node->closed || !node->agent_stopped || ct_workers_running(node->workers))
        return;
    if (node->gone_at_ms == 0)
        node->gone_at_ms = uv_now(&node->loop);
    if (!node->flushed && !ct_log_files_idle(ct_workers_files(node->workers))) {
        node_trace(node, "< flush");
        flush_files(node);
        return;
    }
    if (!node->told) {
        node->told = true;
        node->status = outcome(node); /* what the workers' last ends have made it */
        node_trace(node, "< report, status %d", node->status);
        words_closing(node);
    }
    if (node->host.server != NULL) {
        if (node->server_stopping || is_needed(node))
            return;
        node->server_stopping = true;
        node_trace(node, "< stop server");
        ct_rdzv_server_stop(node->host.server, on_server_stopped, node);
        return;
    }
    close_all(node);
}

/* ---- stopping ------------------------------------------------------------------------------- */

bool node_is_stopped(const struct node *node)
{
    return node->stopped_by != 0 && !node->draining;
}

static void on_drain_late(uv_timer_t *timer)
{
    struct node *node = timer->data;

    if (node->ending)
        return;
    node_trace(node, "> drain late");
    ct_log_event(&node->log, CT_LOG_WARN, "drain_late",
                 "no step ended within the %lld ms of launch.grace: the workers of this node are "
                 "stopped in the middle of it",
                 (long long)node->job->cfg.launch.grace_ms);
    stop_at_once(node);
    node_advance(node);
}

void node_drain(struct node *node)
{
    node->asked = true;
    node->draining = ct_host_boundary_comes(!node->cut_off, member_lives_on(node));
    if (node->draining)
        (void)uv_timer_start(&node->drain, on_drain_late, (uint64_t)node->job->cfg.launch.grace_ms,
                             0);
    else
        stop_in_peace(node);
}

void node_stop(struct node *node, int signal, enum ct_rdzv_leave how)
{
    node->stopped_by = signal;
    node->asked = true;
    node->stopped_at_ms = uv_now(&node->loop);
    node->stopped_count = ct_workers_running(node->workers) ? node->job->slots : 0;
    if (node->agent != NULL)
        node_trace(node, "< leave");
    if (node->agent != NULL)
        ct_agent_leave(node->agent, how);
    if (how == CT_RDZV_LEAVE_DRAIN && node->agent != NULL)
        node_drain(node);
    else
        stop_in_peace(node);
    node_advance(node);
}

bool node_warn_stay(struct node *node, int signal)
{
    if (!node->stays || node->hurry || node->warned)
        return false;
    node->warned = true;
    words_still_needed(node, signal);
    return true;
}

void node_hurry(struct node *node)
{
    node->hurry = true;
    node->draining = false;
    node_trace(node, "< kill");
    ct_workers_kill(node->workers);
    node_advance(node);
}

void node_requeue(struct node *node, int signal)
{
    if (node->stopped_by != 0 || node->ending)
        return;
    node->requeue = true;
    node_stop(node, signal, CT_RDZV_LEAVE_REQUEUE);
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
    struct ct_workers_callbacks callbacks = member_workers_callbacks;
    const struct ct_config *cfg = &node->job->cfg;

    callbacks.context = node;
    node->console = ct_console_new(&node->loop, STDOUT_FILENO, STDERR_FILENO, on_room, node);
    node->survivors = calloc(node->job->slots, sizeof *node->survivors);
    if (node->console == NULL || node->survivors == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    dress(node);
    ct_console_log(node->console, &node->log, "ctrun");
    ct_console_tell(node->console, &node->log, !node->job->program.native && !node->job->for_output,
                    &node->output_lost);
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
    (void)uv_timer_init(&node->loop, &node->notice);
    (void)uv_timer_init(&node->loop, &node->linger);
    (void)uv_timer_init(&node->loop, &node->quiesce);
    (void)uv_timer_init(&node->loop, &node->drain);
    (void)uv_timer_init(&node->loop, &node->parting);
    node->drain.data = node;
    node->parting.data = node;
    node->quiesce.data = node;
    node->watch = watch_new(node);
    node->inquiry = inquiry_new(node);
    if (node->watch == NULL || node->inquiry == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    node->notice.data = node;
    node->linger.data = node;
    return ct_control_page_new(&node->page, &node->page_fd, err);
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

static int join(struct node *node, struct ct_error *err)
{
    const struct job *job = node->job;
    const struct ct_config *cfg = &job->cfg;
    struct ct_agent_callbacks callbacks = member_agent_callbacks;
    struct ct_agent_options options = {
        .run_id = cfg->launch.rdzv_id,
        .host = job->host,
        .role = cfg->launch.role,
        .slots = job->slots,
        .survivable = job->program.native,
        .tells_healed = job->program.native,
        .node_rank = (int32_t)cfg->launch.node_rank,
        .slurm_node = -1,
        .params = ct_rdzv_params_default,
    };
    char waiting[400];

    /* What the server tells an operator of a daemon is too much beside a job's own words. */
    node->server_log = node->log;
    if (node->log.level > CT_LOG_DEBUG)
        node->server_log.level = CT_MAX(node->log.level, CT_LOG_WARN);
    int rc = host_start(&node->host, &node->loop, job, &node->server_log, err);

    if (rc != 0)
        return rc;
    (void)snprintf(waiting, sizeof waiting, "waiting for the rendezvous at %s",
                   node->host.endpoint);
    words_waiting(node, waiting);
    callbacks.context = node;
    options.endpoint = node->host.endpoint;
    options.address = node->host.address;
    options.id = node->host.id;
    options.key_file = cfg->launch.key_file[0] != '\0' && !job->alone ? cfg->launch.key_file : NULL;
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
    store_free(node->store);
    ct_calls_deinit(&node->calls);
    ct_arena_deinit(&node->round_arena);
    free(node->survivors);
    watch_free(node->watch);
    inquiry_free(node->inquiry);
    health_free(node->health);
    failures_deinit(&node->failures);
    ct_buf_deinit(&node->failure.who);
    if (node->page != NULL) {
        ct_control_page_unmap(node->page);
        (void)close(node->page_fd);
    }
}

int node_run(const struct job *job)
{
    struct node *node = calloc(1, sizeof *node);
    struct ct_error err = {0};
    int status;

    if (node != NULL)
        ct_guard_start(&node->guard, folder_temporary(&job->folder)); /* there is no loop yet */
    if (node == NULL || uv_loop_init(&node->loop) != 0) {
        free(node);
        return ct_exit_status(CT_ENOMEM);
    }
    node->job = job;
    node->started_ms = uv_now(&node->loop);
    node->page_fd = -1;
    ct_arena_init(&node->round_arena, ROUND_BYTES);
    ct_calls_init(&node->calls);
    failures_init(&node->failures);
    ct_buf_init(&node->failure.who, 0);
    int rc = open_node(node, &err);
    if (rc == 0)
        rc = open_store(node, &err);
    if (rc == 0)
        rc = join(node, &err);
    node->health = health_new(node);
    if (rc == 0) {
        health_watch(node->health);
        health_look(node->health);
    } else {
        node_end(node, &err);
    }
    (void)uv_run(&node->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&node->loop);
    free_node(node);
    ct_guard_stop(&node->guard);
    folder_drop(&job->folder, node->named_file);
    status = node->status;
    if (status == 0 && node->output_lost && job->for_output)
        status = ct_exit_status(CT_EIO);
    free(node);
    return status;
}
