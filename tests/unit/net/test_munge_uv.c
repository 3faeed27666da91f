/* Links of users whom a real munged names. */
#include "net_test.h"

#include "keys/munge.h"
#include "keys/psk_munge.h"
#include "munged.h"
#include "net/conn_inner_uv.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct ct_key secret_key = {.secret = "0123456789abcdef0123456789abcdeA"};
static struct munged munged;
static struct ct_key key; /* of this user, at that munged */
static struct end client;
static char folder[64];

static void set_up(void)
{
    struct ct_error err = {0};
    char text[PATH_MAX + 16];

    munged_demand();
    (void)snprintf(folder, sizeof folder, "/tmp/ct-munge-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    munged_start(&munged, folder);
    (void)snprintf(text, sizeof text, "munge::%s", munged.socket);
    cr_assert_eq(ct_net_key_load(text, &key, &err), 0, "%s", err.text);
    memset(&client, 0, sizeof client);
    net_set_up();
}

static void tear_down(void)
{
    if (folder[0] == '\0')
        return; /* it was skipped */
    if (client.conn != NULL)
        ct_conn_close(client.conn, 0, NULL);
    net_tear_down();
    munged_stop(&munged);
    proc_remove_tree(folder);
}

TestSuite(munge_uv, .init = set_up, .fini = tear_down, .timeout = 60);

static struct ct_conn_options once(const struct ct_key *with)
{
    struct ct_conn_options options = net_client(with);

    options.once = true;
    return options;
}

static void connect_with(const struct ct_key *with)
{
    const struct ct_conn_options options = once(with);

    net_connect(&client, &options);
}

static void expect(const char *text, const char *words)
{
    cr_assert_not_null(strstr(text, words), "\"%s\" is missing in: %s", words, text);
}

/* ---- who comes in ---- */

Test(munge_uv, a_user_is_known_without_a_key_file_and_may_do_everything_at_the_own_server)
{
    const struct ct_listener_options options = net_server(&key);
    unsigned uid = 4711;

    net_listen(&options);
    net.echo = true;
    connect_with(&key);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    const struct ct_grant *grant = ct_conn_grant(net.ends[0].conn);
    cr_assert_str_eq(grant->id, "munge");
    cr_assert_eq(grant->role, CT_ROLE_ALL);
    cr_assert(ct_conn_user_of_peer(net.ends[0].conn, &uid));
    cr_assert_eq(uid, geteuid());
    cr_assert_eq(ct_conn_may(net.ends[0].conn, CT_RIGHT_ORDER, "digits", NULL), 0);
    cr_assert_eq(ct_conn_may(net.ends[0].conn, CT_RIGHT_JOIN, "other", NULL), CT_EAUTH);
    cr_assert_eq(net_heartbeat(&client, 7), 0);
    NET_UNTIL(client.last_step == 7);
}

Test(munge_uv, many_come_in_at_once)
{
    enum { MANY = 120 }; /* more than a turn's handshakes, and than are opened at once */
    const struct ct_listener_options options = net_server(&key);
    const struct ct_conn_options from = net_client(&key);
    static struct end clients[MANY];
    int opened = 0;

    net_listen(&options);
    memset(clients, 0, sizeof clients);
    for (int i = 0; i < MANY; i++)
        net_connect(&clients[i], &from);
    while (opened < MANY) {
        net_turn(__FILE__, __LINE__, "all are open");
        opened = 0;
        for (int i = 0; i < MANY; i++) {
            cr_assert_eq(clients[i].closed, 0, "%s", clients[i].why.text);
            opened += clients[i].opened;
        }
    }
    for (int i = 0; i < MANY; i++)
        ct_conn_close(clients[i].conn, 0, NULL);
    for (int i = 0; i < MANY; i++)
        NET_UNTIL(clients[i].closed == 1);
}

/* A server whose ring has these lines and no key. */
static struct ct_key_ring *listen_with(const char *lines)
{
    struct ct_listener_options options = net_server(NULL);
    struct ct_error err = {0};
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/ring", folder);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_geq(fprintf(file, "%s\n", lines), 0);
    cr_assert(fclose(file) == 0 && chmod(path, 0600) == 0);
    cr_assert_eq(ct_key_ring_load(path, &key, &options.ring, &err), 0, "%s", err.text);
    net_listen(&options);
    return options.ring;
}

Test(munge_uv, a_line_of_the_ring_says_what_a_user_may_do)
{
    char line[128];
    unsigned uid = geteuid();
    struct ct_munge_credential names = {.text = ""};

    (void)snprintf(line, sizeof line, "munge staff reader %%u-*,dig* %u -", uid);
    struct ct_key_ring *ring = listen_with(line);
    connect_with(&key);
    NET_UNTIL(client.opened == 1 && net.accepted == 1);
    const struct ct_conn *conn = net.ends[0].conn;
    cr_assert_eq(ct_conn_may(conn, CT_RIGHT_READ, "digits", NULL), 0);
    cr_assert_eq(ct_conn_may(conn, CT_RIGHT_JOIN, "digits", NULL), CT_EAUTH);
    const struct ct_grant *grant = ct_conn_grant(conn);
    cr_assert_str_eq(grant->name, "staff");
    cr_assert_eq(ct_munge_seal(&key, &names, NULL), 0);
    cr_assert_eq(ct_munge_open(key.munge.socket, &names, NULL), 0);
    (void)snprintf(line, sizeof line, "%s-*,dig*", names.user.name);
    cr_assert_str_eq(grant->jobs, line, "the user's name stands for %%u");
    cr_assert(ct_key_ring_has(ring, grant));
    ct_key_ring_unref(ring);
}

Test(munge_uv, key_files_and_munge_do_not_mix_and_both_ends_say_so)
{
    struct ct_listener_options options = net_server(&key);

    net_listen(&options);
    connect_with(&secret_key);
    NET_UNTIL(client.closed == 1 && net.refused == 1);
    cr_assert_eq(net.refusal.code, CT_EAUTH);
    expect(net.refusal.text, "takes users by munge alone");
    ct_listener_stop(net.listener);
    options = net_server(&secret_key);
    net_listen(&options);
    client.closed = 0;
    connect_with(&key);
    NET_UNTIL(client.closed == 1 && net.refused == 2);
    cr_assert_eq(client.why.code, CT_EAUTH);
    expect(client.why.text, "refuses this user's munge credential");
    expect(net.refusal.text, "this side takes none");
    client.closed = 1;
}

/* ---- credentials that do not open ---- */

Test(munge_uv, a_credential_for_another_account_is_refused)
{
    const struct ct_listener_options options = net_server(&key);
    struct ct_key other = key;

    other.munge.account = geteuid() + 1;
    net_listen(&options);
    connect_with(&other);
    NET_UNTIL(client.closed == 1 && net.refused == 1);
    cr_assert_eq(client.why.code, CT_EAUTH);
    expect(client.why.text, "runs under another account");
    cr_assert_eq(net.refusal.code, CT_EAUTH);
    expect(net.refusal.text, "Unauthorized credential");
    cr_assert_eq(net.accepted, 0);
}

/* What a client says first with this credential. */
static void make_hello(const struct ct_munge_credential *credential, struct ct_buf *ret_hello)
{
    struct ct_tls *tls;
    struct ct_error err = {0};

    cr_assert_eq(ct_tls_new_munge_client(&tls, credential, "digits", &err), 0, "%s", err.text);
    cr_assert_eq(ct_tls_handshake(tls, &err), 0, "%s", err.text);
    ct_buf_init(ret_hello, 0);
    cr_assert_eq(ct_tls_drain(tls, ret_hello), 0);
    ct_tls_free(tls);
}

static int say(const struct ct_buf *hello)
{
    int fd = net_raw();

    cr_assert_eq(send(fd, hello->data, hello->size, MSG_NOSIGNAL), (ssize_t)hello->size);
    return fd;
}

Test(munge_uv, a_hello_counts_once)
{
    const struct ct_listener_options options = net_server(&key);
    struct ct_munge_credential credential;
    struct ct_error err = {0};
    struct ct_buf hello;
    char text[4096];

    net_listen(&options);
    cr_assert_eq(ct_munge_seal(&key, &credential, &err), 0, "%s", err.text);
    make_hello(&credential, &hello);
    int first = say(&hello);
    while (recv(first, text, sizeof text, MSG_DONTWAIT | MSG_PEEK) < 0)
        net_turn(__FILE__, __LINE__, "the server answers the first hello");
    cr_assert_eq(text[0], 0x16, "the first one is answered with a handshake");
    int second = say(&hello);
    (void)net_raw_read_all(second, text, sizeof text);
    cr_assert_eq(text[0], 0x15, "the second one with an alert");
    NET_UNTIL(net.refused == 1);
    expect(net.refusal.text, "Replayed credential");
    (void)close(first);
    (void)close(second);
    ct_buf_deinit(&hello);
}

Test(munge_uv, a_credential_that_was_not_made_by_munge_is_refused)
{
    const struct ct_listener_options options = net_server(&key);
    struct ct_munge_credential credential = {.text = "MUNGE:AwQFAAAAgarbage:"};
    struct ct_buf hello;
    char text[4096];

    net_listen(&options);
    make_hello(&credential, &hello);
    int fd = say(&hello);
    (void)net_raw_read_all(fd, text, sizeof text);
    NET_UNTIL(net.refused == 1);
    cr_assert_eq(net.refusal.code, CT_EAUTH);
    expect(net.refusal.text, "the peer's munge credential is refused");
    (void)close(fd);
    ct_buf_deinit(&hello);
}

Test(munge_uv, what_is_no_credential_is_not_shown_to_munged)
{
    struct ct_key nowhere = key;
    struct ct_munge_credential credential = {.text = "MUNGE:not base64:"};
    struct ct_buf hello;
    char text[4096];

    (void)snprintf(nowhere.munge.socket, sizeof nowhere.munge.socket, "%s/none", folder);
    const struct ct_listener_options options = net_server(&nowhere);
    net_listen(&options);
    make_hello(&credential, &hello);
    int fd = say(&hello);
    (void)net_raw_read_all(fd, text, sizeof text);
    NET_UNTIL(net.refused == 1);
    cr_assert_null(strstr(net.refusal.text, "munged"), "%s", net.refusal.text);
    (void)close(fd);
    ct_buf_deinit(&hello);
}

Test(munge_uv, a_credential_is_too_old_after_its_time)
{
    struct ct_munge_credential credential = {.text = ""};
    struct ct_error err = {0};
    struct proc run;
    char socket[PATH_MAX + 16];

    (void)snprintf(socket, sizeof socket, "--socket=%s", munged.socket);
    const char *const argv[] = {"munge", socket, "--ttl=1",
                                "--string=0123456789abcdef0123456789abcdef", NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 10), 0);
    cr_assert_eq(sscanf(ct_buf_str(&run.text), "%1023s", credential.text), 1);
    proc_free(&run);
    net_pass(2100);
    cr_assert_eq(ct_munge_open(munged.socket, &credential, &err), CT_EAUTH);
    expect(err.text, "Expired credential");
}

/* ---- munged is away ---- */

Test(munge_uv, a_server_without_munged_says_so_at_both_ends)
{
    struct ct_key nowhere = key;

    (void)snprintf(nowhere.munge.socket, sizeof nowhere.munge.socket, "%s/none", folder);
    const struct ct_listener_options options = net_server(&nowhere);
    net_listen(&options);
    connect_with(&key);
    NET_UNTIL(client.closed == 1 && net.refused == 1);
    cr_assert_eq(client.why.code, CT_EUNAVAILABLE, "%s", client.why.text);
    expect(client.why.text, "munged does not answer on the peer's machine");
    cr_assert_eq(net.refusal.code, CT_EUNAVAILABLE);
    expect(net.refusal.text, "munged does not answer on this machine");
    expect(net.refusal.text, "/none");
}

Test(munge_uv, a_client_waits_for_a_munged_that_comes_back)
{
    const struct ct_listener_options options = net_server(&key);
    const struct ct_conn_options from = net_client(&key);

    munged_stop(&munged);
    net_listen(&options);
    net_connect(&client, &from);
    NET_UNTIL(client.waits > 0);
    expect(client.waiting, "munged does not answer on this machine");
    munged_start(&munged, folder);
    NET_UNTIL(client.opened == 1);
}

Test(munge_uv, links_that_end_meanwhile_leave_nothing)
{
    const struct ct_listener_options options = net_server(&key);
    struct ct_munge_credential credential;
    struct ct_error err = {0};
    int fds[8];

    net_listen(&options);
    for (size_t i = 0; i < 8; i++) {
        struct ct_buf hello;

        cr_assert_eq(ct_munge_seal(&key, &credential, &err), 0, "%s", err.text);
        make_hello(&credential, &hello);
        fds[i] = say(&hello);
        ct_buf_deinit(&hello);
    }
    while (ct_listener_connections(net.listener) < 8)
        net_turn(__FILE__, __LINE__, "all are accepted");
    connect_with(&key);
    NET_UNTIL(client.handshakes > 0);
    ct_conn_close(client.conn, 0, NULL); /* while its credential is made */
    ct_listener_stop(net.listener);      /* while theirs are opened */
    net.listener = NULL;
    NET_UNTIL(client.closed == 1);
    for (size_t i = 0; i < 8; i++)
        (void)close(fds[i]);
}
