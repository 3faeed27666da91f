/* The events of a holder. A message of a node goes to the service, if there is one; the first one
 * of each connection says whose it is. */
#include "rendezvous/holder/holder_state.h"

#include "rendezvous/service/admin.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    ELECTIONS = 4, /* in a lease: nodes whose leader fell silent find another one in time */
    ELECTION_MIN_MS = 300,
    ELECTION_MAX_MS = 2500,
};

void holder_log(const struct ct_holder *holder, enum ct_log_level level, const char *format, ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    holder->io.log(holder->io.context, level, text);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* A tick that is so late shows a stall of this process: no other is silent because of it. */
static void begin_event(struct ct_holder *holder, uint64_t now_ms)
{
    holder->now_ms = now_ms;
    if (now_ms < CT_HOLDER_LATE_MS || now_ms - CT_HOLDER_LATE_MS < holder->due_ms)
        return;
    for (size_t i = 0; i < holder->voter_count; i++)
        holder->voters[i].heard_ms += now_ms - holder->due_ms;
    holder->due_ms = holder->read_ms = now_ms + CT_HOLDER_READ_MS;
}

/* It leads and cannot read what newer ones have put on record: one of them is to lead. */
static void yield_if_unfit(struct ct_holder *holder)
{
    if (holder->unfit_ms == 0 || holder->now_ms < holder->unfit_ms)
        return;
    holder->unfit_ms = holder->now_ms + holder->lease_ms;
    (void)ct_replica_yield(holder->replica, holder->now_ms, 0);
}

/* When the one other voter may have been silent for long enough; then now and again. */
static uint64_t silence_due(const struct ct_holder *holder)
{
    uint64_t due_ms = holder->voters[0].heard_ms + holder_silence_ms(holder);

    return due_ms > holder->now_ms ? due_ms : holder->now_ms + holder->election_ms;
}

static void end_event(struct ct_holder *holder)
{
    uint64_t now_ms = holder->now_ms, due_ms;

    due_ms = holder->changed ? now_ms : CT_MAX(ct_replica_deadline(holder->replica), now_ms);
    if (holder->service == NULL && holder->voter_count == 1)
        due_ms = CT_MIN(due_ms, silence_due(holder));
    if (holder->add_ms != 0)
        due_ms = CT_MIN(due_ms, CT_MAX(holder->add_ms, now_ms));
    holder->due_ms = CT_MAX(due_ms, holder->read_ms);
}

uint64_t ct_holder_deadline(const struct ct_holder *holder)
{
    uint64_t due_ms = holder->service != NULL ? ct_service_deadline(holder->service) : UINT64_MAX;

    return holder->stopped ? UINT64_MAX : CT_MIN(due_ms, holder->due_ms);
}

void ct_holder_tick(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    if (holder->service != NULL && ct_service_deadline(holder->service) <= now_ms)
        ct_service_tick(holder->service, now_ms);
    if (holder->due_ms <= now_ms) {
        holder->changed = false;
        holder->add_ms = holder->add_ms > now_ms ? holder->add_ms : 0;
        ct_replica_tick(holder->replica, now_ms);
        yield_if_unfit(holder);
        holder_go_on_without_silent(holder);
        holder_miss_silent(holder);
        if (holder->peers == NULL && ct_replica_leader(holder->replica) == 0)
            holder_go_on_without_dead(holder); /* it waited for one that led */
        holder_ask_nodes(holder);
        holder_update_voters(holder);
    }
    end_event(holder);
}

void ct_holder_died(struct ct_holder *holder, uint64_t now_ms, uint64_t id)
{
    begin_event(holder, now_ms);
    if (holder->peers != NULL) { /* it comes back as who it was */
        ct_replica_died(holder->replica, now_ms, id);
        holder_update_voters(holder);
        end_event(holder);
        return;
    }
    memmove(holder->dead + 1, holder->dead, (CT_HOLDER_DEAD - 1) * sizeof *holder->dead);
    holder->dead[0] = id;
    holder->dead_count = CT_MIN(holder->dead_count + 1, (size_t)CT_HOLDER_DEAD);
    ct_replica_died(holder->replica, now_ms, id);
    holder_go_on_without_dead(holder);
    if (holder->service != NULL)
        ct_service_node_died(holder->service, now_ms, id);
    holder_update_voters(holder);
    end_event(holder);
}

void ct_holder_nodes_known(struct ct_holder *holder, uint64_t now_ms, bool down, const char *text)
{
    begin_event(holder, now_ms);
    holder_nodes_known(holder, down, text);
    holder_update_voters(holder);
    end_event(holder);
}

/* ---- messages of other holders -------------------------------------------------------------- */

void holder_keep_known(struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    holder->followed = CT_MAX(holder->followed, voters->epoch);
    holder->follows_generation = CT_MAX(holder->follows_generation, voters->generation);
    holder->removed = voters->epoch != 0;
    holder->known = (struct ct_holder_voters){.era = voters->era};
    for (uint32_t i = 0; i < voters->servers.count && i < CT_REPLICA_SERVERS; i++) {
        struct ct_replica_server *to = &holder->known.list[holder->known.count++];

        to->id = voters->servers.data[i].id;
        holder->removed = holder->removed && to->id != holder->id;
        (void)ct_str_copy(to->address, sizeof to->address, voters->servers.data[i].address);
    }
}

int holder_follow(struct ct_holder *holder, const struct ct_msg_voters *voters)
{
    struct ct_replica *anew = holder_new_replica(holder, voters->era);

    if (anew == NULL)
        return CT_ENOMEM;
    if (holder->replica != NULL)
        holder->followed = CT_MAX(holder->followed, holder_epoch(holder));
    holder->follows_generation = 0;
    holder_keep_known(holder, voters);
    ct_replica_free(holder->replica);
    holder->replica = anew;
    holder->changes = holder->partial = false;
    holder->voter_count = 0;
    ct_replica_join(anew);
    if (holder->service != NULL)
        holder_drop_service(holder);
    return 0;
}

/* The leader says how long ago it heard the others. */
static void note_silences(struct ct_holder *holder, const struct ct_msg_append *append)
{
    for (uint32_t i = 0; i < append->others.count; i++) {
        struct ct_holder_voter *voter = holder_voter_of(holder, append->others.data[i].id);
        uint64_t silent_ms = CT_MIN(append->others.data[i].silent_ms, holder->now_ms);

        if (voter != NULL)
            voter->heard_ms = CT_MAX(voter->heard_ms, holder->now_ms - silent_ms);
    }
}

static void receive_of_replica(struct ct_holder *holder, const struct ct_holder_conn *conn,
                               const struct ct_message *message)
{
    struct ct_holder_voter *voter = holder_voter_of(holder, conn->id);

    if (voter != NULL)
        voter->heard_ms = holder->now_ms;
    ct_replica_receive(holder->replica, holder->now_ms, message);
    if (voter != NULL && ct_replica_leader(holder->replica) == conn->id) {
        holder->led_by = conn->id;
        voter->led = true;
        if (message->type == CT_MSG_APPEND)
            note_silences(holder, &message->append);
    }
    holder_update_voters(holder);
}

/* ---- messages of nodes ---------------------------------------------------------------------- */

static void receive_offer(struct ct_holder *holder, struct ct_holder_conn *conn,
                          const struct ct_msg_offer *offer)
{
    if (holder->peers != NULL || conn->link == 0 ||
        !ct_service_has_joined(holder->service, conn->link) ||
        offer->era != ct_replica_era(holder->replica) || offer->id != conn->id ||
        !ct_str_copy(conn->address, sizeof conn->address, offer->address))
        return;
    holder_set_offers(holder, conn, true);
    holder_update_voters(holder);
}

int holder_may(const struct ct_holder *holder, void *peer, enum ct_right right, const char *job,
               struct ct_error *err)
{
    return holder->io.may != NULL ? holder->io.may(holder->io.context, peer, right, job, err) : 0;
}

/* The opening of another holder. */
static void receive_replica(struct ct_holder *holder, struct ct_holder_conn *conn,
                            const struct ct_msg_hello *hello)
{
    const struct ct_holder_io *io = &holder->io;

    if (conn->link != 0)
        ct_service_closed(holder->service, holder->now_ms, conn->link, false);
    conn->link = 0;
    if (holder->peers != NULL) {
        conn->is_replica = holder_admits_peer(holder, conn, hello);
        if (conn->is_replica)
            io->admit(io->context, conn->peer);
        return;
    }
    if (hello->protocol < CT_WIRE_OLDEST || strcmp(hello->job, holder->limits.only_job) != 0 ||
        holder_may(holder, conn->peer, CT_RIGHT_JOIN, hello->job, NULL) != 0) {
        io->turn_away(io->context, conn->peer, CT_EAUTH,
                      "no replica of this job, or of a release that is too old");
        return;
    }
    conn->is_replica = true;
    holder_note_host(holder, conn->id, hello->host);
    io->admit(io->context, conn->peer);
}

/* An operator of this job, whose protocol is understood. */
static bool may_order(const struct ct_holder *holder, const struct ct_holder_conn *conn,
                      const struct ct_msg_hello *hello)
{
    const char *job = hello->job[0] != '\0' ? hello->job : holder->limits.only_job;

    return holder->peers == NULL && hello->protocol >= CT_WIRE_OLDEST &&
           strcmp(job, holder->limits.only_job) == 0 &&
           holder_may(holder, conn->peer, CT_RIGHT_ORDER, job, NULL) == 0;
}

/* True: this message is not the service's. */
static bool receive_hello(struct ct_holder *holder, struct ct_holder_conn *conn,
                          const struct ct_msg_hello *hello)
{
    conn->id = ct_id_fold(hello->incarnation);
    if (strcmp(hello->role, "replica") == 0) {
        receive_replica(holder, conn, hello);
        return true;
    }
    conn->is_agent = strcmp(hello->role, "agent") == 0;
    conn->is_admin = strcmp(hello->role, "admin") == 0 && may_order(holder, conn, hello);
    if (holder->service != NULL && conn->link == 0)
        conn->link = ct_service_open(holder->service, conn->peer);
    if (conn->link == 0 && !conn->is_admin)
        holder_refuse(holder, conn);
    return conn->link == 0;
}

static bool is_takeover(const struct ct_message *message)
{
    return message->type == CT_MSG_ADMIN && message->admin.verb == CT_ADMIN_TAKEOVER;
}

static void take_over(struct ct_holder *holder, const struct ct_holder_conn *conn,
                      const struct ct_msg_admin *order)
{
    char text[512];
    int code = holder_take_over(holder, order->author, text, sizeof text);

    holder->io.send(
        holder->io.context, conn->peer,
        &(struct ct_message){
            .type = CT_MSG_ADMIN_REPLY,
            .admin_reply = {.code = code, .text = {(unsigned char *)text, strlen(text)}}});
    holder_update_voters(holder);
}

static void tell_member(struct ct_holder *holder, struct ct_holder_conn *conn)
{
    if (holder->peers == NULL)
        holder->told.generation = ct_holder_generation(holder);
    holder_tell_member(holder, conn);
}

/* A node that does not offer to hold the record may not have been told of it, or its offer was
 * lost. */
static void tell_again(struct ct_holder *holder, struct ct_holder_conn *conn)
{
    if (holder->peers == NULL && !conn->offers && conn->link != 0 &&
        holder->now_ms >= conn->told_ms + holder->lease_ms &&
        ct_service_has_joined(holder->service, conn->link))
        tell_member(holder, conn);
}

static void serve(struct ct_holder *holder, struct ct_holder_conn *conn,
                  const struct ct_message *message)
{
    if (conn->link == 0)
        return;
    ct_service_message(holder->service, holder->now_ms, conn->link, message);
    if (message->type == CT_MSG_HEARTBEAT)
        tell_again(holder, conn);
    if (message->type != CT_MSG_JOIN)
        return;
    holder_wait_for_unled(holder); /* the job may be new */
    if (!ct_service_has_joined(holder->service, conn->link))
        return;
    holder->io.admit(holder->io.context, conn->peer);
    tell_member(holder, conn);
}

static void receive(struct ct_holder *holder, struct ct_holder_conn *conn,
                    const struct ct_message *message)
{
    if (message->type == CT_MSG_HELLO && !conn->is_replica &&
        receive_hello(holder, conn, &message->hello))
        return;
    if (conn->is_admin && is_takeover(message))
        take_over(holder, conn, &message->admin);
    else if (conn->is_admin && conn->link == 0 && message->type != CT_MSG_HELLO)
        holder_refuse(holder, conn);
    else if (message->type == CT_MSG_OFFER)
        receive_offer(holder, conn, &message->offer);
    else if (!conn->is_replica)
        serve(holder, conn, message);
    else if (message->type == CT_MSG_VOTERS)
        holder_receive_voters(holder, conn, &message->voters);
    else
        receive_of_replica(holder, conn, message);
}

/* ---- connections ---------------------------------------------------------------------------- */

bool ct_holder_opened(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                      void *peer)
{
    uint64_t link = 0;

    begin_event(holder, now_ms);
    if (holder->service != NULL) {
        link = ct_service_open(holder->service, peer);
        if (link == 0)
            return false;
    }
    *conn = (struct ct_holder_conn){.next = holder->conns, .peer = peer, .link = link};
    if (holder->conns != NULL)
        holder->conns->prev = conn;
    else
        holder->oldest = conn;
    holder->conns = conn;
    end_event(holder);
    return true;
}

void ct_holder_message(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                       const struct ct_message *message)
{
    begin_event(holder, now_ms);
    receive(holder, conn, message);
    end_event(holder);
}

void ct_holder_closed(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                      bool silent)
{
    begin_event(holder, now_ms);
    holder_set_offers(holder, conn, false);
    holder->tellers -= conn->era != 0;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        holder->conns = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    else
        holder->oldest = conn->prev;
    if (conn->link != 0)
        ct_service_closed(holder->service, now_ms, conn->link, silent);
    end_event(holder);
}

void ct_holder_endpoint_opened(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    holder->endpoint = CT_HOLDER_THERE;
    holder_tell_endpoint(holder);
    end_event(holder);
}

/* It is dialled again with the next heartbeat. */
void ct_holder_endpoint_closed(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    holder->endpoint = CT_HOLDER_AWAY;
    end_event(holder);
}

void ct_holder_endpoint_message(struct ct_holder *holder, uint64_t now_ms,
                                const struct ct_message *message)
{
    begin_event(holder, now_ms);
    if (message->type == CT_MSG_VOTERS)
        holder_receive_of_endpoint(holder, &message->voters);
    end_event(holder);
}

/* ---- begin and end -------------------------------------------------------------------------- */

int ct_holder_init(struct ct_holder *holder, const struct ct_holder_options *options,
                   struct ct_error *err)
{
    *holder = (struct ct_holder){
        .io = *options->io,
        .limits = *options->limits,
        .host = options->host,
        .now_ms = options->now_ms,
        .due_ms = UINT64_MAX,
        .id = ct_id_fold(options->limits->own),
        .lease_ms = options->lease_ms,
        .election_ms =
            CT_MIN(CT_MAX(options->lease_ms / ELECTIONS, ELECTION_MIN_MS), ELECTION_MAX_MS),
        .at_endpoint = options->at_endpoint,
        .peers = options->peers,
    };
    ct_rng_init(&holder->rng, options->seed);
    holder_connect_parts(holder);
    if (!ct_str_copy(holder->address, sizeof holder->address, options->address))
        return ct_error_set(err, CT_EUSAGE, "the address %s is too long", options->address);
    if (holder->peers == NULL)
        return 0;
    holder->id = holder->peers->list[holder->peers->own].id;
    holder->replica = holder_new_peer(holder);
    return holder->replica != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "no memory for the record");
}

void ct_holder_deinit(struct ct_holder *holder)
{
    if (holder == NULL)
        return;
    ct_service_free(holder->service);
    ct_replica_free(holder->replica);
    *holder = (struct ct_holder){0};
}

int ct_holder_found(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    if (!holder_found(holder, 1) || holder->service == NULL)
        return CT_ENOMEM;
    holder_update_voters(holder);
    end_event(holder);
    return 0;
}

void ct_holder_begin(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    ct_replica_begin(holder->replica);
    holder_update_voters(holder);
    end_event(holder);
}

int ct_holder_follow(struct ct_holder *holder, uint64_t now_ms, const struct ct_msg_voters *voters)
{
    bool first = holder->replica == NULL;
    int rc = 0;

    begin_event(holder, now_ms);
    if (first || holder_may_follow(holder, voters))
        rc = holder_follow(holder, voters);
    else if (voters->era == ct_replica_era(holder->replica))
        holder_keep_known(holder, voters);
    if (rc == 0 && first)
        holder_update_voters(holder);
    if (holder->replica != NULL)
        end_event(holder);
    return rc;
}

void ct_holder_yield(struct ct_holder *holder, uint64_t now_ms)
{
    begin_event(holder, now_ms);
    if (ct_replica_yield(holder->replica, now_ms, 0) == 0 && holder->yielded_ms == 0)
        holder_log(holder, CT_LOG_INFO, "host %s asks another one to lead the rendezvous of job %s",
                   holder->host, holder->limits.only_job);
    holder->yielded_ms = now_ms;
    end_event(holder);
}

void ct_holder_stop(struct ct_holder *holder, uint64_t now_ms)
{
    if (holder->replica != NULL)
        (void)ct_replica_yield(holder->replica, now_ms, 0);
    holder_leave_endpoint(holder);
    holder->stopped = true;
}

/* ---- queries -------------------------------------------------------------------------------- */

bool ct_holder_leads(const struct ct_holder *holder)
{
    return ct_replica_leads(holder->replica);
}

uint64_t ct_holder_generation(const struct ct_holder *holder)
{
    return holder->service != NULL && holder_has_round(holder)
               ? ct_service_generation(holder->service)
               : 0;
}

struct ct_msg_offer ct_holder_offer(const struct ct_holder *holder)
{
    return (struct ct_msg_offer){
        .era = ct_replica_era(holder->replica), .id = holder->id, .address = holder->address};
}

struct ct_message ct_holder_hello(const char *job, const char *host, struct ct_id incarnation)
{
    return (struct ct_message){.type = CT_MSG_HELLO,
                               .hello = {.protocol = CT_WIRE_PROTOCOL,
                                         .job = job,
                                         .host = host,
                                         .incarnation = incarnation,
                                         .role = "replica"}};
}
