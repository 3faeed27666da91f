/* See staged.h: where a call's buffers lie in its stage, copies between the two, the host's call.
 */
#include "backend/staged/staged.h"

#include "base/assert.h"

/* ---- what a call has in its stage ------------------------------------------------------------*/

enum side { IN, OUT };

/* One run of elements, the same at all members, of which any chunk may go alone. */
bool ct_staged_is_chunked(enum ct_call_kind kind)
{
    return kind == CT_CALL_ALL_REDUCE || kind == CT_CALL_REDUCE || kind == CT_CALL_BROADCAST;
}

/* Bytes of the chunk that begins at `task->at`. */
size_t ct_staged_chunk_bytes(const struct ct_staged *staged, const struct ct_task *task)
{
    return CT_MIN(ct_call_bytes(&task->call) - task->at, staged->chunk_bytes);
}

static bool is_root(const struct ct_call *call)
{
    return call->rank == call->peer;
}

static bool has_parts(const struct ct_call *call, enum side side)
{
    const struct ct_call_traits *kind = &ct_call_traits[call->kind];

    if (!(side == IN ? kind->in_parts : kind->out_parts))
        return false;
    return !kind->rooted || is_root(call);
}

static struct ct_span span_of(const struct ct_call *call, enum side side, int i)
{
    return side == IN ? ct_call_in(call, i) : ct_call_out(call, i);
}

/* Bytes of all parts of a side, packed; those before part `end`. */
static size_t packed_bytes(const struct ct_call *call, enum side side, int end)
{
    size_t bytes = 0;

    for (int i = 0; i < end; i++)
        bytes += span_of(call, side, i).bytes;
    return bytes;
}

/* Where the output begins: an all_to_all_v cannot be in place, all others are. */
static size_t output_at(const struct ct_call *call)
{
    bool apart = call->kind == CT_CALL_ALL_TO_ALL && call->uneven;

    return apart ? packed_bytes(call, IN, call->size) / 64 * 64 + 64 : 0;
}

size_t ct_staged_bytes(const struct ct_staged *staged, const struct ct_task *task)
{
    const struct ct_call *call = &task->call;

    if (ct_staged_is_chunked(call->kind))
        return ct_staged_chunk_bytes(staged, task);
    if (has_parts(call, IN) && has_parts(call, OUT))
        return output_at(call) +
               CT_MAX(packed_bytes(call, IN, call->size), packed_bytes(call, OUT, call->size));
    if (has_parts(call, IN) || has_parts(call, OUT))
        return packed_bytes(call, has_parts(call, IN) ? IN : OUT, call->size);
    return ct_call_bytes(call);
}

/* ---- copies ----------------------------------------------------------------------------------*/

int ct_staged_put(struct ct_staged *staged, void *to, const void *from, size_t bytes)
{
    const struct ct_accel *device = staged->device;

    return bytes == 0 ? 0 : device->copy(device->context, to, from, bytes, staged->stream);
}

/* All parts of one side, between the caller's buffer and the stage, where they lie packed. Even
 * parts lie one behind the other there and here. */
static int copy_parts(struct ct_staged *staged, struct ct_stage *stage, const struct ct_call *call,
                      enum side side)
{
    char *memory = stage->memory + (side == OUT ? output_at(call) : 0);
    int code = 0;

    if (!call->uneven) {
        size_t bytes = packed_bytes(call, side, call->size);

        return side == IN ? ct_staged_put(staged, memory, call->send, bytes)
                          : ct_staged_put(staged, call->recv, memory, bytes);
    }
    for (int i = 0; i < call->size && code == 0; i++) {
        struct ct_span span = span_of(call, side, i);

        code = side == IN ? ct_staged_put(staged, memory, call->send + span.at, span.bytes)
                          : ct_staged_put(staged, call->recv + span.at, memory, span.bytes);
        memory += span.bytes;
    }
    return code;
}

/* Where this member's own part lies among the packed ones. */
static char *own_part(const struct ct_stage *stage, const struct ct_call *call, enum side side)
{
    return stage->memory + packed_bytes(call, side, call->rank);
}

int ct_staged_copy_in(struct ct_staged *staged, struct ct_stage *stage, const struct ct_task *task)
{
    const struct ct_call *call = &task->call;

    switch (call->kind) {
    case CT_CALL_BROADCAST:
        if (!is_root(call))
            return 0;
        return ct_staged_put(staged, stage->memory, call->send + task->at,
                             ct_staged_chunk_bytes(staged, task));
    case CT_CALL_ALL_REDUCE:
    case CT_CALL_REDUCE:
        return ct_staged_put(staged, stage->memory, call->send + task->at,
                             ct_staged_chunk_bytes(staged, task));
    case CT_CALL_ALL_GATHER:
        return ct_staged_put(staged, own_part(stage, call, OUT), call->send, ct_call_bytes(call));
    case CT_CALL_GATHER:
        return ct_staged_put(staged, is_root(call) ? own_part(stage, call, OUT) : stage->memory,
                             call->send, ct_call_bytes(call));
    case CT_CALL_SCATTER:
        return is_root(call) ? copy_parts(staged, stage, call, IN) : 0;
    case CT_CALL_REDUCE_SCATTER:
    case CT_CALL_ALL_TO_ALL:
        return copy_parts(staged, stage, call, IN);
    case CT_CALL_SEND:
        return ct_staged_put(staged, stage->memory, call->send, ct_call_bytes(call));
    case CT_CALL_BARRIER:
    case CT_CALL_RECV:
    case CT_CALL_EXCHANGE:
    case CT_CALL_KINDS:
        break;
    }
    return 0;
}

int ct_staged_copy_out(struct ct_staged *staged, struct ct_stage *stage, const struct ct_task *task)
{
    const struct ct_call *call = &task->call;

    switch (call->kind) {
    case CT_CALL_REDUCE:
        if (!is_root(call))
            return 0;
        return ct_staged_put(staged, call->recv + task->at, stage->memory,
                             ct_staged_chunk_bytes(staged, task));
    case CT_CALL_ALL_REDUCE:
    case CT_CALL_BROADCAST:
        return ct_staged_put(staged, call->recv + task->at, stage->memory,
                             ct_staged_chunk_bytes(staged, task));
    case CT_CALL_REDUCE_SCATTER:
        return ct_staged_put(staged, call->recv, own_part(stage, call, IN), ct_call_bytes(call));
    case CT_CALL_SCATTER:
        return ct_staged_put(staged, call->recv,
                             is_root(call) ? own_part(stage, call, IN) : stage->memory,
                             ct_call_bytes(call));
    case CT_CALL_GATHER:
        return is_root(call) ? copy_parts(staged, stage, call, OUT) : 0;
    case CT_CALL_ALL_GATHER:
    case CT_CALL_ALL_TO_ALL:
        return copy_parts(staged, stage, call, OUT);
    case CT_CALL_RECV:
        return ct_staged_put(staged, call->recv, stage->memory, ct_call_bytes(call));
    case CT_CALL_BARRIER:
    case CT_CALL_SEND:
    case CT_CALL_EXCHANGE:
    case CT_CALL_KINDS:
        break;
    }
    return 0;
}

/* ---- the host's call -------------------------------------------------------------------------*/

/* The parts of a v form as they lie in the stage, in elements. */
static struct ct_parts pack(struct ct_stage *stage, const struct ct_call *call, enum side side)
{
    const struct ct_parts *parts = side == IN ? &call->in : &call->out;
    size_t at = 0;

    for (int i = 0; i < call->size; i++) {
        stage->counts[side][i] = parts->counts[i];
        stage->offsets[side][i] = at;
        at += parts->counts[i];
    }
    return (struct ct_parts){stage->counts[side], stage->offsets[side]};
}

/* The same call on the stage, in place as operation.c resolves it. */
void ct_staged_make_call(struct ct_staged *staged, struct ct_stage *stage,
                         const struct ct_task *task)
{
    struct ct_call call = task->call;

    call.site = NULL;
    call.stream = NULL;
    call.send = stage->memory;
    call.recv = stage->memory;
    if (ct_staged_is_chunked(call.kind))
        call.count = ct_staged_chunk_bytes(staged, task) / ct_dtype_size(call.dtype);
    else if (call.kind == CT_CALL_ALL_GATHER || (call.kind == CT_CALL_GATHER && is_root(&call)))
        call.send = own_part(stage, &task->call, OUT);
    else if (call.kind == CT_CALL_REDUCE_SCATTER ||
             (call.kind == CT_CALL_SCATTER && is_root(&call)))
        call.recv = own_part(stage, &task->call, IN);
    else if (call.kind == CT_CALL_ALL_TO_ALL)
        call.recv = stage->memory + output_at(&task->call);
    if (call.uneven && ct_call_traits[call.kind].in_parts)
        call.in = pack(stage, &task->call, IN);
    if (call.uneven && ct_call_traits[call.kind].out_parts)
        call.out = pack(stage, &task->call, OUT);
    bool complete = ct_call_complete(&call);
    CT_ASSERT(complete); /* as the caller's was */
    stage->task = (struct ct_task){.call = call, .signature = task->signature};
}
