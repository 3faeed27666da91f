/* Inquiries: why does the job not get on? An agent that has reason to ask (a rank hangs, a call has
 * timed out, ranks called different things) collects what all ranks were last seen at, from all
 * nodes, and judges (diagnose/verdict.h):
 *
 *      agent 0                    the round's store                    agent 1
 *      ADD ct/trace/1/asked  ---> 1: it is the one that collects
 *                                 WAIT ct/trace/1/asked   answered     what it sees of its ranks
 *                            <--- ct/trace/1/node/1  <-------------    SET
 *      the verdict           ---> ct/trace/1/verdict      answered     told there, too
 *
 * Every agent waits for the next question of its round, so nothing is sent while nobody asks; of
 * several that ask at once one collects, and the others take its answer. What does not come in time
 * is judged without. A job of one node needs no store.
 *
 * A round gets one verdict: what fails after it is its echo. It is printed by who asked, by node 0,
 * and by the culprit's node, unless that has said of a hang who it is; each of them leaves the
 * flight recorders of its ranks in the log folder (recorders_uv.h). */
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

/* NULL without memory. */
struct inquiry *inquiry_new(struct node *node);

/* The node's round has begun: answer who asks in it. */
void inquiry_begin(struct inquiry *inquiry);

/* Ask; `done` comes once, from inside or within `limit_ms`. A second one while it is open takes the
 * same answer; more get CT_VERDICT_NONE at once. */
void inquiry_start(struct inquiry *inquiry, uint64_t limit_ms,
                   void (*done)(void *context, const struct inquiry_answer *answer), void *context);

/* It was said here that this rank hangs: a verdict that it does adds little for a person. */
void inquiry_told(struct inquiry *inquiry, uint32_t rank);

/* Add what the ranks of this node are at; of a round whose workers are gone, what they were last
 * seen at. */
void inquiry_take(struct inquiry *inquiry, struct ct_traces *traces);

/* A worker has ended badly: say DEAD, and in which call, from what is seen here. */
void inquiry_dead(struct inquiry *inquiry, uint32_t rank);

/* Is the worker's failure one that others may be to blame for: did a call of it time out, or was it
 * another than theirs? */
bool inquiry_due(const struct inquiry *inquiry, const struct ct_wire_failure *failure);

/* The answer to a store request of an inquiry. */
void inquiry_reply(struct inquiry *inquiry, uint64_t number,
                   const struct ct_msg_store_reply *reply);

/* Ask no more; when the loop has ended, free. NULL is fine. */
void inquiry_close(struct inquiry *inquiry);
void inquiry_free(struct inquiry *inquiry);

#endif
