/* See in_flight.h. */
#include "backend/message/in_flight.h"

#include "base/assert.h"

#include <stdlib.h>

enum { COMPLETE = -1 };

int ct_in_flight_init(struct ct_in_flight *window, const struct ct_pipelined *pipelined)
{
    *window = (struct ct_in_flight){.pipelined = pipelined,
                                    .phases_max = ct_pipelined_moves_max(pipelined)};
    window->open = calloc(CT_IN_FLIGHT_STEPS * (size_t)window->phases_max, sizeof *window->open);
    return window->open != NULL ? 0 : CT_ENOMEM;
}

void ct_in_flight_deinit(struct ct_in_flight *window)
{
    free(window->open);
}

void ct_in_flight_begin(struct ct_in_flight *window)
{
    CT_ASSERT(window->pipelined->schedule.phases <= window->phases_max);
    window->base = window->end = 0;
}

static int *open_moves_of(const struct ct_in_flight *window, struct ct_chunk_phase work)
{
    size_t at = work.chunk + (size_t)work.phase;

    CT_ASSERT(at >= window->base && at < window->end);
    return &window->open[at % CT_IN_FLIGHT_STEPS * (size_t)window->phases_max + (size_t)work.phase];
}

static bool is_complete(const struct ct_in_flight *window, size_t chunk, int phase)
{
    size_t at = chunk + (size_t)phase;

    return at < window->base ||
           *open_moves_of(window, (struct ct_chunk_phase){chunk, phase}) == COMPLETE;
}

/* Which chunk is in this phase of step `at`; false when there is none. */
static bool chunk_phase_of(const struct ct_in_flight *window, size_t at, int phase,
                           struct ct_chunk_phase *work)
{
    *work = (struct ct_chunk_phase){at - (size_t)phase, phase};
    return at >= (size_t)phase && work->chunk < window->pipelined->chunks;
}

bool ct_in_flight_next_step(struct ct_in_flight *window, size_t *ret_at)
{
    if (window->end == ct_pipelined_step_count(window->pipelined) ||
        window->end == window->base + CT_IN_FLIGHT_STEPS)
        return false;
    *ret_at = window->end++;
    int *open = &window->open[*ret_at % CT_IN_FLIGHT_STEPS * (size_t)window->phases_max];
    for (int phase = 0; phase < window->pipelined->schedule.phases; phase++) {
        struct ct_chunk_phase work;

        open[phase] = chunk_phase_of(window, *ret_at, phase, &work) ? 0 : COMPLETE;
    }
    return true;
}

void ct_in_flight_add_move(struct ct_in_flight *window, struct ct_chunk_phase work)
{
    ++*open_moves_of(window, work);
}

bool ct_in_flight_may_start(const struct ct_in_flight *window, struct ct_chunk_phase work)
{
    int last = window->pipelined->schedule.phases - 1;

    if (work.phase > 0 && !is_complete(window, work.chunk, work.phase - 1))
        return false;
    return work.chunk < CT_PIPELINED_SLOT_SETS ||
           is_complete(window, work.chunk - CT_PIPELINED_SLOT_SETS, CT_MIN(work.phase + 1, last));
}

void ct_in_flight_move_done(struct ct_in_flight *window, struct ct_chunk_phase work)
{
    int *open = open_moves_of(window, work);

    CT_ASSERT(*open > 0);
    --*open;
}

/* Oldest steps that are all complete leave the window. */
static void retire(struct ct_in_flight *window)
{
    while (window->base < window->end) {
        const int *open =
            &window->open[window->base % CT_IN_FLIGHT_STEPS * (size_t)window->phases_max];

        for (int phase = 0; phase < window->pipelined->schedule.phases; phase++)
            if (open[phase] != COMPLETE)
                return;
        window->base++;
    }
}

bool ct_in_flight_next_ready(struct ct_in_flight *window, struct ct_chunk_phase *ret_work)
{
    for (size_t at = window->base; at < window->end; at++)
        for (int phase = window->pipelined->schedule.phases - 1; phase >= 0; phase--) {
            if (!chunk_phase_of(window, at, phase, ret_work))
                continue;
            int *open = open_moves_of(window, *ret_work);
            if (*open == 0 && ct_in_flight_may_start(window, *ret_work)) {
                *open = COMPLETE;
                retire(window);
                return true;
            }
        }
    return false;
}

bool ct_in_flight_is_complete(const struct ct_in_flight *window)
{
    return window->base == ct_pipelined_step_count(window->pipelined);
}
