/* ctrund: the rendezvous daemon. Reads its options, serves until SIGTERM or SIGINT.
 *
 *      options -> listen -> write the port file -> serve ... signal -> close everything -> 0
 *                                                    SIGHUP: read the key file again
 *
 * The service manager that started it, if one did, is told of each of these (notify_uv.h). */
#include "audit_file.h"
#include "daemon_options.h"
#include "notify_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log/log.h"
#include "base/log/log_writer.h"
#include "base/str.h"
#include "base/version.h"
#include "hook/hooks_uv.h"
#include "net/descriptors.h"
#include "net/endpoint.h"
#include "rendezvous/history/history.h"
#include "rendezvous/holder/peers.h"
#include "rendezvous/page/page_uv.h"
#include "rendezvous/server/server_uv.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { SIGNALS = 3, MAPPED_BYTES = 128 << 10 };

struct daemon {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    uv_timer_t goodbye; /* bounds what connections may take to end in good order */
    struct notify notify;
    struct ct_rdzv_server *server;
    struct ct_page_server *page;
    struct ct_hook_target hook;
    uint64_t hook_kinds;
    struct ct_hooks *hooks; /* NULL: nobody asks for one */
    struct ct_log log;
    struct ct_log_writer *writer; /* NULL: the log is written where it arises */
    int stderr_fd;
    struct audit_file audit;
    const char *key_file, *key_ring; /* NULL: none */
    bool has_certificates;
    struct ct_arena arena;
    struct ct_error fenced; /* a newer daemon has taken over */
};

enum {
    GOODBYE_MS = 1000,
    RESERVED = 64,
    CONNECTIONS = 131072,
    HOOK_MS = 10000,       /* of one try of a hook */
    ARENA_BYTES = 1 << 16, /* of what the options name */
    PEERS_LEASE_MS = 4000, /* a silent one that leads is replaced within half of it */
};

static void on_late(uv_timer_t *timer)
{
    uv_stop(timer->loop); /* the kernel closes what is left */
}

/* The line of `systemctl status`. */
static void put_service_status(void *user, char *text, size_t room)
{
    const struct daemon *daemon = user;

    if (daemon->server == NULL)
        (void)ct_str_copy(text, room, "ends");
    else
        (void)snprintf(text, room, "jobs: %zu, of which %zu run; connections: %zu",
                       ct_rdzv_server_jobs(daemon->server), ct_rdzv_server_running(daemon->server),
                       ct_rdzv_server_links(daemon->server));
}

static void stop(struct daemon *daemon)
{
    notify_stopping(&daemon->notify, daemon->fenced.code != 0 ? daemon->fenced.text : NULL);
    (void)uv_timer_start(&daemon->goodbye, on_late, GOODBYE_MS, 0);
    uv_unref((uv_handle_t *)&daemon->goodbye);
    for (size_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    ct_page_stop(daemon->page);
    ct_rdzv_server_stop(daemon->server, NULL, NULL);
    daemon->server = NULL;
    if (daemon->hooks != NULL)
        ct_hooks_finish(daemon->hooks, GOODBYE_MS / 2, NULL, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    ct_log_event(&daemon->log, CT_LOG_INFO, "stop", "stops after signal %d with %zu jobs", number,
                 ct_rdzv_server_jobs(daemon->server));
    stop(daemon);
}

static void reload_keys(struct daemon *daemon)
{
    struct ct_error err = {0};

    if (daemon->key_file == NULL && daemon->key_ring == NULL && !daemon->has_certificates)
        ct_log_event(&daemon->log, CT_LOG_INFO, "reload", "SIGHUP: there is no key file to read");
    else if (ct_rdzv_server_reload(daemon->server, &err) != 0)
        ct_log_event(&daemon->log, CT_LOG_ERROR, "reload",
                     "SIGHUP: the keys of before stay in use: %s", err.text);
    else if (daemon->key_ring != NULL)
        ct_log_event(&daemon->log, CT_LOG_INFO, "reload",
                     "SIGHUP: the keys of %s count now, links of others have ended",
                     daemon->key_ring);
    else if (daemon->key_file == NULL)
        ct_log_event(&daemon->log, CT_LOG_INFO, "reload",
                     "SIGHUP: the certificates of now count, links of revoked ones have ended");
    else
        ct_log_event(&daemon->log, CT_LOG_INFO, "reload",
                     "SIGHUP: new links need the key that %s holds now, links that stand go on",
                     daemon->key_file);
    ct_page_keys_changed(daemon->page);
}

/* SIGHUP: of `systemctl reload`, and of a terminal that was closed, which is no reason to end. */
static void on_reload(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    struct ct_error err = {0};
    (void)number;
    notify_reloading(&daemon->notify);
    if (audit_file_reopen(&daemon->audit, &err) != 0)
        ct_log_event(&daemon->log, CT_LOG_ERROR, "audit", "SIGHUP: the file of before is kept: %s",
                     err.text);
    reload_keys(daemon);
    notify_ready(&daemon->notify);
}

static void on_fenced(void *user, const struct ct_error *why)
{
    struct daemon *daemon = user;
    daemon->fenced = *why;
    stop(daemon);
}

static void on_event(void *user, const struct ct_service_event *event)
{
    const struct daemon *daemon = user;
    const struct ct_hook_event given = {.job = event->job,
                                        .kind = event->name,
                                        .level = event->level,
                                        .number = event->number,
                                        .generation = event->generation,
                                        .record = event->record,
                                        .size = event->size};

    if ((daemon->hook_kinds >> event->kind & 1) != 0)
        ct_hooks_put(daemon->hooks, &given);
}

/* "node_lost,ended_badly" */
static int read_kinds(struct daemon *daemon, const char *list, struct ct_error *err)
{
    const char *names[CT_ANNOUNCEMENTS + 1];
    size_t count = 0;

    for (const char *at = list; at != NULL && at[0] != '\0' && count < CT_COUNT(names);) {
        size_t size = strcspn(at, ",");

        names[count++] = ct_arena_strndup(&daemon->arena, at, size);
        if (names[count - 1] == NULL)
            return ct_error_set(err, CT_ENOMEM, "out of memory");
        at += size + (at[size] != '\0');
    }
    return ct_announcements_read(names, count, "--on_event_kinds", &daemon->hook_kinds, err);
}

static int start_hooks(struct daemon *daemon, const struct ct_ctrund_options *from,
                       struct ct_error *err)
{
    const struct ct_hooks_options options = {.loop = &daemon->loop,
                                             .target = &daemon->hook,
                                             .timeout_ms = HOOK_MS,
                                             .env = environ,
                                             .log = &daemon->log,
                                             .reaps = true};
    int rc = read_kinds(daemon, from->on_event_kinds, err);

    if (rc == 0)
        rc = ct_hook_target_find(from->on_event != NULL ? from->on_event : "", getenv("PATH"),
                                 &daemon->arena, &daemon->hook, err);
    if (rc == 0 && daemon->hook.path != NULL)
        rc = ct_hooks_new(&options, &daemon->hooks, err);
    return rc;
}

static int watch_signals(struct daemon *daemon, struct ct_error *err)
{
    static const struct {
        int number;
        uv_signal_cb act;
    } rows[SIGNALS] = {{SIGTERM, on_signal}, {SIGINT, on_signal}, {SIGHUP, on_reload}};
    for (size_t i = 0; i < SIGNALS; i++) {
        int rc = uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        if (rc == 0)
            rc = uv_signal_start(&daemon->signals[i], rows[i].act, rows[i].number);
        if (rc != 0)
            return ct_error_set(err, CT_EOS, "cannot watch signal %d: %s", rows[i].number,
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

/* As many descriptors as the system allows, less those that journal, metrics and operators need:
 * when all are in use, newcomers are turned away and nobody else notices. */
static uint32_t connections_allowed(void)
{
    struct rlimit before;
    (void)ct_descriptors_raise(&before);
    return ct_descriptors_for_links(RESERVED, CONNECTIONS);
}

static void tell_limit(const struct daemon *daemon, uint32_t links)
{
    char text[CT_DESCRIPTORS_TEXT];
    ct_log_event(&daemon->log, CT_LOG_INFO, "limit",
                 "has room for %s, one for each node and each operator",
                 ct_descriptors_describe(links, text));
}

/* What makes this one of several that hold the record together. */
static int read_peers(const struct ct_ctrund_options *options, struct ct_peers *peers,
                      struct ct_rdzv_replica_options *replica, struct ct_error *err)
{
    static char host[64];
    int rc = ct_peers_read(peers, options->peers, options->listen, options->listen_count, err);
    if (rc != 0)
        return rc;
    if (options->journal == NULL)
        return ct_error_set(
            err, CT_EUSAGE,
            "--peers needs --journal DIR, a folder of this ctrund alone: a vote that "
            "it forgot could be given twice");
    if (options->takeover != NULL && strcmp(options->takeover, "yes") == 0)
        return ct_error_set(err, CT_EUSAGE,
                            "--takeover yes and --peers exclude each other: stop this host's "
                            "ctrund and start the next one, the others serve meanwhile");
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    *replica = (struct ct_rdzv_replica_options){
        .listener = peers->listener, .host = host, .lease_ms = PEERS_LEASE_MS, .peers = peers};
    return 0;
}

static int start(struct daemon *daemon, const struct ct_ctrund_options *options,
                 struct ct_error *err)
{
    struct ct_peers peers;
    struct ct_rdzv_replica_options replica;
    struct ct_quotas quotas;
    struct ct_rdzv_server_options server = {
        .listen_count = options->listen_count,
        .key_file = options->key_file,
        .key_ring = options->key_ring,
        .tls = &options->tls,
        .journal = options->journal,
        .links_max = connections_allowed(),
        .quotas = &quotas,
        .takeover = options->takeover != NULL && strcmp(options->takeover, "yes") == 0,
        .log = &daemon->log,
        .audit = options->audit != NULL ? &daemon->audit.log : NULL,
        .on_fenced = on_fenced,
        .on_event = daemon->hooks != NULL ? on_event : NULL,
        .user = daemon,
    };
    for (size_t i = 0; i < options->listen_count; i++)
        server.listen[i] = options->listen[i];
    int rc = options->peers != NULL ? read_peers(options, &peers, &replica, err) : 0;
    if (rc == 0)
        rc = ct_ctrund_options_quotas(options, server.links_max, &quotas, err);
    if (rc != 0)
        return rc;
    server.links_max = (uint32_t)quotas.total[CT_QUOTA_LINKS];
    server.replica = options->peers != NULL ? &replica : NULL;
    rc = ct_rdzv_server_start(&daemon->server, &daemon->loop, &server, err);
    if (rc != 0)
        return rc;
    if (options->status != NULL) {
        const struct ct_page_where where = {.endpoint = options->status,
                                            .certificate = options->status_tls,
                                            .token_file = options->status_token};
        rc = ct_page_start(&daemon->loop, &where, daemon->server, &daemon->page, err);
    }
    if (rc == 0 && options->port_file != NULL)
        rc = write_port_file(daemon, options->port_file, err);
    if (rc == 0 && daemon->page != NULL) {
        char text[CT_ENDPOINT_TEXT];
        ct_log_event(&daemon->log, CT_LOG_INFO, "listen", "answers %s on %s",
                     options->status_tls != NULL ? "HTTPS" : "HTTP",
                     ct_endpoint_print(ct_page_endpoint(daemon->page), text));
    }
    if (rc == 0)
        tell_limit(daemon, server.links_max);
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
    (void)uv_timer_init(&daemon->loop, &daemon->goodbye);
    int rc = notify_init(&daemon->notify, &daemon->loop, put_service_status, daemon, err);
    if (rc == 0)
        rc = watch_signals(daemon, err);
    if (rc == 0)
        rc = start_hooks(daemon, options, err);
    if (rc == 0)
        rc = start(daemon, options, err);
    if (rc == 0)
        notify_ready(&daemon->notify);
    if (rc != 0) {
        notify_stopping(&daemon->notify, err->text);
        ct_page_stop(daemon->page);
        ct_rdzv_server_stop(daemon->server, NULL, NULL);
        daemon->server = NULL;
        if (daemon->hooks != NULL)
            ct_hooks_finish(daemon->hooks, 0, NULL, NULL);
        for (size_t i = 0; i < SIGNALS; i++)
            if (daemon->signals[i].data != NULL)
                uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    }
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&daemon->goodbye, NULL);
    notify_close(&daemon->notify);
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
    daemon->log.journal = ct_log_is_journal(daemon->stderr_fd);
    daemon->log.stamped = !daemon->log.journal && isatty(daemon->stderr_fd) != 1;
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
    daemon->key_file = options->key_file;
    daemon->key_ring = options->key_ring;
    daemon->has_certificates = ct_certificate_files_given(&options->tls);
    return 0;
}

/* Options that are wrong are complained about in the format that they ask for. */
static void complain(struct daemon *daemon, const struct ct_ctrund_options *options,
                     const struct ct_error *err)
{
    daemon->stderr_fd = STDERR_FILENO;
    if (daemon->log.write == NULL) {
        ct_log_init_fd(&daemon->log, "ctrund", &daemon->stderr_fd);
        daemon->log.journal = ct_log_is_journal(daemon->stderr_fd);
    }
    daemon->log.json = options->log_format != NULL && strcmp(options->log_format, "json") == 0;
    ct_log_event(&daemon->log, CT_LOG_ERROR, "failed", "%s", err->text);
}

int main(int argc, char **argv)
{
    struct ct_error err = {0};
    struct ct_ctrund_options options = {0};
    struct daemon daemon = {0};
    /* A job's arrays are taken for all its places and used as nodes join: pages of their own, which
     * cost nothing until then, and never ones of before, which would be cleared by hand. */
    ct_arena_init(&daemon.arena, ARENA_BYTES);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
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
    if (rc == 0) {
        daemon.writer = ct_log_writer_new(&daemon.log, daemon.stderr_fd);
        if (options.audit != NULL)
            rc = audit_file_open(&daemon.audit, options.audit, &err);
        if (rc == 0)
            rc = serve(&daemon, &options, &err);
    }
    if (rc != 0)
        complain(&daemon, &options, &err);
    ct_log_writer_free(daemon.writer, GOODBYE_MS);
    audit_file_close(&daemon.audit, GOODBYE_MS);
    ct_arena_deinit(&daemon.arena);
    ct_ctrund_options_deinit(&options);
    return ct_exit_status(rc);
}
