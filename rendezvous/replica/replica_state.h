/* A replica from inside. replica.c: events, and what a follower does; replica_vote.c: elections;
 * replica_lead.c: what a leader does; replica_log.c: the log, and who votes; replica_keep.c: what
 * is on disk. */
#ifndef CT_RENDEZVOUS_REPLICA_REPLICA_STATE_H
#define CT_RENDEZVOUS_REPLICA_REPLICA_STATE_H

#include "rendezvous/replica/replica.h"
#include "rendezvous/replica/replica_map.h"

#include "base/number/rng.h"

/* No log is so long: what names such an entry is none. */
#define REPLICA_INDEX_LIMIT ((uint64_t)1 << 62)

enum { REPLICA_DIED = 4 };

enum replica_role { REPLICA_FOLLOWER, REPLICA_CANDIDATE, REPLICA_LEADER };

enum replica_entry_type {
    REPLICA_PUT = 1, /* of replica_map.h */
    REPLICA_SERVERS, /* who votes from here on */
    REPLICA_LEAD,    /* the first of a leader; no data */
};

struct replica_entry {
    uint64_t term;
    uint64_t number; /* of the put on this replica, while nobody was told how it ended; 0: none */
    enum replica_entry_type type;
    size_t size;
    unsigned char data[];
};

struct replica_server {
    uint64_t id;
    char address[CT_REPLICA_ADDRESS_BYTES];
};

struct replica_servers {
    uint32_t count;
    struct replica_server list[CT_REPLICA_SERVERS];
};

/* Entries base_index + 1 ... base_index + count, and what is known of the one before. */
struct replica_log {
    uint64_t base_index;
    uint64_t base_term;
    struct replica_servers base_servers; /* who voted as of the base */
    struct replica_entry **entries;
    size_t count;
    size_t room;
};

/* What a leader knows of another replica. */
struct replica_peer {
    uint64_t id;
    uint64_t next;        /* index of the next entry to send */
    bool streams;         /* entries are sent as they come; else one message until it is answered */
    bool waits;           /* that one is under way */
    uint64_t match;       /* its log is known to be the leader's up to here */
    uint64_t heard_ms;    /* its last answer; 0: none since this replica leads */
    uint64_t asked_ms;    /* when that was sent here which it answered last; 0: none likewise */
    uint64_t stamp;       /* of its last answer, by its own clock */
    uint64_t snapshot_ms; /* when the last snapshot was sent; 0: none */
};

/* What is on record of a replica that keeps one. */
struct replica_kept {
    uint64_t term, voted_for;
    uint64_t index; /* entries up to here are there as they are in the log */
    uint64_t last;  /* entries up to here are there, in any form */
    bool base;      /* all before the log is there */
};

struct ct_replica {
    struct ct_replica_io io;
    uint64_t id;
    uint64_t era;
    uint32_t election_ms;
    char address[CT_REPLICA_ADDRESS_BYTES];
    struct ct_rng rng;
    uint64_t now_ms;

    enum replica_role role;
    uint64_t term;
    uint64_t voted_for; /* in this term; 0: nobody */
    uint64_t leader;    /* in this term; 0: not known */
    uint64_t heard_ms;  /* the leader's last message */
    uint64_t known_ms;  /* when that was sent here which replica `known_to` had when it sent its */
    uint64_t known_to; /* last message as the leader: then, at least, it knew that this one lives */
    uint64_t deadline_ms; /* of the next election, or of the next heartbeat */

    bool pre;     /* CANDIDATE: only asks whether it would be elected */
    bool disrupt; /* CANDIDATE: although the leader was heard a moment ago */
    uint64_t votes[CT_REPLICA_SERVERS];
    uint32_t vote_count;

    struct replica_log log;
    uint64_t committed; /* a majority holds all up to here; the map is as of this entry */
    struct ct_replica_map map;

    struct replica_peer peers[CT_REPLICA_SERVERS + 1]; /* LEADER: of all but itself */
    uint32_t peer_count;
    uint64_t lead_index; /* LEADER: of its first entry; the map is complete when it is committed */
    uint64_t quorum_ms;  /* when a majority was last heard */
    uint64_t led_term;   /* the last that this replica led in */
    uint64_t led_ms;     /* since when */
    bool serves;         /* on_lead was called, on_follow not yet */

    bool changing;
    struct replica_server adding; /* takes the log, then votes; id 0: none */
    uint64_t adding_until_ms;
    uint64_t change_index; /* of the entry that is to be committed; 0: none yet */
    bool changed;          /* on_changed is to be called with change_code */
    int change_code;

    struct replica_kept kept;
    bool mute; /* it could not be kept: tried again from `keep_again_ms` on */
    uint64_t keep_again_ms;

    uint64_t *failed; /* numbers of puts for on_put with CT_EFENCED */
    size_t failed_count, failed_room;
    uint64_t reported_index; /* entries up to here have no put of which nobody was told */

    struct replica_servers
        left;           /* the voters since ct_replica_reduce; count 0: not reduced. They */
    uint64_t left_term; /* hold until an entry of a later term says who votes */

    uint64_t died[REPLICA_DIED]; /* the last replicas whose processes are known to be dead */
    uint32_t died_count;         /* of all there were */

    uint64_t dead;        /* the leader whose process is known to be dead; 0: none */
    uint32_t stands;      /* how often this replica has stood for election because of that */
    uint64_t campaign_ms; /* when this replica stands for election because of that */
};

/* ---- replica_log.c ---- */

void replica_log_deinit(struct replica_log *log);
uint64_t replica_log_last(const struct replica_log *log);

/* The term of entry `index`, base_index <= index <= last. */
uint64_t replica_log_term(const struct replica_log *log, uint64_t index);
struct replica_entry *replica_log_at(const struct replica_log *log, uint64_t index);

/* Append an entry; its index, 0 without memory. */
uint64_t replica_log_append(struct replica_log *log, uint64_t term, enum replica_entry_type type,
                            const void *data, size_t size, uint64_t number);

void replica_log_cut(struct replica_log *log, uint64_t index);  /* `index` and all behind it */
void replica_log_drop(struct replica_log *log, uint64_t index); /* all up to `index` */

/* All of the log gives way to a snapshot as of `index`. */
void replica_log_replace(struct replica_log *log, uint64_t index, uint64_t term,
                         const struct replica_servers *servers);

/* Who votes as of entry `index`: the newest REPLICA_SERVERS up to there. Returns its index. */
uint64_t replica_log_servers(const struct replica_log *log, uint64_t index,
                             struct replica_servers *ret_servers);

/* An entry's data, and back; false for what is none. */
size_t replica_servers_write(const struct replica_servers *servers, void *at, size_t room);
bool replica_servers_read(const void *data, size_t size, struct replica_servers *ret_servers);
/* This replica alone. */
void replica_only_self(const struct ct_replica *replica, struct replica_servers *ret_servers);
bool replica_servers_have(const struct replica_servers *servers, uint64_t id);

enum { REPLICA_SERVERS_BYTES = 4 + CT_REPLICA_SERVERS * (8 + 2 + CT_REPLICA_ADDRESS_BYTES) };

/* ---- replica_lead.c ---- */

/* LEADER: has a majority answered what was sent within an election's time? However late an answer
 * comes, its sender has elected nobody else for as long since it was asked. */
bool replica_majority_follows(struct ct_replica *replica);

/* This replica is the only voter from the log's next entry on. False without memory. */
bool replica_lead_alone(struct ct_replica *replica);

/* This replica was elected. */
void replica_lead_begin(struct ct_replica *replica);

/* It leads no longer: what was put and is not committed has failed as far as it knows. */
void replica_lead_end(struct ct_replica *replica);

/* Send what each replica lacks; `heartbeat`: something to each. */
void replica_lead_send(struct ct_replica *replica, bool heartbeat);
void replica_lead_answer(struct ct_replica *replica, const struct ct_msg_appended *answer);
void replica_lead_tick(struct ct_replica *replica);

/* ---- replica_vote.c ---- */

/* Who votes as of the newest entry of the log. */
void replica_voters(const struct ct_replica *replica, struct replica_servers *ret_servers);

/* Stand for election; `disrupt`: at once, even if others have heard the leader a moment ago. */
void replica_stand(struct ct_replica *replica, bool disrupt);
void replica_stand_after_death(struct ct_replica *replica);
void replica_receive_vote(struct ct_replica *replica, const struct ct_msg_vote *vote);
void replica_receive_voted(struct ct_replica *replica, const struct ct_msg_voted *voted);
void replica_receive_take_lead(struct ct_replica *replica, const struct ct_msg_take_lead *order);

/* ---- replica_keep.c ---- */

/* Keep what has changed, before anybody is told of it. True without a record, and when all is kept;
 * else the replica is mute. */
bool replica_keep(struct ct_replica *replica);

/* Up to which entry this replica may count itself. */
uint64_t replica_kept_index(const struct ct_replica *replica);

/* Entries from `index` on are others than those that are kept. */
void replica_unkeep(struct ct_replica *replica, uint64_t index);

/* ---- replica.c ---- */

void replica_follow(struct ct_replica *replica, uint64_t term, uint64_t leader);
struct ct_wire_replica_sender replica_sender(const struct ct_replica *replica, uint64_t to);
/* Send what the record allows: nothing while the replica is mute. */
void replica_send(struct ct_replica *replica, uint64_t to, const char *address,
                  const struct ct_message *message);
void replica_commit(struct ct_replica *replica, uint64_t index);
uint64_t replica_election_ms(struct ct_replica *replica); /* a random time from now on */

#endif
