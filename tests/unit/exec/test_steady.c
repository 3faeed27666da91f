/* A step allocates nothing, on any of its threads. malloc and its kin are replaced for this test
 * program by ones that count; under a sanitizer, which brings its own, the test is skipped. */
#include "job/thread_world.h"
#include "sanitized.h"
#include "tests/unit/exec/fixture.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

TestSuite(steady, .timeout = 30);

#if SANITIZED

Test(steady, a_step_allocates_nothing)
{
    cr_skip_test("a sanitizer replaces malloc");
}

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static atomic_ullong allocations;

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, size);
}

struct steady {
    struct run run;
    pthread_barrier_t meet;
    unsigned long long during; /* allocations of the whole process while both ranks step */
};

enum { STEPS = 20, ROWS = 24 };

static int body(struct ct_job *job, void *context)
{
    struct steady *steady = context;
    struct ct_group *group;
    struct ct_exec_result result;
    struct rig rig;
    float x[ROWS * 6];
    int32_t labels[ROWS];

    cr_assert_eq(ct_group_new(job, NULL, &group, NULL), 0);
    rig_init(&rig, &steady->run, group);
    fill_rows(&steady->run.spec, 0, ROWS, x, labels);
    for (int step = 0; step <= STEPS; step++) {
        struct ct_exec_step args = {
            .x = x, .labels = labels, .valid_count = 2 * ROWS, .lr = 0.1, .update = 1};
        pthread_barrier_wait(&steady->meet);
        if (step == 1 && ct_group_rank(group) == 0)
            steady->during = atomic_load(&allocations); /* the first step may warm something up */
        pthread_barrier_wait(&steady->meet);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
    }
    pthread_barrier_wait(&steady->meet);
    if (ct_group_rank(group) == 0)
        steady->during = atomic_load(&allocations) - steady->during;
    pthread_barrier_wait(&steady->meet);
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

Test(steady, a_step_allocates_nothing)
{
    struct steady steady = {.run = run_default()};
    struct ct_thread_world *world;
    unsigned long long before = atomic_load(&allocations);

    steady.run.options.world = 2;
    cr_assert_eq(pthread_barrier_init(&steady.meet, NULL, 2), 0);
    cr_assert_eq(ct_thread_world_new(2, &world), 0);
    cr_assert_gt(atomic_load(&allocations), before, "the counter does not count");
    cr_assert_eq(thread_ranks_run(world, body, &steady), 0);
    cr_assert_eq(steady.during, 0, "%llu allocations in %d steps", steady.during, STEPS);
    ct_thread_world_free(world);
    pthread_barrier_destroy(&steady.meet);
}

#endif
