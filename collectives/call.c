/* See call.h. */
#include "call.h"

#include "base/assert.h"

#include <stdio.h>

static const char *const kind_names[] = {
    [CT_CALL_BARRIER] = "barrier",       [CT_CALL_BROADCAST] = "broadcast",
    [CT_CALL_ALL_GATHER] = "all_gather", [CT_CALL_REDUCE_SCATTER] = "reduce_scatter",
    [CT_CALL_ALL_REDUCE] = "all_reduce", [CT_CALL_SEND] = "send/recv",
    [CT_CALL_RECV] = "send/recv",
};
static const char *const reduce_names[CT_REDUCE_COUNT] = {
    [CT_REDUCE_SUM] = "SUM",   [CT_REDUCE_AVG] = "AVG",
    [CT_REDUCE_MAX] = "MAX",   [CT_REDUCE_MIN] = "MIN",
    [CT_REDUCE_PROD] = "PROD", [CT_REDUCE_AND] = "AND",
    [CT_REDUCE_OR] = "OR",     [CT_REDUCE_PREMUL_SUM] = "PREMUL_SUM"};
static const char *const mode_names[] = {[CT_MODE_FAST] = "FAST",
                                         [CT_MODE_REPRODUCIBLE] = "REPRODUCIBLE",
                                         [CT_MODE_INVARIANT] = "INVARIANT"};

/* Where the parts of a signature's second word lie. */
enum { DTYPE_AT = 6, REDUCE_AT = 10, MODE_AT = 14, ROOT_AT = 16, TAG_AT = 32 };

_Static_assert(CT_COUNT(kind_names) <= 1 << DTYPE_AT, "a kind fits");
_Static_assert(CT_DTYPE_COUNT <= 1 << (REDUCE_AT - DTYPE_AT), "a type fits");
_Static_assert(CT_REDUCE_COUNT <= 1 << (MODE_AT - REDUCE_AT), "an operation fits");
_Static_assert(CT_COUNT(mode_names) <= 1 << (ROOT_AT - MODE_AT), "a mode fits");
_Static_assert(CT_SIGNATURE_ROOTS == 1 << (TAG_AT - ROOT_AT), "a root fits");

static unsigned bits_of(uint64_t word, int from, int to)
{
    return (unsigned)(word >> from & ((1ull << (to - from)) - 1));
}

bool ct_call_reduces(enum ct_call_kind kind)
{
    return kind == CT_CALL_ALL_REDUCE || kind == CT_CALL_REDUCE_SCATTER;
}

struct ct_signature ct_call_signature(const struct ct_call *call)
{
    enum ct_call_kind kind = call->kind == CT_CALL_RECV ? CT_CALL_SEND : call->kind;
    uint64_t rest = (uint64_t)kind | (uint64_t)call->tag << TAG_AT;

    if (kind != CT_CALL_BARRIER)
        rest |= (uint64_t)call->dtype << DTYPE_AT;
    if (ct_call_reduces(kind))
        rest |= (uint64_t)call->reduce << REDUCE_AT | (uint64_t)call->mode << MODE_AT;
    if (kind == CT_CALL_BROADCAST)
        rest |= (uint64_t)call->peer << ROOT_AT;
    return (struct ct_signature){call->count, rest};
}

void ct_signature_print(struct ct_signature signature, char *text, size_t room)
{
    unsigned kind = bits_of(signature.rest, 0, DTYPE_AT);
    unsigned dtype = bits_of(signature.rest, DTYPE_AT, REDUCE_AT);
    unsigned reduce = bits_of(signature.rest, REDUCE_AT, MODE_AT);
    unsigned mode = bits_of(signature.rest, MODE_AT, ROOT_AT);
    unsigned root = bits_of(signature.rest, ROOT_AT, TAG_AT);
    unsigned tag = (unsigned)(signature.rest >> TAG_AT);
    int used;

    if (kind >= CT_COUNT(kind_names) || dtype >= CT_DTYPE_COUNT ||
        reduce >= CT_COUNT(reduce_names) || mode >= CT_COUNT(mode_names)) {
        (void)snprintf(text, room, "something else");
        return;
    }
    if (kind == CT_CALL_BARRIER)
        used = snprintf(text, room, "%s", kind_names[kind]);
    else if (ct_call_reduces((enum ct_call_kind)kind))
        used = snprintf(text, room, "%s of %llu %s, %s, %s", kind_names[kind],
                        (unsigned long long)signature.count, ct_dtype_name((enum ct_dtype)dtype),
                        reduce_names[reduce], mode_names[mode]);
    else
        used = snprintf(text, room, "%s of %llu %s", kind_names[kind],
                        (unsigned long long)signature.count, ct_dtype_name((enum ct_dtype)dtype));
    if (kind == CT_CALL_BROADCAST && used > 0 && (size_t)used < room)
        used += snprintf(text + used, room - (size_t)used, ", root %u", root);
    if (tag != 0 && used > 0 && (size_t)used < room)
        (void)snprintf(text + used, room - (size_t)used, ", tag %u", tag);
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
