/* Running one list on its queues. Inside of collectives/exec only.
 *
 *     ct_runner_init            starts a thread for each communication queue that the list has
 *     ct_runner_run             runs the list once: the compute queue here, the others there
 *     ct_runner_deinit
 *
 * Counters order the queues: `done[q]` is the number of completed ops of queue q; a waiting op
 * sleeps until the other queues' counters are high enough or a failure was noted. Where the device
 * runs ops asynchronously, marks order its queues in the same way. ct_runner_run returns when all
 * queues are idle, also after a failure.
 *
 * A list without communication is recorded on its second run, if the device can, and replayed from
 * then on. */
#ifndef CT_EXEC_RUN_H
#define CT_EXEC_RUN_H

#include "collectives/exec/exec.h"

#include <pthread.h>
#include <stdatomic.h>

/* Whether ops of other queues wait for this one, as a bit for each queue; the device waits by the
 * mark. */
struct ct_signal {
    unsigned awaited;
    struct ct_mark *mark;
};

/* For an op: the op of each other queue that it waits for, where its slot has a wait. */
struct ct_awaited {
    int op[CT_QUEUE_COUNT];
};

/* The thread of a communication queue. */
struct ct_comm_thread {
    struct ct_runner *runner;
    int queue;
    pthread_t thread;
    bool started;
    uint64_t ended; /* runs that it has completed; under the mutex */
};

struct ct_runner {
    const struct ct_plan *plan;
    const struct ct_plan_list *list;
    const struct ct_exec_options *options;
    struct ct_device *device[CT_QUEUE_COUNT]; /* a queue of the device each */
    struct ct_group *const *groups;           /* by enum ct_axis */

    struct ct_kernel_args *args; /* of each op, bound to memory */
    struct ct_signal *signals;   /* of each op */
    struct ct_awaited *after;    /* of each op */
    bool records;                /* the list may be recorded */
    struct ct_recording *recording;
    struct ct_exec_event *trace; /* of each op, or NULL */
    bool tracing;                /* the trace is written */
    atomic_uint_least64_t events;

    struct ct_comm_thread threads[CT_QUEUE_COUNT];
    pthread_mutex_t mutex;
    pthread_cond_t changed[CT_QUEUE_COUNT]; /* where the thread of a queue sleeps */
    /* Under the mutex: */
    int done[CT_QUEUE_COUNT];
    int code;                /* the first failure of this run */
    int failed_op;           /* its op */
    struct ct_error failure; /* the device's sentence */
    uint64_t started;        /* runs requested */
    bool quit;
};

/* Return whether a list has ops for a queue that needs a thread. */
bool ct_runner_needs_thread(const struct ct_plan_list *list, enum ct_queue queue);

/* Bind `list` to `arena`, and values in host memory to `host`. `runner` is zero but for plan, list,
 * options, device and groups, and must not move. 0, CT_EUNSUPPORTED when the device lacks an op,
 * CT_ENOMEM, CT_EOS. */
int ct_runner_init(struct ct_runner *runner, void *arena, void *host, struct ct_error *err);

/* Free; also after a failed init, and for one that is all zero. */
void ct_runner_deinit(struct ct_runner *runner);

/* Run the list once. 0, or the first failure with its sentence. */
int ct_runner_run(struct ct_runner *runner, struct ct_error *err);

#endif
