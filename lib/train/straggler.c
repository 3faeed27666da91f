/* See straggler.h. */
#include "train/straggler.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1, UNKNOWN = -2 };

void ct_straggler_reset(struct ct_straggler *straggler)
{
    memset(straggler, 0, sizeof *straggler);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Who was last in this step, if that cost the others anything worth a word; else NOBODY. */
static int find_last(const float *waited_us, int world, float took_us, float *room,
                     float *ret_cost_us)
{
    int last = 0;

    for (int rank = 0; rank < world; rank++) {
        room[rank] = waited_us[rank * CT_STRAGGLER_BATCH];
        if (room[rank] < room[last])
            last = rank;
    }
    float least = room[last];
    if (least < 0)
        return UNKNOWN;
    qsort(room, (size_t)world, sizeof *room, by_size);
    *ret_cost_us = room[world / 2] - least;
    return *ret_cost_us > CT_STRAGGLER_COST_US && *ret_cost_us * 100 > took_us * CT_STRAGGLER_COST
               ? last
               : NOBODY;
}

void ct_straggler_add(struct ct_straggler *straggler, int world, const float *waited_us,
                      const float *took_us, float *room)
{
    CT_ASSERT(world > 1);
    for (int i = 0; i < CT_STRAGGLER_BATCH; i++) {
        float cost_us = 0;
        int last = find_last(waited_us + i, world, took_us[i], room, &cost_us);

        if (last == UNKNOWN)
            continue;
        uint32_t at = straggler->count++ % CT_STRAGGLER_WINDOW;
        straggler->steps[at].last = last;
        straggler->steps[at].cost_us = cost_us;
        straggler->steps[at].took_us = took_us[i];
    }
}

/* Who is last at more than half of the steps, if anybody is (Boyer and Moore, "MJRTY: a fast
 * majority vote algorithm", 1981). */
static int find_majority(const struct ct_straggler *straggler)
{
    int rank = NOBODY, lead = 0;

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

    if (straggler->count < CT_STRAGGLER_WINDOW || rank == NOBODY)
        return false;
    for (int i = 0; i < CT_STRAGGLER_WINDOW; i++) {
        if (straggler->steps[i].last != rank)
            continue;
        times++;
        cost_us += straggler->steps[i].cost_us;
        took_us += straggler->steps[i].took_us;
    }
    *ret_finding = (struct ct_straggler_finding){
        .rank = rank,
        .share = times * 100 / CT_STRAGGLER_WINDOW,
        .cost = (int)(cost_us * 100 / took_us),
    };
    return ret_finding->share > CT_STRAGGLER_SHARE;
}
