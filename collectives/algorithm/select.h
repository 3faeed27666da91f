/* Selection of the algorithm for a call; nothing else decides it.
 *
 *     select.def ───> struct ct_tuning ───> ct_select(tuning, topology, call) ───> an algorithm
 *     a row a size    those of a group      rules in order: the first that fits
 *
 * Pure. All members of a group have the same tuning and see the same call, so they choose the same
 * algorithm. Sizes affect speed only: in the modes REPRODUCIBLE and INVARIANT all algorithms for a
 * call give the same bits.
 *
 *   topology    ranks that                              algorithms (MESH: step_schedule.h)
 *   SYMMETRIC   share memory, the call's buffers, too   IN_PLACE; or as SHARED
 *   SHARED      share memory                            FLAT, PIPELINE, ..., STAGED
 *   DOMAINS     share memory, a few of them a cache     DOMAINS; or as SHARED
 *   MESH        are connected each with each            FLAT, DIRECT, RING, DOUBLING, ...
 *   LEVELS      are on several nodes                    COLUMNS, LEVELS */
#ifndef CT_COLL_ALGORITHM_SELECT_H
#define CT_COLL_ALGORITHM_SELECT_H

#include "algorithm/call.h"

#include <stddef.h>

/* Zero: the default of select.def, or of the machine's table. */
struct ct_tuning {
#define CT_TUNABLE(scope, name, otherwise, least, most, text) size_t name;
#include "algorithm/select.def"
#undef CT_TUNABLE
    bool inner; /* a part of another group: not recorded */
};

enum ct_tunable {
#define CT_TUNABLE(scope, name, otherwise, least, most, text) CT_SIZE_##name,
#include "algorithm/select.def"
#undef CT_TUNABLE
    CT_TUNABLES
};
_Static_assert(offsetof(struct ct_tuning, inner) == CT_TUNABLES * sizeof(size_t),
               "sizes come first, in their order");

enum ct_algorithm {
    CT_ALGO_NONE, /* not chosen yet */

    /* MESH: schedules (step_schedule.h) */
    CT_ALGO_FLAT,
    CT_ALGO_DIRECT,
    CT_ALGO_DIRECT_SCATTER,
    CT_ALGO_DIRECT_GATHER,
    CT_ALGO_RING,
    CT_ALGO_RING_SCATTER,
    CT_ALGO_RING_GATHER,
    CT_ALGO_DOUBLING,
    CT_ALGO_CHAIN,
    CT_ALGO_BINOMIAL,
    CT_ALGO_DISSEMINATION,
    CT_ALGO_FLAT_ROOT,
    CT_ALGO_DIRECT_ROOT,
    CT_ALGO_GATHER,
    CT_ALGO_SCATTER,
    CT_ALGO_EXCHANGE,
    CT_ALGO_SWAP,
    CT_ALGO_BRUCK,
    CT_ALGO_BRUCK_GATHER,
    CT_ALGO_ROUTED,
    CT_ALGO_ROUTED_SCATTER,
    CT_ALGO_ROUTED_ROOT,
    CT_ALGO_BINOMIAL_ROOT,
    CT_ALGO_BINOMIAL_GATHER,
    CT_ALGO_BINOMIAL_SCATTER,
    CT_ALGO_HALVING,
    CT_ALGO_DOUBLE_TREE,
    CT_ALGO_DOUBLE_TREE_BROADCAST,
    CT_ALGO_TREE_ROOT,
    CT_ALGO_CHAIN_REDUCE,
    CT_ALGO_CHAIN_ROOT,

    /* SHARED (FLAT and FLAT_ROOT, too) and SYMMETRIC: local_collective.c, local_direct.c */
    CT_ALGO_FLAGS,
    CT_ALGO_STAGED,
    CT_ALGO_PIPELINE,
    CT_ALGO_PIPELINE_ROOT,
    CT_ALGO_IN_PLACE,
    CT_ALGO_DOMAINS, /* local_domains.c */
    CT_ALGO_DOMAINS_IN_PLACE,

    /* LEVELS: hier_collective.c */
    CT_ALGO_COLUMNS,
    CT_ALGO_LEVELS,
    CT_ALGO_COUNT
};

enum ct_topology {
    CT_TOPOLOGY_SYMMETRIC,
    CT_TOPOLOGY_SHARED,
    CT_TOPOLOGY_DOMAINS,
    CT_TOPOLOGY_MESH,
    CT_TOPOLOGY_LEVELS,
    CT_TOPOLOGIES
};

/* Return a name for people. */
const char *ct_algorithm_name(enum ct_algorithm algorithm);

/* Return `given` with defaults in place of zeros. NULL: all defaults. */
struct ct_tuning ct_tuning_complete(const struct ct_tuning *given);

/* Select the algorithm of a collective that ct_call_complete has checked, by a complete tuning. */
enum ct_algorithm ct_select(const struct ct_tuning *tuning, enum ct_topology topology,
                            const struct ct_call *call);

#endif
