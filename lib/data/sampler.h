/* Which rows make up which batch: pure functions, no state but one integer.
 *
 * The position g counts the samples consumed since the start of training. Epoch g / n (n rows)
 * visits the rows in the order of a permutation keyed by (seed, epoch): a Feistel network over the
 * next power of four, walked until it falls below n. Nothing is stored, any place is reached at
 * once, and a checkpoint holds g alone.
 *
 *   one epoch, n = 22, global batch G = 8           one global batch, W = 2, A = 2, b = 2
 *   |  0 .. 7  |  8 .. 15  | 16 .. 21 + 2 padded |  | rank 0: m0 m0 m1 m1 | rank 1: m0 m0 m1 m1 |
 *
 * A batch never crosses epochs: the last one of an epoch is short, its tail is padded with label
 * -1, and every rank knows its count of valid rows. Rank r, micro-batch m reads the contiguous
 * leaf (r * A + m) * b .. of the global batch, so W ranks with A micro-batches see the leaves of
 * one rank with W * A. */
#ifndef CT_DATA_SAMPLER_H
#define CT_DATA_SAMPLER_H

#include "data/dataset.h"

struct ct_sampler {
    uint64_t rows; /* n > 0 */
    uint64_t seed;
    uint64_t global_batch; /* G > 0: rows a step takes over all ranks */
    bool shuffle;          /* false: file order, for evaluation */
};

/* One global batch. */
struct ct_sampler_batch {
    uint64_t position; /* g of its first row */
    uint64_t epoch;
    uint64_t offset; /* of its first row within the epoch */
    uint64_t valid;  /* its rows; less than G at the end of an epoch */
    uint64_t next;   /* g of the batch behind it */
    uint64_t bad;    /* ct_sampler_fill: 1 + the first row that held a bad id; 0: none */
};

/* A rank's part of every global batch: leaves of `micro` rows. world * accumulation * micro = G. */
struct ct_share {
    uint32_t rank;
    uint32_t world;
    uint32_t accumulation; /* A */
    uint32_t micro;        /* b */
};

/* Caller's memory for one share: x [A * b, width] (f32 or i32, as the dataset's rows are), labels
 * [A * b, labels_per_row]. */
struct ct_batch_buffer {
    void *x;
    int32_t *labels;
};

/* Return the place of `index` (< n) in a permutation of 0 .. n-1 keyed by `key`. */
uint64_t ct_permute(uint64_t index, uint64_t n, uint64_t key);

/* Return the row that stands at `offset` (< n) of `epoch`. */
uint64_t ct_sampler_row(const struct ct_sampler *sampler, uint64_t epoch, uint64_t offset);

/* Return the global batch that starts at `position`. */
struct ct_sampler_batch ct_sampler_batch(const struct ct_sampler *sampler, uint64_t position);

/* Return the number of batches in an epoch: ceil(n / G). */
uint64_t ct_sampler_batches(const struct ct_sampler *sampler);

/* Return the number of rows of the rank's share: accumulation * micro. */
size_t ct_share_rows(const struct ct_share *share);

/* Copy the share's rows of the batch at `position`. Rows beyond the valid ones get zeros and labels
 * -1. Returns the batch. */
struct ct_sampler_batch ct_sampler_fill(const struct ct_sampler *sampler,
                                        const struct ct_dataset *dataset,
                                        const struct ct_share *share, uint64_t position,
                                        const struct ct_batch_buffer *into);

#endif
