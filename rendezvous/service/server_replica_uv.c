/* A server whose records are on several agents: it has a service while its replica leads.
 *
 *      on_lead     a new service, restored from the map as a daemon's is from its journal
 *      persist     a put; ct_service_kept when a majority holds it
 *      on_follow   the service goes; its nodes are told who holds the record, and find the leader
 *      a death     of all other voters: the record is founded anew (server_founding_uv.c) */
#include "rendezvous/service/server_state_uv.h"

#include "rendezvous/service/records.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELECTIONS = 4, /* in a lease: nodes whose leader fell silent find another one in time */
    ELECTION_MIN_MS = 300,
    ELECTION_MAX_MS = 2500,
    RETRY_MS = 20, /* until a node that was told to go elsewhere asks again */
    LATE_MS = 100, /* a timer that is so late: what arrived meanwhile is read first */
    READ_MS = 2,
};

static void on_timer(uv_timer_t *timer);

static void arm(struct ct_server_replica *of)
{
    uint64_t now_ms = ct_server_now_ms(of->server);

    if (of->server->stopping)
        return;
    of->due_ms = of->changed ? now_ms : CT_MAX(ct_replica_deadline(of->replica), now_ms);
    if (of->server->service == NULL && of->voter_count == 1)
        of->due_ms = CT_MIN(of->due_ms,
                            CT_MAX(of->voters[0].heard_ms + ct_server_silence_ms(of), now_ms + 1));
    (void)uv_timer_start(&of->timer, on_timer, of->due_ms - now_ms, 0);
}

/* ---- nodes that must go elsewhere ----------------------------------------------------------- */

static void describe(const struct ct_server_replica *of, char *text, size_t room)
{
    const char *job = of->server->only_job;
    uint64_t leader = ct_replica_leader(of->replica);
    struct ct_server_voters voters;

    ct_server_list_voters(of, &voters);
    (void)snprintf(text, room,
                   "host %s does not lead the rendezvous of job %s: its nodes agree on "
                   "one that does",
                   of->host, job);
    for (uint32_t i = 0; i < voters.count; i++)
        if (voters.list[i].id == leader && leader != of->id)
            (void)snprintf(text, room, "the rendezvous of job %s is at %s, not at host %s", job,
                           voters.list[i].address, of->host);
    if (voters.count > 2 && leader == 0)
        (void)snprintf(text, room,
                       "the rendezvous of job %s has no leader: %u of the %u hosts that hold its "
                       "record must hear each other, host %s waits for that",
                       job, voters.count / 2 + 1, voters.count, of->host);
    if (voters.count == 2 && leader == 0 && of->voter_count == 1)
        (void)snprintf(text, room,
                       "job %s waits for the host at %s, which is silent: of two hosts neither can "
                       "know that the other is dead. It ends when that host answers, or its ctrun "
                       "is known to be dead",
                       job, voters.list[voters.list[0].id == of->id].address);
}

static void refuse(struct ct_server_peer *peer)
{
    const struct ct_server_replica *of = peer->server->replica;
    struct ct_server_voters voters;
    char text[512];

    describe(of, text, sizeof text);
    ct_server_list_voters(of, &voters);
    if (peer->is_agent && voters.count > 0)
        ct_server_send_voters(&voters, peer->conn);
    (void)ct_conn_send(peer->conn,
                       &(struct ct_message){
                           .type = CT_MSG_REFUSE,
                           .refuse = {.code = CT_EUNAVAILABLE, .retry_ms = RETRY_MS, .text = text}},
                       NULL);
    ct_conn_close(peer->conn, CT_EUNAVAILABLE, text);
}

static void drop_service(struct ct_rdzv_server *server)
{
    struct ct_service *service = server->service;

    server->service = NULL;
    server->replica->told.count = 0;
    for (struct ct_server_peer *peer = server->peers; peer != NULL; peer = peer->next) {
        if (peer->link == 0)
            continue;
        peer->link = 0;
        peer->offers = false;
        refuse(peer);
    }
    ct_service_free(service);
}

/* ---- the replica's words -------------------------------------------------------------------- */

static void on_send(void *context, uint64_t to, const char *address,
                    const struct ct_message *message)
{
    const struct ct_server_replica *of = context;

    if (!ct_server_is_dead(of, to))
        ct_replica_links_send(of->links, to, address, message);
}

static void on_lead(void *context, uint64_t term)
{
    struct ct_server_replica *of = context;
    struct ct_rdzv_server *server = of->server;
    uint64_t now_ms = ct_server_now_ms(server);
    struct ct_bytes record;
    struct ct_error err = {0};
    const char *key;

    server->service = ct_service_new(&server->limits, &server->io, 0);
    if (server->service == NULL)
        return; /* nobody is served: as if it were silent */
    for (size_t i = 0; ct_replica_entry(of->replica, i, &key, &record); i++)
        if (ct_service_restore(server->service, now_ms, record.data, record.size, &err) != 0)
            ct_log_event(server->log, CT_LOG_ERROR, "replica", "%s is left out: %s", key, err.text);
    ct_service_restored(server->service, ct_server_epoch(of));
    for (size_t i = 0; i < of->voter_count; i++) {
        of->voters[i].seen_ms = now_ms;
        if (of->voters[i].led)
            ct_service_node_silent(server->service, of->voters[i].id,
                                   now_ms - of->voters[i].heard_ms);
    }
    for (size_t i = 0; i < of->dead_count; i++)
        ct_service_node_died(server->service, now_ms, of->dead[i]);
    ct_log_event(server->log, CT_LOG_INFO, "replica",
                 "this host leads the rendezvous of job %s in term %" PRIu64, server->only_job,
                 term);
    ct_server_arm(server);
}

static void on_follow(void *context)
{
    struct ct_server_replica *of = context;

    if (of->server->service != NULL)
        drop_service(of->server);
}

/* What failed does so because another leads: the service goes as well. */
static void on_put(void *context, uint64_t number, int code)
{
    struct ct_server_replica *of = context;
    struct ct_rdzv_server *server = of->server;

    if (code != 0 || server->service == NULL)
        return;
    ct_service_kept(server->service, ct_server_now_ms(server), number, 0);
    ct_server_arm(server);
}

static void report_holders(const struct ct_server_replica *of)
{
    struct ct_server_voters voters;

    ct_server_list_voters(of, &voters);
    ct_log_event(of->server->log, CT_LOG_DEBUG, "replica",
                 "the record of job %s is held by %u hosts", of->server->only_job, voters.count);
}

/* A node that cannot be reached is not asked again before it offers anew. */
static void on_changed(void *context, int code)
{
    struct ct_server_replica *of = context;

    if (code == 0)
        report_holders(of);
    for (struct ct_server_peer *peer = of->server->peers; peer != NULL; peer = peer->next)
        if (code == CT_ETIMEOUT && of->adds != 0 && peer->id == of->adds)
            peer->offers = false;
    of->changes = false;
    of->changed = true;
    of->adds = 0;
}

/* ---- records -------------------------------------------------------------------------------- */

/* "job/1": the kinds' order is that in which they are restored. */
static int put(struct ct_server_replica *of, uint64_t number, const char *job,
               enum ct_record_kind kind, const void *record, size_t size)
{
    char key[CT_REPLICA_KEY_BYTES];

    (void)snprintf(key, sizeof key, "%s/%d", job, (int)kind);
    return ct_replica_put(of->replica, ct_server_now_ms(of->server), number, key, record, size);
}

int ct_server_keep_in_replica(void *context, uint64_t ticket, const void *record, size_t size,
                              bool may_compact)
{
    struct ct_rdzv_server *server = context;
    enum ct_record_kind kind;
    char job[129];
    int rc = CT_EPROTOCOL;

    (void)may_compact; /* the map holds no more than the newest of each kind */
    if (server->stopping)
        return CT_EFENCED;
    if (!ct_record_head(record, size, &kind, job))
        return rc;
    if (kind != CT_RECORD_FORGET)
        rc = put(server->replica, ticket, job, kind, record, size);
    for (int old = CT_RECORD_RESERVE; kind == CT_RECORD_FORGET && old < CT_RDZV_RECORDS; old++)
        rc = put(server->replica, UINT64_MAX, job, (enum ct_record_kind)old, NULL, 0);
    arm(server->replica);
    return rc != 0 ? rc : CT_SERVICE_LATER;
}

/* ---- deaths ------------------------------------------------------------------------------- */

static void on_died(void *context, uint64_t id)
{
    struct ct_server_replica *of = context;
    struct ct_rdzv_server *server = of->server;
    uint64_t now_ms = ct_server_now_ms(server);

    memmove(of->dead + 1, of->dead, (CT_SERVER_DEAD - 1) * sizeof *of->dead);
    of->dead[0] = id;
    of->dead_count = CT_MIN(of->dead_count + 1, (size_t)CT_SERVER_DEAD);
    ct_replica_died(of->replica, now_ms, id);
    ct_server_go_on_without_dead(of);
    if (server->service != NULL)
        ct_service_node_died(server->service, now_ms, id);
    ct_server_update_voters(of);
    ct_server_arm(server);
    arm(of);
}

/* ---- time and connections ------------------------------------------------------------------- */

/* Timers come before sockets: after a stall of this process, what arrived is read before anybody is
 * judged by it. */
static void on_timer(uv_timer_t *timer)
{
    struct ct_server_replica *of = timer->data;
    uint64_t now_ms = ct_server_now_ms(of->server);

    if (now_ms >= of->due_ms + LATE_MS) {
        for (size_t i = 0; i < of->voter_count; i++)
            of->voters[i].heard_ms += now_ms - of->due_ms;
        of->due_ms = now_ms + READ_MS;
        (void)uv_timer_start(&of->timer, on_timer, READ_MS, 0);
        return;
    }
    of->changed = false;
    ct_replica_tick(of->replica, now_ms);
    ct_server_go_on_without_silent(of);
    ct_server_update_voters(of);
    arm(of);
}

static void keep_known(struct ct_server_replica *of, const struct ct_msg_voters *voters)
{
    of->known = (struct ct_server_voters){.era = voters->era};
    for (uint32_t i = 0; i < voters->servers.count && i < CT_REPLICA_SERVERS; i++) {
        struct ct_replica_server *to = &of->known.list[of->known.count++];

        to->id = voters->servers.data[i].id;
        (void)ct_str_copy(to->address, sizeof to->address, voters->servers.data[i].address);
    }
}

/* The leader of this job's record says so to a ctrun that has founded another. */
static void receive_voters(struct ct_server_replica *of, const struct ct_msg_voters *voters)
{
    if (voters->era == ct_replica_era(of->replica))
        keep_known(of, voters);
    if (voters->era == ct_replica_era(of->replica) || voters->epoch <= ct_server_epoch(of) ||
        voters->servers.count == 0)
        return;
    ct_log_event(of->server->log, CT_LOG_INFO, "replica",
                 "job %s lives: its rendezvous is at %s, this host joins it", of->server->only_job,
                 voters->servers.data[voters->servers.count - 1].address);
    (void)ct_rdzv_server_follow(of->server, voters);
}

static void receive_offer(struct ct_server_peer *peer, const struct ct_msg_offer *offer)
{
    struct ct_server_replica *of = peer->server->replica;

    if (peer->link == 0 || !ct_service_has_joined(peer->server->service, peer->link) ||
        offer->era != ct_replica_era(of->replica) || offer->id != peer->id ||
        !ct_str_copy(peer->address, sizeof peer->address, offer->address))
        return;
    peer->offers = true;
    ct_server_update_voters(of);
    arm(of);
}

/* The opening of another replica. */
static void receive_replica(struct ct_server_peer *peer, const struct ct_msg_hello *hello)
{
    struct ct_rdzv_server *server = peer->server;

    if (peer->link != 0)
        ct_service_closed(server->service, ct_server_now_ms(server), peer->link, false);
    peer->link = 0;
    if (hello->protocol != CT_WIRE_PROTOCOL || strcmp(hello->job, server->only_job) != 0 ||
        !ct_conn_is_for(peer->conn, hello->job)) {
        ct_conn_close(peer->conn, CT_EAUTH, "no replica of this job, or of another version");
        return;
    }
    peer->is_replica = true;
    ct_conn_set_frame_limit(peer->conn, CT_WIRE_VALUE);
}

static bool receive_hello(struct ct_server_peer *peer, const struct ct_msg_hello *hello)
{
    struct ct_rdzv_server *server = peer->server;

    peer->id = ct_id_fold(hello->incarnation);
    if (strcmp(hello->role, "replica") == 0) {
        receive_replica(peer, hello);
        return true;
    }
    peer->is_agent = strcmp(hello->role, "agent") == 0;
    if (server->service != NULL && peer->link == 0)
        peer->link = ct_service_open(server->service, peer);
    if (peer->link == 0)
        refuse(peer);
    return peer->link == 0;
}

bool ct_server_replica_message(struct ct_server_peer *peer, const struct ct_message *message)
{
    struct ct_server_replica *of = peer->server->replica;
    struct ct_server_voter *voter;

    if (message->type == CT_MSG_HELLO && !peer->is_replica)
        return receive_hello(peer, &message->hello);
    if (message->type == CT_MSG_OFFER) {
        receive_offer(peer, &message->offer);
        return true;
    }
    if (!peer->is_replica)
        return peer->link == 0;
    if (message->type == CT_MSG_VOTERS) {
        receive_voters(of, &message->voters);
        return true;
    }
    voter = ct_server_voter_of(of, peer->id);
    if (voter != NULL)
        voter->heard_ms = ct_server_now_ms(of->server);
    ct_replica_receive(of->replica, ct_server_now_ms(of->server), message);
    if (voter != NULL && ct_replica_leader(of->replica) == peer->id) {
        of->led_by = peer->id;
        voter->led = true;
    }
    ct_server_update_voters(of);
    arm(of);
    return true;
}

void ct_server_replica_joined(const struct ct_server_peer *peer)
{
    const struct ct_server_replica *of = peer->server->replica;

    if (of != NULL)
        ct_server_send_voters(&of->told, peer->conn);
}

/* ---- begin and end -------------------------------------------------------------------------- */

struct ct_msg_offer ct_rdzv_server_follow(struct ct_rdzv_server *server,
                                          const struct ct_msg_voters *voters)
{
    struct ct_server_replica *of = server->replica;
    struct ct_replica *anew =
        voters->era != ct_replica_era(of->replica) ? ct_server_new_replica(of, voters->era) : NULL;

    keep_known(of, voters);
    if (anew != NULL) {
        ct_replica_free(of->replica);
        of->replica = anew;
        of->changes = false;
        of->voter_count = 0;
        ct_replica_join(anew);
        if (server->service != NULL)
            drop_service(server);
        arm(of);
    }
    return (struct ct_msg_offer){
        .era = ct_replica_era(of->replica), .id = of->id, .address = of->address};
}

bool ct_rdzv_server_leads(const struct ct_rdzv_server *server)
{
    return server->replica == NULL || ct_replica_leads(server->replica->replica);
}

static int begin(struct ct_server_replica *of, const struct ct_rdzv_replica_options *options,
                 struct ct_error *err)
{
    const struct ct_replica_links_options links = {
        .loop = of->server->loop,
        .clock = of->server->clock,
        .key = of->has_key ? &of->key : NULL,
        .job = of->server->only_job,
        .host = of->host,
        .incarnation = of->incarnation,
        .context = of,
        .on_died = on_died,
    };

    of->replica = ct_server_new_replica(of, options->voters != NULL ? options->voters->era
                                                                    : ct_server_new_era(1));
    of->links = ct_replica_links_new(&links);
    of->server->handles += of->links != NULL;
    if (of->replica == NULL || of->links == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    if (options->voters != NULL) {
        keep_known(of, options->voters);
        ct_replica_join(of->replica);
    } else {
        ct_replica_found(of->replica);
        if (of->server->service == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    }
    ct_server_update_voters(of);
    arm(of);
    return 0;
}

int ct_server_replica_start(struct ct_rdzv_server *server,
                            const struct ct_rdzv_replica_options *options, const struct ct_key *key,
                            struct ct_error *err)
{
    struct ct_server_replica *of = calloc(1, sizeof *of);

    if (of == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the rendezvous");
    server->replica = of;
    of->server = server;
    of->io = (struct ct_replica_io){.context = of,
                                    .send = on_send,
                                    .on_lead = on_lead,
                                    .on_follow = on_follow,
                                    .on_put = on_put,
                                    .on_changed = on_changed};
    of->incarnation = server->limits.own;
    of->id = ct_id_fold(of->incarnation);
    of->lease_ms = options->lease_ms;
    of->election_ms =
        CT_MIN(CT_MAX(options->lease_ms / ELECTIONS, ELECTION_MIN_MS), ELECTION_MAX_MS);
    of->has_key = key != NULL;
    if (key != NULL)
        of->key = *key;
    (void)ct_str_copy(of->host, sizeof of->host, options->host);
    (void)ct_str_copy(of->job_endpoint, sizeof of->job_endpoint,
                      options->endpoint != NULL ? options->endpoint : "");
    (void)uv_timer_init(server->loop, &of->timer);
    of->timer.data = of;
    server->handles++;
    if (!ct_str_copy(of->address, sizeof of->address, server->endpoints[options->listener]))
        return ct_error_set(err, CT_EUSAGE, "the address %s is too long",
                            server->endpoints[options->listener]);
    return begin(of, options, err);
}

static void on_closed(void *context)
{
    ct_server_handle_closed(context);
}

static void on_timer_closed(uv_handle_t *handle)
{
    const struct ct_server_replica *of = handle->data;

    ct_server_handle_closed(of->server);
}

void ct_server_replica_stop(struct ct_rdzv_server *server)
{
    struct ct_server_replica *of = server->replica;

    if (of->links != NULL) /* another leads at once, if there is one */
        (void)ct_replica_yield(of->replica, ct_server_now_ms(server), 0);
    ct_server_leave_endpoint(of);
    if (of->links != NULL)
        ct_replica_links_free(of->links, on_closed, server);
    uv_close((uv_handle_t *)&of->timer, on_timer_closed);
}

void ct_server_replica_free(struct ct_server_replica *of)
{
    if (of == NULL)
        return;
    ct_replica_free(of->replica);
    ct_net_key_wipe(&of->key);
    free(of);
}
