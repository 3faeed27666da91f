/* Signals, stopping, publications, and the end. See agent_core.h. */
#include "agent_turn.h"

#include "base/assert.h"
#include "base/signals.h"
#include "launch/host_end.h"

enum {
    HOLD_MS = 200,        /* all processes of a Slurm step get a signal within so long */
    STOP_ANSWER_MS = 500, /* how long a stop waits for the rendezvous to agree */
    LEFT_MS = 200,        /* what a worker that has left has sent arrives within so long */
    WAIT_POLL_MS = 5,     /* how often to look whether other nodes have left */
    STAY_POLL_MS = 100,   /* how often, whether a job that went on is over, or can do without it */
    STAYS_MS = 1000,      /* a job that needs it for longer is worth a line */
    SIGNALS = 64,
};

/* ---- stopping the workers ------------------------------------------------------------------- */

/* Workers are told to end as ctrun was, but for those that know SIGTERM alone. */
static void end_workers(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    bool same = core->stopped_by != 0 && !core->settings.native;

    core->stop_signal = same ? core->stopped_by : AGENT_SIGTERM;
    agent_do(turn, AGENT_DO_STOP);
}

static void revoke_all(struct agent_turn *turn)
{
    turn->core->revoke_ms = UINT64_MAX;
    turn->core->revoked = UINT64_MAX - 1;
    agent_do(turn, AGENT_DO_REVOKE);
}

static void stop_at_once(struct agent_turn *turn)
{
    turn->core->drain_ms = UINT64_MAX;
    revoke_all(turn);
    end_workers(turn);
}

/* Workers that hold parts of one state save it together before they stop, which takes collectives:
 * the round is over for them when one has left, for whom others may wait in vain, or when half of
 * the grace has passed. */
static void stop_in_order(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->drain_ms = UINT64_MAX;
    if (core->revoke_ms == UINT64_MAX)
        core->revoke_ms = turn->view->now_ms + core->settings.grace_ms / 2;
    end_workers(turn);
}

void agent_part(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (core->revoke_ms != UINT64_MAX)
        core->revoke_ms = CT_MIN(core->revoke_ms, turn->view->now_ms + LEFT_MS);
}

/* A worker that was to stop may have failed instead. */
void agent_count_unstopped(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    const struct agent_event *event = turn->event;
    int signal = core->stopped_by != 0 ? core->stopped_by : AGENT_SIGTERM;

    if (!core->end_requested)
        return;
    core->killed += event->killed;
    if (event->killed || ct_exit_is_stop(event->end, event->code, signal, core->settings.native))
        return;
    if (core->unstopped++ > 0)
        return;
    core->unstopped_end = event->end;
    agent_do(turn, AGENT_DO_NOTE_UNSTOPPED);
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* Leave at the next step boundary, the workers go on until then; at once where none will come. */
static void drain(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->end_requested = true;
    if (ct_host_boundary_comes(core->link_up, agent_lives_on(turn))) {
        agent_become(core, AGENT_DRAINING);
        core->drain_ms = turn->view->now_ms + core->settings.grace_ms;
        return;
    }
    agent_become(core, core->stopped_by != 0 ? AGENT_STOPPING : AGENT_DRAINING);
    stop_in_order(turn);
}

/* The node says that it leaves, too: a daemon that takes over does not know the order. */
void agent_on_drain(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (core->life != AGENT_LIVE)
        return;
    core->leave = CT_RDZV_LEAVE_DRAIN;
    agent_do(turn, AGENT_DO_LEAVE);
    drain(turn);
}

static void on_drain_late(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    agent_do(turn, AGENT_DO_REPORT_DRAIN_LATE);
    stop_at_once(turn);
    if (core->stopped_by != 0)
        agent_become(core, AGENT_STOPPING);
}

void agent_stop(struct agent_turn *turn, int signal, enum ct_rdzv_leave how)
{
    struct agent_core *core = turn->core;

    core->stopped_by = signal;
    core->end_requested = true;
    core->stopped_at_ms = turn->view->now_ms;
    core->stopped_count = turn->view->running ? core->settings.slots : 0;
    core->leave = how;
    if (core->linked)
        agent_do(turn, AGENT_DO_LEAVE);
    if (core->linked && how == CT_RDZV_LEAVE_DRAIN) {
        drain(turn);
        return;
    }
    agent_become(core, AGENT_STOPPING);
    stop_in_order(turn);
}

/* Nothing is waited for any more. */
static void force_end(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->forced = true;
    core->drain_ms = UINT64_MAX;
    if (core->life == AGENT_DRAINING)
        agent_become(core, AGENT_STOPPING);
    agent_do(turn, AGENT_DO_KILL);
}

/* ---- signals -------------------------------------------------------------------------------- */

/* The first signal stops the job; on a node of an elastic job all but Ctrl-C take out this node, at
 * the next step boundary. The second kills what is left. While this node stays as the rendezvous of
 * a job that goes on without its workers, the first only warns. */
static void on_end_signal(struct agent_turn *turn, int signal)
{
    struct agent_core *core = turn->core;
    bool leaves = core->settings.elastic && signal != AGENT_SIGINT;

    if (core->stays && !core->forced && !core->warned) {
        core->warned = true;
        core->signal = signal;
        agent_do(turn, AGENT_DO_REPORT_NEEDED);
    } else if (core->stopped_by != 0 || core->life >= AGENT_ENDING) {
        force_end(turn);
    } else {
        agent_stop(turn, signal, leaves ? CT_RDZV_LEAVE_DRAIN : CT_RDZV_LEAVE_STOP);
    }
}

static void act_on(struct agent_turn *turn, int signal)
{
    struct agent_core *core = turn->core;

    if (ct_signals_has(core->settings.ends, signal)) {
        on_end_signal(turn, signal);
    } else if (ct_signals_has(core->settings.forwards, signal)) {
        core->forwarded |= 1ull << signal;
        agent_do(turn, AGENT_DO_FORWARD);
    } else if (core->stopped_by == 0 && core->life < AGENT_ENDING) { /* Slurm may repeat it */
        core->requeue = true;
        agent_stop(turn, signal, CT_RDZV_LEAVE_REQUEUE);
    }
}

/* Under Slurm a signal may have ended a worker of which nothing is known yet: what it means is
 * known a moment later. */
void agent_on_signal(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    int signal = turn->event->signal;

    if (!core->settings.slurm || core->life >= AGENT_ENDING) {
        act_on(turn, signal);
        return;
    }
    core->held_signals |= 1ull << signal;
    core->held_ms = turn->view->now_ms + HOLD_MS;
}

bool agent_claims_signal(struct agent_turn *turn, int signal)
{
    struct agent_core *core = turn->core;
    bool requeues = ct_signals_has(core->settings.requeues, signal);
    bool held = ct_signals_has(core->held_signals & core->settings.ends, signal);

    if (!requeues && !held)
        return false;
    core->held_signals &= ~(1ull << signal);
    act_on(turn, signal);
    return true;
}

static void act_on_held(struct agent_turn *turn)
{
    uint64_t held = turn->core->held_signals;

    turn->core->held_signals = 0;
    turn->core->held_ms = UINT64_MAX;
    for (int signal = 1; signal < SIGNALS; signal++)
        if (ct_signals_has(held, signal))
            act_on(turn, signal);
}

/* ---- publications --------------------------------------------------------------------------- */

static void answer(struct agent_turn *turn, int code, const char *text)
{
    turn->core->publication.open = false;
    turn->core->answer = code;
    turn->core->answer_text = text;
    agent_do(turn, AGENT_DO_ANSWER);
}

/* Ask for the open one; nobody can be asked any more after the end. After the job's last round
 * nothing can contradict what it has made. While the job is being stopped its end answers. */
static void ask_publication(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    uint64_t generation = core->publication.generation;

    if (!core->publication.open)
        return;
    if (core->linked) {
        if (core->life != AGENT_STOPPING)
            agent_do(turn, AGENT_DO_PUBLISH);
    } else if (core->closed_generation != 0 && core->closed_generation == generation) {
        answer(turn, 0, "");
    } else if (core->closed_generation != 0 || core->released) {
        answer(turn, CT_EFENCED, "the job has gone on without this node");
    } else {
        answer(turn, CT_ECLOSED, "the rendezvous is gone");
    }
}

void agent_on_publish(struct agent_turn *turn)
{
    const struct agent_event *event = turn->event;

    turn->core->publication = (struct agent_publication){
        .generation = event->generation,
        .step = event->held.step,
        .local_rank = event->local_rank,
        .open = true,
    };
    ask_publication(turn);
}

void agent_on_published(struct agent_turn *turn)
{
    const struct agent_event *event = turn->event;
    const struct agent_publication *open = &turn->core->publication;
    bool ends = event->code != 0 && turn->core->life == AGENT_STOPPING;

    if (open->open && event->generation == open->generation && event->held.step == open->step &&
        !ends)
        answer(turn, event->code, event->text);
    else
        ask_publication(turn); /* the answer was an older one's */
}

/* ---- the outcome ---------------------------------------------------------------------------- */

/* Under Slurm, what a lost node has ended is worth another try on other nodes. */
static int outcome(const struct agent_core *core)
{
    bool lost = core->error_code == 0 && core->result_code == CT_ENODE_LOST;

    if (core->requeue || (lost && core->stopped_by == 0 && core->settings.slurm))
        return ct_exit_status(CT_EREQUEUE);
    if (core->unstopped > 0)
        return ct_exit_shell_status(core->unstopped_end);
    if (core->stopped_by != 0)
        return 128 + core->stopped_by;
    if (core->error_code != 0)
        return ct_exit_status(core->error_code);
    return core->result_status;
}

/* Has somebody asked for it, on this node or another? */
static bool is_requested_end(const struct agent_core *core)
{
    return core->error_code == 0 && (core->stopped_by != 0 || core->result_code == CT_EREQUEUE ||
                                     (core->result_code == CT_ECLOSED && core->by_user));
}

/* The outcome is known. */
static void end(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    agent_become(core, AGENT_ENDING);
    core->ended_ms = turn->view->now_ms;
    core->status = outcome(core);
    core->quiesce_ms = core->answer_ms = UINT64_MAX;
    agent_do(turn, AGENT_DO_NOTE_END);
    core->end_requested |= is_requested_end(core) || core->released;
    if (is_requested_end(core))
        stop_in_order(turn);
    else
        stop_at_once(turn);
    core->link_closes = core->linked;
    if (core->linked)
        agent_do(turn, AGENT_DO_CLOSE_LINK);
    core->linked = false;
    ask_publication(turn);
}

void agent_on_linked(struct agent_turn *turn)
{
    turn->core->linked = turn->core->link_up = true;
}

void agent_on_link(struct agent_turn *turn)
{
    turn->core->link_up = turn->event->up;
}

void agent_on_over(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->result_status = turn->event->status;
    core->result_code = turn->event->code;
    core->by_user = turn->event->by_user;
    core->closed_generation = turn->event->generation;
    end(turn);
}

/* The job goes on without this node: its workers have nothing left to save. */
void agent_on_released(struct agent_turn *turn)
{
    if (turn->view->running)
        agent_do(turn, AGENT_DO_SEND_STOP);
    turn->core->released = true;
    turn->core->was_alone = turn->event->alone;
    end(turn);
}

void agent_on_failed(struct agent_turn *turn)
{
    turn->core->error_code = turn->event->code;
    end(turn);
}

/* ---- the end -------------------------------------------------------------------------------- */

void agent_on_unlinked(struct agent_turn *turn)
{
    turn->core->link_closes = false;
}

/* What the workers' last ends have made of the status counts. */
void agent_on_flushed(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (core->life != AGENT_FLUSHING)
        return;
    core->status = outcome(core);
    agent_do(turn, AGENT_DO_REPORT);
    if (turn->view->hosts) {
        agent_become(core, AGENT_HOSTING);
        return;
    }
    agent_become(core, AGENT_CLOSED);
    agent_do(turn, AGENT_DO_CLOSE);
}

/* The job goes on and needs the rendezvous here. */
static void stay(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    uint64_t now_ms = turn->view->now_ms;

    if (!core->stays)
        core->stays_ms = now_ms;
    core->stays = true;
    core->ended_ms = now_ms; /* the others' time to leave begins later */
    core->poll_ms = now_ms + STAY_POLL_MS;
    if (core->stays_reported || now_ms < core->stays_ms + STAYS_MS)
        return;
    core->stays_reported = true;
    agent_do(turn, AGENT_DO_REPORT_STAYS);
}

/* Other nodes may still need the rendezvous here (host_end.h). */
static void host(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    const struct ct_host_view view = {
        .alone = core->settings.alone,
        .forced = core->forced,
        .released = core->released,
        .can_yield = turn->view->can_yield,
        .unserved = turn->view->unserved,
        .jobs = turn->view->jobs,
        .links = turn->view->links,
        .waited_ms = turn->view->now_ms - core->ended_ms,
    };

    switch (ct_host_next(&view)) {
    case CT_HOST_YIELD:
        agent_do(turn, AGENT_DO_YIELD);
        stay(turn);
        break;
    case CT_HOST_STAY:
        stay(turn);
        break;
    case CT_HOST_WAIT:
        core->poll_ms = turn->view->now_ms + WAIT_POLL_MS;
        agent_do(turn, AGENT_DO_REPORT_WAITS);
        break;
    case CT_HOST_CLOSE:
        core->poll_ms = UINT64_MAX;
        agent_become(core, AGENT_STOPPED);
        agent_do(turn, AGENT_DO_STOP_SERVER);
        break;
    }
}

void agent_on_server_stopped(struct agent_turn *turn)
{
    agent_become(turn->core, AGENT_CLOSED);
    agent_do(turn, AGENT_DO_CLOSE);
}

void agent_advance(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    uint64_t now_ms = turn->view->now_ms;

    /* The job is stopped here; the rendezvous has a moment to say so to everybody. */
    if (core->life == AGENT_STOPPING && !turn->view->running &&
        (core->answer_ms == UINT64_MAX || core->forced))
        core->answer_ms = core->forced ? now_ms : now_ms + STOP_ANSWER_MS;
    if (core->life == AGENT_ENDING && !core->link_closes && !turn->view->running) {
        core->gone_ms = now_ms;
        core->revoke_ms = UINT64_MAX;
        agent_become(core, AGENT_FLUSHING);
        agent_do(turn, AGENT_DO_FLUSH);
    }
    if (core->life == AGENT_HOSTING)
        host(turn);
}

void agent_end_tick(struct agent_turn *turn)
{
    const struct agent_core *core = turn->core;
    uint64_t now_ms = turn->view->now_ms;

    if (core->held_ms <= now_ms)
        act_on_held(turn);
    if (core->drain_ms <= now_ms)
        on_drain_late(turn);
    if (core->revoke_ms <= now_ms)
        revoke_all(turn);
    if (core->life == AGENT_STOPPING && core->answer_ms <= now_ms)
        end(turn); /* the rendezvous did not answer the stop */
}
