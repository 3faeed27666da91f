/* The engine of shared memory: that sleepers are woken, and what its rounds leave in the segment.
 */
#include "backend/local.h"

#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <sched.h>

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
