/* A relay's bounds: what its clients may make it hold, and for how long. */
#include "client.h"
#include "server.h"
#include "tunnel.h"

#include "base/assert.h"
#include "rendezvous/tcpstore/relay_state_uv.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(relay, .init = tunnel_set_up, .fini = tunnel_tear_down, .timeout = 60);

Test(relay, idle_connections_do_not_keep_an_honest_client_out)
{
    enum { IDLE = 1500 };
    static int idle[IDLE];

    allow_descriptors();
    host_start(NULL);
    tunnel_start_hub();
    struct ct_tcpstore_relay_options options = tunnel_relay_options();
    options.silent = 500;
    tunnel_start_relay(0, &options);
    int before = tunnel_greet(0);
    expect_value_at(before, "k", "");
    for (int i = 0; i < IDLE; i++)
        idle[i] = tunnel_dial(0);
    int after = tunnel_greet(0);
    expect_value_at(after, "k", "");
    expect_value_at(before, "k", "");
    cr_assert_leq(tunnel.relays[0]->line_count, 502u);
    cr_assert_eq(counts().clients, 2, "who says nothing is not told to the hub");
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    close(before);
    close(after);
}

/* Whatever its clients do, a relay keeps its budget and a share for each of them. */
Test(relay, a_relay_keeps_no_more_for_all_its_clients_than_its_budget)
{
    enum { GREEDY = 48, BUDGET = 1 << 20, VALUE = 64 << 10, ASKED = 8000, TURNS = 200 };
    static char value[VALUE + 1];
    int greedy[GREEDY];
    size_t most = 0;
    struct ct_buf asked = {0};

    host_start(NULL);
    tunnel_start_hub();
    struct ct_tcpstore_relay_options options = tunnel_relay_options();
    options.budget = BUDGET;
    tunnel_start_relay(0, &options);
    int honest = tunnel_greet(0);
    memset(value, 'v', VALUE);
    ask_at(honest, SET, "bb", "/k", value);
    ask_at(honest, SET, "bb", "k", "");
    expect_value_at(honest, "k", "");
    while (asked.size < ASKED)
        compose(&asked, GET, "b", "/k");
    for (int i = 0; i < GREEDY; i++) {
        greedy[i] = tunnel_greet(0);
        write_fd(greedy[i], asked.data, asked.size);
    }
    for (int i = 0; i < TURNS; i++) {
        host_turn(__FILE__, __LINE__, "they read nothing");
        size_t held = tunnel.relays[0]->held;
        most = CT_MAX(most, held);
        if (i % 20 == 0)
            expect_value_at(honest, "k", "");
    }
    cr_assert_gt(most, BUDGET / 2, "they try: %zu", most);
    cr_assert_lt(most, BUDGET + GREEDY * 2 * CT_TUNNEL_SHARE, "%zu", most);
    for (int i = 0; i < GREEDY; i++)
        close(greedy[i]);
    HOST_UNTIL(tunnel.relays[0]->line_count == 1);
    expect_value_at(honest, "k", "");
    HOST_UNTIL(tunnel.relays[0]->held <= 4 * CT_TUNNEL_SHARE);
    ask_for_large(honest); /* it is read from again, at full width */
    expect_large(honest);
    close(honest);
    ct_buf_deinit(&asked);
}

Test(relay, who_says_nothing_is_closed_unless_it_may_be_a_second_connection)
{
    enum { SPOKEN = 3, SILENT = 8 };
    int spoken[SPOKEN], silent[SILENT];

    host_start(NULL);
    tunnel_start_hub();
    struct ct_tcpstore_relay_options options = tunnel_relay_options();
    options.silent_ms = 300;
    tunnel_start_relay(0, &options);
    for (int i = 0; i < SPOKEN; i++) {
        spoken[i] = tunnel_greet(0);
        expect_value_at(spoken[i], "k", "");
    }
    for (int i = 0; i < SILENT; i++)
        silent[i] = tunnel_dial(0);
    HOST_UNTIL(tunnel.relays[0]->line_count == SPOKEN + SILENT);
    HOST_UNTIL(tunnel.relays[0]->line_count == 2 * SPOKEN);
    for (int i = 0; i < SILENT - SPOKEN; i++)
        receive_end(silent[i]); /* the oldest */
    expect_value_at(spoken[0], "k", "");
    for (int i = 0; i < 10; i++)
        host_turn(__FILE__, __LINE__, "the others stay");
    cr_assert_eq(tunnel.relays[0]->line_count, 2 * SPOKEN);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    for (int i = 0; i < SPOKEN; i++)
        close(spoken[i]);
}
