/* Calls of ctrun.h as NCCL's: which of them NCCL carries with our semantics, on which communicator,
 * and the group of NCCL calls for one of ours. Pure except for the last two. */
#ifndef CT_COLL_NCCL_CALLS_H
#define CT_COLL_NCCL_CALLS_H

#include "algorithm/call.h"
#include "backend/nccl/nccl_library.h"

/* Kinds of calls that may be under way at the same time, each on a communicator and a stream of its
 * own. Gathers and scatters are apart: a sharded model gathers the next layer while it scatters
 * gradients. */
enum ct_nccl_communicator_kind {
    CT_NCCL_MAIN,
    CT_NCCL_GATHER,
    CT_NCCL_SCATTER,
    CT_NCCL_PAIRS, /* sends and receives */
    CT_NCCL_KINDS
};

/* Return whether NCCL gives the result that ctrun.h defines. Other calls go through the host:
 *
 *     moves                             yes; all_to_all in place or of unequal parts: no
 *     SUM PROD  integers                yes, in each mode
 *               floats                  yes in FAST; in the other modes between two ranks, where
 *                                       there is but one order
 *               BF16 F16, FAST          yes, but rounded at each of its steps
 *     AVG       floats                  as SUM, where the ranks are a power of two
 *     MAX MIN   integers                yes; of floats no: NaN would be lost
 *     others; I16, BOOL                 no */
bool ct_nccl_carries(const struct ct_call *call);

/* Return the kind of communicator for this call. */
enum ct_nccl_communicator_kind ct_nccl_communicator_of(enum ct_call_kind kind);

/* Return whether the call moves no bytes. */
bool ct_nccl_is_empty(const struct ct_call *call);

/* A message of a batch. */
struct ct_nccl_message {
    void *data; /* of a send it is read only */
    size_t bytes;
    int peer;
    bool out;
};

/* Enqueue a collective that NCCL carries. Return NCCL's result, CT_NCCL_IN_PROGRESS included. */
int ct_nccl_issue(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm, void *stream,
                  const struct ct_call *call);

/* Enqueue messages as one group. Return NCCL's result. */
int ct_nccl_issue_messages(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                           void *stream, const struct ct_nccl_message *messages, size_t count);

#endif
