/* The thread pool: every index once, run after run, whoever runs it. */
#include "tensor/cpu/pool.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

TestSuite(pool, .timeout = 60);

enum { THREADS = 5, RUNS = 2000 };

struct tally {
    atomic_int calls[THREADS];
    int plain[THREADS]; /* written without a lock: each index by one thread, read after the run */
};

static void count(void *context, int index)
{
    struct tally *tally = context;

    atomic_fetch_add(&tally->calls[index], 1);
    tally->plain[index]++;
}

Test(pool, every_index_runs_once_and_is_over_on_return)
{
    struct ct_pool *pool = ct_pool_new(THREADS);
    struct tally tally = {0};

    cr_assert_not_null(pool);
    cr_assert_eq(ct_pool_threads(pool), THREADS);
    for (int run = 1; run <= RUNS; run++) {
        ct_pool_run(pool, 1 + run % THREADS, count, &tally);
        if (run % THREADS == 0)
            for (int i = 1; i < THREADS; i++)
                cr_assert_eq(tally.plain[i], run * (THREADS - i) / THREADS);
    }
    cr_assert_eq(atomic_load(&tally.calls[0]), RUNS);
    ct_pool_free(pool);
}

Test(pool, a_pool_of_one_runs_in_the_caller)
{
    struct ct_pool *pool = ct_pool_new(1);
    struct tally tally = {0};

    cr_assert_not_null(pool);
    ct_pool_run(pool, 1, count, &tally);
    cr_assert_eq(tally.plain[0], 1);
    ct_pool_free(pool);
    ct_pool_free(NULL);
}

Test(pool, an_idle_pool_ends_at_once)
{
    for (int i = 0; i < 50; i++)
        ct_pool_free(ct_pool_new(THREADS));
}
