/* Sharding: rewriting a list so that a rank holds shards. shard.c has the gathers and scatters,
 * shard_update.c the update. Inside of collectives/plan only. */
#ifndef CT_COLL_PLAN_SHARD_H
#define CT_COLL_PLAN_SHARD_H

#include "collectives/plan/passes/passes.h"

/* From the first to the last reader of a bucket's parameters. */
struct ct_shard_interval {
    int bucket, first, last;
    int unit_run; /* number of the run of ops on the same unit that the last one belongs to */
    int full;     /* the gathered bucket, in the new program */
    bool narrow;  /* readers only make narrow copies: it is gathered as one */
};

/* A bucket that is written unsharded and kept sharded: gradients in a step, initial values. */
struct ct_shard_target {
    int first_writer, last_writer;
    int whole; /* the temporary, in the new program; CT_NONE until its first writer */
};

struct ct_sharder {
    const struct ct_plan *plan;
    const struct ct_program *from;
    struct ct_program *to;
    enum ct_value_kind written; /* the kind of flat range that `targets` is about */
    int *map;                   /* by value: the same in `to`; UNMAPPED for views of flat ranges */
    struct ct_shard_interval *intervals;
    int interval_count, gathered;    /* `gathered`: intervals whose gather is emitted */
    int *current;                    /* by bucket: its interval at the present op */
    struct ct_shard_target *targets; /* by bucket */
    int *last_update;                /* by bucket: the op that changes its parameters last */
};

/* Return whether `value` lies in a range of which this rank holds its shard: parameters where they
 * are sharded, gradients, moments. Parameters behind flat_bytes do not learn and stay unsharded. */
bool ct_shard_splits(const struct ct_sharder *s, const struct ct_value *value);

/* Return whether an update works on it shard by shard. */
bool ct_shard_is_flat(const struct ct_sharder *s, int value);

/* Return the bytes of a bucket in the flat range. */
struct ct_range ct_shard_bucket(const struct ct_plan *plan, int bucket);

/* Add a view of `range` of a flat range to the new program. Return the value. */
int ct_shard_view(struct ct_sharder *s, int root, struct ct_range range, const char *name);

/* Return the first value of `kind`: the flat range. */
int ct_shard_root(const struct ct_program *program, enum ct_value_kind kind);

/* Add a view of this rank's shard of a bucket, in the sharded range that is `root` in the old list.
 * Return the value. */
int ct_shard_own(struct ct_sharder *s, int root, int bucket);

/* Emit an op of communication over `axis`. */
void ct_shard_emit(struct ct_sharder *s, int kind, enum ct_axis axis, int in, int out);

/* Rewrite op `i` of the old list, which is of the update. */
void ct_shard_update(struct ct_sharder *s, int i);

#endif
