/* What the rendezvous and the workers report, as events of the core. Nothing is decided here. */
#include "node_state_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "figures_uv.h"
#include "launch/survivors.h"
#include "recorders_uv.h"

#include <string.h>

/* ---- the rendezvous ------------------------------------------------------------------------- */

static void on_waiting(void *context, const char *text)
{
    show_waiting(context, text);
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct node *node = context;

    node->reason = reason;
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_PREPARE,
                        .generation = generation,
                        .at_boundary = at_boundary,
                    });
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    (void)reason;
    node_feed(context, &(struct agent_event){.kind = AGENT_ON_REVOKE, .generation = generation});
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;

    node->round = round;
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_ROUND, .generation = round->generation});
}

static void on_published(void *context, const struct ct_msg_published *answer)
{
    node_feed(context, &(struct agent_event){
                           .kind = AGENT_ON_PUBLISHED,
                           .generation = answer->generation,
                           .held.step = answer->step,
                           .code = answer->code,
                           .text = answer->text,
                       });
}

static void on_drain(void *context, const char *text)
{
    struct node *node = context;

    if (node->core.life == AGENT_LIVE)
        ct_log_event(&node->log, CT_LOG_INFO, "drain", "%s", text);
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_DRAIN});
}

static void on_flight_query(void *context, const struct ct_msg_flight_query *query)
{
    recorders_reply(context, query);
}

static void on_watched(void *context)
{
    figures_tell(context);
}

static void on_lines_query(void *context, const struct ct_msg_lines_query *query)
{
    lines_query(((struct node *)context)->lines, query);
}

static void on_lines(void *context, const struct ct_msg_lines *lines)
{
    all_lines_receive(((struct node *)context)->all_lines, lines);
}

static void on_voters(void *context, const struct ct_msg_voters *voters)
{
    struct node *node = context;
    struct ct_msg_offer offer;

    if (!agent_core_is_ending(&node->core) &&
        host_offer(&node->host, &node->loop, node->job, &node->server_log, voters, &offer))
        ct_agent_offer(node->agent, &offer);
}

static bool is_orphan(void *context)
{
    return host_is_orphan(&((const struct node *)context)->host);
}

static uint64_t on_events(void *context, const char *text, size_t size)
{
    return job_events_receive(((const struct node *)context)->events, text, size);
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct node *node = context;
    struct report *report = &node->report;

    report->result = *result;
    report->result.others = NULL;
    report->result.other_count = 0;
    ct_failure_keep(&report->result.cause, &result->cause, report->cause_room, FAILURE_ROOM);
    report->has_part = report->failures.generation == result->generation;
    failures_add_others(&report->failures, result);
    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_OVER,
                        .generation = result->generation,
                        .status = result->status,
                        .code = result->code,
                        .by_user = result->cause.rank < 0,
                    });
}

static void on_released(void *context)
{
    struct node *node = context;

    node_feed(node, &(struct agent_event){
                        .kind = AGENT_ON_RELEASED,
                        .alone = node->round != NULL && node->round->node_count == 1,
                    });
}

static void on_link(void *context, bool connected, const char *why)
{
    struct node *node = context;

    if (connected) {
        ct_log_event(&node->log, CT_LOG_INFO, "rdzv_link", "the rendezvous is back");
        all_lines_begin(node->all_lines);
    } else if (!agent_core_is_ending(&node->core))
        show_unlinked(node, why);
    node_feed(node, &(struct agent_event){.kind = AGENT_ON_LINK, .up = connected});
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct node *node = context;
    struct ct_error why = *error;

    if (node->host.unbound.code != 0)
        (void)ct_error_set(&why, error->code, "%s; nor could it be hosted here: %s", error->text,
                           node->host.unbound.text);
    node_fail(node, &why);
}

const struct ct_agent_callbacks node_agent_callbacks = {
    .on_waiting = on_waiting,
    .on_prepare = on_prepare,
    .on_revoke = on_revoke,
    .on_round = on_round,
    .on_store_reply = messages_store_reply,
    .on_published = on_published,
    .on_drain = on_drain,
    .on_flight_query = on_flight_query,
    .on_events = on_events,
    .on_watched = on_watched,
    .on_lines_query = on_lines_query,
    .on_lines = on_lines,
    .on_voters = on_voters,
    .is_orphan = is_orphan,
    .on_closed = on_closed,
    .on_released = on_released,
    .on_link = on_link,
    .on_failed = on_failed,
};

/* ---- workers -------------------------------------------------------------------------------- */

/* A text that ends with a note of whole lines. */
static void put_with_note(const char *text, const char *note, struct ct_buf *to)
{
    size_t length = strlen(text);

    (void)ct_buf_printf(to, "%s%s%s", text, length > 0 && text[length - 1] != '\n' ? "\n" : "",
                        note);
}

/* How many steps has any worker here completed? */
static uint64_t steps_done(const struct node *node)
{
    struct ct_worker_trace worker;
    struct ct_record_view view;
    uint64_t step = 0;

    for (uint32_t i = 0; i < node->job->slots; i++) {
        if (!ct_workers_trace(node->workers, i, &worker))
            continue;
        ct_worker_record_read(worker.record, &view);
        step = CT_MAX(step, view.step);
    }
    return step;
}

/* A bad end, with what the worker's GPUs have reported. */
static void feed_failure(struct node *node, enum agent_event_kind kind,
                         const struct ct_worker_failure *failure)
{
    struct ct_wire_failure *record = &node->failing.record;
    uint32_t local_rank = (uint32_t)failure->record.local_rank;
    struct ct_buf lines, text, place;

    ct_buf_init(&lines, 0);
    ct_buf_init(&text, 0);
    ct_buf_init(&place, 0);
    node->failing = *failure;
    uint64_t place_number = ct_repeats_place(&failure->record, &place);
    record->host = node->job->host;
    health_explain(node->health, local_rank, &lines);
    if (lines.size > 0) {
        put_with_note(record->text, ct_buf_str(&lines), &text);
        record->text = ct_buf_str(&text);
        node->failing.shown = false; /* nobody has seen the note */
    }
    node_feed(node, &(struct agent_event){
                        .kind = kind,
                        .local_rank = local_rank,
                        .end = ct_failure_exit(record),
                        .code = record->code,
                        .killed = failure->killed,
                        .place = place_number,
                        .held.step = steps_done(node),
                        .text = ct_buf_str(&place),
                        .doubtful = kind == AGENT_ON_FAILURE && node->agent != NULL &&
                                    inquiry_due(node->inquiry, record),
                    });
    node->failing = (struct ct_worker_failure){.record = ct_failure_none};
    ct_buf_deinit(&lines);
    ct_buf_deinit(&text);
    ct_buf_deinit(&place);
}

static void on_failure(void *context, const struct ct_worker_failure *failure)
{
    lines_flush(((struct node *)context)->lines);
    feed_failure(context, AGENT_ON_FAILURE, failure);
}

static void on_casualty(void *context, const struct ct_worker_failure *failure)
{
    lines_flush(((struct node *)context)->lines);
    feed_failure(context, AGENT_ON_CASUALTY, failure);
}

static void on_left(void *context, uint32_t local_rank)
{
    node_feed(context, &(struct agent_event){.kind = AGENT_ON_LEFT, .local_rank = local_rank});
}

static void on_stopping(void *context, const char *text)
{
    const struct node *node = context;

    ct_log_event(&node->log, CT_LOG_INFO, "waiting", "%s", text);
}

static void on_finished(void *context, bool well)
{
    lines_flush(((struct node *)context)->lines);
    node_feed(context, &(struct agent_event){.kind = AGENT_ON_FINISHED, .well = well});
}

static void on_other(void *context, pid_t pid, int status)
{
    const struct node *node = context;

    job_events_reaped(node->events, pid, status);
    wandb_reaped(node->wandb, pid, status);
}

const struct ct_workers_callbacks node_workers_callbacks = {
    .on_message = messages_receive,
    .on_failure = on_failure,
    .on_casualty = on_casualty,
    .on_left = on_left,
    .on_waiting = on_stopping,
    .on_finished = on_finished,
    .on_other = on_other,
};
