/* The node agent as a pure state machine: how this node reacts to the job's rounds, the exits of
 * its workers, signals, and the end of the job. No clock, no process, no socket: node_uv.c turns
 * callbacks into events and actions into calls; tests/sim runs it beside the cores of rendezvous.
 *
 * The phase is the node's position among the rounds. `requested` is the generation that is being
 * made and not promised yet, `running` the one that was sent to the workers.
 *
 *              PREPARE                            ROUND
 *      IDLE -------------------> PROMISED ---------------------------> RUNNING
 *        ^                        ^    |                               ^  |  |
 *        | FINISHED               |    | ROUND, workers still end      |  |  | FINISHED
 *        |                        |    `------> WAITING ---------------'  |  `----------> IDLE
 *        |                        |                      FINISHED         |
 *     REVOKED                     | all survivors READY, or FINISHED      | PREPARE
 *        ^                        |                                       v
 *        |                        `------ BOUNDARY     at a step boundary: they act on
 *        | REVOKE                         QUIESCING    those that can regroup leave the round
 *     RUNNING                             EMPTYING     none can regroup: all are ended
 *
 * The life is the node's way to its end:
 *
 *      LIVE ----> DRAINING ----> STOPPING ----> ENDING ----> FLUSHING --> HOSTING --> CLOSED
 *          leaves at a     workers are    outcome known:   log files   others need
 *          step boundary   told to stop   the link closes, are         the rendezvous
 *                                         workers end      written     hosted here
 *
 * Every life before ENDING goes there when the job is over, the node is released from it, or the
 * rendezvous is out of reach. agent.def lists phases, lives, moves, events and actions; a move that
 * it does not list is a bug and aborts.
 *
 * A call of agent_core_step is one event. It returns a set of actions, to be carried out in the
 * order of their numbers; their operands are fields of the core. Nothing is allocated. Times are
 * milliseconds of a monotonic clock. */
#ifndef CT_CTRUN_AGENT_AGENT_CORE_H
#define CT_CTRUN_AGENT_AGENT_CORE_H

#include "base/bytes.h"
#include "launch/failure/exit.h"
#include "launch/failure/repeats.h"
#include "launch/survivors.h"
#include "rendezvous/core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum agent_phase {
#define PHASE(name, text) AGENT_##name,
#include "agent.def"
    AGENT_PHASES
};

enum agent_life {
#define LIFE(name, text) AGENT_##name,
#include "agent.def"
    AGENT_LIVES
};

enum agent_event_kind {
#define EVENT(name, handler, lives, text) AGENT_ON_##name,
#include "agent.def"
    AGENT_EVENTS
};

enum agent_action {
#define ACTION(name, handler, text) AGENT_DO_##name,
#include "agent.def"
    AGENT_ACTIONS
};

_Static_assert(AGENT_ACTIONS <= 64, "a set of actions is a uint64_t");

static inline bool agent_has(uint64_t actions, enum agent_action action)
{
    return (actions >> action & 1) != 0;
}

/* Linux's numbers, without the header that knows clocks and processes. */
enum { AGENT_SIGINT = 2, AGENT_SIGPIPE = 13, AGENT_SIGTERM = 15 };

/* The state that a worker or node holds; lineage 0: none. */
struct agent_held {
    uint64_t lineage, step, digest;
};

/* An event. Zero-initialise; the fields of each kind:
 *
 *   PREPARE      generation, at_boundary        READY      local_rank, generation, able, held
 *   REVOKE       generation                     RECOVERED  local_rank, generation
 *   ROUND        generation                     LEFT       local_rank
 *   RELEASED     alone: it was the last node    FINISHED   well: all ended with 0 by themselves
 *   OVER         generation, status, code,      PUBLISH    local_rank, generation, held.step
 *                by_user: a user stopped it     PUBLISHED  generation, held.step, code, text
 *   FAILED       code                           SIGNAL     signal
 *   LINK         up
 *   FAILURE, CASUALTY  local_rank, end, code (that it announced), killed (by our SIGKILL), and of
 *                a failure doubtful (other ranks may be to blame), place (repeats.h), held.step
 *   START_FAILED local_rank, end, code */
struct agent_event {
    enum agent_event_kind kind;
    uint32_t local_rank;
    uint64_t generation;
    struct agent_held held;
    struct ct_exit end;
    int status, code, signal;
    uint64_t place;
    const char *text; /* PUBLISHED: why not; FAILURE: its place. Lives as long as the actions */
    bool at_boundary, alone, by_user, up, able, well, killed, doubtful;
};

/* The environment at the moment of an event. */
struct agent_view {
    uint64_t now_ms;
    bool running;      /* workers run, or FINISHED is still to come */
    bool stopping;     /* they are being ended */
    const bool *alive; /* of each slot: its worker runs */
    bool hosts;        /* the rendezvous runs in this process ... */
    bool can_yield;    /* ... and another node can serve instead */
    bool unserved;     /* ... did serve, and no other does yet */
    size_t jobs;       /* ... with so many jobs that are not over */
    size_t links;      /* ... and so many connections of others */
    bool pipe_broken;  /* who read ctrun's output has gone */
};

/* Constant settings of the node. Sets of signals have bit 1 << number. */
struct agent_settings {
    uint32_t slots;
    bool native;  /* workers are our trainer's, or know our library: they can be told to stop */
    bool alone;   /* the job has this node only */
    bool elastic; /* it may go on with fewer nodes */
    bool slurm;   /* signals may reach ctrun and its workers at once */
    uint64_t grace_ms;
    uint32_t same_failures;            /* restarts after the same failure; 0: any number */
    uint64_t ends, forwards, requeues; /* what signals do */
};

struct agent_publication {
    uint64_t generation, step;
    uint32_t local_rank;
    bool open; /* not answered yet */
};

struct agent_core {
    struct agent_settings settings;
    enum agent_phase phase;
    enum agent_life life;
    struct ct_survivor *survivors; /* of each slot; the caller's */
    bool *dismissed; /* of each slot: its worker was given up, operand of DISMISS; the caller's */

    /* rounds */
    uint64_t requested;     /* generation to promise, 0: none */
    uint64_t promised;      /* the last one that was promised, 0: none since the last round */
    uint64_t offered;       /* the last one for which a port was reserved */
    uint64_t round;         /* the last one that was committed, 0: none */
    uint64_t running;       /* the one that workers were told of, 0: none */
    uint64_t finished;      /* operand of SEND_DONE */
    uint64_t revoked;       /* operand of REVOKE */
    uint64_t boundary;      /* operand of SET_BOUNDARY */
    uint32_t living;        /* operand of BEGIN: how many workers live on */
    struct agent_held best; /* operands of PROMISE */
    bool untouched;
    uint32_t blamed;     /* operand of BLAME_NETWORK: its local rank */
    uint64_t quiesce_ms; /* deadline of leaving workers; UINT64_MAX: untimed */

    /* failures */
    bool final;                   /* operand of SEND_FAILURE: a restart would end in the same way */
    bool repeated;                /* ... as those before it did */
    struct ct_repeats repeats;    /* of failures on this node */
    uint64_t began_ms;            /* the round; 0: none has begun since the last failure */
    uint64_t ran_ms;              /* the longest round since then, but for the last */
    bool holds_failure;           /* one waits for its inquiry */
    uint32_t killed;              /* workers that took longer to stop than the grace */
    uint32_t unstopped;           /* workers that failed while they were being stopped */
    struct ct_exit unstopped_end; /* the first of them */

    struct agent_publication publication;
    int answer;              /* operands of ANSWER: 0, CT_EFENCED, CT_ECLOSED ... */
    const char *answer_text; /* ... and why */

    /* stopping */
    bool linked;        /* there is a link to the rendezvous ... */
    bool link_up;       /* ... and it answers */
    bool link_closes;   /* UNLINKED is still to come */
    bool end_requested; /* somebody has asked for the end of this node's workers */
    int stopped_by;     /* the first signal, 0: none */
    int stop_signal;    /* operand of STOP */
    enum ct_rdzv_leave leave;
    bool requeue;           /* that signal wants the job queued again */
    bool forced;            /* nothing is waited for any more */
    uint32_t stopped_count; /* workers that ran then */
    uint64_t stopped_at_ms;
    uint64_t drain_ms;  /* when to stop waiting for a step boundary; UINT64_MAX: untimed */
    uint64_t revoke_ms; /* when the round of stopping workers is over; likewise */
    uint64_t answer_ms; /* when to stop waiting for the rendezvous' agreement; likewise */
    uint64_t held_signals;
    uint64_t held_ms;   /* when they take effect */
    uint64_t forwarded; /* operand of FORWARD */
    int signal;         /* operand of REPORT_NEEDED */

    /* the end */
    bool released;              /* from a job that goes on */
    bool was_alone;             /* the only node then */
    bool stays;                 /* as that job's rendezvous ... */
    bool stays_reported;        /* ... for so long that it was said */
    uint64_t stays_ms;          /* ... since then */
    bool warned;                /* what another signal would cost */
    uint64_t closed_generation; /* the job's last round; 0: not closed */
    int result_status, result_code, error_code;
    bool by_user;
    int status;        /* ctrun's exit status */
    uint64_t ended_ms; /* when the outcome was known; later while it stays */
    uint64_t gone_ms;  /* when no worker ran any more; 0: not yet */
    uint64_t poll_ms;  /* when to look again whether others have left; UINT64_MAX: untimed */
};

/* Initialise a core that is IDLE and LIVE. The arrays have `settings->slots` zeroed elements and
 * outlive it. */
void agent_core_init(struct agent_core *core, const struct agent_settings *settings,
                     struct ct_survivor *survivors, bool *dismissed);

/* Handle one event; returns the set of actions. */
uint64_t agent_core_step(struct agent_core *core, const struct agent_view *view,
                         const struct agent_event *event);

/* Return the time at which TICK is due, in ms; UINT64_MAX if none is. */
uint64_t agent_core_deadline(const struct agent_core *core);

/* Return whether workers act in the newest round, with no request open but a step boundary. */
bool agent_core_acts(const struct agent_core *core);

/* Return whether the outcome is known. */
bool agent_core_is_ending(const struct agent_core *core);

/* Append one line, "prepare g2 at a step boundary: REVOKE g1, STOP by 15", as in debug logs, the
 * simulator's trace and transcripts. `actions` is the result of agent_core_step. */
void agent_step_print(const struct agent_core *core, const struct agent_event *event,
                      uint64_t actions, struct ct_buf *to);

#endif
