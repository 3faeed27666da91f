/* Who holds the others up, and who does not. */
#include "train/straggler.h"

#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(straggler, .timeout = 10);

enum { WORLD = 16 };

static struct ct_straggler straggler;
static struct ct_straggler_finding found;
static struct ct_straggler_sample samples[WORLD];
static struct ct_rng dice;

static void set_up(void)
{
    straggler = (struct ct_straggler){0};
    memset(samples, 0, sizeof samples);
    straggler.warmed_us = CT_STRAGGLER_WARMUP_US;
    ct_rng_init(&dice, 11);
}

/* How long each rank computes in one step: 20 ms, jitter up to `jitter` times of that, and the slow
 * one twice. */
static float compute_us(int rank, int slow, double jitter)
{
    double base = 20000 * (rank == slow ? 2 : 1);

    return (float)(base * (1 + jitter * (double)ct_rng_below(&dice, 1000) / 1000));
}

/* Let a world take a batch of steps. */
static void receive_steps(int world, int slow, double jitter)
{
    float took[CT_STRAGGLER_BATCH] = {0}, room[WORLD];

    for (int i = 0; i < world * CT_STRAGGLER_BATCH; i++) {
        int step = i % CT_STRAGGLER_BATCH;
        float us = compute_us(i / CT_STRAGGLER_BATCH, slow, jitter);

        samples[i / CT_STRAGGLER_BATCH].waited_us[step] = us;
        took[step] = us > took[step] ? us : took[step];
    }
    for (int i = 0; i < world * CT_STRAGGLER_BATCH; i++) {
        float *us = &samples[i / CT_STRAGGLER_BATCH].waited_us[i % CT_STRAGGLER_BATCH];

        *us = took[i % CT_STRAGGLER_BATCH] - *us;
    }
    ct_straggler_add(&straggler, world, samples, took, room);
}

Test(straggler, a_rank_of_half_the_speed_is_named_within_50_steps, .init = set_up)
{
    for (int world = 2; world <= WORLD; world *= 2)
        for (int slow = 0; slow < world; slow++) {
            set_up();
            for (int i = 0; i < 20; i++)
                receive_steps(world, -1, 0.2);
            cr_assert_not(ct_straggler_find(&straggler, &found));
            int steps = 0;
            do {
                cr_assert_leq(steps += CT_STRAGGLER_BATCH, 50);
                receive_steps(world, slow, 0.2);
            } while (!ct_straggler_find(&straggler, &found));
            cr_assert_eq(found.rank, slow);
            cr_assert_gt(found.share, CT_STRAGGLER_SHARE);
            cr_assert(found.cost > 20 && found.cost < 55, "%d", found.cost);
        }
}

Test(straggler, ranks_of_equal_speed_are_none_however_their_steps_vary, .init = set_up)
{
    for (int i = 0; i < 20000; i++) {
        receive_steps(4, -1, 2.0);
        cr_assert_not(ct_straggler_find(&straggler, &found), "after %d batches: %d %% of rank %d",
                      i, found.share, found.rank);
    }
}

/* Two ranks of which the first is always last: a batch of equal steps. */
static void receive_equal(float cost_us, float took_us, int batches)
{
    float took[CT_STRAGGLER_BATCH], room[2];

    for (int i = 0; i < CT_STRAGGLER_BATCH; i++) {
        samples[0].waited_us[i] = 0;
        samples[1].waited_us[i] = cost_us;
        took[i] = took_us;
    }
    for (int i = 0; i < batches; i++)
        ct_straggler_add(&straggler, 2, samples, took, room);
}

Test(straggler, a_rank_that_is_always_last_by_a_little_is_none, .init = set_up)
{
    receive_equal(900, 5000, 20); /* 18 per cent, but less than a millisecond */
    cr_assert_not(ct_straggler_find(&straggler, &found));
    receive_equal(1100, 12000, 20); /* more than a millisecond, but 9 per cent */
    cr_assert_not(ct_straggler_find(&straggler, &found));
    receive_equal(1100, 9000, 20);
    cr_assert(ct_straggler_find(&straggler, &found));
    cr_assert_eq(found.rank, 0);
    cr_assert_eq(found.share, 100);
    cr_assert_eq(found.cost, 12);
}

Test(straggler, a_few_long_waits_make_nobody_one, .init = set_up)
{
    receive_equal(100, 1000, 2);
    receive_equal(5e6F, 5e6F, 1); /* others wait for its checkpoint */
    receive_equal(100, 1000, 3);
    cr_assert_not(ct_straggler_find(&straggler, &found));
}

Test(straggler, steps_that_not_all_ranks_know_do_not_count, .init = set_up)
{
    float took[CT_STRAGGLER_BATCH], room[2];

    for (int i = 0; i < CT_STRAGGLER_BATCH; i++) {
        samples[0].waited_us[i] = i < 4 ? -1 : 0; /* it came in the middle */
        samples[1].waited_us[i] = 5000;
        took[i] = 10000;
    }
    for (int i = 0; i < 9; i++)
        ct_straggler_add(&straggler, 2, samples, took, room);
    cr_assert_eq(straggler.count, 36u);
    cr_assert_not(ct_straggler_find(&straggler, &found), "the window is not full");
    ct_straggler_add(&straggler, 2, samples, took, room);
    cr_assert(ct_straggler_find(&straggler, &found));
}

Test(straggler, the_warm_up_makes_nobody_one, .init = set_up)
{
    straggler.warmed_us = 0;
    receive_equal(20000, 50000, 13); /* 5.2 s */
    cr_assert_not(ct_straggler_find(&straggler, &found));
    cr_assert_eq(straggler.count, 4u, "%u", straggler.count);
    receive_equal(20000, 50000, 5);
    cr_assert(ct_straggler_find(&straggler, &found));
}

/* Steps of 20 ms of which rank 0 costs 5, with the ranks on the nodes and as starved of cores as
 * they are. */
static bool is_reported(int cost_us)
{
    straggler = (struct ct_straggler){0};
    straggler.warmed_us = CT_STRAGGLER_WARMUP_US;
    receive_equal((float)cost_us, 20000, 5);
    return ct_straggler_find(&straggler, &found);
}

Test(straggler, chance_on_oversubscribed_cores_makes_nobody_one, .init = set_up)
{
    samples[0].starved = 0.25F;
    samples[1].starved = 0.10F;
    cr_assert_not(is_reported(5000));
}

Test(straggler, a_rank_that_stands_out_on_oversubscribed_cores_is_one, .init = set_up)
{
    samples[0].starved = 0.25F;
    samples[1].starved = 0.10F;
    cr_assert_not(is_reported(5900)); /* 5 ms by its starvation, less half of the other's 2 ms */
    cr_assert(is_reported(6100));
    cr_assert_eq(found.rank, 0);
    cr_assert_eq(found.cost, 30);
}

Test(straggler, a_rank_that_alone_is_starved_is_one, .init = set_up)
{
    samples[0].starved = 0.25F; /* something else runs on its core */
    cr_assert(is_reported(5000));
}

Test(straggler, the_cores_of_other_nodes_excuse_nobody, .init = set_up)
{
    float took[CT_STRAGGLER_BATCH], room[3];

    for (int node = 0; node <= 1; node++) {
        set_up();
        for (int i = 0; i < CT_STRAGGLER_BATCH; i++) {
            samples[1].waited_us[i] = samples[2].waited_us[i] = 5000;
            took[i] = 20000;
        }
        samples[0].starved = 0.25F;
        samples[2].starved = 0.10F;
        samples[2].node = (float)node;
        samples[1].node = (float)!node;
        for (int i = 0; i < 5; i++)
            ct_straggler_add(&straggler, 3, samples, took, room);
        cr_assert_eq(ct_straggler_find(&straggler, &found), node == 1);
    }
}
