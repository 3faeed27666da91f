/* What the time of a job goes to: the parts add up, and each goes where it belongs. */
#include "rendezvous/history/goodput.h"

#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(goodput, .timeout = 30);

static struct ct_goodput goodput;
static double parts[CT_TIME_USES];

static void begin(void)
{
    ct_goodput_begin(&goodput, 1000);
    goodput.reports = true;
}

static void progress(uint64_t ms, uint64_t step, double trained_s, double saving_s,
                     double straggler_s)
{
    const struct ct_goodput_progress told = {step, trained_s, saving_s, straggler_s};

    ct_goodput_progress(&goodput, ms, &told);
}

static double total(uint64_t now_ms)
{
    double sum = 0;

    ct_goodput_read(&goodput, now_ms, parts);
    for (int i = 0; i < CT_TIME_USES; i++)
        sum += parts[i];
    return sum;
}

static void is(enum ct_time_use use, double seconds)
{
    cr_assert_float_eq(parts[use], seconds, 1e-9, "%s: %.12g s", ct_time_use_label(use),
                       parts[use]);
}

Test(goodput, a_jobs_time_is_told_apart_by_what_it_went_to)
{
    begin();
    ct_goodput_state(&goodput, 4000, CT_GOODPUT_FORMS); /* idle: 3 s */
    ct_goodput_state(&goodput, 6000, CT_GOODPUT_RUNS);  /* start: 2 s, and 1.5 s until the loop */
    progress(8000, 5, 0.5, 0, 0);
    progress(10000, 25, 2.5, 0.25, 0.5);                 /* 1.25 s for steps */
    ct_goodput_state(&goodput, 10500, CT_GOODPUT_FORMS); /* lost: a step in flight */
    ct_goodput_state(&goodput, 12000, CT_GOODPUT_RUNS);
    progress(13000, 20, 1, 0, 0); /* steps that were made before */
    progress(14000, 30, 2, 0, 0); /* half of them */
    ct_goodput_state(&goodput, 14500, CT_GOODPUT_FINISHED);
    cr_assert_float_eq(total(99000), 13.5, 1e-9, "it has ended");
    is(CT_TIME_IDLE, 3);
    is(CT_TIME_START, 3.5);
    is(CT_TIME_CHECKPOINT, 0.25);
    is(CT_TIME_STRAGGLER, 0.5);
    is(CT_TIME_RESTART, 2);
    is(CT_TIME_RECOMPUTE, 1.5);
    is(CT_TIME_PRODUCTIVE, 0.5 + 1.25 + 0.5 + 0.5);
}

Test(goodput, waits_that_are_told_late_are_taken_from_the_steps_that_follow)
{
    begin();
    ct_goodput_state(&goodput, 1000, CT_GOODPUT_RUNS);
    progress(2000, 1, 1, 0, 0);
    progress(5000, 2, 4, 0, 0);   /* a rank stood still for 2.5 s, as others find out ... */
    progress(6000, 5, 5, 0, 2.5); /* ... here */
    (void)total(6000);
    is(CT_TIME_PRODUCTIVE, 4);
    is(CT_TIME_STRAGGLER, 1);
    progress(8000, 9, 7, 0, 2.5);
    cr_assert_float_eq(total(8000), 7, 1e-9);
    is(CT_TIME_PRODUCTIVE, 4.5);
    is(CT_TIME_STRAGGLER, 2.5);
    progress(9000, 10, 8, 0, 1e300); /* no worker's word takes more than there was */
    progress(20000, 11, 19, 0, 1e300);
    (void)total(20000);
    is(CT_TIME_STRAGGLER, 2.5 + 1 + 4.5);
}

Test(goodput, what_is_not_known_yet_counts_as_it_looks_now)
{
    begin();
    ct_goodput_state(&goodput, 1000, CT_GOODPUT_RUNS);
    (void)total(3000);
    is(CT_TIME_START, 2);
    progress(3000, 1, 2, 0, 0); /* a step of two seconds */
    (void)total(4000);
    is(CT_TIME_START, 0);
    is(CT_TIME_PRODUCTIVE, 3);
    ct_goodput_state(&goodput, 5000, CT_GOODPUT_IDLE);
    (void)total(7000);
    is(CT_TIME_PRODUCTIVE, 2);
    is(CT_TIME_RESTART, 2);
    is(CT_TIME_IDLE, 2);
}

Test(goodput, a_strangers_program_that_tells_nothing_is_productive_in_a_round)
{
    ct_goodput_begin(&goodput, 1000);
    ct_goodput_state(&goodput, 2000, CT_GOODPUT_FORMS);
    ct_goodput_state(&goodput, 3000, CT_GOODPUT_RUNS);
    (void)total(9000);
    is(CT_TIME_PRODUCTIVE, 6);
    is(CT_TIME_START, 1);
    is(CT_TIME_IDLE, 1);
}

static double fraction(struct ct_rng *rng)
{
    return (double)ct_rng_below(rng, 1000) / 1000;
}

/* A wild clock of a worker, reports of old steps, any order of states. */
Test(goodput, the_parts_always_add_up_to_the_jobs_time)
{
    struct ct_rng rng;

    ct_rng_init(&rng, 7);
    for (int run = 0; run < 200; run++) {
        uint64_t now = 1000;

        begin();
        for (int i = 0; i < 60 && goodput.state < CT_GOODPUT_OVER; i++) {
            now += ct_rng_below(&rng, 3000);
            if (ct_rng_below(&rng, 3) > 0)
                progress(now, ct_rng_below(&rng, 40), fraction(&rng) * 5 - 1,
                         fraction(&rng) * 5 - 1, fraction(&rng) * 9);
            else
                ct_goodput_state(&goodput, now,
                                 (enum ct_goodput_state)ct_rng_below(&rng, CT_GOODPUT_OVER));
            cr_assert_float_eq(total(now + 500), (double)(now + 500 - 1000) / 1e3, 1e-6);
            for (int use = 0; use < CT_TIME_USES; use++)
                cr_assert_geq(parts[use], 0);
        }
    }
}
