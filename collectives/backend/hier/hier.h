/* Backend hier: a group of several nodes with equally many ranks, composed of other groups.
 *
 *            node 0          node 1                    local    the ranks of a node (shm)
 *          0   1   2       3   4   5                   across   the ranks with the same place in
 *          |   |   |       |   |   |                            their node, a column (tcp; ucx
 *          +---|---|-------+   |   |  column 0                  where all have an RDMA device)
 *              +---|-----------+   |  column 1         flat     all ranks (as across)
 *                  +---------------+  column 2
 *
 * A collective is split into chunks; each chunk passes phases, alternately on one level and on the
 * other, and several chunks are in flight, so that memory and wire work at the same time:
 *
 *   all_reduce       local reduce_scatter, across all_reduce of the own share, local all_gather
 *     small          local all_reduce, across all_reduce (each column the same)
 *     BF16, F16      as the first, in F32: widened before, rounded once before the all_gather
 *   reduce           local reduce_scatter, across reduce to the root's node, local gather there
 *   reduce_scatter   local reduce_scatter for each node's parts, across reduce_scatter
 *   all_gather       across all_gather, local all_gather of each node's parts
 *   broadcast        local scatter at the root's node, across broadcast, local all_gather
 *     small          across broadcast in the root's column, local broadcast
 *   barrier          local barrier, across barrier
 *
 * So data on the wire is divided by the number of ranks per node, and all of them carry it. The
 * flat group carries the rest: gather, scatter, all_to_all; and reductions that would have other
 * bits in phases:
 *
 *   wider partial sums (I16, I8, U8; BF16, F16 but in all_reduce), PREMUL_SUM    flat
 *   floats, REPRODUCIBLE                                         flat
 *   floats, INVARIANT         levels where ranks are numbered node by node, a power of two a node:
 *                             a node's sum is then a branch of the tree; else flat
 *   FAST, integers, MAX, MIN                                     levels
 *
 * A send or recv within a node is the local group's, between nodes the flat one's. */
#ifndef CT_COLL_HIER_H
#define CT_COLL_HIER_H

#include "group/group.h"

enum ct_level { CT_LEVEL_LOCAL, CT_LEVEL_ACROSS, CT_LEVELS };

enum { CT_HIER_SETS = 3, CT_HIER_ELEMENT_MAX = 8 };

/* One level and its progress: at most one call of its group is under way. Calls come in the order
 * of (step, phase, index); chunk k is in phase p in step k + p. */
struct ct_hier_level {
    struct ct_group *group;
    struct ct_task task;
    bool busy;
    size_t step;
    int phase, index;
    size_t *counts, *offsets; /* of the call's parts */
};

struct ct_hier {
    int rank, size;
    int nodes, locals;       /* their number; ranks a node */
    int node, local;         /* this rank's */
    int *node_of, *local_of; /* a rank's */
    int *rank_at;            /* [node][local] */
    bool in_order;           /* ranks are numbered node by node */
    struct ct_tuning tuning;

    struct ct_group *flat;
    struct ct_hier_level levels[CT_LEVELS];
    size_t chunk, chunks; /* of the collective under way: elements of one, how many */
    char *scratch;        /* CT_HIER_SETS times tuning.hier_piece_bytes */
    bool waits_local;     /* since the last arm: a call could not advance there */
    bool waits_tcp[2];    /* across, flat */
};

/* Return the rank at a place. */
static inline int ct_hier_rank(const struct ct_hier *hier, int node, int local)
{
    return hier->rank_at[node * hier->locals + local];
}

/* Return whether the flat group carries this collective. */
bool ct_hier_is_flat(const struct ct_hier *hier, const struct ct_call *call);

/* Do as ct_backend.progress, for collectives that the levels carry. */
int ct_hier_collective(struct ct_hier *hier, struct ct_task *task, struct ct_error *err);

#endif
