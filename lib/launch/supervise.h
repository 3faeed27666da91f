/* Supervision of one node's workers: which signal goes out when, as a state table.
 *
 *             START        STARTED             EXIT_BAD, STOP              EXPIRED
 *     DONE ----------> SPAWNING ------> RUNNING ------------> STOPPING -----------> KILLING
 *      ^                                   |    (SIGTERM)        |      (SIGKILL)      |
 *      +-------------- EMPTY --------------+---------------------+---------------------+
 *
 * A worker is a process group: its first process, whose exit status counts, and its descendants. It
 * has ended when the first process ended, and is gone when the group is empty. The first bad exit
 * while RUNNING is the node's root failure (CT_SUP_BLAME); exits after a signal of ours are no
 * failures; exit.h knows the exceptions.
 *
 * Workers that can survive a lost one change this: its exit is LOST instead of BAD, the others stay
 * RUNNING, and REFILL starts the missing ones.
 *
 * Pure: no clock, no processes. The caller turns signals and timers into events, carries out the
 * actions, and asks for the next deadline. One instance supervises one round after the other. */
#ifndef CT_LAUNCH_SUPERVISE_H
#define CT_LAUNCH_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_SUP_NOTICE_MS = 1000,   /* say what is awaited after this much of a stop */
    CT_SUP_PATIENCE_MS = 5000, /* how long a SIGKILLed process may linger (disk wait) */
};

enum ct_sup_state {
    CT_SUP_DONE, /* no worker: none was started yet, or all are gone */
    CT_SUP_SPAWNING,
    CT_SUP_RUNNING,
    CT_SUP_STOPPING, /* SIGTERM is out, the grace runs */
    CT_SUP_KILLING,  /* SIGKILL is out */
    CT_SUP_STATES
};

enum ct_sup_event {
    CT_SUP_START,        /* a round asks for workers */
    CT_SUP_STARTED,      /* all of them exist */
    CT_SUP_START_FAILED, /* one could not be started */
    CT_SUP_EXIT_OK,      /* a worker ended with status 0 */
    CT_SUP_EXIT_BAD,     /* a worker ended in any other way */
    CT_SUP_EXIT_LOST,    /* likewise, and another one lives on without it */
    CT_SUP_REFILL,       /* the next round asks for those that are missing */
    CT_SUP_GONE,         /* a worker's process group is empty */
    CT_SUP_STOP,         /* end the workers, with grace */
    CT_SUP_KILL,         /* end the workers at once */
    CT_SUP_TICK,         /* time has passed; nothing else happened */
    CT_SUP_EMPTY,        /* (inner) no worker is left */
    CT_SUP_NOTICE,       /* (inner) a stop takes longer than CT_SUP_NOTICE_MS */
    CT_SUP_EXPIRED,      /* (inner) the state's deadline is over */
    CT_SUP_EVENTS
};

/* Actions, as a set of bits; carried out in this order. */
enum ct_sup_action {
    CT_SUP_DO_SPAWN = 1 << 0,  /* start the workers, then feed STARTED or START_FAILED */
    CT_SUP_DO_SWEEP = 1 << 1,  /* SIGKILL to what is left of this worker's group */
    CT_SUP_DO_BLAME = 1 << 2,  /* this event is the root failure of the node's round */
    CT_SUP_DO_TERM = 1 << 3,   /* SIGTERM to every group */
    CT_SUP_DO_KILL = 1 << 4,   /* SIGKILL to every group */
    CT_SUP_DO_REPORT = 1 << 5, /* report to the user what is waited for */
    CT_SUP_DO_FORGET = 1 << 6, /* SIGKILL had no effect: leave the rest to the kernel */
    CT_SUP_DO_FINISH = 1 << 7, /* the round is over on this node */
};

struct ct_supervise {
    enum ct_sup_state state;
    uint32_t live; /* workers whose group is not empty */
    uint64_t grace_ms;
    uint64_t notice_at_ms;   /* UINT64_MAX: none */
    uint64_t deadline_at_ms; /* UINT64_MAX: none */
};

/* Initialise; `grace_ms` is the time from SIGTERM to SIGKILL. */
void ct_supervise_init(struct ct_supervise *sup, uint64_t grace_ms);

/* Handle one event; returns the actions. `count` is the number of workers that exist after STARTED
 * and START_FAILED, and unused otherwise. START is a bug of the caller unless the state is DONE,
 * REFILL unless it is RUNNING. */
unsigned ct_supervise_step(struct ct_supervise *sup, uint64_t now_ms, enum ct_sup_event event,
                           uint32_t count);

/* Return the time at which TICK is due, in ms; UINT64_MAX if none is. */
uint64_t ct_supervise_deadline(const struct ct_supervise *sup);

#endif
