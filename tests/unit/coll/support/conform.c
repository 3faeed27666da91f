/* See conform.h. In place and not, blocking and not, each root take turns. What a call is given and
 * what has to come of it: operation.h. */
#include "conform.h"

#include "base/assert.h"
#include "operation.h"
#include "reference.h"
#include "sanitized.h"

#include <string.h>

static const size_t counts[] = {0, 1, 7, 131};
static const enum ct_reduce_mode modes[] = {CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};

/* Each of the verbs. */
static int perform(struct ct_group *group, struct operation *op, const enum operation_verb *verbs,
                   size_t count)
{
    int line = 0;

    for (size_t i = 0; i < count && line == 0; i++) {
        op->verb = verbs[i];
        op->seed++;
        op->root = (int)(op->seed % (uint64_t)ct_group_size(group));
        op->in_place = !op->uneven && op->seed % 3 == 1;
        op->blocking = op->seed % 2 == 0;
        op->symmetric = op->seed % 5 == 0;
        line = operation_perform(group, op);
    }
    return line;
}

static int check_reductions(struct ct_group *group, struct operation *op)
{
    static const enum operation_verb verbs[] = {OPERATION_ALL_REDUCE, OPERATION_REDUCE_SCATTER,
                                                OPERATION_REDUCE};
    int line = 0;

    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            op->reduce = (enum ct_reduce)r;
            op->mode = modes[m];
            if (reference_supports(op->dtype, op->reduce))
                line = perform(group, op, verbs, CT_COUNT(verbs));
        }
    return line;
}

/* One after the other, each to its right. */
static int check_messages(struct ct_group *group, struct operation *op)
{
    int world = ct_group_size(group), line = 0;

    op->verb = OPERATION_MESSAGE;
    for (int i = 0; world > 1 && i < world && line == 0; i++) {
        op->root = i;
        op->peer = (i + 1) % world;
        if (operation_concerns(op, ct_group_rank(group)))
            line = operation_perform(group, op);
    }
    return line;
}

/* So that each root takes its turn at each verb where there are as many `turns` as ranks. */
static int check_moves_of(struct ct_group *group, struct operation *op, int turns)
{
    static const enum operation_verb verbs[] = {
        OPERATION_ALL_GATHER, OPERATION_BROADCAST,  OPERATION_GATHER, OPERATION_SCATTER,
        OPERATION_EXCHANGE,   OPERATION_ALL_TO_ALL, OPERATION_BARRIER};
    int line = 0;

    for (int turn = 0; turn < turns && line == 0; turn++)
        line = perform(group, op, verbs, CT_COUNT(verbs));
    return line != 0 ? line : check_messages(group, op);
}

static int check_moves(struct ct_group *group, struct operation *op)
{
    return check_moves_of(group, op, ct_group_size(group));
}

/* The v forms. */
static int check_parts(struct ct_group *group, struct operation *op)
{
    static const enum operation_verb verbs[] = {OPERATION_ALL_GATHER, OPERATION_ALL_TO_ALL};
    static const enum operation_verb reducing[] = {OPERATION_REDUCE_SCATTER};
    int line = 0;

    op->uneven = true;
    line = perform(group, op, verbs, CT_COUNT(verbs));
    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            op->reduce = (enum ct_reduce)r;
            op->mode = modes[m];
            if (reference_supports(op->dtype, op->reduce))
                line = perform(group, op, reducing, CT_COUNT(reducing));
        }
    return line;
}

/* Small worlds take every type and size, on each backend. In larger ones, where threads that take
 * turns take the time, and under sanitizers, the largest size comes in one type of each width, two
 * of which have sums that are wider than they are, or, on the smallest layout of hier, in every
 * type; the others in one type. */
static bool takes(const struct ct_group *group, enum ct_dtype dtype, size_t count)
{
    int world = ct_group_size(group);

    if (world <= (SANITIZED ? 1 : 3) || dtype == CT_F32)
        return true;
    if (count != counts[CT_COUNT(counts) - 1])
        return false;
    return dtype == CT_BF16 || dtype == CT_I8 || dtype == CT_I64 ||
           (world == 4 && strcmp(ct_group_backend(group), "hier") == 0);
}

/* `check` with the types and sizes that it takes. */
static int check_all(struct ct_group *group,
                     int (*check)(struct ct_group *group, struct operation *op))
{
    int line = 0;

    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < CT_COUNT(counts) && line == 0; s++) {
            struct operation op = {.dtype = (enum ct_dtype)dtype,
                                   .count = counts[s],
                                   .seed = (uint64_t)dtype * 1000 + s};

            if (takes(group, op.dtype, op.count))
                line = check(group, &op);
        }
    return line;
}

int conform_reductions(struct ct_group *group)
{
    return check_all(group, check_reductions);
}

int conform_moves(struct ct_group *group)
{
    return check_all(group, check_moves);
}

int conform_parts(struct ct_group *group)
{
    return check_all(group, check_parts);
}

int conform_large(struct ct_group *group)
{
    static const enum operation_verb reductions[] = {OPERATION_ALL_REDUCE, OPERATION_REDUCE};
    static const enum operation_verb parts[] = {OPERATION_REDUCE_SCATTER, OPERATION_ALL_GATHER,
                                                OPERATION_ALL_TO_ALL};
    struct operation op = {.dtype = CT_F32, .count = 200007, .mode = CT_MODE_REPRODUCIBLE};
    int line = perform(group, &op, reductions, CT_COUNT(reductions));

    op.dtype = CT_BF16;
    op.mode = CT_MODE_INVARIANT;
    line = line != 0 ? line : perform(group, &op, reductions, CT_COUNT(reductions));
    op.count = 100001;
    op.uneven = true;
    line = line != 0 ? line : perform(group, &op, parts, CT_COUNT(parts));
    op.count /= (size_t)ct_group_size(group);
    op.uneven = false;
    line = line != 0 ? line : perform(group, &op, parts, CT_COUNT(parts));
    /* Every root takes its turn in small ones. In three turns each verb is once in place, blocks
     * and does not. */
    return line != 0 ? line : check_moves_of(group, &op, CT_MIN(3, ct_group_size(group)));
}
