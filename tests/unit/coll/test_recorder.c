/* A group's calls in the flight recorder, as the agent of their process reads them. */
#include "base/assert.h"
#include "collectives/group/recorder.h"
#include "rig.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

TestSuite(recorder, .timeout = 60);

enum { WORLD = 2 };

/* Each rank keeps a record of its own, as each worker does. */
static const struct ct_worker_record *seen[WORLD];

static void expect(int rank, uint64_t turn, const char *words, uint32_t number,
                   enum ct_flight_state state)
{
    struct ct_flight_call call = {.turn = 0};
    char text[CT_SIGNATURE_TEXT];

    cr_assert(ct_flight_read(&seen[rank]->flight, turn, &call), "rank %d, turn %d", rank,
              (int)turn);
    ct_signature_print(call.what, text, sizeof text);
    cr_assert_str_eq(text, words);
    cr_assert_eq(call.number, number, "%s", text);
    cr_assert_eq(call.state, state, "%s is %s", text, ct_flight_state_name(call.state));
    cr_assert_neq(call.site, 0u);
    if (state >= CT_FLIGHT_COMPLETED)
        cr_assert(call.queued <= call.started && call.started <= call.ended);
}

static int record_rank(struct ct_job *job, struct ct_worker_record **ret_own)
{
    struct ct_error err = {0};
    int fd, rank = ct_job_assignment(job)->rank;

    if (ct_worker_record_new(&seen[rank], &fd, &err) != 0 ||
        ct_worker_record_open(fd, ret_own, &err) != 0)
        return __LINE__;
    (void)close(fd);
    job->record = *ret_own;
    return 0;
}

static int calls(struct ct_group *group, int rank)
{
    int64_t word = 7, words[WORLD] = {0};
    struct ct_options tag = {.tag = 9};
    struct ct_request *first, *second;
    struct ct_data one = ct_inplace(&word, 1, CT_I64);

    if (ct_all_reduce(group, one, CT_REDUCE_MAX, &tag) != 0 || ct_barrier(group, NULL) != 0)
        return __LINE__;
    if ((rank == 0 ? ct_send(group, one, 1, NULL) : ct_recv(group, one, 0, NULL)) != 0)
        return __LINE__;
    if (ct_all_gather_start(group, ct_inplace(words, 1, CT_I64), NULL, &first) != 0 ||
        ct_barrier_start(group, NULL, &second) != 0 || ct_wait(first) != 0 || ct_wait(second) != 0)
        return __LINE__;
    /* The last one has no partner, and runs out of time. */
    struct ct_options hurry = {.timeout_ms = 20};
    int code = rank == 0 ? ct_broadcast(group, one, 1, &hurry) : 0;
    return rank == 1 || code == CT_ETIMEOUT || code == CT_ECLOSED ? 0 : __LINE__;
}

static int run_rank(struct ct_job *job, void *context)
{
    struct ct_group_options options = {.backend = context, .timeout_ms = 30000};
    struct ct_worker_record *own = NULL;
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    int line = record_rank(job, &own);

    if (line == 0 && ct_group_new(job, &options, &group, &err) != 0)
        line = __LINE__;
    if (line == 0)
        line = calls(group, ct_job_assignment(job)->rank);
    ct_group_free(group);
    job->record = NULL;
    ct_worker_record_unmap(own);
    return line;
}

Test(recorder, each_call_is_kept_with_its_number_words_and_fate)
{
    for (size_t i = 0; i < (size_t)rig_backend_count(); i++) {
        struct ct_thread_world *world;
        struct ct_record_view view;

        cr_assert_eq(ct_thread_world_new(WORLD, &world), 0);
        cr_assert_eq(thread_ranks_run(world, run_rank, (void *)(uintptr_t)rig_backends[i]), 0, "%s",
                     rig_backends[i]);
        ct_thread_world_free(world);
        for (int rank = 0; rank < WORLD; rank++) {
            expect(rank, 1, "all_reduce of 1 I64, MAX, FAST, tag 9", 1, CT_FLIGHT_COMPLETED);
            expect(rank, 2, "barrier", 2, CT_FLIGHT_COMPLETED);
            expect(rank, 3, "send/recv of 1 I64", 0, CT_FLIGHT_COMPLETED);
            expect(rank, 4, "all_gather of 1 I64", 3, CT_FLIGHT_COMPLETED);
            expect(rank, 5, "barrier", 4, CT_FLIGHT_COMPLETED);
        }
        expect(0, 6, "broadcast of 1 I64, root 1", 5, CT_FLIGHT_FAILED);
        cr_assert_eq(ct_flight_turns(&seen[1]->flight), 5u);
        ct_worker_record_read(seen[0], &view);
        cr_assert_eq(view.group_count, 1u, "a group that broke is shown after it was freed");
        cr_assert_neq(view.groups[0].failure, 0);
        ct_worker_record_read(seen[1], &view);
        cr_assert_eq(view.group_count, 0u, "one that did not is forgotten");
        for (int rank = 0; rank < WORLD; rank++)
            ct_worker_record_unmap(seen[rank]);
    }
}

static const void *site_of(uint64_t turn)
{
    struct ct_flight_call call = {.turn = 0};

    cr_assert(ct_flight_read(&seen[0]->flight, turn, &call));
    return (const void *)(uintptr_t)call.site;
}

/* Two calls, neither of them the last thing that is done here: that would be a jump. */
__attribute__((noinline)) static int from_here(struct ct_group *group)
{
    int code = ct_barrier(group, NULL);

    return code == 0 && ct_barrier(group, NULL) == 0 ? 0 : __LINE__;
}

__attribute__((noinline)) static int from_there(struct ct_group *group)
{
    struct ct_request *request;
    int code = ct_barrier_start(group, NULL, &request);

    return code == 0 ? ct_wait(request) : code;
}

Test(recorder, the_site_of_a_call_is_where_the_program_made_it)
{
    struct ct_error err = {0};
    struct ct_worker_record *own = NULL;
    struct ct_thread_world *world;
    struct ct_group *group;

    cr_assert_eq(ct_thread_world_new(1, &world), 0);
    struct ct_job *job = ct_thread_world_job(world, 0);
    cr_assert_eq(record_rank(job, &own), 0);
    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    cr_assert_eq(from_here(group), 0);
    cr_assert_eq(from_there(group), 0);
    uintptr_t here = (uintptr_t)from_here, there = (uintptr_t)from_there;
    uintptr_t sites[] = {(uintptr_t)site_of(1), (uintptr_t)site_of(2), (uintptr_t)site_of(3)};
    cr_assert(sites[0] > here && sites[1] > sites[0] && sites[1] < here + 200);
    cr_assert(sites[2] > there && sites[2] < there + 200);
    ct_group_free(group);
    job->record = NULL;
    ct_worker_record_unmap(own);
    ct_worker_record_unmap(seen[0]);
    ct_thread_world_free(world);
}
