/* Which endpoint an agent tries next, and for how long. */
#include "rendezvous/client/endpoints.h"

#include <criterion/criterion.h>

TestSuite(endpoints, .timeout = 10);

static struct ct_endpoints endpoints;

static void learn(const char *a, const char *b)
{
    struct ct_wire_replica_server list[] = {{.id = 1, .address = a}, {.id = 2, .address = b}};
    const struct ct_msg_voters voters = {.epoch = 1, .servers = {list, b != NULL ? 2 : 1}};

    ct_endpoints_learn(&endpoints, &voters);
}

static uint16_t next_port(uint64_t now_ms)
{
    return ct_endpoints_next(&endpoints, now_ms).endpoint->port;
}

Test(endpoints, those_given_are_tried_in_turn_each_once_a_request)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,b:2", NULL), 0);
    for (int i = 0; i < 2; i++) {
        ct_endpoints_begin(&endpoints, 0, 10000, 0);
        cr_assert_eq(next_port(0), 1);
        cr_assert(ct_endpoints_go_on(&endpoints, false));
        cr_assert_eq(next_port(0), 2);
        cr_assert_not(ct_endpoints_go_on(&endpoints, false));
    }
}

Test(endpoints, those_told_come_first_and_each_is_tried_at_once)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    learn("x:7", "y:8");
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 7);
    cr_assert(ct_endpoints_go_on(&endpoints, false));
    cr_assert_eq(next_port(0), 8);
    cr_assert(ct_endpoints_go_on(&endpoints, false));
    cr_assert_eq(next_port(0), 1);
    cr_assert_not(ct_endpoints_go_on(&endpoints, false), "all have been tried");
}

Test(endpoints, a_connection_that_was_open_ends_the_tries)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    learn("x:7", "y:8");
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 7);
    cr_assert_not(ct_endpoints_go_on(&endpoints, true));
}

Test(endpoints, newer_voters_take_the_place_of_older_ones)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    learn("x:7", "y:8");
    learn("z:9", NULL);
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 9);
    cr_assert_eq(next_port(0), 1);
    cr_assert_eq(next_port(0), 9);
}

/* Its own holder, left behind, says the same again and again: x, which is dead. */
Test(endpoints, those_given_are_asked_too_when_a_follower_repeats_itself)
{
    struct ct_wire_replica_server servers[] = {{.id = 1, .address = "x:7"},
                                               {.id = 2, .address = "y:8"}};
    const struct ct_msg_voters voters = {.epoch = 0, .servers = {servers, 2}};
    bool is_asked = false;

    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    for (int i = 0; i < 6; i++) {
        ct_endpoints_learn(&endpoints, &voters);
        ct_endpoints_begin(&endpoints, 0, 10000, 0);
        is_asked = next_port(0) == 1 || is_asked;
    }
    cr_assert(is_asked);
}

Test(endpoints, an_address_that_cannot_be_read_is_left_out)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    learn("no port", "y:8");
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 8);
    cr_assert_eq(next_port(0), 1);
}

Test(endpoints, one_of_several_is_tried_for_a_second_the_only_one_as_long_as_the_member_waits)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    ct_endpoints_begin(&endpoints, 100, 60000, 0);
    cr_assert_eq(ct_endpoints_next(&endpoints, 100).connect_ms, 60000);
    cr_assert_eq(ct_endpoints_next(&endpoints, 60000).connect_ms, 100);
    cr_assert_eq(ct_endpoints_next(&endpoints, 60100).connect_ms, 1, "never without any time");
    learn("x:7", NULL);
    cr_assert_eq(ct_endpoints_next(&endpoints, 100).connect_ms, CT_ENDPOINTS_TURN_MS);
}

Test(endpoints, a_refusal_ends_a_try_when_there_are_others_to_ask)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_not(ct_endpoints_next(&endpoints, 0).once);
    learn("x:7", NULL);
    cr_assert(ct_endpoints_next(&endpoints, 0).once);
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,b:2", NULL), 0);
    cr_assert(ct_endpoints_next(&endpoints, 0).once);
}

Test(endpoints, more_than_eight_are_refused)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8", &err), 0);
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9", &err),
                 CT_EUSAGE);
    cr_assert_str_eq(err.text, "an agent can be given 8 endpoints");
}

/* Each of the endpoints once; how long the last of them was tried. */
static uint32_t try_all(uint32_t nodes)
{
    uint32_t connect_ms;

    ct_endpoints_begin(&endpoints, 0, 600000, nodes);
    do
        connect_ms = ct_endpoints_next(&endpoints, 0).connect_ms;
    while (ct_endpoints_go_on(&endpoints, false));
    return connect_ms;
}

Test(endpoints, each_is_tried_for_longer_after_a_turn_in_which_none_opened)
{
    static const uint32_t expected[] = {1000, 2000, 4000, 8000, 8000};

    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,b:2", NULL), 0);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        cr_assert_eq(try_all(0), expected[i], "turn %zu", i);
    ct_endpoints_begin(&endpoints, 0, 600000, 0);
    (void)ct_endpoints_next(&endpoints, 0);
    ct_endpoints_opened(&endpoints);
    cr_assert_eq(try_all(0), CT_ENDPOINTS_TURN_MS, "one has answered");
}

Test(endpoints, each_is_tried_for_longer_where_thousands_of_nodes_come_at_once)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1,b:2", NULL), 0);
    cr_assert_eq(try_all(2000), CT_ENDPOINTS_TURN_MS);
    ct_endpoints_opened(&endpoints);
    cr_assert_eq(try_all(10000), 5000);
    ct_endpoints_opened(&endpoints);
    cr_assert_eq(try_all(1000000), CT_ENDPOINTS_LONGEST_MS);
    ct_endpoints_opened(&endpoints);
    cr_assert_eq(try_all(3), CT_ENDPOINTS_TURN_MS, "of a later, smaller round");
}

Test(endpoints, the_holder_of_this_host_is_asked_after_those_told_and_once)
{
    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    learn("x:7", "y:8");
    ct_endpoints_set_own(&endpoints, "y:8");
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 7);
    cr_assert_eq(next_port(0), 8);
    cr_assert_eq(next_port(0), 1);
    learn("v:5", "w:6"); /* of long ago */
    ct_endpoints_begin(&endpoints, 0, 10000, 0);
    cr_assert_eq(next_port(0), 5);
    cr_assert_eq(next_port(0), 6);
    cr_assert_eq(next_port(0), 8);
    cr_assert(ct_endpoints_go_on(&endpoints, false));
    cr_assert_eq(next_port(0), 1);
    cr_assert_not(ct_endpoints_go_on(&endpoints, false));
}

static void send_on(const char *a)
{
    struct ct_wire_replica_server one = {.id = 1, .address = a};

    ct_endpoints_learn(&endpoints, &(struct ct_msg_voters){.servers = {&one, 1}});
}

Test(endpoints, two_that_do_not_lead_send_nobody_to_and_fro_for_ever)
{
    bool given = false;

    cr_assert_eq(ct_endpoints_init(&endpoints, "a:1", NULL), 0);
    for (int i = 0; i < 10 && !given; i++) {
        send_on(i % 2 == 0 ? "x:7" : "y:8");
        ct_endpoints_begin(&endpoints, 0, 10000, 0);
        given = next_port(0) == 1;
    }
    cr_assert(given);
}
