/* See straggler.h. */
#include "train/straggler.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1, UNKNOWN = -2 };

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Who was last in step `step` of the batch, if that cost the others anything worth a word; else
 * NOBODY. */
static int find_last(const struct ct_straggler_sample *samples, int step, int world, float took_us,
                     float *room, float *ret_cost_us)
{
    int last = 0;

    for (int rank = 0; rank < world; rank++) {
        room[rank] = samples[rank].waited_us[step];
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

/* How starved of cores the middle one of a rank's peers is. */
static float peers_starved(const struct ct_straggler_sample *samples, int rank, int world,
                           float *room)
{
    size_t peers = 0;

    for (int i = 0; i < world; i++)
        if (i != rank && samples[i].node == samples[rank].node)
            room[peers++] = samples[i].starved;
    for (int i = 0; peers == 0 && i < world; i++)
        if (i != rank)
            room[peers++] = samples[i].starved;
    qsort(room, peers, sizeof *room, by_size);
    return room[peers / 2];
}

void ct_straggler_add(struct ct_straggler *straggler, int world,
                      const struct ct_straggler_sample *samples, const float *took_us, float *room)
{
    CT_ASSERT(world > 1);
    for (int i = 0; i < CT_STRAGGLER_BATCH; i++) {
        float cost_us = 0;
        int last = find_last(samples, i, world, took_us[i], room, &cost_us);

        straggler->cost_us += last >= 0 ? (double)cost_us : 0;
        if (straggler->warmed_us < CT_STRAGGLER_WARMUP_US) {
            straggler->warmed_us += (double)took_us[i];
            continue;
        }
        if (last == UNKNOWN)
            continue;
        uint32_t at = straggler->count++ % CT_STRAGGLER_WINDOW;
        straggler->steps[at].last = last;
        straggler->steps[at].cost_us = cost_us;
        straggler->steps[at].took_us = took_us[i];
        if (last == NOBODY)
            continue;
        straggler->steps[at].starved_us = samples[last].starved * took_us[i];
        straggler->steps[at].peers_starved_us =
            peers_starved(samples, last, world, room) * took_us[i];
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
    float cost_us = 0, took_us = 0, starved_us = 0, peers_us = 0;

    if (straggler->count < CT_STRAGGLER_WINDOW || rank == NOBODY)
        return false;
    for (int i = 0; i < CT_STRAGGLER_WINDOW; i++) {
        if (straggler->steps[i].last != rank)
            continue;
        times++;
        cost_us += straggler->steps[i].cost_us;
        took_us += straggler->steps[i].took_us;
        starved_us += straggler->steps[i].starved_us;
        peers_us += straggler->steps[i].peers_starved_us;
    }
    *ret_finding = (struct ct_straggler_finding){
        .rank = rank,
        .share = times * 100 / CT_STRAGGLER_WINDOW,
        .cost = (int)(cost_us * 100 / took_us),
    };
    bool oversubscribed = peers_us * 100 > took_us * CT_STRAGGLER_STARVED;
    float excused_us = starved_us - peers_us / 2; /* peers are starved while they wait, too */
    bool stands_out = (cost_us - excused_us) * 100 > took_us * CT_STRAGGLER_COST;
    return ret_finding->share > CT_STRAGGLER_SHARE && (!oversubscribed || stands_out);
}
