/* Connecting: patient with servers that are not there yet, and plain about why it gave up. */
#include "net_test.h"

#include "base/assert.h"
#include "net/address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};
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
    cr_assert_eq(client.closed, 1, "on_close comes once");
}

TestSuite(dial, .init = set_up, .fini = tear_down, .timeout = 60);

static void connect_text(const char *text, const struct ct_conn_options *options)
{
    struct ct_endpoint endpoint;

    cr_assert_eq(ct_endpoint_parse(text, -1, &endpoint, NULL), 0);
    net_connect_to(&client, &endpoint, options);
}

/* A port of 127.0.0.1 on which nobody listens: bound, so that nobody else takes it. */
static int quiet_port(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

Test(dial, a_server_may_start_after_its_client)
{
    struct ct_conn_options options = net_client(NULL);
    struct ct_listener_options server = net_server(NULL);
    char text[CT_ENDPOINT_TEXT];

    net_listen_unix(&server); /* to know a place */
    ct_endpoint_print(net_endpoint(), text);
    struct ct_endpoint endpoint = *net_endpoint();
    ct_listener_stop(net.listener);
    net_connect_to(&client, &endpoint, &options);
    net_pass(50);
    cr_assert_eq(client.opened + client.closed, 0);
    net_listen_on(&endpoint, &server);
    NET_UNTIL(client.opened == 1);
    cr_assert_str_eq(ct_conn_peer(client.conn), text);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1 && ct_listener_connections(net.listener) == 0);
}

Test(dial, when_nobody_answers_the_sentence_names_address_and_answer)
{
    struct ct_conn_options options = net_client(NULL);
    char text[64], expected[256];
    uint16_t port;
    int fd = quiet_port(&port);

    options.connect_ms = 60;
    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    connect_text(text, &options);
    NET_UNTIL(client.closed == 1);
    close(fd);
    cr_assert_eq(client.why.code, CT_ETIMEOUT);
    snprintf(expected, sizeof(expected),
             "%s: cannot connect: %s answers connection refused (ECONNREFUSED) (tried for 0.", text,
             text);
    cr_assert_eq(strncmp(client.why.text, expected, strlen(expected)), 0, "%s", client.why.text);
    cr_assert_eq(client.opened, 0);
}

Test(dial, an_address_that_has_not_answered_is_named)
{
    struct ct_conn_options options = net_client(NULL);
    char text[64], expected[256];
    uint16_t port;
    int fd = quiet_port(&port), fillers[4];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    cr_assert_eq(listen(fd, 0), 0); /* nobody accepts, and the queue is full: no SYN is answered */
    for (size_t i = 0; i < CT_COUNT(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
    options.connect_ms = 60;
    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    connect_text(text, &options);
    NET_UNTIL(client.closed == 1);
    for (size_t i = 0; i < CT_COUNT(fillers); i++)
        close(fillers[i]);
    close(fd);
    snprintf(expected, sizeof(expected), "%s: cannot connect: %s has not answered (tried for 0.",
             text, text);
    cr_assert_eq(strncmp(client.why.text, expected, strlen(expected)), 0, "%s", client.why.text);
}

Test(dial, a_missing_socket_is_said)
{
    struct ct_conn_options options = net_client(NULL);

    options.connect_ms = 30;
    connect_text("/nonexistent-ct/s", &options);
    NET_UNTIL(client.closed == 1);
    cr_assert_eq(client.why.code, CT_ETIMEOUT);
    cr_assert(strstr(client.why.text,
                     "unix:/nonexistent-ct/s: cannot connect: the socket answers no "
                     "such file or directory (ENOENT)") != NULL,
              "%s", client.why.text);
}

Test(dial, waiting_is_said_about_once_a_second)
{
    struct ct_conn_options options = net_client(NULL);
    char text[64];
    uint16_t port;
    int fd = quiet_port(&port);

    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    connect_text(text, &options);
    NET_UNTIL(client.waits == 1);
    close(fd);
    cr_assert(strstr(client.waiting, "connection refused (ECONNREFUSED)") != NULL, "%s",
              client.waiting);
    cr_assert_eq(client.closed, 0);
}

Test(dial, a_name_that_does_not_resolve_is_said)
{
    struct ct_conn_options options = net_client(NULL);
    char text[80], expected[400];

    /* A label above 63 bytes: refused before any question leaves the machine. */
    memset(text, 'x', 70);
    memcpy(text + 70, ":1", 3);
    options.connect_ms = 60;
    connect_text(text, &options);
    NET_UNTIL(client.closed == 1);
    cr_assert_eq(client.why.code, CT_ETIMEOUT);
    snprintf(expected, sizeof(expected), "the name %.70s does not resolve (", text);
    cr_assert(strstr(client.why.text, expected) != NULL, "%s", client.why.text);
}

Test(dial, localhost_tries_both_families)
{
    struct ct_conn_options options = net_client(NULL);
    struct ct_listener_options server = net_server(NULL);
    struct ct_endpoint endpoint = {.host = "::1"}, bound;
    char text[64];
    int fd;

    if (ct_address_bind(&endpoint, false, &fd, &bound, NULL) != 0)
        cr_skip_test("this machine has no IPv6 loopback");
    close(fd);
    net_listen_on(&endpoint, &server);
    snprintf(text, sizeof(text), "localhost:%u", net_endpoint()->port);
    connect_text(text, &options);
    NET_UNTIL(client.opened == 1);
    cr_assert_eq(strncmp(ct_conn_peer(net.ends[0].conn), "[::1]:", 6), 0);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1 && ct_listener_connections(net.listener) == 0);
}

Test(dial, closing_while_it_waits_ends_it)
{
    struct ct_conn_options options = net_client(NULL);

    connect_text("/nonexistent-ct/s", &options);
    ct_conn_close(client.conn, CT_EREVOKED, "not needed any more");
    cr_assert_eq(client.closed, 0);
    NET_UNTIL(client.closed == 1);
    cr_assert_eq(client.why.code, CT_EREVOKED);
}

Test(dial, closing_while_it_looks_up_a_name_ends_it)
{
    struct ct_conn_options options = net_client(NULL);
    char text[80];

    memset(text, 'x', 70);
    memcpy(text + 70, ":1", 3);
    connect_text(text, &options);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1);
    cr_assert_eq(client.why.code, CT_ECLOSED);
}

/* A server that accepts and closes at once, as one that is overrun or just dying does. */
Test(dial, a_stream_that_breaks_in_the_handshake_is_tried_again)
{
    struct ct_conn_options options = net_client(&key);
    struct ct_endpoint endpoint = {.host = "127.0.0.1"}, bound;
    int listener, accepted = 0;

    options.connect_ms = 20000;
    cr_assert_eq(ct_address_bind(&endpoint, false, &listener, &bound, NULL), 0);
    net_connect_to(&client, &bound, &options);
    while (accepted < 3) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            accepted++;
            close(fd);
        }
        uv_run(&net.loop, UV_RUN_NOWAIT);
    }
    cr_assert_eq(client.closed + client.opened, 0);
    cr_assert_geq(client.handshakes, 2, "each is told when it begins");
    close(listener);
}

/* The owner hears that a mute server has accepted, and hears the difference to one that refuses. */
Test(dial, a_handshake_that_ends_in_silence_is_no_refused_connection)
{
    struct ct_conn_options options = net_client(&key);
    struct ct_endpoint endpoint = {.host = "127.0.0.1"}, bound;
    int listener;

    options.handshake_ms = 1200; /* the next second's words come after it */
    cr_assert_eq(ct_address_bind(&endpoint, false, &listener, &bound, NULL), 0);
    net_connect_to(&client, &bound, &options);
    NET_UNTIL(client.handshakes == 1);
    NET_UNTIL(client.waits == 1);
    cr_assert(client.accepted);
    cr_assert_str_eq(client.waiting, "the peer did not finish the TLS handshake within 1200 ms");
    close(listener);
    NET_UNTIL(client.waits == 3);
    cr_assert_not(client.accepted, "%s", client.waiting);
}
