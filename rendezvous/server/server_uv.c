/* service.h on a loop: listeners, connections, one timer. */
#include "rendezvous/server/server_state_uv.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    IDLE_MS = 120 * 1000, /* a connection without a byte: no agent is that quiet */
    SILENT_S = 5,         /* until who connects and says nothing is seen here: agents speak first */
    LINKS = 131072,
    REFUSED_RETRY_MS = 2000, /* until who found no room may ask again */
    REFUSED_MAX = 16,        /* connections beyond the limit that are told so */
    OPERATOR_FLUSH_MS = 500, /* for the last messages to one, when the server stops */
    TAKEOVER_MS = 5000,      /* for the old daemon to leave the address */
    TAKEOVER_POLL_MS = 20,
    QUEUE_BYTES = CT_WIRE_VALUE * 2, /* that may wait for one agent */
    BUDGET_BYTES = 256 << 20,        /* that may wait for all of them */
};

uint64_t ct_server_now_ms(const struct ct_rdzv_server *server)
{
    return ct_clock_mono_ms(server->clock);
}

static void on_timer(uv_timer_t *timer);
static void on_soon(uv_idle_t *soon);
static void on_read(uv_check_t *read);

/* Its own or its holder's; NULL: it does not lead. */
static struct ct_service *service_of(const struct ct_rdzv_server *server)
{
    return server->replica != NULL ? server->replica->holder.service : server->service;
}

static uint64_t deadline_of(const struct ct_rdzv_server *server)
{
    if (server->replica != NULL)
        return ct_holder_deadline(&server->replica->holder);
    return server->service != NULL ? ct_service_deadline(server->service) : UINT64_MAX;
}

/* Firing early costs a look. */
void ct_server_arm(struct ct_rdzv_server *server)
{
    uint64_t due = deadline_of(server);
    if (server->stopping || due >= server->armed_ms)
        return;
    uint64_t now = ct_server_now_ms(server);
    server->armed_ms = due;
    (void)uv_timer_start(&server->timer, on_timer, due > now ? due - now : 0, 0);
}

/* Timers come before sockets: after a stall this one fires while what arrived meanwhile lies
 * unread. The tick that judges others follows when it has been read. */
static void on_timer(uv_timer_t *timer)
{
    struct ct_rdzv_server *server = timer->data;
    (void)uv_idle_start(&server->soon, on_soon);
    (void)uv_check_start(&server->read, on_read);
}

static void on_soon(uv_idle_t *soon)
{
    (void)soon; /* that it runs is enough */
}

static void on_read(uv_check_t *read)
{
    struct ct_rdzv_server *server = read->data;
    (void)uv_idle_stop(&server->soon);
    (void)uv_check_stop(&server->read);
    server->armed_ms = UINT64_MAX;
    if (server->replica != NULL)
        ct_holder_tick(&server->replica->holder, ct_server_now_ms(server));
    else if (server->service != NULL)
        ct_service_tick(server->service, ct_server_now_ms(server));
    ct_server_arm(server);
}

/* ---- the log ---- */

/* A line that others cause: many of one reason are not written (log_limit.h). */
static void log_event(struct ct_rdzv_server *server, enum ct_log_level level, const char *event,
                      uint64_t reason, const struct ct_error *what)
{
    uint32_t left_out;
    bool pass = ct_log_limit_pass(&server->log_limit, ct_server_now_ms(server),
                                  reason ^ ct_hash_str(event), &left_out);
    if (left_out > 0)
        ct_log_event(server->log, CT_LOG_WARN, "log_limit",
                     "%u lines are left out: more than %d of a kind, or %d in all, within %d s",
                     left_out, CT_LOG_PER_REASON, CT_LOG_IN_ALL, CT_LOG_WINDOW_MS / 1000);
    if (pass)
        ct_log_event(server->log, level, event, "%s", what->text);
}

/* ---- what the service does ---- */

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    struct ct_rdzv_server *server = context;
    const struct ct_server_peer *to = peer;
    struct ct_error err = {0};
    if (server->fenced.code != 0)
        return; /* another daemon speaks for the jobs now */
    if (to->conn == NULL) {
        ct_server_local_send(peer, message);
        return;
    }
    int rc = ct_conn_send(to->conn, message, &err);
    if (rc == 0 || rc == CT_ECLOSED)
        return;
    ct_error_prefix(&err, "to %s", ct_conn_peer(to->conn));
    log_event(server, CT_LOG_ERROR, "send_failed", (uint64_t)rc, &err);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    struct ct_rdzv_server *server = context;
    const struct ct_server_peer *to = peer;
    struct ct_error why = {0};
    if (to->conn == NULL) {
        ct_server_local_close(peer, code, sentence);
        return;
    }
    ct_error_set(&why, code, "%s: %s", ct_conn_peer(to->conn), sentence);
    log_event(server, CT_LOG_WARN, "link_closed", (uint64_t)code, &why);
    ct_conn_close(to->conn, code, sentence);
}

static int io_may(void *context, void *peer, enum ct_right right, const char *job,
                  struct ct_error *err)
{
    (void)context;
    const struct ct_conn *conn = ((const struct ct_server_peer *)peer)->conn;
    return conn == NULL ? 0 : ct_conn_may(conn, right, job, err);
}

static void io_audit(void *context, void *peer, const struct ct_service_deed *deed)
{
    const struct ct_server_peer *of = peer;
    const struct ct_server_origin from =
        of->conn != NULL ? ct_server_origin_of(of->conn) : ct_server_local_origin(of);

    ct_server_audit(context, &from, deed);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    struct ct_rdzv_server *server = context;
    struct ct_error what = {0};
    if (server->fenced.code != 0)
        return; /* what the core makes of it is of no interest any more */
    ct_error_set(&what, 0, "job %s: %s", job, sentence);
    log_event(server, CT_LOG_INFO, "job", ct_hash_str(job), &what);
}

/* A line of the log at debug level, the transcript of what the job's core decides. */
static void io_trace(void *context, const char *job, const char *line)
{
    const struct ct_rdzv_server *server = context;
    struct ct_buf clean;
    if (server->fenced.code != 0)
        return;
    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, line, ""); /* it may hold words of a worker */
    ct_log_event(server->log, CT_LOG_DEBUG, "rendezvous", "job %s: %s", job, ct_buf_str(&clean));
    ct_buf_deinit(&clean);
}

/* ---- connections ---- */

static struct ct_server_peer *peer_of(const struct ct_conn *conn)
{
    struct ct_server_peer *peer = ct_conn_user(conn);
    return peer == NULL || (void *)peer->server == (void *)peer ? NULL : peer;
}

/* There is no link for the newcomer: it is told so, and asks again. */
static void refuse_connection(struct ct_rdzv_server *server, struct ct_conn *conn)
{
    uint32_t retry_ms = REFUSED_RETRY_MS;
    const char *text = "the rendezvous has no memory for a connection";
    if (service_of(server) != NULL)
        text = ct_service_refusal(service_of(server), ct_server_now_ms(server), &retry_ms);
    struct ct_message refuse = {.type = CT_MSG_REFUSE,
                                .refuse = {.code = CT_ELIMIT, .retry_ms = retry_ms, .text = text}};
    struct ct_error why = {0};
    const struct ct_server_origin from = ct_server_origin_of(conn);
    ct_error_set(&why, CT_ELIMIT, "%s: %s", ct_conn_peer(conn), text);
    log_event(server, CT_LOG_WARN, "link_refused", (uint64_t)CT_ELIMIT, &why);
    ct_server_audit(server, &from,
                    &(struct ct_service_deed){.deed = "connect", .code = CT_ELIMIT, .text = text});
    ct_conn_set_user(conn, NULL); /* it may outlive the server */
    (void)ct_conn_send(conn, &refuse, NULL);
    ct_conn_close(conn, CT_ELIMIT, text);
}

bool ct_server_add_peer(struct ct_server_peer *peer)
{
    struct ct_rdzv_server *server = peer->server;
    if (server->replica == NULL)
        peer->link = ct_service_open(server->service, peer);
    if (server->replica == NULL ? peer->link == 0
                                : !ct_holder_opened(&server->replica->holder,
                                                    ct_server_now_ms(server), &peer->holder, peer))
        return false;
    peer->next = server->peers;
    if (server->peers != NULL)
        server->peers->prev = peer;
    server->peers = peer;
    return true;
}

static void warn_of_expired(struct ct_rdzv_server *server, const struct ct_conn *conn)
{
    const struct ct_grant *grant = ct_conn_grant(conn);
    struct ct_error why = {0};
    if (grant == NULL || !grant->expired)
        return;
    ct_error_set(&why, CT_EAUTH, "%s: the certificate %s (%s) has expired: renew it",
                 ct_conn_peer(conn), grant->name, grant->id);
    log_event(server, CT_LOG_WARN, "certificate", ct_hash_str(grant->id), &why);
}

static void on_open(struct ct_conn *conn)
{
    struct ct_rdzv_server *server = ct_conn_user(conn);
    if (ct_server_is_revoked(server, conn)) { /* while it shook hands */
        ct_conn_set_user(conn, NULL);
        return;
    }
    warn_of_expired(server, conn);
    struct ct_server_peer *peer = calloc(1, sizeof(*peer));
    if (peer != NULL)
        *peer = (struct ct_server_peer){.server = server, .conn = conn};
    if (peer == NULL || !ct_server_add_peer(peer)) {
        free(peer);
        refuse_connection(server, conn);
        return;
    }
    ct_conn_set_user(conn, peer);
}

void ct_server_admit(struct ct_server_peer *peer)
{
    peer->joined = true;
    ct_conn_set_frame_limit(peer->conn, CT_WIRE_VALUE);
}

void ct_server_message(struct ct_server_peer *peer, const struct ct_message *message)
{
    struct ct_rdzv_server *server = peer->server;
    if (server->replica != NULL) {
        ct_holder_message(&server->replica->holder, ct_server_now_ms(server), &peer->holder,
                          message);
    } else {
        ct_service_message(server->service, ct_server_now_ms(server), peer->link, message);
        if (message->type == CT_MSG_JOIN && ct_service_has_joined(server->service, peer->link))
            ct_server_admit(peer);
    }
    ct_server_arm(server);
}

static void on_message(struct ct_conn *conn, const struct ct_message *message)
{
    if (peer_of(conn) != NULL)
        ct_server_message(peer_of(conn), message);
}

static void free_when_done(struct ct_rdzv_server *server)
{
    if (!server->stopping || server->handles > 0 || server->peers != NULL)
        return;
    void (*stopped)(void *context) = server->stopped;
    void *context = server->stopped_context;
    ct_service_free(server->service);
    ct_server_replica_free(server->replica);
    ct_journal_close(server->journal);
    ct_server_forget_keys(server);
    free(server);
    if (stopped != NULL)
        stopped(context);
}

void ct_server_drop_peer(struct ct_server_peer *peer, bool silent)
{
    struct ct_rdzv_server *server = peer->server;
    if (peer->prev != NULL)
        peer->prev->next = peer->next;
    else
        server->peers = peer->next;
    if (peer->next != NULL)
        peer->next->prev = peer->prev;
    if (server->replica != NULL)
        ct_holder_closed(&server->replica->holder, ct_server_now_ms(server), &peer->holder, silent);
    else
        ct_service_closed(server->service, ct_server_now_ms(server), peer->link, silent);
    ct_server_arm(server);
}

static void on_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_server_peer *peer = peer_of(conn);
    if (peer == NULL)
        return;
    bool silent = why->code == CT_ETIMEOUT || why->code == UV_ETIMEDOUT ||
                  why->code == UV_EHOSTUNREACH || why->code == UV_ENETUNREACH;
    struct ct_rdzv_server *server = peer->server;
    ct_server_drop_peer(peer, silent);
    free(peer);
    free_when_done(server);
}

static void on_refused(void *user, const char *peer, const struct ct_error *why)
{
    log_event(user, CT_LOG_WARN, "peer_refused", (uint64_t)why->code, why);
    ct_rdzv_server_audit(
        user, peer,
        &(struct ct_service_deed){.deed = "connect", .code = why->code, .text = why->text});
}

/* Thousands of newer agents send the same: it is told once. */
static void on_skipped(struct ct_conn *conn, unsigned type)
{
    const struct ct_server_peer *peer = peer_of(conn);
    struct ct_error what = {0};
    if (peer == NULL || peer->server->skipped_type == type)
        return;
    peer->server->skipped_type = type;
    ct_error_set(&what, 0,
                 "%s sends message %u, which this release does not know: it is of a newer one; its "
                 "unknown messages and fields are passed over",
                 ct_conn_peer(conn), type);
    log_event(peer->server, CT_LOG_WARN, "newer_peer", type, &what);
}

static const struct ct_conn_callbacks callbacks = {
    .on_open = on_open,
    .on_message = on_message,
    .on_close = on_close,
    .on_skipped = on_skipped,
};

/* ---- starting and stopping ---- */

static int listen_on(struct ct_rdzv_server *server, const struct ct_rdzv_server_options *from,
                     size_t index, struct ct_error *err)
{
    struct ct_endpoint endpoint;
    int rc = ct_endpoint_parse(from->listen[index], -1, &endpoint, err);
    if (rc != 0)
        return rc;
    struct ct_listener_options options = {
        .conn = {.from = CT_FROM_NODE | (from->replica != NULL ? CT_FROM_REPLICA : 0u),
                 .frame_limit = CT_WIRE_CONTROL, /* until it has joined */
                 .queue_limit = QUEUE_BYTES,
                 .idle_ms = IDLE_MS},
        .ring = server->ring,
        .budget = BUDGET_BYTES / from->listen_count,
        .max_connections = (from->links_max != 0 ? from->links_max : LINKS) + REFUSED_MAX,
        .silent_s = SILENT_S,
        .on_refused = on_refused,
    };
    uint64_t until = ct_server_now_ms(server) + (server->takeover ? TAKEOVER_MS : 0);
    do {
        rc = ct_listener_start(server->loop, &endpoint, &options, &callbacks, server,
                               &server->listeners[index], err);
        if (rc == CT_EINUSE && server->takeover)
            uv_sleep(TAKEOVER_POLL_MS); /* the old daemon is about to find out */
    } while (rc == CT_EINUSE && ct_server_now_ms(server) < until);
    if (rc != 0)
        return rc;
    (void)ct_endpoint_print(ct_listener_endpoint(server->listeners[index]),
                            server->endpoints[index]);
    server->listener_count++;
    return 0;
}

static int listen_on_all(struct ct_rdzv_server *server,
                         const struct ct_rdzv_server_options *options, struct ct_error *err)
{
    if (options->listen_count == 0 || options->listen_count > CT_RDZV_LISTENERS_LIMIT)
        return ct_error_set(err, CT_EUSAGE, "1 to %d endpoints can be listened on, not %zu",
                            CT_RDZV_LISTENERS_LIMIT, options->listen_count);
    int rc = ct_server_load_keys(server, options, err);
    for (size_t i = 0; rc == 0 && i < options->listen_count; i++)
        rc = listen_on(server, options, i, err);
    if (rc == 0) /* where another one listens, this is to be its client */
        rc = ct_server_check_account(server, err);
    if (rc == 0 && options->replica != NULL)
        rc = ct_server_replica_start(server, options, err);
    return rc;
}

static struct ct_service_limits limits_of(const struct ct_rdzv_server *server,
                                          const struct ct_rdzv_server_options *options)
{
    const struct ct_quotas of_one_user = {.set_by = {[CT_QUOTA_LINKS] = "`ulimit -Hn`"}};
    return (struct ct_service_limits){
        .quotas = options->quotas != NULL ? *options->quotas : of_one_user,
        .links = options->links_max,
        .only_job = options->only_job != NULL ? server->only_job : NULL,
        .own = options->own,
    };
}

static void io_noted(void *context, const struct ct_service_event *event)
{
    const struct ct_rdzv_server *server = context;

    if (server->fenced.code == 0)
        server->on_event(server->user, event);
}

static uint64_t io_wall_ms(void *context)
{
    const struct ct_rdzv_server *server = context;

    return ct_clock_wall_ns(server->clock) / 1000000u;
}

static struct ct_service_io io_of(struct ct_rdzv_server *server,
                                  const struct ct_rdzv_server_options *options)
{
    return (struct ct_service_io){
        .context = server,
        .send = io_send,
        .close = io_close,
        .may = io_may,
        .whose = options->quotas != NULL ? ct_server_whose : NULL,
        .persist = options->journal != NULL ? ct_server_keep_on_disk : NULL,
        .announce = io_announce,
        .audit = options->audit != NULL ? io_audit : NULL,
        .noted = options->on_event != NULL ? io_noted : NULL,
        .wall_ms = io_wall_ms,
        .certificate_expires_s = ct_server_certificate_expires_s,
        .trace = server->log != NULL && server->log->level <= CT_LOG_DEBUG ? io_trace : NULL,
    };
}

int ct_rdzv_server_start(struct ct_rdzv_server **ret_server, uv_loop_t *loop,
                         const struct ct_rdzv_server_options *options, struct ct_error *err)
{
    struct ct_rdzv_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    server->self = server;
    server->loop = loop;
    server->clock = options->clock != NULL ? options->clock : &ct_clock_system;
    server->log = options->log;
    server->audit = options->audit;
    server->armed_ms = UINT64_MAX;
    server->takeover = options->takeover;
    server->on_fenced = options->on_fenced;
    server->on_event = options->on_event;
    server->user = options->user;
    if (options->only_job != NULL)
        ct_str_copy(server->only_job, sizeof(server->only_job), options->only_job);
    server->limits = limits_of(server, options);
    server->io = io_of(server, options);
    int random =
        uv_random(NULL, NULL, server->limits.hash_key, sizeof(server->limits.hash_key), 0, NULL);
    if (random == 0 && options->replica == NULL)
        server->service =
            ct_service_new(&server->limits, &server->io, options->journal != NULL ? 0 : 1);
    (void)uv_timer_init(loop, &server->timer);
    (void)uv_timer_init(loop, &server->watch);
    (void)uv_idle_init(loop, &server->soon);
    (void)uv_check_init(loop, &server->read);
    server->timer.data = server->watch.data = server->soon.data = server->read.data = server;
    ct_server_watch_certificates(server);
    server->handles = 5;
    int rc = 0;
    if (random != 0 || (server->service == NULL && options->replica == NULL))
        rc = ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    if (rc == 0 && options->journal != NULL && options->replica == NULL)
        rc = ct_server_restore(server, options->journal, err);
    if (rc == 0)
        rc = listen_on_all(server, options, err);
    if (rc != 0) {
        ct_rdzv_server_stop(server, NULL, NULL);
        return rc;
    }
    ct_server_arm(server);
    *ret_server = server;
    return 0;
}

void ct_server_handle_closed(struct ct_rdzv_server *server)
{
    server->handles--;
    free_when_done(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
    ct_server_handle_closed(handle->data);
}

void ct_rdzv_server_stop(struct ct_rdzv_server *server, void (*stopped)(void *context),
                         void *context)
{
    if (server == NULL)
        return;
    CT_ASSERT(!server->stopping);
    server->stopping = true;
    server->stopped = stopped;
    server->stopped_context = context;
    for (size_t i = 0; i < server->listener_count; i++)
        ct_listener_stop(server->listeners[i]);
    for (struct ct_server_peer *peer = server->peers, *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->conn == NULL) {
            ct_server_local_close(peer, CT_ECLOSED, "the rendezvous stops");
            continue;
        }
        if (!peer->joined) /* an operator, who may have stopped reading */
            ct_conn_set_flush_ms(peer->conn, OPERATOR_FLUSH_MS);
        ct_conn_close(peer->conn, CT_ECLOSED, "the rendezvous stops");
    }
    if (server->replica != NULL)
        ct_server_replica_stop(server);
    uv_close((uv_handle_t *)&server->timer, on_handle_closed);
    uv_close((uv_handle_t *)&server->watch, on_handle_closed);
    uv_close((uv_handle_t *)&server->soon, on_handle_closed);
    uv_close((uv_handle_t *)&server->read, on_handle_closed);
    uv_close((uv_handle_t *)&server->certificate_timer, on_handle_closed);
}

const char *ct_rdzv_server_endpoint(const struct ct_rdzv_server *server, size_t index)
{
    return index < server->listener_count ? server->endpoints[index] : NULL;
}

size_t ct_rdzv_server_jobs(const struct ct_rdzv_server *server)
{
    const struct ct_service *service = service_of(server);
    return service != NULL ? ct_service_jobs(service) : 0;
}

size_t ct_rdzv_server_running(const struct ct_rdzv_server *server)
{
    const struct ct_service *service = service_of(server);
    return service != NULL ? ct_service_running(service) : 0;
}

size_t ct_rdzv_server_links(const struct ct_rdzv_server *server)
{
    const struct ct_service *service = service_of(server);
    return service != NULL ? ct_service_links(service) : 0;
}

void ct_rdzv_server_describe(const struct ct_rdzv_server *server, const struct ct_grant *reader,
                             struct ct_buf *out)
{
    const struct ct_service *service = service_of(server);
    if (service != NULL)
        ct_service_describe(service, reader, out);
    else if (server->replica != NULL)
        ct_holder_describe(&server->replica->holder, out);
}

const struct ct_service *ct_rdzv_server_service(const struct ct_rdzv_server *server)
{
    return service_of(server);
}

void ct_rdzv_server_look(struct ct_rdzv_server *server)
{
    if (service_of(server) != NULL)
        ct_service_look(service_of(server), ct_server_now_ms(server));
}

uint64_t ct_rdzv_server_now_ms(const struct ct_rdzv_server *server)
{
    return ct_server_now_ms(server);
}
