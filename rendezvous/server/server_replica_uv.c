/* holder.h on a loop: the holder decides, this file has its connections to other holders and to the
 * place where the job's nodes were told to meet. */
#include "rendezvous/server/server_state_uv.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>

enum { ENDPOINT_RETRY_MS = 100 /* a ctrun that starts there is told soon enough */ };

/* ---- connections of nodes ------------------------------------------------------------------- */

static void io_turn_away(void *context, void *peer, int code, const char *sentence)
{
    const struct ct_server_peer *of = peer;

    (void)context;
    if (of->conn == NULL)
        ct_server_local_close(peer, code, sentence);
    else
        ct_conn_close(of->conn, code, sentence);
}

static void io_admit(void *context, void *peer)
{
    (void)context;
    ct_server_admit(peer);
}

static void io_log(void *context, enum ct_log_level level, const char *sentence)
{
    const struct ct_rdzv_server *server = context;

    ct_log_event(server->log, level, "replica", "%s", sentence);
}

/* ---- connections to other holders ----------------------------------------------------------- */

static void io_send_replica(void *context, uint64_t id, const char *address,
                            const struct ct_message *message)
{
    const struct ct_rdzv_server *server = context;

    if (server->fenced.code == 0)
        ct_replica_links_send(server->replica->links, id, address, message);
}

static void io_want(void *context, const struct ct_replica_server *list, size_t count)
{
    const struct ct_rdzv_server *server = context;

    ct_replica_links_want(server->replica->links, list, count);
}

static void io_ask_nodes(void *context, const char *const *hosts, size_t count)
{
    const struct ct_server_replica *of = ((const struct ct_rdzv_server *)context)->replica;

    of->ask_nodes(of->ask_context, hosts, count);
}

void ct_rdzv_server_nodes_known(struct ct_rdzv_server *server, bool down, const char *text)
{
    ct_holder_nodes_known(&server->replica->holder, ct_server_now_ms(server), down, text);
    ct_server_arm(server);
}

static void on_died(void *context, uint64_t id)
{
    struct ct_rdzv_server *server = context;

    ct_holder_died(&server->replica->holder, ct_server_now_ms(server), id);
    ct_server_arm(server);
}

/* What keeps two peers apart is for an operator; one that is not there is not. */
static void on_link_failed(void *context, const char *address, const struct ct_error *why)
{
    const struct ct_rdzv_server *server = context;

    if (server->replica->peers.count > 0)
        ct_log_event(server->log, CT_LOG_WARN, "peer", "the peer at %s cannot be spoken to: %s",
                     address, why->text);
}

/* ---- the endpoint that the nodes were told -------------------------------------------------- */

static struct ct_rdzv_server *server_of(const struct ct_conn *conn)
{
    return ct_conn_user(conn); /* NULL: it was given up */
}

static void on_endpoint_open(struct ct_conn *conn)
{
    struct ct_rdzv_server *server = server_of(conn);

    if (server == NULL)
        return;
    struct ct_message hello =
        ct_holder_hello(server->only_job, server->replica->host, server->limits.own);

    hello.hello.protocol = server->replica->endpoint_protocol;
    (void)ct_conn_send(conn, &hello, NULL);
    ct_holder_endpoint_opened(&server->replica->holder, ct_server_now_ms(server));
    ct_server_arm(server);
}

static void on_endpoint_message(struct ct_conn *conn, const struct ct_message *message)
{
    struct ct_rdzv_server *server = server_of(conn);

    if (server == NULL)
        return;
    ct_holder_endpoint_message(&server->replica->holder, ct_server_now_ms(server), message);
    ct_server_arm(server);
}

static void on_endpoint_close(struct ct_conn *conn, const struct ct_error *why)
{
    struct ct_rdzv_server *server = server_of(conn);

    (void)why;
    if (server == NULL)
        return;
    server->replica->endpoint_conn = NULL;
    server->replica->endpoint_protocol = ct_wire_next_older(server->replica->endpoint_protocol);
    ct_holder_endpoint_closed(&server->replica->holder, ct_server_now_ms(server));
    ct_server_arm(server);
}

static bool io_dial_endpoint(void *context)
{
    static const struct ct_conn_callbacks callbacks = {.on_open = on_endpoint_open,
                                                       .on_message = on_endpoint_message,
                                                       .on_close = on_endpoint_close};
    struct ct_rdzv_server *server = context;
    struct ct_server_replica *of = server->replica;
    const struct ct_conn_options options = {
        .from = CT_FROM_SERVER | CT_FROM_REPLICA,
        .key = of->key,
        .job = server->only_job,
        .accept_expired = true,
        .connect_ms = INT32_MAX,
        .retry_ms = ENDPOINT_RETRY_MS,
        .seed = ct_id_fold(server->limits.own),
    };
    struct ct_endpoint endpoint;

    if (ct_endpoint_parse(of->job_endpoint, -1, &endpoint, NULL) != 0 ||
        ct_conn_connect(server->loop, &endpoint, &options, &callbacks, server, &of->endpoint_conn,
                        NULL) != 0)
        of->endpoint_conn = NULL;
    return of->endpoint_conn != NULL;
}

static void io_send_endpoint(void *context, const struct ct_message *message)
{
    const struct ct_rdzv_server *server = context;

    (void)ct_conn_send(server->replica->endpoint_conn, message, NULL);
}

static void io_leave_endpoint(void *context)
{
    const struct ct_rdzv_server *server = context;
    struct ct_conn *conn = server->replica->endpoint_conn;

    server->replica->endpoint_conn = NULL;
    ct_conn_set_user(conn, NULL);
    ct_conn_close(conn, 0, NULL);
}

/* ---- begin and end -------------------------------------------------------------------------- */

struct ct_msg_offer ct_rdzv_server_follow(struct ct_rdzv_server *server,
                                          const struct ct_msg_voters *voters)
{
    struct ct_holder *holder = &server->replica->holder;

    (void)ct_holder_follow(holder, ct_server_now_ms(server), voters);
    ct_server_arm(server);
    return ct_holder_offer(holder);
}

bool ct_rdzv_server_leads(const struct ct_rdzv_server *server)
{
    return server->replica == NULL || ct_holder_leads(&server->replica->holder);
}

enum ct_holder_duty ct_rdzv_server_duty(struct ct_rdzv_server *server, char *text, size_t room)
{
    if (server->replica != NULL)
        return ct_holder_duty(&server->replica->holder, ct_server_now_ms(server), text, room);
    (void)snprintf(text, room, "no other host can hold the record of job %s", server->only_job);
    return CT_HOLDER_NEEDED;
}

void ct_rdzv_server_yield(struct ct_rdzv_server *server)
{
    ct_holder_yield(&server->replica->holder, ct_server_now_ms(server));
    ct_server_arm(server);
}

bool ct_rdzv_server_is_orphan(const struct ct_rdzv_server *server)
{
    return server->replica != NULL && ct_holder_is_orphan(&server->replica->holder);
}

static int init_holder(struct ct_rdzv_server *server, const struct ct_rdzv_replica_options *from,
                       struct ct_error *err)
{
    const struct ct_peers *peers = from->peers;
    struct ct_server_replica *of = server->replica;
    const struct ct_holder_io io = {
        .context = server,
        .send = server->io.send,
        .close = server->io.close,
        .may = server->io.may,
        .whose = server->io.whose,
        .announce = server->io.announce,
        .noted = server->io.noted,
        .audit = server->io.audit,
        .wall_ms = server->io.wall_ms,
        .certificate_expires_s = server->io.certificate_expires_s,
        .trace = server->io.trace,
        .turn_away = io_turn_away,
        .admit = io_admit,
        .send_replica = io_send_replica,
        .want = io_want,
        .dial_endpoint = io_dial_endpoint,
        .send_endpoint = io_send_endpoint,
        .leave_endpoint = io_leave_endpoint,
        .ask_nodes = of->ask_nodes != NULL ? io_ask_nodes : NULL,
        .keep = ct_server_keep_of_holder,
        .log = io_log,
    };
    struct ct_holder_options options = {
        .limits = &server->limits,
        .host = of->host,
        .address =
            peers != NULL ? peers->list[peers->own].address : server->endpoints[from->listener],
        .at_endpoint = from->endpoint == NULL,
        .lease_ms = from->lease_ms,
        .now_ms = ct_server_now_ms(server),
        .io = &io,
        .peers = peers != NULL ? &of->peers : NULL,
    };

    if (uv_random(NULL, NULL, &options.seed, sizeof options.seed, 0, NULL) != 0)
        return ct_error_set(err, CT_EOS, "there are no random bytes for the rendezvous");
    return ct_holder_init(&of->holder, &options, err);
}

static int new_links(struct ct_rdzv_server *server, struct ct_error *err)
{
    struct ct_server_replica *of = server->replica;
    bool has_peers = of->peers.count > 0;
    const struct ct_id own = {.low = of->peers.list[of->peers.own].id};
    const struct ct_replica_links_options links = {
        .loop = server->loop,
        .clock = server->clock,
        .key = of->key,
        .job = has_peers ? of->peers.name : server->only_job,
        .host = of->host,
        .incarnation = has_peers ? own : server->limits.own,
        .context = server,
        .on_died = on_died,
        .returns = has_peers,
        .on_failed = on_link_failed,
    };

    of->links = ct_replica_links_new(&links);
    server->handles += of->links != NULL;
    return of->links != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
}

static int begin_with_peers(struct ct_rdzv_server *server, const char *journal,
                            struct ct_error *err)
{
    struct ct_holder *holder = &server->replica->holder;
    int rc = ct_server_restore_holder(server, journal, err);

    if (rc == 0)
        ct_holder_begin(holder, ct_server_now_ms(server));
    return rc;
}

static int begin(struct ct_rdzv_server *server, const struct ct_rdzv_server_options *options,
                 struct ct_error *err)
{
    const struct ct_rdzv_replica_options *from = options->replica;
    struct ct_server_replica *of = server->replica;
    uint64_t now_ms = ct_server_now_ms(server);
    int rc = init_holder(server, from, err);

    if (rc == 0)
        rc = new_links(server, err);
    if (rc != 0)
        return rc;
    if (from->peers != NULL)
        return begin_with_peers(server, options->journal, err);
    if (from->voters != NULL)
        rc = ct_holder_follow(&of->holder, now_ms, from->voters);
    else
        rc = ct_holder_found(&of->holder, now_ms);
    return rc != 0 ? ct_error_set(err, rc, "no memory for the rendezvous") : 0;
}

int ct_server_replica_start(struct ct_rdzv_server *server,
                            const struct ct_rdzv_server_options *options, struct ct_error *err)
{
    const struct ct_rdzv_replica_options *from = options->replica;
    struct ct_server_replica *of = calloc(1, sizeof *of);

    if (of == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    server->replica = of;
    of->key = ct_server_has_key(server) ? &server->key : NULL;
    of->endpoint_protocol = CT_WIRE_PROTOCOL;
    if (from->peers != NULL)
        of->peers = *from->peers;
    of->ask_nodes = from->ask_nodes;
    of->ask_context = from->ask_context;
    (void)ct_str_copy(of->host, sizeof of->host, from->host);
    (void)ct_str_copy(of->job_endpoint, sizeof of->job_endpoint,
                      from->endpoint != NULL ? from->endpoint : "");
    return begin(server, options, err);
}

static void on_closed(void *context)
{
    ct_server_handle_closed(context);
}

void ct_server_replica_stop(struct ct_rdzv_server *server)
{
    struct ct_server_replica *of = server->replica;

    ct_holder_stop(&of->holder, ct_server_now_ms(server));
    if (of->links != NULL)
        ct_replica_links_free(of->links, on_closed, server);
}

void ct_server_replica_free(struct ct_server_replica *of)
{
    if (of == NULL)
        return;
    ct_holder_deinit(&of->holder);
    free(of);
}
