/* A committed round as every member sees it, put together from the parts in which it travels. */
#ifndef CT_RENDEZVOUS_CORE_ASSEMBLY_H
#define CT_RENDEZVOUS_CORE_ASSEMBLY_H

#include "wire/node_runs.h"

#include <stdbool.h>

struct ct_round_node {
    uint32_t index; /* position in the roster = node rank */
    struct ct_id id;
    const char *host;
    const char *address; /* that the other nodes reach it at */
    const char *role;
    uint32_t slots;
    uint32_t first_rank; /* global rank of its local rank 0 */
    uint16_t port;       /* as its agent offered in ct_agent_prepared */
    bool survivor;       /* was in the round before */
};

/* A committed round, as every member sees it. */
struct ct_round {
    uint64_t generation;
    uint64_t epoch;
    uint32_t restarts; /* charged to the budget so far */
    uint32_t max_restarts;
    uint64_t lineage; /* of the base: 0 when nobody holds state (begin from the checkpoint) */
    uint64_t base_step;
    uint64_t base_digest;
    int32_t base_node; /* index of the node that gives its state to the others; -1: none */
    uint64_t published_generation; /* newest publication when the round was made; 0: none */
    uint64_t published_step;       /* a round without base begins from exactly this one */
    uint32_t self;                 /* index of this node */
    uint32_t node_count;
    uint32_t world;                    /* all slots */
    struct ct_node_runs runs;          /* all nodes, as far as ranks and roles go */
    const struct ct_round_node *own;   /* this node */
    const struct ct_round_node *head;  /* node 0 */
    const struct ct_round_node *base;  /* base_node; NULL: nobody holds state */
    const struct ct_round_node *nodes; /* all; NULL in a large round, but at node 0 */
};

/* This node's offer, by which it finds itself in the round. */
struct ct_offer {
    struct ct_id id;
    uint32_t slots;
};

/* Parts of one round; `round` is complete when all have come. */
struct ct_assembly {
    struct ct_round round;
    struct ct_round_node *nodes;
    uint32_t received; /* nodes, from the first on */
    struct ct_arena arena;
};

/* Return the name of a node for people: its host, or in a large round "node 17", in `room`. */
const char *ct_round_name(const struct ct_round *round, uint32_t node, char room[32]);

struct ct_assembly *ct_assembly_new(void);
void ct_assembly_free(struct ct_assembly *assembly);

/* Add a part. A part of another generation begins anew; one that is not the next is left out (the
 * daemon sends all again). 1 when the round is complete, 0 when parts are missing, CT_EPROTOCOL
 * when the parts contradict each other or `self` is not in the round, CT_ENOMEM. Of a round that is
 * complete the ranks of its nodes follow each other up to the world's size. */
int ct_assembly_add(struct ct_assembly *assembly, const struct ct_msg_round *part,
                    struct ct_offer self, struct ct_error *err);

/* The same with the short ROUND of a large round: complete at once, without `nodes`, which only
 * node 0 has. 1, CT_EPROTOCOL, CT_ENOMEM. */
int ct_assembly_short(struct ct_assembly *assembly, const struct ct_msg_round *m,
                      struct ct_offer self, struct ct_error *err);

#endif
