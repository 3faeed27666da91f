/* Progress as text. */
#include "output/progress.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

static struct ct_buf out;

static void set_up(void)
{
    ct_buf_init(&out, 0);
}

static void tear_down(void)
{
    ct_buf_deinit(&out);
}

TestSuite(progress, .timeout = 10, .init = set_up, .fini = tear_down);

static const struct ct_progress usual = {
    .epoch = 2,
    .epochs = 20,
    .step = 140,
    .steps = 1000,
    .loss = 0.31239,
    .samples_per_s = 52149,
    .learning_rate = 1e-3,
    .elapsed_s = 2.2,
    .eta_s = 12.4,
    .evaluating = -1,
};

Test(progress, a_line_tells_epoch_step_loss_speed_and_times)
{
    ct_progress_print(&usual, &out);
    cr_assert_str_eq(ct_buf_str(&out), "epoch 3/20  step 140/1000  loss 0.3124  52.1k samples/s  "
                                       "0:02 elapsed  0:12 left  lr 0.001");
}

Test(progress, what_is_unknown_is_left_out)
{
    struct ct_progress p = {.step = 5,
                            .loss = NAN,
                            .learning_rate = 0.1,
                            .elapsed_s = -1,
                            .eta_s = -1,
                            .evaluating = -1};

    ct_progress_print(&p, &out);
    cr_assert_str_eq(ct_buf_str(&out), "epoch 1  step 5  loss nan  lr 0.1");
    ct_buf_clear(&out);
    p.learning_rate = NAN; /* a script that does not report one */
    ct_progress_print(&p, &out);
    cr_assert_str_eq(ct_buf_str(&out), "epoch 1  step 5  loss nan");
}

Test(progress, the_last_step_belongs_to_the_last_epoch)
{
    struct ct_progress p = usual;

    p.epoch = 20;
    ct_progress_print(&p, &out);
    cr_assert_eq(strncmp(ct_buf_str(&out), "epoch 20/20 ", 12), 0);
}

/* ---- the live line -------------------------------------------------------------------------- */

static const char *drawn(const struct ct_progress *p, size_t columns)
{
    ct_buf_clear(&out);
    ct_progress_draw(p, columns, false, &out);
    return ct_buf_str(&out);
}

Test(progress, a_live_line_is_laid_out_for_its_width)
{
    static const struct {
        size_t columns;
        const char *text;
    } rows[] = {
        {0, ""},
        {12, "loss 0.3124"},
        {14, "step 140/1000"},
        {40, "step 140/1000  loss 0.3124  0:12 left"},
        {50, "step 140/1000  [=>      ]  loss 0.3124  0:12 left"},
        {80, "step 140/1000  [>      ]  loss 0.3124  52.1k samples/s  0:02 elapsed  0:12 left"},
        {120,
         "step 140/1000  [===>                    ]  loss 0.3124  52.1k samples/s  0:02 elapsed  "
         "0:12 left  epoch 3/20  lr 0.001"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_expect_str_eq(drawn(&usual, rows[i].columns), rows[i].text, "%zu columns: %s",
                         rows[i].columns, ct_buf_str(&out));
}

Test(progress, a_live_line_fits_any_width_and_a_bar_takes_what_is_left)
{
    for (size_t columns = 0; columns < 300; columns++) {
        cr_assert_leq(strlen(drawn(&usual, columns)), columns > 0 ? columns - 1 : 0u);
        if (columns >= 160)
            cr_assert_not_null(strstr(ct_buf_str(&out), "[===>                    ]"));
    }
}

Test(progress, an_evaluation_shows_how_much_of_it_is_done)
{
    struct ct_progress p = usual;

    p.evaluating = 0.4;
    p.eta_s = -1;
    cr_assert_str_eq(drawn(&p, 60), "evaluating 40 %  step 140/1000  [=>          ]  loss 0.3124");
}

Test(progress, colour_adds_nothing_to_the_width)
{
    ct_progress_draw(&usual, 80, true, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "step 140/1000  [\x1b[36m>      \x1b[0m]  loss 0.3124  52.1k "
                     "samples/s  0:02 elapsed  0:12 left");
}

Test(progress, a_loss_that_has_diverged_stays_short)
{
    struct ct_progress p = usual;

    p.loss = 35655248895.5342;
    cr_assert_not_null(strstr(drawn(&p, 80), "  loss 3.566e+10  "));
}

Test(progress, an_evaluation_tells_its_values_and_the_best_so_far)
{
    struct ct_progress_eval eval = {.step = 100,
                                    .loss = 2.565,
                                    .accuracy = 0.269,
                                    .perplexity = 13.0,
                                    .best = 2.565,
                                    .best_step = 100};

    ct_progress_print_eval(&eval, false, &out);
    cr_assert_str_eq(ct_buf_str(&out), "eval  step 100  loss 2.5650  perplexity 13  "
                                       "best 2.5650 at step 100");
    eval.perplexity = -1;
    ct_buf_clear(&out);
    ct_progress_print_eval(&eval, false, &out);
    cr_assert_str_eq(ct_buf_str(&out), "eval  step 100  loss 2.5650  accuracy 26.90 %  "
                                       "best 2.5650 at step 100");
    eval.accuracy = -1;
    ct_buf_clear(&out);
    ct_progress_print_eval(&eval, true, &out);
    cr_assert_str_eq(ct_buf_str(&out),
                     "eval  step 100  loss 2.5650  \x1b[32mbest 2.5650 at step 100\x1b[0m");
    eval.best_step = 50;
    ct_buf_clear(&out);
    ct_progress_print_eval(&eval, true, &out);
    cr_assert_not_null(strstr(ct_buf_str(&out), "  best 2.5650 at step 50"));
    cr_assert_null(strstr(ct_buf_str(&out), "\x1b"), "an older best is nothing to celebrate");
}

Test(progress, rates_keep_three_digits)
{
    static const struct {
        double rate;
        const char *text;
    } rows[] = {{0.123, "0.123"}, {12, "12"},       {999.4, "999"},  {999.6, "1.00k"},
                {9996, "10.0k"},  {52149, "52.1k"}, {99960, "100k"}, {999600, "1.00M"},
                {3.4e6, "3.40M"}, {2e13, "20.0T"},  {3e15, "3000T"}, {INFINITY, "inf"}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        ct_buf_clear(&out);
        ct_progress_print_rate(rows[i].rate, &out);
        cr_assert_str_eq(ct_buf_str(&out), rows[i].text);
    }
}

Test(progress, a_live_line_is_drawn_ten_times_a_second_at_most)
{
    struct ct_progress_pace pace = {.live = true};
    struct ct_progress p = usual;
    unsigned drawn = 0;

    for (uint64_t now_ms = 1000; now_ms < 2000; now_ms++)
        drawn += ct_progress_due(&pace, &p, now_ms);
    cr_assert_eq(drawn, 10u);
    p.step = p.steps;
    cr_assert(ct_progress_due(&pace, &p, 2000), "the last step is always shown");
}

Test(progress, plain_lines_come_every_few_seconds_or_with_an_epoch)
{
    struct ct_progress_pace pace = {.live = false};
    struct ct_progress p = usual;

    cr_assert(ct_progress_due(&pace, &p, 50));
    cr_assert_not(ct_progress_due(&pace, &p, 5049));
    cr_assert(ct_progress_due(&pace, &p, 5050));
    p.epoch++;
    cr_assert_not(ct_progress_due(&pace, &p, 5500), "epochs of milliseconds do not flood");
    cr_assert(ct_progress_due(&pace, &p, 6050));
    cr_assert_not(ct_progress_due(&pace, &p, 7050), "the same epoch");
}

Test(progress, plain_lines_come_at_the_steps_that_are_to_be_logged_once_a_second_at_most)
{
    struct ct_progress_pace pace = {.every = 50};
    struct ct_progress p = usual;

    p.step = 1;
    cr_assert(ct_progress_due(&pace, &p, 100), "the first report");
    for (uint64_t step = 2; step < 1000; step++) {
        p.step = step;
        cr_assert_eq(ct_progress_due(&pace, &p, 100 + step * 10), step % 100 == 0,
                     "100 steps a second: each second time; step %llu", (unsigned long long)step);
    }
    p.steps = 5000;
    p.step = 1050;
    cr_assert(ct_progress_due(&pace, &p, 60000));
    p.step = 1099;
    cr_assert_not(ct_progress_due(&pace, &p, 120000), "however long ago the last one is");
}
