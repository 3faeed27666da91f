/* The store of the round as programs use it. */
#include "ctrun.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(job_store, .timeout = 30);

enum { RANKS = 4 };

/* Each rank sets a value for its neighbour, and all count. */
static int body(struct ct_job *job, void *context)
{
    int rank = ct_job_assignment(job)->rank;
    char key[32], value[32], got[32];
    size_t size = sizeof got;
    int64_t sum = 0;

    (void)context;
    (void)snprintf(key, sizeof key, "of/%d", rank);
    (void)snprintf(value, sizeof value, "rank %d", rank);
    cr_assert_eq(ct_store_set(job, key, value, strlen(value) + 1), 0);
    (void)snprintf(key, sizeof key, "of/%d", (rank + 1) % RANKS);
    (void)snprintf(value, sizeof value, "rank %d", (rank + 1) % RANKS);
    cr_assert_eq(ct_store_get(job, key, got, &size, 20000), 0);
    cr_assert_eq(size, strlen(value) + 1);
    cr_assert_str_eq(got, value);
    cr_assert_eq(ct_store_add(job, "count", 2, &sum), 0);
    if (sum == 2 * RANKS)
        cr_assert_eq(ct_store_set(job, "all", "", 0), 0);
    size = sizeof got;
    cr_assert_eq(ct_store_get(job, "all", got, &size, 20000), 0);
    cr_assert_eq(size, 0);
    cr_assert_eq(ct_store_add(job, "count", 0, &sum), 0);
    cr_assert_eq(sum, 2 * RANKS);
    return 0;
}

Test(job_store, ranks_exchange_values_and_count)
{
    struct ct_thread_world *world = NULL;

    cr_assert_eq(ct_thread_world_new(RANKS, &world), 0);
    cr_assert_eq(thread_ranks_run(world, body, NULL), 0);
    ct_thread_world_free(world);
}

static int body_wrong(struct ct_job *job, void *context)
{
    static char key[600];
    char value[4] = "";
    size_t size = sizeof value;

    (void)context;
    memset(key, 'k', sizeof key - 1);
    cr_assert_eq(ct_store_get(job, "absent", value, &size, 0), CT_ETIMEOUT);
    cr_assert_eq(ct_store_set(job, key, "", 0), CT_ELIMIT);
    cr_assert_eq(ct_store_set(job, "large", key, 10), 0);
    cr_assert_eq(ct_store_get(job, "large", value, &size, 1000), CT_ELIMIT, "it has no room");
    return 0;
}

Test(job_store, what_is_absent_too_long_or_too_large_is_a_code)
{
    struct ct_thread_world *world = NULL;

    cr_assert_eq(ct_thread_world_new(1, &world), 0);
    cr_assert_eq(thread_ranks_run(world, body_wrong, NULL), 0);
    ct_thread_world_free(world);
}

Test(job_store, a_process_without_an_agent_has_none)
{
    struct ct_error err = {0};
    struct ct_job *job;
    size_t size = 0;
    int64_t sum;

    cr_assert_eq(ct_job_open(&job, &err), 0);
    cr_assert_eq(ct_store_set(job, "key", "", 0), CT_EUNSUPPORTED);
    cr_assert_eq(ct_store_get(job, "key", NULL, &size, 0), CT_EUNSUPPORTED);
    cr_assert_eq(ct_store_add(job, "key", 1, &sum), CT_EUNSUPPORTED);
    ct_job_close(job);
}
