/* See node_runs.h. */
#include "wire/node_runs.h"

#include "base/assert.h"

#include <string.h>

void ct_node_runs_add(struct ct_wire_run *runs, uint32_t *count, uint32_t slots, const char *role)
{
    struct ct_wire_run *next = &runs[*count];

    if (*count > 0 && next[-1].slots == slots && strcmp(next[-1].role, role) == 0) {
        next[-1].nodes++;
        return;
    }
    *next = (struct ct_wire_run){.nodes = 1, .slots = slots, .role = role};
    (*count)++;
}

bool ct_node_runs_fit(struct ct_node_runs runs, uint32_t nodes, uint32_t world)
{
    uint64_t sum_nodes = 0, sum_slots = 0;

    for (uint32_t i = 0; i < runs.count; i++) {
        if (runs.data[i].nodes == 0 || runs.data[i].slots == 0)
            return false;
        sum_nodes += runs.data[i].nodes;
        sum_slots += (uint64_t)runs.data[i].nodes * runs.data[i].slots;
        if (sum_nodes > nodes || sum_slots > world)
            return false;
    }
    return sum_nodes == nodes && sum_slots == world;
}

const struct ct_wire_run *ct_node_runs_find(struct ct_node_runs runs, uint32_t node,
                                            uint32_t *ret_first_rank)
{
    const struct ct_wire_run *run = runs.data;
    uint32_t rank = 0;

    CT_ASSERT(runs.count > 0);
    for (; node >= run->nodes; run++) {
        CT_ASSERT(run + 1 < runs.data + runs.count);
        node -= run->nodes;
        rank += run->nodes * run->slots;
    }
    *ret_first_rank = rank + node * run->slots;
    return run;
}

int32_t ct_node_runs_node_of(struct ct_node_runs runs, int64_t rank)
{
    int64_t before = 0, first = 0;

    for (uint32_t i = 0; i < runs.count; i++) {
        const struct ct_wire_run *run = &runs.data[i];
        int64_t ranks = (int64_t)run->nodes * run->slots;

        if (rank >= first && rank < first + ranks)
            return (int32_t)(before + (rank - first) / run->slots);
        before += run->nodes;
        first += ranks;
    }
    return -1;
}
