/* Where all ranks of a round live, told by runs: so many nodes, each with so many workers.
 *
 *     runs        3 x 8 workers     2 x 4 workers
 *     node        0   1   2         3   4
 *     ranks       0-7 8-15 16-23    24-27 28-31
 *
 * Jobs are of one kind of node as a rule, and so have one run whatever their size; at worst each
 * node is a run of its own. Pure; costs are of the number of runs. */
#ifndef CT_WIRE_NODE_RUNS_H
#define CT_WIRE_NODE_RUNS_H

#include "wire/wire.h"

#include <stdbool.h>

struct ct_node_runs {
    const struct ct_wire_run *data;
    uint32_t count;
};

/* Append a node to `runs`, which has room for one more run. The role is not copied. */
void ct_node_runs_add(struct ct_wire_run *runs, uint32_t *count, uint32_t slots, const char *role);

/* Do they have exactly so many nodes and ranks, and is none without nodes or workers? */
bool ct_node_runs_fit(struct ct_node_runs runs, uint32_t nodes, uint32_t world);

/* Return the run of a node (below the sum of `nodes`), and its first rank. */
const struct ct_wire_run *ct_node_runs_find(struct ct_node_runs runs, uint32_t node,
                                            uint32_t *ret_first_rank);

/* Return the node of a rank; -1 when there is no such rank. */
int32_t ct_node_runs_node_of(struct ct_node_runs runs, int64_t rank);

#endif
