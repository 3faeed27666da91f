/* The tunnel: clients at a relay see the store behind the hub, whatever others do. */
#include "client.h"
#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"
#include "rendezvous/tcpstore/tunnel_uv.h"
#include "server.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N(number) ((int64_t)(number))

enum { RELAYS = 2, GENERATION = 7 };

static struct {
    struct ct_tcpstore_hub *hub;
    struct ct_tcpstore_relay *relays[RELAYS];
    int cut, broken;
    struct ct_error why;
} tunnel;

static const struct ct_key key = {"0123456789abcdef0123456789abcdeA"};
static const struct ct_key wrong_key = {"0123456789abcdef0123456789abcdeB"};

static void set_up(void)
{
    memset(&tunnel, 0, sizeof tunnel);
    host_set_up();
}

static void tear_down(void)
{
    for (int i = 0; i < RELAYS; i++)
        ct_tcpstore_relay_stop(tunnel.relays[i]);
    ct_tcpstore_hub_stop(tunnel.hub);
    host_tear_down();
}

TestSuite(tunnel, .init = set_up, .fini = tear_down, .timeout = 60);

static void on_lost(void *user, const struct ct_tcpstore_lost *lost)
{
    cr_assert_eq(user, &tunnel);
    host.lost++;
    host.last = *lost;
    host.last.peer = host.last.host = NULL;
    host.why = lost->why != NULL ? *lost->why : (struct ct_error){0};
}

static void on_cut(void *user, const struct ct_error *why)
{
    cr_assert_eq(user, &tunnel);
    tunnel.cut++;
    tunnel.why = *why;
}

static void on_broken(void *user, const struct ct_error *why)
{
    cr_assert_eq(user, &tunnel);
    cr_assert_neq(why->code, 0);
    tunnel.broken++;
}

static void start_hub_at(const struct ct_endpoint *endpoint)
{
    const struct ct_tcpstore_hub_options options = {
        .server = host.server,
        .generation = GENERATION,
        .job = "digits",
        .key = &key,
        .on_lost = on_lost,
        .user = &tunnel,
    };
    struct ct_error err = {0};

    cr_assert_eq(ct_tcpstore_hub_start(&host.loop, endpoint, &options, &tunnel.hub, &err), 0, "%s",
                 err.text);
}

static void start_hub(void)
{
    start_hub_at(&(struct ct_endpoint){.host = "127.0.0.1"});
}

/* What a relay of the job would be given. */
static struct ct_tcpstore_relay_options relay_options(void)
{
    return (struct ct_tcpstore_relay_options){
        .hub = *ct_tcpstore_hub_endpoint(tunnel.hub),
        .generation = GENERATION,
        .job = "digits",
        .key = &key,
        .resume_ms = 200,
        .on_broken = on_broken,
        .on_cut = on_cut,
        .user = &tunnel,
    };
}

static void start_relay(int index, const struct ct_tcpstore_relay_options *options)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_tcpstore_relay_start(&host.loop, options, &tunnel.relays[index], &err), 0, "%s",
                 err.text);
}

/* A server, a hub and both relays. */
static void start_all(void)
{
    host_start(NULL);
    start_hub();
    for (int i = 0; i < RELAYS; i++) {
        const struct ct_tcpstore_relay_options options = relay_options();
        start_relay(i, &options);
    }
}

static int dial_relay(int index)
{
    return dial_port(ct_tcpstore_relay_endpoint(tunnel.relays[index])->port);
}

static int greet(int index)
{
    int fd = dial_relay(index);

    say(fd, "\x00\xCE\xF7\x85\x3C", 5);
    return fd;
}

Test(tunnel, clients_of_two_relays_and_of_the_server_share_a_store)
{
    start_all();
    int a = greet(0), b = greet(1), c = dial();

    say(c, "\x00\xCE\xF7\x85\x3C", 5);
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
    start_all();
    int a = greet(0), b = greet(1);
    struct ct_buf wait = {0};

    compose(&wait, WAIT, "nb", N(1), "/k");
    say(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    ask_at(b, SET, "bb", "/k", "v");
    hear(a, 1, NULL);
    expect_value_at(a, "/k", "v");
    close(a);
    close(b);
    ct_buf_deinit(&wait);
}

Test(tunnel, who_comes_before_the_hub_is_there_is_served_when_it_is)
{
    host_start(NULL);
    start_hub();
    struct ct_tcpstore_relay_options options = relay_options();
    ct_tcpstore_hub_stop(tunnel.hub);
    tunnel.hub = NULL;
    start_relay(0, &options);
    int a = greet(0);
    for (int i = 0; i < 20; i++)
        host_turn(__FILE__, __LINE__, "it waits");
    start_hub_at(&options.hub);
    expect_value_at(a, "k", "");
    close(a);
}

Test(tunnel, the_end_of_a_client_is_told_as_it_was)
{
    start_all();
    int a = greet(0);
    struct ct_buf wait = {0};

    say(a, "\x0D\x2A\x00\x00\x00", 5);
    hear(a, 4, NULL);
    compose(&wait, WAIT, "nb", N(1), "never");
    say(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    close(a);
    HOST_UNTIL(host.lost == 1);
    cr_assert_eq(host.last.pid, 42);
    cr_assert(host.last.waited && host.last.is_client);
    cr_assert_eq(host.why.code, 0, "%s", host.why.text);

    const struct linger at_once = {.l_onoff = 1};
    int b = greet(0);
    expect_value_at(b, "k", "");
    cr_assert_eq(setsockopt(b, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(b);
    HOST_UNTIL(host.lost == 2);
    cr_assert_eq(host.why.code, CT_ECLOSED, "it broke");
    HOST_UNTIL(ct_tcpstore_relay_clients(tunnel.relays[0]) == 0);
    ct_buf_deinit(&wait);
}

Test(tunnel, who_breaks_the_rules_of_the_store_is_closed_and_nobody_else)
{
    start_all();
    int good = greet(0), bad = dial_relay(0);

    say(bad, "GET / HTTP/1.1\r\n\r\n", 18);
    hear_end(bad);
    cr_assert_eq(host.why.code, CT_EPROTOCOL, "%s", host.why.text);
    close(bad);
    for (int i = 0; i < 50; i++) { /* numbers are used again */
        bad = dial_relay(0);
        say(bad, "\xff", 1);
        hear_end(bad);
        close(bad);
    }
    expect_value_at(good, "k", "");
    cr_assert_eq(counts().clients, 1);
    close(good);
}

Test(tunnel, who_does_not_read_a_large_answer_holds_up_nobody)
{
    start_all();
    int a = greet(0), b = greet(0);

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

Test(tunnel, idle_connections_do_not_keep_an_honest_client_out)
{
    enum { IDLE = 1500 };
    static int idle[IDLE];

    allow_descriptors();
    host_start(NULL);
    start_hub();
    struct ct_tcpstore_relay_options options = relay_options();
    options.silent = 500;
    start_relay(0, &options);
    int before = greet(0);
    expect_value_at(before, "k", "");
    for (int i = 0; i < IDLE; i++)
        idle[i] = dial_relay(0);
    int after = greet(0);
    expect_value_at(after, "k", "");
    expect_value_at(before, "k", "");
    cr_assert_leq(ct_tcpstore_relay_clients(tunnel.relays[0]), 502u);
    cr_assert_eq(counts().clients, 2, "who says nothing is not told to the hub");
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    close(before);
    close(after);
}

/* ---- who may come ---- */

static void expect_refused(const struct ct_tcpstore_relay_options *options)
{
    host_start(NULL);
    start_hub();
    struct ct_tcpstore_relay_options full = *options;
    full.hub = *ct_tcpstore_hub_endpoint(tunnel.hub);
    full.on_cut = on_cut;
    full.user = &tunnel;
    start_relay(0, &full);
    int a = dial_relay(0);
    HOST_UNTIL(tunnel.cut == 1);
    hear_end(a);
    cr_assert_eq(counts().clients, 0);
    close(a);
}

Test(tunnel, a_relay_of_another_round_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION - 1, .job = "digits", .key = &key});
}

Test(tunnel, a_relay_with_another_key_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION, .job = "digits", .key = &wrong_key});
}

Test(tunnel, a_relay_of_another_job_is_refused)
{
    expect_refused(&(struct ct_tcpstore_relay_options){
        .generation = GENERATION, .job = "letters", .key = &key});
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
    start_all();
    int a = greet(0), b = greet(0);
    struct ct_buf wait = {0};

    compose(&wait, WAIT, "nb", N(1), "/k");
    say(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    for (int i = 1; i <= 3; i++) {
        cut_tunnels();
        HOST_UNTIL(tunnel.broken == i);
        expect_value_at(b, "other", "");
    }
    ask_at(b, SET, "bb", "/k", "v");
    hear(a, 1, NULL);
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
    enum { SIZE = 1 << 20, PIECE = 50000 };
    start_all();
    int a = greet(0), b = greet(0), cuts = 0;
    struct ct_buf set = {0}, get = {0}, back = {0};
    char *value = malloc(SIZE + 1);

    for (size_t i = 0; i < SIZE; i++)
        value[i] = (char)('a' + (i * i / 7 + i / 251) % 26);
    value[SIZE] = '\0';
    compose(&set, SET, "bb", "/k", value);
    compose(&get, GET, "b", "/k");
    expect_value_at(b, "other", "");
    for (size_t at = 0; at < set.size; at += PIECE) {
        say(a, set.data + at, CT_MIN((size_t)PIECE, set.size - at));
        if (at / PIECE % 3 == 0) {
            cut_tunnels();
            HOST_UNTIL(tunnel.broken == cuts + 1);
            expect_value_at(b, "other", ""); /* there is a connection again */
            cuts++;
        }
    }
    say(a, get.data, get.size);
    hear(a, 8, NULL);
    for (size_t at = 0; at < SIZE; at += PIECE) {
        hear(a, CT_MIN((size_t)PIECE, SIZE - at), &back);
        if (at / PIECE % 3 == 0 && at + 4 * CT_TUNNEL_WINDOW < SIZE) {
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
    start_all();
    int a = greet(0), b = greet(0);

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
    start_all();
    int a = greet(0), b = greet(0);

    expect_value_at(a, "k", "");
    const struct ct_endpoint place = *ct_tcpstore_hub_endpoint(tunnel.hub);
    ct_tcpstore_hub_stop(tunnel.hub);
    tunnel.hub = NULL;
    hear_end(a);
    hear_end(b);
    cr_assert_eq(tunnel.cut, 1, "the other relay had no clients");
    cr_assert_eq(counts().clients, 0);
    start_hub_at(&place);
    int c = greet(0);
    expect_value_at(c, "k", "");
    close(a);
    close(b);
    close(c);
}

Test(tunnel, a_relay_that_stops_takes_its_clients_along)
{
    start_all();
    int a = greet(0), b = greet(1);

    expect_value_at(a, "k", "");
    expect_value_at(b, "k", "");
    ct_tcpstore_relay_stop(tunnel.relays[0]);
    tunnel.relays[0] = NULL;
    hear_end(a);
    HOST_UNTIL(counts().clients == 1);
    expect_value_at(b, "k", "");
    close(a);
    close(b);
}

/* ---- peers that break the rules of the tunnel ---- */

struct rogue {
    struct ct_conn *conn;
    bool open, closed;
    struct ct_error why;
};

static void rogue_open(struct ct_conn *conn)
{
    ((struct rogue *)ct_conn_user(conn))->open = true;
}

static void rogue_message(struct ct_conn *conn, const struct ct_message *message)
{
    (void)conn;
    (void)message;
}

static void rogue_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct rogue *rogue = ct_conn_user(conn);

    rogue->closed = true;
    rogue->why = *why;
}

Test(tunnel, who_breaks_the_rules_of_the_tunnel_is_closed_and_nobody_else)
{
    static unsigned char piece[CT_WIRE_TUNNEL_BYTES];
    const struct ct_message hello = {.type = CT_MSG_TUNNEL_HELLO,
                                     .tunnel_hello = {.generation = GENERATION, .job = "digits"}};
    const struct ct_message open = {.type = CT_MSG_TUNNEL_OPEN, .tunnel_open = {.number = 3}};
    const struct ct_message data = {.type = CT_MSG_TUNNEL_DATA,
                                    .tunnel_data = {.number = 3, .data = {piece, sizeof piece}}};
    const struct ct_message high = {.type = CT_MSG_TUNNEL_OPEN,
                                    .tunnel_open = {.number = CT_TUNNEL_STREAMS}};
    const struct ct_message taken = {.type = CT_MSG_TUNNEL_TAKEN,
                                     .tunnel_taken = {.number = 3, .bytes = 1}};
    const struct ct_message end = {.type = CT_MSG_TUNNEL_CLOSE,
                                   .tunnel_close = {.number = 3, .text = ""}};
    const struct ct_message *const rows[][5] = {
        {&open},                      /* before HELLO */
        {&hello, &hello},             /* twice */
        {&hello, &data},              /* no such stream */
        {&hello, &end},               /* nor here */
        {&hello, &open, &open},       /* a number that is taken */
        {&hello, &high},              /* one that is too large */
        {&hello, &open, &taken},      /* more room than there is */
        {&hello, &open, &end, &data}, /* after the end */
    };
    const struct ct_conn_callbacks callbacks = {rogue_open, rogue_message, rogue_close, NULL};
    start_all();
    int good = greet(0);

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const struct ct_conn_options options = {.from = CT_FROM_HUB, .key = &key, .job = "digits"};
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
