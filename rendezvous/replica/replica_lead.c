/* What a leader does: it sends each replica what that lacks, and commits what a majority holds. */
#include "rendezvous/replica/replica_state.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEND_BYTES = 1 << 20, /* of entries in a message, the first whatever its size */
    SEND_ENTRIES = 1024,
    HEARTBEATS = 5, /* in an election's time */
};

/* ---- peers ---- */

static struct replica_peer *peer_of(struct ct_replica *replica, uint64_t id)
{
    for (uint32_t i = 0; i < replica->peer_count; i++)
        if (replica->peers[i].id == id)
            return &replica->peers[i];
    return NULL;
}

static void peer_add(struct ct_replica *replica, uint64_t id)
{
    if (id != replica->id && !peer_of(replica, id)) {
        CT_ASSERT(replica->peer_count < CT_REPLICA_SERVERS + 1);
        replica->peers[replica->peer_count++] =
            (struct replica_peer){.id = id, .next = replica_log_last(&replica->log) + 1};
    }
}

/* Those that vote as of the newest entry, and the one that is being added. */
static void update_peers(struct ct_replica *replica, struct replica_servers *ret_servers)
{
    replica_voters(replica, ret_servers);
    for (uint32_t i = 0; i < replica->peer_count;)
        if (replica_servers_have(ret_servers, replica->peers[i].id) ||
            replica->peers[i].id == replica->adding.id)
            i++;
        else
            replica->peers[i] = replica->peers[--replica->peer_count];
    for (uint32_t i = 0; i < ret_servers->count; i++)
        peer_add(replica, ret_servers->list[i].id);
    if (replica->adding.id)
        peer_add(replica, replica->adding.id);
}

/* ---- sending ---- */

static void send_snapshot(struct ct_replica *replica, struct replica_peer *peer,
                          const char *address)
{
    struct ct_wire_replica_server list[CT_REPLICA_SERVERS];
    struct replica_servers servers;
    size_t bytes = ct_replica_map_bytes(&replica->map);
    unsigned char *data;

    if (peer->snapshot_ms && replica->now_ms < peer->snapshot_ms + replica->election_ms)
        return; /* it is under way */
    data = malloc(bytes + 1);
    if (!data)
        return;
    ct_replica_map_write(&replica->map, data);
    replica_log_servers(&replica->log, replica->committed, &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        list[i] = (struct ct_wire_replica_server){.id = servers.list[i].id,
                                                  .address = servers.list[i].address};
    }
    peer->snapshot_ms = replica->now_ms;
    replica_send(replica, peer->id, address,
                 &(struct ct_message){
                     .type = CT_MSG_SNAPSHOT,
                     .snapshot = {.term = replica->term,
                                  .sender = replica_sender(replica, peer->id),
                                  .last_index = replica->committed,
                                  .last_term = replica_log_term(&replica->log, replica->committed),
                                  .servers = {list, servers.count},
                                  .data = {data, bytes}}});
    free(data);
}

/* By it who leads next knows since when a voter is silent that fell silent with this one. */
static uint32_t list_silences(const struct ct_replica *replica, const struct replica_peer *to,
                              struct ct_wire_replica_silence list[CT_REPLICA_SERVERS + 1])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < replica->peer_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];

        if (peer != to && peer->heard_ms != 0)
            list[count++] = (struct ct_wire_replica_silence){
                .id = peer->id,
                .silent_ms =
                    (uint32_t)CT_MIN(replica->now_ms - peer->heard_ms, (uint64_t)UINT32_MAX)};
    }
    return count;
}

static void send_entries(struct ct_replica *replica, struct replica_peer *peer, const char *address)
{
    struct ct_wire_replica_silence silences[CT_REPLICA_SERVERS + 1];
    struct ct_wire_replica_entry list[SEND_ENTRIES];
    const struct replica_log *log = &replica->log;
    uint64_t previous = peer->next - 1, next = peer->next;
    uint32_t count = 0;
    size_t bytes = 0;

    for (; next <= replica_log_last(log) && count < SEND_ENTRIES; next++) {
        const struct replica_entry *entry = replica_log_at(log, next);

        if (count > 0 && bytes + entry->size > SEND_BYTES)
            break;
        bytes += entry->size;
        list[count++] = (struct ct_wire_replica_entry){
            .term = entry->term, .type = (uint8_t)entry->type, .data = {entry->data, entry->size}};
    }
    peer->waits = !peer->streams;
    if (peer->streams)
        peer->next = next;
    replica_send(replica, peer->id, address,
                 &(struct ct_message){
                     .type = CT_MSG_APPEND,
                     .append = {.term = replica->term,
                                .sender = replica_sender(replica, peer->id),
                                .previous_index = previous,
                                .previous_term = replica_log_term(log, previous),
                                .committed = replica->committed,
                                .stamp = replica->now_ms,
                                .echo = peer->stamp,
                                .others = {silences, list_silences(replica, peer, silences)},
                                .entries = {list, count}}});
}

static const char *address_of(const struct ct_replica *replica,
                              const struct replica_servers *servers, uint64_t id)
{
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].id == id)
            return servers->list[i].address;
    return replica->adding.address;
}

void replica_lead_send(struct ct_replica *replica, bool heartbeat)
{
    struct replica_servers servers;

    update_peers(replica, &servers);
    if (!replica_keep(replica))
        return;
    for (uint32_t i = 0; i < replica->peer_count; i++) {
        struct replica_peer *peer = &replica->peers[i];
        const char *address = address_of(replica, &servers, peer->id);

        if (peer->next <= replica->log.base_index)
            send_snapshot(replica, peer, address);
        else if (heartbeat || (!peer->waits && peer->next <= replica_log_last(&replica->log)))
            send_entries(replica, peer, address);
    }
}

/* ---- committing ---- */

static bool has_died(const struct ct_replica *replica, uint64_t id)
{
    for (uint32_t i = 0; i < REPLICA_DIED; i++)
        if (replica->died[i] == id)
            return true;
    return false;
}

/* Up to which entry may be committed, for the sake of two voters that become three? Each of the two
 * may found the record anew when the other is dead (ct_replica_holds_all): as long as it does not
 * know of the third it must hold all that is committed, unless it has heard nothing for too long,
 * or is dead itself. */
static uint64_t known_to_two(struct ct_replica *replica)
{
    struct replica_servers servers;
    uint64_t since = replica_log_servers(&replica->log, replica_log_last(&replica->log), &servers);

    if (since <= replica->committed || since <= replica->log.base_index || servers.count != 3)
        return UINT64_MAX;
    replica_log_servers(&replica->log, since - 1, &servers);
    for (uint32_t i = 0; servers.count == 2 && i < servers.count; i++) {
        const struct replica_peer *peer = peer_of(replica, servers.list[i].id);

        if (peer && peer->match < since && !has_died(replica, peer->id) &&
            replica->now_ms < CT_MAX(peer->heard_ms, replica->led_ms) +
                                  CT_REPLICA_ALONE * (uint64_t)replica->election_ms)
            return peer->match;
    }
    return UINT64_MAX;
}

/* The highest index that a majority of the voters holds. */
static uint64_t held_by_majority(struct ct_replica *replica)
{
    struct replica_servers servers;
    uint64_t match[CT_REPLICA_SERVERS] = {0};
    uint32_t count = 0;

    update_peers(replica, &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        uint64_t id = servers.list[i].id, held;
        uint32_t at = count++;

        held = id == replica->id ? replica_kept_index(replica) : peer_of(replica, id)->match;
        for (; at > 0 && match[at - 1] < held; at--)
            match[at] = match[at - 1];
        match[at] = held;
    }
    return match[count / 2]; /* the highest first: more than half hold this one */
}

/* An entry of an older term may be lost although a majority holds it (section 3.6.2 of the
 * dissertation); one of this term seals all before it. */
static void commit_what_is_held(struct ct_replica *replica)
{
    uint64_t index = CT_MIN(held_by_majority(replica), known_to_two(replica));

    if (index > replica->committed && replica_log_term(&replica->log, index) == replica->term)
        replica_commit(replica, index);
}

/* ---- the voters ---- */

static void change_over(struct ct_replica *replica, int code)
{
    replica->changed = true;
    replica->change_code = code;
    replica->adding.id = 0;
    replica->change_index = 0;
}

/* The index of the entry that makes them the voters; 0 without memory. */
static uint64_t append_servers(struct ct_replica *replica, const struct replica_servers *servers)
{
    unsigned char data[REPLICA_SERVERS_BYTES];
    size_t size = replica_servers_write(servers, data, sizeof data);

    return replica_log_append(&replica->log, replica->term, REPLICA_SERVERS, data, size, 0);
}

/* The new replica holds all but the last entries: it votes from now on. */
static void promote(struct ct_replica *replica)
{
    struct replica_peer *peer = replica->adding.id ? peer_of(replica, replica->adding.id) : NULL;
    struct replica_servers servers;

    if (!peer || replica->change_index || peer->match == 0 || peer->match < replica->committed)
        return;
    replica_voters(replica, &servers);
    servers.list[servers.count++] = replica->adding;
    replica->change_index = append_servers(replica, &servers);
    if (replica->change_index == 0) {
        change_over(replica, CT_ENOMEM);
        return;
    }
    replica->adding.id = 0;
    replica_lead_send(replica, false);
}

bool replica_lead_alone(struct ct_replica *replica)
{
    struct replica_servers self;

    replica_only_self(replica, &self);
    if (replica->changing && !replica->changed)
        change_over(replica, CT_EFENCED);
    replica->adding.id = 0;
    return append_servers(replica, &self) != 0;
}

static void advance_change(struct ct_replica *replica)
{
    if (!replica->changing || replica->changed)
        return;
    promote(replica);
    if (replica->change_index && replica->committed >= replica->change_index)
        change_over(replica, 0);
    else if (replica->adding.id && replica->now_ms >= replica->adding_until_ms)
        change_over(replica, CT_ETIMEOUT);
}

/* A leader that is no voter any more goes when a majority of the others knows. */
static void leave_if_removed(struct ct_replica *replica)
{
    struct replica_servers servers;
    uint64_t since = replica_log_servers(&replica->log, replica_log_last(&replica->log), &servers);

    if (since <= replica->committed && !replica_servers_have(&servers, replica->id))
        replica_follow(replica, replica->term, 0);
}

static int begin_change(struct ct_replica *replica, uint64_t now_ms)
{
    replica->now_ms = now_ms;
    if (!replica->serves || replica->role != REPLICA_LEADER)
        return CT_EFENCED;
    if (replica->changing)
        return CT_EINUSE;
    return 0;
}

int ct_replica_add(struct ct_replica *replica, uint64_t now_ms, uint64_t id, const char *address)
{
    struct replica_servers servers;
    int code = begin_change(replica, now_ms);

    if (code)
        return code;
    replica_voters(replica, &servers);
    if (id == 0 || strlen(address) >= CT_REPLICA_ADDRESS_BYTES ||
        servers.count == CT_REPLICA_SERVERS || replica_servers_have(&servers, id))
        return CT_ELIMIT;
    replica->changing = true;
    replica->adding.id = id;
    memcpy(replica->adding.address, address, strlen(address) + 1);
    replica->adding_until_ms = now_ms + 3 * (uint64_t)replica->election_ms;
    replica_lead_send(replica, false);
    return 0;
}

int ct_replica_remove(struct ct_replica *replica, uint64_t now_ms, uint64_t id)
{
    struct replica_servers servers, left = {0};
    int code = begin_change(replica, now_ms);

    if (code)
        return code;
    replica_voters(replica, &servers);
    for (uint32_t i = 0; i < servers.count; i++)
        if (servers.list[i].id != id)
            left.list[left.count++] = servers.list[i];
    if (left.count == servers.count || left.count == 0)
        return CT_ENOTFOUND;
    replica->change_index = append_servers(replica, &left);
    if (replica->change_index == 0)
        return CT_ENOMEM;
    replica->changing = true;
    replica_lead_send(replica, false);
    commit_what_is_held(replica);
    return 0;
}

/* Has it answered what was sent within an election's time, and lives as far as is known? */
static bool is_recent(const struct ct_replica *replica, const struct replica_peer *peer)
{
    return peer->asked_ms != 0 && replica->now_ms < peer->asked_ms + replica->election_ms &&
           !has_died(replica, peer->id);
}

bool ct_replica_is_spare(struct ct_replica *replica, uint64_t now_ms)
{
    struct replica_servers servers;
    uint32_t recent = 0;

    replica->now_ms = now_ms;
    if (!replica->serves || replica->role != REPLICA_LEADER)
        return false;
    update_peers(replica, &servers);
    for (uint32_t i = 0; i < replica->peer_count; i++)
        recent += replica_servers_have(&servers, replica->peers[i].id) &&
                  is_recent(replica, &replica->peers[i]);
    return servers.count == 2 ? recent == 1 : 2 * recent > servers.count;
}

/* Is `peer` to lead rather than `best`? */
static bool is_better(const struct ct_replica *replica, const struct replica_peer *peer,
                      const struct replica_peer *best)
{
    if (best == NULL || is_recent(replica, peer) != is_recent(replica, best))
        return best == NULL || is_recent(replica, peer);
    return peer->match > best->match;
}

int ct_replica_yield(struct ct_replica *replica, uint64_t now_ms, uint64_t id)
{
    struct replica_servers servers;
    const struct replica_peer *best = NULL;

    replica->now_ms = now_ms;
    if (replica->role != REPLICA_LEADER)
        return CT_EFENCED;
    update_peers(replica, &servers);
    for (uint32_t i = 0; i < replica->peer_count; i++) {
        const struct replica_peer *peer = &replica->peers[i];

        if (replica_servers_have(&servers, peer->id) && (id == 0 || id == peer->id) &&
            is_better(replica, peer, best))
            best = peer; /* what it lacks is on its way to it, before the order */
    }
    if (!best)
        return CT_ENOTFOUND;
    replica_lead_send(replica, false);
    replica_send(replica, best->id, address_of(replica, &servers, best->id),
                 &(struct ct_message){.type = CT_MSG_TAKE_LEAD,
                                      .take_lead = {.term = replica->term,
                                                    .sender = replica_sender(replica, best->id)}});
    return 0;
}

/* ---- the lead ---- */

void replica_lead_begin(struct ct_replica *replica)
{
    struct replica_servers servers;
    uint64_t first;

    replica_voters(replica, &servers);
    first = replica_log_append(&replica->log, replica->term, REPLICA_LEAD, NULL, 0, 0);
    if (first != 0 && replica->left.count > 0) { /* for those who come later */
        replica->left.count = 0;
        first = append_servers(replica, &servers);
    }
    if (first == 0) { /* no memory: another shall lead */
        replica_follow(replica, replica->term, 0);
        return;
    }
    replica->role = REPLICA_LEADER;
    replica->led_term = replica->term;
    replica->led_ms = replica->now_ms;
    replica->leader = replica->id;
    replica->lead_index = first;
    replica->peer_count = 0;
    replica->quorum_ms = replica->now_ms;
    replica->deadline_ms = replica->now_ms + replica->election_ms / HEARTBEATS;
    replica_lead_send(replica, true);
    commit_what_is_held(replica);
}

void replica_lead_end(struct ct_replica *replica)
{
    for (uint64_t i = replica->committed + 1; i <= replica_log_last(&replica->log); i++) {
        struct replica_entry *entry = replica_log_at(&replica->log, i);

        if (entry->number) {
            replica->failed[replica->failed_count++] = entry->number;
            entry->number = 0;
        }
    }
    if (replica->changing && !replica->changed)
        change_over(replica, CT_EFENCED);
    replica->peer_count = 0;
}

void replica_lead_answer(struct ct_replica *replica, const struct ct_msg_appended *answer)
{
    struct replica_peer *peer = peer_of(replica, answer->sender.id);
    uint64_t last = replica_log_last(&replica->log);

    if (!peer || (!answer->rejected && answer->last_index > last))
        return;
    peer->heard_ms = replica->now_ms;
    peer->asked_ms = CT_MAX(peer->asked_ms, answer->echo);
    peer->stamp = CT_MAX(peer->stamp, answer->stamp);
    if (!answer->rejected) {
        peer->match = CT_MAX(peer->match, answer->last_index);
        peer->next = CT_MAX(peer->next, peer->match + 1);
        peer->streams = true;
        peer->waits = false;
        commit_what_is_held(replica);
    } else if (answer->last_index < peer->match) { /* its disk is a new one */
        peer->match = 0;
        peer->next = answer->last_index + 1;
        peer->streams = false;
        peer->waits = false;
        peer->snapshot_ms = 0;
    } else if (answer->previous_index > peer->match &&
               (peer->streams || answer->previous_index == peer->next - 1)) {
        /* what was sent meanwhile will be rejected too: those answers are too late to count */
        peer->next =
            CT_MAX(CT_MIN(answer->previous_index, answer->last_index + 1), peer->match + 1);
        peer->streams = false;
        peer->waits = false;
        peer->snapshot_ms = 0;
    }
    advance_change(replica);
    replica_lead_send(replica, false);
    leave_if_removed(replica);
}

/* Have more than half of the voters, this one included, answered within an election's time? With
 * `asked` an answer counts from when its question was sent, else from when it came. */
static bool is_majority_recent(struct ct_replica *replica, bool asked)
{
    struct replica_servers servers;
    uint32_t count = 0;

    update_peers(replica, &servers);
    for (uint32_t i = 0; i < servers.count; i++) {
        const struct replica_peer *peer = peer_of(replica, servers.list[i].id);
        uint64_t at_ms = !peer ? 0 : asked ? peer->asked_ms : peer->heard_ms;

        count += servers.list[i].id == replica->id ||
                 (at_ms && replica->now_ms < at_ms + replica->election_ms);
    }
    return 2 * count > servers.count;
}

bool replica_majority_follows(struct ct_replica *replica)
{
    return is_majority_recent(replica, true);
}

void replica_lead_tick(struct ct_replica *replica)
{
    if (is_majority_recent(replica, false)) {
        replica->quorum_ms = replica->now_ms;
    } else if (replica->now_ms >= replica->quorum_ms + replica->election_ms) {
        replica_follow(replica, replica->term, 0);
        return;
    }
    if (replica->now_ms >= replica->deadline_ms) {
        replica->deadline_ms = replica->now_ms + replica->election_ms / HEARTBEATS;
        replica_lead_send(replica, true);
    }
    commit_what_is_held(replica);
    advance_change(replica);
    leave_if_removed(replica);
}
