/* How the nodes of a job and their workers are, as their agents have told last (wire.def: FIGURES).
 *
 * Told only while somebody looks at the job, so what is older than CT_FIGURES_MS is not shown. Some
 * 100 bytes a node and 60 a worker. Pure. */
#ifndef CT_RENDEZVOUS_HISTORY_FIGURES_H
#define CT_RENDEZVOUS_HISTORY_FIGURES_H

#include "wire/wire.h"

enum {
    CT_FIGURES_MS = 20 * 1000,
    CT_FIGURES_RANKS = 1024, /* of a node that are kept */
};

struct ct_node_figures {
    struct ct_id id; /* of the agent that told them */
    uint64_t ms;
    uint64_t memory, memory_total;
    double load;
    char trouble[256];
    uint32_t count;
    struct ct_wire_rank_figures ranks[];
};

/* By the number of the member; zeroed at first. */
struct ct_figures {
    struct ct_node_figures **of;
    uint32_t room;
};

/* Keep what the agent `id` of a member tells. Without memory nothing is kept. */
void ct_figures_keep(struct ct_figures *figures, uint32_t member, struct ct_id id, uint64_t now_ms,
                     const struct ct_msg_figures *m);

/* Return what the agent `id` of a member told lately; NULL: nothing. */
const struct ct_node_figures *ct_figures_find(const struct ct_figures *figures, uint32_t member,
                                              struct ct_id id, uint64_t now_ms);

void ct_figures_deinit(struct ct_figures *figures);

#endif
