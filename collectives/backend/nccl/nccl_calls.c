/* See nccl_calls.h. */
#include "backend/nccl/nccl_calls.h"

#include "base/assert.h"

/* ---- which -----------------------------------------------------------------------------------*/

enum { NONE = -1 };

static int type_of(enum ct_dtype dtype)
{
    switch (dtype) {
    case CT_F32:
        return CT_NCCL_FLOAT32;
    case CT_F64:
        return CT_NCCL_FLOAT64;
    case CT_BF16:
        return CT_NCCL_BFLOAT16;
    case CT_F16:
        return CT_NCCL_FLOAT16;
    case CT_I64:
        return CT_NCCL_INT64;
    case CT_I32:
        return CT_NCCL_INT32;
    case CT_I8:
        return CT_NCCL_INT8;
    case CT_U8:
        return CT_NCCL_UINT8;
    default:
        return NONE;
    }
}

static bool is_float(enum ct_dtype dtype)
{
    return dtype == CT_F32 || dtype == CT_F64 || dtype == CT_BF16 || dtype == CT_F16;
}

static int reduction_of(enum ct_reduce reduce)
{
    switch (reduce) {
    case CT_REDUCE_SUM:
        return CT_NCCL_SUM;
    case CT_REDUCE_PROD:
        return CT_NCCL_PROD;
    case CT_REDUCE_AVG:
        return CT_NCCL_AVG;
    case CT_REDUCE_MAX:
        return CT_NCCL_MAX;
    case CT_REDUCE_MIN:
        return CT_NCCL_MIN;
    default:
        return NONE;
    }
}

static bool reduces_alike(const struct ct_call *call)
{
    bool extreme = call->reduce == CT_REDUCE_MAX || call->reduce == CT_REDUCE_MIN;

    if (type_of(call->dtype) == NONE || reduction_of(call->reduce) == NONE)
        return false;
    if (!is_float(call->dtype))
        return call->reduce != CT_REDUCE_AVG;
    if (call->reduce == CT_REDUCE_AVG && (call->size & (call->size - 1)) != 0)
        return false;
    return !extreme && (call->mode == CT_MODE_FAST || call->size == 2);
}

bool ct_nccl_carries(const struct ct_call *call)
{
    if (call->kind == CT_CALL_BARRIER)
        return false;
    if (call->kind == CT_CALL_ALL_TO_ALL)
        return !call->uneven && call->send != call->recv;
    return !ct_call_reduces(call->kind) || reduces_alike(call);
}

enum ct_nccl_communicator_kind ct_nccl_communicator_of(enum ct_call_kind kind)
{
    switch (kind) {
    case CT_CALL_ALL_GATHER:
    case CT_CALL_GATHER:
        return CT_NCCL_GATHER;
    case CT_CALL_REDUCE_SCATTER:
    case CT_CALL_SCATTER:
        return CT_NCCL_SCATTER;
    case CT_CALL_SEND:
    case CT_CALL_RECV:
        return CT_NCCL_PAIRS;
    default:
        return CT_NCCL_MAIN;
    }
}

/* The counts that decide are the same at all members. */
bool ct_nccl_is_empty(const struct ct_call *call)
{
    return call->longest_bytes == 0;
}

/* ---- how -------------------------------------------------------------------------------------*/

/* Where the calls of a group go, and the first that failed. */
struct to {
    const struct ct_nccl_library *lib;
    struct ct_nccl_comm *comm;
    void *stream;
    int result;
};

static void note(struct to *to, int result)
{
    if (to->result == CT_NCCL_SUCCESS || to->result == CT_NCCL_IN_PROGRESS)
        to->result = result != CT_NCCL_SUCCESS ? result : to->result;
}

static void begin(struct to *to)
{
    note(to, to->lib->ncclGroupStart());
}

/* A group that was started ends, whatever came of its calls. */
static int end(struct to *to)
{
    note(to, to->lib->ncclGroupEnd());
    return to->result;
}

/* Moves are of bytes. */
static void send_part(struct to *to, const char *base, struct ct_span part, int peer)
{
    if (part.bytes > 0)
        note(to, to->lib->ncclSend(base + part.at, part.bytes, CT_NCCL_UINT8, peer, to->comm,
                                   to->stream));
}

static void receive_part(struct to *to, char *base, struct ct_span part, int peer)
{
    if (part.bytes > 0)
        note(to, to->lib->ncclRecv(base + part.at, part.bytes, CT_NCCL_UINT8, peer, to->comm,
                                   to->stream));
}

static void issue_reduce_scatter(struct to *to, const struct ct_call *call)
{
    int type = type_of(call->dtype), reduction = reduction_of(call->reduce);

    if (!call->uneven) {
        note(to, to->lib->ncclReduceScatter(call->send, call->recv, call->count, type, reduction,
                                            to->comm, to->stream));
        return;
    }
    for (int i = 0; i < call->size; i++) {
        struct ct_span part = ct_call_in(call, i);
        const char *from = call->send + part.at;

        if (part.bytes > 0)
            note(to,
                 to->lib->ncclReduce(from, i == call->rank ? call->recv : NULL, call->in.counts[i],
                                     type, reduction, i, to->comm, to->stream));
    }
}

static void issue_all_gather(struct to *to, const struct ct_call *call)
{
    if (!call->uneven) {
        note(to, to->lib->ncclAllGather(call->send, call->recv, ct_call_bytes(call), CT_NCCL_UINT8,
                                        to->comm, to->stream));
        return;
    }
    for (int i = 0; i < call->size; i++) {
        struct ct_span part = ct_call_out(call, i);
        char *at = call->recv + part.at;

        if (part.bytes > 0)
            note(to, to->lib->ncclBroadcast(i == call->rank ? call->send : at, at, part.bytes,
                                            CT_NCCL_UINT8, i, to->comm, to->stream));
    }
}

/* Parts of the root's `recv` come from all; its own is there already when the call is in place. */
static void issue_gather(struct to *to, const struct ct_call *call)
{
    struct ct_span whole = {0, ct_call_bytes(call)};
    bool root = call->rank == call->peer;
    bool placed = root && call->send == call->recv + ct_call_out(call, call->rank).at;

    if (!placed)
        send_part(to, call->send, whole, call->peer);
    for (int i = 0; root && i < call->size; i++)
        if (!placed || i != call->rank)
            receive_part(to, call->recv, ct_call_out(call, i), i);
}

static void issue_scatter(struct to *to, const struct ct_call *call)
{
    struct ct_span whole = {0, ct_call_bytes(call)};
    bool root = call->rank == call->peer;
    bool placed = root && call->recv == call->send + ct_call_in(call, call->rank).at;

    for (int i = 0; root && i < call->size; i++)
        if (!placed || i != call->rank)
            send_part(to, call->send, ct_call_in(call, i), i);
    if (!placed)
        receive_part(to, call->recv, whole, call->peer);
}

static void issue_all_to_all(struct to *to, const struct ct_call *call)
{
    for (int i = 0; i < call->size; i++) {
        send_part(to, call->send, ct_call_in(call, i), i);
        receive_part(to, call->recv, ct_call_out(call, i), i);
    }
}

static void issue_one(struct to *to, const struct ct_call *call)
{
    const struct ct_nccl_library *lib = to->lib;
    int type = type_of(call->dtype), reduction = reduction_of(call->reduce);
    bool root = call->rank == call->peer;

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE:
        note(to, lib->ncclAllReduce(call->send, call->recv, call->count, type, reduction, to->comm,
                                    to->stream));
        break;
    case CT_CALL_REDUCE:
        note(to, lib->ncclReduce(call->send, root ? call->recv : NULL, call->count, type, reduction,
                                 call->peer, to->comm, to->stream));
        break;
    case CT_CALL_BROADCAST:
        note(to, lib->ncclBroadcast(root ? call->send : call->recv, call->recv, ct_call_bytes(call),
                                    CT_NCCL_UINT8, call->peer, to->comm, to->stream));
        break;
    case CT_CALL_REDUCE_SCATTER:
        issue_reduce_scatter(to, call);
        break;
    case CT_CALL_ALL_GATHER:
        issue_all_gather(to, call);
        break;
    case CT_CALL_GATHER:
        issue_gather(to, call);
        break;
    case CT_CALL_SCATTER:
        issue_scatter(to, call);
        break;
    case CT_CALL_ALL_TO_ALL:
        issue_all_to_all(to, call);
        break;
    default:
        CT_ASSERT(ct_nccl_carries(call));
    }
}

int ct_nccl_issue(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm, void *stream,
                  const struct ct_call *call)
{
    struct to to = {lib, comm, stream, CT_NCCL_SUCCESS};

    begin(&to);
    issue_one(&to, call);
    return end(&to);
}

int ct_nccl_issue_messages(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                           void *stream, const struct ct_nccl_message *messages, size_t count)
{
    struct to to = {lib, comm, stream, CT_NCCL_SUCCESS};

    begin(&to);
    for (size_t i = 0; i < count; i++) {
        struct ct_span whole = {0, messages[i].bytes};

        if (messages[i].out)
            send_part(&to, messages[i].data, whole, messages[i].peer);
        else
            receive_part(&to, messages[i].data, whole, messages[i].peer);
    }
    return end(&to);
}
