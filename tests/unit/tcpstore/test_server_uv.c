/* The server on real sockets: who may come, who is told what, and that the loud and the silent
 * leave the honest alone. */
#include "client.h"
#include "server.h"

#include "base/assert.h"
#include "proc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N(number) ((int64_t)(number))

TestSuite(server, .init = host_set_up, .fini = host_tear_down, .timeout = 60);

static int greet(void)
{
    int fd = dial();

    write_fd(fd, "\x00\xCE\xF7\x85\x3C", 5);
    return fd;
}

Test(server, two_clients_share_a_store)
{
    host_start(NULL);
    int a = greet(), b = greet();

    cr_assert_gt(ct_tcpstore_server_endpoint(host.server)->port, 0);
    ask_at(a, SET, "bb", "/k", "value");
    expect_value_at(a, "/k", "value"); /* so SET is done */
    expect_value_at(b, "/k", "value");
    close(a);
    HOST_UNTIL(host.lost == 1);
    expect_value_at(b, "/k", "value");
    close(b);
}

Test(server, the_end_of_a_connection_tells_whose_it_was)
{
    host_start(NULL);
    int a = greet();

    write_fd(a, "\x0D\x2A\x00\x00\x00", 5);
    receive(a, 4, NULL);
    struct ct_buf wait = {0};
    compose(&wait, WAIT, "nb", N(1), "never");
    write_fd(a, wait.data, wait.size);
    HOST_UNTIL(counts().waiting == 1);
    close(a);
    HOST_UNTIL(host.lost == 1);
    cr_assert_eq(host.last.pid, 42);
    cr_assert(host.last.waited && host.last.is_client);
    cr_assert_str_eq(host.last_host, "127.0.0.1");
    cr_assert_eq(host.why.code, 0, "%s", host.why.text);
    cr_assert_eq(counts().clients, 0);
    cr_assert_eq(counts().waiting, 0);
    ct_buf_deinit(&wait);
}

Test(server, a_reset_connection_says_so)
{
    const struct linger at_once = {.l_onoff = 1};
    host_start(NULL);
    int a = greet();

    expect_value_at(a, "k", "");
    cr_assert_eq(setsockopt(a, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(a);
    HOST_UNTIL(host.lost == 1);
    cr_assert_eq(host.why.code, -ECONNRESET, "%s", host.why.text);
    cr_assert(!host.last.waited);
}

Test(server, who_breaks_the_rules_is_closed_and_nobody_else)
{
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11},
        {"\x00\xCE\xF7\x85\x3C\x13", 6},                                  /* code 19 */
        {"\x00\xCE\xF7\x85\x3C\x03\xff\xff\xff\xff\xff\xff\xff\xff", 14}, /* a giant key */
        {"\x00\xCE\xF7\x85\x3D\x03\xff\xff\xff\xff\xff\xff\xff\xff", 14}, /* a wrong magic */
    };
    host_start(NULL);
    int good = greet();

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        int bad = dial();
        (void)!write(bad, rows[i].bytes, rows[i].size);
        receive_end(bad);
        close(bad);
        cr_assert_eq(host.lost, (int)i + 1);
        cr_assert(host.why.code == CT_EPROTOCOL || host.why.code == CT_ELIMIT, "row %zu: %s", i,
                  host.why.text);
        expect_value_at(good, "k", "");
    }
    close(good);
}

Test(server, the_largest_value_goes_in_and_out_to_a_slow_reader)
{
    host_start(NULL);
    int a = greet();

    ask_for_large(a);
    for (int i = 0; i < 100; i++)
        host_turn(__FILE__, __LINE__, "the answers pile up");
    cr_assert_lt(counts().bytes, 4 * CT_TCPSTORE_VALUE_BYTES, "one answer at a time");
    expect_large(a);
    close(a);
}

Test(server, idle_connections_do_not_keep_an_honest_client_out)
{
    enum { IDLE = 1500 };
    static int idle[IDLE];

    allow_descriptors();
    host_start(&(struct ct_tcpstore_limits){.silent = 500, .handshake_ms = 60000});
    int before = greet();
    expect_value_at(before, "k", "");
    for (int i = 0; i < IDLE; i++)
        idle[i] = dial();
    int after = greet();
    expect_value_at(after, "k", "");
    expect_value_at(before, "k", "");
    cr_assert_leq(counts().silent, 500u);
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    close(before);
    close(after);
}

Test(server, who_connects_and_says_nothing_is_closed_in_time)
{
    host_start(&(struct ct_tcpstore_limits){.handshake_ms = 30, .request_ms = 30});
    int silent = dial(), half = dial(), slow = greet(), good = greet();

    expect_value_at(good, "k", "");
    write_fd(half, "\x00\xCE", 2);
    write_fd(slow, "\x03\x01", 2);
    receive_end(silent);
    receive_end(half);
    receive_end(slow);
    cr_assert_eq(host.why.code, CT_ETIMEOUT, "%s", host.why.text);
    expect_value_at(good, "k", "");
    close(silent);
    close(half);
    close(slow);
    close(good);
}

Test(server, beyond_loopback_it_listens_for_named_hosts_only)
{
    static const char *const rows[] = {"localhost", "node7", "", "10.0.0", "10.0.0.1:80"};
    struct ct_error err = {0};

    cr_assert_eq(host_start_at("0.0.0.0:0", NULL, 0, &err), CT_EAUTH, "%s", err.text);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const char *const allowed[] = {"10.0.0.1", rows[i]};
        cr_assert_eq(host_start_at("127.0.0.1:0", allowed, 2, &err), CT_EUSAGE, "%s", rows[i]);
    }
    cr_assert_eq(host_start_at("unix:/tmp/x", NULL, 0, &err), CT_EUSAGE);
}

/* In a network of its own: 10.9.0.0/24 on its loopback device. */
static bool own_network(void)
{
    static const char *const commands[][8] = {
        {"ip", "link", "set", "lo", "up", NULL},
        {"ip", "addr", "add", "10.9.0.1/24", "dev", "lo", NULL},
        {"ip", "addr", "add", "10.9.0.2/24", "dev", "lo", NULL},
        {"ip", "addr", "add", "10.9.0.3/24", "dev", "lo", NULL},
    };

    if (unshare(CLONE_NEWNET) != 0)
        return false;
    for (size_t i = 0; i < CT_COUNT(commands); i++) {
        struct proc proc = {0};
        if (proc_run(&proc, commands[i], NULL, 10) != 0)
            return false;
        proc_free(&proc);
    }
    return true;
}

Test(server, members_and_loopback_may_come_and_strangers_are_reported_once)
{
    static const char *const allowed[] = {"10.9.0.2", "::ffff:10.9.0.1"};
    struct ct_error err = {0};

    if (!own_network())
        cr_skip_test("no network namespace can be made here");
    cr_assert_eq(host_start_at("0.0.0.0:0", allowed, 2, &err), 0, "%s", err.text);
    int member = dial_from("10.9.0.1", "10.9.0.2"), self = dial_from("10.9.0.1", "10.9.0.1");
    int local = dial();
    for (int i = 0; i < 3; i++) {
        int stranger = dial_from("10.9.0.1", "10.9.0.3");
        receive_end(stranger);
        close(stranger);
    }
    cr_assert_eq(host.refused, 1);
    cr_assert_str_eq(host.refused_host, "10.9.0.3");
    cr_assert_eq(host.lost, 0, "who was not let in is not lost");
    const int fds[] = {member, self, local};
    for (size_t i = 0; i < CT_COUNT(fds); i++) {
        write_fd(fds[i], "\x00\xCE\xF7\x85\x3C", 5);
        expect_value_at(fds[i], "k", "");
        close(fds[i]);
    }
}

Test(server, nobody_comes_in_before_the_members_are_known)
{
    static const char *const members[] = {"10.9.0.2"}, *const names[] = {"node7"};
    struct ct_tcpstore_server_options options = {.members_follow = true};
    struct ct_error err = {0};

    if (!own_network())
        cr_skip_test("no network namespace can be made here");
    cr_assert_eq(host_start_with("10.9.0.1", &options, &err), 0, "%s", err.text);
    int stranger = dial_from("10.9.0.1", "10.9.0.3");
    int member = dial_from("10.9.0.1", "10.9.0.2"), self = dial_from("10.9.0.1", "10.9.0.1");
    write_fd(member, "\x00\xCE\xF7\x85\x3C", 5);
    for (int i = 0; i < 20; i++)
        host_turn(__FILE__, __LINE__, "they wait");
    cr_assert_eq(counts().clients, 0);
    cr_assert_eq(host.refused, 0);
    cr_assert_eq(ct_tcpstore_server_allow(host.server, names, 1, &err), CT_EUSAGE);
    cr_assert_eq(ct_tcpstore_server_allow(host.server, members, 1, &err), 0, "%s", err.text);
    expect_value_at(member, "k", "");
    receive_end(stranger);
    receive_end(self); /* no member, and its address is not loopback */
    cr_assert_eq(host.refused, 2);
    cr_assert_eq(counts().clients, 1);
    close(stranger);
    close(member);
    close(self);
}

Test(server, stopping_closes_everybody_and_reports_nobody)
{
    host_start(NULL);
    int a = greet(), b = dial();

    expect_value_at(a, "k", "");
    ct_tcpstore_server_stop(host.server);
    host.server = NULL;
    receive_end(a);
    receive_end(b);
    cr_assert_eq(host.lost, 0);
    close(a);
    close(b);
}
