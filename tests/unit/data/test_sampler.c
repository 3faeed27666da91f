/* The sampler: exact permutations, epochs, padding, and the same leaves for every world. */
#include "data/sampler.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sampler, .timeout = 30);

Test(sampler, every_epoch_visits_every_row_once)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1437, 4097};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint64_t n = sizes[s];
        struct ct_sampler sampler = {.rows = n, .seed = 7, .global_batch = 4, .shuffle = true};
        unsigned char *seen = calloc(n, 1);
        cr_assert_not_null(seen);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            for (uint64_t i = 0; i < n; i++) {
                uint64_t row = ct_sampler_row(&sampler, epoch, i);
                cr_assert_lt(row, n);
                seen[row]++;
            }
            for (uint64_t i = 0; i < n; i++)
                cr_assert_eq(seen[i], epoch + 1, "n %lu epoch %lu row %lu", n, epoch, i);
        }
        free(seen);
    }
}

/* How many of the first `n` places hold the same row under two orders. */
static uint64_t agreements(uint64_t n, uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b,
                           uint64_t epoch_b)
{
    struct ct_sampler a = {.rows = n, .seed = seed_a, .global_batch = 4, .shuffle = true};
    struct ct_sampler b = {.rows = n, .seed = seed_b, .global_batch = 4, .shuffle = true};
    uint64_t same = 0;

    for (uint64_t i = 0; i < n; i++)
        same += ct_sampler_row(&a, epoch_a, i) == ct_sampler_row(&b, epoch_b, i);
    return same;
}

Test(sampler, epochs_and_seeds_change_the_order_and_repeat_themselves)
{
    /* Two independent permutations agree in one place on average; 12 is beyond chance. */
    cr_assert_eq(agreements(1000, 1, 0, 1, 0), 1000);
    cr_assert_lt(agreements(1000, 1, 0, 1, 1), 12);
    cr_assert_lt(agreements(1000, 1, 0, 2, 0), 12);
    cr_assert_lt(agreements(1000, 1, 1, 2, 0), 12);
    cr_assert_lt(agreements(1000, 0, 0, 0, 1), 12);
}

Test(sampler, rows_land_evenly_over_the_places)
{
    /* Row 0 of 16 over 16,000 epochs: each place 1000 times, give or take 5 sigma (31 each). */
    unsigned counts[16] = {0};

    for (uint64_t epoch = 0; epoch < 16000; epoch++) {
        struct ct_sampler sampler = {.rows = 16, .seed = 3, .global_batch = 4, .shuffle = true};
        counts[ct_sampler_row(&sampler, epoch, 0)]++;
    }
    for (int i = 0; i < 16; i++)
        cr_assert(counts[i] > 845 && counts[i] < 1155, "place %d: %u", i, counts[i]);
}

Test(sampler, batches_stay_within_their_epoch)
{
    struct ct_sampler sampler = {.rows = 22, .seed = 1, .global_batch = 8, .shuffle = true};
    static const struct ct_sampler_batch want[] = {
        {0, 0, 0, 8, 8, 0}, {8, 0, 8, 8, 16, 0}, {16, 0, 16, 6, 22, 0}, {22, 1, 0, 8, 30, 0}};
    uint64_t position = 0;

    cr_assert_eq(ct_sampler_batches(&sampler), 3);
    for (size_t i = 0; i < 4; i++) {
        struct ct_sampler_batch batch = ct_sampler_batch(&sampler, position);
        cr_assert_eq(memcmp(&batch, &want[i], sizeof batch), 0, "batch %zu", i);
        position = batch.next;
    }
}

enum { ROWS = 22, WIDTH = 2, GLOBAL = 8 };

static struct ct_dataset counting_dataset(void)
{
    static float features[ROWS * WIDTH];
    static int32_t labels[ROWS];

    for (int i = 0; i < ROWS; i++) {
        features[i * WIDTH] = (float)i;
        features[i * WIDTH + 1] = (float)-i;
        labels[i] = i;
    }
    return (struct ct_dataset){.features = features,
                               .labels = labels,
                               .rows = ROWS,
                               .width = WIDTH,
                               .labels_per_row = 1,
                               .classes = ROWS};
}

/* The labels of the global batch at `position`, gathered from all ranks of `world`. */
static struct ct_sampler_batch gather(uint32_t world, uint32_t micro, uint64_t position,
                                      int32_t labels[GLOBAL])
{
    struct ct_sampler sampler = {.rows = ROWS, .seed = 5, .global_batch = GLOBAL, .shuffle = true};
    struct ct_dataset dataset = counting_dataset();
    struct ct_sampler_batch batch = {0};
    uint32_t accumulation = GLOBAL / world / micro;

    for (uint32_t rank = 0; rank < world; rank++) {
        struct ct_share share = {rank, world, accumulation, micro};
        size_t rows = ct_share_rows(&share);
        float features[GLOBAL * WIDTH];
        struct ct_batch_buffer into = {features, labels + rank * rows};
        batch = ct_sampler_fill(&sampler, &dataset, &share, position, &into);
        for (size_t i = 0; i < rows; i++) {
            float want = into.labels[i] < 0 ? 0 : (float)into.labels[i];
            cr_assert_float_eq(features[i * WIDTH], want, 0);
            cr_assert_float_eq(features[i * WIDTH + 1], -want, 0);
        }
    }
    return batch;
}

Test(sampler, the_world_never_changes_the_global_batches)
{
    static const uint32_t layouts[][2] = {{1, 8}, {1, 2}, {2, 4}, {2, 2}, {4, 2}, {8, 1}};
    int32_t want[GLOBAL], have[GLOBAL];
    uint64_t position = 0;

    for (int step = 0; step < 7; step++) {
        struct ct_sampler_batch batch = gather(1, GLOBAL, position, want);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            struct ct_sampler_batch other = gather(layouts[i][0], layouts[i][1], position, have);
            cr_assert_eq(memcmp(have, want, sizeof have), 0, "layout %zu", i);
            cr_assert_eq(memcmp(&other, &batch, sizeof batch), 0);
        }
        position = batch.next;
    }
}

Test(sampler, the_last_batch_of_an_epoch_is_padded_and_no_row_is_lost)
{
    int32_t labels[GLOBAL];
    int seen[ROWS] = {0};
    uint64_t position = 0;

    for (int step = 0; step < 3; step++) {
        struct ct_sampler_batch batch = gather(4, 2, position, labels);
        for (uint64_t i = 0; i < GLOBAL; i++) {
            cr_assert_eq(labels[i] < 0, i >= batch.valid);
            if (labels[i] >= 0)
                seen[labels[i]]++;
        }
        position = batch.next;
    }
    cr_assert_eq(position, ROWS);
    for (int i = 0; i < ROWS; i++)
        cr_assert_eq(seen[i], 1);
}

Test(sampler, without_shuffle_rows_come_in_file_order)
{
    struct ct_sampler sampler = {.rows = ROWS, .seed = 5, .global_batch = GLOBAL};

    for (uint64_t i = 0; i < ROWS; i++)
        cr_assert_eq(ct_sampler_row(&sampler, 3, i), i);
}
