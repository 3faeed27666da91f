/* Requests to stop: SIGTERM or SIGINT, or the agent's STOP message.
 *
 * The signals are blocked in every thread and received with sigtimedwait, so no call is interrupted
 * and no handler runs. */
#ifndef CT_WORKER_STOP_H
#define CT_WORKER_STOP_H

#include "ctrun.h"

#include <signal.h>

struct ct_stop {
    sigset_t signals;
    int signal; /* the one received; SIGTERM for the agent's message; 0: none yet */
};

/* Block the signals: from now on they are requests; before they end the process as usual. Call
 * before any thread is started, and after long work that does not poll for a stop. */
void ct_stop_init(struct ct_stop *stop);

/* Return whether a stop was requested. Never blocks. `job` may be NULL. */
bool ct_stop_requested(struct ct_stop *stop, struct ct_job *job);

/* Return whether `code` is a secondary failure: a peer is gone or the round is over, and a stop is
 * probably coming. */
bool ct_stop_is_secondary(int code);

/* How long to wait for that stop. */
enum { CT_STOP_GRACE_MS = 3000 };

/* Wait up to `timeout_ms` for a stop. Return whether one was requested. */
bool ct_stop_wait(struct ct_stop *stop, struct ct_job *job, int timeout_ms);

#endif
