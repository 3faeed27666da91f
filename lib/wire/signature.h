/* A call of a group in 16 bytes: members compare signatures to detect a mismatch, and the flight
 * recorder (flight.h) keeps them for later analysis.
 *
 *     count   elements; of a _v call whose counts all members know: their hash
 *     rest    | tag 32 | peer 16 | mode 2 | reduce 4 | dtype 4 | uneven 1 | kind 5 |
 */
#ifndef CT_WIRE_SIGNATURE_H
#define CT_WIRE_SIGNATURE_H

#include "base/error.h"
#include "base/number/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_call_kind {
    CT_CALL_BARRIER,
    CT_CALL_BROADCAST,
    CT_CALL_ALL_GATHER,
    CT_CALL_REDUCE_SCATTER,
    CT_CALL_ALL_REDUCE,
    CT_CALL_REDUCE,
    CT_CALL_GATHER,
    CT_CALL_SCATTER,
    CT_CALL_ALL_TO_ALL,
    CT_CALL_SEND,
    CT_CALL_RECV,
    CT_CALL_EXCHANGE, /* many of the two; no backend sees it */
    CT_CALL_KINDS
};

/* The properties of a kind of call. */
struct ct_call_traits {
    const char *name;         /* of the kind as members compare it: "send/recv" for both ends */
    const char *own_name;     /* of the kind itself: "send" */
    bool reduces;             /* an operation and a mode */
    bool rooted;              /* a root */
    bool in_parts, out_parts; /* a part a member, instead of one run of elements */
};
extern const struct ct_call_traits ct_call_traits[CT_CALL_KINDS];

struct ct_signature {
    uint64_t count, rest;
};

enum {
    CT_SIGNATURE_PEERS = 1 << 16,
    CT_SIGNATURE_REDUCTIONS = 8, /* how many of enum ct_reduce and of its modes have a name here */
    CT_SIGNATURE_MODES = 3,
    CT_SIGNATURE_TEXT = 128, /* room for any that is printed */
};

/* `rest`, field by field. */
struct ct_signature_fields {
    unsigned kind, uneven, dtype, reduce, mode, peer;
    uint32_t tag;
};

/* Where they begin. */
enum {
    CT_SIGNATURE_UNEVEN_AT = 5,
    CT_SIGNATURE_DTYPE_AT = 6,
    CT_SIGNATURE_REDUCE_AT = 10,
    CT_SIGNATURE_MODE_AT = 14,
    CT_SIGNATURE_PEER_AT = 16,
    CT_SIGNATURE_TAG_AT = 32,
};

static inline uint64_t ct_signature_pack(const struct ct_signature_fields *fields)
{
    return (uint64_t)fields->kind | (uint64_t)fields->uneven << CT_SIGNATURE_UNEVEN_AT |
           (uint64_t)fields->dtype << CT_SIGNATURE_DTYPE_AT |
           (uint64_t)fields->reduce << CT_SIGNATURE_REDUCE_AT |
           (uint64_t)fields->mode << CT_SIGNATURE_MODE_AT |
           (uint64_t)fields->peer << CT_SIGNATURE_PEER_AT |
           (uint64_t)fields->tag << CT_SIGNATURE_TAG_AT;
}

/* Unpack a signature; false for an unknown call; the fields are well-formed in either case. */
bool ct_signature_unpack(uint64_t rest, struct ct_signature_fields *ret_fields);

static inline bool ct_signature_equal(struct ct_signature a, struct ct_signature b)
{
    return a.count == b.count && a.rest == b.rest;
}

/* Write "all_reduce of 1000 F32, SUM, INVARIANT, tag 7" into `text`; also for an untrusted
 * signature. */
void ct_signature_print(struct ct_signature signature, char *text, size_t room);

/* Set the sentence that names both sides; returns CT_EMISMATCH. */
int ct_signature_mismatch(struct ct_signature mine, int rank, struct ct_signature theirs, int peer,
                          struct ct_error *err);

#endif
