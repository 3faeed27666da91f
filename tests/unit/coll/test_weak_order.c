/* Hand-offs through shared memory on a weakly ordered machine (the table of collectives/README.md):
 * every execution of each as ARMv8 allows them (weak_order.h), and the real functions on threads,
 * which show what this machine reorders: on x86, and under qemu on x86, only that stores are late
 * for other threads' loads. */
#include "backend/local/local.h"
#include "rig.h"
#include "weak_order.h"

#include "base/assert.h"
#include "wire/worker_record.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(weak_order, .timeout = 60);

/* ---- the model knows what the architecture says ----------------------------------------------*/

static const struct {
    const char *name, *program, *outcomes;
    bool reached;
} litmus[] = {
    {"MP", "d=1; f=1 | r0=f; r1=d", "r0=1 r1=0", true},
    {"MP+rel+acq", "d=1; f=1.rel | r0=f.acq; r1=d", "r0=1 r1=0", false},
    {"MP+rel+po", "d=1; f=1.rel | r0=f; r1=d", "r0=1 r1=0", true},
    {"MP+po+acq", "d=1; f=1 | r0=f.acq; r1=d", "r0=1 r1=0", true},
    {"MP+dmbs", "d=1; fence; f=1 | r0=f; fence.acq; r1=d", "r0=1 r1=0", false},
    {"MP, as it should be", "d=1; f=1.rel | r0=f.acq; r1=d", "r0=1 r1=1", true},
    {"SB", "a=1; r0=b | b=1; r1=a", "r0=0 r1=0", true},
    {"SB+rel+acq", "a=1.rel; r0=b.acq | b=1.rel; r1=a.acq", "r0=0 r1=0", true},
    {"SB+scs", "a=1.sc; r0=b.sc | b=1.sc; r1=a.sc", "r0=0 r1=0", false},
    {"SB+dmbs", "a=1; fence; r0=b | b=1; fence; r1=a", "r0=0 r1=0", false},
    {"SB+dmb+ld", "a=1; fence.acq; r0=b | b=1; fence; r1=a", "r0=0 r1=0", true},
    {"LB", "r0=a; b=1 | r1=b; a=1", "r0=1 r1=1", true},
    {"LB+datas", "r0=a; b=r0 | r1=b; a=r1", "r0=1 r1=1", false},
    {"LB+rel", "r0=a; b=1.rel | r1=b; a=1.rel", "r0=1 r1=1", false},
    {"S", "d=2; f=1.rel | r0=f.acq; d=1; r1=d", "r0=1 r1=2", false},
    {"WRC", "d=1 | r0=d; f=1.rel | r1=f.acq; r2=d", "r0=1 r1=1 r2=0", false},
    {"WRC+po", "d=1 | r0=d; f=1 | r1=f.acq; r2=d", "r0=1 r1=1 r2=0", true},
    {"IRIW", "a=1 | b=1 | r0=a; r1=b | r2=b; r3=a", "r0=1 r1=0 r2=1 r3=0", true},
    {"IRIW+acqs", "a=1 | b=1 | r0=a.acq; r1=b | r2=b.acq; r3=a", "r0=1 r1=0 r2=1 r3=0", false},
    {"CoRR", "a=1 | r0=a; r1=a", "r0=1 r1=0", false},
    {"CoWR", "a=1; r0=a | a=2", "r0=0", false},
    {"2+2W", "a=1; b=2 | b=1; a=2 | r0=a; r1=a | r2=b; r3=b", "r0=2 r1=1 r2=2 r3=1", true},
    {"two additions", "r0=a++ | r1=a++", "r0=0 r1=0 / r0=1 r1=1", false},
    {"a store after an addition", "r0=a++; d=1 | r1=d.acq; r2=a", "r1=1 r2=0", true},
};

Test(weak_order, the_model_allows_and_forbids_what_armv8_does)
{
    for (size_t i = 0; i < CT_COUNT(litmus); i++)
        cr_assert_eq(weak_order_reaches(litmus[i].program, litmus[i].outcomes), litmus[i].reached,
                     "%s", litmus[i].name);
}

/* ---- the hand-offs ---------------------------------------------------------------------------*/

/* `spare`: orders that can be left out, each alone: a bit each, of additions none. */
static const struct {
    const char *name, *program, *wrong;
    unsigned spare;
} hand_offs[] = {
    {"local: stage and cell before `posted`", "d=1; p=1.rel | r0=p.acq; r1=d", "r0=1 r1=0", 0},
    {"local: a stage is read before the next post, and written after all posts",
     "r0=d; p=1.rel | r1=p.acq; d=2", "r1=1 r0=2", 0},
    {"local: written into another's stage, read by a third (pipeline, domains)",
     "d=1; p=1.rel | r0=p.acq; g=1.rel | r1=g.acq; r2=d", "r0=1 r1=1 r2=0", 6},
    {"local: a poster sees the sleeper, or the sleeper the post",
     "p=1.rel; fence; r0=s.sc | r1=s++; r2=p.sc", "r0=0 r2=0", 7},
    {"local: a closing rank and a sleeper", "l=1.sc; fence; r0=s.sc | r1=s++; r2=l.sc", "r0=0 r2=0",
     7},
    {"local: the sleeper's word is raised before it is compared",
     "p=1.rel; fence; r0=s.sc; r1=w++ | r2=s++; r3=w.sc; r4=p.sc", "r0=1 r3=1 r4=0", 0x17},
    {"local: slots of a ring", "s=1; h=1.sc; r2=t.sc; s=2 | r0=h.sc; r1=s; t=1.sc",
     "r0=1 r1=0 / r2=1 r1=2", 0},
    {"local: whose failure", "w=1.sc; f=1.sc | r0=f.sc; r1=w.sc", "r0=1 r1=0", 9},
    {"group: code before `over`; before `broken`", "c=1; o=1.rel | r0=o.acq; r1=c", "r0=1 r1=0", 0},
    {"group: the helper's word hands the group on", "q=1; o=1.sc | r0=o.sc; r1=q; q=2",
     "r0=1 r1=0 / r0=1 r1=2", 0},
    {"message, ucx, mpi: code before `state`", "c=1; s=1.rel | r0=s.acq; r1=c", "r0=1 r1=0", 0},
    {"job_link: the deadline before `stop`", "d=1.sc; s=1.sc | r0=s.sc; r1=d.sc", "r0=1 r1=0", 9},
    {"pool: results before `done` (two workers)", "a=1; r0=n++ | b=1; r1=n++ | r2=n.sc; r3=a; r4=b",
     "r2=2 r3=0 / r2=2 r4=0", 0},
    {"saving: code and shares before `done`", "c=1; d=1.sc | r0=d.sc; r1=c", "r0=1 r1=0", 0},
    {"record: since when before `waiting`; who before `failure`; durations before `steps`",
     "t=1; w=1.rel | r0=w.acq; r1=t", "r0=1 r1=0", 0},
    {"record: a slot changes hands; 0 is the group before, 1 BUSY, 2 the new one",
     "r4=i++; fence; f=1; i=2.rel | r0=i.acq; r1=f; fence.acq; r2=i", "r0=0 r1=1 r2=0 / r0=2 r1=0",
     0},
    {"record: ... twice, to the same group in the end: who saw what was between sees it counted",
     "r4=i++; n=1; fence; f=1; i=2.rel; i=3; n=2; fence; f=2; i=4.rel | r0=n.acq; r1=f; fence.acq; "
     "r2=n",
     "r0=0 r1=1 r2=0 / r0=0 r1=2 r2=0 / r0=1 r1=2 r2=1", 26},
    {"flight: an entry is whole",
     "t=1; fence; a=1; b=1; t=2.rel | r0=t.acq; r1=a; r2=b; fence.acq; r3=t",
     "r0=0 r1=1 r3=0 / r0=0 r2=1 r3=0 / r0=2 r1=0 / r0=2 r2=0", 0},
};

/* As written none is wrong; and what is not spare is needed. */
Test(weak_order, each_hand_off_is_right_and_needs_its_orders)
{
    bool there = true;

    for (size_t i = 0; i < CT_COUNT(hand_offs); i++) {
        cr_assert_not(weak_order_reaches(hand_offs[i].program, hand_offs[i].wrong), "%s",
                      hand_offs[i].name);
        for (int order = 0;; order++) {
            bool wrong =
                weak_order_reaches_without(hand_offs[i].program, order, hand_offs[i].wrong, &there);
            if (!there)
                break;
            cr_assert_eq(wrong, (hand_offs[i].spare >> order & 1) == 0, "%s, without its order %d",
                         hand_offs[i].name, order);
        }
    }
}

/* ---- the real functions, on threads ----------------------------------------------------------*/

enum { TURNS = 3000, WAITS = 20000, STEP_US = 7000 };

/* Ranks post in turns, and each sleeps without a limit until the other has: a wakeup that is lost
 * ends in the suite's time-out. */
static int take_turns(struct ct_group *group, struct rig *rig)
{
    struct ct_local *local = group->state;
    int me = ct_group_rank(group);
    uint64_t first = local->round + 2;
    struct ct_error err;

    (void)rig;
    for (uint64_t turn = first; turn < first + TURNS; turn++) {
        if (turn % 2 == (uint64_t)me) {
            atomic_store_explicit(&ct_local_cell(local, me, turn)->posted, turn,
                                  memory_order_release);
            ct_local_notify(local);
            continue;
        }
        while (ct_local_arrived(local, 1 - me, turn, &err) != 1) {
            uint32_t armed = ct_local_arm(local);
            bool there = ct_local_arrived(local, 1 - me, turn, &err) == 1;

            ct_local_park(local, armed, there ? 0 : UINT64_C(100000000000));
        }
    }
    return 0;
}

Test(weak_order, no_wakeup_is_lost_between_ranks_that_sleep_in_turns)
{
    struct rig thread = {.backend = "thread", .world = 2}, shm = {.backend = "shm", .world = 2};

    cr_assert_eq(rig_run(&thread, take_turns), 0);
    cr_assert_eq(rig_run(&shm, take_turns), 0);
}

struct writer {
    struct ct_worker_record *record;
    atomic_bool over;
};

/* Waits, steps, and a slot that changes hands; what a reader finds follows from numbers. */
static void *write_record(void *context)
{
    struct writer *writer = context;
    struct ct_worker_record *record = writer->record;

    for (uint64_t i = 1; i <= WAITS; i++) {
        const char *const keys[] = {"even", "odd"};
        struct ct_record_group *group =
            ct_worker_record_group_new(record, keys[i % 2], (uint32_t)(i % 2), 2 + (i % 2));

        for (uint64_t k = 1; k <= 3; k++) {
            ct_worker_record_wait(group, 3 * i + k, 3 * i + k);
            ct_worker_record_woke(group);
        }
        ct_worker_record_group_free(group);
        ct_worker_record_at(record, CT_RECORD_STEP, i, i * STEP_US * 1000);
    }
    atomic_store(&writer->over, true);
    return NULL;
}

static void check_view(const struct ct_worker_record *seen)
{
    struct ct_record_view view;
    uint32_t took_us[CT_RECORD_DURATIONS];

    ct_worker_record_read(seen, &view);
    for (uint32_t i = 0; i < view.group_count; i++) {
        const struct ct_record_call *call = &view.groups[i];

        cr_assert(call->rank <= 1 && call->size == 2 + call->rank, "%u of %u", call->rank,
                  call->size);
        cr_assert_str_eq(call->name, call->rank == 0 ? "even" : "odd");
        cr_assert(call->waiting == 0 || call->since_ns >= call->waiting, "%u since %u",
                  (unsigned)call->waiting, (unsigned)call->since_ns);
    }
    uint32_t count = ct_worker_record_durations(seen, took_us, CT_RECORD_DURATIONS);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(took_us[i], (uint32_t)STEP_US);
}

Test(weak_order, a_record_is_whole_beside_its_writer)
{
    const struct ct_worker_record *seen;
    struct writer writer = {.over = false};
    struct ct_error err = {0};
    pthread_t thread;
    int fd;

    cr_assert_eq(ct_worker_record_new(&seen, &fd, &err), 0, "%s", err.text);
    cr_assert_eq(ct_worker_record_open(fd, &writer.record, &err), 0, "%s", err.text);
    cr_assert_eq(pthread_create(&thread, NULL, write_record, &writer), 0);
    while (!atomic_load(&writer.over))
        check_view(seen);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    check_view(seen);
    ct_worker_record_unmap(seen);
    ct_worker_record_unmap(writer.record);
    (void)close(fd);
}
