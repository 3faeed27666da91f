/* The tables, dispatch, deadlines and words of the node agent's core. See agent_core.h. */
#include "agent_core.h"

#include "agent_turn.h"
#include "base/assert.h"

#include <inttypes.h>

/* ---- the tables ----------------------------------------------------------------------------- */

static const bool phase_moves[AGENT_PHASES][AGENT_PHASES] = {
#define PHASE_MOVE(from, to) [AGENT_##from][AGENT_##to] = true,
#include "agent.def"
};

static const bool life_moves[AGENT_LIVES][AGENT_LIVES] = {
#define LIFE_MOVE(from, to) [AGENT_##from][AGENT_##to] = true,
#include "agent.def"
};

enum { G = 1 << 0, S = 1 << 1, E = 1 << 2 };

static const struct {
    void (*handler)(struct agent_turn *turn);
    unsigned lives; /* that heed it */
    const char *text;
} events[AGENT_EVENTS] = {
#define EVENT(name, handler, lives, text) {agent_##handler, lives, text},
#include "agent.def"
};

static const char *const action_names[AGENT_ACTIONS] = {
#define ACTION(name, handler, text) #name,
#include "agent.def"
};

void agent_enter(struct agent_core *core, enum agent_phase phase)
{
    CT_ASSERT(phase == core->phase || phase_moves[core->phase][phase]);
    core->phase = phase;
}

void agent_become(struct agent_core *core, enum agent_life life)
{
    CT_ASSERT(life == core->life || life_moves[core->life][life]);
    core->life = life;
}

/* ---- a step --------------------------------------------------------------------------------- */

void agent_core_init(struct agent_core *core, const struct agent_settings *settings,
                     struct ct_survivor *survivors, bool *dismissed)
{
    *core = (struct agent_core){
        .settings = *settings,
        .survivors = survivors,
        .dismissed = dismissed,
        .quiesce_ms = UINT64_MAX,
        .drain_ms = UINT64_MAX,
        .revoke_ms = UINT64_MAX,
        .answer_ms = UINT64_MAX,
        .held_ms = UINT64_MAX,
        .poll_ms = UINT64_MAX,
    };
}

void agent_on_tick(struct agent_turn *turn)
{
    agent_quiesce_tick(turn);
    agent_end_tick(turn);
}

static unsigned lives_of(enum agent_life life)
{
    if (life < AGENT_STOPPING)
        return G;
    return life == AGENT_STOPPING ? S : E;
}

uint64_t agent_core_step(struct agent_core *core, const struct agent_view *view,
                         const struct agent_event *event)
{
    struct agent_turn turn = {.core = core, .view = view, .event = event};

    CT_ASSERT(event->kind < AGENT_EVENTS && event->local_rank < core->settings.slots);
    core->forwarded = 0;
    if ((events[event->kind].lives & lives_of(core->life)) != 0)
        events[event->kind].handler(&turn);
    agent_advance(&turn);
    return turn.actions;
}

uint64_t agent_core_deadline(const struct agent_core *core)
{
    const uint64_t all[] = {core->quiesce_ms, core->drain_ms, core->revoke_ms,
                            core->answer_ms,  core->held_ms,  core->poll_ms};
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < CT_COUNT(all); i++)
        first = CT_MIN(first, all[i]);
    return first;
}

bool agent_core_acts(const struct agent_core *core)
{
    return (core->phase == AGENT_RUNNING || core->phase == AGENT_BOUNDARY) && core->running != 0 &&
           core->running == core->round && !agent_core_is_ending(core);
}

bool agent_core_is_ending(const struct agent_core *core)
{
    return core->life >= AGENT_ENDING;
}

/* ---- words ---------------------------------------------------------------------------------- */

static void print_event(const struct agent_event *event, struct ct_buf *to)
{
    (void)ct_buf_puts(to, events[event->kind].text);
    switch (event->kind) {
    case AGENT_ON_PREPARE:
        (void)ct_buf_printf(to, " g%" PRIu64 "%s", event->generation,
                            event->at_boundary ? " at a step boundary" : "");
        break;
    case AGENT_ON_REVOKE:
    case AGENT_ON_ROUND:
        (void)ct_buf_printf(to, " g%" PRIu64, event->generation);
        break;
    case AGENT_ON_READY:
    case AGENT_ON_RECOVERED:
        (void)ct_buf_printf(to, " %" PRIu32 " g%" PRIu64, event->local_rank, event->generation);
        break;
    case AGENT_ON_FAILURE:
    case AGENT_ON_CASUALTY:
    case AGENT_ON_START_FAILED:
        (void)ct_buf_printf(to, " %" PRIu32 ", status %d", event->local_rank,
                            ct_exit_shell_status(event->end));
        break;
    case AGENT_ON_LEFT:
        (void)ct_buf_printf(to, " %" PRIu32, event->local_rank);
        break;
    case AGENT_ON_FINISHED:
        (void)ct_buf_puts(to, event->well ? " well" : " badly");
        break;
    case AGENT_ON_OVER:
        (void)ct_buf_printf(to, ", status %d", event->status);
        break;
    case AGENT_ON_LINK:
        (void)ct_buf_puts(to, event->up ? " up" : " down");
        break;
    case AGENT_ON_SIGNAL:
        (void)ct_buf_printf(to, " %d", event->signal);
        break;
    default:
        break;
    }
}

static void print_action(const struct agent_core *core, enum agent_action action, struct ct_buf *to)
{
    (void)ct_buf_puts(to, action_names[action]);
    switch (action) {
    case AGENT_DO_REVOKE:
        if (core->revoked >= UINT64_MAX - 1)
            (void)ct_buf_puts(to, " all");
        else
            (void)ct_buf_printf(to, " g%" PRIu64, core->revoked);
        break;
    case AGENT_DO_SET_BOUNDARY:
        (void)ct_buf_printf(to, " g%" PRIu64, core->boundary);
        break;
    case AGENT_DO_PROMISE:
        (void)ct_buf_printf(to, " g%" PRIu64 " with step %" PRIu64, core->promised,
                            core->best.step);
        break;
    case AGENT_DO_BEGIN:
        (void)ct_buf_printf(to, " g%" PRIu64 ", %" PRIu32 " live on", core->round, core->living);
        break;
    case AGENT_DO_STOP:
        (void)ct_buf_printf(to, " by %d", core->stop_signal);
        break;
    case AGENT_DO_DISMISS:
        for (uint32_t i = 0; i < core->settings.slots; i++)
            if (core->dismissed[i])
                (void)ct_buf_printf(to, " %" PRIu32, i);
        break;
    case AGENT_DO_REPORT:
        (void)ct_buf_printf(to, ", status %d", core->status);
        break;
    default:
        break;
    }
}

void agent_step_print(const struct agent_core *core, const struct agent_event *event,
                      uint64_t actions, struct ct_buf *to)
{
    const char *before = ": ";

    print_event(event, to);
    for (int action = 0; action < AGENT_ACTIONS; action++) {
        if (!agent_has(actions, (enum agent_action)action))
            continue;
        (void)ct_buf_puts(to, before);
        print_action(core, (enum agent_action)action, to);
        before = ", ";
    }
}
