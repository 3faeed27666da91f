/* What the replica decides: whether this server has a service, and that its records are kept. */
#include "rendezvous/holder/holder_state.h"

#include "rendezvous/service/records.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    RETRY_MS = 20,          /* until a node that was told to go elsewhere asks again */
    UNLED_MS = 200,         /* the same, while no peer leads */
    RECORD_BYTES = 1 << 20, /* to read a RESERVE, at most */
    RETURN_MS = 2000,       /* at least: half a lease in which a node finds a new leader */
};

/* The number of a put that is no record of the service's. */
static const uint64_t RAISED = UINT64_MAX - 1;

/* ---- nodes that must go elsewhere ----------------------------------------------------------- */

static void describe(const struct ct_holder *holder, const struct ct_holder_voters *voters,
                     char *text, size_t room)
{
    const char *job = holder->limits.only_job;
    uint64_t leader = ct_replica_leader(holder->replica);

    if (holder->peers != NULL) {
        holder_describe_peers(holder, text, room);
        return;
    }
    (void)snprintf(text, room,
                   "host %s does not lead the rendezvous of job %s: its nodes agree on "
                   "one that does",
                   holder->host, job);
    if (holder->removed && leader == 0) {
        (void)snprintf(text, room,
                       "the record of job %s is held by others, host %s was cut off from it", job,
                       holder->host);
        return;
    }
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->list[i].id == leader && leader != holder->id)
            (void)snprintf(text, room, "the rendezvous of job %s is at %s, not at host %s", job,
                           voters->list[i].address, holder->host);
    if (voters->count > 2 && leader == 0)
        (void)snprintf(text, room,
                       "the rendezvous of job %s has no leader: %u of the %u hosts that hold its "
                       "record must hear each other, host %s waits for that, or for `ctrun "
                       "takeover`",
                       job, voters->count / 2 + 1, voters->count, holder->host);
    if (voters->count == 2 && leader == 0 && holder->voter_count == 1)
        (void)snprintf(
            text, room,
            "job %s waits for the host at %s, which is silent: of two hosts neither can "
            "know that the other is dead. It ends when that host answers, when its ctrun "
            "is known to be dead, or with `ctrun takeover` here",
            job, voters->list[voters->list[0].id == holder->id].address);
    if (ct_holder_is_orphan(holder))
        holder_describe_orphan(holder, text, room);
    else if (leader == 0 && holder->nodes_text[0] != '\0')
        (void)snprintf(text + strlen(text), room - strlen(text), "; %s", holder->nodes_text);
}

void holder_refuse(const struct ct_holder *holder, struct ct_holder_conn *conn)
{
    bool is_unled = holder->peers != NULL && ct_replica_leader(holder->replica) == 0;
    struct ct_holder_voters voters;
    char text[512];

    holder_list_voters(holder, &voters);
    if (holder->removed && ct_replica_leader(holder->replica) == 0) {
        voters = holder->known;
        voters.epoch = 0;
    }
    describe(holder, &voters, text, sizeof text);
    if (voters.count > 0)
        holder_send_voters(holder, &voters, conn);
    holder->io.send(holder->io.context, conn->peer,
                    &(struct ct_message){.type = CT_MSG_REFUSE,
                                         .refuse = {.code = CT_EUNAVAILABLE,
                                                    .retry_ms = is_unled ? UNLED_MS : RETRY_MS,
                                                    .text = text}});
    holder->io.turn_away(holder->io.context, conn->peer, CT_EUNAVAILABLE, text);
}

void holder_drop_service(struct ct_holder *holder)
{
    struct ct_service *service = holder->service;

    holder->service = NULL;
    holder->told.count = 0;
    for (struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next) {
        if (conn->link == 0)
            continue;
        conn->link = 0;
        holder_set_offers(holder, conn, false);
        holder_refuse(holder, conn);
    }
    ct_service_free(service);
}

/* ---- the replica's callbacks ---------------------------------------------------------------- */

static void on_send(void *context, uint64_t to, const char *address,
                    const struct ct_message *message)
{
    const struct ct_holder *holder = context;

    if (!holder->stopped && !holder_is_dead(holder, to))
        holder->io.send_replica(holder->io.context, to, address, message);
}

/* Have the service know what is on record. False: not all of it can be understood, and to serve
 * the jobs without that could begin them anew beside what runs. */
static bool restore(struct ct_holder *holder)
{
    struct ct_bytes record;
    struct ct_error err = {0};
    const char *key;

    for (size_t i = 0; ct_replica_entry(holder->replica, i, &key, &record); i++) {
        int rc =
            ct_service_restore(holder->service, holder->now_ms, record.data, record.size, &err);

        if (rc == CT_EPROTOCOL)
            holder_log(holder, CT_LOG_ERROR, "%s: %s; this one does not lead", key, err.text);
        else if (rc != 0)
            holder_log(holder, CT_LOG_ERROR, "%s is left out: %s", key, err.text);
        if (rc == CT_EPROTOCOL)
            return false;
    }
    ct_service_restored(holder->service, holder_epoch(holder));
    if (holder->peers == NULL)
        ct_service_set_rebuild(holder->service, holder->partial ? CT_RDZV_REBUILD_OF_ALL
                                                                : CT_RDZV_REBUILD_OF_ORPHAN);
    return true;
}

static void log_lead(const struct ct_holder *holder, uint64_t term)
{
    if (holder->peers != NULL)
        holder_log(holder, CT_LOG_INFO,
                   "this ctrund leads the peers in term %" PRIu64 ", with %zu jobs", term,
                   ct_service_jobs(holder->service));
    else
        holder_log(holder, CT_LOG_INFO, "this host leads the rendezvous of job %s in term %" PRIu64,
                   holder->limits.only_job, term);
}

/* Nodes come when the last leader's connection breaks, or has been silent for a lease, and find
 * this one in a moment. */
static void expect_nodes(struct ct_holder *holder)
{
    const struct ct_holder_voter *last = holder_voter_of(holder, holder->led_by);
    uint64_t lease_ms = holder->lease_ms, silent_ms;

    if (holder_is_dead(holder, holder->led_by))
        silent_ms = lease_ms;
    else if (last != NULL && holder->peers == NULL)
        silent_ms = CT_MIN(holder->now_ms - last->heard_ms, lease_ms);
    else
        return;
    ct_service_restored_within(holder->service,
                               lease_ms - silent_ms + CT_MAX(lease_ms / 2, (uint64_t)RETURN_MS));
}

static void on_lead(void *context, uint64_t term)
{
    struct ct_holder *holder = context;

    holder->raises = 0;
    holder->service = ct_service_new(&holder->limits, &holder->service_io, 0);
    if (holder->service == NULL)
        return; /* nobody is served: as if it were silent */
    if (!restore(holder)) {
        ct_service_free(holder->service);
        holder->service = NULL;
        holder->unfit_ms = holder->now_ms;
        return;
    }
    expect_nodes(holder);
    for (size_t i = 0; i < holder->voter_count; i++) {
        struct ct_holder_voter *voter = &holder->voters[i];

        voter->seen_ms = holder->now_ms;
        voter->awaited = !voter->led && holder->peers == NULL;
        if (voter->led)
            ct_service_node_silent(holder->service, voter->id, holder->now_ms - voter->heard_ms);
    }
    for (size_t i = 0; i < holder->dead_count; i++)
        ct_service_node_died(holder->service, holder->now_ms, holder->dead[i]);
    log_lead(holder, term);
}

void holder_miss_silent(struct ct_holder *holder)
{
    for (size_t i = 0; holder->service != NULL && i < holder->voter_count; i++) {
        struct ct_holder_voter *voter = &holder->voters[i];

        if (!voter->awaited || holder->now_ms - voter->heard_ms < holder->lease_ms)
            continue;
        voter->awaited = false;
        ct_service_node_silent(holder->service, voter->id, holder->lease_ms);
    }
}

static void on_follow(void *context)
{
    struct ct_holder *holder = context;

    holder->unfit_ms = 0;
    if (holder->peers != NULL)
        holder_log(holder, CT_LOG_INFO, "this ctrund leads no longer");
    holder->led_ms = holder->now_ms;
    if (holder->service != NULL)
        holder_drop_service(holder);
}

/* What failed does so because another leads: the service goes as well. */
static void on_put(void *context, uint64_t number, int code)
{
    struct ct_holder *holder = context;

    if (code == 0 && number == RAISED && holder->service != NULL)
        ct_service_raise(holder->service, holder_epoch(holder));
    if (code == 0 && holder->service != NULL)
        ct_service_kept(holder->service, holder->now_ms, number, 0);
}

/* A node that cannot be reached is not asked again for a lease. */
static void on_changed(void *context, int code)
{
    struct ct_holder *holder = context;
    struct ct_holder_voters voters;

    holder_list_voters(holder, &voters);
    if (code == 0)
        holder_log(holder, CT_LOG_DEBUG, "the record of job %s is held by %u hosts",
                   holder->limits.only_job, voters.count);
    for (struct ct_holder_conn *conn = holder->conns; conn != NULL; conn = conn->next)
        if (code == CT_ETIMEOUT && holder->adds != 0 && conn->id == holder->adds)
            conn->add_ms = holder->add_ms = holder->now_ms + holder->lease_ms;
    holder->changes = false;
    holder->changed = true;
    holder->adds = 0;
}

/* ---- the service's effects ------------------------------------------------------------------ */

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    const struct ct_holder *holder = context;

    holder->io.send(holder->io.context, peer, message);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    const struct ct_holder *holder = context;

    holder->io.close(holder->io.context, peer, code, sentence);
}

static int io_may(void *context, void *peer, enum ct_right right, const char *job,
                  struct ct_error *err)
{
    const struct ct_holder *holder = context;

    return holder_may(holder, peer, right, job, err);
}

static bool io_whose(void *context, void *peer, struct ct_account_name *ret_name)
{
    const struct ct_holder *holder = context;

    return holder->io.whose(holder->io.context, peer, ret_name);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    const struct ct_holder *holder = context;

    holder->io.announce(holder->io.context, job, sentence);
}

static void io_noted(void *context, const struct ct_service_event *event)
{
    const struct ct_holder *holder = context;

    holder->io.noted(holder->io.context, event);
}

static void io_audit(void *context, void *peer, const struct ct_service_deed *deed)
{
    const struct ct_holder *holder = context;

    holder->io.audit(holder->io.context, peer, deed);
}

static int64_t io_certificate_expires_s(void *context)
{
    const struct ct_holder *holder = context;

    return holder->io.certificate_expires_s(holder->io.context);
}

static uint64_t io_wall_ms(void *context)
{
    const struct ct_holder *holder = context;

    return holder->io.wall_ms(holder->io.context);
}

static void io_trace(void *context, const char *job, const char *line)
{
    const struct ct_holder *holder = context;

    holder->io.trace(holder->io.context, job, line);
}

/* "job/1": the kinds' order is that in which they are restored. */
static void key_of(const char *job, enum ct_record_kind kind, char key[CT_REPLICA_KEY_BYTES])
{
    (void)snprintf(key, CT_REPLICA_KEY_BYTES, "%s/%d", job, (int)kind);
}

/* The newest record of a kind that the job has; false: none. */
static bool find(const struct ct_holder *holder, enum ct_record_kind kind,
                 struct ct_bytes *ret_record)
{
    char wanted[CT_REPLICA_KEY_BYTES];
    const char *key;

    key_of(holder->limits.only_job, kind, wanted);
    for (size_t i = 0; ct_replica_entry(holder->replica, i, &key, ret_record); i++)
        if (strcmp(key, wanted) == 0)
            return true;
    return false;
}

bool holder_has_round(const struct ct_holder *holder)
{
    struct ct_bytes record;

    return find(holder, CT_RECORD_RESERVE, &record);
}

/* The numbers of that record; all of them 0 where there is none. */
static struct ct_record read_numbers(const struct ct_holder *holder, enum ct_record_kind kind)
{
    struct ct_record content = {.generation = 0};
    struct ct_bytes record;
    struct ct_arena arena;

    if (!find(holder, kind, &record))
        return content;
    ct_arena_init(&arena, RECORD_BYTES);
    if (ct_record_read(record.data, record.size, &arena, &content, NULL) != 0)
        content = (struct ct_record){.generation = 0};
    ct_arena_deinit(&arena);
    return content;
}

uint64_t holder_recorded_generation(const struct ct_holder *holder)
{
    return read_numbers(holder, CT_RECORD_RESERVE).generation;
}

static int put(struct ct_holder *holder, uint64_t number, const char *job, enum ct_record_kind kind,
               const void *record, size_t size)
{
    char key[CT_REPLICA_KEY_BYTES];

    key_of(job, kind, key);
    return ct_replica_put(holder->replica, holder->now_ms, number, key, record, size);
}

uint64_t holder_raised_count(const struct ct_holder *holder)
{
    return holder->peers == NULL ? read_numbers(holder, CT_RECORD_EPOCH).epoch >> 32 : 0;
}

void holder_raise(struct ct_holder *holder, uint64_t above)
{
    uint64_t count = (above >> 32) + 1;
    struct ct_buf record;

    if (count <= holder->raises || count > UINT32_MAX)
        return;
    ct_buf_init(&record, RECORD_BYTES);
    ct_record_write_epoch(count << 32, &record);
    if (!record.failed && put(holder, RAISED, holder->limits.only_job, CT_RECORD_EPOCH, record.data,
                              record.size) == 0)
        holder->raises = count;
    ct_buf_deinit(&record);
}

static bool io_succeed(void *context, uint64_t epoch)
{
    return holder_succeed(context, epoch);
}

static int io_persist(void *context, uint64_t ticket, const void *record, size_t size,
                      bool may_compact)
{
    static const char too_much[] =
        "the record of all jobs would be larger than what a holder of it "
        "can be sent: nothing more is kept until jobs end";
    struct ct_holder *holder = context;
    enum ct_record_kind kind;
    char job[129];
    int rc = CT_EPROTOCOL;

    (void)may_compact; /* the map holds no more than the newest of each kind */
    if (holder->stopped)
        return CT_EFENCED;
    if (!ct_record_head(record, size, &kind, job))
        return rc;
    if (kind != CT_RECORD_FORGET)
        rc = put(holder, ticket, job, kind, record, size);
    for (int old = CT_RECORD_RESERVE; kind == CT_RECORD_FORGET && old < CT_RDZV_RECORDS; old++)
        rc = put(holder, UINT64_MAX, job, (enum ct_record_kind)old, NULL, 0);
    ct_service_set_trouble(holder->service, rc == CT_ELIMIT ? too_much : "");
    return rc != 0 ? rc : CT_SERVICE_LATER;
}

static int on_keep(void *context, const void *record, size_t size)
{
    const struct ct_holder *holder = context;

    return holder->io.keep(holder->io.context, record, size);
}

void holder_connect_parts(struct ct_holder *holder)
{
    holder->replica_io = (struct ct_replica_io){.context = holder,
                                                .send = on_send,
                                                .on_lead = on_lead,
                                                .on_follow = on_follow,
                                                .on_put = on_put,
                                                .on_changed = on_changed,
                                                .keep = holder->peers != NULL ? on_keep : NULL};
    holder->service_io = (struct ct_service_io){
        .context = holder,
        .send = io_send,
        .close = io_close,
        .may = io_may,
        .whose = holder->io.whose != NULL ? io_whose : NULL,
        .persist = io_persist,
        .succeed = holder->peers == NULL ? io_succeed : NULL,
        .announce = io_announce,
        .noted = holder->io.noted != NULL ? io_noted : NULL,
        .audit = holder->io.audit != NULL ? io_audit : NULL,
        .wall_ms = holder->io.wall_ms != NULL ? io_wall_ms : NULL,
        .certificate_expires_s =
            holder->io.certificate_expires_s != NULL ? io_certificate_expires_s : NULL,
        .trace = holder->io.trace != NULL ? io_trace : NULL};
}
