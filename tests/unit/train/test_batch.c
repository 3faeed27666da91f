/* Batch arithmetic: what divides, and the advice when it does not. */
#include "train/batch_size.h"

#include <criterion/criterion.h>

TestSuite(batch, .timeout = 30);

Test(batch, global_is_world_times_accumulation_times_micro)
{
    static const uint32_t rows[][4] = {
        /* global, micro, world, accumulation */
        {32, 0, 1, 1}, {32, 0, 4, 1}, {32, 4, 2, 4}, {32, 8, 4, 1}, {30, 5, 3, 2}, {7, 1, 1, 7},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ct_batch_plan plan = {0};
        struct ct_error err = {0};
        cr_assert_eq(ct_batch_plan(&plan, rows[i][0], rows[i][1], rows[i][2], &err), 0, "%s",
                     err.text);
        cr_assert_eq(plan.accumulation, rows[i][3]);
        cr_assert_eq(plan.global, plan.micro * plan.accumulation * rows[i][2]);
    }
}

static const struct {
    uint32_t global, micro, world;
    const char *sentence;
} bad[] = {
    {32, 0, 3,
     "batch.global 32 does not divide into 3 workers: the nearest values are 30 or 33, or use 2 or "
     "4 workers"},
    {2, 0, 3,
     "batch.global 2 does not divide into 3 workers: the nearest value is 3, or use 2 workers"},
    {32, 5, 2,
     "batch.micro 5 does not divide a worker's share of 16 (batch.global 32 over 2 workers): the "
     "nearest values are 4 or 8"},
    {32, 64, 2,
     "batch.micro 64 does not divide a worker's share of 16 (batch.global 32 over 2 workers): the "
     "nearest value is 16"},
    {7, 3, 1,
     "batch.micro 3 does not divide a worker's share of 7 (batch.global 7 over 1 worker): the "
     "nearest values are 1 or 7"},
};

Test(batch, an_error_names_the_nearest_values_that_divide)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ct_batch_plan plan = {.micro = 77};
        struct ct_error err = {0};
        cr_assert_eq(ct_batch_plan(&plan, bad[i].global, bad[i].micro, bad[i].world, &err),
                     CT_ECONFIG);
        cr_assert_str_eq(err.text, bad[i].sentence);
        cr_assert_eq(plan.micro, 77);
    }
}
