/* A worker's bad end as its own node knows it: the record that is sent to all others
 * (wire/failure.h), and facts of use to this node only. */
#ifndef CT_LAUNCH_WORKER_FAILURE_H
#define CT_LAUNCH_WORKER_FAILURE_H

#include "launch/failure/exit.h"
#include "wire/wire.h"

#include <stdbool.h>

/* No string is NULL. */
struct ct_worker_failure {
    struct ct_wire_failure record;
    bool stopped;         /* by a signal of ours, because of another failure or on request */
    bool killed;          /* by our SIGKILL: the grace was over, or it was to end at once */
    bool shown;           /* this node's console has the text already */
    const char *sentence; /* what its error file says in short; "" when there is none */
    const char *own_path; /* where it was to leave an error file; "": nowhere */
};

/* How the worker ended. */
static inline struct ct_exit ct_failure_exit(const struct ct_wire_failure *failure)
{
    return (struct ct_exit){.status = failure->signal != 0 ? 0 : failure->status,
                            .signal = failure->signal};
}

#endif
