/* See tcp.h: collectives, wave by wave. */
#include "backend/tcp.h"
#include "backend/tcp_mesh.h"

#include "base/assert.h"
#include "reduce.h"

#include <string.h>

enum { DOUBLING_BYTES = 64 << 10 };

/* ---- which algorithm -------------------------------------------------------------------------*/

static enum ct_algorithm choose_all_reduce(const struct ct_tcp *tcp, const struct ct_call *call)
{
    bool wide =
        tcp->size > tcp->tuning.tcp_direct_world && ct_reduce_in_steps(call->dtype, call->reduce);
    bool power_of_two = (tcp->size & (tcp->size - 1)) == 0;
    size_t bytes = ct_call_bytes(call);

    if (wide && power_of_two && call->mode != CT_MODE_REPRODUCIBLE && bytes <= DOUBLING_BYTES)
        return CT_ALGO_DOUBLING;
    if (bytes <= tcp->tuning.tcp_flat_bytes)
        return CT_ALGO_FLAT;
    return wide && call->mode == CT_MODE_FAST ? CT_ALGO_RING : CT_ALGO_DIRECT;
}

static enum ct_algorithm choose_move(const struct ct_tcp *tcp, const struct ct_call *call)
{
    switch (call->kind) {
    case CT_CALL_BROADCAST:
        return ct_call_bytes(call) > tcp->tuning.tcp_chain_bytes ? CT_ALGO_CHAIN : CT_ALGO_BINOMIAL;
    case CT_CALL_GATHER:
        return CT_ALGO_GATHER;
    case CT_CALL_SCATTER:
        return CT_ALGO_SCATTER;
    case CT_CALL_ALL_TO_ALL:
        return call->send == call->recv ? CT_ALGO_SWAP : CT_ALGO_EXCHANGE;
    default:
        CT_ASSERT(call->kind == CT_CALL_BARRIER);
        return CT_ALGO_DISSEMINATION;
    }
}

static enum ct_algorithm choose(const struct ct_tcp *tcp, const struct ct_call *call)
{
    bool wide = tcp->size > tcp->tuning.tcp_direct_world;

    switch (call->kind) {
    case CT_CALL_ALL_REDUCE:
        return choose_all_reduce(tcp, call);
    case CT_CALL_REDUCE_SCATTER:
        return wide && call->mode == CT_MODE_FAST && ct_reduce_in_steps(call->dtype, call->reduce)
                   ? CT_ALGO_RING_SCATTER
                   : CT_ALGO_DIRECT_SCATTER;
    case CT_CALL_ALL_GATHER:
        return wide ? CT_ALGO_RING_GATHER : CT_ALGO_DIRECT_GATHER;
    case CT_CALL_REDUCE:
        return ct_call_bytes(call) <= tcp->tuning.tcp_flat_bytes ? CT_ALGO_FLAT_ROOT
                                                                 : CT_ALGO_DIRECT_ROOT;
    default:
        return choose_move(tcp, call);
    }
}

/* ---- where blocks lie ------------------------------------------------------------------------*/

/* The whole that `chunk` is cut from for a block in this place: one rank's part where the call has
 * parts, a block being then the same piece of each part; else the buffer, whose chunks are cut in
 * blocks. */
static struct ct_span whole_of(const struct ct_call *call, struct ct_place place, int block)
{
    return place.space == CT_SPACE_OUTPUT ? ct_call_out(call, block) : ct_call_in(call, block);
}

/* Block `block` of a chunk, from the start of the buffer that it lies in. */
static struct ct_span block_of(const struct ct_tcp *tcp, const struct ct_call *call, size_t chunk,
                               struct ct_place place, int block)
{
    struct ct_span whole = whole_of(call, place, block);
    size_t skipped = CT_MIN(chunk * tcp->chunk_bytes, whole.bytes);
    struct ct_span cut = {whole.at + skipped, CT_MIN(tcp->chunk_bytes, whole.bytes - skipped)};
    size_t blocks = (size_t)tcp->schedule.blocks;

    if (ct_call_has_parts(call->kind) || blocks == 1)
        return cut;
    size_t share = ((cut.bytes + 63) / 64 + blocks - 1) / blocks * 64;
    size_t at = CT_MIN((size_t)block * share, cut.bytes);

    return (struct ct_span){cut.at + at, CT_MIN(share, cut.bytes - at)};
}

static char *locate(const struct ct_tcp *tcp, const struct ct_call *call, size_t chunk,
                    struct ct_place place)
{
    size_t at;

    switch (place.space) {
    case CT_SPACE_INPUT:
        return (char *)(uintptr_t)call->send + block_of(tcp, call, chunk, place, place.index).at;
    case CT_SPACE_OUTPUT:
        return call->recv + block_of(tcp, call, chunk, place, place.index).at;
    default:
        CT_ASSERT(place.space == CT_SPACE_SLOT && place.index < tcp->size);
        at = (chunk & 1) * (size_t)tcp->size + (size_t)place.index;
        return tcp->scratch + at * tcp->block_bytes;
    }
}

/* ---- a wave ----------------------------------------------------------------------------------*/

/* The chunk that is in `step`'s phase; false when there is none. */
static bool chunk_in_phase(const struct ct_tcp *tcp, size_t wave, const struct ct_step *step,
                           size_t *ret_chunk)
{
    size_t phase = (size_t)step->phase;

    *ret_chunk = wave - phase;
    return wave >= phase && *ret_chunk < tcp->chunks;
}

/* The greeting that goes to `peer` (out), or that must come from it. */
static struct ct_tcp_greeting greet(const struct ct_tcp *tcp, const struct ct_task *task, int peer,
                                    bool out)
{
    return (struct ct_tcp_greeting){
        .call = tcp->call,
        .signature = ct_call_signature_with(&task->call, task->signature, peer, out),
        .scale = task->call.scale};
}

static void list_move(struct ct_tcp *tcp, const struct ct_task *task, const struct ct_step *step,
                      size_t chunk)
{
    struct ct_tcp_move *move = &tcp->moves[tcp->move_count++];
    bool out = step->kind == CT_STEP_SEND;
    uint64_t *greeted = &tcp->greeted[(out ? 0 : tcp->size) + step->peer];

    *move = (struct ct_tcp_move){.peer = step->peer, .out = out};
    if (task->call.longest_bytes > 0) {
        move->data = locate(tcp, &task->call, chunk, step->a);
        move->left = block_of(tcp, &task->call, chunk, step->a, step->block).bytes;
    }
    if (*greeted != tcp->call) {
        *greeted = tcp->call;
        move->header_left = CT_TCP_HEADER;
        struct ct_tcp_greeting greeting = greet(tcp, task, step->peer, out);
        if (out)
            ct_tcp_write_header(move->header, &greeting);
    }
}

static void list_moves(struct ct_tcp *tcp, const struct ct_task *task)
{
    size_t chunk;

    tcp->move_count = 0;
    for (int i = 0; i < tcp->schedule.steps; i++) {
        const struct ct_step *step = &tcp->schedule.step[i];

        if ((step->kind == CT_STEP_SEND || step->kind == CT_STEP_RECV) &&
            chunk_in_phase(tcp, task->at, step, &chunk))
            list_move(tcp, task, step, chunk);
    }
}

/* Has an earlier message of this connection and direction still to go? */
static bool behind_another(const struct ct_tcp *tcp, int index)
{
    const struct ct_tcp_move *move = &tcp->moves[index];

    for (int i = 0; i < index; i++)
        if (!tcp->moves[i].over && tcp->moves[i].peer == move->peer &&
            tcp->moves[i].out == move->out)
            return true;
    return false;
}

static int advance_move(struct ct_tcp *tcp, struct ct_task *task, struct ct_tcp_move *move,
                        struct ct_error *err)
{
    size_t before = move->header_left + move->left;
    bool header_comes = !move->out && move->header_left > 0;
    int code = ct_tcp_attempt(tcp, CT_LANE_COLLECTIVE, move, err);

    task->moves += move->header_left + move->left != before;
    if (header_comes && move->header_left == 0) {
        struct ct_tcp_greeting greeting = greet(tcp, task, move->peer, false);
        int differs = ct_tcp_check_header(tcp, move->header, move->peer, &greeting, err);

        if (differs != 0)
            return differs;
        tcp->factors[move->peer] = greeting.scale;
    }
    move->over = code == 1;
    return code;
}

/* 1 when all moves of the wave are over. */
static int advance_moves(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    int open = 0;

    for (int i = 0; i < tcp->move_count; i++) {
        if (tcp->moves[i].over)
            continue;
        int code = behind_another(tcp, i) ? 0 : advance_move(tcp, task, &tcp->moves[i], err);

        if (code < 0)
            return code;
        open += code == 0;
    }
    return open == 0;
}

/* A reduction or a copy of `chunk`. */
static void compute(struct ct_tcp *tcp, const struct ct_call *call, const struct ct_step *step,
                    size_t chunk)
{
    size_t bytes = block_of(tcp, call, chunk, step->a, step->block).bytes;
    char *to = locate(tcp, call, chunk, step->a);
    int sources = 2;

    if (step->kind == CT_STEP_COPY) {
        const char *from = locate(tcp, call, chunk, step->b);

        if (to != from && bytes > 0)
            memcpy(to, from, bytes);
        return;
    }
    if (step->kind == CT_STEP_REDUCE_ALL) {
        sources = tcp->size;
        for (int i = 0; i < sources; i++)
            tcp->sources[i] = locate(tcp, call, chunk, (struct ct_place){CT_SPACE_SLOT, i});
        tcp->sources[tcp->rank] = locate(tcp, call, chunk, step->b);
    } else {
        tcp->sources[0] = locate(tcp, call, chunk, step->b);
        tcp->sources[1] = locate(tcp, call, chunk, step->c);
    }
    struct ct_reduction how = ct_reduction_of(call);
    how.divisor = step->last && call->reduce == CT_REDUCE_AVG ? tcp->size : 1;
    how.factor = tcp->factors;
    ct_reduce_buffers(&how, to, tcp->sources, sources, bytes / ct_dtype_size(call->dtype));
}

static void compute_wave(struct ct_tcp *tcp, const struct ct_task *task)
{
    size_t chunk;

    for (int i = 0; task->call.longest_bytes > 0 && i < tcp->schedule.steps; i++) {
        const struct ct_step *step = &tcp->schedule.step[i];

        if (step->kind != CT_STEP_SEND && step->kind != CT_STEP_RECV &&
            chunk_in_phase(tcp, task->at, step, &chunk))
            compute(tcp, &task->call, step, chunk);
    }
}

/* ---- the call --------------------------------------------------------------------------------*/

static void begin(struct ct_tcp *tcp, struct ct_task *task)
{
    const struct ct_call *call = &task->call;
    size_t bytes = call->longest_bytes;

    ct_schedule_build(&tcp->schedule, choose(tcp, call), tcp->rank, tcp->size, call->peer);
    tcp->chunk_bytes = ct_call_has_parts(call->kind)
                           ? tcp->block_bytes
                           : tcp->block_bytes * (size_t)tcp->schedule.blocks;
    tcp->chunks = bytes == 0 ? 1 : (bytes + tcp->chunk_bytes - 1) / tcp->chunk_bytes;
    tcp->busy = true;
    tcp->call++;
    tcp->factors[tcp->rank] = call->scale;
    task->at = 0;
    task->stage = 1;
    list_moves(tcp, task);
}

int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err)
{
    if (task->stage == 0)
        begin(tcp, task);
    for (;;) {
        int code = advance_moves(tcp, task, err);

        if (code != 1)
            return code;
        compute_wave(tcp, task);
        task->at++;
        if (task->at == tcp->chunks + (size_t)tcp->schedule.phases - 1)
            break;
        list_moves(tcp, task);
    }
    tcp->busy = false;
    return 1;
}
