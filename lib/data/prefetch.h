/* A thread that fills the next batch while the current one is used: two slots, handed back and
 * forth in order.
 *
 *   reader thread:  fill slot 0 | fill slot 1 | wait ... | fill slot 0 | ...
 *   caller:         wait        | use slot 0             | use slot 1  | ...
 *
 * The caller owns the dataset, which is only read, and must keep it until ct_prefetch_free. All
 * calls come from one thread. */
#ifndef CT_DATA_PREFETCH_H
#define CT_DATA_PREFETCH_H

#include "data/sampler.h"

struct ct_prefetch;

struct ct_prefetch_options {
    struct ct_sampler sampler;
    struct ct_share share;
    uint64_t position; /* of the first batch */
};

/* One filled slot; valid until the next call of ct_prefetch_next. */
struct ct_prefetch_batch {
    const void *x;                 /* [A * b, width], f32 or i32 */
    const int32_t *labels;         /* [A * b, labels_per_row], -1 for padding */
    struct ct_sampler_batch batch; /* which global batch, how many valid rows in all */
};

/* Start reading `dataset` from options->position on. CT_ENOMEM or CT_EOS. */
int ct_prefetch_new(struct ct_prefetch **ret, const struct ct_dataset *dataset,
                    const struct ct_prefetch_options *options, struct ct_error *err);

/* Return the next batch, waiting for it if necessary; the one before it is released. It never ends:
 * epochs repeat. */
struct ct_prefetch_batch ct_prefetch_next(struct ct_prefetch *prefetch);

/* Stop the thread and free the slots. NULL is ignored. */
void ct_prefetch_free(struct ct_prefetch *prefetch);

#endif
