/* The record of a job on several agents or daemons: a small map of keys to bytes, agreed on by a
 * majority of its holders.
 *
 *      put --> leader's log --> a majority holds it --> map, in the same order on every replica
 *
 * Agreement is Raft (Ongaro, "Consensus: bridging theory and practice", Stanford 2014): terms,
 * votes, a replicated log, voters that change one at a time (section 4.1), a vote before the vote
 * (9.6), snapshots. The README says why it is no library. No replica may forget a vote that it gave
 * or an entry that it confirmed. Without `keep`, a process that starts again is a new replica with
 * a new id. With it, term, vote and log are kept before any message that depends on them is sent,
 * and a process that starts again is the replica that it was; while nothing can be kept it is mute,
 * and leads nobody.
 *
 *      joined, begun ----> FOLLOWER <----> CANDIDATE ----> LEADER
 *      founded -------------------------------------------^
 *
 * Only the leader's puts are accepted. A leader serves from `on_lead` on: by then its map holds
 * every put that a leader before it confirmed to anybody. It stops at `on_follow`; what it had put
 * and was not confirmed may or may not be in the map of its successor. Until a leader that was cut
 * off notices, there may be two; only the newer one's puts are confirmed.
 *
 * When a majority is gone for good (its processes are proven dead, or an operator says so), a
 * survivor founds the record anew with the map it has, in a higher era; replicas of different eras
 * ignore each other. Without such proof nobody may call ct_replica_found_anew: two halves would
 * both lead.
 *
 * It has no clock, no socket and no random numbers: the caller passes time, messages and a seed,
 * and the simulator runs it as it is. Callbacks come at the end of ct_replica_found,
 * _found_anew, _receive, _tick and _died; they may call ct_replica_put. One thread at a time. */
#ifndef CT_RENDEZVOUS_REPLICA_REPLICA_H
#define CT_RENDEZVOUS_REPLICA_REPLICA_H

#include "base/error.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_REPLICA_SERVERS = 9,         /* holders of a record */
    CT_REPLICA_ADDRESS_BYTES = 256, /* with the terminator */
    CT_REPLICA_KEY_BYTES = 256,     /* likewise */
    CT_REPLICA_KEYS = 8192,
    CT_REPLICA_MAP_BYTES = CT_WIRE_VALUE_BYTES - 8192, /* of all: what SNAPSHOT can carry */
    CT_REPLICA_ALONE = 4, /* elections' times, see ct_replica_holds_all */
};

struct ct_replica;

/* Take a record: 0, or a negative code. */
typedef int (*ct_replica_keep_fn)(void *context, const void *record, size_t size);

struct ct_replica_io {
    void *context;

    /* Send to replica `to`, which listens at `address`; it may be lost. `message` and its bytes are
     * valid during the call. */
    void (*send)(void *context, uint64_t to, const char *address, const struct ct_message *message);

    /* This replica leads in `term` (greater than every earlier leader's of the era), and its map is
     * complete. */
    void (*on_lead)(void *context, uint64_t term);

    /* It leads no longer. */
    void (*on_follow)(void *context);

    /* The put `number` is in the map of a majority for ever (0), or this replica led no longer
     * before that was known: CT_EFENCED. */
    void (*on_put)(void *context, uint64_t number, int code);

    /* The change of the voters that was begun is over: 0; CT_ETIMEOUT when the new voter did not
     * take the log in time; CT_EFENCED when this replica led no longer; CT_ENOMEM. */
    void (*on_changed)(void *context, int code);

    /* Keep a record durably, behind those before; after a failure, all of ct_replica_emit first. It
     * may call nothing of the replica but ct_replica_emit. NULL: nothing outlives the process. */
    ct_replica_keep_fn keep;
};

struct ct_replica_server {
    uint64_t id;
    char address[CT_REPLICA_ADDRESS_BYTES];
};

struct ct_replica_options {
    uint64_t id;          /* not 0; drawn at random, of no other process ever */
    uint64_t era;         /* 1 at first */
    const char *address;  /* where other replicas reach this one; copied */
    uint64_t seed;        /* of the election times */
    uint32_t election_ms; /* without a leader's message, times 1 to 2, to an election; 0: 1000 */
    uint64_t now_ms;
    const struct ct_replica_io *io; /* copied */

    /* Who votes from the start, for ct_replica_begin: each is given the same list; copied. */
    const struct ct_replica_server *voters;
    size_t voter_count; /* 0: ct_replica_found or ct_replica_join says */
};

/* A replica with an empty map that leads nobody yet: call ct_replica_found, ct_replica_join or
 * ct_replica_begin. NULL without memory. */
struct ct_replica *ct_replica_new(const struct ct_replica_options *options);
void ct_replica_free(struct ct_replica *replica); /* NULL: nothing */

/* Found the record: this replica is the only voter and leads. Calls back on_lead, but for want of
 * memory. */
void ct_replica_found(struct ct_replica *replica);

/* Does this replica hold every put that anybody was told of, when the processes of all other voters
 * are known to be dead at `now_ms`? A leader does that a majority has answered within an election's
 * time; and one of two voters, if it led last, or if the other one led and had an answer of this
 * one that is younger than CT_REPLICA_ALONE - 1 of that. So the one of two that led may found the
 * record anew without the other when it has not heard it for CT_REPLICA_ALONE, and nothing is lost
 * by that either. Ages are counted from when a message was sent, by the clock of who sent it:
 * messages may be late. */
bool ct_replica_holds_all(struct ct_replica *replica, uint64_t now_ms);

/* Found the record anew: this replica is the only voter of `era` from now on, and keeps its map and
 * what its log holds. A leader goes on leading, in its term; else on_lead is called. Only where
 * ct_replica_holds_all, or an operator, says that nothing is lost. 0 or CT_ENOMEM. */
int ct_replica_found_anew(struct ct_replica *replica, uint64_t now_ms, uint64_t era);

/* So many voters are known to be dead that the living ones, `ids`, are no majority: from now on
 * they are the voters, of `era`, and elect one of them. Each of them must do this, with the same
 * ids and era, so there are never two. What only the dead held is lost. Not with `keep`. 0;
 * CT_EFENCED: this replica leads, or is none of them. */
int ct_replica_reduce(struct ct_replica *replica, uint64_t now_ms, uint64_t era,
                      const uint64_t *ids, size_t count);

/* Does this replica lead, or has a leader had an answer of it that was sent within the last `ms`?
 * Then it votes: one is removed only when its node is away for longer, or hears of it. */
bool ct_replica_known_within(const struct ct_replica *replica, uint64_t now_ms, uint64_t ms);

/* Wait until a leader adds this replica. */
void ct_replica_join(struct ct_replica *replica);

/* Before ct_replica_begin: read what was kept, record by record in its order. 0; CT_EDATA with the
 * sentence for what is no record, does not follow, or is another replica's; CT_ENOMEM. */
int ct_replica_restore(struct ct_replica *replica, const void *record, size_t size,
                       struct ct_error *err);

/* Emit the records that replace all that was kept: those of a new file. 0, CT_ENOMEM, or the code
 * of `emit`, which ends it. */
int ct_replica_emit(const struct ct_replica *replica, ct_replica_keep_fn emit, void *context);

/* Begin as one of the voters of the options, with what was restored; all of ct_replica_emit is
 * kept. They elect one. */
void ct_replica_begin(struct ct_replica *replica);

/* Return whether its disk holds nothing yet. Until a leader has sent it the record, such a replica
 * votes for none that has one: it cannot know that it never confirmed anything. */
bool ct_replica_is_new(const struct ct_replica *replica);

/* Return whether something could not be kept, and so nothing is sent. */
bool ct_replica_is_mute(const struct ct_replica *replica);

/* A message of another replica came. Others than those of replicas, of another era or for another
 * replica are ignored. */
void ct_replica_receive(struct ct_replica *replica, uint64_t now_ms,
                        const struct ct_message *message);

void ct_replica_tick(struct ct_replica *replica, uint64_t now_ms);
uint64_t ct_replica_deadline(const struct ct_replica *replica); /* when ct_replica_tick is due */

/* The process of replica `id` is known to be dead (a living kernel closed or refused its
 * connections; silence is no proof). If it led, an election begins now. */
void ct_replica_died(struct ct_replica *replica, uint64_t now_ms, uint64_t id);

/* Set `key` to `size` bytes, or forget it (`value` NULL); on_put tells with `number` (not 0). 0;
 * CT_EFENCED when this replica does not lead; CT_ELIMIT for what is too long, or more than the map
 * may hold; CT_ENOMEM. */
int ct_replica_put(struct ct_replica *replica, uint64_t now_ms, uint64_t number, const char *key,
                   const void *value, size_t size);

/* Add a voter (it takes the log first), or remove one; on_changed tells. One change at a time. 0;
 * CT_EFENCED when this replica does not lead; CT_EINUSE during another change; CT_ENOTFOUND when
 * there is no such voter, or no other; CT_ELIMIT when it votes already or there are too many. */
int ct_replica_add(struct ct_replica *replica, uint64_t now_ms, uint64_t id, const char *address);
int ct_replica_remove(struct ct_replica *replica, uint64_t now_ms, uint64_t id);

/* Ask voter `id` (0: of those that answered within an election's time, else of all, the one that
 * holds most of the log) to take the lead. 0; CT_EFENCED when this replica does not lead;
 * CT_ENOTFOUND when there is no such voter. */
int ct_replica_yield(struct ct_replica *replica, uint64_t now_ms, uint64_t id);

/* May this leader go as soon as another one leads? Then so many of the other voters have answered
 * what was sent within an election's time that they are a majority without it; of two, the other
 * one has. */
bool ct_replica_is_spare(struct ct_replica *replica, uint64_t now_ms);

/* ---- queries ---- */

bool ct_replica_leads(const struct ct_replica *replica); /* from on_lead to on_follow */
uint64_t ct_replica_term(const struct ct_replica *replica);
uint64_t ct_replica_era(const struct ct_replica *replica);
uint64_t ct_replica_leader(const struct ct_replica *replica); /* its id, 0: none is known */

/* Does another one lead, whose map is complete as far as this replica knows? */
bool ct_replica_is_led(const struct ct_replica *replica);

/* The voters, as this replica knows them: number `index`; false beyond the last. */
bool ct_replica_server(const struct ct_replica *replica, size_t index,
                       struct ct_replica_server *ret_server);

/* Entry `index` of the map, in the order of the keys; false beyond the last. The views are valid
 * until the next call that changes the replica. */
bool ct_replica_entry(const struct ct_replica *replica, size_t index, const char **ret_key,
                      struct ct_bytes *ret_value);

#endif
