/* The engine of shared memory: that sleepers are woken, and what its rounds leave in the segment.
 */
#include "backend/local/local.h"

#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <sys/resource.h>

TestSuite(local, .timeout = 30);

/* Rank 1 sleeps for longer than the test may last, and only then does rank 0 post. */
static int sleep_until_rung(struct ct_group *group, struct rig *rig)
{
    const struct ct_local *local = group->state;
    uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

    (void)rig;
    if (ct_group_rank(group) == 1) {
        uint32_t armed = group->backend->arm(group->state);

        group->backend->park(group->state, armed, UINT64_C(100000000000));
    } else {
        while (atomic_load(&local->head->sleepers) == 0)
            (void)sched_yield();
    }
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    return ct_clock_mono_ms(&ct_clock_system) - start_ms < 20000 ? 0 : __LINE__;
}

Test(local, a_post_wakes_who_sleeps)
{
    struct rig thread = {.backend = "thread", .world = 2}, shm = {.backend = "shm", .world = 2};

    cr_assert_eq(rig_run(&thread, sleep_until_rung), 0);
    cr_assert_eq(rig_run(&shm, sleep_until_rung), 0);
}

static int count_rounds(struct ct_group *group, struct rig *rig)
{
    const struct ct_local *local = group->state;
    char data[1000] = {0};
    uint64_t before = local->round;
    int chunks = (int)((sizeof data + local->chunk_bytes - 1) / local->chunk_bytes);

    (void)rig;
    if (ct_broadcast(group, ct_inplace(data, sizeof data, CT_U8), 0, NULL) != 0 ||
        local->round != before + (uint64_t)chunks)
        return __LINE__;
    if (ct_all_reduce(group, ct_inplace(data, sizeof data, CT_U8), CT_REDUCE_SUM, NULL) != 0 ||
        local->round != before + (uint64_t)(2 * chunks + 1))
        return __LINE__;
    return chunks > 3 && ct_barrier(group, NULL) == 0 ? 0 : __LINE__;
}

Test(local, a_collective_takes_one_flag_round_a_chunk)
{
    struct rig rig = {.backend = "thread", .world = 3, .tuning = tiny};

    cr_assert_eq(rig_run(&rig, count_rounds), 0);
}

/* ---- symmetric memory ------------------------------------------------------------------------*/

enum { ELEMENTS = 5000 };

static uint64_t rounds_of(struct ct_group *group, float *data)
{
    const struct ct_local *local = group->state;
    uint64_t before = local->round;

    for (int i = 0; i < ELEMENTS; i++)
        data[i] = 1.0f;
    if (ct_all_reduce(group, ct_inplace(data, ELEMENTS, CT_F32), CT_REDUCE_SUM, NULL) != 0)
        return 0;
    for (int i = 0; i < ELEMENTS; i++)
        if (data[i] != (float)ct_group_size(group))
            return 0;
    return local->round - before;
}

static int known_of(const struct ct_local *local, int rank)
{
    int count = 0;

    for (const struct ct_local_allocation *k = local->reach[rank].allocations; k != NULL;
         k = k->next)
        count++;
    return count;
}

static int count_direct_rounds(struct ct_group *group, struct rig *rig)
{
    const struct ct_local *local = group->state;
    float ordinary[ELEMENTS] = {0};
    void *a, *b;

    (void)rig;
    if (ct_mem_alloc(group->job, sizeof ordinary + 100, &a, NULL) != 0 ||
        ct_mem_alloc(group->job, sizeof ordinary, &b, NULL) != 0)
        return __LINE__;
    uint64_t staged = rounds_of(group, ordinary);
    if (staged < 1 || rounds_of(group, a) != 3 || rounds_of(group, a) != 2)
        return __LINE__;
    if (rounds_of(group, (float *)a + 4 * ct_group_rank(group)) != 2)
        return __LINE__;
    if (rounds_of(group, ct_group_rank(group) == 1 ? ordinary : a) != staged + 1)
        return __LINE__;
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    ct_mem_free(group->job, a);
    if (ct_barrier(group, NULL) != 0 || rounds_of(group, b) != 3)
        return __LINE__;
    for (int i = 0; i < local->size; i++)
        if (known_of(local, i) != 1)
            return __LINE__; /* what was freed is forgotten */
    return 0;
}

Test(local, symmetric_memory_takes_two_rounds_once_it_is_known)
{
    struct rig shm = {.backend = "shm", .world = 3};

    cr_assert_eq(rig_run(&shm, count_direct_rounds), 0);
}

/* Nothing can be opened any more, so nobody reaches another's memory, and nobody tries it twice. */
static int count_refused_rounds(struct ct_group *group, struct rig *rig)
{
    float ordinary[ELEMENTS] = {0};
    struct rlimit limit, none = {0};
    void *memory;
    int line = 0;

    (void)rig;
    if (ct_mem_alloc(group->job, sizeof ordinary, &memory, NULL) != 0 ||
        getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return __LINE__;
    none.rlim_max = limit.rlim_max;
    uint64_t staged = rounds_of(group, ordinary);
    (void)setrlimit(RLIMIT_NOFILE, &none);
    if (rounds_of(group, memory) != staged + 2)
        line = __LINE__;
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    return line == 0 && rounds_of(group, memory) != staged ? __LINE__ : line;
}

Test(local, memory_that_cannot_be_mapped_is_staged)
{
    struct rig shm = {.backend = "shm", .world = 3};

    cr_assert_eq(rig_run(&shm, count_refused_rounds), 0);
}
