/* See signature.h. */
#include "wire/signature.h"

#include "base/assert.h"

#include <stdio.h>

const struct ct_call_traits ct_call_traits[CT_CALL_KINDS] = {
    [CT_CALL_BARRIER] = {"barrier", "barrier", false, false, false, false},
    [CT_CALL_BROADCAST] = {"broadcast", "broadcast", false, true, false, false},
    [CT_CALL_ALL_GATHER] = {"all_gather", "all_gather", false, false, false, true},
    [CT_CALL_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter", true, false, true, false},
    [CT_CALL_ALL_REDUCE] = {"all_reduce", "all_reduce", true, false, false, false},
    [CT_CALL_REDUCE] = {"reduce", "reduce", true, true, false, false},
    [CT_CALL_GATHER] = {"gather", "gather", false, true, false, true},
    [CT_CALL_SCATTER] = {"scatter", "scatter", false, true, true, false},
    [CT_CALL_ALL_TO_ALL] = {"all_to_all", "all_to_all", false, false, true, true},
    [CT_CALL_SEND] = {"send/recv", "send", false, false, false, false},
    [CT_CALL_RECV] = {"send/recv", "recv", false, false, false, false},
    [CT_CALL_EXCHANGE] = {"exchange", "exchange", false, false, false, false},
};

/* In the order of enum ct_reduce and enum ct_reduce_mode; collectives/algorithm/call.c asserts how
 * many. */
static const char *const reduce_names[CT_SIGNATURE_REDUCTIONS] = {
    "SUM", "AVG", "MAX", "MIN", "PROD", "AND", "OR", "PREMUL_SUM"};
static const char *const mode_names[CT_SIGNATURE_MODES] = {"FAST", "REPRODUCIBLE", "INVARIANT"};

enum {
    UNEVEN_AT = CT_SIGNATURE_UNEVEN_AT,
    DTYPE_AT = CT_SIGNATURE_DTYPE_AT,
    REDUCE_AT = CT_SIGNATURE_REDUCE_AT,
    MODE_AT = CT_SIGNATURE_MODE_AT,
    PEER_AT = CT_SIGNATURE_PEER_AT,
    TAG_AT = CT_SIGNATURE_TAG_AT
};

_Static_assert((int)CT_CALL_KINDS <= 1 << UNEVEN_AT, "a kind fits");
_Static_assert((int)CT_DTYPE_COUNT <= 1 << (REDUCE_AT - DTYPE_AT), "a type fits");
_Static_assert((int)CT_SIGNATURE_REDUCTIONS <= 1 << (MODE_AT - REDUCE_AT), "an operation fits");
_Static_assert((int)CT_SIGNATURE_MODES <= 1 << (PEER_AT - MODE_AT), "a mode fits");
_Static_assert((int)CT_SIGNATURE_PEERS == 1 << (TAG_AT - PEER_AT), "a peer fits");

static unsigned bits_of(uint64_t word, int from, int to)
{
    return (unsigned)(word >> from & ((1ull << (to - from)) - 1));
}

bool ct_signature_unpack(uint64_t rest, struct ct_signature_fields *ret_fields)
{
    *ret_fields = (struct ct_signature_fields){
        .kind = bits_of(rest, 0, UNEVEN_AT),
        .uneven = bits_of(rest, UNEVEN_AT, DTYPE_AT),
        .dtype = bits_of(rest, DTYPE_AT, REDUCE_AT),
        .reduce = bits_of(rest, REDUCE_AT, MODE_AT),
        .mode = bits_of(rest, MODE_AT, PEER_AT),
        .peer = bits_of(rest, PEER_AT, TAG_AT),
        .tag = (uint32_t)(rest >> TAG_AT),
    };
    if (ret_fields->kind < CT_CALL_KINDS && ret_fields->dtype < CT_DTYPE_COUNT &&
        ret_fields->reduce < CT_SIGNATURE_REDUCTIONS && ret_fields->mode < CT_SIGNATURE_MODES)
        return true;
    *ret_fields = (struct ct_signature_fields){.kind = CT_CALL_BARRIER};
    return false;
}

/* "7 F32", "F32 in parts #1234abcd" or "7 messages". */
static void print_data(uint64_t count, const struct ct_signature_fields *is, char *text,
                       size_t room)
{
    const struct ct_call_traits *traits = &ct_call_traits[is->kind];
    const char *type = ct_dtype_name((enum ct_dtype)is->dtype);
    bool hashed = is->uneven != 0 && !(traits->in_parts && traits->out_parts);

    if (is->kind == CT_CALL_EXCHANGE)
        (void)snprintf(text, room, "%llu messages", (unsigned long long)count);
    else if (hashed)
        (void)snprintf(text, room, "%s in parts #%08x", type, (unsigned)(count & 0xffffffffu));
    else
        (void)snprintf(text, room, "%llu %s", (unsigned long long)count, type);
}

void ct_signature_print(struct ct_signature signature, char *text, size_t room)
{
    struct ct_signature_fields is;
    char data[64], how[32] = "", root[24] = "", tag[24] = "";

    if (!ct_signature_unpack(signature.rest, &is)) {
        (void)snprintf(text, room, "something else");
        return;
    }
    const struct ct_call_traits *traits = &ct_call_traits[is.kind];
    print_data(signature.count, &is, data, sizeof data);
    if (traits->reduces)
        (void)snprintf(how, sizeof how, ", %s, %s", reduce_names[is.reduce], mode_names[is.mode]);
    if (traits->rooted)
        (void)snprintf(root, sizeof root, ", root %u", is.peer);
    if (is.tag != 0)
        (void)snprintf(tag, sizeof tag, ", tag %u", (unsigned)is.tag);
    (void)snprintf(text, room, "%s%s%s%s%s%s%s", traits->name, is.uneven != 0 ? "_v" : "",
                   is.kind == CT_CALL_BARRIER ? "" : " of ", is.kind == CT_CALL_BARRIER ? "" : data,
                   how, root, tag);
}

int ct_signature_mismatch(struct ct_signature mine, int rank, struct ct_signature theirs, int peer,
                          struct ct_error *err)
{
    char here[CT_SIGNATURE_TEXT], there[CT_SIGNATURE_TEXT];

    ct_signature_print(mine, here, sizeof here);
    ct_signature_print(theirs, there, sizeof there);
    return ct_error_set(err, CT_EMISMATCH,
                        "rank %d called %s, rank %d called %s: each member must make the same "
                        "calls in the same order",
                        rank, here, peer, there);
}
