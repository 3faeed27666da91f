/* See pipelined.h. */
#include "backend/message/pipelined.h"

#include "base/assert.h"
#include "reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES = 8 << 20, BLOCK_MIN = 16 << 10 };

/* ---- creation --------------------------------------------------------------------------------*/

/* With many ranks the blocks shrink, so that the slots stay within bounds. */
static size_t block_size(const struct ct_setup *setup)
{
    size_t slots = CT_PIPELINED_SLOT_SETS * (size_t)setup->size;
    size_t most = CT_MAX(SCRATCH_BYTES / slots, (size_t)BLOCK_MIN);

    return (CT_MIN(setup->tuning.tcp_block_bytes, most) + 63) / 64 * 64;
}

int ct_pipelined_init(struct ct_pipelined *pipelined, const struct ct_setup *setup)
{
    size_t size = (size_t)setup->size, steps = (size_t)ct_schedule_capacity(setup->size);

    *pipelined =
        (struct ct_pipelined){.rank = setup->rank, .size = setup->size, .tuning = setup->tuning};
    pipelined->block_bytes = block_size(setup);
    pipelined->tuning.tcp_flat_bytes = CT_MIN(setup->tuning.tcp_flat_bytes, pipelined->block_bytes);
    pipelined->schedule.step = calloc(steps, sizeof *pipelined->schedule.step);
    pipelined->schedule.capacity = (int)steps;
    pipelined->scratch = aligned_alloc(64, CT_PIPELINED_SLOT_SETS * size * pipelined->block_bytes);
    pipelined->sources = calloc(size, sizeof *pipelined->sources);
    pipelined->factors = calloc(size, sizeof *pipelined->factors);
    return pipelined->schedule.step != NULL && pipelined->scratch != NULL &&
                   pipelined->sources != NULL && pipelined->factors != NULL
               ? 0
               : CT_ENOMEM;
}

void ct_pipelined_deinit(struct ct_pipelined *pipelined)
{
    free(pipelined->schedule.step);
    free(pipelined->scratch);
    free(pipelined->sources);
    free(pipelined->factors);
}

int ct_pipelined_moves_max(const struct ct_pipelined *pipelined)
{
    return pipelined->schedule.capacity;
}

/* ---- where blocks lie ------------------------------------------------------------------------*/

/* The whole that `chunk` is a part of for a block in this place: one rank's part where the call has
 * parts, a block being then the same extent of each part; else the buffer, whose chunks are split
 * into blocks. */
static struct ct_span whole_of(const struct ct_call *call, struct ct_place place, int block)
{
    return place.space == CT_SPACE_OUTPUT ? ct_call_out(call, block) : ct_call_in(call, block);
}

/* Block `block` of a chunk, from the start of the buffer that it lies in. */
static struct ct_span block_of(const struct ct_pipelined *pipelined, const struct ct_call *call,
                               size_t chunk, struct ct_place place, int block)
{
    struct ct_span whole = whole_of(call, place, block);
    size_t skipped = CT_MIN(chunk * pipelined->chunk_bytes, whole.bytes);
    struct ct_span cut = {whole.at + skipped,
                          CT_MIN(pipelined->chunk_bytes, whole.bytes - skipped)};
    size_t blocks = (size_t)pipelined->schedule.blocks;

    if (ct_call_has_parts(call->kind) || blocks == 1)
        return cut;
    size_t share = ((cut.bytes + 63) / 64 + blocks - 1) / blocks * 64;
    size_t at = CT_MIN((size_t)block * share, cut.bytes);

    return (struct ct_span){cut.at + at, CT_MIN(share, cut.bytes - at)};
}

static char *locate(const struct ct_pipelined *pipelined, const struct ct_call *call, size_t chunk,
                    struct ct_place place)
{
    size_t at;

    switch (place.space) {
    case CT_SPACE_INPUT:
        return (char *)(uintptr_t)call->send +
               block_of(pipelined, call, chunk, place, place.index).at;
    case CT_SPACE_OUTPUT:
        return call->recv + block_of(pipelined, call, chunk, place, place.index).at;
    default:
        CT_ASSERT(place.space == CT_SPACE_SLOT && place.index < pipelined->size);
        at = chunk % CT_PIPELINED_SLOT_SETS * (size_t)pipelined->size + (size_t)place.index;
        return pipelined->scratch + at * pipelined->block_bytes;
    }
}

/* ---- a step ----------------------------------------------------------------------------------*/

/* The chunk that is in `step`'s phase; false when there is none. */
static bool chunk_in_phase(const struct ct_pipelined *pipelined, size_t at,
                           const struct ct_step *step, size_t *ret_chunk)
{
    size_t phase = (size_t)step->phase;

    *ret_chunk = at - phase;
    return at >= phase && *ret_chunk < pipelined->chunks;
}

void ct_pipelined_begin(struct ct_pipelined *pipelined, const struct ct_call *call)
{
    size_t bytes = call->longest_bytes;

    ct_schedule_build(&pipelined->schedule, ct_select(&pipelined->tuning, CT_TOPOLOGY_MESH, call),
                      pipelined->rank, pipelined->size, call->peer);
    pipelined->chunk_bytes = ct_call_has_parts(call->kind)
                                 ? pipelined->block_bytes
                                 : pipelined->block_bytes * (size_t)pipelined->schedule.blocks;
    pipelined->chunks =
        bytes == 0 ? 1 : (bytes + pipelined->chunk_bytes - 1) / pipelined->chunk_bytes;
    pipelined->factors[pipelined->rank] = call->scale;
}

size_t ct_pipelined_step_count(const struct ct_pipelined *pipelined)
{
    return pipelined->chunks + (size_t)pipelined->schedule.phases - 1;
}

bool ct_pipelined_next_move(const struct ct_pipelined *pipelined, const struct ct_call *call,
                            size_t at, int *next, struct ct_pipelined_move *ret_move)
{
    while (*next < pipelined->schedule.steps) {
        const struct ct_step *step = &pipelined->schedule.step[(*next)++];
        size_t chunk;

        if ((step->kind != CT_STEP_SEND && step->kind != CT_STEP_RECV) ||
            !chunk_in_phase(pipelined, at, step, &chunk))
            continue;
        *ret_move = (struct ct_pipelined_move){
            .peer = step->peer, .out = step->kind == CT_STEP_SEND, .work = {chunk, step->phase}};
        if (call->longest_bytes > 0) {
            ret_move->data = locate(pipelined, call, chunk, step->a);
            ret_move->bytes = block_of(pipelined, call, chunk, step->a, step->block).bytes;
        }
        return true;
    }
    return false;
}

/* A reduction or a copy of `chunk`. */
static void compute(struct ct_pipelined *pipelined, const struct ct_call *call,
                    const struct ct_step *step, size_t chunk)
{
    size_t bytes = block_of(pipelined, call, chunk, step->a, step->block).bytes;
    char *to = locate(pipelined, call, chunk, step->a);
    int sources = 2;

    if (step->kind == CT_STEP_COPY) {
        const char *from = locate(pipelined, call, chunk, step->b);

        if (to != from && bytes > 0)
            memcpy(to, from, bytes);
        return;
    }
    if (step->kind == CT_STEP_REDUCE_ALL) {
        sources = pipelined->size;
        for (int i = 0; i < sources; i++)
            pipelined->sources[i] =
                locate(pipelined, call, chunk, (struct ct_place){CT_SPACE_SLOT, i});
        pipelined->sources[pipelined->rank] = locate(pipelined, call, chunk, step->b);
    } else {
        pipelined->sources[0] = locate(pipelined, call, chunk, step->b);
        pipelined->sources[1] = locate(pipelined, call, chunk, step->c);
    }
    struct ct_reduction how = ct_call_reduction(call);
    how.divisor = step->last && call->reduce == CT_REDUCE_AVG ? call->members : 1;
    how.factor = pipelined->factors;
    ct_reduce_buffers(&how, to, pipelined->sources, sources, bytes / ct_dtype_size(call->dtype));
}

void ct_pipelined_compute_phase(struct ct_pipelined *pipelined, const struct ct_call *call,
                                struct ct_chunk_phase work)
{
    for (int i = 0; call->longest_bytes > 0 && i < pipelined->schedule.steps; i++) {
        const struct ct_step *step = &pipelined->schedule.step[i];

        if (step->phase == work.phase && step->kind != CT_STEP_SEND && step->kind != CT_STEP_RECV)
            compute(pipelined, call, step, work.chunk);
    }
}

void ct_pipelined_compute(struct ct_pipelined *pipelined, const struct ct_call *call, size_t at)
{
    for (int phase = 0; phase < pipelined->schedule.phases && (size_t)phase <= at; phase++)
        if (at - (size_t)phase < pipelined->chunks)
            ct_pipelined_compute_phase(pipelined, call,
                                       (struct ct_chunk_phase){at - (size_t)phase, phase});
}
