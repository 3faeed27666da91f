/* Lines of many ranks as one stream: equal lines of several ranks become one.
 *
 *      rank 0: "I am 0" "epoch 1"   rank 1: "I am 1" "epoch 1"  "loaded"   rank 2: "epoch 1"
 *                              |
 *      [0] I am 0
 *      [1] I am 1
 *      [0-2] x3: epoch 1
 *      [1] loaded
 *
 * A line waits for its equals until its time is over or too many wait. The lines of each rank stay
 * in their order: a line joins an equal one behind all waiting lines of its rank, or one that can
 * wait until after them. Pure; the time is told. Each line costs a look into a hash table. */
#ifndef CT_OUTPUT_FOLD_H
#define CT_OUTPUT_FOLD_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_FOLD_MS = 200,     /* that a line waits */
    CT_FOLD_LINES = 1024, /* different ones that wait */
    CT_FOLD_RANGES = 16,  /* of ranks that are named; further ones are counted */
};

struct ct_fold;

/* A line that comes out: `ranks` is "0-2" or "0,3,5-7", `count` how many ranks. */
struct ct_folded {
    const char *ranks;
    uint32_t count;
    uint32_t rank; /* the lowest */
    const char *text;
    size_t size;
};

/* Create for ranks 0 .. ranks - 1 (a line of another rank is never folded); a line of `complete` of
 * them waits no longer. `put` receives lines from inside of the calls. NULL without memory. */
struct ct_fold *ct_fold_new(uint32_t ranks, uint32_t complete,
                            void (*put)(void *context, const struct ct_folded *line),
                            void *context);
void ct_fold_free(struct ct_fold *fold);

/* Take a line. Without memory it comes out at once, before those that wait. */
void ct_fold_add(struct ct_fold *fold, uint64_t now_ms, uint32_t rank, const char *text,
                 size_t size);

/* Put out what has waited long enough; `all`: everything. */
void ct_fold_flush(struct ct_fold *fold, uint64_t now_ms, bool all);

#endif
