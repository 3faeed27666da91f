/* Communicators of backend nccl that are made from others: parts of a group, and what is left of
 * one after a loss; over tests/lib/fakenccl. Faults are set before ranks start. */
#include "backend/nccl/nccl_kept.h"
#include "base/assert.h"
#include "rig.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void forget_faults(void)
{
    static const char *const names[] = {"FAKENCCL_FAULT", "FAKENCCL_RANK", "FAKENCCL_VERSION",
                                        "CTRUN_NCCL_SHRINK"};

    for (size_t i = 0; i < CT_COUNT(names); i++)
        (void)unsetenv(names[i]);
}

TestSuite(nccl_child, .init = forget_faults, .fini = forget_faults, .timeout = 60);

enum { WORLD = 4 };

/* A rank's; a device may write after a call has failed, until its group is freed. */
static int64_t buffers[WORLD];

/* The sum of `value` over the group; -1: it failed. */
static int64_t sum_over(struct ct_group *group, int rank, int64_t value)
{
    buffers[rank] = value;
    int code = ct_all_reduce(group, ct_inplace(&buffers[rank], 1, CT_I64), CT_REDUCE_SUM, NULL);

    return code == 0 ? buffers[rank] : -1;
}

static struct fakenccl_counts since(struct fakenccl_counts before)
{
    struct fakenccl_counts now = rig_nccl();

    return (struct fakenccl_counts){.ids = now.ids - before.ids,
                                    .splits = now.splits - before.splits,
                                    .shrinks = now.shrinks - before.shrinks,
                                    .comms = now.comms - before.comms};
}

/* ---- parts -----------------------------------------------------------------------------------*/

/* Even and odd ranks, in reverse. */
static int split_by_parity(struct ct_group *group, struct rig *rig)
{
    int rank = ct_group_rank(group), line = 0;
    struct ct_group *half = NULL;

    (void)rig;
    if (ct_group_split(group, rank % 2, -rank, &half, NULL) != 0)
        return __LINE__;
    if (strcmp(ct_group_backend(half), "nccl") != 0 || ct_group_rank(half) != 1 - rank / 2)
        line = __LINE__;
    else if (sum_over(half, rank, rank) != 2 + 2 * (rank % 2))
        line = __LINE__;
    ct_group_free(half);
    return line;
}

/* Parts and their parent. */
static int split_and_go_on(struct ct_group *group, struct rig *rig)
{
    int line = split_by_parity(group, rig), rank = ct_group_rank(group);

    return line != 0 ? line : sum_over(group, rank, 1) == WORLD ? 0 : __LINE__;
}

static struct fakenccl_counts run(int (*body)(struct ct_group *group, struct rig *rig))
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true};
    struct fakenccl_counts before = rig_nccl();

    cr_assert_eq(rig_run(&rig, body), 0);
    return since(before);
}

Test(nccl_child, parts_are_split_off_and_need_no_ids)
{
    struct fakenccl_counts counts = run(split_and_go_on);

    cr_assert_eq(counts.ids, 1, "%d ids: one for the parent", counts.ids);
    cr_assert_eq(counts.splits, 3 * WORLD, "%d splits: its messages, the parts, theirs",
                 counts.splits);
    cr_assert_eq(counts.comms, 0, "%d communicators are left", counts.comms);
}

/* Rank 0 alone, rank 1 in none; then a split that all take part in. */
static int leave_some_out(struct ct_group *group, struct rig *rig)
{
    static const int colours[WORLD] = {7, CT_NO_COLOUR, 5, 5};
    int rank = ct_group_rank(group), line = 0;
    struct ct_group *part = NULL;

    if (ct_group_split(group, colours[rank], 0, &part, NULL) != 0)
        return __LINE__;
    if ((part == NULL) != (rank == 1))
        line = __LINE__;
    else if (part != NULL && sum_over(part, rank, rank) != (rank == 0 ? 0 : 5))
        line = __LINE__;
    line = line != 0 ? line : split_and_go_on(group, rig);
    ct_group_free(part);
    return line;
}

Test(nccl_child, a_rank_that_is_alone_or_in_no_part_takes_part_in_the_split)
{
    struct fakenccl_counts counts = run(leave_some_out);

    cr_assert_eq(counts.ids, 1);
    cr_assert_eq(counts.comms, 0);
}

Test(nccl_child, parts_of_a_split_that_nccl_fails_take_ids)
{
    setenv("FAKENCCL_FAULT", "fail_part", 1);
    struct fakenccl_counts counts = run(split_by_parity);

    cr_assert_eq(counts.ids, 3, "%d", counts.ids);
    cr_assert_eq(counts.comms, 0);
}

/* Rank 1's failed, so its part has one member with a communicator, and one without. */
Test(nccl_child, a_part_of_which_one_member_failed_takes_an_id_and_drops_what_it_has)
{
    setenv("FAKENCCL_FAULT", "fail_part", 1);
    setenv("FAKENCCL_RANK", "1", 1);
    struct fakenccl_counts counts = run(split_by_parity);

    cr_assert_eq(counts.ids, 2, "%d", counts.ids);
    cr_assert_eq(counts.comms, 0);
}

/* Rank 1 refuses, the others wait for it in NCCL. */
static int split_late(struct ct_group *group, struct rig *rig)
{
    struct ct_group *half = NULL;
    struct ct_error err = {0};
    int code;

    (void)rig;
    code = ct_group_split(group, ct_group_rank(group) % 2, 0, &half, &err);
    ct_group_free(half);
    if (ct_group_rank(group) == 1)
        return code < 0 ? 0 : __LINE__;
    if (code != CT_ETIMEOUT || strstr(err.text, "split a communicator") == NULL)
        return __LINE__;
    return ct_barrier(group, NULL) == CT_ETIMEOUT ? 0 : __LINE__;
}

Test(nccl_child, a_split_that_does_not_end_costs_the_timeout_and_the_parent)
{
    struct rig rig = {.backend = "nccl", .world = WORLD, .device = true, .timeout_ms = 400};
    struct fakenccl_counts before = rig_nccl();

    setenv("FAKENCCL_FAULT", "refuse_part", 1);
    setenv("FAKENCCL_RANK", "1", 1);
    cr_assert_eq(rig_run(&rig, split_late), 0);
    cr_assert_eq(since(before).comms, 0);
}

/* ---- what is left of a group ---------------------------------------------------------------- */

static struct ct_nccl_origin origin(uint64_t tag, int rank, int size)
{
    return (struct ct_nccl_origin){.tag = tag, .rank = rank, .size = size};
}

Test(nccl_child, what_all_kept_fits_when_some_are_missing_and_the_others_stand_in_order)
{
    struct ct_nccl_origin fits[] = {origin(9, 0, 5), origin(9, 2, 5), origin(9, 3, 5)};
    struct ct_nccl_origin crossed[] = {origin(9, 2, 5), origin(9, 0, 5)};
    struct ct_nccl_origin other[] = {origin(9, 0, 5), origin(8, 2, 5)};
    struct ct_nccl_origin newcomer[] = {origin(9, 0, 5), origin(0, 0, 0)};
    struct ct_nccl_origin whole[] = {origin(9, 0, 2), origin(9, 1, 2)};
    int missing[5];

    cr_assert(ct_nccl_kept_fits(fits, 3));
    cr_assert_eq(ct_nccl_kept_missing(fits, 3, missing), 2);
    cr_assert(missing[0] == 1 && missing[1] == 4);
    cr_assert_not(ct_nccl_kept_fits(crossed, 2));
    cr_assert_not(ct_nccl_kept_fits(other, 2));
    cr_assert_not(ct_nccl_kept_fits(newcomer, 2));
    cr_assert_not(ct_nccl_kept_fits(whole, 2), "nobody is missing");
}

struct loss {
    struct ct_thread_world *world;
    const int *ranks; /* of the next round */
    int count;
    struct fakenccl_counts before, after; /* of that */
};

static int open_group(struct ct_job *job, const int *ranks, int count, struct ct_group **ret_group)
{
    int rank = ct_job_assignment(job)->rank;
    struct ct_group_options options = {.name = "g",
                                       .ranks = ranks,
                                       .nranks = count,
                                       .backend = "nccl",
                                       .timeout_ms = 20000,
                                       .device = rig_accel(rank)};
    struct ct_error err = {0};
    int code = ct_group_new(job, &options, ret_group, &err);

    if (code != 0)
        (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return code;
}

/* Rank 1 is lost with an all_reduce under way. */
static int lose(struct ct_job *job, void *context)
{
    struct loss *loss = context;
    int rank = ct_job_assignment(job)->rank, line = 0;
    struct ct_group *group = NULL;

    if (open_group(job, NULL, 0, &group) != 0)
        return __LINE__;
    /* Rank 1 may be through and gone before the others are; their device reads their buffers then.
     */
    bool told = sum_over(group, rank, 1) == -1;
    if (rank == 1)
        ct_thread_world_revoke(loss->world);
    else if (!told && sum_over(group, rank, 1) != -1)
        line = __LINE__;
    if (line == 0 && ct_barrier(group, NULL) == 0)
        line = __LINE__;
    ct_group_free(group);
    return line;
}

static int go_on(struct ct_job *job, void *context)
{
    struct loss *loss = context;
    int rank = ct_job_assignment(job)->rank, line = 0;
    struct ct_group *group = NULL;
    bool member = false;

    for (int i = 0; i < loss->count; i++)
        member = member || loss->ranks[i] == rank;
    if (!member)
        return 0;
    if (open_group(job, loss->ranks, loss->count, &group) != 0)
        return __LINE__;
    if (strcmp(ct_group_backend(group), "nccl") != 0 || sum_over(group, rank, 1) != loss->count)
        line = __LINE__;
    ct_group_free(group);
    return line;
}

/* A loss, and a round of those that are left; nothing is left of either. */
static struct fakenccl_counts recover(const int *ranks, int count)
{
    struct loss loss = {.ranks = ranks, .count = count};

    (void)rig_accel(0);
    int comms = rig_nccl().comms;
    cr_assert_eq(ct_thread_world_new(WORLD, &loss.world), 0);
    cr_assert_eq(thread_ranks_run(loss.world, lose, &loss), 0);
    loss.before = rig_nccl();
    thread_ranks_next_round(loss.world);
    cr_assert_eq(thread_ranks_run(loss.world, go_on, &loss), 0);
    struct fakenccl_counts counts = since(loss.before);
    ct_thread_world_free(loss.world);
    cr_assert_eq(rig_nccl().comms, comms, "all are given back");
    return counts;
}

static const int survivors[] = {0, 2, 3};

Test(nccl_child, after_a_loss_a_fresh_id_is_taken_where_nobody_asks_for_shrinking)
{
    struct fakenccl_counts counts = recover(survivors, CT_COUNT(survivors));

    cr_assert(counts.ids == 1 && counts.shrinks == 0);
}

Test(nccl_child, after_a_loss_the_survivors_shrink_what_they_kept)
{
    setenv("CTRUN_NCCL_SHRINK", "1", 1);
    struct fakenccl_counts counts = recover(survivors, CT_COUNT(survivors));

    cr_assert(counts.ids == 0 && counts.shrinks == 3, "%d ids, %d shrinks", counts.ids,
              counts.shrinks);
}

Test(nccl_child, a_shrink_that_fails_anywhere_costs_a_fresh_id_everywhere)
{
    setenv("CTRUN_NCCL_SHRINK", "1", 1);
    setenv("FAKENCCL_FAULT", "fail_shrink", 1);
    setenv("FAKENCCL_RANK", "2", 1);
    struct fakenccl_counts counts = recover(survivors, CT_COUNT(survivors));

    cr_assert(counts.ids == 1 && counts.shrinks == 3, "%d ids, %d shrinks", counts.ids,
              counts.shrinks);
}

Test(nccl_child, an_nccl_before_revoke_is_not_shrunk)
{
    setenv("CTRUN_NCCL_SHRINK", "1", 1);
    setenv("FAKENCCL_VERSION", "22707", 1);
    struct fakenccl_counts counts = recover(survivors, CT_COUNT(survivors));

    cr_assert(counts.ids == 1 && counts.shrinks == 0);
}

Test(nccl_child, who_is_all_there_again_takes_a_fresh_id)
{
    static const int all[WORLD] = {0, 1, 2, 3};

    setenv("CTRUN_NCCL_SHRINK", "1", 1);
    struct fakenccl_counts counts = recover(all, WORLD);

    cr_assert(counts.ids == 1 && counts.shrinks == 0);
}

/* NCCL has seen the death itself: what is kept is not clean, and nobody tries. */
static int lose_seen(struct ct_job *job, void *context)
{
    int rank = ct_job_assignment(job)->rank, line = 0;
    struct ct_group *group = NULL;

    if (open_group(job, NULL, 0, &group) != 0)
        return __LINE__;
    int code = ct_all_reduce(group, ct_inplace(&buffers[rank], 1, CT_I64), CT_REDUCE_SUM, NULL);
    if (code != CT_ECLOSED && code != CT_EREVOKED)
        line = __LINE__;
    ct_thread_world_revoke(((struct loss *)context)->world);
    ct_group_free(group);
    return line;
}

Test(nccl_child, what_nccl_itself_has_found_broken_is_not_shrunk)
{
    struct loss loss = {.ranks = survivors, .count = CT_COUNT(survivors)};

    setenv("CTRUN_NCCL_SHRINK", "1", 1);
    setenv("FAKENCCL_FAULT", "async_error", 1);
    (void)rig_accel(0);
    cr_assert_eq(ct_thread_world_new(WORLD, &loss.world), 0);
    cr_assert_eq(thread_ranks_run(loss.world, lose_seen, &loss), 0);
    unsetenv("FAKENCCL_FAULT");
    loss.before = rig_nccl();
    thread_ranks_next_round(loss.world);
    cr_assert_eq(thread_ranks_run(loss.world, go_on, &loss), 0);
    cr_assert_eq(since(loss.before).ids, 1);
    cr_assert_eq(since(loss.before).shrinks, 0);
    ct_thread_world_free(loss.world);
}
