/* This node as a member of the job: what the rendezvous asks for, what its workers do. */
#include "node_state_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "recorders_uv.h"
#include "round.h"

#include <signal.h>
#include <string.h>

/* How long workers may have left a round before anybody says why. */
enum { UNEXPLAINED_MS = 3000 };

/* How long a failure may wait for the other nodes' part of the verdict. */
enum { INQUIRY_MS = 500 };

/* ---- between rounds ------------------------------------------------------------------------- */

/* No worker of this node acts any more in anything older than the round that is being made. */
static void promise(struct node *node, uint64_t generation)
{
    uint32_t slots = node->job->slots;
    const struct ct_survivor *best = ct_survivors_best(node->survivors, slots);
    struct ct_prepared prepared = {
        .generation = generation,
        .untouched = node->round != NULL &&
                     ct_survivors_untouched(node->survivors, slots, node->round->generation),
    };

    if (best != NULL) {
        prepared.lineage = best->lineage;
        prepared.step = best->step;
        prepared.digest = best->digest;
    }
    if (node->preparing != 0)
        node->offered_port = store_offer(node->store, generation);
    prepared.port = node->offered_port;
    node->preparing = 0;
    node->promised = generation;
    (void)uv_timer_stop(&node->quiesce);
    node_trace(node, "< promise g%llu", (unsigned long long)generation);
    ct_agent_prepared(node->agent, &prepared);
}

/* Promise when all who live on have left their round; on_finished does it when nobody does. */
static void try_promise(struct node *node)
{
    uint32_t alive = 0;

    if (node->preparing == 0 || node->agent == NULL)
        return;
    for (uint32_t i = 0; i < node->job->slots; i++) {
        if (!ct_workers_alive(node->workers, i))
            continue;
        if (!node->survivors[i].ready && !node->survivors[i].idle)
            return;
        alive++;
    }
    if (alive > 0)
        promise(node, node->preparing);
}

static void tell_failure(struct node *node, const struct ct_worker_failure *failure, bool final);

/* Workers have left the round, but nobody says that it is over: the network between them failed. */
static void blame_network(struct node *node)
{
    for (uint32_t i = 0; i < node->job->slots; i++) {
        const struct ct_worker_failure failure = {
            .rank = node->round->nodes[node->round->self].first_rank + i,
            .local_rank = i,
            .code = CT_EREVOKED,
            .text =
                "it lost its connections to other ranks, and no rank was reported to have ended",
        };

        if (!node->survivors[i].ready)
            continue;
        node_trace(node, "< blame network");
        words_failure(node, &failure);
        tell_failure(node, &failure, false);
        return;
    }
}

/* Who does not come back from its round is given up. */
static void on_quiesce(uv_timer_t *timer)
{
    struct node *node = timer->data;

    if (node->ending || node->agent == NULL)
        return;
    if (node->preparing == 0 && node->running != 0 && node->running == node->round->generation) {
        blame_network(node);
        return;
    }
    for (uint32_t i = 0; i < node->job->slots; i++)
        if (!node->survivors[i].ready && !node->survivors[i].idle) {
            node_trace(node, "< dismiss %u", i);
            ct_workers_dismiss(node->workers, i);
        }
}

/* When nobody else knows why a worker has left, the round ends all the same. */
void member_ready(struct node *node)
{
    if (node->preparing == 0 && node->promised == 0 && node->running == node->round->generation &&
        !uv_is_active((uv_handle_t *)&node->quiesce))
        (void)uv_timer_start(&node->quiesce, on_quiesce, UNEXPLAINED_MS, 0);
    if (node->promised != 0 && node->agent != NULL)
        promise(node, node->promised); /* what it holds was not in the promise */
    else
        try_promise(node);
}

/* Round `generation` is over for those who can live on, and who can not is given up. */
static void quiesce(struct node *node, uint64_t generation)
{
    node_trace(node, "< revoke g%llu", (unsigned long long)generation);
    ct_control_page_revoke(node->page, generation);
    for (uint32_t i = 0; i < node->job->slots; i++)
        if (!node->survivors[i].able && ct_workers_alive(node->workers, i)) {
            node_trace(node, "< dismiss %u", i);
            ct_workers_dismiss(node->workers, i);
        }
    (void)uv_timer_start(&node->quiesce, on_quiesce, (uint64_t)node->job->cfg.launch.grace_ms, 0);
}

bool member_lives_on(const struct node *node)
{
    return ct_workers_running(node->workers) && !ct_workers_stopping(node->workers) &&
           ct_survivors_any(node->survivors, node->job->slots);
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct node *node = context;

    node_trace(node, "> prepare g%llu%s", (unsigned long long)generation,
               at_boundary ? " at a step boundary" : "");
    if (node->ending)
        return;
    node->reason = reason;
    node->preparing = generation;
    node->at_boundary = at_boundary;
    node->promised = 0;
    node->round_waits = false;
    if (!ct_workers_running(node->workers)) {
        promise(node, generation);
    } else if (!member_lives_on(node)) {
        node_trace(node, "< revoke g%llu", (unsigned long long)generation - 1);
        ct_control_page_revoke(node->page, generation - 1);
        node_trace(node, "< stop workers");
        ct_workers_stop(node->workers, SIGTERM);
    } else if (at_boundary) {
        (void)uv_timer_stop(&node->quiesce);
        node_trace(node, "< boundary g%llu", (unsigned long long)generation);
        ct_control_page_boundary(node->page, generation);
    } else {
        quiesce(node, generation - 1);
    }
    try_promise(node);
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct node *node = context;

    (void)reason;
    node_trace(node, "> revoke g%llu", (unsigned long long)generation);
    node->running = 0;
    if (member_lives_on(node)) {
        quiesce(node, generation);
        return;
    }
    node_trace(node, "< revoke g%llu", (unsigned long long)generation);
    ct_control_page_revoke(node->page, generation);
    node_trace(node, "< stop workers");
    ct_workers_stop(node->workers, SIGTERM);
}

/* ---- a round -------------------------------------------------------------------------------- */

/* What the rendezvous is told: a worker failed, or could not be started (pid 0, `code` says why).
 */
static struct ct_rdzv_failure failure_of(const struct ct_worker_failure *failure,
                                         uint64_t generation, bool final)
{
    struct ct_rdzv_failure told = {
        .generation = generation,
        .code = failure->code != 0 ? failure->code : CT_EWORKER,
        .rank = (int32_t)failure->rank,
        .local_rank = (int32_t)failure->local_rank,
        .pid = (int32_t)failure->pid,
        .status = failure->end.signal != 0 ? -1 : failure->end.status,
        .signal = failure->end.signal,
        .fatal = final,
        .time_ms = (uint64_t)CT_MAX(failure->time_ms, 0),
    };
    uint64_t now_ms = ct_clock_wall_ns(&ct_clock_system) / 1000000;
    const char *text = failures_text(failure);

    (void)ct_str_copy(told.text, sizeof told.text, ct_str_last_lines(text, sizeof told.text - 1));
    if (failure->error_file != NULL && strlen(failure->own_error_file) < sizeof told.error_file)
        (void)ct_str_copy(told.error_file, sizeof told.error_file, failure->own_error_file);
    if (told.time_ms == 0 || told.time_ms > now_ms)
        told.time_ms = now_ms;
    return told;
}

static void send_failure(struct node *node, const struct ct_rdzv_failure *told)
{
    uint64_t now_ms = ct_clock_wall_ns(&ct_clock_system) / 1000000;

    if (node->agent != NULL)
        node_trace(node, "< failure %d", told->local_rank);
    if (node->agent != NULL)
        ct_agent_failure(node->agent, told, now_ms > told->time_ms ? now_ms - told->time_ms : 0);
}

static void tell_failure(struct node *node, const struct ct_worker_failure *failure, bool final)
{
    struct ct_rdzv_failure told = failure_of(failure, node->round->generation, final);

    send_failure(node, &told);
}

/* The inquiry into a failure has ended: now the round may. */
static void on_judged(void *context, const struct inquiry_answer *answer)
{
    struct node *node = context;

    (void)answer;
    if (node->held.generation != 0 && !node->ending)
        send_failure(node, &node->held);
    node->held.generation = 0;
}

static void start_failed(struct node *node, uint32_t local_rank, const struct ct_error *error)
{
    const struct ct_worker_failure failure = {
        .rank = node->round->nodes[node->round->self].first_rank + local_rank,
        .local_rank = local_rank,
        .end = {.status = ct_exit_status(error->code)},
        .code = error->code,
        .text = error->text,
    };

    words_failure(node, &failure);
    tell_failure(node, &failure, true);
}

/* How many workers live on into the round that begins; none of them is ready for another one. The
 * trainer will live on too when it is started now, and holds nothing yet. */
static uint32_t count_survivors(struct node *node)
{
    bool native = node->job->program.native;
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->job->slots; i++) {
        if (!ct_workers_alive(node->workers, i))
            node->survivors[i] = (struct ct_survivor){.able = native, .idle = native};
        else
            count++;
        node->survivors[i].ready = false;
    }
    return count;
}

static void say_round(struct node *node, uint32_t restarts_before, uint32_t survivors)
{
    words_waiting(node, NULL);
    if (!node->took_part) {
        words_joined(node);
        return; /* what happened before this node came is not its story */
    }
    health_watch(node->health);
    if (node->round->restarts > restarts_before) {
        words_restart(node, survivors);
        health_look(node->health);
    } else if (survivors > 0) {
        words_regroup(node, survivors);
    }
}

static void begin_round(struct node *node)
{
    const struct job *job = node->job;
    const struct ct_round *round = node->round;
    uint32_t restarts_before = node->restarts;
    struct ct_workers_round start = {
        .path = job->program.path,
        .argv = job->program.argv,
        .page_fd = node->page_fd,
        .files = store_files(node->store),
        .count = job->slots,
    };
    struct round_input input = {.job = job,
                                .round = round,
                                .marks = node->guard.marks[0] != '\0' ? node->guard.marks : NULL,
                                .run_folder = node->run_folder};
    struct ct_error err = {0};
    uint32_t failed = 0, survivors = count_survivors(node);

    node_trace(node, "< begin g%llu, %u live on", (unsigned long long)round->generation, survivors);
    node->promised = 0;
    node->restarts = round->restarts;
    node->place = (int)round->self;
    node->log.node = node->server_log.node = &node->place;
    say_round(node, restarts_before, survivors);
    node->took_part = true;
    ct_arena_deinit(&node->round_arena);
    const struct ct_wire_place *places = round_places(round, &node->round_arena);
    int rc = places == NULL ? ct_error_set(&err, CT_ENOMEM, "out of memory for the table of nodes")
                            : store_open(node->store, round, &input.master, &err);
    if (rc == 0)
        rc = round_specs(&input, &node->round_arena, &start.specs, &err);
    if (rc == 0)
        rc = survivors > 0 ? ct_workers_refill(node->workers, &start, &failed, &err)
                           : ct_workers_start(node->workers, &start, &failed, &err);
    if (rc != 0) {
        start_failed(node, failed, &err);
        return;
    }
    node->running = round->generation;
    node->held.generation = 0;
    inquiry_begin(node->inquiry);
    for (uint32_t i = 0; i < job->slots; i++) {
        struct ct_message assign = round_assign(job, round, places, i);
        if (node->survivors[i].idle)
            ct_workers_keep(node->workers, i);
        ct_workers_send(node->workers, i, &assign);
    }
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;

    node_trace(node, "> round g%llu", (unsigned long long)round->generation);
    if (node->ending || node_is_stopped(node))
        return;
    node->round = round;
    node->round_waits = ct_workers_running(node->workers) && !member_lives_on(node);
    if (!node->round_waits)
        begin_round(node);
}

/* A worker has ended badly. Was it to stop, and has not? */
static void look_at_stop(struct node *node, const struct ct_worker_failure *failure)
{
    int signal = node->stopped_by != 0 ? node->stopped_by : SIGTERM;

    if (!node->asked)
        return;
    node->killed += failure->killed;
    if (failure->killed ||
        ct_exit_is_stop(failure->end, failure->code, signal, node->job->program.native))
        return;
    if (node->unstopped++ > 0)
        return;
    node->unstopped_first = failure_of(failure, node->running, false);
    (void)ct_str_copy(node->unstopped_first.host, sizeof node->unstopped_first.host,
                      node->job->host);
}

/* The same failure, with what its GPUs have reported. */
static void note(struct node *node, const struct ct_worker_failure *failure,
                 struct failures_noted *ret_noted)
{
    struct ct_buf lines;

    ct_buf_init(&lines, 0);
    health_explain(node->health, failure->local_rank, &lines);
    failures_note(ret_noted, failure, ct_buf_str(&lines));
    ct_buf_deinit(&lines);
}

static void take_failure(struct node *node, const struct ct_worker_failure *failure)
{
    look_at_stop(node, failure);
    words_failure(node, failure);
    words_casualty(node, failure);
    if (node->agent == NULL)
        return;
    bool final = ct_exit_is_final(failure->end, node->job->program.native);
    if (node->held.generation == 0 && inquiry_due(node->inquiry, failure)) {
        node_trace(node, "< inquire");
        node->held = failure_of(failure, node->round->generation, final);
        inquiry_start(node->inquiry, INQUIRY_MS, on_judged, node);
        return;
    }
    tell_failure(node, failure, final);
    if (failure->code != 0 && failure->end.signal == 0) /* in the worker's own words */
        inquiry_told(node->inquiry, failure->rank);
    if (failure->code != CT_EHUNG)
        inquiry_dead(node->inquiry, failure->rank);
}

static void on_failure(void *context, const struct ct_worker_failure *failure)
{
    struct node *node = context;
    struct failures_noted noted;

    node_trace(node, "> failure %u", failure->local_rank);
    if (node->ending)
        return;
    if (signals_claim(node, failure->end.signal))
        return; /* Slurm sends it to all processes of a step */
    if (failure->end.signal == SIGPIPE && node->stopped_by == 0 &&
        (ct_console_broken(node->console, CT_CONSOLE_OUT) ||
         ct_console_broken(node->console, CT_CONSOLE_ERR))) {
        node_stop(node, SIGPIPE, CT_RDZV_LEAVE_STOP); /* as a shell ends the rest of a pipeline */
        return;
    }
    note(node, failure, &noted);
    take_failure(node, &noted.failure);
    failures_noted_deinit(&noted);
}

static void on_casualty(void *context, const struct ct_worker_failure *failure)
{
    struct node *node = context;
    struct failures_noted noted;

    node_trace(node, "> casualty %u", failure->local_rank);
    note(node, failure, &noted);
    words_casualty(node, &noted.failure);
    look_at_stop(node, &noted.failure);
    failures_noted_deinit(&noted);
}

/* What it held is lost with it; that may have been promised. */
static void on_left(void *context, uint32_t local_rank)
{
    struct node *node = context;

    node_trace(node, "> left %u", local_rank);
    node->survivors[local_rank] = (struct ct_survivor){.able = false};
    node_left(node);
    if (node->ending || node->agent == NULL)
        return;
    if (node->promised != 0)
        promise(node, node->promised);
    else
        try_promise(node);
}

static void on_finished(void *context, bool well)
{
    struct node *node = context;
    uint64_t generation = node->running;

    node_trace(node, "> finished %s", well ? "well" : "badly");
    node->running = 0;
    if (node->agent != NULL && well && generation != 0) {
        node_trace(node, "< done g%llu", (unsigned long long)generation);
        ct_agent_done(node->agent, generation);
        words_waiting(node, "the workers of this node are done; waiting for the other nodes");
    }
    if (node->agent != NULL && node->preparing != 0)
        promise(node, node->preparing);
    if (node->round_waits && !node->ending && !node_is_stopped(node)) {
        node->round_waits = false;
        begin_round(node);
    }
    node_advance(node);
}

static void on_stopping(void *context, const char *text)
{
    struct node *node = context;

    ct_log_event(&node->log, CT_LOG_INFO, "waiting", "%s", text);
}

/* ---- the rendezvous ------------------------------------------------------------------------- */

static void on_waiting(void *context, const char *text)
{
    words_waiting(context, text);
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct node *node = context;

    node_trace(node, "> closed, status %d", result->status);
    node->result = *result;
    node->has_part = node->failures.generation == result->cause.generation;
    failures_add_others(&node->failures, result);
    node->closed_generation = result->generation;
    node_end(node, NULL);
}

/* The job goes on without this node: its workers have nothing left to save. */
static void on_released(void *context)
{
    struct node *node = context;
    const struct ct_message stop = {.type = CT_MSG_STOP, .stop = {.deadline_ms = 0}};

    node_trace(node, "> released");
    for (uint32_t i = 0; i < node->job->slots; i++)
        if (ct_workers_running(node->workers))
            ct_workers_send(node->workers, i, &stop);
    node->released = true;
    node->was_alone = node->round != NULL && node->round->node_count == 1;
    node_end(node, NULL);
}

static void on_drain(void *context, const char *text)
{
    struct node *node = context;

    node_trace(node, "> drain");
    if (node->ending || node->stopped_by != 0 || node->draining)
        return;
    ct_log_event(&node->log, CT_LOG_INFO, "drain", "%s", text);
    node_drain(node);
}

static void on_look(void *context, const struct ct_msg_look *look)
{
    recorders_tell(context, look);
}

static void on_link(void *context, bool connected, const char *why)
{
    struct node *node = context;

    node_trace(node, "> link %s", connected ? "up" : "down");
    node->cut_off = !connected;
    if (connected)
        ct_log_event(&node->log, CT_LOG_INFO, "rdzv_link", "the rendezvous is back");
    else if (!node->ending)
        ct_log_event(&node->log, CT_LOG_WARN, "rdzv_link",
                     "the rendezvous at %s is gone, the workers go on meanwhile: %s",
                     node->host.endpoint, why);
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct node *node = context;
    struct ct_error why = *error;

    node_trace(node, "> failed");
    if (node->host.unbound.code != 0)
        (void)ct_error_set(&why, error->code, "%s; nor could it be hosted here: %s", error->text,
                           node->host.unbound.text);
    node_end(node, &why);
}

const struct ct_agent_callbacks member_agent_callbacks = {
    .on_waiting = on_waiting,
    .on_prepare = on_prepare,
    .on_revoke = on_revoke,
    .on_round = on_round,
    .on_store_reply = messages_store_reply,
    .on_published = messages_published,
    .on_drain = on_drain,
    .on_look = on_look,
    .on_closed = on_closed,
    .on_released = on_released,
    .on_link = on_link,
    .on_failed = on_failed,
};

const struct ct_workers_callbacks member_workers_callbacks = {
    .on_message = messages_take,
    .on_failure = on_failure,
    .on_casualty = on_casualty,
    .on_left = on_left,
    .on_waiting = on_stopping,
    .on_finished = on_finished,
};
