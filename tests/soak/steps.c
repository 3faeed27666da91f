/* The training as its metrics show it: the newest step, and how long there was none. See soak.h. */
#include "soak.h"

#include <stdlib.h>

enum { LONG_LEASES = 2 }; /* a pause of so many is worth an event */

/* A pause that ends at `wall_s` belongs to the last fault that was done before. */
static void note_pause(struct soak *soak, double wall_s)
{
    struct steps *steps = &soak->steps;
    double pause_s = wall_s - steps->last_wall_s;

    if (steps->last_wall_s == 0)
        return;
    if (pause_s > LONG_LEASES * soak->lease_s)
        report_event(soak, "there was no step for %.1f s", pause_s);
    if (pause_s > steps->longest_s) {
        steps->longest_s = pause_s;
        steps->longest_at_s = soak_now_s(soak);
    }
    if (wall_s > soak->faults.last_wall_s && pause_s > (double)steps->worst)
        steps->worst = (float)pause_s;
}

static void take_step(struct soak *soak, uint64_t step, double wall_s)
{
    struct steps *steps = &soak->steps;

    if (step <= steps->last)
        return; /* the writer cut its file and repeats what was in flight */
    note_pause(soak, wall_s);
    steps->last = step;
    steps->last_wall_s = wall_s;
    steps->seen_s = soak_now_s(soak);
}

void steps_watch(struct soak *soak)
{
    uint64_t step;
    double wall_s;

    while (step_tail_next(&soak->steps.tail, &step, &wall_s))
        take_step(soak, step, wall_s);
}

void steps_flush(struct soak *soak)
{
    struct steps *steps = &soak->steps;
    struct pauses *pauses = &steps->pauses[soak->faults.last];

    if (soak->faults.last_wall_s == 0)
        return;
    if (pauses->count == pauses->room) {
        uint32_t room = pauses->room * 2 + 64;
        float *grown = realloc(pauses->seconds, room * sizeof *grown);
        if (grown == NULL)
            return;
        pauses->seconds = grown;
        pauses->room = room;
    }
    pauses->seconds[pauses->count++] = steps->worst;
    steps->worst = 0;
}

void steps_mark(struct soak *soak, enum fault_kind kind, double wall_s)
{
    steps_flush(soak);
    soak->faults.last = kind;
    soak->faults.last_wall_s = wall_s;
    soak->steps.pauses[kind].faults++;
}
