/* See call.h. */
#include "call.h"

#include "base/assert.h"
#include "base/hash.h"
#include "reduce.h"

#include <stdio.h>

/* Who reads its `send`, who writes its `recv`. */
enum side { NOBODY, ROOT, EVERYBODY };

static const struct kind {
    const char *name;
    bool reduces;
    bool rooted;
    bool in_parts, out_parts; /* a part a member, instead of one run of elements */
    enum side reads, writes;
} kinds[] = {
    [CT_CALL_BARRIER] = {"barrier", false, false, false, false, NOBODY, NOBODY},
    [CT_CALL_BROADCAST] = {"broadcast", false, true, false, false, ROOT, EVERYBODY},
    [CT_CALL_ALL_GATHER] = {"all_gather", false, false, false, true, EVERYBODY, EVERYBODY},
    [CT_CALL_REDUCE_SCATTER] = {"reduce_scatter", true, false, true, false, EVERYBODY, EVERYBODY},
    [CT_CALL_ALL_REDUCE] = {"all_reduce", true, false, false, false, EVERYBODY, EVERYBODY},
    [CT_CALL_REDUCE] = {"reduce", true, true, false, false, EVERYBODY, ROOT},
    [CT_CALL_GATHER] = {"gather", false, true, false, true, EVERYBODY, ROOT},
    [CT_CALL_SCATTER] = {"scatter", false, true, true, false, ROOT, EVERYBODY},
    [CT_CALL_ALL_TO_ALL] = {"all_to_all", false, false, true, true, EVERYBODY, EVERYBODY},
    [CT_CALL_SEND] = {"send/recv", false, false, false, false, EVERYBODY, NOBODY},
    [CT_CALL_RECV] = {"send/recv", false, false, false, false, NOBODY, EVERYBODY},
    [CT_CALL_EXCHANGE] = {"exchange", false, false, false, false, NOBODY, NOBODY},
};

static const char *const reduce_names[CT_REDUCE_COUNT] = {
    [CT_REDUCE_SUM] = "SUM",   [CT_REDUCE_AVG] = "AVG",
    [CT_REDUCE_MAX] = "MAX",   [CT_REDUCE_MIN] = "MIN",
    [CT_REDUCE_PROD] = "PROD", [CT_REDUCE_AND] = "AND",
    [CT_REDUCE_OR] = "OR",     [CT_REDUCE_PREMUL_SUM] = "PREMUL_SUM"};
static const char *const mode_names[] = {[CT_MODE_FAST] = "FAST",
                                         [CT_MODE_REPRODUCIBLE] = "REPRODUCIBLE",
                                         [CT_MODE_INVARIANT] = "INVARIANT"};

bool ct_call_reduces(enum ct_call_kind kind)
{
    return kinds[kind].reduces;
}

bool ct_call_has_parts(enum ct_call_kind kind)
{
    return kinds[kind].in_parts || kinds[kind].out_parts;
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
    if (kinds[call->kind].in_parts)
        return part_of(call, &call->in, i);
    return (struct ct_span){0, ct_call_bytes(call)};
}

struct ct_span ct_call_out(const struct ct_call *call, int i)
{
    if (kinds[call->kind].out_parts)
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
    const struct kind *kind = &kinds[call->kind];

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
    const struct kind *kind = &kinds[call->kind];

    return call->longest_bytes == 0 || ((!takes_part(call, kind->reads) || call->send != NULL) &&
                                        (!takes_part(call, kind->writes) || call->recv != NULL));
}

bool ct_call_complete(struct ct_call *call)
{
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

/* Where the fields of a signature's second word begin. */
enum { UNEVEN_AT = 5, DTYPE_AT = 6, REDUCE_AT = 10, MODE_AT = 14, ROOT_AT = 16, TAG_AT = 32 };

_Static_assert(CT_COUNT(kinds) <= 1 << UNEVEN_AT, "a kind fits");
_Static_assert(CT_DTYPE_COUNT <= 1 << (REDUCE_AT - DTYPE_AT), "a type fits");
_Static_assert(CT_REDUCE_COUNT <= 1 << (MODE_AT - REDUCE_AT), "an operation fits");
_Static_assert(CT_COUNT(mode_names) <= 1 << (ROOT_AT - MODE_AT), "a mode fits");
_Static_assert(CT_SIGNATURE_ROOTS == 1 << (TAG_AT - ROOT_AT), "a root fits");

static unsigned bits_of(uint64_t word, int from, int to)
{
    return (unsigned)(word >> from & ((1ull << (to - from)) - 1));
}

/* The count that all members have in common. */
static uint64_t common_count(const struct ct_call *call)
{
    const struct kind *kind = &kinds[call->kind];
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
    uint64_t rest =
        (uint64_t)kind | (uint64_t)call->uneven << UNEVEN_AT | (uint64_t)call->tag << TAG_AT;

    if (kind != CT_CALL_BARRIER)
        rest |= (uint64_t)call->dtype << DTYPE_AT;
    if (kinds[kind].reduces)
        rest |= (uint64_t)call->reduce << REDUCE_AT | (uint64_t)call->mode << MODE_AT;
    if (kinds[kind].rooted)
        rest |= (uint64_t)call->peer << ROOT_AT;
    return (struct ct_signature){common_count(call), rest};
}

struct ct_signature ct_call_signature_with(const struct ct_call *call,
                                           struct ct_signature signature, int peer, bool out)
{
    if (call->uneven && kinds[call->kind].in_parts && kinds[call->kind].out_parts)
        signature.count = (out ? call->in : call->out).counts[peer];
    return signature;
}

/* "7 F32", "F32 in parts #1234abcd" or "7 messages". */
static void print_data(struct ct_signature signature, enum ct_dtype dtype, bool hashed, char *text,
                       size_t room)
{
    if (bits_of(signature.rest, 0, UNEVEN_AT) == CT_CALL_EXCHANGE)
        (void)snprintf(text, room, "%llu messages", (unsigned long long)signature.count);
    else if (hashed)
        (void)snprintf(text, room, "%s in parts #%08x", ct_dtype_name(dtype),
                       (unsigned)(signature.count & 0xffffffffu));
    else
        (void)snprintf(text, room, "%llu %s", (unsigned long long)signature.count,
                       ct_dtype_name(dtype));
}

void ct_signature_print(struct ct_signature signature, char *text, size_t room)
{
    unsigned kind = bits_of(signature.rest, 0, UNEVEN_AT);
    bool uneven = bits_of(signature.rest, UNEVEN_AT, DTYPE_AT) != 0;
    unsigned dtype = bits_of(signature.rest, DTYPE_AT, REDUCE_AT);
    unsigned reduce = bits_of(signature.rest, REDUCE_AT, MODE_AT);
    unsigned mode = bits_of(signature.rest, MODE_AT, ROOT_AT);
    char data[64], how[32] = "", root[24] = "", tag[24] = "";

    if (kind >= CT_COUNT(kinds) || dtype >= CT_DTYPE_COUNT || reduce >= CT_REDUCE_COUNT ||
        mode >= CT_COUNT(mode_names)) {
        (void)snprintf(text, room, "something else");
        return;
    }
    print_data(signature, (enum ct_dtype)dtype,
               uneven && !(kinds[kind].in_parts && kinds[kind].out_parts), data, sizeof data);
    if (kinds[kind].reduces)
        (void)snprintf(how, sizeof how, ", %s, %s", reduce_names[reduce], mode_names[mode]);
    if (kinds[kind].rooted)
        (void)snprintf(root, sizeof root, ", root %u", bits_of(signature.rest, ROOT_AT, TAG_AT));
    if (signature.rest >> TAG_AT != 0)
        (void)snprintf(tag, sizeof tag, ", tag %u", (unsigned)(signature.rest >> TAG_AT));
    (void)snprintf(text, room, "%s%s%s%s%s%s%s", kinds[kind].name, uneven ? "_v" : "",
                   kind == CT_CALL_BARRIER ? "" : " of ", kind == CT_CALL_BARRIER ? "" : data, how,
                   root, tag);
}

int ct_signature_mismatch(struct ct_signature mine, int rank, struct ct_signature theirs, int peer,
                          struct ct_error *err)
{
    char here[128], there[128];

    ct_signature_print(mine, here, sizeof here);
    ct_signature_print(theirs, there, sizeof there);
    return ct_error_set(err, CT_EMISMATCH,
                        "rank %d called %s, rank %d called %s: each member must make the same "
                        "calls in the same order",
                        rank, here, peer, there);
}
