/* A call: one operation of a group with everything resolved, and its signature, by which members
 * find out that they called different things. */
#ifndef CT_COLL_CALL_H
#define CT_COLL_CALL_H

#include "ctrun.h"

enum ct_call_kind {
    CT_CALL_BARRIER,
    CT_CALL_BROADCAST,
    CT_CALL_ALL_GATHER,
    CT_CALL_REDUCE_SCATTER,
    CT_CALL_ALL_REDUCE,
    CT_CALL_SEND,
    CT_CALL_RECV,
};

/* In place is resolved: `send` and `recv` point at the input and at the output, and may be equal
 * (reduce_scatter: recv may lie inside send; all_gather: send inside recv). */
struct ct_call {
    enum ct_call_kind kind;
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    int peer; /* the root, or the other end; in the group's ranks */
    uint32_t tag;
    size_t count;
    double scale; /* of a premultiplied sum; members may differ */
    const char *send;
    char *recv;
};

/* What must be equal at all members of a call, in 16 bytes. */
struct ct_signature {
    uint64_t count;
    uint64_t rest; /* kind 6, dtype 4, reduce 4, mode 2, root 16, tag 32 bits */
};

enum { CT_SIGNATURE_ROOTS = 1 << 16 };

/* send and recv have one signature: they are the two ends of one call. */
struct ct_signature ct_call_signature(const struct ct_call *call);

static inline bool ct_signature_equal(struct ct_signature a, struct ct_signature b)
{
    return a.count == b.count && a.rest == b.rest;
}

/* "all_reduce of 1000 F32, SUM, INVARIANT, tag 7" into `text`; also for a signature that came from
 * elsewhere and may be nonsense. */
void ct_signature_print(struct ct_signature signature, char *text, size_t room);

/* CT_EMISMATCH with the sentence that names both sides. */
int ct_signature_mismatch(struct ct_signature mine, int rank, struct ct_signature theirs, int peer,
                          struct ct_error *err);

/* Does this kind add up data? */
bool ct_call_reduces(enum ct_call_kind kind);

/* Bytes of `count` elements. */
static inline size_t ct_call_bytes(const struct ct_call *call)
{
    return call->count * ct_dtype_size(call->dtype);
}

#endif
