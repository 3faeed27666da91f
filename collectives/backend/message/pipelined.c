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
    size_t slots = CT_WAVE_SETS * (size_t)setup->size;
    size_t most = CT_MAX(SCRATCH_BYTES / slots, (size_t)BLOCK_MIN);

    return (CT_MIN(setup->tuning.tcp_block_bytes, most) + 63) / 64 * 64;
}

int ct_wave_init(struct ct_wave *wave, const struct ct_setup *setup)
{
    size_t size = (size_t)setup->size, steps = (size_t)ct_schedule_capacity(setup->size);

    *wave = (struct ct_wave){.rank = setup->rank, .size = setup->size, .tuning = setup->tuning};
    wave->block_bytes = block_size(setup);
    wave->tuning.tcp_flat_bytes = CT_MIN(setup->tuning.tcp_flat_bytes, wave->block_bytes);
    wave->schedule.step = calloc(steps, sizeof *wave->schedule.step);
    wave->schedule.capacity = (int)steps;
    wave->scratch = aligned_alloc(64, CT_WAVE_SETS * size * wave->block_bytes);
    wave->sources = calloc(size, sizeof *wave->sources);
    wave->factors = calloc(size, sizeof *wave->factors);
    return wave->schedule.step != NULL && wave->scratch != NULL && wave->sources != NULL &&
                   wave->factors != NULL
               ? 0
               : CT_ENOMEM;
}

void ct_wave_deinit(struct ct_wave *wave)
{
    free(wave->schedule.step);
    free(wave->scratch);
    free(wave->sources);
    free(wave->factors);
}

int ct_wave_moves_max(const struct ct_wave *wave)
{
    return wave->schedule.capacity;
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
static struct ct_span block_of(const struct ct_wave *wave, const struct ct_call *call, size_t chunk,
                               struct ct_place place, int block)
{
    struct ct_span whole = whole_of(call, place, block);
    size_t skipped = CT_MIN(chunk * wave->chunk_bytes, whole.bytes);
    struct ct_span cut = {whole.at + skipped, CT_MIN(wave->chunk_bytes, whole.bytes - skipped)};
    size_t blocks = (size_t)wave->schedule.blocks;

    if (ct_call_has_parts(call->kind) || blocks == 1)
        return cut;
    size_t share = ((cut.bytes + 63) / 64 + blocks - 1) / blocks * 64;
    size_t at = CT_MIN((size_t)block * share, cut.bytes);

    return (struct ct_span){cut.at + at, CT_MIN(share, cut.bytes - at)};
}

static char *locate(const struct ct_wave *wave, const struct ct_call *call, size_t chunk,
                    struct ct_place place)
{
    size_t at;

    switch (place.space) {
    case CT_SPACE_INPUT:
        return (char *)(uintptr_t)call->send + block_of(wave, call, chunk, place, place.index).at;
    case CT_SPACE_OUTPUT:
        return call->recv + block_of(wave, call, chunk, place, place.index).at;
    default:
        CT_ASSERT(place.space == CT_SPACE_SLOT && place.index < wave->size);
        at = chunk % CT_WAVE_SETS * (size_t)wave->size + (size_t)place.index;
        return wave->scratch + at * wave->block_bytes;
    }
}

/* ---- a wave ----------------------------------------------------------------------------------*/

/* The chunk that is in `step`'s phase; false when there is none. */
static bool chunk_in_phase(const struct ct_wave *wave, size_t at, const struct ct_step *step,
                           size_t *ret_chunk)
{
    size_t phase = (size_t)step->phase;

    *ret_chunk = at - phase;
    return at >= phase && *ret_chunk < wave->chunks;
}

void ct_wave_begin(struct ct_wave *wave, const struct ct_call *call)
{
    size_t bytes = call->longest_bytes;

    ct_schedule_build(&wave->schedule, ct_select(&wave->tuning, CT_TOPOLOGY_MESH, call), wave->rank,
                      wave->size, call->peer);
    wave->chunk_bytes = ct_call_has_parts(call->kind)
                            ? wave->block_bytes
                            : wave->block_bytes * (size_t)wave->schedule.blocks;
    wave->chunks = bytes == 0 ? 1 : (bytes + wave->chunk_bytes - 1) / wave->chunk_bytes;
    wave->factors[wave->rank] = call->scale;
}

size_t ct_wave_count(const struct ct_wave *wave)
{
    return wave->chunks + (size_t)wave->schedule.phases - 1;
}

bool ct_wave_next_move(const struct ct_wave *wave, const struct ct_call *call, size_t at, int *step,
                       struct ct_wave_move *ret_move)
{
    while (*step < wave->schedule.steps) {
        const struct ct_step *next = &wave->schedule.step[(*step)++];
        size_t chunk;

        if ((next->kind != CT_STEP_SEND && next->kind != CT_STEP_RECV) ||
            !chunk_in_phase(wave, at, next, &chunk))
            continue;
        *ret_move = (struct ct_wave_move){
            .peer = next->peer, .out = next->kind == CT_STEP_SEND, .turn = {chunk, next->phase}};
        if (call->longest_bytes > 0) {
            ret_move->data = locate(wave, call, chunk, next->a);
            ret_move->bytes = block_of(wave, call, chunk, next->a, next->block).bytes;
        }
        return true;
    }
    return false;
}

/* A reduction or a copy of `chunk`. */
static void compute(struct ct_wave *wave, const struct ct_call *call, const struct ct_step *step,
                    size_t chunk)
{
    size_t bytes = block_of(wave, call, chunk, step->a, step->block).bytes;
    char *to = locate(wave, call, chunk, step->a);
    int sources = 2;

    if (step->kind == CT_STEP_COPY) {
        const char *from = locate(wave, call, chunk, step->b);

        if (to != from && bytes > 0)
            memcpy(to, from, bytes);
        return;
    }
    if (step->kind == CT_STEP_REDUCE_ALL) {
        sources = wave->size;
        for (int i = 0; i < sources; i++)
            wave->sources[i] = locate(wave, call, chunk, (struct ct_place){CT_SPACE_SLOT, i});
        wave->sources[wave->rank] = locate(wave, call, chunk, step->b);
    } else {
        wave->sources[0] = locate(wave, call, chunk, step->b);
        wave->sources[1] = locate(wave, call, chunk, step->c);
    }
    struct ct_reduction how = ct_call_reduction(call);
    how.divisor = step->last && call->reduce == CT_REDUCE_AVG ? call->members : 1;
    how.factor = wave->factors;
    ct_reduce_buffers(&how, to, wave->sources, sources, bytes / ct_dtype_size(call->dtype));
}

void ct_wave_compute_turn(struct ct_wave *wave, const struct ct_call *call,
                          struct ct_wave_turn turn)
{
    for (int i = 0; call->longest_bytes > 0 && i < wave->schedule.steps; i++) {
        const struct ct_step *step = &wave->schedule.step[i];

        if (step->phase == turn.phase && step->kind != CT_STEP_SEND && step->kind != CT_STEP_RECV)
            compute(wave, call, step, turn.chunk);
    }
}

void ct_wave_compute(struct ct_wave *wave, const struct ct_call *call, size_t at)
{
    for (int phase = 0; phase < wave->schedule.phases && (size_t)phase <= at; phase++)
        if (at - (size_t)phase < wave->chunks)
            ct_wave_compute_turn(wave, call, (struct ct_wave_turn){at - (size_t)phase, phase});
}
