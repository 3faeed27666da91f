#include "net_test.h"

#include "base/assert.h"
#include "base/fs.h"
#include "net/conn_inner_uv.h"
#include "net/tls.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct net net;

/* ---- callbacks ---- */

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct end *end = ct_conn_user(conn);
    const struct ct_message welcome = {.type = CT_MSG_WELCOME,
                                       .welcome = {.generation = message->heartbeat.step}};

    end->messages++;
    if (message->type == CT_MSG_HEARTBEAT)
        end->last_step = message->heartbeat.step;
    if (message->type == CT_MSG_WELCOME)
        end->last_step = message->welcome.generation;
    if (message->type == CT_MSG_STORE_SET)
        end->last_size = message->store_set.value.size;
    if (end->echo)
        ct_conn_send(conn, &welcome, NULL);
}

static void on_open(struct ct_conn *conn)
{
    ((struct end *)ct_conn_user(conn))->opened++;
}

static void on_accepted(struct ct_conn *conn)
{
    CT_ASSERT(net.accepted < ENDS);
    struct end *end = &net.ends[net.accepted++];

    end->conn = conn;
    end->echo = net.echo;
    ct_conn_set_user(conn, end);
    on_open(conn);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct end *end = ct_conn_user(conn);

    end->closed++;
    end->conn = NULL;
    end->why = *why;
}

static void on_waiting(struct ct_conn *conn, uint64_t waited_ms, const char *what, bool accepted)
{
    struct end *end = ct_conn_user(conn);

    (void)waited_ms;
    if (accepted && strstr(what, "handshake goes on") != NULL) {
        end->handshakes++;
        return;
    }
    end->waits++;
    end->accepted = accepted;
    snprintf(end->waiting, sizeof(end->waiting), "%s", what);
}

static void on_refused(void *user, const char *peer, const struct ct_error *why)
{
    CT_ASSERT(user == &net && peer[0] != '\0');
    net.refused++;
    net.refusal = *why;
}

static const struct ct_conn_callbacks client_callbacks = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close, .on_waiting = on_waiting};
static const struct ct_conn_callbacks server_callbacks = {
    .on_open = on_accepted, .on_message = on_message, .on_close = on_close};

/* ---- fixture ---- */

static bool out_of_time;

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    out_of_time = true;
}

void net_set_up(void)
{
    memset(&net, 0, sizeof(net));
    out_of_time = false;
    cr_assert_eq(uv_loop_init(&net.loop), 0);
    uv_timer_init(&net.loop, &net.guard);
    uv_timer_start(&net.guard, on_guard, 20000, 0);
}

void net_tear_down(void)
{
    for (int i = 0; i < ENDS; i++)
        if (net.ends[i].conn != NULL)
            ct_conn_close(net.ends[i].conn, 0, NULL);
    if (net.listener != NULL)
        ct_listener_stop(net.listener);
    uv_close((uv_handle_t *)&net.guard, NULL);
    uv_run(&net.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&net.loop), 0);
    if (net.directory[0] != '\0')
        ct_fs_remove_tree(net.directory);
}

void net_turn(const char *file, int line, const char *condition)
{
    cr_assert_not(out_of_time, "%s:%d: never: %s", file, line, condition);
    uv_run(&net.loop, UV_RUN_ONCE);
}

static void on_tick(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

void net_pass(uint64_t ms)
{
    uv_timer_t tick;
    bool over = false;

    uv_timer_init(&net.loop, &tick);
    tick.data = &over;
    uv_update_time(&net.loop);
    uv_timer_start(&tick, on_tick, ms, 0);
    NET_UNTIL(over);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&net.loop, UV_RUN_NOWAIT);
}

struct ct_conn_options net_client(const struct ct_key *key)
{
    return (struct ct_conn_options){.from = CT_FROM_SERVER, .key = key, .job = "digits"};
}

struct ct_listener_options net_server(const struct ct_key *key)
{
    return (struct ct_listener_options){.conn = {.from = CT_FROM_NODE, .key = key},
                                        .on_refused = on_refused};
}

void net_listen_on(const struct ct_endpoint *endpoint, const struct ct_listener_options *options)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_listener_start(&net.loop, endpoint, options, &server_callbacks, &net,
                                   &net.listener, &err),
                 0, "%s", err.text);
}

void net_listen(const struct ct_listener_options *options)
{
    net_listen_on(&(struct ct_endpoint){.host = "127.0.0.1"}, options);
}

void net_listen_unix(const struct ct_listener_options *options)
{
    struct ct_endpoint endpoint = {.is_unix = true};

    snprintf(net.directory, sizeof(net.directory), "/tmp/ct-net-XXXXXX");
    cr_assert_not_null(mkdtemp(net.directory));
    snprintf(endpoint.path, sizeof(endpoint.path), "%s/s", net.directory);
    net_listen_on(&endpoint, options);
}

const struct ct_endpoint *net_endpoint(void)
{
    return ct_listener_endpoint(net.listener);
}

void net_connect_to(struct end *end, const struct ct_endpoint *endpoint,
                    const struct ct_conn_options *options)
{
    struct ct_error err = {0};

    cr_assert_eq(
        ct_conn_connect(&net.loop, endpoint, options, &client_callbacks, end, &end->conn, &err), 0,
        "%s", err.text);
}

void net_connect(struct end *end, const struct ct_conn_options *options)
{
    net_connect_to(end, net_endpoint(), options);
}

bool net_is_open(const struct ct_conn *conn)
{
    return conn->state == CT_CONN_OPEN;
}

void net_set_account(struct ct_conn *conn, uint64_t account)
{
    struct ct_turns *turns = conn->turns;

    CT_ASSERT(turns != NULL);
    ct_turns_leave(turns, conn);
    conn->account = account;
    ct_turns_enter(turns, conn);
}

void net_set_idle(struct ct_conn *conn, uint32_t idle_ms)
{
    CT_ASSERT(net_is_open(conn));
    conn->options.idle_ms = idle_ms;
    ct_conn_arm(conn);
}

int net_heartbeat(struct end *end, uint64_t step)
{
    const struct ct_message heartbeat = {.type = CT_MSG_HEARTBEAT, .heartbeat = {.step = step}};

    return ct_conn_send(end->conn, &heartbeat, NULL);
}

/* ---- raw peers ---- */

int net_raw(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(net_endpoint()->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

size_t net_raw_read_all(int fd, char *text, size_t room)
{
    size_t size = 0;
    ssize_t count;

    while ((count = recv(fd, text + size, room - 1 - size, MSG_DONTWAIT)) != 0) {
        if (count < 0 && errno != EAGAIN)
            break;
        if (count > 0)
            size += (size_t)count;
        else
            net_turn(__FILE__, __LINE__, "the peer ends the connection");
    }
    text[size] = '\0';
    return size;
}

void net_make_hello(const struct ct_key *key, struct ct_buf *ret_hello)
{
    struct ct_tls *tls;
    struct ct_error err = {0};

    cr_assert_eq(ct_tls_new_client(&tls, key, "digits", &err), 0, "%s", err.text);
    cr_assert_eq(ct_tls_handshake(tls, &err), 0, "%s", err.text);
    ct_buf_init(ret_hello, 0);
    cr_assert_eq(ct_tls_drain(tls, ret_hello), 0);
    ct_tls_free(tls);
}
