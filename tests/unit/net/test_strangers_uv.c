/* Strangers from many addresses, in a network of this test's own: every address of 10.9.0.0/16 and
 * fd09::/16 is its own machine's there, and none of them is loopback. */
#include "net_test.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

enum { STRANGERS = 256, PLACES = 64 };

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};

TestSuite(strangers, .init = net_set_up, .fini = net_tear_down, .timeout = 60);

static void enter_network(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0)
        cr_skip_test("no network namespace can be made here");
    cr_assert_eq(system("ip link set lo up && ip route add local 10.9.0.0/16 dev lo && "
                        "ip -6 route add local fd09::/16 dev lo && "
                        "ip addr add fd09::1/128 dev lo nodad"),
                 0);
}

static void listen_at(const char *host, uint32_t places, uint32_t places_of_one)
{
    struct ct_endpoint endpoint = {.port = 0};
    struct ct_listener_options options = net_server(&key);

    (void)snprintf(endpoint.host, sizeof(endpoint.host), "%s", host);
    options.conn.handshake_ms = 60000; /* nobody goes because the machine is slow */
    options.max_unproven = places;
    options.max_unproven_per_address = places_of_one;
    net_listen_on(&endpoint, &options);
}

static const char *own_address(bool v6)
{
    return v6 ? "fd09::1" : "10.9.1.1";
}

/* A raw peer that says nothing, with an address of its own. */
static int silent_from(const char *source)
{
    bool v6 = strchr(source, ':') != NULL, any = strcmp(net_endpoint()->host, "::") == 0;
    const char *text[2] = {source, any ? own_address(v6) : net_endpoint()->host};
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (v6) /* unlike IPv4, a route alone is not enough */
        cr_assert_eq(setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &(int){1}, sizeof(int)), 0);
    for (int i = 0; i < 2; i++) {
        uint16_t port = htons(i == 0 ? 0 : net_endpoint()->port);
        struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = port};
        struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = port};
        const struct sockaddr *address = v6 ? (void *)&a6 : (void *)&a4;
        socklen_t size = v6 ? sizeof(a6) : sizeof(a4);
        cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, text[i],
                               v6 ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr),
                     1);
        cr_assert_eq(i == 0 ? bind(fd, address, size) : connect(fd, address, size), 0, "%s: %s",
                     text[i], strerror(errno));
    }
    return fd;
}

static bool is_closed(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static int count_closed(const int *fds, int count)
{
    int closed = 0;

    for (int i = 0; i < count; i++)
        closed += is_closed(fds[i]);
    return closed;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

Test(strangers, from_many_addresses_they_push_out_each_other_and_nobody_who_proved_itself)
{
    enum { OWN = 8 };
    struct ct_conn_options client_options = net_client(&key);
    struct end clients[2] = {0};
    int own[OWN], strangers[STRANGERS];

    enter_network();
    listen_at("10.9.1.1", PLACES, 32);
    net_connect(&clients[0], &client_options); /* its address is the listener's */
    NET_UNTIL(clients[0].opened == 1);
    cr_assert_eq(net_heartbeat(&clients[0], 1), 0);
    NET_UNTIL(net.accepted == 1 && net.ends[0].messages == 1);
    for (int i = 0; i < OWN; i++) /* not proven yet, of the address that did */
        own[i] = silent_from("10.9.1.1");
    NET_UNTIL(ct_listener_unproven(net.listener) == OWN);
    for (int i = 0; i < STRANGERS; i++) {
        char source[32];
        (void)snprintf(source, sizeof source, "10.9.0.%d", 1 + i % 64);
        strangers[i] = silent_from(source);
    }
    net_connect(&clients[1], &client_options);
    NET_UNTIL(clients[1].opened == 1 || clients[1].closed == 1);
    cr_assert_eq(clients[1].closed, 0, "%s", clients[1].why.text);
    NET_UNTIL(count_closed(strangers, STRANGERS) == STRANGERS - PLACES);
    cr_assert_eq(count_closed(own, OWN), 0);
    cr_assert_eq(net_heartbeat(&clients[0], 2), 0);
    NET_UNTIL(net.ends[0].messages == 2);
    for (int i = 0; i < 2; i++)
        ct_conn_close(clients[i].conn, 0, NULL);
    NET_UNTIL(clients[0].closed == 1 && clients[1].closed == 1);
    close_all(own, OWN);
    close_all(strangers, STRANGERS);
}

Test(strangers, all_addresses_of_a_64_share_the_places_of_one)
{
    enum { OF_ONE = 4, OTHERS = 3 };
    int strangers[PLACES], others[OTHERS];
    char source[32];

    enter_network();
    listen_at("fd09::1", 2 * PLACES, OF_ONE);
    for (int i = 0; i < PLACES; i++) {
        (void)snprintf(source, sizeof source, "fd09:0:0:1::%x", 1 + i);
        strangers[i] = silent_from(source);
    }
    NET_UNTIL(count_closed(strangers, PLACES) == PLACES - OF_ONE);
    for (int i = 0; i < OTHERS; i++) {
        (void)snprintf(source, sizeof source, "fd09:0:0:%x::1", 2 + i);
        others[i] = silent_from(source);
    }
    NET_UNTIL(ct_listener_unproven(net.listener) == OF_ONE + OTHERS);
    cr_assert_eq(count_closed(others, OTHERS), 0);
    cr_assert_eq(count_closed(strangers, PLACES), PLACES - OF_ONE);
    close_all(others, OTHERS);
    close_all(strangers, PLACES);
}

/* A client from the address that the listener is at proves itself; then a crowd of other addresses
 * connects, and the client once more while none of them is accepted yet. How many of them are let
 * in before he is. */
static uint32_t let_in_before_the_known(const char *at, bool v6)
{
    enum { CROWD = 400, REPORT_MS = 200 };
    struct ct_conn_options client_options = net_client(&key);
    struct end clients[2] = {0};
    struct ct_endpoint to = {.host = ""};
    int crowd[CROWD];
    char source[32];

    enter_network();
    listen_at(at, 2 * CROWD, 2 * CROWD);
    (void)snprintf(to.host, sizeof to.host, "%s", own_address(v6));
    to.port = net_endpoint()->port;
    net_connect_to(&clients[0], &to, &client_options);
    NET_UNTIL(clients[0].opened == 1);
    cr_assert_eq(net_heartbeat(&clients[0], 1), 0);
    NET_UNTIL(net.accepted == 1 && net.ends[0].messages == 1);
    net_pass(REPORT_MS);
    for (int i = 0; i < CROWD; i++) {
        (void)snprintf(source, sizeof source, v6 ? "fd09:0:0:%x::1" : "10.9.0.%d", 1 + i % 250);
        crowd[i] = silent_from(source);
    }
    net_connect_to(&clients[1], &to, &client_options);
    NET_UNTIL(net.accepted == 2);
    uint32_t before = ct_listener_connections(net.listener) - 2;
    for (int i = 0; i < 2; i++)
        ct_conn_close(clients[i].conn, 0, NULL);
    NET_UNTIL(clients[0].closed == 1 && clients[1].closed == 1);
    NET_UNTIL(ct_listener_unproven(net.listener) == CROWD); /* nobody is left out for it */
    close_all(crowd, CROWD);
    return before;
}

Test(strangers, who_has_proved_itself_is_let_in_before_a_crowd_that_waits)
{
    uint32_t before = let_in_before_the_known("10.9.1.1", false);
    cr_assert_lt(before, 200, "%u", before);
}

Test(strangers, who_has_proved_itself_over_ipv6_is_let_in_first)
{
    uint32_t before = let_in_before_the_known("fd09::1", true);
    cr_assert_lt(before, 200, "%u", before);
}

Test(strangers, who_has_proved_itself_is_let_in_first_where_both_are_listened_for)
{
    uint32_t before = let_in_before_the_known("::", false);
    cr_assert_lt(before, 200, "%u", before);
}

/* However few places the crowd has: it is one account's, and gives way to itself. */
Test(strangers, where_strangers_crowd_few_are_let_in_at_a_time)
{
    enum { CROWD = 300, OF_ONE = 4, REPORT_MS = 200 };
    struct ct_conn_options client_options = net_client(&key);
    struct end clients[2] = {0};
    int crowd[CROWD];

    enter_network();
    listen_at("10.9.1.1", PLACES, OF_ONE);
    net_connect(&clients[0], &client_options);
    NET_UNTIL(clients[0].opened == 1);
    cr_assert_eq(net_heartbeat(&clients[0], 1), 0);
    NET_UNTIL(net.accepted == 1 && net.ends[0].messages == 1);
    net_pass(REPORT_MS);
    for (int i = 0; i < CROWD; i++)
        crowd[i] = silent_from("10.9.0.1");
    net_connect(&clients[1], &client_options);
    NET_UNTIL(net.accepted == 2);
    int before = count_closed(crowd, CROWD);
    cr_assert_lt(before, 40, "%d", before);
    for (int i = 0; i < 2; i++)
        ct_conn_close(clients[i].conn, 0, NULL);
    NET_UNTIL(clients[0].closed == 1 && clients[1].closed == 1);
    NET_UNTIL(count_closed(crowd, CROWD) == CROWD - OF_ONE);
    close_all(crowd, CROWD);
}

Test(strangers, who_says_nothing_is_held_by_the_kernel_for_a_while)
{
    enum { HELD_S = 60 }; /* longer than the test */
    struct ct_endpoint endpoint = {.host = "10.9.1.1"};
    struct ct_listener_options options = net_server(&key);
    struct ct_conn_options client_options = net_client(&key);
    struct end client = {0};

    enter_network(); /* where the kernel has SYN cookies */
    options.silent_s = HELD_S;
    net_listen_on(&endpoint, &options);
    int silent[2] = {silent_from("10.9.0.1"), silent_from("10.9.0.2")};
    net_connect(&client, &client_options);
    NET_UNTIL(client.opened == 1);
    cr_assert_eq(ct_listener_connections(net.listener), 1, "the client that spoke");
    cr_assert_eq(write(silent[0], "\x16", 1), 1);
    NET_UNTIL(ct_listener_connections(net.listener) == 2);
    ct_conn_close(client.conn, 0, NULL);
    NET_UNTIL(client.closed == 1);
    close_all(silent, 2);
}

Test(strangers, an_address_that_is_listened_on_twice_is_in_use_for_others)
{
    struct ct_endpoint endpoint;
    struct ct_listener_options options = net_server(&key);
    struct ct_conn_callbacks none = {.on_open = NULL};
    struct ct_listener *second;
    struct ct_error err = {0};

    enter_network();
    listen_at("10.9.1.1", PLACES, 32);
    endpoint = *net_endpoint();
    cr_assert_eq(ct_listener_start(&net.loop, &endpoint, &options, &none, &net, &second, &err),
                 CT_EINUSE);
}

/* ---- who holds the key is no stranger ---- */

/* A peer from 10.9.0.`last` that says `hello` and nothing else, and has its answer or its end. */
static int say_hello(unsigned last, const struct ct_buf *hello)
{
    char source[32], byte;

    (void)snprintf(source, sizeof source, "10.9.0.%u", last);
    int fd = silent_from(source);
    cr_assert_eq(write(fd, hello->data, hello->size), (ssize_t)hello->size);
    NET_UNTIL(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN);
    return fd;
}

/* Has the listener hung up? What it answered is read first. */
static bool is_hung_up(int fd)
{
    char bytes[512];
    ssize_t size;

    while ((size = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        ;
    return size == 0 || errno != EAGAIN;
}

Test(strangers, in_the_midst_of_the_handshake_a_holder_of_the_key_gives_way_to_no_stranger)
{
    enum { FEW = 2, HOLDERS = 4 * FEW - 1, CROWD = 40 };
    struct ct_buf hello;
    int holders[HOLDERS], crowd[CROWD];
    char source[32];

    enter_network();
    listen_at("10.9.1.1", FEW, FEW);
    for (unsigned i = 0; i < HOLDERS; i++) {
        net_make_hello(&key, &hello);
        holders[i] = say_hello(1 + i, &hello);
        ct_buf_deinit(&hello);
    }
    for (int i = 0; i < CROWD; i++) {
        (void)snprintf(source, sizeof source, "10.9.2.%d", 1 + i);
        crowd[i] = silent_from(source);
    }
    NET_UNTIL(count_closed(crowd, CROWD) == CROWD - FEW);
    for (int i = 0; i < HOLDERS; i++)
        cr_assert_not(is_hung_up(holders[i]), "%d", i);
    cr_assert_eq(ct_listener_unproven(net.listener), HOLDERS + FEW);
    close_all(holders, HOLDERS);
    close_all(crowd, CROWD);
}

Test(strangers, a_copied_hello_makes_no_stranger_a_holder_of_the_key)
{
    enum { FEW = 2, COPIES = 10 };
    struct ct_buf hello;
    int copies[COPIES], left = 0;

    enter_network();
    listen_at("10.9.1.1", FEW, FEW);
    net_make_hello(&key, &hello);
    for (unsigned i = 0; i < COPIES; i++)
        copies[i] = say_hello(1 + i, &hello);
    cr_assert_not(is_hung_up(copies[0]), "the first is no copy to the listener");
    NET_UNTIL(ct_listener_connections(net.listener) == 1 + FEW);
    for (int i = 1; i < COPIES; i++)
        left += !is_hung_up(copies[i]);
    cr_assert_eq(left, FEW, "as many as there are places of strangers");
    close_all(copies, COPIES);
    ct_buf_deinit(&hello);
}

Test(strangers, holders_of_the_key_beyond_their_places_wait_until_the_oldest_has_had_its_second)
{
    enum { FEW = 2, PLACES_OF_ALL = 4 * FEW, PATIENCE_MS = 1000 };
    struct ct_buf hello;
    int holders[PLACES_OF_ALL], next;

    enter_network();
    listen_at("10.9.1.1", FEW, FEW);
    uint64_t begun_ms = uv_now(&net.loop);
    for (unsigned i = 0; i < PLACES_OF_ALL; i++) {
        net_make_hello(&key, &hello);
        holders[i] = say_hello(1, &hello); /* of one address as well as of many */
        ct_buf_deinit(&hello);
    }
    net_make_hello(&key, &hello);
    next = say_hello(2, &hello); /* returns when it has an answer */
    cr_assert_geq(uv_now(&net.loop) - begun_ms, PATIENCE_MS);
    cr_assert_not(is_hung_up(next));
    cr_assert(is_hung_up(holders[0]));
    for (int i = 1; i < PLACES_OF_ALL; i++)
        cr_assert_not(is_hung_up(holders[i]), "%d", i);
    close_all(holders, PLACES_OF_ALL);
    close(next);
    ct_buf_deinit(&hello);
}
