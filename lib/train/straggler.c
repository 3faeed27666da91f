/* See straggler.h. */
#include "train/straggler.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void ct_straggler_reset(struct ct_straggler *straggler)
{
    memset(straggler, 0, sizeof *straggler);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

void ct_straggler_add(struct ct_straggler *straggler, int world, const float *waited_us,
                      const float *took_us, float *room)
{
    CT_ASSERT(world > 1);
    for (int step = 0; step < CT_STRAGGLER_BATCH; step++) {
        int last = 0;

        for (int rank = 0; rank < world; rank++) {
            room[rank] = waited_us[rank * CT_STRAGGLER_BATCH + step];
            if (room[rank] < room[last])
                last = rank;
        }
        if (room[last] < 0)
            continue;
        float least = room[last];
        qsort(room, (size_t)world, sizeof *room, by_size);
        uint32_t at = straggler->count++ % CT_STRAGGLER_WINDOW;
        straggler->steps[at].last = last;
        straggler->steps[at].cost_us = room[world / 2] - least;
        straggler->steps[at].took_us = took_us[step];
    }
}

/* The rank that is last at more than half of the steps, if there is one (Boyer and Moore, "MJRTY: a
 * fast majority vote algorithm", 1981). */
static int find_majority(const struct ct_straggler *straggler)
{
    int rank = 0, lead = 0;

    for (int i = 0; i < CT_STRAGGLER_WINDOW; i++) {
        if (lead == 0)
            rank = straggler->steps[i].last;
        lead += straggler->steps[i].last == rank ? 1 : -1;
    }
    return rank;
}

bool ct_straggler_find(const struct ct_straggler *straggler,
                       struct ct_straggler_finding *ret_finding)
{
    int times = 0, rank = find_majority(straggler);
    float cost_us = 0, took_us = 0;

    if (straggler->count < CT_STRAGGLER_WINDOW)
        return false;
    for (int i = 0; i < CT_STRAGGLER_WINDOW; i++) {
        took_us += straggler->steps[i].took_us;
        if (straggler->steps[i].last != rank)
            continue;
        times++;
        cost_us += straggler->steps[i].cost_us;
    }
    *ret_finding = (struct ct_straggler_finding){
        .rank = rank,
        .share = times * 100 / CT_STRAGGLER_WINDOW,
        .cost = took_us > 0 ? (int)(cost_us * 100 / took_us) : 0,
    };
    return ret_finding->share > CT_STRAGGLER_SHARE && ret_finding->cost > CT_STRAGGLER_COST &&
           cost_us > CT_STRAGGLER_COST_US * (float)CT_STRAGGLER_WINDOW;
}
