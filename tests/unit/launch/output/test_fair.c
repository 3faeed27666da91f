/* Who may read when the console is slow. */
#include "output/fair.h"

#include <criterion/criterion.h>

TestSuite(fair, .timeout = 10);

Test(fair, all_may_read_while_the_sink_keeps_up)
{
    struct ct_fair fair;
    uint32_t line[4];

    ct_fair_init(&fair, line, 3);
    for (int i = 0; i < 100; i++)
        cr_assert(ct_fair_ask(&fair, (uint32_t)i % 3, CT_FAIR_HIGH - 1));
    cr_assert_eq(ct_fair_next(&fair, 0), -1);
}

Test(fair, those_who_wait_are_let_go_in_their_order_once_it_drained)
{
    struct ct_fair fair;
    uint32_t line[4];

    ct_fair_init(&fair, line, 3);
    cr_assert_not(ct_fair_ask(&fair, 2, CT_FAIR_HIGH));
    cr_assert_not(ct_fair_ask(&fair, 0, CT_FAIR_HIGH));
    cr_assert_not(ct_fair_ask(&fair, 1, CT_FAIR_HIGH));
    cr_assert_eq(ct_fair_next(&fair, CT_FAIR_LOW), -1, "not yet");
    cr_assert_eq(ct_fair_next(&fair, CT_FAIR_LOW - 1), 2);
    cr_assert_eq(ct_fair_next(&fair, 0), 0);
    cr_assert_not(ct_fair_ask(&fair, 2, CT_FAIR_HIGH));
    cr_assert_eq(ct_fair_next(&fair, 0), 1, "the one that came back stands behind");
    cr_assert_eq(ct_fair_next(&fair, 0), 2);
    cr_assert_eq(ct_fair_next(&fair, 0), -1);
}

/* A sink that writes one budget a turn; all streams flood but the last, which has a line to say. */
Test(fair, a_flood_does_not_keep_a_quiet_stream_waiting)
{
    enum { STREAMS = 64, QUIET = STREAMS - 1, DRAIN = CT_FAIR_BUDGET };
    struct ct_fair fair;
    uint32_t line[STREAMS];
    bool reading[STREAMS];
    size_t queued = 0, most = 0;
    unsigned longest = 0, waited = 0, heard = 0;

    ct_fair_init(&fair, line, STREAMS);
    for (unsigned i = 0; i < STREAMS; i++)
        reading[i] = true;
    for (unsigned turn = 0; turn < 20000; turn++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            if (!reading[i])
                continue;
            reading[i] = ct_fair_ask(&fair, i, queued);
            if (reading[i])
                queued += i == QUIET ? 20 : CT_FAIR_BUDGET;
        }
        waited++;
        most = queued > most ? queued : most;
        queued -= queued < DRAIN ? queued : DRAIN;
        for (int64_t next; (next = ct_fair_next(&fair, queued)) >= 0;) {
            reading[next] = true;
            queued += next == QUIET ? 20 : CT_FAIR_BUDGET;
            if (next == QUIET) {
                longest = waited > longest ? waited : longest;
                waited = 0;
                heard++;
            }
        }
    }
    cr_assert_geq(heard, 20000u / (2 * STREAMS), "heard %u times", heard);
    cr_assert_leq(longest, 2u * STREAMS, "waited %u turns", longest);
    cr_assert_leq(most, (size_t)CT_FAIR_HIGH + CT_FAIR_BUDGET);
}

Test(fair, a_stream_that_ended_waits_no_longer)
{
    struct ct_fair fair;
    uint32_t line[4];

    ct_fair_init(&fair, line, 4);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_not(ct_fair_ask(&fair, i, CT_FAIR_HIGH));
    cr_assert_eq(ct_fair_next(&fair, 0), 0);
    ct_fair_drop(&fair, 2);
    ct_fair_drop(&fair, 2);
    cr_assert_eq(ct_fair_next(&fair, 0), 1);
    cr_assert_eq(ct_fair_next(&fair, 0), 3);
    cr_assert_eq(ct_fair_next(&fair, 0), -1);
}
