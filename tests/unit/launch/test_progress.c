/* Progress as text. */
#include "launch/progress.h"

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
    .eta_s = 12.4,
};

Test(progress, a_line_tells_epoch_step_loss_speed_and_time_left)
{
    ct_progress_print(&usual, &out);
    cr_assert_str_eq(ct_buf_str(&out), "epoch 3/20  step 140/1000  loss 0.3124  52.1k samples/s  "
                                       "0:12 left  lr 0.001");
}

Test(progress, what_is_unknown_is_left_out)
{
    struct ct_progress p = {.epoch = 0, .step = 5, .loss = NAN, .learning_rate = 0.1, .eta_s = -1};

    ct_progress_print(&p, &out);
    cr_assert_str_eq(ct_buf_str(&out), "epoch 1  step 5  loss nan  lr 0.1");
}

Test(progress, the_last_step_belongs_to_the_last_epoch)
{
    struct ct_progress p = usual;

    p.epoch = 20;
    ct_progress_print(&p, &out);
    cr_assert_eq(strncmp(ct_buf_str(&out), "epoch 20/20 ", 12), 0);
}

Test(progress, times_read_as_on_a_clock)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0:00"},       {0.4, "0:00"},         {59.6, "1:00"},  {754, "12:34"},
                {3723, "1:02:03"}, {90000, "1d 1:00:00"}, {INFINITY, "?"}, {NAN, "?"}};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        ct_buf_clear(&out);
        ct_progress_print_time(rows[i].seconds, &out);
        cr_assert_str_eq(ct_buf_str(&out), rows[i].text);
    }
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
