/* The HTTP server: one GET, one answer, and bounds on everything. */
#include "net_test.h"

#include "net/http_uv.h"
#include "net/web_places.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ct_http_server *server;
static char text[4096];
static uint64_t asked; /* number of the request whose answer is to come later */

static void answer(void *user, const struct ct_http_request *request, struct ct_http_answer *out)
{
    const char *path = request->path;

    cr_assert_eq(user, &net);
    if (strcmp(path, "/metrics") == 0) {
        ct_buf_puts(&out->body, "ctrun_world_size 8\n");
    } else if (strcmp(path, "/large") == 0) {
        out->content_type = "application/octet-stream";
        for (int i = 0; i < 9000; i++) /* 9 MB, above the limit */
            ct_buf_append(&out->body, text, 1000);
    } else if (strcmp(path, "/big") == 0) {
        for (int i = 0; i < 2000; i++) /* 8 MB, below it */
            ct_buf_append(&out->body, text, 4000);
    } else if (strcmp(path, "/events") == 0) {
        out->stream = true;
        ct_buf_printf(&out->body, "data: after %llu\n\n", (unsigned long long)request->last_event);
    } else if (strcmp(path, "/orders") == 0 && request->body != NULL) {
        ct_buf_append(&out->body, request->body, request->body_size);
    } else if (strcmp(path, "/later") == 0) {
        out->later = true;
        asked = request->number;
    } else if (strcmp(path, "/at_once") == 0) {
        struct ct_http_answer answer = ct_http_answer_new(409);

        out->later = true;
        ct_http_answer_later(server, request->number, &answer);
    } else {
        out->status = 404;
    }
}

static void start(uint32_t request_ms, uint32_t connections)
{
    const struct ct_endpoint endpoint = {.host = "127.0.0.1"};
    const struct ct_http_options options = {.handler = answer,
                                            .user = &net,
                                            .request_ms = request_ms,
                                            .connections = connections,
                                            .may_post = true};
    struct ct_error err = {0};

    net_set_up();
    cr_assert_eq(ct_http_start(&net.loop, &endpoint, &options, &server, &err), 0, "%s", err.text);
}

static void set_up(void)
{
    start(0, 0);
}

static void tear_down(void)
{
    ct_http_stop(server);
    net_tear_down();
}

TestSuite(http, .init = set_up, .fini = tear_down, .timeout = 60);

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(ct_http_endpoint(server)->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Send `request`, return the whole answer. */
static const char *ask(const char *request)
{
    int fd = dial();

    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    return text;
}

Test(http, a_get_is_answered_with_what_the_handler_wrote)
{
    cr_assert_str_eq(ask("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:80\r\n\r\n"),
                     "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
                     "Cache-Control: no-store\r\n"
                     "Content-Security-Policy: default-src 'self'; img-src data:\r\n"
                     "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
                     "Content-Length: 19\r\n\r\n"
                     "ctrun_world_size 8\n");
}

Test(http, a_name_that_others_can_make_point_here_is_not_answered)
{
    static const struct {
        const char *host;
        int status;
    } rows[] = {
        {"127.0.0.1:9100", 200},
        {"[::1]:9100", 200},
        {"LOCALHOST", 200},
        {"evil.example", 421},
        {"localhost.evil.example", 421},
        {"1.evil.example:80", 421},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char request[256];
        int status = 0;

        (void)snprintf(request, sizeof request,
                       "GET /metrics HTTP/1.1\r\nX: y\r\nhost:  %s\r\n\r\n", rows[i].host);
        cr_assert_eq(sscanf(ask(request), "HTTP/1.1 %d ", &status), 1);
        cr_assert_eq(status, rows[i].status, "%s", rows[i].host);
    }
}

/* Open a stream and read its head and begin. */
static int open_stream(const char *field)
{
    char request[256];
    int fd = dial(), got = 0;

    (void)snprintf(request, sizeof request, "GET /events HTTP/1.1\r\n%s\r\n", field);
    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    while (ct_http_streams(server) == 0)
        uv_run(&net.loop, UV_RUN_ONCE);
    got = (int)recv(fd, text, sizeof text - 1, 0);
    cr_assert_gt(got, 0);
    text[got] = '\0';
    return fd;
}

Test(http, a_stream_gets_what_is_sent_until_its_reader_is_too_slow)
{
    static char piece[1 << 16];
    int fd = open_stream("Last-Event-ID: 41\r\n");

    cr_assert_not_null(strstr(text, "\r\n\r\ndata: after 41\n\n"), "%s", text);
    cr_assert_null(strstr(text, "Content-Length"), "its length is not known");
    ct_http_stream_send(server, NULL, "data: 42\n\n", 10);
    uv_run(&net.loop, UV_RUN_NOWAIT);
    cr_assert_eq(recv(fd, text, sizeof text, 0), 10);
    for (int i = 0; i < 1000 && ct_http_streams(server) > 0; i++) {
        ct_http_stream_send(server, NULL, piece, sizeof piece);
        uv_run(&net.loop, UV_RUN_NOWAIT);
    }
    cr_assert_eq(ct_http_streams(server), 0, "nobody holds 64 MB for it");
    close(fd);
}

Test(http, what_breaks_the_rules_gets_its_status)
{
    static const struct {
        const char *request;
        int status;
    } rows[] = {
        {"GET /nothing HTTP/1.1\r\n\r\n", 404},     {"PUT /metrics HTTP/1.1\r\n\r\n", 405},
        {"POST /orders HTTP/1.1\r\n\r\n", 411},     {"GET /at_once HTTP/1.1\r\n\r\n", 409},
        {"GET metrics HTTP/1.1\r\n\r\n", 400},      {"GET /metrics\r\n\r\n", 400},
        {"GET /metrics SPDY/1\r\n\r\n", 400},       {"\r\n\r\n", 400},
        {"GET\r\n /metrics HTTP/1.1\r\n\r\n", 400}, {"GET /large HTTP/1.1\r\n\r\n", 500},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        int status = 0;
        cr_assert_eq(sscanf(ask(rows[i].request), "HTTP/1.1 %d ", &status), 1);
        cr_assert_eq(status, rows[i].status, "%s", rows[i].request);
    }
}

Test(http, a_post_has_its_body_whole_and_no_more_than_there_is_room_for)
{
    static const struct {
        const char *fields;
        int status;
    } rows[] = {
        {"Content-Length: 5", 200},
        {"content-length:0", 200},
        {"Content-Length: five", 400},
        {"Content-Length: -1", 400},
        {"Content-Length: 8180", 413},
        {"Content-Length: 18446744073709551617", 413},
        {"X: 1\r\n\r\nContent-Length: 1", 411}, /* that is the body, of a POST without */
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char request[256];
        int status = 0, head = snprintf(request, sizeof request,
                                        "POST /orders HTTP/1.1\r\n%s\r\n\r\n", rows[i].fields);
        int fd = dial();

        memcpy(request + head, "a\nb\0c", 5);
        size_t size = (size_t)head + (i == 0 ? 5 : 0);
        cr_assert_eq(write(fd, request, size), (ssize_t)size);
        net_raw_read_all(fd, text, sizeof text);
        close(fd);
        cr_assert_eq(sscanf(text, "HTTP/1.1 %d ", &status), 1);
        cr_assert_eq(status, rows[i].status, "%s: %s", rows[i].fields, text);
    }
}

Test(http, an_answer_may_come_later_and_is_not_waited_for_for_ever)
{
    static const char request[] = "GET /later HTTP/1.1\r\n\r\n";
    struct ct_http_answer answer = ct_http_answer_new(200);
    int fd = dial();

    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    while (asked == 0)
        uv_run(&net.loop, UV_RUN_ONCE);
    ct_buf_puts(&answer.body, "done");
    ct_http_answer_later(server, asked, &answer);
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    cr_assert_not_null(strstr(text, "\r\n\r\ndone"), "%s", text);
    answer = ct_http_answer_new(200);
    ct_http_answer_later(server, asked, &answer); /* a second one is dropped */
}

Test(http, an_answer_that_does_not_come_is_504)
{
    tear_down();
    start(50, 0);
    cr_assert_not_null(strstr(ask("GET /later HTTP/1.1\r\n\r\n"), "HTTP/1.1 504 "), "%s", text);
}

/* As ask, byte by byte. */
static const char *ask_in_pieces(const char *request)
{
    int fd = dial();

    for (size_t i = 0; i < strlen(request); i++) {
        cr_assert_eq(write(fd, request + i, 1), 1);
        uv_run(&net.loop, UV_RUN_NOWAIT);
    }
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    return text;
}

Test(http, a_request_in_pieces_is_put_together)
{
    cr_assert_not_null(strstr(ask_in_pieces("GET /metrics HTTP/1.1\r\n\r\n"), "200 OK"));
    cr_assert_not_null(
        strstr(ask_in_pieces("POST /orders HTTP/1.1\r\nContent-Length: 6\r\n\r\nuncork"),
               "\r\n\r\nuncork"),
        "its body, too: %s", text);
}

Test(http, a_request_without_end_is_too_large)
{
    static char request[20000];

    memset(request, 'a', sizeof(request) - 1);
    cr_assert(strstr(ask(request), "431 Request Header Fields Too Large") != NULL, "%s", text);
}

Test(http, a_large_answer_arrives_whole)
{
    int fd = dial();
    size_t size = 0, count;
    static char chunk[1 << 16];

    cr_assert_eq(write(fd, "GET /big HTTP/1.1\r\n\r\n", 21), 21);
    shutdown(fd, SHUT_WR);
    do { /* net_raw_read_all stops when its room is used up */
        count = net_raw_read_all(fd, chunk, sizeof(chunk));
        size += count;
    } while (count == sizeof(chunk) - 1);
    close(fd);
    cr_assert_gt(size, 8000000);
}

Test(http, a_slow_request_is_told_so)
{
    tear_down();
    start(30, 0);
    int fd = dial();
    cr_assert_eq(write(fd, "GET /met", 8), 8);
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    cr_assert(strstr(text, "408 Request Timeout") != NULL, "%s", text);
}

Test(http, above_the_number_of_connections_it_is_busy)
{
    int fds[2];

    tear_down();
    start(0, 1);
    fds[0] = dial();
    fds[1] = dial();
    net_raw_read_all(fds[1], text, sizeof(text));
    cr_assert(strstr(text, "503 Service Unavailable") != NULL, "%s", text);
    close(fds[0]);
    close(fds[1]);
}

Test(http, who_asks_for_nothing_gives_way_to_a_newcomer)
{
    char byte;

    tear_down();
    start(0, 1);
    int silent = dial();
    uv_run(&net.loop, UV_RUN_NOWAIT);
    uint64_t until_ms = uv_now(&net.loop) + CT_WEB_PATIENCE_MS;
    while (uv_now(&net.loop) < until_ms) /* it is not asked to go before somebody comes */
        uv_run(&net.loop, UV_RUN_NOWAIT);
    cr_assert_lt(recv(silent, &byte, 1, MSG_DONTWAIT), 0);
    cr_assert(strstr(ask("GET /metrics HTTP/1.1\r\n\r\n"), "200 OK") != NULL, "%s", text);
    cr_assert_eq(recv(silent, &byte, 1, 0), 0);
    close(silent);
}

Test(http, beyond_loopback_it_does_not_listen)
{
    const struct ct_endpoint endpoint = {.host = "0.0.0.0"};
    const struct ct_http_options options = {.handler = answer};
    struct ct_http_server *other = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_http_start(&net.loop, &endpoint, &options, &other, &err), CT_EAUTH);
    cr_assert_null(other);
    cr_assert_not_null(strstr(err.text, "give a certificate and a token"), "%s", err.text);
    cr_assert_null(strstr(err.text, "--key_file"), "a key cannot help: %s", err.text);
}

Test(http, stopping_ends_what_is_open)
{
    int fd = dial();

    uv_run(&net.loop, UV_RUN_NOWAIT);
    ct_http_stop(server);
    net_raw_read_all(fd, text, sizeof(text));
    close(fd);
    net_tear_down(); /* nothing is left in the loop */
    start(0, 0);
}
