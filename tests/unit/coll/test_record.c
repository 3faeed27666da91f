/* What a group says of itself to who watches: what it waits for, for whom, that it lives. */
#include "rig.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

TestSuite(record, .timeout = 60);

/* Rank 0's record, which rank 1 reads as an agent would. */
struct shared {
    _Atomic(struct ct_record_group *) record;
};

static struct ct_record_group *record_of_0(struct shared *shared)
{
    struct ct_record_group *record;

    while ((record = atomic_load(&shared->record)) == NULL)
        (void)sched_yield();
    return record;
}

/* Rank 0 waits in its second collective until rank 1, who reads that, comes. */
static int late(struct ct_group *group, struct rig *rig)
{
    struct shared *shared = rig->shared;
    int64_t sum = 1;

    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    if (ct_group_rank(group) == 0) {
        atomic_store(&shared->record, group->record);
    } else if (ct_group_rank(group) == 1) {
        struct ct_record_group *record = record_of_0(shared);
        char text[CT_RECORD_TEXT] = "";

        while (atomic_load(&record->waiting) != 2 || atomic_load(&record->awaited) == 0)
            (void)sched_yield();
        for (int i = 0; i < CT_RECORD_TEXT; i++)
            text[i] = atomic_load(&record->text[i]);
        if (atomic_load(&record->entered) != 2 || atomic_load(&record->completed) != 1)
            return __LINE__;
        if (atomic_load(&record->awaited) != 1 + 1 ||
            strcmp(text, "all_reduce of 1 I64, SUM, FAST") != 0)
            return __LINE__;
        uint64_t heartbeat_ns = atomic_load(&record->heartbeat_ns);
        while (atomic_load(&record->heartbeat_ns) == heartbeat_ns) /* it goes on beating */
            (void)sched_yield();
    }
    if (ct_all_reduce(group, ct_inplace(&sum, 1, CT_I64), CT_REDUCE_SUM, NULL) != 0)
        return __LINE__;
    if (atomic_load(&group->record->waiting) != 0 || atomic_load(&group->record->completed) != 2)
        return __LINE__;
    if (ct_group_rank(group) == 0 && ct_group_waited_ns(group) == 0)
        return __LINE__;
    return ct_barrier(group, NULL) != 0 ? __LINE__ : 0; /* the record lives as long as its group */
}

Test(record, a_rank_that_waits_says_for_which_call_and_for_whom_and_beats)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct shared shared = {NULL};
        struct rig rig = {.backend = rig_backends[i], .world = 2, .shared = &shared};

        cr_assert_eq(rig_run(&rig, late), 0, "%s", rig_backends[i]);
    }
}

/* Sends and receives are no collectives: members need not make equally many. */
static int pass(struct ct_group *group, struct rig *rig)
{
    int64_t word = 7;
    int rank = ct_group_rank(group);

    (void)rig;
    for (int i = 0; i < 3; i++) {
        struct ct_data data = ct_inplace(&word, 1, CT_I64);
        int code = rank == 0   ? ct_send(group, data, 1, NULL)
                   : rank == 1 ? ct_recv(group, data, 0, NULL)
                               : 0;
        if (code != 0)
            return __LINE__;
    }
    if (atomic_load(&group->record->entered) != 0 || ct_barrier(group, NULL) != 0)
        return __LINE__;
    return atomic_load(&group->record->entered) == 1 ? 0 : __LINE__;
}

Test(record, transfers_are_not_counted)
{
    struct rig rig = {.backend = "thread", .world = 3};

    cr_assert_eq(rig_run(&rig, pass), 0);
}
