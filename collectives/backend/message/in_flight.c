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
    size_t at = work.chunk * window->pipelined->spacing + (size_t)work.phase;

    CT_ASSERT(at >= window->base && at < window->end);
    return &window->open[at % CT_IN_FLIGHT_STEPS * (size_t)window->phases_max + (size_t)work.phase];
}

static bool is_complete(const struct ct_in_flight *window, size_t chunk, int phase)
{
    size_t at = chunk * window->pipelined->spacing + (size_t)phase;

    return at < window->base ||
           *open_moves_of(window, (struct ct_chunk_phase){chunk, phase}) == COMPLETE;
}

bool ct_in_flight_next_step(struct ct_in_flight *window, size_t *ret_at)
{
    if (window->end == ct_pipelined_step_count(window->pipelined) ||
        window->end == window->base + CT_IN_FLIGHT_STEPS)
        return false;
    *ret_at = window->end++;
    int *open = &window->open[*ret_at % CT_IN_FLIGHT_STEPS * (size_t)window->phases_max];
    for (int phase = ct_pipelined_first_phase(window->pipelined, *ret_at);
         phase <= ct_pipelined_last_phase(window->pipelined, *ret_at); phase++) {
        size_t chunk;

        open[phase] =
            ct_pipelined_chunk_in_phase(window->pipelined, *ret_at, phase, &chunk) ? 0 : COMPLETE;
    }
    return true;
}

void ct_in_flight_add_move(struct ct_in_flight *window, struct ct_chunk_phase work)
{
    ++*open_moves_of(window, work);
}

bool ct_in_flight_may_start(const struct ct_in_flight *window, struct ct_chunk_phase work)
{
    const struct ct_schedule *schedule = &window->pipelined->schedule;
    int last = schedule->phases - 1;

    if (work.phase > 0 && !is_complete(window, work.chunk, work.phase - 1))
        return false;
    return work.chunk < CT_PIPELINED_SLOT_SETS ||
           is_complete(window, work.chunk - CT_PIPELINED_SLOT_SETS,
                       CT_MIN(work.phase + schedule->held, last));
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

        for (int phase = ct_pipelined_first_phase(window->pipelined, window->base);
             phase <= ct_pipelined_last_phase(window->pipelined, window->base); phase++)
            if (open[phase] != COMPLETE)
                return;
        window->base++;
    }
}

bool ct_in_flight_next_ready(struct ct_in_flight *window, struct ct_chunk_phase *ret_work)
{
    const struct ct_pipelined *pipelined = window->pipelined;

    for (size_t at = window->base; at < window->end; at++) {
        int first = ct_pipelined_first_phase(pipelined, at);

        for (int phase = ct_pipelined_last_phase(pipelined, at); phase >= first; phase--) {
            ret_work->phase = phase;
            if (!ct_pipelined_chunk_in_phase(pipelined, at, phase, &ret_work->chunk))
                continue;
            int *open = open_moves_of(window, *ret_work);
            if (*open == 0 && ct_in_flight_may_start(window, *ret_work)) {
                *open = COMPLETE;
                retire(window);
                return true;
            }
        }
    }
    return false;
}

bool ct_in_flight_is_complete(const struct ct_in_flight *window)
{
    return window->base == ct_pipelined_step_count(window->pipelined);
}
