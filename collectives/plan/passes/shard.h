/* Rewriting a list so that a rank holds parts: shard.c has the gathers and scatters, shard_update.c
 * the update. Inside of collectives/plan only. */
#ifndef CT_COLL_PLAN_SHARD_H
#define CT_COLL_PLAN_SHARD_H

#include "collectives/plan/passes/passes.h"

/* From the first to the last reader of a bucket's parameters. */
struct ct_shard_interval {
    int bucket, first, last;
    int turn;    /* which run of ops that use the same unit the last one belongs to */
    int full;    /* the gathered bucket, in the new program */
    bool narrow; /* readers only make narrow copies: it is gathered as one */
};

/* What is written whole and kept in parts: gradients in a step, first values at the start. */
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

/* Whether `value` lies in a range of which this rank holds its part: parameters where they are
 * sharded, gradients, moments. Parameters behind flat_bytes do not learn and stay whole. */
bool ct_shard_splits(const struct ct_sharder *s, const struct ct_value *value);

/* Whether an update works on it part by part. */
bool ct_shard_is_flat(const struct ct_sharder *s, int value);

/* Where a bucket lies in the flat range. */
struct ct_range ct_shard_bucket(const struct ct_plan *plan, int bucket);

/* `range` of a flat range as a view in the new program. */
int ct_shard_view(struct ct_sharder *s, int root, struct ct_range range, const char *name);

/* The first value of `kind`: the flat range. */
int ct_shard_root(const struct ct_program *program, enum ct_value_kind kind);

/* This rank's part of a bucket in the sharded range that is `root` in the old list. */
int ct_shard_own(struct ct_sharder *s, int root, int bucket);

void ct_shard_emit(struct ct_sharder *s, int kind, enum ct_axis axis, int in, int out);

/* Op `i` of the old list, which is of the update. */
void ct_shard_update(struct ct_sharder *s, int i);

#endif
