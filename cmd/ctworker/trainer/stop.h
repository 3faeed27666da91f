/* Requests to stop: SIGTERM or SIGINT, or the agent's STOP message.
 *
 * The signals are blocked in every thread and taken with sigtimedwait, so nothing is interrupted
 * and no handler runs. */
#ifndef CT_WORKER_STOP_H
#define CT_WORKER_STOP_H

#include "ctrun.h"

#include <signal.h>

struct ct_stop {
    sigset_t signals;
    int signal; /* the one that came; SIGTERM for the agent's message; 0: none yet */
};

/* Block the signals: from now on they are requests, before they end the process as usual. Call
 * before any thread is started, and after what may take long without looking here. */
void ct_stop_init(struct ct_stop *stop);

/* Has a stop been asked for? Never blocks. `job` may be NULL. */
bool ct_stop_requested(struct ct_stop *stop, struct ct_job *job);

/* Is `code` what a rank gets when a peer has gone or the round is over? Then it is not this rank's
 * own failure, and a stop is probably on its way. */
bool ct_stop_is_secondary(int code);

/* How long to wait for it. */
enum { CT_STOP_GRACE_MS = 3000 };

/* Wait up to `timeout_ms` for a stop. */
bool ct_stop_wait(struct ct_stop *stop, struct ct_job *job, int timeout_ms);

#endif
