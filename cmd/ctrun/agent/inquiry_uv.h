/* Inquiries into the cause of a hang or failure. An agent with a reason (a rank hangs, a call has
 * timed out, ranks called different operations) collects the last records of all ranks, from all
 * nodes, and judges (diagnose/verdict.h):
 *
 *      agent 0                    the round's store                    agent 1
 *      ADD ct/trace/1/asked  ---> 1: it is the one that collects
 *                                 WAIT ct/trace/1/asked   answered     the records of its ranks
 *                            <--- ct/trace/1/node/1  <-------------    SET
 *      the verdict           ---> ct/trace/1/verdict      answered     printed there, too
 *
 * Every agent waits for the next inquiry of its round, so nothing is sent without one; of several
 * concurrent ones a single agent collects, and the others take its answer. Late answers are left
 * out. A job of one node needs no store.
 *
 * A round gets one verdict: later failures are secondary. It is printed by the inquiring node, by
 * node 0, and by the culprit's node, unless that has named the hanging rank already; each of them
 * writes the flight recorders of its ranks to the log folder (recorders_uv.h). */
#ifndef CT_CTRUN_AGENT_INQUIRY_UV_H
#define CT_CTRUN_AGENT_INQUIRY_UV_H

#include "diagnose/verdict.h"

#include <stdint.h>

struct ct_msg_store_reply;
struct ct_traces;
struct ct_wire_failure;
struct inquiry;
struct node;

/* `local_rank` in a call of node->calls that is an inquiry's. */
#define INQUIRY_CALLER UINT32_MAX

struct inquiry_answer {
    enum ct_verdict_kind kind; /* CT_VERDICT_NONE: nobody was found */
    uint32_t rank;
    const char *text; /* the verdict's sentence */
};

/* Allocate; NULL without memory. */
struct inquiry *inquiry_new(struct node *node);

/* Begin to answer inquiries in the node's new round. */
void inquiry_begin(struct inquiry *inquiry);

/* Ask; `done` comes once, from inside or within `limit_ms`. A second one while it is open takes the
 * same answer; more get CT_VERDICT_NONE at once. */
void inquiry_start(struct inquiry *inquiry, uint64_t limit_ms,
                   void (*done)(void *context, const struct inquiry_answer *answer), void *context);

/* Record that this node has already reported the rank as hanging, so that a verdict that repeats it
 * is logged at debug level. */
void inquiry_reported(struct inquiry *inquiry, uint32_t rank);

/* Add the records of this node's ranks to `traces`; after the workers' end, their last records. */
void inquiry_collect(struct inquiry *inquiry, struct ct_traces *traces);

/* Set the verdict DEAD for a worker that ended badly, with the call that its record shows. */
void inquiry_dead(struct inquiry *inquiry, uint32_t rank);

/* Return whether others may have caused the worker's failure: did a call of it time out, or was it
 * another than theirs? */
bool inquiry_due(const struct inquiry *inquiry, const struct ct_wire_failure *failure);

/* Handle the answer to a store request of an inquiry. */
void inquiry_reply(struct inquiry *inquiry, uint64_t number,
                   const struct ct_msg_store_reply *reply);

/* Stop inquiries; free when the loop has ended. NULL is allowed. */
void inquiry_close(struct inquiry *inquiry);
void inquiry_free(struct inquiry *inquiry);

#endif
