/* The prefetch thread gives exactly the sampler's batches, in order, from any position. */
#include "data/prefetch.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(prefetch, .timeout = 30);

enum { ROWS = 50, WIDTH = 3, GLOBAL = 8 };

static float features[ROWS * WIDTH];
static int32_t labels[ROWS];

static struct ct_dataset counting_dataset(void)
{
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i;
        for (int j = 0; j < WIDTH; j++)
            features[i * WIDTH + j] = (float)(10 * i + j);
    }
    return (struct ct_dataset){.features = features,
                               .labels = labels,
                               .rows = ROWS,
                               .width = WIDTH,
                               .labels_per_row = 1,
                               .classes = ROWS};
}

static const struct ct_prefetch_options options = {
    .sampler = {.rows = ROWS, .seed = 9, .global_batch = GLOBAL, .shuffle = true},
    .share = {.rank = 1, .world = 2, .accumulation = 2, .micro = 2},
};

/* Take `count` batches from `position` on and compare each with the sampler's. */
static uint64_t follow(uint64_t position, int count)
{
    struct ct_dataset dataset = counting_dataset();
    struct ct_prefetch_options from = options;
    struct ct_prefetch *prefetch = NULL;
    struct ct_error err = {0};
    float want[GLOBAL / 2 * WIDTH];
    int32_t want_labels[GLOBAL / 2];
    struct ct_batch_buffer into = {want, want_labels};

    from.position = position;
    cr_assert_eq(ct_prefetch_new(&prefetch, &dataset, &from, &err), 0, "%s", err.text);
    for (int i = 0; i < count; i++) {
        struct ct_prefetch_batch batch = ct_prefetch_next(prefetch);
        struct ct_sampler_batch same =
            ct_sampler_fill(&from.sampler, &dataset, &from.share, position, &into);
        cr_assert_eq(memcmp(&batch.batch, &same, sizeof same), 0);
        cr_assert_eq(memcmp(batch.x, want, sizeof want), 0, "batch %d", i);
        cr_assert_eq(memcmp(batch.labels, want_labels, sizeof want_labels), 0);
        position = same.next;
    }
    ct_prefetch_free(prefetch);
    return position;
}

Test(prefetch, batches_come_in_order_over_epochs)
{
    cr_assert_eq(follow(0, 70), 10 * ROWS);
}

Test(prefetch, a_resumed_reader_goes_on_where_the_first_one_ended)
{
    uint64_t position = follow(0, 17);

    cr_assert_eq(follow(position, 18), follow(0, 35));
}

Test(prefetch, it_stops_at_once_used_or_not)
{
    struct ct_dataset dataset = counting_dataset();
    struct ct_prefetch *prefetch = NULL;

    for (int i = 0; i < 50; i++) {
        cr_assert_eq(ct_prefetch_new(&prefetch, &dataset, &options, NULL), 0);
        for (int taken = 0; taken < i % 4; taken++)
            (void)ct_prefetch_next(prefetch);
        ct_prefetch_free(prefetch);
    }
    ct_prefetch_free(NULL);
}
