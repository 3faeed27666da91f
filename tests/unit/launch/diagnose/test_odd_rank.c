/* The odd one of ranks that all give no sign. */
#include "diagnose/odd_rank.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(odd_rank, .timeout = 30);

enum { RANKS = 4 };

static struct ct_hung_rank ranks[RANKS];

static void put(uint32_t rank, const char *file, uint32_t line, const char *call)
{
    struct ct_hung_rank *hung = &ranks[rank];

    *hung = (struct ct_hung_rank){
        .rank = rank, .pid = 100 + (int)rank, .host = "b", .doing = "sleeping", .state = 'S'};
    hung->place = (struct ct_python_place){.known = file[0] != '\0', .line = line};
    (void)snprintf(hung->place.file, sizeof hung->place.file, "%s", file);
    (void)snprintf(hung->place.call, sizeof hung->place.call, "%s", call);
    (void)snprintf(hung->place.function, sizeof hung->place.function, "main");
}

static void put_all(const char *file, uint32_t line, const char *call)
{
    for (uint32_t i = 0; i < RANKS; i++)
        put(i, file, line, call);
}

static struct ct_odd find(size_t count)
{
    struct ct_odd odd;

    ct_odd_find(ranks, count, &odd);
    return odd;
}

/* The finding and the sentence, but for the end that all have. */
static void named(size_t count, enum ct_odd_kind kind, uint32_t rank, const char *sentence)
{
    static const char end[] = "; no sign of life for 31.2 s; its process is sleeping";
    const struct ct_odd odd = find(count);
    char expected[512];
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_odd_print(&odd, ranks, count, 31200, &text);
    (void)snprintf(expected, sizeof expected, "rank %u (host b, pid %u) hangs%s%s", rank,
                   100 + rank, sentence, end);
    cr_assert_eq(odd.kind, kind, "%d: %s", (int)odd.kind, ct_buf_str(&text));
    cr_assert_eq(ranks[odd.culprit].rank, rank, "%s", ct_buf_str(&text));
    cr_assert_str_eq(ct_buf_str(&text), expected);
    ct_buf_deinit(&text);
}

Test(odd_rank, one_that_is_stopped_or_waits_for_a_disk_is_named_first)
{
    put_all("t.py", 40, "all_reduce");
    put(3, "t.py", 31, "");
    ranks[1].state = 'D';
    named(RANKS, CT_ODD_DISK, 1, " in all_reduce at t.py:40 (main); rank 3 is at t.py:31 (main)");
    ranks[2].state = 'T';
    named(RANKS, CT_ODD_STOPPED, 2,
          " in all_reduce at t.py:40 (main); rank 3 is at t.py:31 (main)");
}

Test(odd_rank, one_outside_of_the_collective_of_the_others_is_named)
{
    put_all("t.py", 40, "all_reduce");
    put(2, "t.py", 31, "");
    named(RANKS, CT_ODD_OUTSIDE, 2,
          " at t.py:31 (main), outside of any collective; 3 ranks wait in all_reduce at t.py:40 "
          "(main)");
    ranks[2].child = (struct ct_python_place){.known = true, .line = 7};
    memcpy(ranks[2].child.file, "d.py", 5);
    memcpy(ranks[2].child.function, "load", 5);
    ranks[2].child_pid = 900;
    named(RANKS, CT_ODD_OUTSIDE, 2,
          " at t.py:31 (main), outside of any collective; its child process 900 is at d.py:7 "
          "(load); 3 ranks wait in all_reduce at t.py:40 (main)");
}

Test(odd_rank, one_at_another_line_than_most_is_named)
{
    put_all("t.py", 40, "all_reduce");
    put(1, "t.py", 44, "barrier");
    named(RANKS, CT_ODD_ELSEWHERE, 1,
          " in barrier at t.py:44 (main); 3 ranks wait in all_reduce at t.py:40 (main)");
    put_all("t.py", 9, "");
    put(3, "t.py", 10, "");
    named(RANKS, CT_ODD_ELSEWHERE, 3, " at t.py:10 (main); 3 ranks are at t.py:9 (main)");
}

/* What its flight recorder knows: calls in a group that all have, and in one of its own. */
static void put_calls(uint32_t rank, uint64_t calls)
{
    struct ct_torch_flight *flight = &ranks[rank].flight;

    flight->group_count = 2;
    (void)snprintf(flight->groups[0].name, CT_FLIGHT_NAME, "own (%u)", rank);
    flight->groups[0].calls = rank;
    (void)snprintf(flight->groups[1].name, CT_FLIGHT_NAME, "all (0)");
    flight->groups[1].calls = calls;
}

Test(odd_rank, one_that_has_called_fewer_collectives_is_named_wherever_it_is)
{
    put_all("t.py", 40, "all_reduce");
    for (uint32_t i = 0; i < RANKS; i++)
        put_calls(i, 41);
    named(RANKS, CT_ODD_SAME, 0, " in all_reduce at t.py:40 (main), as all 4 ranks do");
    put_calls(2, 40);
    named(RANKS, CT_ODD_BEHIND, 2,
          " in all_reduce at t.py:40 (main); it has called 40 collectives of group all (0), others "
          "41");
    put(2, "t.py", 31, "");
    put_calls(2, 40);
    named(RANKS, CT_ODD_BEHIND, 2,
          " at t.py:31 (main), outside of any collective; 3 ranks wait in all_reduce at t.py:40 "
          "(main); it has called 40 collectives of group all (0), others 41");
    put_calls(1, 38);
    cr_assert_eq(find(RANKS).culprit, 1, "it lags more");
    ranks[3].state = 'T';
    cr_assert_eq(find(RANKS).kind, CT_ODD_STOPPED);
}

Test(odd_rank, of_two_that_differ_both_lines_are_told)
{
    put(0, "t.py", 40, "all_reduce");
    put(1, "t.py", 44, "barrier");
    named(2, CT_ODD_DIFFER, 0,
          " in all_reduce at t.py:40 (main); rank 1 waits in barrier at t.py:44 (main): neither of "
          "the two can be told to be at fault");
    ranks[1].works = true;
    cr_assert_eq(find(2).culprit, 1, "one works, the other sleeps");
}

Test(odd_rank, all_at_one_line_or_nowhere_are_told_so)
{
    put_all("t.py", 40, "all_reduce");
    named(RANKS, CT_ODD_SAME, 0, " in all_reduce at t.py:40 (main), as all 4 ranks do");
    named(1, CT_ODD_ALONE, 0, " in all_reduce at t.py:40 (main)");
    put_all("", 0, "");
    named(RANKS, CT_ODD_UNKNOWN, 0, "");
    ranks[2].works = true;
    named(RANKS, CT_ODD_UNKNOWN, 2, "");
}

Test(odd_rank, one_whose_stack_is_known_is_named_before_one_without)
{
    put_all("t.py", 40, "all_reduce");
    put(0, "", 0, "");
    named(RANKS, CT_ODD_OUTSIDE, 0, "; 3 ranks wait in all_reduce at t.py:40 (main)");
    put(2, "t.py", 31, "");
    cr_assert_eq(find(RANKS).culprit, 2);
}

Test(odd_rank, the_order_of_the_ranks_does_not_matter)
{
    put_all("t.py", 40, "all_reduce");
    put(2, "t.py", 31, "");
    put(3, "t.py", 31, "");
    for (int turn = 0; turn < RANKS; turn++) {
        const struct ct_hung_rank first = ranks[0];

        cr_assert_eq(ranks[find(RANKS).culprit].rank, 2);
        memmove(ranks, ranks + 1, (RANKS - 1) * sizeof ranks[0]);
        ranks[RANKS - 1] = first;
    }
}
