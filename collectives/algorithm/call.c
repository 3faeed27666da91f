/* See call.h. */
#include "algorithm/call.h"

#include "base/assert.h"
#include "base/number/hash.h"

/* Who reads its `send`, who writes its `recv`. */
enum side { NOBODY, ROOT, EVERYBODY };

static const struct access {
    enum side reads, writes;
} accesses[CT_CALL_KINDS] = {
    [CT_CALL_BARRIER] = {NOBODY, NOBODY},
    [CT_CALL_BROADCAST] = {ROOT, EVERYBODY},
    [CT_CALL_ALL_GATHER] = {EVERYBODY, EVERYBODY},
    [CT_CALL_REDUCE_SCATTER] = {EVERYBODY, EVERYBODY},
    [CT_CALL_ALL_REDUCE] = {EVERYBODY, EVERYBODY},
    [CT_CALL_REDUCE] = {EVERYBODY, ROOT},
    [CT_CALL_GATHER] = {EVERYBODY, ROOT},
    [CT_CALL_SCATTER] = {ROOT, EVERYBODY},
    [CT_CALL_ALL_TO_ALL] = {EVERYBODY, EVERYBODY},
    [CT_CALL_SEND] = {EVERYBODY, NOBODY},
    [CT_CALL_RECV] = {NOBODY, EVERYBODY},
    [CT_CALL_EXCHANGE] = {NOBODY, NOBODY},
};

_Static_assert((int)CT_REDUCE_COUNT == (int)CT_SIGNATURE_REDUCTIONS, "each has a name");
_Static_assert((int)CT_MODE_INVARIANT + 1 == (int)CT_SIGNATURE_MODES, "each has a name");

struct ct_reduction ct_call_reduction(const struct ct_call *call)
{
    return (struct ct_reduction){.dtype = call->dtype,
                                 .reduce = call->reduce,
                                 .order = call->mode == CT_MODE_INVARIANT ? CT_ORDER_TREE
                                                                          : CT_ORDER_RANK,
                                 .divisor = 1};
}

bool ct_call_reduces(enum ct_call_kind kind)
{
    return ct_call_traits[kind].reduces;
}

bool ct_call_has_parts(enum ct_call_kind kind)
{
    return ct_call_traits[kind].in_parts || ct_call_traits[kind].out_parts;
}

/* ---- parts -----------------------------------------------------------------------------------*/

static struct ct_span part_of(const struct ct_call *call, const struct ct_parts *parts, int i)
{
    size_t size = ct_dtype_size(call->dtype);

    if (!call->uneven)
        return (struct ct_span){(size_t)i * call->count * size, call->count * size};
    return (struct ct_span){parts->offsets[i] * size, parts->counts[i] * size};
}

struct ct_span ct_call_in(const struct ct_call *call, int i)
{
    if (ct_call_traits[call->kind].in_parts)
        return part_of(call, &call->in, i);
    return (struct ct_span){0, ct_call_bytes(call)};
}

struct ct_span ct_call_out(const struct ct_call *call, int i)
{
    if (ct_call_traits[call->kind].out_parts)
        return part_of(call, &call->out, i);
    return (struct ct_span){0, ct_call_bytes(call)};
}

/* ---- checks ----------------------------------------------------------------------------------*/

/* Do `count` elements behind the first `offset` have a number of bytes that can be counted? */
static bool fits(const struct ct_call *call, size_t offset, size_t count)
{
    size_t bytes;

    return !__builtin_add_overflow(offset, count, &bytes) &&
           !__builtin_mul_overflow(bytes, ct_dtype_size(call->dtype), &bytes) &&
           bytes < SIZE_MAX / 2;
}

static bool fits_evenly(const struct ct_call *call)
{
    size_t others;

    return !__builtin_mul_overflow(call->count, (size_t)call->size - 1, &others) &&
           fits(call, others, call->count);
}

/* The parts of a v form: all there, none too long; the longest one counts. */
static bool measure(struct ct_call *call, const struct ct_parts *parts)
{
    size_t size = ct_dtype_size(call->dtype);

    if (parts->counts == NULL || parts->offsets == NULL)
        return false;
    for (int i = 0; i < call->size; i++) {
        if (!fits(call, parts->offsets[i], parts->counts[i]))
            return false;
        call->longest_bytes = CT_MAX(call->longest_bytes, parts->counts[i] * size);
    }
    return true;
}

static bool measure_parts(struct ct_call *call)
{
    const struct ct_call_traits *kind = &ct_call_traits[call->kind];

    call->longest_bytes = 0;
    if (!call->uneven) {
        call->longest_bytes = ct_call_bytes(call);
        return true;
    }
    if ((kind->in_parts && !measure(call, &call->in)) ||
        (kind->out_parts && !measure(call, &call->out)))
        return false;
    if (kind->in_parts && kind->out_parts)
        return call->longest_bytes == 0 || call->send != call->recv; /* not in place */
    return call->count == (kind->in_parts ? call->in : call->out).counts[call->rank];
}

static bool takes_part(const struct ct_call *call, enum side side)
{
    return side == EVERYBODY || (side == ROOT && call->rank == call->peer);
}

static bool has_buffers(const struct ct_call *call)
{
    const struct access *access = &accesses[call->kind];

    return call->longest_bytes == 0 || ((!takes_part(call, access->reads) || call->send != NULL) &&
                                        (!takes_part(call, access->writes) || call->recv != NULL));
}

bool ct_call_complete(struct ct_call *call)
{
    call->members = call->members > 0 ? call->members : call->size;
    if ((unsigned)call->dtype >= CT_DTYPE_COUNT || !fits_evenly(call) || !measure_parts(call))
        return false;
    if (call->peer < 0 || call->peer >= call->size || !has_buffers(call))
        return false;
    if ((call->kind == CT_CALL_SEND || call->kind == CT_CALL_RECV) && call->peer == call->rank)
        return false;
    return !ct_call_reduces(call->kind) || (ct_reduce_supports(call->dtype, call->reduce) &&
                                            (unsigned)call->mode <= CT_MODE_INVARIANT);
}

/* ---- signatures ------------------------------------------------------------------------------*/

/* The count that all members have in common. */
static uint64_t common_count(const struct ct_call *call)
{
    const struct ct_call_traits *kind = &ct_call_traits[call->kind];
    const struct ct_parts *parts = kind->in_parts ? &call->in : &call->out;

    if (!call->uneven)
        return call->count;
    if (kind->in_parts && kind->out_parts)
        return 0;
    return ct_hash64(parts->counts, (size_t)call->size * sizeof *parts->counts, 0);
}

struct ct_signature ct_call_signature(const struct ct_call *call)
{
    enum ct_call_kind kind = call->kind == CT_CALL_RECV ? CT_CALL_SEND : call->kind;
    struct ct_signature_fields fields = {.kind = kind, .uneven = call->uneven, .tag = call->tag};

    if (kind != CT_CALL_BARRIER)
        fields.dtype = call->dtype;
    if (ct_call_traits[kind].reduces) {
        fields.reduce = call->reduce;
        fields.mode = call->mode;
    }
    if (ct_call_traits[kind].rooted)
        fields.peer = (unsigned)call->peer;
    return (struct ct_signature){common_count(call), ct_signature_pack(&fields)};
}

struct ct_signature ct_call_signature_with(const struct ct_call *call,
                                           struct ct_signature signature, int peer, bool out)
{
    if (call->uneven && ct_call_traits[call->kind].in_parts && ct_call_traits[call->kind].out_parts)
        signature.count = (out ? call->in : call->out).counts[peer];
    return signature;
}
