/* Terms, what a follower takes from its leader, and what the caller is told. The rules are those of
 * chapters 3 and 4 of Ongaro's dissertation; where a line guards one of them, it says which. */
#include "rendezvous/replica/replica.h"

#include "rendezvous/replica/replica_state.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum {
    ELECTION_MS = 1000,
    LOG_ENTRIES = 64, /* that are committed and stay, for a replica that lags a little */
    LOG_BYTES = 1 << 20,
};

struct ct_replica *ct_replica_new(const struct ct_replica_options *options)
{
    struct ct_replica *replica = calloc(1, sizeof *replica);

    CT_ASSERT(options->id != 0 && options->io &&
              strlen(options->address) < sizeof replica->address);
    if (!replica)
        return NULL;
    replica->io = *options->io;
    replica->id = options->id;
    replica->era = options->era;
    replica->election_ms = options->election_ms ? options->election_ms : ELECTION_MS;
    replica->now_ms = options->now_ms;
    replica->deadline_ms = UINT64_MAX;
    replica->campaign_ms = UINT64_MAX;
    memcpy(replica->address, options->address, strlen(options->address) + 1);
    CT_ASSERT(options->voter_count <= CT_REPLICA_SERVERS);
    for (size_t i = 0; i < options->voter_count; i++) {
        struct replica_server *server = &replica->log.base_servers.list[i];

        server->id = options->voters[i].id;
        memcpy(server->address, options->voters[i].address, sizeof server->address);
    }
    replica->log.base_servers.count = (uint32_t)options->voter_count;
    ct_rng_init(&replica->rng, options->seed ^ options->id);
    return replica;
}

void ct_replica_free(struct ct_replica *replica)
{
    if (replica) {
        replica_log_deinit(&replica->log);
        ct_replica_map_deinit(&replica->map);
        free(replica->failed);
        free(replica);
    }
}

/* ---- sending ---- */

struct ct_wire_replica_sender replica_sender(const struct ct_replica *replica, uint64_t to)
{
    return (struct ct_wire_replica_sender){
        .era = replica->era, .id = replica->id, .to = to, .address = replica->address};
}

void replica_send(struct ct_replica *replica, uint64_t to, const char *address,
                  const struct ct_message *message)
{
    if (replica_keep(replica))
        replica->io.send(replica->io.context, to, address, message);
}

/* ---- committing ---- */

/* Forget old entries of the log: the map has them. */
static void compact(struct ct_replica *replica)
{
    struct replica_log *log = &replica->log;
    uint64_t keep_from = replica->committed;
    size_t bytes = 0;

    while (keep_from > log->base_index && replica->committed - keep_from < LOG_ENTRIES &&
           bytes < LOG_BYTES)
        bytes += replica_log_at(log, keep_from--)->size;
    if (keep_from > log->base_index)
        replica_log_drop(log, keep_from);
}

void replica_commit(struct ct_replica *replica, uint64_t index)
{
    while (replica->committed < index) {
        const struct replica_entry *entry = replica_log_at(&replica->log, replica->committed + 1);

        if (entry->type == REPLICA_PUT &&
            ct_replica_entry_apply(&replica->map, entry->data, entry->size) == CT_ENOMEM)
            return; /* again with the next message */
        replica->committed++;
    }
}

/* ---- roles ---- */

uint64_t replica_election_ms(struct ct_replica *replica)
{
    return replica->now_ms + replica->election_ms +
           ct_rng_below(&replica->rng, replica->election_ms);
}

void replica_follow(struct ct_replica *replica, uint64_t term, uint64_t leader)
{
    if (replica->role == REPLICA_LEADER)
        replica_lead_end(replica);
    if (term > replica->term) {
        replica->term = term;
        replica->voted_for = 0;
    }
    replica->role = REPLICA_FOLLOWER;
    replica->leader = leader;
    replica->deadline_ms = replica_election_ms(replica);
}

/* ---- followers ---- */

static void answer(struct ct_replica *replica, const struct ct_wire_replica_sender *to,
                   uint64_t echo, uint64_t previous_index, bool rejected, uint64_t last_index)
{
    replica_send(replica, to->id, to->address,
                 &(struct ct_message){.type = CT_MSG_APPENDED,
                                      .appended = {.term = replica->term,
                                                   .sender = replica_sender(replica, to->id),
                                                   .previous_index = previous_index,
                                                   .stamp = replica->now_ms,
                                                   .echo = echo,
                                                   .rejected = rejected,
                                                   .last_index = last_index}});
}

/* A message of the leader of `term`: false when that term is over. */
static bool accept_leader(struct ct_replica *replica, uint64_t term, uint64_t leader)
{
    if (term < replica->term)
        return false;
    if (term > replica->term || replica->role != REPLICA_FOLLOWER) {
        CT_ASSERT(term > replica->term || replica->role != REPLICA_LEADER);
        replica_follow(replica, term, leader);
    }
    replica->leader = leader;
    replica->heard_ms = replica->now_ms;
    replica->deadline_ms = replica_election_ms(replica);
    return true;
}

/* Take one entry: what is there already stays, what differs gives way with all behind it (section
 * 3.5). False without memory. */
static bool take_entry(struct ct_replica *replica, uint64_t index,
                       const struct ct_wire_replica_entry *entry)
{
    struct replica_log *log = &replica->log;

    if (index <= log->base_index)
        return true;
    if (index <= replica_log_last(log)) {
        if (replica_log_term(log, index) == entry->term)
            return true;
        if (index <= replica->committed)
            return false; /* no leader sends this */
        replica_log_cut(log, index);
        replica_unkeep(replica, index);
    }
    return replica_log_append(log, entry->term, (enum replica_entry_type)entry->type,
                              entry->data.data, entry->data.size, 0) != 0;
}

static bool fits(const struct replica_log *log, const struct ct_msg_append *append)
{
    return append->previous_index < log->base_index ||
           (append->previous_index <= replica_log_last(log) &&
            replica_log_term(log, append->previous_index) == append->previous_term);
}

static void receive_append(struct ct_replica *replica, const struct ct_msg_append *append)
{
    uint64_t index = append->previous_index;

    if (!accept_leader(replica, append->term, append->sender.id) || !fits(&replica->log, append)) {
        answer(replica, &append->sender, append->stamp, index, true,
               replica_log_last(&replica->log));
        return;
    }
    if (replica->known_to != append->sender.id)
        replica->known_ms = 0;
    replica->known_to = append->sender.id;
    replica->known_ms = CT_MAX(replica->known_ms, append->echo);
    for (uint32_t i = 0; i < append->entries.count; i++) {
        if (!take_entry(replica, index + 1, &append->entries.data[i]))
            break;
        index++;
    }
    replica_commit(replica, CT_MAX(CT_MIN(append->committed, index), replica->committed));
    answer(replica, &append->sender, append->stamp, append->previous_index, false,
           CT_MAX(index, replica->committed));
}

/* The snapshot takes the place of the log. False for a map that is none, and without memory. */
static bool take_snapshot(struct ct_replica *replica, const struct ct_msg_snapshot *snapshot)
{
    struct ct_replica_map map = {0};
    struct replica_servers servers = {.count = snapshot->servers.count};

    for (uint32_t i = 0; i < servers.count; i++) {
        servers.list[i].id = snapshot->servers.data[i].id;
        memcpy(servers.list[i].address, snapshot->servers.data[i].address,
               strlen(snapshot->servers.data[i].address) + 1);
    }
    if (ct_replica_map_read(&map, snapshot->data.data, snapshot->data.size)) {
        ct_replica_map_deinit(&map);
        return false;
    }
    ct_replica_map_deinit(&replica->map);
    replica->map = map;
    replica->committed = snapshot->last_index;
    replica_log_replace(&replica->log, snapshot->last_index, snapshot->last_term, &servers);
    replica->kept.base = false;
    return true;
}

static void receive_snapshot(struct ct_replica *replica, const struct ct_msg_snapshot *snapshot)
{
    const struct replica_log *log = &replica->log;
    uint64_t index = snapshot->last_index;

    if (!accept_leader(replica, snapshot->term, snapshot->sender.id)) {
        answer(replica, &snapshot->sender, 0, index, true,
               replica_log_last(log)); /* in which term */
        return;
    }
    if (index > replica->committed) {
        /* A log that goes beyond a late snapshot keeps what it has confirmed to hold (section 5.3).
         */
        if (index <= replica_log_last(log) && replica_log_term(log, index) == snapshot->last_term)
            replica_commit(replica, index);
        else if (!take_snapshot(replica, snapshot))
            return;
    }
    answer(replica, &snapshot->sender, 0, index, false, replica->committed);
}

static void receive_appended(struct ct_replica *replica, const struct ct_msg_appended *appended)
{
    if (appended->term > replica->term)
        replica_follow(replica, appended->term, 0);
    else if (appended->term == replica->term && replica->role == REPLICA_LEADER)
        replica_lead_answer(replica, appended);
}

/* ---- what became of it ---- */

static void report_puts(struct ct_replica *replica)
{
    while (replica->reported_index < replica->committed) {
        struct replica_entry *entry = NULL;

        replica->reported_index = CT_MAX(replica->reported_index + 1, replica->log.base_index + 1);
        if (replica->reported_index <= replica->committed)
            entry = replica_log_at(&replica->log, replica->reported_index);
        if (entry && entry->number) {
            uint64_t number = entry->number;

            entry->number = 0;
            replica->io.on_put(replica->io.context, number, 0);
        }
    }
    for (size_t i = 0; i < replica->failed_count; i++)
        replica->io.on_put(replica->io.context, replica->failed[i], CT_EFENCED);
    replica->failed_count = 0;
}

/* A leader's map is complete when an entry of its own term is committed (section 6.4). */
static bool is_complete(const struct ct_replica *replica)
{
    return replica->role == REPLICA_LEADER && replica->committed >= replica->lead_index;
}

static void report(struct ct_replica *replica)
{
    if (!replica_keep(replica) && replica->role == REPLICA_LEADER)
        replica_follow(replica, replica->term, 0); /* another leads, whose disk works */
    report_puts(replica);
    if (replica->changed) {
        replica->changed = false;
        replica->changing = false;
        replica->io.on_changed(replica->io.context, replica->change_code);
    }
    if (replica->serves && !is_complete(replica)) {
        replica->serves = false;
        replica->io.on_follow(replica->io.context);
    } else if (!replica->serves && is_complete(replica)) {
        replica->serves = true;
        replica->io.on_lead(replica->io.context, replica->term);
    }
    compact(replica);
}

/* ---- begin ---- */

void ct_replica_found(struct ct_replica *replica)
{
    replica->term = 1;
    replica->voted_for = replica->id;
    replica_only_self(replica, &replica->log.base_servers);
    replica_lead_begin(replica);
    report(replica);
}

bool ct_replica_holds_all(struct ct_replica *replica, uint64_t now_ms)
{
    struct replica_servers servers;
    uint64_t since;

    replica->now_ms = now_ms;
    if (replica->role == REPLICA_LEADER)
        return replica_majority_follows(replica);
    since = replica_log_servers(&replica->log, replica_log_last(&replica->log), &servers);
    if (since > replica->committed || replica->left.count > 0)
        return false; /* others may still go by who voted before */
    return servers.count == 2 && replica_servers_have(&servers, replica->id) &&
           (replica->led_term == replica->term ||
            (replica->known_ms && replica_servers_have(&servers, replica->known_to) &&
             replica->now_ms <
                 replica->known_ms + (CT_REPLICA_ALONE - 1) * (uint64_t)replica->election_ms));
}

int ct_replica_found_anew(struct ct_replica *replica, uint64_t now_ms, uint64_t era)
{
    bool led = replica->role == REPLICA_LEADER;

    CT_ASSERT(era != replica->era && !replica->io.keep); /* who votes on disk is fixed */
    replica->now_ms = now_ms;
    if (!led) {
        replica->term++;
        replica->voted_for = replica->id;
    }
    if (!replica_lead_alone(replica))
        return CT_ENOMEM;
    replica->era = era;
    replica->dead = 0;
    replica->campaign_ms = UINT64_MAX;
    if (!led)
        replica_lead_begin(replica);
    ct_replica_tick(replica, now_ms);
    return 0;
}

void ct_replica_join(struct ct_replica *replica)
{
    replica_follow(replica, 0, 0);
}

/* ---- events ---- */

static const struct ct_wire_replica_sender *sender_in(const struct ct_message *message)
{
    switch (message->type) {
    case CT_MSG_VOTE:
        return &message->vote.sender;
    case CT_MSG_VOTED:
        return &message->voted.sender;
    case CT_MSG_APPEND:
        return &message->append.sender;
    case CT_MSG_APPENDED:
        return &message->appended.sender;
    case CT_MSG_SNAPSHOT:
        return &message->snapshot.sender;
    case CT_MSG_TAKE_LEAD:
        return &message->take_lead.sender;
    default:
        return NULL;
    }
}

/* A peer that holds the key may still send what no replica does: it is dropped as a whole. */
static bool is_sound(const struct ct_message *message)
{
    struct replica_servers servers;

    if (message->type == CT_MSG_SNAPSHOT) {
        return message->snapshot.last_index < REPLICA_INDEX_LIMIT &&
               message->snapshot.servers.count > 0 &&
               message->snapshot.servers.count <= CT_REPLICA_SERVERS;
    }
    for (uint32_t i = 0; message->type == CT_MSG_APPEND && i < message->append.entries.count; i++) {
        const struct ct_wire_replica_entry *entry = &message->append.entries.data[i];

        if (entry->type < REPLICA_PUT || entry->type > REPLICA_LEAD ||
            entry->term > message->append.term ||
            (entry->type == REPLICA_SERVERS &&
             !replica_servers_read(entry->data.data, entry->data.size, &servers)))
            return false;
    }
    return true;
}

void ct_replica_receive(struct ct_replica *replica, uint64_t now_ms,
                        const struct ct_message *message)
{
    const struct ct_wire_replica_sender *sender = sender_in(message);

    replica->now_ms = now_ms;
    if (!sender || sender->era != replica->era || sender->to != replica->id || sender->id == 0 ||
        sender->id == replica->id || !is_sound(message))
        return;
    switch (message->type) {
    case CT_MSG_VOTE:
        replica_receive_vote(replica, &message->vote);
        break;
    case CT_MSG_VOTED:
        replica_receive_voted(replica, &message->voted);
        break;
    case CT_MSG_APPEND:
        receive_append(replica, &message->append);
        break;
    case CT_MSG_APPENDED:
        receive_appended(replica, &message->appended);
        break;
    case CT_MSG_SNAPSHOT:
        receive_snapshot(replica, &message->snapshot);
        break;
    default:
        replica_receive_take_lead(replica, &message->take_lead);
        break;
    }
    report(replica);
}

void ct_replica_tick(struct ct_replica *replica, uint64_t now_ms)
{
    replica->now_ms = now_ms;
    if (replica->role == REPLICA_LEADER) {
        replica->campaign_ms = UINT64_MAX;
        replica_lead_tick(replica);
    } else if (now_ms >= replica->campaign_ms) {
        replica_stand_after_death(replica);
    } else if (now_ms >= replica->deadline_ms) {
        replica_stand(replica, false);
    }
    report(replica);
}

uint64_t ct_replica_deadline(const struct ct_replica *replica)
{
    /* A leader that votes alone commits in its next tick, a mute one steps down. */
    return replica->role == REPLICA_LEADER &&
                   (replica->mute || (replica->peer_count == 0 &&
                                      replica->committed < replica_log_last(&replica->log)))
               ? replica->now_ms
               : CT_MIN(replica->deadline_ms, replica->campaign_ms);
}

/* ---- puts ---- */

/* Room for the numbers of all puts that are open, so that their failure needs none. */
static bool make_room_for_failure(struct ct_replica *replica)
{
    size_t needed =
        replica->failed_count + 1 + (size_t)(replica_log_last(&replica->log) - replica->committed);
    uint64_t *failed;

    if (needed <= replica->failed_room)
        return true;
    failed = realloc(replica->failed, 2 * needed * sizeof *failed);
    if (!failed)
        return false;
    replica->failed = failed;
    replica->failed_room = 2 * needed;
    return true;
}

/* May `key` be set to an entry of `bytes`, when all that is not committed yet will have been? What
 * it replaces is not counted against it. */
static bool fits_map(const struct ct_replica *replica, const char *key, size_t bytes)
{
    const struct ct_replica_map_entry *old = ct_replica_map_find(&replica->map, key);
    size_t needed = ct_replica_map_bytes(&replica->map) + 4 + bytes;

    for (uint64_t i = replica->committed + 1; i <= replica_log_last(&replica->log); i++)
        needed += replica_log_at(&replica->log, i)->size;
    if (old)
        needed -= 4 + ct_replica_entry_bytes(key, old->value.size);
    return needed <= CT_REPLICA_MAP_BYTES && (old || replica->map.count < CT_REPLICA_KEYS);
}

int ct_replica_put(struct ct_replica *replica, uint64_t now_ms, uint64_t number, const char *key,
                   const void *value, size_t size)
{
    size_t bytes = ct_replica_entry_bytes(key, size);
    uint64_t index;
    void *data;

    CT_ASSERT(number != 0);
    replica->now_ms = now_ms;
    if (!replica->serves || replica->role != REPLICA_LEADER)
        return CT_EFENCED;
    if (strlen(key) >= CT_REPLICA_KEY_BYTES || size > CT_WIRE_ENTRY_BYTES / 2 ||
        (value && !fits_map(replica, key, bytes)))
        return CT_ELIMIT;
    data = make_room_for_failure(replica) ? malloc(bytes) : NULL;
    if (!data)
        return CT_ENOMEM;
    ct_replica_entry_write(data, key, value, value ? size : 0);
    index = replica_log_append(&replica->log, replica->term, REPLICA_PUT, data, bytes, number);
    free(data);
    if (index == 0)
        return CT_ENOMEM;
    replica_lead_send(replica, false);
    return 0;
}

/* ---- queries ---- */

bool ct_replica_leads(const struct ct_replica *replica)
{
    return replica->serves;
}

bool ct_replica_is_mute(const struct ct_replica *replica)
{
    return replica->mute;
}

uint64_t ct_replica_term(const struct ct_replica *replica)
{
    return replica->term;
}

uint64_t ct_replica_era(const struct ct_replica *replica)
{
    return replica->era;
}

uint64_t ct_replica_leader(const struct ct_replica *replica)
{
    return replica->leader;
}

bool ct_replica_is_led(const struct ct_replica *replica)
{
    return replica->role == REPLICA_FOLLOWER && replica->leader != 0 && replica->committed > 0 &&
           replica_log_term(&replica->log, replica->committed) == replica->term;
}

bool ct_replica_server(const struct ct_replica *replica, size_t index,
                       struct ct_replica_server *ret_server)
{
    struct replica_servers servers;

    replica_voters(replica, &servers);
    if (index >= servers.count)
        return false;
    ret_server->id = servers.list[index].id;
    memcpy(ret_server->address, servers.list[index].address, sizeof ret_server->address);
    return true;
}

bool ct_replica_entry(const struct ct_replica *replica, size_t index, const char **ret_key,
                      struct ct_bytes *ret_value)
{
    if (index >= replica->map.count)
        return false;
    *ret_key = replica->map.entries[index].key;
    *ret_value = replica->map.entries[index].value;
    return true;
}
