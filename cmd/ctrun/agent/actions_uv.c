/* What the core has decided, carried out. A function for each action, in agent.def's order. */
#include "node_state_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/str.h"
#include "guard_uv.h"
#include "job/round.h"
#include "launch/failure/summary.h"

#include <stdio.h>
#include <string.h>

/* How long a failure may wait for the other nodes' part of the verdict. */
enum { INQUIRY_MS = 500 };

/* ---- failures ------------------------------------------------------------------------------- */

static void do_note_failure(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_failure(node, &node->failing);
}

static void do_note_casualty(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_casualty(node, &node->failing);
}

static uint64_t wall_ms(void)
{
    return ct_clock_wall_ns(&ct_clock_system) / 1000000;
}

static uint32_t rank_of(const struct node *node, uint32_t local_rank)
{
    return node->round->own->first_rank + local_rank;
}

/* The failure of a place of this node that no process has ended for: pid 0, `code` says why. */
static struct ct_worker_failure failure_of(const struct node *node, uint32_t local_rank, int code,
                                           const char *text)
{
    return (struct ct_worker_failure){
        .record = {.rank = (int32_t)rank_of(node, local_rank),
                   .local_rank = (int32_t)local_rank,
                   .code = code,
                   .host = node->job->host,
                   .text = text,
                   .time_ms = wall_ms(),
                   .error_file = ""},
        .sentence = "",
        .own_path = "",
    };
}

static void do_note_unstopped(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_failure_keep(&node->report.unstopped, &node->failing.record, node->report.unstopped_room,
                    FAILURE_ROOM);
}

static void send_failure(struct node *node, uint64_t generation, struct ct_wire_failure *failure)
{
    uint64_t now_ms = wall_ms();

    failure->age_ms = now_ms > failure->time_ms ? now_ms - failure->time_ms : 0;
    ct_agent_failure(node->agent, generation, failure);
}

static uint8_t fatal_of(const struct agent_core *core)
{
    if (core->repeated)
        return CT_FAILURE_REPEATED;
    return core->final ? CT_FAILURE_FINAL : CT_FAILURE_MINOR;
}

/* How often it was the same, when that ends the job. */
static void report_repeats(const struct node *node, const struct agent_event *event)
{
    if (event->kind != AGENT_ON_FAILURE || !node->core.repeated)
        return;
    ct_log_event(&node->log, CT_LOG_WARN, "repeated",
                 "rank %d has failed at the same place %u times in a row without progress, so the "
                 "job is not started again (launch.same_failure_restarts is %u): %s",
                 node->failing.record.rank, node->core.repeats.count,
                 node->core.settings.same_failures, event->text);
}

static void do_send_failure(struct node *node, const struct agent_event *event)
{
    struct ct_wire_failure *failing = &node->failing.record;

    failing->fatal = fatal_of(&node->core);
    report_repeats(node, event);
    send_failure(node, node->round->generation, failing);
    if (event->kind != AGENT_ON_FAILURE)
        return;
    if (failing->code != 0 && failing->signal == 0) /* in the worker's own words */
        inquiry_reported(node->inquiry, (uint32_t)failing->rank);
    if (failing->code != CT_EHUNG)
        inquiry_dead(node->inquiry, (uint32_t)failing->rank);
}

static void on_inquired(void *context, const struct inquiry_answer *answer)
{
    (void)answer;
    node_feed(context, &(struct agent_event){.kind = AGENT_ON_INQUIRED});
}

static void do_inquire(struct node *node, const struct agent_event *event)
{
    node->failing.record.fatal = fatal_of(&node->core);
    report_repeats(node, event);
    node->held_generation = node->round->generation;
    ct_failure_keep(&node->held, &node->failing.record, node->held_room, FAILURE_ROOM);
    inquiry_start(node->inquiry, INQUIRY_MS, on_inquired, node);
}

static void do_send_held(struct node *node, const struct agent_event *event)
{
    (void)event;
    send_failure(node, node->held_generation, &node->held);
}

static void do_blame_network(struct node *node, const struct agent_event *event)
{
    struct ct_worker_failure failure = failure_of(
        node, node->core.blamed, CT_EREVOKED,
        "it lost its connections to other ranks, and no rank was reported to have ended: the "
        "network between the nodes may have failed");

    (void)event;
    show_failure(node, &failure);
    send_failure(node, node->round->generation, &failure.record);
}

/* ---- what the rendezvous is told ------------------------------------------------------------ */

static void do_keep(struct node *node, const struct agent_event *event)
{
    ct_workers_keep(node->workers, event->local_rank);
}

static void do_send_recovered(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_agent_state_recovered(node->agent, node->core.running);
    warm_start_fill(node, 1);
}

static void do_send_done(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_agent_done(node->agent, node->core.finished);
    show_waiting(node, "the workers of this node are done; waiting for the other nodes");
}

static void do_leave(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_agent_leave(node->agent, node->core.leave);
}

static void do_note_end(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_waiting(node, NULL);
    keep_failure_cause(node);
}

/* ---- what the workers are told -------------------------------------------------------------- */

static void do_send_stop(struct node *node, const struct agent_event *event)
{
    const struct ct_message stop = {.type = CT_MSG_STOP, .stop = {.deadline_ms = 0}};

    (void)event;
    for (uint32_t i = 0; i < node->job->slots; i++)
        ct_workers_send(node->workers, i, &stop);
}

static void do_revoke(struct node *node, const struct agent_event *event)
{
    (void)event;
    if (node->page != NULL) /* else there was no room for it, and no worker */
        ct_control_page_revoke(node->page, node->core.revoked);
}

static void do_set_boundary(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_control_page_boundary(node->page, node->core.boundary);
}

static void do_stop(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_workers_stop(node->workers, signals_to_send(node, node->core.stop_signal));
}

static void do_dismiss(struct node *node, const struct agent_event *event)
{
    (void)event;
    for (uint32_t i = 0; i < node->job->slots; i++)
        if (node->core.dismissed[i])
            ct_workers_dismiss(node->workers, i);
}

static void do_kill(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_workers_kill(node->workers);
}

static void do_forward(struct node *node, const struct agent_event *event)
{
    (void)event;
    signals_forward(node, node->core.forwarded);
}

/* ---- a round -------------------------------------------------------------------------------- */

static void do_offer(struct node *node, const struct agent_event *event)
{
    (void)event;
    node->offered_port = store_offer(node->store, node->core.promised);
}

static void do_promise(struct node *node, const struct agent_event *event)
{
    const struct agent_core *core = &node->core;
    const struct ct_prepared prepared = {
        .generation = core->promised,
        .lineage = core->best.lineage,
        .step = core->best.step,
        .digest = core->best.digest,
        .port = node->offered_port,
        .untouched = core->untouched,
    };

    (void)event;
    ct_agent_prepared(node->agent, &prepared);
}

static void report_round(struct node *node, uint32_t restarts_before)
{
    show_waiting(node, NULL);
    if (!node->took_part) {
        show_joined(node);
        return; /* what happened before this node came is not its story */
    }
    health_watch(node->health);
    if (node->round->restarts > restarts_before) {
        show_restart(node, node->core.living);
        health_probe(node->health);
    } else if (node->core.living > 0) {
        show_regroup(node, node->core.living);
    }
}

static void start_failed(struct node *node, uint32_t local_rank, const struct ct_error *error)
{
    struct ct_wire_failure *record = &node->failing.record;

    node->failing = failure_of(node, local_rank, error->code, error->text);
    record->status = ct_exit_status(error->code);
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_START_FAILED,
                        .local_rank = local_rank,
                        .end = ct_failure_exit(record),
                        .code = record->code,
                    });
    node->failing = (struct ct_worker_failure){.record = ct_failure_none};
}

static int start_workers(struct node *node, uint32_t *ret_failed, struct ct_error *err)
{
    const struct job *job = node->job;
    struct round_input input = {
        .job = job,
        .round = node->round,
        .marks = node->guard.marks[0] != '\0' ? node->guard.marks : NULL,
        .heartbeat_files = script_watch_files(node->scripts),
        .run_folder = node->training.run_folder,
    };
    struct ct_workers_round start = {
        .path = job->program.path,
        .argv = job->program.argv,
        .page_fd = node->page_fd,
        .files = store_files(node->store),
        .warm = &node->warm,
        .count = job->slots,
    };
    int rc = store_open(node->store, node->round, &input.master, err);

    if (rc == 0)
        rc = round_specs(&input, &node->round_arena, &start.specs, err);
    if (rc != 0)
        return rc;
    return node->core.living > 0 ? ct_workers_refill(node->workers, &start, ret_failed, err)
                                 : ct_workers_start(node->workers, &start, ret_failed, err);
}

/* The round's workers are started, and told of it. */
static void start_round(struct node *node)
{
    const struct ct_round *round = node->round;
    uint32_t failed = 0;
    struct ct_error err = {0};

    ct_arena_deinit(&node->round_arena);
    if (start_workers(node, &failed, &err) != 0) {
        start_failed(node, failed, &err);
        return;
    }
    inquiry_begin(node->inquiry);
    all_lines_begin(node->all_lines);
    for (uint32_t i = 0; i < node->job->slots; i++) {
        struct ct_message assign = round_assign(node->job, round, i);

        if (node->core.survivors[i].idle)
            ct_workers_keep(node->workers, i);
        ct_workers_send(node->workers, i, &assign);
    }
}

/* The GPUs have their memory back; the round may be over by now. */
static void on_memory_free(struct node *node)
{
    if (agent_core_acts(&node->core) && node->core.running == node->awaited_generation &&
        !ct_workers_running(node->workers))
        start_round(node);
}

static void do_begin(struct node *node, const struct agent_event *event)
{
    const struct ct_round *round = node->round;
    uint32_t restarts_before = node->restarts;

    (void)event;
    node->restarts = round->restarts;
    node->place = (int)round->self;
    if (node->place != 0)
        wandb_leave(node->wandb);
    node->log.node = node->server_log.node = &node->place;
    report_round(node, restarts_before);
    bool is_first = !node->took_part;
    node->took_part = true;
    node->awaited_generation = round->generation;
    if (is_first || node->core.living > 0 || !health_await_memory(node->health, on_memory_free))
        start_round(node);
}

/* ---- publications --------------------------------------------------------------------------- */

static void do_publish(struct node *node, const struct agent_event *event)
{
    (void)event;
    (void)ct_agent_publish(node->agent, &node->publication);
    /* CT_ELIMIT: an older one is still open, this one follows its answer. */
}

static void do_answer(struct node *node, const struct agent_event *event)
{
    const struct ct_message message = {
        .type = CT_MSG_PUBLISHED,
        .published = {.generation = node->core.publication.generation,
                      .step = node->core.publication.step,
                      .code = node->core.answer,
                      .text = node->core.answer_text},
    };

    (void)event;
    ct_workers_send(node->workers, node->core.publication.local_rank, &message);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void on_unlinked(void *context)
{
    node_feed(context, &(struct agent_event){.kind = AGENT_ON_UNLINKED});
}

static void do_close_link(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_warm_drop(&node->warm);
    ct_agent_stop(node->agent, on_unlinked);
    node->agent = NULL;
    node->round = NULL; /* it was the agent's */
}

static void on_flushed(void *context)
{
    struct node *node = context;

    show_waiting(node, NULL);
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_FLUSHED});
}

/* What the workers have printed goes to their files before the closing words. A disk that takes
 * nothing for launch.grace has had its time; so has any once a job that was stopped should have
 * ended. */
static void do_flush(struct node *node, const struct agent_event *event)
{
    const struct agent_core *core = &node->core;
    uint64_t grace_ms = core->settings.grace_ms;
    struct ct_flush flush = {
        .patience_ms = core->forced ? 0 : grace_ms,
        .until_ms = core->stopped_by != 0 ? core->stopped_at_ms + grace_ms : UINT64_MAX,
        .flushed = on_flushed,
        .context = node,
    };

    (void)event;
    if (ct_log_files_idle(ct_workers_files(node->workers))) {
        on_flushed(node);
        return;
    }
    show_waiting(node, "waiting for the disk to take what the workers have printed");
    ct_log_files_flush(ct_workers_files(node->workers), &flush);
}

static void do_report(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_end(node);
}

static void do_report_drain_late(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_log_event(&node->log, CT_LOG_WARN, "drain_late",
                 "no step ended within the %llu ms of launch.grace: the workers of this node are "
                 "stopped in the middle of it",
                 (unsigned long long)node->core.settings.grace_ms);
}

static void do_yield(struct node *node, const struct agent_event *event)
{
    (void)event;
    ct_rdzv_server_yield(node->host.server);
}

static void do_report_stays(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_staying(node);
}

static void do_report_waits(struct node *node, const struct agent_event *event)
{
    size_t links = ct_rdzv_server_links(node->host.server);
    char text[96];

    (void)event;
    (void)snprintf(text, sizeof text, "waiting for %zu other node%s to leave the rendezvous here",
                   links, links == 1 ? "" : "s");
    show_waiting(node, text);
}

static void do_report_needed(struct node *node, const struct agent_event *event)
{
    (void)event;
    show_still_needed(node, node->core.signal);
}

static void on_server_stopped(void *context)
{
    struct node *node = context;

    node->host.server = NULL;
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_SERVER_STOPPED});
}

static void do_stop_server(struct node *node, const struct agent_event *event)
{
    (void)event;
    host_hide(&node->host);
    ct_rdzv_server_stop(node->host.server, on_server_stopped, node);
}

static void close_all(struct node *node)
{
    show_waiting(node, NULL);
    signals_close(node);
    guard_close(node);
    uv_close((uv_handle_t *)&node->timer, NULL);
    uv_close((uv_handle_t *)&node->waiting.timer, NULL);
    watch_close(node->watch);
    script_watch_close(node->scripts);
    inquiry_close(node->inquiry);
    lines_close(node->lines);
    all_lines_close(node->all_lines);
    health_close(node->health);
    host_close(&node->host);
    store_close(node->store);
    ct_workers_free(node->workers, NULL, NULL);
    ct_console_close(node->console, NULL, NULL);
}

static void finish_events(struct node *node)
{
    job_events_finish(node->events, close_all, node);
}

static void do_close(struct node *node, const struct agent_event *event)
{
    (void)event;
    wandb_finish(node->wandb, finish_events, node);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void (*const actions[AGENT_ACTIONS])(struct node *, const struct agent_event *) = {
#define ACTION(name, handler, text) handler,
#include "core/agent.def"
};

void node_carry_out(struct node *node, enum agent_action action, const struct agent_event *event)
{
    actions[action](node, event);
}
