/* The trace: when each op of some steps ran, one file a rank, in the Trace Event Format that
 * chrome://tracing and ui.perfetto.dev show ("Trace Event Format", Google, 2016).
 *
 *     <log.dir>/trace/rank<R>.json, in later rounds of the job rank<R>.round<G>.json
 *
 *     process R   compute        | data | step 12: forward ... backward ... update |
 *                 communication         |       all_reduce   all_reduce            |
 *                 model parallelism     |  exchange    exchange                    |
 *
 * What slices and stages say to each other is on a line of its own, or among the compute ops where
 * nothing could be computed meanwhile. A rank waits where no op of its compute line computes.
 *
 * Times are microseconds of the machine's monotonic clock, so the ranks of a machine fit together;
 * baseTimeNanoseconds converts them into time since 1970. An op carries its number in the
 * plan, its micro-batch, and the bytes and FLOP that it takes.
 *
 * Off (log.trace 0), nothing is stamped and every call here returns at once. */
#ifndef CT_WORKER_TRACE_H
#define CT_WORKER_TRACE_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_worker;

struct ct_trace {
    bool open;  /* steps are still to be recorded, or to be written */
    bool begun; /* `text` has an event */
    struct ct_buf text;
    uint64_t began_ns; /* when the present step began to wait for its data */
    uint64_t fed_ns;   /* when it had them */
};

/* Begin the steps of a round. */
void ct_trace_open(struct ct_worker *worker);

/* Note that a step begins; has its data; is done (worker->step is its number). */
void ct_trace_begin(struct ct_worker *worker);
void ct_trace_feed(struct ct_worker *worker);
void ct_trace_add(struct ct_worker *worker);

/* Write the trace, once, when its steps or all steps are over. A file that cannot be written is a
 * warning only. */
void ct_trace_close(struct ct_worker *worker);

#endif
