/* The flight recorder: what was written is read, what is torn, stale or nonsense is recognised. */
#include "base/number/rng.h"
#include "wire/flight.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct ct_flight_ring *ring;

static void set_up(void)
{
    ring = aligned_alloc(64, sizeof *ring);
    cr_assert_not_null(ring);
    memset(ring, 0, sizeof *ring);
}

static void tear_down(void)
{
    free(ring);
}

TestSuite(flight, .init = set_up, .fini = tear_down, .timeout = 60);

/* An all_reduce, every field of which follows from its number. */
static struct ct_flight_call call_of(uint32_t number)
{
    struct ct_signature_fields fields = {
        .kind = CT_CALL_ALL_REDUCE, .dtype = number % CT_DTYPE_COUNT, .tag = number};

    return (struct ct_flight_call){.what = {number * 3ull, ct_signature_pack(&fields)},
                                   .number = number,
                                   .group = ~number,
                                   .site = number * 5ull};
}

static bool is_whole(const struct ct_flight_call *call)
{
    struct ct_flight_call expected = call_of(call->number);

    return ct_signature_equal(call->what, expected.what) && call->group == expected.group &&
           call->site == expected.site && call->queued == call->number * 7ull;
}

static uint64_t begin(uint32_t number, bool waits)
{
    struct ct_flight_call call = call_of(number);

    return ct_flight_begin(ring, &call, waits, number * 7ull);
}

Test(flight, a_call_is_read_as_it_was_written_with_each_of_its_states)
{
    struct ct_flight_call call;
    uint64_t turn = begin(11, true);

    cr_assert_eq(ct_flight_turns(ring), turn);
    cr_assert(ct_flight_read(ring, turn, &call));
    cr_assert(is_whole(&call));
    cr_assert_eq(call.state, CT_FLIGHT_QUEUED);
    cr_assert_eq(call.started, 0u);
    ct_flight_start(ring, turn, 5);
    cr_assert(ct_flight_read(ring, turn, &call));
    cr_assert_eq(call.state, CT_FLIGHT_STARTED);
    cr_assert_eq(call.started, call.queued + 5);
    ct_flight_end(ring, turn, 9, false);
    cr_assert(ct_flight_read(ring, turn, &call));
    cr_assert_eq(call.state, CT_FLIGHT_COMPLETED);
    cr_assert_eq(call.ended, call.queued + 9);
    turn = begin(12, false);
    ct_flight_end(ring, turn, 1, true);
    cr_assert(ct_flight_read(ring, turn, &call));
    cr_assert_eq(call.state, CT_FLIGHT_FAILED);
    cr_assert_str_eq(ct_flight_state_name(call.state), "failed");
}

Test(flight, the_last_4096_calls_are_kept_and_older_ones_are_known_to_be_gone)
{
    struct ct_flight_call call;

    for (uint32_t i = 1; i <= 3 * CT_FLIGHT_ENTRIES + 5; i++)
        ct_flight_end(ring, begin(i, false), i, false);
    uint64_t turns = ct_flight_turns(ring);
    cr_assert_eq(turns, 3u * CT_FLIGHT_ENTRIES + 5);
    for (uint64_t turn = 0; turn <= turns + 1; turn++) {
        bool kept = turn > turns - CT_FLIGHT_ENTRIES && turn <= turns;

        cr_assert_eq(ct_flight_read(ring, turn, &call), kept, "turn %u", (unsigned)turn);
        if (kept)
            cr_assert(is_whole(&call) && call.number == turn && call.ended == 8 * turn);
    }
}

/* A handle that is waited for late: its place in the ring is another call's by then. */
Test(flight, a_late_stamp_does_not_speak_for_the_call_that_took_the_place)
{
    struct ct_flight_call call;
    uint64_t late = begin(1, true);

    for (uint32_t i = 2; i <= CT_FLIGHT_ENTRIES + 1; i++)
        (void)begin(i, true);
    ct_flight_start(ring, late, 1);
    ct_flight_end(ring, late, 2, true);
    cr_assert_not(ct_flight_read(ring, late, &call));
    cr_assert(ct_flight_read(ring, late + CT_FLIGHT_ENTRIES, &call));
    cr_assert_eq(call.state, CT_FLIGHT_QUEUED);
}

Test(flight, an_entry_that_is_being_written_is_not_read)
{
    struct ct_flight_call call;
    uint64_t turn = begin(1, false);

    atomic_store(&ring->entries[turn].turn, turn << 1 | 1);
    cr_assert_not(ct_flight_read(ring, turn, &call));
}

/* A thread that sleeps while it writes, as others make 4,096 calls: neither call is mixed up. */
Test(flight, a_call_leaves_an_entry_alone_that_a_sleeping_thread_still_writes)
{
    struct ct_flight_call call = call_of(1);
    uint64_t asleep = ct_flight_open(ring, &call, 7);

    for (uint32_t i = 2; i <= CT_FLIGHT_ENTRIES + 1; i++)
        ct_flight_end(ring, begin(i, false), i, false);
    cr_assert_not(ct_flight_read(ring, asleep + CT_FLIGHT_ENTRIES, &call));
    cr_assert_not(ct_flight_read(ring, asleep, &call));
    ct_flight_close(ring, asleep);
    cr_assert(ct_flight_read(ring, asleep, &call));
    cr_assert(is_whole(&call) && call.number == 1);
}

/* ... or before it has written anything: what it finds is newer than its own call. */
Test(flight, a_call_that_comes_late_leaves_a_newer_one_alone)
{
    struct ct_flight_call call;
    uint64_t first = begin(1, false);

    for (uint32_t i = 2; i <= CT_FLIGHT_ENTRIES + 1; i++)
        (void)begin(i, false);
    atomic_store(&ring->turns, first - 1);
    cr_assert_eq(begin(99, false), first);
    ct_flight_site(ring, first, 12345);
    cr_assert(ct_flight_read(ring, first + CT_FLIGHT_ENTRIES, &call));
    cr_assert(is_whole(&call) && call.number == CT_FLIGHT_ENTRIES + 1);
    cr_assert_not(ct_flight_read(ring, first, &call));
}

struct writer {
    pthread_t thread;
    uint32_t first;
};

enum { WRITERS = 2, CALLS = 200000 };

static void *write_calls(void *context)
{
    const struct writer *writer = context;

    for (uint32_t i = 0; i < CALLS; i++)
        ct_flight_end(ring, begin(writer->first + i, false), 3, false);
    return NULL;
}

Test(flight, what_is_read_beside_its_writers_is_whole)
{
    struct writer writers[WRITERS];
    struct ct_flight_call call;
    uint64_t read = 0, turns;

    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i].first = i << 24;
        cr_assert_eq(pthread_create(&writers[i].thread, NULL, write_calls, &writers[i]), 0);
    }
    do {
        turns = ct_flight_turns(ring);
        for (uint64_t turn = turns > 64 ? turns - 64 : 0; turn <= turns; turn++)
            if (ct_flight_read(ring, turn, &call)) {
                cr_assert(is_whole(&call) && call.turn == turn, "number %u", call.number);
                read++;
            }
    } while (turns < (uint64_t)WRITERS * CALLS);
    for (uint32_t i = 0; i < WRITERS; i++)
        cr_assert_eq(pthread_join(writers[i].thread, NULL), 0);
    cr_assert_gt(read, 64u);
}

/* Whatever lies in the memory of a worker that went mad: what is read can be printed. */
Test(flight, a_damaged_ring_yields_well_formed_calls_or_none)
{
    struct ct_rng dice;
    struct ct_flight_call call;
    char text[CT_SIGNATURE_TEXT];
    unsigned char *bytes = (unsigned char *)ring;

    ct_rng_init(&dice, 4096);
    for (uint32_t i = 1; i <= 2 * CT_FLIGHT_ENTRIES; i++)
        ct_flight_end(ring, begin(i, i % 2 == 0), i, i % 3 == 0);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 20000; i++)
            bytes[ct_rng_below(&dice, sizeof *ring)] = (unsigned char)ct_rng_below(&dice, 256);
        uint64_t turns = ct_flight_turns(ring);
        for (uint64_t i = 0; i < CT_FLIGHT_ENTRIES; i++) {
            if (!ct_flight_read(ring, turns - i, &call))
                continue;
            ct_signature_print(call.what, text, sizeof text);
            cr_assert_lt(strlen(text), sizeof text);
            cr_assert_not_null(ct_flight_state_name(call.state));
        }
    }
}

Test(flight, ticks_become_nanoseconds_on_the_line_between_two_moments)
{
    struct ct_ticks_pair base = {1000, 5000}, now = {2000, 8000}, none = {1000, 5000};

    cr_assert_eq(ct_ticks_to_ns(base, now, 8000), 2000u);
    cr_assert_eq(ct_ticks_to_ns(base, now, 6500), 1500u);
    cr_assert_eq(ct_ticks_to_ns(base, now, 9000), 2000u, "nothing is later than now");
    cr_assert_eq(ct_ticks_to_ns(base, none, 4000), 1000u);
    cr_assert_eq(ct_ticks_to_ns(base, now, 0), 0u, "2666 ns before a clock of 2000 ns began");
}
