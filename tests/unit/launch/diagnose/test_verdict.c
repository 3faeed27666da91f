/* The verdict: of ranks that wait for each other, the one that they all wait for in the end. */
#include "diagnose/verdict.h"

#include "base/assert.h"
#include "diagnose/traces.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 8, WORLD = 1, LEFT = 2, RIGHT = 3 };

/* A job of RANKS ranks, all of which have completed number 9 of group "world" and run. */
static struct {
    struct ct_wire_trace_rank ranks[RANKS];
    struct ct_wire_trace_group groups[3 * RANKS];
    struct ct_wire_trace_call calls[6 * RANKS];
    struct ct_msg_traces all;
    struct ct_verdict verdict;
    struct ct_buf text;
} job;

static uint64_t what(enum ct_call_kind kind, enum ct_dtype dtype, unsigned peer)
{
    return ct_signature_pack(
        &(struct ct_signature_fields){.kind = kind, .dtype = dtype, .peer = peer});
}

static struct ct_wire_trace_group *join(uint32_t rank, uint64_t id, uint64_t completed)
{
    static const char *const names[] = {"", "world/1", "left/1", "right/1"};
    struct ct_wire_trace_group *group = &job.groups[job.all.groups.count++];

    *group = (struct ct_wire_trace_group){.rank = rank,
                                          .id = id,
                                          .member = rank,
                                          .size = RANKS,
                                          .entered = completed,
                                          .completed = completed,
                                          .awaited = -1,
                                          .name = names[id]};
    return group;
}

static struct ct_wire_trace_group *in(uint32_t rank, uint64_t id)
{
    for (uint32_t i = 0; i < job.all.groups.count; i++)
        if (job.groups[i].rank == rank && job.groups[i].id == id)
            return &job.groups[i];
    return join(rank, id, 9);
}

static void call(uint32_t rank, uint64_t id, uint64_t number, uint64_t what_it_is, uint64_t count)
{
    job.calls[job.all.calls.count++] = (struct ct_wire_trace_call){.rank = rank,
                                                                   .group = id,
                                                                   .number = number,
                                                                   .what = what_it_is,
                                                                   .count = count,
                                                                   .state = CT_FLIGHT_STARTED,
                                                                   .age_ms = 3000,
                                                                   .site = "train+0x41"};
}

/* It has entered the next collective of the group, and waits there. */
static void wait_in(uint32_t rank, uint64_t id)
{
    struct ct_wire_trace_group *group = in(rank, id);

    group->waiting = ++group->entered;
    group->waited_ms = 3000;
    call(rank, id, group->entered, what(CT_CALL_ALL_REDUCE, CT_F32, 0), 650);
}

static void silence(uint32_t rank)
{
    job.ranks[rank].silent_ms = 3000;
    job.ranks[rank].doing = "sleeping";
}

static void set_up(void)
{
    memset(&job, 0, sizeof job);
    ct_buf_init(&job.text, 0);
    job.all.ranks.data = job.ranks;
    job.all.groups.data = job.groups;
    job.all.calls.data = job.calls;
    job.all.ranks.count = RANKS;
    for (uint32_t i = 0; i < RANKS; i++) {
        job.ranks[i] = (struct ct_wire_trace_rank){
            .rank = i, .pid = 100 + (int)i, .gap_ms = 5, .host = "b", .doing = ""};
        (void)join(i, WORLD, 9);
    }
}

static void tear_down(void)
{
    ct_buf_deinit(&job.text);
}

TestSuite(verdict, .init = set_up, .fini = tear_down, .timeout = 30);

static void expect(enum ct_verdict_kind kind, uint32_t rank, uint32_t waiting)
{
    cr_assert(ct_verdict_find(&job.all, &job.verdict));
    ct_verdict_print(&job.verdict, &job.text);
    cr_assert_eq(job.verdict.kind, kind, "%s", ct_buf_str(&job.text));
    cr_assert_eq(job.verdict.culprit->rank, rank, "%s", ct_buf_str(&job.text));
    cr_assert_eq(job.verdict.waiting, waiting, "%s", ct_buf_str(&job.text));
}

static void all_but(uint32_t rank)
{
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != rank)
            wait_in(i, WORLD);
}

Test(verdict, a_rank_that_has_not_entered_is_missing)
{
    all_but(3);
    silence(3);
    call(3, WORLD, 9, what(CT_CALL_BARRIER, CT_U8, 0), 0);
    expect(CT_VERDICT_MISSING, 3, RANKS - 1);
    cr_assert_str_eq(ct_buf_str(&job.text),
                     "MISSING: rank 3 (host b, pid 103) has not entered all_reduce of 650 F32, "
                     "SUM, FAST (number 10 of group world/1, called from train+0x41), 7 ranks have "
                     "waited for it for 3.0 s; its process is sleeping; its last call of the group "
                     "was barrier (number 9 of group world/1, called from train+0x41), 3.0 s ago");
}

Test(verdict, a_rank_that_entered_and_gives_no_sign_is_stuck)
{
    all_but(RANKS);
    silence(5);
    expect(CT_VERDICT_STUCK, 5, RANKS - 1);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "does not come out of all_reduce"));
}

/* What it gave was there already: the others went on, and wait in the next one. */
Test(verdict, a_rank_that_is_left_behind_inside_of_a_call_is_stuck_in_that)
{
    wait_in(5, WORLD);
    silence(5);
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 5) {
            in(i, WORLD)->entered = in(i, WORLD)->completed = 10;
            wait_in(i, WORLD);
        }
    expect(CT_VERDICT_STUCK, 5, RANKS - 1);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "(number 10 of group world/1"));
}

Test(verdict, a_rank_that_always_takes_that_long_is_slow)
{
    all_but(2);
    job.ranks[2].silent_ms = 1200;
    job.ranks[2].gap_ms = 700;
    expect(CT_VERDICT_SLOW, 2, RANKS - 1);
    job.ranks[2].silent_ms = 30000;
    expect(CT_VERDICT_MISSING, 2, RANKS - 1);
}

Test(verdict, a_rank_whose_process_has_ended_is_dead)
{
    all_but(6);
    job.ranks[6].life = CT_TRACE_ENDED;
    job.ranks[6].status = 0;
    expect(CT_VERDICT_DEAD, 6, RANKS - 1);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "has ended with status 0; it is awaited in"));
}

/* It freed the group on its way out; those who wait know whom they wait for. */
Test(verdict, a_rank_that_has_left_its_group_is_found_by_who_waits_for_it)
{
    all_but(RANKS);
    for (uint32_t i = 0; i < RANKS; i++)
        in(i, WORLD)->awaited = 6;
    *in(6, WORLD) = (struct ct_wire_trace_group){.rank = 99};
    job.ranks[6].life = CT_TRACE_ENDED;
    expect(CT_VERDICT_DEAD, 6, RANKS - 1);
}

/* Rank 3 computes for ever; 0 to 2 wait for it in their half, and 4 to 7 for those in the world. */
Test(verdict, of_a_cascade_over_groups_the_root_is_named_and_not_its_victims)
{
    for (uint32_t i = 0; i < 3; i++)
        wait_in(i, LEFT);
    (void)join(3, LEFT, 9);
    for (uint32_t i = 4; i < RANKS; i++)
        wait_in(i, WORLD);
    silence(3);
    expect(CT_VERDICT_MISSING, 3, RANKS - 1);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "left/1"));
}

Test(verdict, a_rank_that_failed_in_its_call_is_a_victim_too)
{
    all_but(3);
    silence(3);
    for (uint32_t i = 0; i < RANKS; i++)
        if (i != 3) {
            in(i, WORLD)->waiting = 0;
            in(i, WORLD)->failure = CT_ETIMEOUT;
            job.ranks[i].life = i % 2 == 0 ? CT_TRACE_ENDED : CT_TRACE_RUNS;
            silence(i);
        }
    expect(CT_VERDICT_MISSING, 3, RANKS - 1);
}

Test(verdict, the_few_who_called_something_else_are_wrong_whatever_it_is)
{
    const struct {
        uint64_t what, count;
    } others[] = {{what(CT_CALL_BARRIER, CT_U8, 0), 0},
                  {what(CT_CALL_ALL_REDUCE, CT_F32, 0), 649},
                  {what(CT_CALL_ALL_REDUCE, CT_I32, 0), 650}};

    for (size_t i = 0; i < CT_COUNT(others); i++) {
        tear_down();
        set_up();
        all_but(4);
        in(4, WORLD)->waiting = in(4, WORLD)->entered = 10;
        call(4, WORLD, 10, others[i].what, others[i].count);
        expect(CT_VERDICT_MISMATCH, 4, 0);
        cr_assert_not_null(strstr(ct_buf_str(&job.text), "where rank 0 called all_reduce of 650"));
    }
}

Test(verdict, ends_of_a_message_that_differ_are_named)
{
    in(0, WORLD)->failure = CT_EMISMATCH;
    call(0, WORLD, 0, what(CT_CALL_RECV, CT_F32, 1), 64);
    job.calls[0].state = CT_FLIGHT_FAILED;
    call(1, WORLD, 0, what(CT_CALL_SEND, CT_F32, 0), 63);
    expect(CT_VERDICT_MISMATCH, 1, 0);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "rank 0 called send/recv of 64 F32"));
}

Test(verdict, of_ranks_that_all_wait_those_in_another_call_than_most_are_wrong)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        (void)join(i, RIGHT, 9);
        wait_in(i, i == 5 ? RIGHT : WORLD);
    }
    expect(CT_VERDICT_MISMATCH, 5, RANKS - 1);
    cr_assert_not_null(strstr(ct_buf_str(&job.text), "right/1"));
}

Test(verdict, when_all_are_in_one_call_the_rank_that_most_wait_for_is_stuck)
{
    all_but(RANKS);
    for (uint32_t i = 0; i < RANKS; i++)
        in(i, WORLD)->awaited = 7;
    expect(CT_VERDICT_STUCK, 7, RANKS - 1);
}

Test(verdict, of_ranks_that_all_wait_none_is_wrong_while_others_are_not_known)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        wait_in(rank, WORLD);
        silence(rank);
        in(rank, WORLD)->awaited = rank == 1 ? 0 : 1;
    }
    job.all.ranks.count = 2; /* of this node; the others' agents were not heard */
    job.all.groups.count = 2;
    job.all.calls.count = 2;
    cr_assert_not(ct_verdict_find(&job.all, &job.verdict));
}

Test(verdict, nobody_is_named_while_nobody_waits)
{
    silence(3);
    cr_assert_not(ct_verdict_find(&job.all, &job.verdict));
}

Test(verdict, who_died_is_told_with_its_last_call_before_anybody_waits)
{
    job.ranks[1].life = CT_TRACE_ENDED;
    job.ranks[1].status = 137;
    cr_assert(ct_verdict_dead(&job.all, 1, &job.verdict));
    ct_verdict_print(&job.verdict, &job.text);
    cr_assert_str_eq(ct_buf_str(&job.text),
                     "DEAD: rank 1 (host b, pid 101) has ended with status 137; its last call of "
                     "the group was a collective (number 9 of group world/1)");
}

Test(verdict, traces_of_nodes_come_together_from_their_frames)
{
    struct ct_traces here = {.room = 0}, together = {.room = 0};
    struct ct_buf frame;

    ct_buf_init(&frame, 0);
    all_but(3);
    silence(3);
    here.all = job.all;
    here.all.generation = 4;
    cr_assert_eq(ct_traces_print_frame(&here, &frame), 0);
    cr_assert_eq(ct_traces_init(&together, 4, RANKS), 0);
    cr_assert_eq(ct_traces_add_frame(&together, frame.data, frame.size), 0);
    cr_assert_eq(ct_traces_add_frame(&together, frame.data, frame.size), CT_ELIMIT, "no room");
    cr_assert_eq(ct_traces_add_frame(&together, frame.data, frame.size - 1), CT_EPROTOCOL);
    cr_assert(ct_verdict_find(&together.all, &job.verdict));
    cr_assert_eq(job.verdict.culprit->rank, 3u);
    cr_assert_str_eq(job.verdict.culprit->host, "b");
    ct_traces_deinit(&together);
    ct_buf_deinit(&frame);
}
