/* See conform.h. In place and not, blocking and not, each root take turns. What a call is given and
 * what has to come of it: deed.h. */
#include "conform.h"

#include "base/assert.h"
#include "deed.h"
#include "reference.h"
#include "sanitized.h"

#include <string.h>

static const size_t counts[] = {0, 1, 7, 131};
static const enum ct_reduce_mode modes[] = {CT_MODE_FAST, CT_MODE_REPRODUCIBLE, CT_MODE_INVARIANT};

/* Each of the verbs. */
static int perform(struct ct_group *group, struct deed *deed, const enum deed_verb *verbs,
                   size_t count)
{
    int line = 0;

    for (size_t i = 0; i < count && line == 0; i++) {
        deed->verb = verbs[i];
        deed->seed++;
        deed->root = (int)(deed->seed % (uint64_t)ct_group_size(group));
        deed->in_place = !deed->uneven && deed->seed % 3 == 1;
        deed->blocking = deed->seed % 2 == 0;
        deed->symmetric = deed->seed % 5 == 0;
        line = deed_perform(group, deed);
    }
    return line;
}

static int check_reductions(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_REDUCE, DEED_REDUCE_SCATTER, DEED_REDUCE};
    int line = 0;

    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            deed->reduce = (enum ct_reduce)r;
            deed->mode = modes[m];
            if (reference_supports(deed->dtype, deed->reduce))
                line = perform(group, deed, verbs, CT_COUNT(verbs));
        }
    return line;
}

/* One after the other, each to its right. */
static int check_messages(struct ct_group *group, struct deed *deed)
{
    int world = ct_group_size(group), line = 0;

    deed->verb = DEED_MESSAGE;
    for (int i = 0; world > 1 && i < world && line == 0; i++) {
        deed->root = i;
        deed->peer = (i + 1) % world;
        if (deed_concerns(deed, ct_group_rank(group)))
            line = deed_perform(group, deed);
    }
    return line;
}

static int check_moves(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_GATHER, DEED_BROADCAST, DEED_GATHER,
                                           DEED_SCATTER,    DEED_EXCHANGE,  DEED_ALL_TO_ALL,
                                           DEED_BARRIER};
    int line = 0;

    for (int root = 0; root < ct_group_size(group) && line == 0; root++)
        line = perform(group, deed, verbs, CT_COUNT(verbs));
    return line != 0 ? line : check_messages(group, deed);
}

/* The v forms. */
static int check_parts(struct ct_group *group, struct deed *deed)
{
    static const enum deed_verb verbs[] = {DEED_ALL_GATHER, DEED_ALL_TO_ALL};
    static const enum deed_verb reducing[] = {DEED_REDUCE_SCATTER};
    int line = 0;

    deed->uneven = true;
    line = perform(group, deed, verbs, CT_COUNT(verbs));
    for (int r = 0; r < CT_REDUCE_COUNT; r++)
        for (size_t m = 0; m < CT_COUNT(modes) && line == 0; m++) {
            deed->reduce = (enum ct_reduce)r;
            deed->mode = modes[m];
            if (reference_supports(deed->dtype, deed->reduce))
                line = perform(group, deed, reducing, CT_COUNT(reducing));
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
                     int (*check)(struct ct_group *group, struct deed *deed))
{
    int line = 0;

    for (int dtype = 0; dtype < CT_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < CT_COUNT(counts) && line == 0; s++) {
            struct deed deed = {.dtype = (enum ct_dtype)dtype,
                                .count = counts[s],
                                .seed = (uint64_t)dtype * 1000 + s};

            if (takes(group, deed.dtype, deed.count))
                line = check(group, &deed);
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
    static const enum deed_verb reductions[] = {DEED_ALL_REDUCE, DEED_REDUCE};
    static const enum deed_verb parts[] = {DEED_REDUCE_SCATTER, DEED_ALL_GATHER, DEED_ALL_TO_ALL};
    struct deed deed = {.dtype = CT_F32, .count = 200007, .mode = CT_MODE_REPRODUCIBLE};
    int line = perform(group, &deed, reductions, CT_COUNT(reductions));

    deed.dtype = CT_BF16;
    deed.mode = CT_MODE_INVARIANT;
    line = line != 0 ? line : perform(group, &deed, reductions, CT_COUNT(reductions));
    deed.count = 100001;
    deed.uneven = true;
    line = line != 0 ? line : perform(group, &deed, parts, CT_COUNT(parts));
    deed.count /= (size_t)ct_group_size(group);
    deed.uneven = false;
    line = line != 0 ? line : perform(group, &deed, parts, CT_COUNT(parts));
    return line != 0 ? line : check_moves(group, &deed);
}
