/* What was measured, as text, and what follows from it. */
#include "base/assert.h"
#include "base/bytes.h"
#include "collectives/planner/costs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(costs, .timeout = 20);

static const char HEAD[] =
    "# measured\nversion 2\nmachine here\nvalue cores 2\nvalue memory 8e9\n"
    "value stream 1e10\nvalue clock 2e-8\nvalue step 1e-6\nvalue wake 4e-6\n";
static const char OPS[] = "crowd 4 2.5\n"
                          "op linear f32 1 32 64 64 262144 1e6 2e-6\n"
                          "op linear f32 1 32 256 64 1048576 1e6 4e-6\n"
                          "op linear f32 2 32 64 64 262144 1e6 1e-6\n"
                          "op linear f32 1 32 64 64 262144 1e8 6e-6\n"
                          "call shm all_reduce 2 1024 1e-6\n"
                          "call shm all_reduce 2 1048576 1e-4\n"
                          "call shm all_reduce 8 1024 4e-6\n"
                          "call shm all_reduce 8 1048576 4e-4\n";

static struct ct_costs *parsed(const char *tail)
{
    struct ct_costs *costs = calloc(1, sizeof *costs);
    struct ct_error err = {0};
    char text[4096];
    bool found = false;

    cr_assert_not_null(costs);
    (void)snprintf(text, sizeof text, "%s%s%s", HEAD, OPS, tail);
    (void)snprintf(costs->machine, sizeof costs->machine, "here");
    cr_assert_eq(ct_costs_parse(costs, text, strlen(text), &found, &err), 0, "%s", err.text);
    cr_assert(found);
    return costs;
}

Test(costs, a_shape_that_was_measured_takes_its_time_and_one_between_two_lies_between)
{
    struct ct_costs *costs = parsed("");
    const struct ct_cost_shape known = {{32, 64, 64}, 262144, 1e6},
                               between = {{32, 128, 64}, 524288, 1e6},
                               far = {{32, 64, 64 << 10}, 262144.0 * 1024, 1e6};

    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &known), 2e-6, 1e-8);
    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_LINEAR, false, 2, &known), 1e-6, 1e-8);
    double middle_s = ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &between);
    cr_assert(middle_s > 2e-6 && middle_s < 4e-6, "%g", middle_s);
    double far_s = ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &far);
    cr_assert(far_s > 1024 * 0.9e-6 && far_s < 1024 * 2.1e-6, "%g", far_s);
    /* operands of 16 bits were not measured: as those of 32; an add by its bytes */
    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_LINEAR, true, 1, &known), 2e-6, 1e-8);
    const struct ct_cost_shape bytes = {{1e6, 1, 1}, 1e6, 1e6};
    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_ADD, false, 1, &bytes), 1e-4, 1e-9);
    free(costs);
}

/* The same product twice, in a step that the caches hold and in one of 100 MB. */
Test(costs, an_op_of_a_step_that_fits_no_cache_takes_longer)
{
    struct ct_costs *costs = parsed("");
    const double touched[] = {1e3, 1e6, 1e7, 1e8, 1e12};
    double before_s = 0;

    for (size_t i = 0; i < CT_COUNT(touched); i++) {
        const struct ct_cost_shape shape = {{32, 64, 64}, 262144, touched[i]};
        double seconds = ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &shape);

        cr_assert(seconds >= before_s, "%g B: %g s", touched[i], seconds);
        before_s = seconds;
    }
    const struct ct_cost_shape small = {{32, 64, 64}, 262144, 1e6},
                               large = {{32, 64, 64}, 262144, 1e8};
    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &small), 2e-6, 1e-8);
    cr_assert_float_eq(ct_costs_op_s(costs, CT_OP_LINEAR, false, 1, &large), 6e-6, 1e-8);
    free(costs);
}

Test(costs, calls_go_along_the_logarithms_of_bytes_and_ranks_and_grow_beyond)
{
    struct ct_costs *costs = parsed("");
    enum ct_cost_call sum = CT_CALL_COST_ALL_REDUCE;

    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 2, 1024), 1e-6, 1e-12);
    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 2, 32768), 1e-5, 1e-10);
    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 2, 4 << 20), 4e-4, 1e-9);
    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 4, 1024), 2e-6, 1e-12);
    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 1, 1024), 0, 1e-12);
    cr_assert_float_eq(ct_costs_call_s(costs, true, sum, 2, 1024), 0, 1e-12);
    free(costs);
}

Test(costs, with_more_ranks_than_were_measured_a_call_has_a_round_more_each_time_they_double)
{
    struct ct_costs *costs = parsed("");
    enum ct_cost_call sum = CT_CALL_COST_ALL_REDUCE;

    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 64, 1024), 8e-6, 1e-12);
    double large_s = 8e-6 + (4e-4 - 4e-6) * (63.0 / 64) / (7.0 / 8);
    cr_assert_float_eq(ct_costs_call_s(costs, false, sum, 64, 1 << 20), large_s, 1e-10);
    cr_assert_lt(ct_costs_call_s(costs, false, sum, 10000, 1024), 2e-5);
    free(costs);
}

Test(costs, ranks_that_share_processors_slow_each_other_down)
{
    struct ct_costs *costs = parsed("");

    cr_assert_float_eq(ct_costs_slowdown(costs, 1), 1, 1e-12);
    cr_assert_float_eq(ct_costs_slowdown(costs, 2), 1, 1e-12);
    cr_assert_float_eq(ct_costs_slowdown(costs, 4), 2.5, 1e-12);
    cr_assert_float_eq(ct_costs_slowdown(costs, 8), 5, 1e-12);
    cr_assert_eq(ct_costs_threads(costs, 1), 2);
    cr_assert_eq(ct_costs_threads(costs, 4), 1);
    free(costs);
}

Test(costs, a_file_keeps_the_lines_of_other_machines)
{
    static const char other[] = "machine there\nvalue cores 64\n";
    struct ct_costs *costs = parsed(other);
    struct ct_buf first, second;
    char text[4096];

    ct_buf_init(&first, 0);
    ct_buf_init(&second, 0);
    (void)snprintf(text, sizeof text, "%s%s%s", HEAD, OPS, other);
    ct_costs_print(costs, text, strlen(text), &first);
    cr_assert_not_null(strstr(ct_buf_str(&first), other));
    cr_assert_not_null(strstr(ct_buf_str(&first), "op linear f32 2 32 64 64 262144 1e+06 1e-06\n"));
    ct_costs_print(costs, ct_buf_str(&first), first.size, &second);
    cr_assert_str_eq(ct_buf_str(&first), ct_buf_str(&second));
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
    free(costs);
}

Test(costs, a_file_that_is_broken_is_named_by_its_line)
{
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"machine here\n", "1: \"version 2\" has to come first"},
        {"version 1\n", "1: version \"1\" is another ctrun's, here it is 2"},
        {"version 2\ndear diary\n", "2: \"dear\" begins no line of a calibration"},
        {"version 2\nmachine here\nvalue cores none\n", "3: \"none\" is no number above 0"},
        {"version 2\nmachine here\nvalue speed 3\n", "3: \"speed\" is no value"},
        {"version 2\nmachine here\nop lineal f32 1 1 1 1 1 1 1\n", "3: \"lineal\" is no op"},
        {"version 2\nmachine here\nop linear f32 0 1 1 1 1 1 1\n",
         "3: \"0\" is no number of threads"},
        {"version 2\nmachine here\ncall usb send 2 8 1\n", "3: \"usb\" is no way between ranks"},
        {"version 2\nmachine here\ncrowd 1 2\n", "3: \"1\" is no number of ranks: 2 or more"},
        {"version 2\nmachine here\nvalue cores 2\n", "3: no value \"memory\" of \"here\""},
        {"version 2\nmachine here\nmachine here\n", "3: machine \"here\" is there twice"},
        {"version 2\nmachine there\nop nothing\n", "3: \"op\" begins no line"},
        {"version 2\n\x01\n", "2: a calibration is text"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_costs *costs = calloc(1, sizeof *costs);
        struct ct_error err = {0};
        bool found;
        cr_assert_not_null(costs);
        (void)snprintf(costs->machine, sizeof costs->machine, "here");
        cr_assert_eq(ct_costs_parse(costs, rows[i].text, strlen(rows[i].text), &found, &err),
                     CT_ECONFIG, "%s", rows[i].text);
        cr_assert_eq(strncmp(err.text, rows[i].said, strlen(rows[i].said)), 0, "%s", err.text);
        free(costs);
    }
}
