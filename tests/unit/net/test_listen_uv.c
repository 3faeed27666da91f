/* Listening: where it is allowed, who is let in, and what a flood costs. */
#include "net_test.h"

#include "net/address.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};

TestSuite(listen, .init = net_set_up, .fini = net_tear_down, .timeout = 60);

/* Bind `text`; the code, and the sentence in `err`. A socket that was made is closed again. */
static int bind_text(const char *text, bool open_to_all, struct ct_error *err)
{
    struct ct_endpoint endpoint, bound;
    int fd = -1;

    *err = (struct ct_error){0};
    cr_assert_eq(ct_endpoint_parse(text, 0, &endpoint, err), 0, "%s", err->text);
    int code = ct_address_bind(&endpoint, open_to_all, &fd, &bound, err);
    if (code == 0) {
        cr_assert(bound.is_unix || bound.port != 0, "the real port is reported");
        close(fd);
    }
    return code;
}

Test(listen, beyond_loopback_it_takes_a_key)
{
    static const char *const wide[] = {"0.0.0.0:0", "*:0", "[::]:0", "203.0.113.9:0"};
    struct ct_error err;

    for (size_t i = 0; i < CT_COUNT(wide); i++) {
        cr_assert_eq(bind_text(wide[i], false, &err), CT_EAUTH, "%s", wide[i]);
        cr_assert(strstr(err.text, "without a key: others can reach it; make a key with `ctrun key "
                                   "new FILE` and pass --key_file FILE on every node") != NULL,
                  "%s", err.text);
    }
    cr_assert_eq(bind_text("0.0.0.0:0", true, &err), 0, "%s", err.text);
    cr_assert_eq(bind_text("*:0", true, &err), 0, "%s", err.text);
}

Test(listen, all_interfaces_means_both_families)
{
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    struct ct_listener_options options = net_server(&key);
    struct ct_conn_options client_options = net_client(&key);
    struct ct_endpoint all = {.host = ""}, loopback = {.host = "::1"}, bound;
    int fd;

    if (ct_address_bind(&loopback, false, &fd, &bound, NULL) != 0)
        cr_skip_test("this machine has no IPv6 loopback");
    close(fd);
    net_listen_on(&all, &options);
    for (size_t i = 0; i < CT_COUNT(hosts); i++) {
        struct end client = {0};
        struct ct_endpoint endpoint = {.port = net_endpoint()->port};
        snprintf(endpoint.host, sizeof(endpoint.host), "%s", hosts[i]);
        net_connect_to(&client, &endpoint, &client_options);
        NET_UNTIL(client.opened + client.closed == 1);
        cr_assert_eq(client.opened, 1, "%s", client.why.text);
        ct_conn_close(client.conn, 0, NULL);
        NET_UNTIL(client.closed == 1);
    }
}

Test(listen, loopback_needs_none)
{
    struct ct_error err;

    cr_assert_eq(bind_text("127.0.0.1:0", false, &err), 0, "%s", err.text);
    cr_assert_eq(bind_text("127.9.9.9:0", false, &err), 0, "%s", err.text);
    cr_assert_eq(bind_text("localhost:0", false, &err), 0, "%s", err.text);
}

Test(listen, a_port_in_use_is_said_with_its_address)
{
    struct ct_listener_options options = net_server(NULL);
    struct ct_error err;
    char text[CT_ENDPOINT_TEXT], expected[400];

    net_listen(&options);
    ct_endpoint_print(net_endpoint(), text);
    cr_assert_eq(bind_text(text, false, &err), CT_EINUSE);
    snprintf(expected, sizeof(expected),
             "cannot listen on %s: the port is in use; give another, or 0 for any free one", text);
    cr_assert_str_eq(err.text, expected);
}

Test(listen, an_address_of_another_machine_is_said)
{
    struct ct_error err;

    cr_assert_eq(bind_text("203.0.113.9:0", true, &err), CT_EUNAVAILABLE);
    cr_assert_str_eq(err.text,
                     "cannot listen on 203.0.113.9:0: that is no address of this machine");
}

Test(listen, a_name_that_does_not_resolve_is_said)
{
    struct ct_error err;
    char text[80];

    /* A label above 63 bytes: refused before any question leaves the machine. */
    memset(text, 'x', 70);
    memcpy(text + 70, ":0", 3);
    cr_assert_eq(bind_text(text, true, &err), CT_EUSAGE);
    cr_assert(strstr(err.text, "the name does not resolve") != NULL, "%s", err.text);
}

/* ---- unix sockets ---- */

Test(listen, the_directory_of_a_socket_is_made_closed_to_others)
{
    struct ct_error err;
    struct stat info;
    char text[100];

    snprintf(net.directory, sizeof(net.directory), "/tmp/ct-net-XXXXXX");
    cr_assert_not_null(mkdtemp(net.directory));
    snprintf(text, sizeof(text), "%s/new/s", net.directory);
    cr_assert_eq(bind_text(text, false, &err), 0, "%s", err.text);
    snprintf(text, sizeof(text), "%s/new", net.directory);
    cr_assert_eq(stat(text, &info), 0);
    cr_assert_eq(info.st_mode & 07777, 0700);
}

Test(listen, a_directory_open_to_others_is_refused_with_the_remedy)
{
    struct ct_error err;
    char text[100];

    snprintf(net.directory, sizeof(net.directory), "/tmp/ct-net-XXXXXX");
    cr_assert_not_null(mkdtemp(net.directory));
    cr_assert_eq(chmod(net.directory, 0755), 0);
    snprintf(text, sizeof(text), "%s/s", net.directory);
    cr_assert_eq(bind_text(text, false, &err), CT_ECANTCREAT);
    cr_assert(strstr(err.text, "chmod 700") != NULL, "%s", err.text);
}

Test(listen, a_socket_left_behind_is_replaced_and_a_live_one_is_not)
{
    struct ct_listener_options options = net_server(NULL);
    struct ct_error err;
    char text[CT_ENDPOINT_TEXT];

    net_listen_unix(&options);
    ct_endpoint_print(net_endpoint(), text);
    cr_assert_eq(bind_text(text, false, &err), CT_EINUSE);
    cr_assert(strstr(err.text, "somebody listens on") != NULL, "%s", err.text);
    ct_listener_stop(net.listener);
    net.listener = NULL;
    cr_assert_eq(access(text + 5, F_OK), -1, "stopping removes the file");
    cr_assert_eq(bind_text(text, false, &err), 0, "%s", err.text);
    cr_assert_eq(access(text + 5, F_OK), 0, "closed, but left behind");
    cr_assert_eq(bind_text(text, false, &err), 0, "%s", err.text);
}

/* Connect to the listener's socket as nobody: the identity of this one thread. */
static void *connect_as_nobody(void *result)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", net_endpoint()->path);
    if (syscall(SYS_setresuid, 65534, 65534, 65534) == 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        *(int *)result = fd;
    else
        close(fd);
    return NULL;
}

Test(listen, another_user_is_refused_even_where_the_socket_is_open_to_it)
{
    struct ct_listener_options options = net_server(NULL);
    pthread_t thread;
    char text[8];
    int fd = -1;

    if (geteuid() != 0)
        cr_skip_test("only root can be somebody else");
    net_listen_unix(&options);
    cr_assert_eq(chmod(net.directory, 0755), 0);
    cr_assert_eq(chmod(net_endpoint()->path, 0777), 0);
    cr_assert_eq(pthread_create(&thread, NULL, connect_as_nobody, &fd), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(net_raw_read_all(fd, text, sizeof(text)), 0);
    close(fd);
    cr_assert_eq(net.accepted, 0);
    cr_assert_eq(net.refusal.code, CT_EAUTH);
    cr_assert(strstr(net.refusal.text, "the peer runs as user 65534, not as you (0)") != NULL, "%s",
              net.refusal.text);
}

/* What nobody does in a thread of its own, whose identity alone is changed. */
struct nobody {
    int count, fds[400];
    bool listens; /* the first of them, on `port` */
    uint16_t port;
};

static void *be_nobody(void *context)
{
    struct nobody *nobody = context;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(nobody->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);

    if (syscall(SYS_setresuid, 65534, 65534, 65534) != 0)
        return NULL;
    for (int i = 0; i < nobody->count; i++) {
        nobody->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (nobody->listens && bind(nobody->fds[i], (struct sockaddr *)&address, size) == 0 &&
            listen(nobody->fds[i], 8) == 0 &&
            getsockname(nobody->fds[i], (struct sockaddr *)&address, &size) == 0)
            nobody->port = ntohs(address.sin_port);
        else if (!nobody->listens)
            (void)connect(nobody->fds[i], (struct sockaddr *)&address, size);
    }
    return NULL;
}

static void let_nobody(struct nobody *nobody)
{
    pthread_t thread;

    if (geteuid() != 0)
        cr_skip_test("only root can be somebody else");
    if (!nobody->listens)
        nobody->port = net_endpoint()->port;
    cr_assert_eq(pthread_create(&thread, NULL, be_nobody, nobody), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

static void close_nobody(struct nobody *nobody)
{
    for (int i = 0; i < nobody->count; i++)
        close(nobody->fds[i]);
}

Test(listen, without_a_key_another_user_on_loopback_is_refused_and_told_the_remedy)
{
    struct ct_listener_options options = net_server(NULL);
    struct nobody nobody = {.count = 1};
    char text[2000];

    net_listen(&options);
    let_nobody(&nobody);
    size_t size = net_raw_read_all(nobody.fds[0], text, sizeof(text));
    cr_assert(memmem(text, size, "the peer runs as user 65534", 27) != NULL);
    cr_assert(memmem(text, size, "pass --key_file FILE at both ends", 33) != NULL);
    close_nobody(&nobody);
    NET_UNTIL(net.refused == 1);
    cr_assert_eq(net.accepted, 0);
    cr_assert_eq(net.refusal.code, CT_EAUTH);
}

Test(listen, without_a_key_a_peer_that_has_gone_is_not_taken_for_root)
{
    struct ct_listener_options options = net_server(NULL);
    struct ct_conn_options client_options = net_client(NULL);
    struct nobody nobody = {.count = 1};
    struct end next = {0};

    net_listen(&options);
    let_nobody(&nobody);
    cr_assert_eq(write(nobody.fds[0], "CTR", 3), 3);
    close_nobody(&nobody); /* the kernel says "user 0" of what is left of it */
    net_connect(&next, &client_options);
    NET_UNTIL(net.accepted > 0 && next.opened == 1);
    cr_assert_eq(net.accepted, 1, "one after the other");
}

Test(listen, who_looks_whether_somebody_listens_and_goes_without_a_word_is_not_reported)
{
    struct ct_listener_options options = net_server(&key);
    struct ct_conn_options client_options = net_client(&key);
    struct end next = {0};

    net_listen(&options);
    close(net_raw());
    net_connect(&next, &client_options);
    NET_UNTIL(net.accepted > 0 && next.opened == 1);
    cr_assert_eq(net.refused, 0);
}

Test(listen, without_a_key_a_client_does_not_take_another_users_server_for_its_own)
{
    struct nobody nobody = {.count = 1, .listens = true};
    struct ct_conn_options client_options = net_client(NULL);
    struct ct_endpoint there = {.host = "127.0.0.1"};
    struct end client = {0};

    let_nobody(&nobody);
    there.port = nobody.port;
    net_connect_to(&client, &there, &client_options);
    NET_UNTIL(client.closed == 1);
    cr_assert_eq(client.opened, 0);
    cr_assert_eq(client.why.code, CT_EAUTH);
    cr_assert(strstr(client.why.text, "the peer runs as user 65534") != NULL, "%s",
              client.why.text);
    close_nobody(&nobody);
}

Test(listen, with_a_key_silent_strangers_delay_nobody)
{
    struct ct_listener_options options = net_server(&key);
    struct ct_conn_options client_options = net_client(&key);
    struct nobody nobody = {.count = 400};
    struct end client = {0};

    net_listen(&options);
    let_nobody(&nobody); /* all wait in the backlog, in front of the client */
    net_connect(&client, &client_options);
    NET_UNTIL(client.opened == 1);
    cr_assert_leq(ct_listener_unproven(net.listener), 1 + 32 + 2 * 16);
    close_nobody(&nobody);
}

/* ---- stopping ---- */

Test(listen, accepted_connections_outlive_their_listener)
{
    struct ct_listener_options options = net_server(NULL);
    struct ct_conn_options client_options = net_client(NULL);
    struct end client = {0};

    net.echo = true;
    net_listen(&options);
    net_connect(&client, &client_options);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    ct_listener_stop(net.listener);
    net.listener = NULL;
    cr_assert_eq(net_heartbeat(&client, 5), 0);
    NET_UNTIL(client.messages == 1);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1 && net.ends[0].closed == 1);
}

Test(listen, who_is_in_the_middle_of_the_handshake_is_closed_when_nobody_listens_any_more)
{
    struct ct_listener_options options = net_server(&key);
    char text[8];

    options.conn.handshake_ms = 60000;
    net_listen(&options);
    int fd = net_raw();
    NET_UNTIL(ct_listener_connections(net.listener) == 1);
    ct_listener_stop(net.listener);
    net.listener = NULL;
    cr_assert_eq(net_raw_read_all(fd, text, sizeof(text)), 0);
    cr_assert_eq(net.accepted + net.refused, 0);
    close(fd);
}

/* ---- floods ---- */

/* A raw peer with 127.0.0.`last` as its own address. */
static int raw_from(unsigned last)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000u + last)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(net_endpoint()->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

Test(listen, silent_peers_of_one_address_are_limited)
{
    struct ct_listener_options options = net_server(NULL);
    char text[8];
    int fds[3];

    options.max_unproven_per_address = 2;
    net_listen(&options);
    for (int i = 0; i < 3; i++)
        fds[i] = net_raw();
    cr_assert_eq(net_raw_read_all(fds[2], text, sizeof(text)), 0);
    cr_assert_eq(ct_listener_unproven(net.listener), 2);
    cr_assert_eq(net.refusal.code, CT_ELIMIT);
    close_all(fds, 3);
}

Test(listen, an_old_silent_peer_gives_way_to_a_newcomer_of_its_address)
{
    struct ct_listener_options options = net_server(NULL);
    char text[8];
    int fds[3];

    options.max_unproven_per_address = 2;
    net_listen(&options);
    fds[0] = net_raw();
    fds[1] = net_raw();
    NET_UNTIL(net.accepted == 2);
    net_pass(300);
    fds[2] = net_raw();
    cr_assert_eq(net_raw_read_all(fds[0], text, sizeof(text)), 0);
    NET_UNTIL(net.accepted == 3);
    cr_assert_eq(ct_listener_unproven(net.listener), 2);
    cr_assert_eq(net.ends[2].closed, 0);
    close_all(fds, 3);
}

/* One honest client, from connecting to its first message. */
static void be_honest(struct end *client)
{
    struct ct_conn_options options = net_client(NULL);

    net_connect(client, &options);
    NET_UNTIL(client->opened == 1 || client->closed == 1);
    cr_assert_eq(client->closed, 0, "%s", client->why.text);
    cr_assert_eq(net_heartbeat(client, 1), 0);
}

Test(listen, at_the_total_limit_newcomers_wait_until_somebody_proves_itself)
{
    struct ct_listener_options options = net_server(NULL);
    struct end clients[3] = {0};
    struct ct_conn_options client_options = net_client(NULL);

    options.max_unproven = 2;
    net_listen(&options);
    for (int i = 0; i < 3; i++) {
        net_connect(&clients[i], &client_options);
        NET_UNTIL(clients[i].opened == 1); /* in the kernel's backlog already */
    }
    NET_UNTIL(net.accepted == 2);
    cr_assert_eq(ct_listener_unproven(net.listener), 2);
    cr_assert_eq(net_heartbeat(&clients[0], 1), 0);
    NET_UNTIL(net.accepted == 3);
    cr_assert_eq(net.refused, 0);
    for (int i = 0; i < 3; i++)
        ct_conn_close(clients[i].conn, 0, NULL);
    NET_UNTIL(clients[0].closed && clients[1].closed && clients[2].closed);
}

Test(listen, old_silent_peers_do_not_keep_an_honest_one_out)
{
    struct ct_listener_options options = net_server(NULL);
    struct end client = {0};
    int fds[60];

    options.max_unproven = 20;
    net_listen(&options);
    for (int i = 0; i < 60; i++)
        fds[i] = raw_from(2 + (unsigned)i % 100);
    be_honest(&client);
    NET_UNTIL(ct_listener_unproven(net.listener) < ct_listener_connections(net.listener));
    cr_assert_leq(ct_listener_unproven(net.listener), 20);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1);
    close_all(fds, 60);
}

Test(listen, many_honest_clients_at_once_all_get_in)
{
    enum { CLIENTS = 200 };
    struct ct_listener_options options = net_server(NULL);
    const struct ct_message hello = {.type = CT_MSG_HELLO};
    struct ct_buf bytes = {0};
    int fds[CLIENTS];

    cr_assert_eq(ct_wire_encode(&hello, 0, &bytes, NULL), 0);
    net_listen(&options);
    for (int i = 0; i < CLIENTS; i++) { /* all of them in the backlog before the loop turns */
        fds[i] = net_raw();
        cr_assert_eq(write(fds[i], bytes.data, bytes.size), (ssize_t)bytes.size);
    }
    NET_UNTIL(ct_listener_connections(net.listener) == CLIENTS &&
              ct_listener_unproven(net.listener) == 0);
    cr_assert_eq(net.refused, 0);
    close_all(fds, CLIENTS);
    ct_buf_deinit(&bytes);
}

/* As agents of one process are while it is busy: the answers to all of them lie unread. */
Test(listen, many_clients_that_have_shown_the_key_wait_for_each_other_without_being_refused)
{
    enum { CLIENTS = 200 };
    struct ct_listener_options options = net_server(&key);
    struct ct_buf hello;
    int fds[CLIENTS];

    options.conn.handshake_ms = 60000;
    net_listen(&options);
    for (int i = 0; i < CLIENTS; i++) {
        net_make_hello(&key, &hello);
        fds[i] = net_raw();
        cr_assert_eq(write(fds[i], hello.data, hello.size), (ssize_t)hello.size);
        ct_buf_deinit(&hello);
    }
    NET_UNTIL(ct_listener_connections(net.listener) == CLIENTS || net.refused > 0);
    net_pass(300); /* old enough to be pushed out, if they were strangers */
    cr_assert_eq(net.refused, 0, "%s", net.refusal.text);
    cr_assert_eq(ct_listener_unproven(net.listener), CLIENTS);
    close_all(fds, CLIENTS);
}

Test(listen, above_the_number_of_connections_newcomers_are_closed)
{
    struct ct_listener_options options = net_server(NULL);
    struct end client = {0};
    char text[8];

    options.max_connections = 1;
    net_listen(&options);
    be_honest(&client);
    NET_UNTIL(net.accepted == 1 && net.ends[0].messages == 1);
    int fd = net_raw();
    cr_assert_eq(net_raw_read_all(fd, text, sizeof(text)), 0);
    close(fd);
    cr_assert_eq(net.refusal.code, CT_ELIMIT);
    cr_assert(net_is_open(client.conn));
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1);
}

Test(listen, a_peer_that_fails_again_and_again_is_reported_once)
{
    struct ct_listener_options options = net_server(&key);
    char text[64];

    net_listen(&options);
    for (int i = 0; i < 5; i++) {
        int fd = net_raw();
        cr_assert_eq(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
        net_raw_read_all(fd, text, sizeof(text));
        close(fd);
    }
    NET_UNTIL(ct_listener_connections(net.listener) == 0);
    cr_assert_eq(net.refused, 1);
    cr_assert_eq(net.accepted, 0);
}
