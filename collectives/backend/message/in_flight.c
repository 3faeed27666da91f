/* See in_flight.h. */
#include "backend/message/in_flight.h"

#include "base/assert.h"

#include <stdlib.h>

enum { THROUGH = -1 };

int ct_window_init(struct ct_window *window, const struct ct_wave *wave)
{
    *window = (struct ct_window){.wave = wave, .phases_max = ct_wave_moves_max(wave)};
    window->left = calloc(CT_WINDOW_WAVES * (size_t)window->phases_max, sizeof *window->left);
    return window->left != NULL ? 0 : CT_ENOMEM;
}

void ct_window_deinit(struct ct_window *window)
{
    free(window->left);
}

void ct_window_begin(struct ct_window *window)
{
    CT_ASSERT(window->wave->schedule.phases <= window->phases_max);
    window->base = window->end = 0;
}

static int *left_of(const struct ct_window *window, struct ct_wave_turn turn)
{
    size_t at = turn.chunk + (size_t)turn.phase;

    CT_ASSERT(at >= window->base && at < window->end);
    return &window->left[at % CT_WINDOW_WAVES * (size_t)window->phases_max + (size_t)turn.phase];
}

static bool is_through(const struct ct_window *window, size_t chunk, int phase)
{
    size_t at = chunk + (size_t)phase;

    return at < window->base || *left_of(window, (struct ct_wave_turn){chunk, phase}) == THROUGH;
}

/* The turn of wave `at` in this phase; false when no chunk is there. */
static bool turn_of(const struct ct_window *window, size_t at, int phase, struct ct_wave_turn *turn)
{
    *turn = (struct ct_wave_turn){at - (size_t)phase, phase};
    return at >= (size_t)phase && turn->chunk < window->wave->chunks;
}

bool ct_window_list(struct ct_window *window, size_t *ret_at)
{
    if (window->end == ct_wave_count(window->wave) || window->end == window->base + CT_WINDOW_WAVES)
        return false;
    *ret_at = window->end++;
    int *left = &window->left[*ret_at % CT_WINDOW_WAVES * (size_t)window->phases_max];
    for (int phase = 0; phase < window->wave->schedule.phases; phase++) {
        struct ct_wave_turn turn;

        left[phase] = turn_of(window, *ret_at, phase, &turn) ? 0 : THROUGH;
    }
    return true;
}

void ct_window_add(struct ct_window *window, struct ct_wave_turn turn)
{
    ++*left_of(window, turn);
}

bool ct_window_may_start(const struct ct_window *window, struct ct_wave_turn turn)
{
    int last = window->wave->schedule.phases - 1;

    if (turn.phase > 0 && !is_through(window, turn.chunk, turn.phase - 1))
        return false;
    return turn.chunk < CT_WAVE_SETS ||
           is_through(window, turn.chunk - CT_WAVE_SETS, CT_MIN(turn.phase + 1, last));
}

void ct_window_over(struct ct_window *window, struct ct_wave_turn turn)
{
    int *left = left_of(window, turn);

    CT_ASSERT(*left > 0);
    --*left;
}

/* Oldest waves that are all through leave the window. */
static void retire(struct ct_window *window)
{
    while (window->base < window->end) {
        const int *left =
            &window->left[window->base % CT_WINDOW_WAVES * (size_t)window->phases_max];

        for (int phase = 0; phase < window->wave->schedule.phases; phase++)
            if (left[phase] != THROUGH)
                return;
        window->base++;
    }
}

bool ct_window_next_due(struct ct_window *window, struct ct_wave_turn *ret_turn)
{
    for (size_t at = window->base; at < window->end; at++)
        for (int phase = window->wave->schedule.phases - 1; phase >= 0; phase--) {
            if (!turn_of(window, at, phase, ret_turn))
                continue;
            int *left = left_of(window, *ret_turn);
            if (*left == 0 && ct_window_may_start(window, *ret_turn)) {
                *left = THROUGH;
                retire(window);
                return true;
            }
        }
    return false;
}

bool ct_window_is_through(const struct ct_window *window)
{
    return window->base == ct_wave_count(window->wave);
}
