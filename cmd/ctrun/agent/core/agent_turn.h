/* One step of the node agent's core, for its own files:
 *
 *   agent_core.c    the tables, dispatch, deadlines, printing
 *   agent_rounds.c  the rounds: promises, survivors, failures
 *   agent_end.c     signals, stopping, publications, the end */
#ifndef CT_CTRUN_AGENT_AGENT_TURN_H
#define CT_CTRUN_AGENT_AGENT_TURN_H

#include "agent_core.h"

struct agent_turn {
    struct agent_core *core;
    const struct agent_view *view;
    const struct agent_event *event;
    uint64_t actions;
};

static inline void agent_do(struct agent_turn *turn, enum agent_action action)
{
    turn->actions |= 1ull << action;
}

/* Move to another phase or life, or stay; aborts at a move that agent.def does not list. */
void agent_enter(struct agent_core *core, enum agent_phase phase);
void agent_become(struct agent_core *core, enum agent_life life);

/* Handlers, by the names that agent.def gives to events. */
#define EVENT(name, handler, lives, text) void agent_##handler(struct agent_turn *turn);
#include "agent.def"

/* ---- agent_rounds.c ---- */

/* Return whether workers run that can survive the end of this round. */
bool agent_lives_on(const struct agent_turn *turn);

/* Handle the deadline of workers that are leaving their round. */
void agent_quiesce_tick(struct agent_turn *turn);

/* ---- agent_end.c ---- */

/* Handle a worker's end by this signal. True: the signal was meant for the whole job, and is acted
 * on. */
bool agent_claims_signal(struct agent_turn *turn, int signal);

/* Stop because of this signal: the job, or this node alone (CT_RDZV_LEAVE_DRAIN). */
void agent_stop(struct agent_turn *turn, int signal, enum ct_rdzv_leave how);

/* Count a worker that ended badly although it was to stop. */
void agent_count_unstopped(struct agent_turn *turn);

/* Handle a worker that has left: others that stop with it may wait for it in vain. */
void agent_part(struct agent_turn *turn);

/* Handle the deadlines that have passed. */
void agent_end_tick(struct agent_turn *turn);

/* Advance the end of the node as far as possible now; called after every event. */
void agent_advance(struct agent_turn *turn);

#endif
