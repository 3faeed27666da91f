/* The rounds: what is promised, who lives on, which failure is told. See agent_core.h. */
#include "agent_turn.h"
#include "base/assert.h"

/* How long workers may have left a round before anybody says why. */
enum { UNEXPLAINED_MS = 3000 };

static struct ct_survivor *survivors(const struct agent_turn *turn)
{
    return turn->core->survivors;
}

static uint32_t slots(const struct agent_turn *turn)
{
    return turn->core->settings.slots;
}

bool agent_lives_on(const struct agent_turn *turn)
{
    return turn->view->running && !turn->view->stopping &&
           ct_survivors_any(survivors(turn), slots(turn));
}

/* ---- the promise ---------------------------------------------------------------------------- */

/* No worker of this node acts any more in anything older than `generation`. */
static void promise(struct agent_turn *turn, uint64_t generation)
{
    struct agent_core *core = turn->core;
    const struct ct_survivor *best = ct_survivors_best(survivors(turn), slots(turn));

    core->best = (struct agent_held){.lineage = 0};
    if (best != NULL)
        core->best = (struct agent_held){best->lineage, best->step, best->digest};
    core->untouched =
        core->round != 0 && ct_survivors_untouched(survivors(turn), slots(turn), core->round);
    core->requested = 0;
    core->promised = generation;
    core->quiesce_ms = UINT64_MAX;
    agent_enter(core, AGENT_PROMISED);
    if (core->offered != generation)
        agent_do(turn, AGENT_DO_OFFER);
    core->offered = generation;
    agent_do(turn, AGENT_DO_PROMISE);
}

/* Does this worker still act in its round? One that is idle has done nothing in it. One that was
 * given up does, whatever it has sent before it dies: it must not be counted on. */
static bool is_in_round(const struct agent_turn *turn, uint32_t local_rank)
{
    const struct ct_survivor *survivor = &survivors(turn)[local_rank];

    return turn->view->alive[local_rank] &&
           (turn->core->dismissed[local_rank] || (!survivor->ready && !survivor->idle));
}

/* Promise when all who live on have left their round; FINISHED does it when nobody does. What is
 * promised already is promised anew: what a worker holds has changed. */
static void try_promise(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    uint32_t alive = 0;

    if (!core->linked)
        return;
    if (core->phase == AGENT_PROMISED) {
        promise(turn, core->promised);
        return;
    }
    if (core->requested == 0)
        return;
    for (uint32_t i = 0; i < slots(turn); i++) {
        if (is_in_round(turn, i))
            return;
        alive += turn->view->alive[i];
    }
    if (alive > 0)
        promise(turn, core->requested);
}

/* ---- the end of a round --------------------------------------------------------------------- */

static void dismiss(struct agent_turn *turn, uint32_t local_rank)
{
    turn->core->dismissed[local_rank] = true;
    agent_do(turn, AGENT_DO_DISMISS);
}

static void revoke(struct agent_turn *turn, uint64_t generation)
{
    turn->core->revoked = generation;
    agent_do(turn, AGENT_DO_REVOKE);
}

/* Round `generation` is over for those who can live on, and who can not is given up. */
static void quiesce(struct agent_turn *turn, uint64_t generation)
{
    struct agent_core *core = turn->core;

    revoke(turn, generation);
    for (uint32_t i = 0; i < slots(turn); i++)
        if (turn->view->alive[i] && !survivors(turn)[i].able)
            dismiss(turn, i);
    core->quiesce_ms = turn->view->now_ms + core->settings.grace_ms;
}

static void empty(struct agent_turn *turn, uint64_t generation)
{
    revoke(turn, generation);
    turn->core->stop_signal = AGENT_SIGTERM;
    agent_do(turn, AGENT_DO_STOP);
}

void agent_on_prepare(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    const struct agent_event *event = turn->event;

    core->requested = event->generation;
    core->promised = core->offered = 0;
    if (!turn->view->running) {
        promise(turn, event->generation);
        return;
    }
    if (!agent_lives_on(turn)) {
        agent_enter(core, AGENT_EMPTYING);
        empty(turn, event->generation - 1);
    } else if (event->at_boundary) {
        agent_enter(core, AGENT_BOUNDARY);
        core->quiesce_ms = UINT64_MAX;
        core->boundary = event->generation;
        agent_do(turn, AGENT_DO_SET_BOUNDARY);
    } else {
        agent_enter(core, AGENT_QUIESCING);
        quiesce(turn, event->generation - 1);
    }
    try_promise(turn);
}

/* What is promised or to be promised stays so. */
void agent_on_revoke(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->running = 0;
    if (core->phase == AGENT_RUNNING || core->phase == AGENT_WAITING)
        agent_enter(core, AGENT_REVOKED);
    if (agent_lives_on(turn)) {
        if (core->phase == AGENT_BOUNDARY)
            agent_enter(core, AGENT_QUIESCING); /* no boundary comes any more */
        quiesce(turn, turn->event->generation);
    } else if (turn->view->running) {
        empty(turn, turn->event->generation);
    }
}

/* Workers have left their round, but nobody says that it is over: the network between them failed.
 * One is to blame, so that it ends. */
static void blame_network(struct agent_turn *turn)
{
    for (uint32_t i = 0; i < slots(turn); i++) {
        if (!survivors(turn)[i].ready)
            continue;
        turn->core->blamed = i;
        agent_do(turn, AGENT_DO_BLAME_NETWORK);
        return;
    }
}

void agent_quiesce_tick(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (turn->view->now_ms < core->quiesce_ms)
        return;
    core->quiesce_ms = UINT64_MAX;
    if (!core->linked)
        return;
    if (core->phase == AGENT_RUNNING && core->running == core->round) {
        blame_network(turn);
        return;
    }
    for (uint32_t i = 0; i < slots(turn); i++)
        if (is_in_round(turn, i))
            dismiss(turn, i);
}

/* ---- a round -------------------------------------------------------------------------------- */

/* How many workers live on into the round that begins; none of them is ready for another one. The
 * trainer will live on too when it is started now, and holds nothing yet. */
static uint32_t count_living(struct agent_turn *turn)
{
    bool native = turn->core->settings.native;
    uint32_t count = 0;

    for (uint32_t i = 0; i < slots(turn); i++) {
        if (turn->view->alive[i])
            count++;
        else
            survivors(turn)[i] = (struct ct_survivor){.able = native, .idle = native};
        survivors(turn)[i].ready = false;
    }
    return count;
}

/* The longest round on this node since its last failure. */
static uint64_t ran_ms(const struct agent_turn *turn)
{
    const struct agent_core *core = turn->core;

    return CT_MAX(core->ran_ms, core->began_ms != 0 ? turn->view->now_ms - core->began_ms : 0);
}

static void begin(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    agent_enter(core, AGENT_RUNNING);
    core->ran_ms = ran_ms(turn);
    core->began_ms = turn->view->now_ms;
    core->living = count_living(turn);
    core->running = core->round;
    core->holds_failure = core->repeated = false;
    agent_do(turn, AGENT_DO_BEGIN);
}

/* The client of the rendezvous begins only what was promised last. */
void agent_on_round(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (core->phase != AGENT_PROMISED)
        return;
    core->round = turn->event->generation;
    core->promised = 0;
    if (turn->view->running && !agent_lives_on(turn))
        agent_enter(core, AGENT_WAITING);
    else
        begin(turn);
}

/* The round ends for all when one worker could not be started. */
void agent_on_start_failed(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    core->running = 0;
    agent_enter(core, AGENT_REVOKED);
    agent_do(turn, AGENT_DO_NOTE_FAILURE);
    core->final = true;
    if (core->linked)
        agent_do(turn, AGENT_DO_SEND_FAILURE);
}

/* ---- workers -------------------------------------------------------------------------------- */

/* A worker can live on, or has left its round and holds `held`. */
void agent_on_ready(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    const struct agent_event *event = turn->event;
    struct ct_survivor *survivor = &survivors(turn)[event->local_rank];

    if (core->dismissed[event->local_rank])
        return;
    if (event->able && !survivor->able) {
        survivor->able = survivor->idle = true;
        agent_do(turn, AGENT_DO_KEEP);
    }
    if (event->generation > 0)
        survivor->idle = false;
    if (core->round == 0 || event->generation != core->round)
        return;
    survivor->ready = true;
    survivor->lineage = event->held.lineage;
    survivor->step = event->held.step;
    survivor->digest = event->held.digest;
    /* When nobody else knows why it has left, the round ends all the same. */
    if (core->phase == AGENT_RUNNING && core->running == core->round &&
        core->quiesce_ms == UINT64_MAX)
        core->quiesce_ms = turn->view->now_ms + UNEXPLAINED_MS;
    try_promise(turn);
}

void agent_on_recovered(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    uint64_t generation = turn->event->generation;
    struct ct_survivor *survivor = &survivors(turn)[turn->event->local_rank];

    survivor->idle = false;
    survivor->recovered = generation;
    if (core->linked && core->running == generation &&
        ct_survivors_recovered(survivors(turn), slots(turn), generation))
        agent_do(turn, AGENT_DO_SEND_RECOVERED);
}

static void forget(struct agent_turn *turn, uint32_t local_rank)
{
    survivors(turn)[local_rank] = (struct ct_survivor){.able = false};
    turn->core->dismissed[local_rank] = false;
}

/* What it held is lost with it; that may have been promised. */
void agent_on_left(struct agent_turn *turn)
{
    forget(turn, turn->event->local_rank);
    agent_part(turn);
    try_promise(turn);
}

void agent_on_finished(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    for (uint32_t i = 0; i < slots(turn); i++)
        forget(turn, i);
    core->finished = core->running;
    core->running = 0;
    if (core->linked && turn->event->well && core->finished != 0)
        agent_do(turn, AGENT_DO_SEND_DONE);
    if (core->linked && core->requested != 0)
        promise(turn, core->requested);
    else if (core->phase == AGENT_PROMISED)
        try_promise(turn);
    else if (core->phase == AGENT_WAITING && core->life < AGENT_STOPPING)
        begin(turn);
    else if (core->linked)
        agent_enter(core, AGENT_IDLE);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Was it the same as those before it, time and again? Once a round. */
static void note_repeats(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;

    if (core->began_ms == 0)
        return;
    core->repeated = ct_repeats_note(&core->repeats, turn->event->place, ran_ms(turn),
                                     turn->event->held.step, core->settings.same_failures);
    core->began_ms = core->ran_ms = 0;
}

/* The first bad end of a round on this node. */
void agent_on_failure(struct agent_turn *turn)
{
    struct agent_core *core = turn->core;
    const struct agent_event *event = turn->event;

    if (agent_claims_signal(turn, event->end.signal))
        return; /* Slurm sends it to all processes of a step */
    if (event->end.signal == AGENT_SIGPIPE && core->stopped_by == 0 && turn->view->pipe_broken) {
        agent_stop(turn, AGENT_SIGPIPE, CT_RDZV_LEAVE_STOP); /* as a shell ends a pipeline */
        return;
    }
    agent_count_unstopped(turn);
    agent_do(turn, AGENT_DO_NOTE_FAILURE);
    agent_do(turn, AGENT_DO_NOTE_CASUALTY);
    if (!core->linked)
        return;
    core->final = ct_exit_is_final(event->end, core->settings.native);
    note_repeats(turn);
    if (!core->holds_failure && event->doubtful) {
        core->holds_failure = true;
        agent_do(turn, AGENT_DO_INQUIRE);
    } else {
        agent_do(turn, AGENT_DO_SEND_FAILURE);
    }
}

void agent_on_casualty(struct agent_turn *turn)
{
    agent_do(turn, AGENT_DO_NOTE_CASUALTY);
    agent_count_unstopped(turn);
}

void agent_on_inquired(struct agent_turn *turn)
{
    if (turn->core->holds_failure && turn->core->linked)
        agent_do(turn, AGENT_DO_SEND_HELD);
    turn->core->holds_failure = false;
}
