/* What a machine's table gets from times: the choice alone; measuring is for machines at rest. */
#include "collectives/bench/bench.h"

#include "algorithm/tuning.h"
#include "base/fs.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(tune, .timeout = 60);

/* Way 0 costs its bytes, way 1 a constant: equal at `even` bytes. */
static struct ct_tune_times crossing(double even)
{
    struct ct_tune_times times = {.variants = 2, .points = 10};

    for (int i = 0; i < times.points; i++) {
        times.bytes[i] = (size_t)1024 << i;
        times.us[0][i] = (double)times.bytes[i];
        times.us[1][i] = even;
    }
    return times;
}

Test(tune, a_cut_lies_where_the_ways_cross)
{
    struct ct_tune_times times = crossing(20000);
    struct ct_tune_choice cut = ct_tune_cutover(&times, 1024, false);

    cr_assert_eq(cut.value, 16384);
    cr_assert_gt(cut.gain, 2); /* 2, 4, 8 and 16 KiB go the other way: 9.8, 4.9, 2.4, 1.2 times */
    cr_assert_lt(cut.gain, 4);
    cr_assert_eq(ct_tune_cutover(&times, 512 << 10, false).value, 16384);
    cr_assert_eq(ct_tune_cutover(&times, 1024, true).value, 32768); /* the first of variant 1 */
}

Test(tune, one_way_may_be_the_better_one_everywhere)
{
    struct ct_tune_times always = crossing(1e9), never = crossing(1);

    cr_assert_eq(ct_tune_cutover(&always, 4096, false).value, 512 << 10);
    cr_assert_eq(ct_tune_cutover(&always, 4096, true).value, 1 << 20);
    cr_assert_eq(ct_tune_cutover(&never, 4096, false).value, 1);
    cr_assert_eq(ct_tune_cutover(&never, 4096, true).value, 1024);
}

Test(tune, one_slow_point_moves_no_cut)
{
    struct ct_tune_times times = crossing(20000);

    times.us[0][1] *= 100; /* 2 KiB: somebody else had the core */
    cr_assert_eq(ct_tune_cutover(&times, 16384, false).value, 16384);
}

Test(tune, what_gains_little_stays)
{
    struct ct_tune_times times = crossing(17000); /* 16 KiB: 1.04 times as fast */
    struct ct_tune_choice cut = ct_tune_cutover(&times, 8192, false);

    cr_assert_eq(cut.value, 8192);
    cr_assert_eq(cut.gain, 1);
    cr_assert_eq(ct_tune_cutover(&times, 10000, false).value,
                 10000); /* no measured size, and no worse */
}

Test(tune, of_values_the_fastest_is_chosen)
{
    static const size_t values[] = {128, 256, 512};
    struct ct_tune_times times = {
        .variants = 3, .points = 2, .us = {{10, 40}, {5, 60}, {9.9, 39.9}}};
    struct ct_tune_choice choice = ct_tune_choose(&times, values, 128);

    cr_assert_eq(choice.value, 256); /* twice as fast here, 1.5 times slower there */
    cr_assert_eq(ct_tune_choose(&times, values, 512).value, 256);
    times.us[1][0] = 9.8;
    times.us[1][1] = 40;
    cr_assert_eq(ct_tune_choose(&times, values, 128).value, 128);
}

static int tune(struct ct_job *job, void *context)
{
    struct ct_bench_options options = {.backend = "thread", .max_bytes = 2048};
    struct ct_error err = {0};

    return ct_bench_tune(job, &options, context, &err);
}

Test(tune, what_was_measured_is_in_the_table_of_the_machine)
{
    char folder[] = "/tmp/ctrun-tune-XXXXXX", path[64];
    static struct ct_table table;
    struct ct_thread_world *threads;
    struct ct_error err = {0};
    FILE *to = tmpfile();

    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/a/table", folder);
    cr_assert_eq(setenv("CTRUN_TUNING", path, 1), 0);
    cr_assert_eq(ct_thread_world_new(2, &threads), 0);
    cr_assert_eq(thread_ranks_run(threads, tune, to), 0);
    ct_thread_world_free(threads);
    cr_assert_eq(ct_table_load(&table, &err), 0, "%s", err.text);
    cr_assert_eq(table.count, 2);
    cr_assert_not_null(ct_table_find(&table, "thread", 2, CT_SIZE_local_flat_bytes));
    cr_assert_not_null(ct_table_find(&table, "thread", 2, CT_SIZE_local_direct_bytes));
    (void)fclose(to);
    cr_assert_eq(ct_fs_remove_tree(folder), 0);
}
