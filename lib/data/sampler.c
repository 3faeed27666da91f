/* See sampler.h. */
#include "data/sampler.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <assert.h>
#include <string.h>

enum { FEISTEL_ROUNDS = 6 };

/* One pass of a balanced Feistel network over 2 * half_bits bits: a bijection for any key. */
static uint64_t feistel(uint64_t value, unsigned half_bits, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;

    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = ct_mix64(key ^ ct_mix64(right + (round << 48) + 1)) & mask;
        uint64_t swapped = left ^ mixed;
        left = right;
        right = swapped;
    }
    return left << half_bits | right;
}

uint64_t ct_permute(uint64_t index, uint64_t n, uint64_t key)
{
    unsigned half_bits = 1;

    CT_ASSERT(index < n && n <= (uint64_t)1 << 62);
    while ((uint64_t)1 << (2 * half_bits) < n)
        half_bits++;
    /* The walk follows a cycle of the bijection that holds `index` < n, so it ends; the domain is
     * at most 4 n, so it takes less than 4 passes on average. */
    do {
        index = feistel(index, half_bits, key);
    } while (index >= n);
    return index;
}

uint64_t ct_sampler_row(const struct ct_sampler *sampler, uint64_t epoch, uint64_t offset)
{
    if (!sampler->shuffle)
        return offset;
    return ct_permute(offset, sampler->rows, ct_mix64(sampler->seed ^ ct_mix64(epoch + 1)));
}

struct ct_sampler_batch ct_sampler_batch(const struct ct_sampler *sampler, uint64_t position)
{
    CT_ASSERT(sampler->rows > 0 && sampler->global_batch > 0);
    uint64_t offset = position % sampler->rows;
    uint64_t valid = CT_MIN(sampler->global_batch, sampler->rows - offset);

    return (struct ct_sampler_batch){.position = position,
                                     .epoch = position / sampler->rows,
                                     .offset = offset,
                                     .valid = valid,
                                     .next = position + valid};
}

uint64_t ct_sampler_batches(const struct ct_sampler *sampler)
{
    return (sampler->rows + sampler->global_batch - 1) / sampler->global_batch;
}

size_t ct_share_rows(const struct ct_share *share)
{
    return (size_t)share->accumulation * share->micro;
}

struct ct_sampler_batch ct_sampler_fill(const struct ct_sampler *sampler,
                                        const struct ct_dataset *dataset,
                                        const struct ct_share *share, uint64_t position,
                                        const struct ct_batch_buffer *into)
{
    struct ct_sampler_batch batch = ct_sampler_batch(sampler, position);
    size_t rows = ct_share_rows(share);
    size_t row_bytes = dataset->width * sizeof(float);
    size_t labels = dataset->labels_per_row;

    static_assert(sizeof(float) == sizeof(int32_t), "features and ids have the same size");
    CT_ASSERT(sampler->rows == dataset->rows && share->rank < share->world);
    CT_ASSERT(rows * share->world == sampler->global_batch);
    for (size_t i = 0; i < rows; i++) {
        void *x = (char *)into->x + i * row_bytes;
        uint64_t in_batch = share->rank * rows + i;
        if (in_batch >= batch.valid) {
            memset(x, 0, row_bytes);
            memset(into->labels + i * labels, -1, labels * sizeof *into->labels);
            continue;
        }
        uint64_t row = ct_sampler_row(sampler, batch.epoch, batch.offset + in_batch);
        if (!ct_dataset_row(dataset, row, x, into->labels + i * labels) && batch.bad == 0)
            batch.bad = row + 1;
    }
    return batch;
}
