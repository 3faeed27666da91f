/* The tunnel: clients at a relay see the store behind the hub, whatever others do. */
#include "client.h"
#include "server.h"
#include "tunnel.h"

#include "base/assert.h"
#include "rendezvous/tcpstore/relay_state_uv.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N(number) ((int64_t)(number))

static const struct ct_key wrong_key = {.secret = "0123456789abcdef0123456789abcdeB"};

TestSuite(tunnel, .init = tunnel_set_up, .fini = tunnel_tear_down, .timeout = 60);

Test(tunnel, clients_of_two_relays_and_of_the_server_share_a_store)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(1), c = dial();

    write_fd(c, "\x00\xCE\xF7\x85\x3C", 5);
    ask_at(a, SET, "bb", "/k", "value");
    expect_value_at(a, "/k", "value");
    expect_value_at(b, "/k", "value");
    expect_value_at(c, "/k", "value");
    ask_at(c, SET, "bb", "/k", "other");
    expect_value_at(c, "/k", "other");
    expect_value_at(b, "/k", "other");
    close(a);
    HOST_UNTIL(host.lost == 1);
    expect_value_at(b, "/k", "other");
    close(b);
    close(c);
}

Test(tunnel, a_wait_on_one_node_ends_with_a_set_on_another)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(1);
    struct ct_buf wait = {0};

    compose(&wait, WAIT, "nb", N(1), "/k");
    write_fd(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    ask_at(b, SET, "bb", "/k", "v");
    receive(a, 1, NULL);
    expect_value_at(a, "/k", "v");
    close(a);
    close(b);
    ct_buf_deinit(&wait);
}

Test(tunnel, who_comes_before_the_hub_is_there_is_served_when_it_is)
{
    host_start(NULL);
    tunnel_start_hub();
    struct ct_tcpstore_relay_options options = tunnel_relay_options();
    ct_tcpstore_hub_stop(tunnel.hub);
    tunnel.hub = NULL;
    tunnel_start_relay(0, &options);
    int a = tunnel_greet(0);
    for (int i = 0; i < 20; i++)
        host_turn(__FILE__, __LINE__, "it waits");
    tunnel_start_hub_at(&options.hub);
    expect_value_at(a, "k", "");
    close(a);
}

Test(tunnel, the_end_of_a_client_is_told_as_it_was)
{
    tunnel_start_all();
    int a = tunnel_greet(0);
    struct ct_buf wait = {0};

    write_fd(a, "\x0D\x2A\x00\x00\x00", 5);
    receive(a, 4, NULL);
    compose(&wait, WAIT, "nb", N(1), "never");
    write_fd(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    close(a);
    HOST_UNTIL(host.lost == 1);
    cr_assert_eq(host.last.pid, 42);
    cr_assert(host.last.waited && host.last.is_client);
    cr_assert_eq(host.why.code, 0, "%s", host.why.text);

    const struct linger at_once = {.l_onoff = 1};
    int b = tunnel_greet(0);
    expect_value_at(b, "k", "");
    cr_assert_eq(setsockopt(b, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(b);
    HOST_UNTIL(host.lost == 2);
    cr_assert_eq(host.why.code, CT_ECLOSED, "it broke");
    HOST_UNTIL(tunnel.relays[0]->line_count == 0);
    ct_buf_deinit(&wait);
}

Test(tunnel, who_breaks_the_rules_of_the_store_is_closed_and_nobody_else)
{
    tunnel_start_all();
    int good = tunnel_greet(0), bad = tunnel_dial(0);

    write_fd(bad, "GET / HTTP/1.1\r\n\r\n", 18);
    receive_end(bad);
    cr_assert_eq(host.why.code, CT_EPROTOCOL, "%s", host.why.text);
    close(bad);
    for (int i = 0; i < 50; i++) { /* numbers are used again */
        bad = tunnel_dial(0);
        write_fd(bad, "\xff", 1);
        receive_end(bad);
        close(bad);
    }
    expect_value_at(good, "k", "");
    cr_assert_eq(counts().clients, 1);
    close(good);
}

Test(tunnel, who_does_not_read_a_large_answer_holds_up_nobody)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(0);

    ask_for_large(a);
    for (int i = 0; i < 20; i++) {
        ask_at(b, SET, "bb", "/k", "v");
        expect_value_at(b, "/k", "v");
    }
    cr_assert_lt(counts().bytes, 4 * CT_TCPSTORE_VALUE_BYTES, "one answer at a time");
    expect_large(a);
    close(a);
    close(b);
}

/* ---- who may come ---- */

static void expect_refused(const struct ct_tcpstore_relay_options *options)
{
    host_start(NULL);
    tunnel_start_hub();
    struct ct_tcpstore_relay_options full = *options;
    full.hub = *ct_tcpstore_hub_endpoint(tunnel.hub);
    full.on_cut = tunnel_on_cut;
    full.user = &tunnel;
    tunnel_start_relay(0, &full);
    int a = tunnel_dial(0);
    HOST_UNTIL(tunnel.cut == 1);
    receive_end(a);
    cr_assert_eq(counts().clients, 0);
    close(a);
}

Test(tunnel, a_relay_of_another_round_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION - 1, .job = "digits", .key = &tunnel_key});
}

Test(tunnel, a_relay_with_another_key_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION, .job = "digits", .key = &wrong_key});
}

Test(tunnel, a_relay_of_another_job_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION, .job = "letters", .key = &tunnel_key});
}

/* ---- a connection that breaks ---- */

/* Break all connections with the hub, as a router on the way would: the relay gets a reset, the hub
 * notices nothing. */
static void cut_tunnels(void)
{
    uint16_t port = ct_tcpstore_hub_endpoint(tunnel.hub)->port;

    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in own = {.sin_family = AF_UNSPEC}, peer;
        socklen_t size = sizeof own, peer_size = sizeof peer;
        if (getsockname(fd, (struct sockaddr *)&own, &size) != 0 || own.sin_family != AF_INET ||
            ntohs(own.sin_port) != port ||
            getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0)
            continue;
        const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
        cr_assert_eq(connect(fd, &nobody, sizeof nobody), 0);
    }
}

Test(tunnel, a_wait_under_way_outlives_a_broken_connection)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(0);
    struct ct_buf wait = {0};

    compose(&wait, WAIT, "nb", N(1), "/k");
    write_fd(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    for (int i = 1; i <= 3; i++) {
        cut_tunnels();
        HOST_UNTIL(tunnel.broken == i);
        expect_value_at(b, "other", "");
    }
    ask_at(b, SET, "bb", "/k", "v");
    receive(a, 1, NULL);
    expect_value_at(a, "/k", "v");
    cr_assert_eq(counts().clients, 2);
    cr_assert_eq(tunnel.cut + host.lost, 0);
    close(a);
    HOST_UNTIL(host.lost == 1);
    close(b);
    ct_buf_deinit(&wait);
}

/* A megabyte there and back in requests under way, with a cut now here, now there. */
Test(tunnel, no_byte_is_lost_or_doubled_when_connections_break)
{
    enum { SIZE = 1 << 20, PART = 50000 };
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(0), cuts = 0;
    struct ct_buf set = {0}, get = {0}, back = {0};
    char *value = malloc(SIZE + 1);

    for (size_t i = 0; i < SIZE; i++)
        value[i] = (char)('a' + (i * i / 7 + i / 251) % 26);
    value[SIZE] = '\0';
    compose(&set, SET, "bb", "/k", value);
    compose(&get, GET, "b", "/k");
    expect_value_at(b, "other", "");
    for (size_t at = 0; at < set.size; at += PART) {
        write_fd(a, set.data + at, CT_MIN((size_t)PART, set.size - at));
        if (at / PART % 3 == 0) {
            cut_tunnels();
            HOST_UNTIL(tunnel.broken == cuts + 1);
            expect_value_at(b, "other", ""); /* there is a connection again */
            cuts++;
        }
    }
    write_fd(a, get.data, get.size);
    receive(a, 8, NULL);
    for (size_t at = 0; at < SIZE; at += PART) {
        receive(a, CT_MIN((size_t)PART, SIZE - at), &back);
        if (at / PART % 3 == 0 && at + 4 * CT_TUNNEL_WINDOW < SIZE) {
            cut_tunnels();
            HOST_UNTIL(tunnel.broken == cuts + 1);
            expect_value_at(b, "other", ""); /* there is a connection again */
            cuts++;
        }
    }
    cr_assert_gt(cuts, 8);
    cr_assert_eq(back.size, SIZE);
    cr_assert_eq(memcmp(back.data, value, SIZE), 0);
    expect_value_at(a, "other", "");
    close(a);
    close(b);
    HOST_UNTIL(host.lost == 2);
    ct_buf_deinit(&set);
    ct_buf_deinit(&get);
    ct_buf_deinit(&back);
    free(value);
}

Test(tunnel, who_leaves_while_the_connection_is_broken_has_left_when_it_is_back)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(0);

    expect_value_at(a, "k", "");
    expect_value_at(b, "k", "");
    cut_tunnels();
    close(a);
    HOST_UNTIL(host.lost == 1);
    cr_assert_eq(counts().clients, 1);
    expect_value_at(b, "k", "");
    close(b);
    HOST_UNTIL(host.lost == 2);
}

/* ---- the end ---- */

Test(tunnel, a_lost_hub_ends_all_clients_and_the_next_one_finds_the_new_hub)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(0);

    expect_value_at(a, "k", "");
    const struct ct_endpoint place = *ct_tcpstore_hub_endpoint(tunnel.hub);
    ct_tcpstore_hub_stop(tunnel.hub);
    tunnel.hub = NULL;
    receive_end(a);
    receive_end(b);
    cr_assert_eq(tunnel.cut, 1, "the other relay had no clients");
    cr_assert_eq(counts().clients, 0);
    tunnel_start_hub_at(&place);
    int c = tunnel_greet(0);
    expect_value_at(c, "k", "");
    close(a);
    close(b);
    close(c);
}

Test(tunnel, a_relay_that_stops_takes_its_clients_along)
{
    tunnel_start_all();
    int a = tunnel_greet(0), b = tunnel_greet(1);

    expect_value_at(a, "k", "");
    expect_value_at(b, "k", "");
    ct_tcpstore_relay_stop(tunnel.relays[0]);
    tunnel.relays[0] = NULL;
    receive_end(a);
    HOST_UNTIL(counts().clients == 1);
    expect_value_at(b, "k", "");
    close(a);
    close(b);
}

/* ---- peers that break the rules of the tunnel ---- */

struct rogue {
    struct ct_conn *conn;
    bool open, closed;
    int ends; /* of streams, said by the hub for a reason */
    struct ct_error why;
};

static void rogue_open(struct ct_conn *conn)
{
    ((struct rogue *)ct_conn_user(conn))->open = true;
}

static void rogue_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct rogue *rogue = ct_conn_user(conn);

    if (message->type != CT_MSG_TUNNEL_CLOSE || message->tunnel_close.text[0] == '\0')
        return;
    rogue->ends++;
    ct_error_set(&rogue->why, CT_ELIMIT, "%s", message->tunnel_close.text);
}

static void rogue_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct rogue *rogue = ct_conn_user(conn);

    rogue->closed = true;
    rogue->why = *why;
}

Test(tunnel, who_breaks_the_rules_of_the_tunnel_is_closed_and_nobody_else)
{
    static unsigned char part[CT_WIRE_TUNNEL_BYTES];
    const struct ct_message hello = {.type = CT_MSG_TUNNEL_HELLO,
                                     .tunnel_hello = {.generation = GENERATION, .job = "digits"}};
    const struct ct_message open = {.type = CT_MSG_TUNNEL_OPEN, .tunnel_open = {.number = 3}};
    const struct ct_message data = {.type = CT_MSG_TUNNEL_DATA,
                                    .tunnel_data = {.number = 3, .data = {part, sizeof part}}};
    const struct ct_message high = {.type = CT_MSG_TUNNEL_OPEN,
                                    .tunnel_open = {.number = CT_TUNNEL_STREAMS}};
    const struct ct_message ack = {.type = CT_MSG_TUNNEL_ACK,
                                   .tunnel_ack = {.number = 3, .bytes = 1}};
    const struct ct_message end = {.type = CT_MSG_TUNNEL_CLOSE,
                                   .tunnel_close = {.number = 3, .text = ""}};
    const struct ct_message *const rows[][5] = {
        {&open},                      /* before HELLO */
        {&hello, &hello},             /* twice */
        {&hello, &data},              /* no such stream */
        {&hello, &end},               /* nor here */
        {&hello, &open, &open},       /* a number that is taken */
        {&hello, &high},              /* one that is too large */
        {&hello, &open, &ack},        /* more room than there is */
        {&hello, &open, &end, &data}, /* after the end */
    };
    const struct ct_conn_callbacks callbacks = {
        .on_open = rogue_open, .on_message = rogue_message, .on_close = rogue_close};
    tunnel_start_all();
    int good = tunnel_greet(0);

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_conn_options options = {
            .from = CT_FROM_HUB, .key = &tunnel_key, .job = "digits"};
        struct rogue rogue = {.open = false};
        cr_assert_eq(ct_conn_connect(&host.loop, ct_tcpstore_hub_endpoint(tunnel.hub), &options,
                                     &callbacks, &rogue, &rogue.conn, NULL),
                     0);
        HOST_UNTIL(rogue.open);
        for (size_t j = 0; j < CT_COUNT(rows[i]) && rows[i][j] != NULL; j++)
            (void)ct_conn_send(rogue.conn, rows[i][j], NULL);
        HOST_UNTIL(rogue.closed);
        expect_value_at(good, "k", "");
        cr_assert_eq(counts().clients, 1, "row %zu", i);
    }
    close(good);
}

/* Clients of a relay ask for a value, and it says of none that it took the answer. */
static void ask_and_take_nothing(struct rogue *rogue, uint32_t streams)
{
    struct ct_buf request = {0};

    compose_hello(&request);
    compose(&request, GET, "b", "k");
    for (uint32_t i = 0; i < streams; i++) {
        const struct ct_message open = {.type = CT_MSG_TUNNEL_OPEN, .tunnel_open = {.number = i}};
        const struct ct_message data = {
            .type = CT_MSG_TUNNEL_DATA,
            .tunnel_data = {.number = i, .data = {(void *)request.data, request.size}}};
        cr_assert_eq(ct_conn_send(rogue->conn, &open, NULL), 0);
        cr_assert_eq(ct_conn_send(rogue->conn, &data, NULL), 0);
    }
    ct_buf_deinit(&request);
}

Test(tunnel, what_a_stream_keeps_is_charged_and_the_stream_ends_when_it_is_too_much)
{
    enum { VALUE = 100 << 10, STREAMS = 16 };
    static char value[VALUE + 1];
    const struct ct_message hello = {.type = CT_MSG_TUNNEL_HELLO,
                                     .tunnel_hello = {.generation = GENERATION, .job = "digits"}};
    const struct ct_conn_callbacks callbacks = {
        .on_open = rogue_open, .on_message = rogue_message, .on_close = rogue_close};
    const struct ct_conn_options options = {
        .from = CT_FROM_HUB, .key = &tunnel_key, .job = "digits"};
    struct rogue rogue = {.open = false};

    host_start(&(struct ct_tcpstore_limits){.bytes = 1 << 20});
    tunnel_start_hub();
    int other = dial();
    write_fd(other, "\x00\xCE\xF7\x85\x3C", 5);
    memset(value, 'v', VALUE);
    ask_at(other, SET, "bb", "k", value);
    ask_at(other, SET, "bb", "/k", "v");
    expect_value_at(other, "/k", "v");
    cr_assert_eq(ct_conn_connect(&host.loop, ct_tcpstore_hub_endpoint(tunnel.hub), &options,
                                 &callbacks, &rogue, &rogue.conn, NULL),
                 0);
    HOST_UNTIL(rogue.open);
    cr_assert_eq(ct_conn_send(rogue.conn, &hello, NULL), 0);
    ask_and_take_nothing(&rogue, STREAMS);
    HOST_UNTIL(rogue.ends > 0);
    cr_assert_not_null(strstr(rogue.why.text, "the store is full for 127.0.0.1"), "%s",
                       rogue.why.text);
    cr_assert_lt(rogue.ends, STREAMS, "what fits is served");
    cr_assert_leq(counts().bytes, 1u << 20);
    expect_value_at(other, "/k", "v");
    ct_conn_close(rogue.conn, 0, NULL);
    HOST_UNTIL(rogue.closed);
    close(other);
}
