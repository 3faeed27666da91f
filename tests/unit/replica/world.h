/* A cluster of replicas in virtual time: a network that loses, repeats, delays and cuts, processes
 * that are stopped and killed, a policy that replaces dead voters, clients that put, and the
 * invariants of the record, checked after every event. Everything follows from a seed.
 *
 * With disks (world_begin) the voters are fixed, and a process that starts again is the replica
 * that it was, with what was on its disk: any of them may be killed, in the midst of a write too. */
#ifndef TESTS_REPLICA_WORLD_H
#define TESTS_REPLICA_WORLD_H

#include "disk.h"

#include "base/number/rng.h"
#include "rendezvous/replica/replica.h"

enum { WORLD_NODES = 7, WORLD_KEYS = 6, WORLD_TERMS = 4096 };

/* A message under way, as its frame. */
struct flying {
    struct flying *next;
    uint64_t at_ms;
    uint64_t order; /* among those of one moment */
    uint64_t from, to;
    size_t size;
    unsigned char frame[];
};

struct world;

struct node {
    struct world *world;
    struct ct_replica *replica; /* NULL: killed */
    uint64_t id;
    uint64_t life; /* number of its process */
    char address[32];
    struct ct_replica_io io;
    uint64_t stopped_until_ms; /* frozen: nothing arrives, nothing is done */
    int64_t clock_ms;          /* ahead of the world's */
    bool leads;
    uint64_t led_term;
    bool votes;        /* in the message that is sent now */
    bool is_cut;       /* its power was: nothing is heard of it any more */
    uint64_t again_ms; /* killed: when it starts again by itself; 0: it does not */
    uint64_t checked;  /* its committed entries up to here are those of all others */
};

struct world {
    struct ct_rng rng;
    uint64_t seed;
    uint64_t now_ms;
    uint64_t next_id, next_life, next_order, next_put, era;
    struct node nodes[WORLD_NODES];
    size_t node_count;
    bool has_disks;
    struct disk disks[WORLD_NODES];
    uint32_t voters; /* that the policy wants */
    struct flying *flying;
    bool cut[WORLD_NODES][WORLD_NODES];
    uint32_t loss, repeat;                          /* of 1000 messages */
    uint32_t slow_ms;                               /* that a message may take besides */
    uint32_t vote_kills;                            /* of 1000 votes: who gave it dies of it */
    uint64_t leader_of[WORLD_TERMS];                /* its life by term, in the era of now */
    uint64_t vote_of[WORLD_NODES][WORLD_TERMS];     /* with disks: for whom, by term */
    uint64_t confirmed[WORLD_KEYS];                 /* highest put that was confirmed */
    uint64_t confirmed_in[WORLD_TERMS][WORLD_KEYS]; /* the same, by the leader of a term */
    uint64_t issued[WORLD_KEYS];                    /* highest that was accepted by a leader */
    uint64_t key_of_put[1 << 16];
    uint64_t puts_confirmed, elections, kills;
    uint64_t term_of[1 << 16]; /* of the entry that is committed at an index */
    uint64_t highest, lead_checked;
    bool quiet; /* the policy and the clients rest */
    char broken[256];
};

void world_init(struct world *world, uint64_t seed, uint32_t voters);
void world_deinit(struct world *world);

/* Node 0 founds the record, the others wait. */
void world_found(struct world *world);

/* Each of `voters` nodes begins with the same list of voters, and an empty disk. */
void world_begin(struct world *world);

/* One event after the other until `until_ms`, or until something is broken. */
void world_run(struct world *world, uint64_t until_ms);

/* A random fault; never one after which no majority of the voters lives. */
void world_fault(struct world *world);

/* Cuts, stops and losses end. */
void world_end_faults(struct world *world);

void world_kill(struct world *world, size_t node, bool known); /* `known`: its connections close */
void world_restart(struct world *world, size_t node); /* with its disk, or as a new replica */
void world_power_cut(struct world *world);            /* of all at once */

/* The node that leads, -1: none. */
int world_leader(const struct world *world);

/* The living node of replica `id`, NULL: none. */
struct node *world_node_of(struct world *world, uint64_t id);

/* What each replica believes, to stdout. */
void world_print(struct world *world);

/* All living voters hold the same map, and it has what was confirmed. */
bool world_agrees(struct world *world);

#endif
