/* A call: one operation of a group with everything resolved; the parts its buffers are made of; and
 * its signature (wire/signature.h), by which members find out that they called different things. */
#ifndef CT_COLL_ALGORITHM_CALL_H
#define CT_COLL_ALGORITHM_CALL_H

#include "ctrun.h"
#include "reduce/reduce.h"
#include "wire/signature.h"

/* In place is resolved: `send` and `recv` point at the input and at the output, and may be equal
 * (reduce_scatter, scatter: recv may lie inside send; all_gather, gather: send inside recv). */
struct ct_call {
    enum ct_call_kind kind;
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    int rank, size; /* this member, the group */
    int members;    /* that an average divides by; 0: the group's */
    int peer;       /* the root, or the other end; in the group's ranks */
    uint32_t tag;
    size_t count; /* elements of a buffer, or of a part where parts are equal */
    double scale; /* of a premultiplied sum; members may differ */
    const char *send;
    char *recv;
    bool uneven;                         /* a v form: parts are as `in` or `out` say */
    struct ct_parts in, out;             /* of `send` and `recv`, where these have parts */
    const struct ct_transfer *transfers; /* `count` of them, of an exchange */
    void *stream;         /* of the device: begin behind what it has been given; may be NULL */
    const void *site;     /* the call site in the program, for the flight recorder; may be NULL */
    size_t longest_bytes; /* of all parts known to this member; set by ct_call_complete */
};

/* A run of bytes in a buffer. */
struct ct_span {
    size_t at, bytes;
};

/* Check the call and set its derived fields. Return false if it is invalid: an unknown type or
 * operation, a missing buffer, a size that overflows, a peer that does not exist. */
bool ct_call_complete(struct ct_call *call);

/* Return member i's part of the input, of the output; all of it where the call has no parts. */
struct ct_span ct_call_in(const struct ct_call *call, int i);
struct ct_span ct_call_out(const struct ct_call *call, int i);

/* Return the reduction of the call; the caller adds divisor and factors. */
struct ct_reduction ct_call_reduction(const struct ct_call *call);

bool ct_call_reduces(enum ct_call_kind kind);
bool ct_call_has_parts(enum ct_call_kind kind);

/* Return whether it is a transfer between two ranks, which runs concurrently with collectives. */
static inline bool ct_call_is_transfer(const struct ct_call *call)
{
    return call->kind >= CT_CALL_SEND;
}

/* Return the bytes of `count` elements. */
static inline size_t ct_call_bytes(const struct ct_call *call)
{
    return call->count * ct_dtype_size(call->dtype);
}

/* ---- signatures ------------------------------------------------------------------------------*/

/* Return the call's signature. send and recv have the same: they are the two ends of one call. */
struct ct_signature ct_call_signature(const struct ct_call *call);

/* Return the signature that `peer` must have, too, for data that goes to it (out) or comes from it:
 * the call's `signature`, with the count of that part in an all_to_all_v, which only two members
 * know. */
struct ct_signature ct_call_signature_with(const struct ct_call *call,
                                           struct ct_signature signature, int peer, bool out);

#endif
