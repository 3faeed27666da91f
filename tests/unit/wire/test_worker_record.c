/* A worker's record: what it writes is what its agent reads, whatever state the worker is in. */
#include "wire/worker_record.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct ct_worker_record *seen; /* the agent's */
static struct ct_worker_record *own;        /* the worker's */
static int record_fd;
static struct ct_record_view view;

static void set_up(void)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_worker_record_new(&seen, &record_fd, &err), 0, "%s", err.text);
    ct_worker_record_read(seen, &view);
    cr_assert_not(view.opened, "nobody writes it yet");
    cr_assert_eq(ct_worker_record_open(record_fd, &own, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    ct_worker_record_unmap(seen);
    ct_worker_record_unmap(own);
    (void)close(record_fd);
}

TestSuite(worker_record, .init = set_up, .fini = tear_down, .timeout = 30);

Test(worker_record, the_agent_sees_section_step_and_calls)
{
    struct ct_record_group *group = ct_worker_record_group_new(own, "world/1", 0, 1);

    ct_worker_record_at(own, CT_RECORD_STEP, 17, 1000);
    ct_worker_record_entered(group, 5);
    ct_worker_record_completed(group, 4);
    ct_worker_record_wait(group, 5, 2000);
    ct_worker_record_text(group, "all_reduce of 10 F32");
    ct_worker_record_heartbeat(group, 3000, 7, 2);
    ct_worker_record_read(seen, &view);
    cr_assert(view.opened);
    cr_assert_eq(view.section, CT_RECORD_STEP);
    cr_assert_eq(view.step, 17u);
    cr_assert_eq(view.group_count, 1u);
    const struct ct_record_call *call = &view.groups[0];
    cr_assert_eq(call->entered, 5u);
    cr_assert_eq(call->completed, 4u);
    cr_assert_eq(call->waiting, 5u);
    cr_assert_eq(call->since_ns, 2000u);
    cr_assert_eq(call->awaited, 2);
    cr_assert_str_eq(call->name, "world/1");
    cr_assert_str_eq(call->text, "all_reduce of 10 F32");
    ct_worker_record_woke(group);
    ct_worker_record_group_free(group);
    ct_worker_record_read(seen, &view);
    cr_assert_eq(view.group_count, 0u);
}

Test(worker_record, a_beat_is_a_sign_of_life_but_no_progress)
{
    struct ct_record_group *group = ct_worker_record_group_new(own, "world/1", 0, 1);
    struct ct_record_view later;

    ct_worker_record_wait(group, 1, 100);
    ct_worker_record_read(seen, &view);
    ct_worker_record_read(seen, &later);
    cr_assert_eq(later.signs, view.signs, "nothing happened");
    ct_worker_record_heartbeat(group, 200, 0, 1);
    ct_worker_record_read(seen, &later);
    cr_assert_neq(later.signs, view.signs);
    cr_assert_eq(later.progress, view.progress);
    ct_worker_record_heartbeat(group, 200, 1, 1);
    ct_worker_record_read(seen, &later);
    cr_assert_neq(later.progress, view.progress, "data moved");
    view = later;
    ct_worker_record_alive(own, 300);
    ct_worker_record_read(seen, &later);
    cr_assert_neq(later.signs, view.signs, "it waits in the store");
    cr_assert_eq(later.progress, view.progress);
    view = later;
    ct_worker_record_entered(group, 2);
    ct_worker_record_read(seen, &later);
    cr_assert_neq(later.progress, view.progress);
    view = later;
    ct_worker_record_at(own, CT_RECORD_EVALUATE, 0, 100);
    ct_worker_record_read(seen, &later);
    cr_assert_neq(later.progress, view.progress);
}

Test(worker_record, members_know_a_group_by_the_same_number)
{
    uint64_t id = atomic_load(&ct_worker_record_group_new(own, "world/1", 0, 1)->id);

    cr_assert_neq(id, 0u);
    cr_assert_neq(atomic_load(&ct_worker_record_group_new(own, "world/2", 0, 1)->id), id);
    cr_assert_eq(atomic_load(&ct_worker_record_group_new(own, "world/1", 0, 1)->id), id);
}

Test(worker_record, groups_beyond_the_slots_go_unrecorded_and_a_freed_slot_is_as_new)
{
    struct ct_record_group *groups[CT_RECORD_GROUPS];

    for (int i = 0; i < CT_RECORD_GROUPS; i++)
        cr_assert_not_null(groups[i] = ct_worker_record_group_new(own, "g", 0, 1));
    cr_assert_null(ct_worker_record_group_new(own, "one too many", 0, 1));
    cr_assert_null(ct_worker_record_group_new(NULL, "no agent", 0, 1));
    ct_worker_record_entered(groups[3], 9);
    ct_worker_record_wait(groups[3], 9, 5);
    ct_worker_record_text(groups[3], "barrier");
    ct_worker_record_group_free(groups[3]);
    cr_assert_eq(
        ct_worker_record_group_new(own, "a name that is longer than the room for it", 0, 1),
        groups[3]);
    ct_worker_record_read(seen, &view);
    cr_assert_eq(view.groups[3].entered, 0u);
    cr_assert_eq(view.groups[3].waiting, 0u);
    cr_assert_str_eq(view.groups[3].text, "");
    cr_assert_str_eq(view.groups[3].name, "a name that is longer than the ");
}

Test(worker_record, durations_are_those_of_whole_steps_that_follow_each_other)
{
    uint32_t us[CT_RECORD_DURATIONS + 8];

    ct_worker_record_at(own, CT_RECORD_START, 5, 0);
    cr_assert_eq(ct_worker_record_durations(seen, us, 200), 0u);
    ct_worker_record_at(own, CT_RECORD_STEP, 5, 1000000);     /* the first step begins */
    ct_worker_record_at(own, CT_RECORD_STEP, 6, 3000000);     /* took 2000 us */
    ct_worker_record_at(own, CT_RECORD_EVALUATE, 7, 3300000); /* took 300 us */
    ct_worker_record_at(own, CT_RECORD_STEP, 7, 9000000);     /* no step took this long */
    ct_worker_record_at(own, CT_RECORD_STEP, 5, 9500000);     /* a step back: another round */
    ct_worker_record_at(own, CT_RECORD_STEP, 6, 9600000);     /* took 100 us */
    cr_assert_eq(ct_worker_record_durations(seen, us, 200), 3u);
    cr_assert_eq(us[0], 100u);
    cr_assert_eq(us[1], 300u);
    cr_assert_eq(us[2], 2000u);
    for (uint32_t i = 0; i < 1000; i++)
        ct_worker_record_at(own, CT_RECORD_STEP, 7 + i, 9600000 + (uint64_t)(i + 1) * 50000);
    cr_assert_eq(ct_worker_record_durations(seen, us, 200), 200u);
    for (int i = 0; i < 200; i++)
        cr_assert_eq(us[i], 50u);
    cr_assert_eq(ct_worker_record_durations(seen, us, CT_RECORD_DURATIONS + 8),
                 CT_RECORD_DURATIONS);
}

Test(worker_record, whatever_lies_in_the_page_reads_as_something_well_formed)
{
    unsigned seed = 7;

    for (int round = 0; round < 200; round++) {
        unsigned char *bytes = (unsigned char *)own;

        for (size_t i = 8; i < sizeof *own; i++)
            bytes[i] = (unsigned char)rand_r(&seed);
        ct_worker_record_read(seen, &view);
        cr_assert_leq(view.section, CT_RECORD_AWAY);
        cr_assert_leq(view.group_count, CT_RECORD_GROUPS);
        for (uint32_t i = 0; i < view.group_count; i++) {
            cr_assert_geq(view.groups[i].awaited, -1);
            cr_assert_lt(strlen(view.groups[i].name), sizeof view.groups[i].name);
            cr_assert_lt(strlen(view.groups[i].text), sizeof view.groups[i].text);
            for (const char *at = view.groups[i].text; *at != '\0'; at++)
                cr_assert(*at >= ' ' && *at <= '~', "it is printed on a terminal");
        }
        uint32_t us[200];
        cr_assert_leq(ct_worker_record_durations(seen, us, 200), 200u);
    }
}

Test(worker_record, a_worker_can_neither_cut_it_nor_pass_off_another_file)
{
    struct ct_worker_record *record;
    struct ct_error err = {0};

    cr_assert_neq(ftruncate(record_fd, 0), 0);
    cr_assert_neq(ftruncate(record_fd, 8192), 0);
    int other = memfd_create("other", MFD_CLOEXEC);
    cr_assert_geq(other, 0);
    cr_assert_eq(ct_worker_record_open(other, &record, &err), CT_EPROTOCOL);
    cr_assert_eq(ftruncate(other, 4096), 0);
    cr_assert_eq(ct_worker_record_open(other, &record, &err), CT_EPROTOCOL);
    (void)close(other);
    cr_assert_eq(ct_worker_record_open(other, &record, &err), -EBADF);
}

static void *write_on(void *argument)
{
    _Atomic bool *stop = argument;
    struct ct_record_group *group = ct_worker_record_group_new(own, "world/1", 0, 1);

    for (uint64_t i = 1; !atomic_load(stop); i++) {
        ct_worker_record_at(own, CT_RECORD_STEP, i, i * 1000);
        ct_worker_record_entered(group, i);
        ct_worker_record_wait(group, i, i);
        ct_worker_record_text(group, "all_reduce");
        ct_worker_record_heartbeat(group, i, i, 1);
        ct_worker_record_woke(group);
        ct_worker_record_completed(group, i);
        ct_worker_record_straggler(own, 3, 70, 20);
    }
    return NULL;
}

Test(worker_record, reading_beside_a_writer_gives_values_that_were_written)
{
    _Atomic bool stop = false;
    pthread_t writer;
    uint64_t last = 0;

    cr_assert_eq(pthread_create(&writer, NULL, write_on, &stop), 0);
    for (int i = 0; i < 20000 || last == 0; i++) {
        ct_worker_record_read(seen, &view);
        if (view.group_count == 0)
            continue;
        cr_assert_geq(view.groups[0].entered, last, "it only grows");
        last = view.groups[0].entered;
        if (view.straggler_count > 0) {
            cr_assert_eq(view.straggler, 3u);
            cr_assert_eq(view.straggler_share, 70u);
            cr_assert_eq(view.straggler_cost, 20u);
        }
    }
    atomic_store(&stop, true);
    (void)pthread_join(writer, NULL);
}
