#include "server.h"
#include "client.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct host host;

static bool out_of_time;

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    out_of_time = true;
}

static void on_lost(void *user, const struct ct_tcpstore_lost *lost)
{
    cr_assert_eq(user, &host);
    cr_assert(lost->peer[0] != '\0');
    host.lost++;
    host.last = *lost;
    host.last.peer = host.last.host = NULL;
    (void)ct_str_copy(host.last_host, sizeof host.last_host, lost->host);
    host.why = lost->why != NULL ? *lost->why : (struct ct_error){0};
}

static void on_refused(void *user, const char *name)
{
    cr_assert_eq(user, &host);
    host.refused++;
    (void)ct_str_copy(host.refused_host, sizeof host.refused_host, name);
}

void host_set_up(void)
{
    memset(&host, 0, sizeof host);
    out_of_time = false;
    cr_assert_eq(uv_loop_init(&host.loop), 0);
    uv_timer_init(&host.loop, &host.guard);
    uv_timer_start(&host.guard, on_guard, 20000, 0);
}

void host_tear_down(void)
{
    if (host.server != NULL)
        ct_tcpstore_server_stop(host.server);
    uv_close((uv_handle_t *)&host.guard, NULL);
    uv_run(&host.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&host.loop), 0);
}

static int start(const struct ct_endpoint *endpoint, struct ct_tcpstore_server_options *options,
                 struct ct_error *err)
{
    options->on_lost = on_lost;
    options->on_refused = on_refused;
    options->user = &host;
    return ct_tcpstore_server_start(&host.loop, endpoint, options, &host.server, err);
}

void host_start(const struct ct_tcpstore_limits *limits)
{
    struct ct_tcpstore_server_options options = {.on_lost = NULL};
    struct ct_error err = {0};

    if (limits != NULL)
        options.limits = *limits;
    cr_assert_eq(start(&(struct ct_endpoint){.host = "127.0.0.1"}, &options, &err), 0, "%s",
                 err.text);
}

int host_start_at(const char *address, const char *const allowed[], size_t count,
                  struct ct_error *err)
{
    struct ct_tcpstore_server_options options = {.allowed = allowed, .allowed_count = count};

    return host_start_with(address, &options, err);
}

int host_start_with(const char *address, struct ct_tcpstore_server_options *options,
                    struct ct_error *err)
{
    struct ct_endpoint endpoint;

    cr_assert_eq(ct_endpoint_parse(address, 0, &endpoint, err), 0, "%s", err->text);
    return start(&endpoint, options, err);
}

void host_turn(const char *file, int line, const char *condition)
{
    cr_assert_not(out_of_time, "%s:%d: never: %s", file, line, condition);
    uv_run(&host.loop, UV_RUN_NOWAIT);
}

static int dial_at(const char *address, const char *source, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET}, from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(inet_pton(AF_INET, address, &to.sin_addr), 1);
    cr_assert_eq(inet_pton(AF_INET, source, &from.sin_addr), 1);
    to.sin_port = htons(port);
    cr_assert_eq(bind(fd, (struct sockaddr *)&from, sizeof from), 0, "%s", strerror(errno));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0, "%s", strerror(errno));
    return fd;
}

int dial_from(const char *address, const char *source)
{
    return dial_at(address, source, ct_tcpstore_server_endpoint(host.server)->port);
}

int dial_port(uint16_t port)
{
    return dial_at("127.0.0.1", "127.0.0.1", port);
}

int dial(void)
{
    return dial_from("127.0.0.1", "127.0.0.1");
}

void write_fd(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        cr_assert(sent > 0 || errno == EAGAIN, "%s", strerror(errno));
        if (sent > 0) {
            at += sent;
            size -= (size_t)sent;
        }
        host_turn(__FILE__, __LINE__, "sent");
    }
}

void receive(int fd, size_t size, struct ct_buf *to)
{
    static char bytes[65536];

    while (size > 0) {
        size_t wanted = size < sizeof bytes ? size : sizeof bytes;
        ssize_t count = recv(fd, bytes, wanted, MSG_DONTWAIT);
        cr_assert(count > 0 || (count < 0 && errno == EAGAIN), "the connection ended, %zu to come",
                  size);
        if (count > 0) {
            if (to != NULL)
                cr_assert_eq(ct_buf_append(to, bytes, (size_t)count), 0);
            size -= (size_t)count;
        }
        host_turn(__FILE__, __LINE__, "heard");
    }
}

void receive_end(int fd)
{
    char byte;
    ssize_t count;

    do {
        host_turn(__FILE__, __LINE__, "closed by the server");
        count = recv(fd, &byte, 1, MSG_DONTWAIT);
    } while (count > 0 || (count < 0 && errno == EAGAIN));
}

void ask_at(int fd, int code, const char *format, const char *key, const char *value)
{
    struct ct_buf request = {0};

    compose(&request, code, format, key, value);
    write_fd(fd, request.data, request.size);
    ct_buf_deinit(&request);
}

void expect_value_at(int fd, const char *key, const char *value)
{
    struct ct_buf got = {0};

    ask_at(fd, GET, "b", key, NULL);
    receive(fd, 8 + strlen(value), &got);
    cr_assert_eq(ct_get_le64(got.data), strlen(value));
    cr_assert_str_eq(ct_buf_str(&got) + 8, value);
    ct_buf_deinit(&got);
}

struct counts counts(void)
{
    return counts_of(ct_tcpstore_server_store(host.server));
}

/* ---- a large value -------------------------------------------------------------------------- */

enum { LARGE_TIMES = 3 };

static unsigned char *large_value(void)
{
    unsigned char *large = malloc(CT_TCPSTORE_VALUE_BYTES);

    cr_assert_not_null(large);
    for (size_t i = 0; i < CT_TCPSTORE_VALUE_BYTES; i++)
        large[i] = (unsigned char)(i * 2654435761u >> 13);
    return large;
}

void ask_for_large(int fd)
{
    unsigned char *large = large_value();
    struct ct_buf request = {0};

    compose(&request, SET, "bn", "/big", (int64_t)CT_TCPSTORE_VALUE_BYTES);
    write_fd(fd, request.data, request.size);
    write_fd(fd, large, CT_TCPSTORE_VALUE_BYTES);
    ct_buf_clear(&request);
    for (int i = 0; i < LARGE_TIMES; i++)
        compose(&request, GET, "b", "/big");
    write_fd(fd, request.data, request.size);
    ct_buf_deinit(&request);
    free(large);
}

void expect_large(int fd)
{
    unsigned char *large = large_value();
    struct ct_buf got = {0};

    for (int i = 0; i < LARGE_TIMES; i++) {
        ct_buf_clear(&got);
        receive(fd, 8 + CT_TCPSTORE_VALUE_BYTES, &got);
        cr_assert_eq(ct_get_le64(got.data), CT_TCPSTORE_VALUE_BYTES);
        cr_assert_eq(memcmp(got.data + 8, large, CT_TCPSTORE_VALUE_BYTES), 0);
    }
    ct_buf_deinit(&got);
    free(large);
}

void allow_descriptors(void)
{
    struct rlimit files;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}
