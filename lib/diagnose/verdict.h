/* The verdict: why the ranks of a job make no progress, and which rank is at fault, from the last
 * records of each rank (wire.def, TRACES) of all nodes that answered.
 *
 *   MISMATCH  at one number of one group, it called another operation than the others: the few are
 *             wrong. Or: all wait, but not in the same collective, so none of them can end
 *   DEAD      its process has ended, and others wait for it
 *   STUCK     it has entered the collective that others wait in, and sends no heartbeat there
 *   MISSING   it has not entered the collective that others wait in, and sends no heartbeat
 *   SLOW      it has not entered it yet either, but it always takes that long
 *
 * Waiting ranks are victims. A rank that they wait for may be another victim, so the chain is
 * followed to a rank that others wait for and that waits for nobody:
 *
 *      group a: 0 1 2 3     rank 3 computes for ever: 0, 1, 2 wait in a, and 4 waits in b for
 *      group b: 2 4         rank 2: MISSING names rank 3, "4 ranks wait"
 *
 * A failed rank (its call timed out, or it received another's failure) counts as a waiting one.
 * Judging takes the time of sorting the traces (evidence.h). Pure: no clock, no I/O. */
#ifndef CT_DIAGNOSE_VERDICT_H
#define CT_DIAGNOSE_VERDICT_H

#include "base/bytes.h"
#include "wire/signature.h"
#include "wire/wire.h"

#include <stdbool.h>

enum ct_verdict_kind {
    CT_VERDICT_NONE,
    CT_VERDICT_MISSING,
    CT_VERDICT_MISMATCH,
    CT_VERDICT_STUCK,
    CT_VERDICT_SLOW,
    CT_VERDICT_DEAD,
};

enum ct_trace_life {
    CT_TRACE_RUNS,
    CT_TRACE_STOPPED, /* by a signal, as a debugger does */
    CT_TRACE_ENDED,
    CT_TRACE_DOWN, /* ended by its agent, because the round is over: what it waited in counts */
};

enum {
    CT_VERDICT_SILENT_MS = 900, /* a waiting rank sends a heartbeat each 10 ms */
    CT_VERDICT_SLOW_FACTOR = 3, /* of its usual time on the way to a call */
};

/* One call of one rank. */
struct ct_verdict_call {
    const struct ct_wire_trace_group *group; /* NULL: no call is known */
    uint64_t number;                         /* 0: a transfer */
    const struct ct_wire_trace_call *call;   /* NULL: what it was is not known any more */
};

struct ct_verdict {
    enum ct_verdict_kind kind;
    const struct ct_wire_trace_rank *culprit;
    struct ct_verdict_call awaited; /* in which others wait for it; MISMATCH: what they called */
    struct ct_verdict_call own; /* STUCK: it is in that; MISMATCH: it called that; else its last */
    uint32_t other;             /* MISMATCH: a rank that called what was awaited */
    uint32_t waiting;           /* ranks that wait for it, through others too */
    uint64_t since_ms;          /* the first of them has waited for so long */
    uint64_t steps;             /* rows of the traces that judging them looked at */
};

/* Judge the merged traces of all nodes, each list in any order; their contents are not trusted.
 * False: no rank is at fault, or no memory. The verdict points into the traces. */
bool ct_verdict_find(const struct ct_msg_traces *traces, struct ct_verdict *ret_verdict);

/* Return whether the verdict shows more than ranks on their way to a call, for a query of a job
 * that may be healthy: its nodes are sampled one after the other, and some rank waits for another
 * at any moment. */
bool ct_verdict_stands(const struct ct_verdict *verdict);

/* Judge a rank whose process has ended badly, whether or not others wait for it by now; false when
 * the traces do not have it, or it made no call. */
bool ct_verdict_dead(const struct ct_msg_traces *traces, uint32_t rank,
                     struct ct_verdict *ret_verdict);

/* Return "MISSING", ... */
const char *ct_verdict_name(enum ct_verdict_kind kind);

/* Append "MISSING: rank 3 (host b, pid 4711) has not entered all_reduce of 650 F32, SUM, FAST
 * (number 7 of group world/1, called from train+0x41), which 7 ranks have waited in for 3.2 s;
 * ..." */
void ct_verdict_print(const struct ct_verdict *verdict, struct ct_buf *to);

#endif
