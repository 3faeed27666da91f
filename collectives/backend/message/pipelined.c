/* See pipelined.h. */
#include "backend/message/pipelined.h"

#include "base/assert.h"
#include "reduce/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES = 8 << 20, LINE = 64 };

/* ---- creation --------------------------------------------------------------------------------*/

/* A set of slots: one a rank. With many ranks, or where an algorithm has more slots, blocks shrink
 * so that it is enough. */
static size_t set_size(const struct ct_setup *setup)
{
    size_t size = (size_t)setup->size;
    size_t most = SCRATCH_BYTES / CT_PIPELINED_SLOT_SETS / size;
    size_t block = (CT_MIN(setup->tuning.tcp_block_bytes, most) + LINE - 1) / LINE * LINE;

    return CT_MAX(size * block, (size_t)ct_schedule_slots(setup->size) * LINE);
}

int ct_pipelined_init(struct ct_pipelined *pipelined, const struct ct_setup *setup)
{
    size_t size = (size_t)setup->size, steps = (size_t)ct_schedule_capacity(setup->size);

    *pipelined =
        (struct ct_pipelined){.rank = setup->rank, .size = setup->size, .tuning = setup->tuning};
    pipelined->block_bytes = (setup->tuning.tcp_block_bytes + LINE - 1) / LINE * LINE;
    pipelined->set_bytes = set_size(setup);
    pipelined->tuning.tcp_flat_bytes =
        CT_MIN(setup->tuning.tcp_flat_bytes, pipelined->set_bytes / size);
    pipelined->schedule.step = calloc(steps, sizeof *pipelined->schedule.step);
    pipelined->schedule.capacity = (int)steps;
    pipelined->scratch = aligned_alloc(LINE, CT_PIPELINED_SLOT_SETS * pipelined->set_bytes);
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
 * into blocks. In a slot lies what all members know the length of. */
static struct ct_span whole_of(const struct ct_call *call, struct ct_place place, int block)
{
    bool of_output = place.space == CT_SPACE_OUTPUT ||
                     (place.space == CT_SPACE_SLOT && !ct_call_traits[call->kind].in_parts);

    return of_output ? ct_call_out(call, block) : ct_call_in(call, block);
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
    size_t share = ((cut.bytes + LINE - 1) / LINE + blocks - 1) / blocks * LINE;
    size_t at = CT_MIN((size_t)block * share, cut.bytes);

    return (struct ct_span){cut.at + at, CT_MIN(share, cut.bytes - at)};
}

/* How far apart the slots of a chunk lie: as its longest block is, so that blocks as long as that
 * lie behind each other. */
static size_t slot_of(const struct ct_pipelined *pipelined, const struct ct_call *call,
                      size_t chunk)
{
    struct ct_place first = {CT_SPACE_SLOT, 0};

    return call->uneven ? pipelined->chunk_bytes : block_of(pipelined, call, chunk, first, 0).bytes;
}

static char *locate(const struct ct_pipelined *pipelined, const struct ct_call *call, size_t chunk,
                    struct ct_place place)
{
    switch (place.space) {
    case CT_SPACE_INPUT:
        return (char *)(uintptr_t)call->send +
               block_of(pipelined, call, chunk, place, place.index).at;
    case CT_SPACE_OUTPUT:
        return call->recv + block_of(pipelined, call, chunk, place, place.index).at;
    default:
        CT_ASSERT(place.space == CT_SPACE_SLOT && place.index < pipelined->schedule.slots);
        return pipelined->scratch + chunk % CT_PIPELINED_SLOT_SETS * pipelined->set_bytes +
               (size_t)place.index * slot_of(pipelined, call, chunk);
    }
}

/* ---- a step ----------------------------------------------------------------------------------*/

bool ct_pipelined_chunk_in_phase(const struct ct_pipelined *pipelined, size_t at, int phase,
                                 size_t *ret_chunk)
{
    size_t behind = at - (size_t)phase;

    *ret_chunk = behind / pipelined->spacing;
    return at >= (size_t)phase && behind % pipelined->spacing == 0 &&
           *ret_chunk < pipelined->chunks;
}

int ct_pipelined_first_phase(const struct ct_pipelined *pipelined, size_t at)
{
    size_t before = (pipelined->chunks - 1) * pipelined->spacing;

    return at > before ? (int)(at - before) : 0;
}

int ct_pipelined_last_phase(const struct ct_pipelined *pipelined, size_t at)
{
    size_t last = (size_t)pipelined->schedule.phases - 1;

    return (int)CT_MIN(at, last);
}

/* The first entry of the schedule from this phase on. */
static int find_phase(const struct ct_schedule *schedule, int phase)
{
    int from = 0, to = schedule->steps;

    while (from < to) {
        int middle = from + (to - from) / 2;

        if (schedule->step[middle].phase < phase)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Of a stream of `bytes` in chunks of c through P phases, bytes/c + P - 1 steps take each what a
 * message costs, as much as tcp_message_bytes, and c: sqrt(bytes * message / P) is best. */
static size_t stream_chunk(const struct ct_pipelined *pipelined, size_t bytes)
{
    double message = (double)pipelined->tuning.tcp_message_bytes;
    double best = sqrt((double)bytes * message / pipelined->schedule.phases);

    return CT_MAX((size_t)best, (size_t)LINE);
}

/* A block: at most what its slots have room for, and shorter in a stream. */
static size_t block_size(const struct ct_pipelined *pipelined, size_t bytes)
{
    const struct ct_schedule *schedule = &pipelined->schedule;
    size_t slots = CT_MAX((size_t)schedule->slots, (size_t)1);
    size_t most = CT_MIN(pipelined->block_bytes, pipelined->set_bytes / slots / LINE * LINE);
    size_t wanted = schedule->streams ? stream_chunk(pipelined, bytes) / (size_t)schedule->blocks
                                      : pipelined->block_bytes;

    return CT_MIN(most, (wanted + LINE - 1) / LINE * LINE);
}

void ct_pipelined_begin(struct ct_pipelined *pipelined, const struct ct_call *call)
{
    size_t bytes = call->longest_bytes, block;

    ct_schedule_build(&pipelined->schedule, ct_select(&pipelined->tuning, CT_TOPOLOGY_MESH, call),
                      pipelined->rank, pipelined->size, call->peer);
    block = block_size(pipelined, bytes);
    CT_ASSERT(block > 0);
    pipelined->chunk_bytes =
        ct_call_has_parts(call->kind) ? block : block * (size_t)pipelined->schedule.blocks;
    pipelined->chunks =
        bytes == 0 ? 1 : (bytes + pipelined->chunk_bytes - 1) / pipelined->chunk_bytes;
    pipelined->spacing = (size_t)ct_schedule_spacing(&pipelined->schedule, CT_PIPELINED_SLOT_SETS);
    pipelined->factors[pipelined->rank] = call->scale;
}

size_t ct_pipelined_step_count(const struct ct_pipelined *pipelined)
{
    return (pipelined->chunks - 1) * pipelined->spacing + (size_t)pipelined->schedule.phases;
}

static bool is_move(const struct ct_step *step)
{
    return step->kind == CT_STEP_SEND || step->kind == CT_STEP_RECV;
}

/* Does this block lie behind the one before, `before` bytes long? Lengths alone decide, so that
 * both ends do alike. */
static bool joins(const struct ct_pipelined *pipelined, const struct ct_call *call, size_t chunk,
                  const struct ct_step *step, size_t before)
{
    return step->joined &&
           (call->longest_bytes == 0 || before == slot_of(pipelined, call, chunk) ||
            (before == 0 && block_of(pipelined, call, chunk, step->a, step->block).bytes == 0));
}

bool ct_pipelined_next_move(const struct ct_pipelined *pipelined, const struct ct_call *call,
                            size_t at, int *next, struct ct_pipelined_move *ret_move)
{
    const struct ct_schedule *schedule = &pipelined->schedule;
    int last_phase = ct_pipelined_last_phase(pipelined, at);
    size_t chunk, before = 0;

    if (*next == 0)
        *next = find_phase(schedule, ct_pipelined_first_phase(pipelined, at));
    while (*next < schedule->steps && schedule->step[*next].phase <= last_phase) {
        const struct ct_step *step = &schedule->step[(*next)++];

        if (!is_move(step) || !ct_pipelined_chunk_in_phase(pipelined, at, step->phase, &chunk))
            continue;
        *ret_move = (struct ct_pipelined_move){
            .peer = step->peer, .out = step->kind == CT_STEP_SEND, .work = {chunk, step->phase}};
        if (call->longest_bytes > 0) {
            ret_move->data = locate(pipelined, call, chunk, step->a);
            before = block_of(pipelined, call, chunk, step->a, step->block).bytes;
        }
        for (ret_move->bytes = before; *next < schedule->steps; ret_move->bytes += before) {
            step = &schedule->step[*next];
            if (!joins(pipelined, call, chunk, step, before))
                break;
            before = block_of(pipelined, call, chunk, step->a, step->block).bytes;
            ++*next;
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
                i == pipelined->rank
                    ? locate(pipelined, call, chunk, step->b)
                    : locate(pipelined, call, chunk,
                             (struct ct_place){CT_SPACE_SLOT,
                                               ct_schedule_source(&pipelined->schedule, i)});
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
    const struct ct_schedule *schedule = &pipelined->schedule;

    for (int i = find_phase(schedule, work.phase);
         call->longest_bytes > 0 && i < schedule->steps && schedule->step[i].phase == work.phase;
         i++)
        if (!is_move(&schedule->step[i]))
            compute(pipelined, call, &schedule->step[i], work.chunk);
}

void ct_pipelined_compute(struct ct_pipelined *pipelined, const struct ct_call *call, size_t at)
{
    struct ct_chunk_phase work;

    for (work.phase = ct_pipelined_first_phase(pipelined, at);
         work.phase <= ct_pipelined_last_phase(pipelined, at); work.phase++)
        if (ct_pipelined_chunk_in_phase(pipelined, at, work.phase, &work.chunk))
            ct_pipelined_compute_phase(pipelined, call, work);
}
