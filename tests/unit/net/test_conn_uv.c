/* Connections over real sockets: what passes, what ends them, and who is told. */
#include "net_test.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "chance.h"
#include "net/conn_inner_uv.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};
static const struct ct_key wrong_key = {.secret = "0123456789abcdef0123456789abcdeB"};
static struct end client;

static void set_up(void)
{
    memset(&client, 0, sizeof(client));
    net_set_up();
}

static void tear_down(void)
{
    if (client.conn != NULL)
        ct_conn_close(client.conn, 0, NULL);
    net_tear_down();
    cr_assert(client.opened + client.closed == 0 || client.closed == 1, "on_close comes once");
}

TestSuite(conn, .init = set_up, .fini = tear_down, .timeout = 60);

/* A client and a server that are open, over each kind of stream. */
enum kind { OVER_TCP, OVER_UNIX, OVER_TLS, KINDS };

static void open_both(enum kind kind)
{
    const struct ct_key *used = kind == OVER_TLS ? &key : NULL;
    struct ct_listener_options server = net_server(used);
    struct ct_conn_options options = net_client(used);

    if (kind == OVER_UNIX)
        net_listen_unix(&server);
    else
        net_listen(&server);
    net_connect(&client, &options);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    cr_assert_eq(client.waits, 0);
}

static void exchange(enum kind kind)
{
    net.echo = true;
    open_both(kind);
    for (uint64_t step = 1; step <= 1000; step++)
        cr_assert_eq(net_heartbeat(&client, step), 0);
    NET_UNTIL(client.messages == 1000);
    cr_assert_eq(net.ends[0].last_step, 1000);
    cr_assert_eq(client.last_step, 1000);
    cr_assert(net_is_open(client.conn));
    cr_assert_eq(ct_conn_queued(client.conn), 0);
}

Test(conn, messages_pass_both_ways_over_tcp)
{
    exchange(OVER_TCP);
    cr_assert_eq(strncmp(ct_conn_peer(net.ends[0].conn), "127.0.0.1:", 10), 0);
}

Test(conn, messages_pass_both_ways_over_a_unix_socket)
{
    exchange(OVER_UNIX);
    cr_assert_eq(strncmp(ct_conn_peer(net.ends[0].conn), "unix:/tmp/", 10), 0);
}

Test(conn, messages_pass_both_ways_over_tls)
{
    exchange(OVER_TLS);
}

static void send_value(enum kind kind)
{
    unsigned char *value = malloc(CT_WIRE_VALUE_BYTES);
    const struct ct_message set = {
        .type = CT_MSG_STORE_SET, .store_set = {.key = "k", .value = {value, CT_WIRE_VALUE_BYTES}}};

    memset(value, 0x5a, CT_WIRE_VALUE_BYTES);
    open_both(kind);
    cr_assert_eq(ct_conn_send(client.conn, &set, NULL), 0);
    cr_assert_gt(ct_conn_queued(client.conn), 0);
    NET_UNTIL(net.ends[0].messages == 1);
    cr_assert_eq(net.ends[0].last_size, CT_WIRE_VALUE_BYTES);
    NET_UNTIL(ct_conn_queued(client.conn) == 0);
    free(value);
}

Test(conn, the_largest_value_passes_over_tcp)
{
    send_value(OVER_TCP);
}

Test(conn, the_largest_value_passes_over_tls)
{
    send_value(OVER_TLS);
}

Test(conn, a_message_above_its_limit_is_refused_and_the_connection_lives)
{
    struct ct_error err = {0};
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.value = {(const unsigned char *)"", SIZE_MAX}}};

    open_both(OVER_TLS);
    cr_assert_eq(ct_conn_send(client.conn, &set, &err), CT_ELIMIT);
    cr_assert_eq(net_heartbeat(&client, 3), 0);
    NET_UNTIL(net.ends[0].messages == 1);
    cr_assert_eq(net.ends[0].last_step, 3);
}

Test(conn, tcp_streams_send_at_once_and_give_up_on_silence)
{
    struct ct_conn_options options = net_client(NULL);
    struct ct_listener_options server = net_server(NULL);
    int fd = -1, nodelay = 0;
    unsigned timeout_ms = 0;
    socklen_t size = sizeof(int);

    options.user_timeout_ms = 1234;
    net_listen(&server);
    net_connect(&client, &options);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    cr_assert_eq(uv_fileno(&client.conn->io.handle, &fd), 0);
    cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &size), 0);
    cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &size), 0);
    cr_assert_eq(nodelay, 1);
    cr_assert_eq(timeout_ms, 1234);
    cr_assert_eq(uv_fileno(&net.ends[0].conn->io.handle, &fd), 0);
    cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &size), 0);
    cr_assert_eq(timeout_ms, 5000, "the default");
}

/* ---- who may come ---- */

/* A client with `mine` and a server with `theirs` do not come together. */
static void part(const struct ct_key *mine, const struct ct_key *theirs)
{
    struct ct_listener_options server = net_server(theirs);
    struct ct_conn_options options = net_client(mine);

    net_listen(&server);
    net_connect(&client, &options);
    if (mine == NULL) { /* in clear it is open at once, and speaks first */
        NET_UNTIL(client.opened == 1);
        cr_assert_eq(net_heartbeat(&client, 1), 0);
    }
    NET_UNTIL(client.closed == 1 && net.refused == 1);
    cr_assert_eq(client.waits, 0, "final at once");
    cr_assert_eq(client.why.code, CT_EAUTH, "%s", client.why.text);
    cr_assert_eq(net.refusal.code, CT_EAUTH, "%s", net.refusal.text);
    cr_assert_eq(client.messages, 0);
}

Test(conn, another_key_is_refused_on_both_sides)
{
    part(&wrong_key, &key);
    cr_assert_eq(client.opened + net.accepted, 0);
    cr_assert(strstr(net.refusal.text, "the peer has another key") != NULL, "%s", net.refusal.text);
    cr_assert(strstr(client.why.text, "did not accept this side's key") != NULL, "%s",
              client.why.text);
}

Test(conn, a_client_in_clear_learns_that_the_server_wants_a_key)
{
    part(NULL, &key);
    cr_assert_eq(net.accepted, 0);
    cr_assert(strstr(net.refusal.text, "the peer speaks in clear") != NULL, "%s", net.refusal.text);
    cr_assert(strstr(client.why.text, "it has a key file, this side has none") != NULL, "%s",
              client.why.text);
}

Test(conn, a_client_with_a_key_learns_that_the_server_has_none)
{
    part(&key, NULL);
    cr_assert_eq(client.opened, 0);
    cr_assert(strstr(net.refusal.text, "it speaks TLS") != NULL, "%s", net.refusal.text);
    cr_assert(strstr(client.why.text, "it has another key file, or none") != NULL, "%s",
              client.why.text);
}

Test(conn, a_key_speaks_for_its_job_alone)
{
    open_both(OVER_TLS);
    cr_assert_eq(ct_conn_may(net.ends[0].conn, CT_RIGHT_JOIN, "digits", NULL), 0);
    cr_assert_eq(ct_conn_may(net.ends[0].conn, CT_RIGHT_JOIN, "other", NULL), CT_EAUTH);
}

Test(conn, in_clear_any_job_goes)
{
    open_both(OVER_TCP);
    cr_assert_eq(ct_conn_may(net.ends[0].conn, CT_RIGHT_JOIN, "other", NULL), 0);
}

/* ---- the end ---- */

Test(conn, the_end_is_told_once_on_both_sides_and_never_from_inside_a_call)
{
    open_both(OVER_TLS);
    ct_conn_close(client.conn, CT_EFENCED, "a newer round");
    ct_conn_close(client.conn, CT_EBUG, "again");
    cr_assert_eq(client.closed, 0);
    cr_assert_eq(net_heartbeat(&client, 1), CT_ECLOSED);
    NET_UNTIL(client.closed == 1 && net.ends[0].closed == 1);
    cr_assert_eq(client.why.code, CT_EFENCED);
    cr_assert(strstr(client.why.text, ": a newer round") != NULL, "%s", client.why.text);
    cr_assert_eq(net.ends[0].why.code, CT_ECLOSED, "%s", net.ends[0].why.text);
}

static unsigned char goodbye[1 << 20];

static void on_message_send_goodbye(struct ct_conn *conn, const struct ct_message *message)
{
    const struct ct_message reply = {.type = CT_MSG_STORE_REPLY,
                                     .store_reply = {.value = {goodbye, sizeof(goodbye)}}};

    (void)message;
    cr_assert_eq(ct_conn_send(conn, &reply, NULL), 0);
    ct_conn_close(conn, 0, NULL);
}

/* Without the wait for the peer's end the kernel answers its unread bytes with a reset, and drops
 * what it has not sent yet. */
Test(conn, last_words_arrive_although_the_peer_was_still_sending)
{
    open_both(OVER_TCP);
    net.ends[0].conn->callbacks.on_message = on_message_send_goodbye;
    for (uint64_t step = 0; step < 20000; step++) /* more than one read takes */
        cr_assert_eq(net_heartbeat(&client, step), 0);
    NET_UNTIL(client.closed == 1 && net.ends[0].closed == 1);
    cr_assert_eq(client.messages, 1);
}

Test(conn, a_peer_that_is_cut_off_inside_a_message_is_said)
{
    struct ct_listener_options server = net_server(NULL);

    net_listen(&server);
    int fd = net_raw();
    NET_UNTIL(net.accepted == 1);
    cr_assert_eq(write(fd, "CTR\x01\0\0", 6), 6);
    close(fd);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].why.code, CT_ECLOSED);
    cr_assert(strstr(net.ends[0].why.text, "in the midst of a message") != NULL);
}

/* ---- peers that misbehave ---- */

/* A raw peer sends `bytes` to a server in clear and is refused with `code`. */
static void refuse_bytes(const void *bytes, size_t size, int code)
{
    struct ct_listener_options server = net_server(NULL);
    char text[64];

    net_listen(&server);
    int fd = net_raw();
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    cr_assert_eq(net_raw_read_all(fd, text, sizeof(text)), 0);
    close(fd);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].messages, 0);
    cr_assert_eq(net.ends[0].why.code, code, "%s", net.ends[0].why.text);
}

Test(conn, a_frame_of_four_gigabytes_ends_the_connection_at_its_header)
{
    refuse_bytes("CTR\x01\xff\xff\xff\xff\x01\0\0\0\0\0\0\0", 16, CT_ELIMIT);
}

Test(conn, a_frame_above_the_connections_limit_ends_it)
{
    struct ct_listener_options server = net_server(NULL);
    struct ct_conn_options options = net_client(NULL);

    server.conn.frame_limit = 23; /* a HEARTBEAT has 32 */
    net_listen(&server);
    net_connect(&client, &options);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    cr_assert_eq(net_heartbeat(&client, 1), 0);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].why.code, CT_ELIMIT, "%s", net.ends[0].why.text);
}

Test(conn, garbage_ends_the_connection)
{
    refuse_bytes("SSH-2.0-OpenSSH_9.2\r\n", 21, CT_EPROTOCOL);
}

Test(conn, a_payload_that_is_no_message_ends_the_connection)
{
    refuse_bytes("CTR\x01\x01\0\0\0\x14\0\0\0\0\0\0\0x", 17, CT_EPROTOCOL);
}

Test(conn, a_message_of_the_other_direction_ends_the_connection)
{
    refuse_bytes("CTR\x01\0\0\0\0\x02\0\0\0\0\0\0\0", 16, CT_EPROTOCOL);
}

/* A server with short deadlines and one raw peer that sends `size` bytes and then nothing. */
static void be_slow(const struct ct_key *server_key, const void *bytes, size_t size)
{
    struct ct_listener_options server = net_server(server_key);
    char text[64];

    server.conn.handshake_ms = server.conn.first_ms = server.conn.message_ms = 30;
    net_listen(&server);
    int fd = net_raw();
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    NET_UNTIL(net.refused == 1);
    cr_assert_eq(net.refusal.code, CT_ETIMEOUT, "%s", net.refusal.text);
}

Test(conn, a_peer_that_never_finishes_the_handshake_is_dropped_unseen)
{
    be_slow(&key, "\x16\x03\x01", 3);
    cr_assert_eq(net.accepted, 0);
    cr_assert(strstr(net.refusal.text, "did not finish the TLS handshake within 30 ms") != NULL);
}

Test(conn, a_peer_that_never_speaks_is_dropped)
{
    be_slow(NULL, "", 0);
    cr_assert(strstr(net.refusal.text, "sent no message within 30 ms") != NULL);
}

Test(conn, a_message_that_trickles_is_dropped)
{
    struct ct_listener_options server = net_server(NULL);
    char text[64];

    server.conn.message_ms = 30;
    net_listen(&server);
    int fd = net_raw();
    cr_assert_eq(write(fd, "CTR", 3), 3);
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert(strstr(net.ends[0].why.text, "did not finish a message that it had begun") != NULL,
              "%s", net.ends[0].why.text);
}

Test(conn, silence_ends_a_connection_that_has_an_idle_limit)
{
    open_both(OVER_TCP);
    cr_assert_eq(net_heartbeat(&client, 1), 0);
    NET_UNTIL(net.ends[0].messages == 1);
    net_set_idle(net.ends[0].conn, 20);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].why.code, CT_ETIMEOUT);
    cr_assert(strstr(net.ends[0].why.text, "said nothing within 20 ms") != NULL, "%s",
              net.ends[0].why.text);
}

Test(conn, a_peer_that_never_reads_is_dropped_at_the_queue_cap)
{
    static unsigned char value[60000];
    struct ct_listener_options server = net_server(NULL);
    const struct ct_message reply = {.type = CT_MSG_STORE_REPLY,
                                     .store_reply = {.value = {value, sizeof(value)}}};
    size_t most = 0;
    int code = 0;

    server.conn.queue_limit = 1 << 20;
    net_listen(&server);
    int fd = net_raw();
    NET_UNTIL(net.accepted == 1);
    for (int i = 0; code == 0 && i < 2000; i++) {
        code = ct_conn_send(net.ends[0].conn, &reply, NULL);
        size_t queued = ct_conn_queued(net.ends[0].conn);
        most = queued > most ? queued : most;
        uv_run(&net.loop, UV_RUN_NOWAIT);
        if (net.ends[0].conn == NULL)
            break;
    }
    cr_assert_eq(code, CT_ECLOSED);
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].why.code, CT_ELIMIT, "%s", net.ends[0].why.text);
    cr_assert_leq(most, (1 << 20) + sizeof(value) + 1000);
    close(fd);
}

/* One budget for all: who does not read is dropped when it is used up, who reads is not. */
Test(conn, of_all_that_share_a_budget_those_are_dropped_that_do_not_read)
{
    enum { DEAF = 8 };
    static unsigned char value[60000];
    struct ct_conn_budget budget = {.limit = 4 << 20};
    struct ct_listener_options server = net_server(NULL);
    struct ct_conn_options options = net_client(NULL);
    const struct ct_message reply = {.type = CT_MSG_STORE_REPLY,
                                     .store_reply = {.value = {value, sizeof(value)}}};
    struct end reader = {.conn = NULL};
    int deaf[DEAF], dropped = 0;
    size_t most = 0;

    server.conn.queue_limit = 16 << 20; /* none is above what one may have */
    server.conn.budget = &budget;
    net_listen(&server);
    net_connect(&reader, &options);
    NET_UNTIL(net.accepted == 1);
    for (int i = 0; i < DEAF; i++)
        deaf[i] = net_raw();
    NET_UNTIL(net.accepted == 1 + DEAF);
    for (int turn = 0; turn < 200 * DEAF; turn++) {
        struct end *end = &net.ends[1 + turn % DEAF];
        if (end->conn != NULL)
            (void)ct_conn_send(end->conn, &reply, NULL);
        if (turn % DEAF == 0)
            cr_assert_eq(ct_conn_send(net.ends[0].conn, &reply, NULL), 0, "who reads is served");
        most = CT_MAX(most, budget.used);
        NET_UNTIL(reader.messages == 1 + turn / DEAF); /* it reads */
    }
    for (int i = 1; i <= DEAF; i++) {
        if (net.ends[i].closed == 0)
            continue;
        dropped++;
        cr_assert_eq(net.ends[i].why.code, CT_ELIMIT);
        cr_assert_not_null(strstr(net.ends[i].why.text, "all links have"), "%s",
                           net.ends[i].why.text);
    }
    cr_assert_gt(dropped, 0);
    cr_assert_leq(most, budget.limit + DEAF * (CT_CONN_SHARE + sizeof(value) + 1000));
    cr_assert_eq(reader.closed, 0);
    for (int i = 0; i < DEAF; i++)
        close(deaf[i]);
    for (int i = 1; i <= DEAF; i++)
        if (net.ends[i].conn != NULL)
            ct_conn_close(net.ends[i].conn, 0, NULL);
    ct_conn_close(net.ends[0].conn, 0, NULL);
    NET_UNTIL(net.ends[0].closed == 1);
    for (int i = 1; i <= DEAF; i++)
        NET_UNTIL(net.ends[i].closed == 1);
    cr_assert_eq(budget.used, 0u, "and all of it is given back");
}

Test(conn, what_a_peer_may_send_grows_when_its_owner_says_so)
{
    static unsigned char value[70000];
    const struct ct_message set = {.type = CT_MSG_STORE_SET,
                                   .store_set = {.key = "k", .value = {value, sizeof(value)}}};
    struct ct_listener_options server = net_server(NULL);
    struct ct_conn_options options = net_client(NULL);

    server.conn.frame_limit = CT_WIRE_CONTROL;
    net_listen(&server);
    for (int i = 0; i < 2; i++) {
        struct end end = {.conn = NULL};
        net_connect(&end, &options);
        NET_UNTIL(net.accepted == i + 1 && end.opened == 1);
        if (i == 0)
            ct_conn_set_frame_limit(net.ends[i].conn, CT_WIRE_VALUE);
        cr_assert_eq(ct_conn_send(end.conn, &set, NULL), 0);
        NET_UNTIL(i == 0 ? net.ends[i].messages == 1 : net.ends[i].closed == 1);
        if (i == 0)
            ct_conn_close(end.conn, 0, NULL);
        else
            cr_assert_not_null(strstr(net.ends[i].why.text, "at most 65536 may come"), "%s",
                               net.ends[i].why.text);
        NET_UNTIL(end.closed == 1);
    }
}

Test(conn, a_peer_that_reads_in_the_end_gets_everything)
{
    static unsigned char value[60000];
    struct ct_message set = {.type = CT_MSG_STORE_SET,
                             .store_set = {.key = "k", .value = {value, sizeof(value)}}};

    open_both(OVER_TLS);
    for (int i = 0; i < 15; i++)
        cr_assert_eq(ct_conn_send(client.conn, &set, NULL), 0);
    ct_conn_close(client.conn, 0, NULL); /* with all of it queued */
    NET_UNTIL(net.ends[0].closed == 1);
    cr_assert_eq(net.ends[0].messages, 15);
}

Test(conn, random_bytes_never_do_worse_than_end_the_connection)
{
    struct ct_listener_options server = net_server(NULL);
    struct ct_rng rng;
    char text[64];

    ct_rng_init(&rng, 17);
    net_listen(&server);
    for (int i = 0; i < 100; i++) {
        unsigned char bytes[100] = "CTR\x01";
        for (size_t k = 4; k < sizeof(bytes); k++)
            bytes[k] = (unsigned char)(rng_chance(&rng, 600) ? 0 : ct_rng_next(&rng));
        bytes[8] = (unsigned char)(ct_rng_below(&rng, 60));
        int fd = net_raw();
        cr_assert_eq(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
        shutdown(fd, SHUT_WR);
        net_raw_read_all(fd, text, sizeof(text));
        close(fd);
    }
    NET_UNTIL(ct_listener_connections(net.listener) == 0);
}
