/* ctrund: the rendezvous daemon. Reads its options, serves until SIGTERM or SIGINT.
 *
 *      options -> listen -> write the port file -> serve ... signal -> close everything -> 0 */
#include "options.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/version.h"
#include "net/endpoint.h"
#include "net/http_uv.h"
#include "rendezvous/server_uv.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

struct daemon {
    uv_loop_t loop;
    uv_signal_t signals[2];
    uv_timer_t last_words; /* bounds what connections may take to end in good order */
    struct ct_rdzv_server *server;
    struct ct_http_server *http;
    struct ct_log log;
    int stderr_fd;
    struct ct_error fenced; /* a newer daemon has taken over */
};

enum { LAST_WORDS_MS = 1000, RESERVED = 64, CONNECTIONS = 65536 };

static void on_late(uv_timer_t *timer)
{
    uv_stop(timer->loop); /* the kernel closes what is left */
}

static void stop(struct daemon *daemon)
{
    (void)uv_timer_start(&daemon->last_words, on_late, LAST_WORDS_MS, 0);
    uv_unref((uv_handle_t *)&daemon->last_words);
    for (size_t i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    if (daemon->http != NULL)
        ct_http_stop(daemon->http);
    ct_rdzv_server_stop(daemon->server, NULL, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    ct_log_event(&daemon->log, CT_LOG_INFO, "stop", "stops after signal %d with %zu jobs", number,
                 ct_rdzv_server_jobs(daemon->server));
    stop(daemon);
}

static void on_fenced(void *user, const struct ct_error *why)
{
    struct daemon *daemon = user;
    daemon->fenced = *why;
    stop(daemon);
}

static int watch_signals(struct daemon *daemon, struct ct_error *err)
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        int rc = uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        if (rc == 0)
            rc = uv_signal_start(&daemon->signals[i], on_signal, numbers[i]);
        if (rc != 0)
            return ct_error_set(err, CT_EOS, "cannot watch signal %d: %s", numbers[i],
                                uv_strerror(rc));
    }
    return 0;
}

/* "29400" for host:29400, the path for a unix endpoint. */
static int write_port_file(const struct daemon *daemon, const char *path, struct ct_error *err)
{
    struct ct_endpoint endpoint;
    char text[CT_ENDPOINT_PATH + 2];
    int rc = ct_endpoint_parse(ct_rdzv_server_endpoint(daemon->server, 0), -1, &endpoint, err);
    if (rc != 0)
        return rc;
    if (endpoint.is_unix)
        (void)snprintf(text, sizeof(text), "%s\n", endpoint.path);
    else
        (void)snprintf(text, sizeof(text), "%u\n", endpoint.port);
    return ct_fs_replace(path, text, strlen(text), err);
}

static void answer_http(void *user, const char *path, struct ct_http_answer *answer)
{
    const struct daemon *daemon = user;
    if (strcmp(path, "/status") == 0)
        ct_rdzv_server_describe(daemon->server, &answer->body);
    else if (strcmp(path, "/metrics") == 0)
        ct_rdzv_server_metrics(daemon->server, &answer->body);
    else
        answer->status = 404;
}

/* As many descriptors as the system allows, less those that journal, metrics and operators need:
 * when all are in use, newcomers are turned away and nobody else notices. */
static uint32_t connections_allowed(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    if (limit.rlim_cur <= 2 * RESERVED)
        return RESERVED;
    return (uint32_t)CT_MIN(limit.rlim_cur - RESERVED, (rlim_t)CONNECTIONS);
}

static int start(struct daemon *daemon, const struct ct_ctrund_options *options,
                 struct ct_error *err)
{
    struct ct_rdzv_server_options server = {
        .listen_count = options->listen_count,
        .key_file = options->key_file,
        .journal = options->journal,
        .links_max = connections_allowed(),
        .takeover = options->takeover != NULL && strcmp(options->takeover, "yes") == 0,
        .log = &daemon->log,
        .on_fenced = on_fenced,
        .user = daemon,
    };
    for (size_t i = 0; i < options->listen_count; i++)
        server.listen[i] = options->listen[i];
    int rc = ct_rdzv_server_start(&daemon->server, &daemon->loop, &server, err);
    if (rc != 0)
        return rc;
    if (options->status != NULL) {
        struct ct_endpoint endpoint;
        rc = ct_endpoint_parse(options->status, -1, &endpoint, err);
        struct ct_http_options http = {.handler = answer_http, .user = daemon};
        if (rc == 0)
            rc = ct_http_start(&daemon->loop, &endpoint, &http, &daemon->http, err);
    }
    if (rc == 0 && options->port_file != NULL)
        rc = write_port_file(daemon, options->port_file, err);
    for (size_t i = 0; rc == 0 && i < options->listen_count; i++)
        ct_log_event(&daemon->log, CT_LOG_INFO, "listen", "listens on %s",
                     ct_rdzv_server_endpoint(daemon->server, i));
    return rc;
}

static int serve(struct daemon *daemon, const struct ct_ctrund_options *options,
                 struct ct_error *err)
{
    if (uv_loop_init(&daemon->loop) != 0)
        return ct_error_set(err, CT_EOS, "no event loop");
    (void)uv_timer_init(&daemon->loop, &daemon->last_words);
    int rc = watch_signals(daemon, err);
    if (rc == 0)
        rc = start(daemon, options, err);
    if (rc != 0) {
        if (daemon->http != NULL)
            ct_http_stop(daemon->http);
        ct_rdzv_server_stop(daemon->server, NULL, NULL);
        for (size_t i = 0; i < 2; i++)
            if (daemon->signals[i].data != NULL)
                uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    }
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&daemon->last_words, NULL);
    (void)uv_run(&daemon->loop, UV_RUN_NOWAIT);
    (void)uv_loop_close(&daemon->loop);
    if (rc == 0 && daemon->fenced.code != 0) {
        *err = daemon->fenced;
        rc = err->code;
    }
    return rc;
}

static int init_log(struct daemon *daemon, const struct ct_ctrund_options *options,
                    struct ct_error *err)
{
    daemon->stderr_fd = 2;
    ct_log_init_fd(&daemon->log, "ctrund", &daemon->stderr_fd);
    if (options->log_level != NULL) {
        int level = ct_log_level_find(options->log_level);
        if (level < 0)
            return ct_error_set(err, CT_EUSAGE,
                                "log level \"%s\" is none of debug, info, warn, error",
                                options->log_level);
        daemon->log.level = (enum ct_log_level)level;
    }
    if (options->log_format != NULL && strcmp(options->log_format, "json") != 0 &&
        strcmp(options->log_format, "text") != 0)
        return ct_error_set(err, CT_EUSAGE, "log format \"%s\" is none of text, json",
                            options->log_format);
    daemon->log.json = options->log_format != NULL && strcmp(options->log_format, "json") == 0;
    if (options->takeover != NULL && strcmp(options->takeover, "yes") != 0 &&
        strcmp(options->takeover, "no") != 0)
        return ct_error_set(err, CT_EUSAGE, "--takeover is yes or no, not \"%s\"",
                            options->takeover);
    return 0;
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct ct_ctrund_options options;
    struct daemon daemon = {0};
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of one write */
    (void)signal(SIGXFSZ, SIG_IGN); /* a journal that may not grow likewise */
    int rc = ct_ctrund_options_parse(&options, argc, argv, &err);
    if (rc == 0 && (options.help || options.version)) {
        if (options.help)
            (void)fputs(ct_ctrund_options_help(), stdout);
        else
            (void)puts("ctrund " CT_VERSION);
        return fflush(stdout) == 0 ? 0 : ct_exit_status(CT_EIO);
    }
    if (rc == 0)
        rc = init_log(&daemon, &options, &err);
    if (rc == 0)
        rc = serve(&daemon, &options, &err);
    if (rc != 0)
        (void)fprintf(stderr, "ctrund: error: %s\n", err.text);
    return ct_exit_status(rc);
}
