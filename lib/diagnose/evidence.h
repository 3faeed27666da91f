/* Evidence: the traces of a job (wire.def, TRACES) as sorted tables for verdict.h, so that a job of
 * thousands of ranks is judged in the time of sorting.
 *
 *      ranks    by rank                       the record of rank 7
 *      groups   by rank, id                   its activity in a group
 *      members  by id, place in the group     member 3 of a group
 *      calls    by group, number, rank, age   its call number 10
 *      kinds    by group, number, signature   the others' call number 10
 *      waiters  by group, number, downwards   ranks that wait in number 10 or later (transfers
 *                                             come first)
 *      askers   by the rank they wait for     ranks that wait for rank 7 by name
 *
 * A rank in a collective waits for the members that have not entered it, and for those that send no
 * heartbeat inside of it: for members that have completed fewer calls. So the waiters of one member
 * are the first of a list, and following them through all groups visits each waiter once.
 *
 * Whatever the traces contain (ranks twice, groups without members), the results are well-formed.
 * Pure except for memory. */
#ifndef CT_DIAGNOSE_EVIDENCE_H
#define CT_DIAGNOSE_EVIDENCE_H

#include "base/arena.h"
#include "wire/signature.h"
#include "wire/wire.h"

#include <stdbool.h>

/* The ranks that wait in collectives of one group: a part of the list. */
struct ct_evidence_run {
    uint64_t group;
    uint32_t first, count;
    uint32_t taken; /* of them, while they are followed */
};

struct ct_evidence {
    const struct ct_msg_traces *all;
    struct ct_arena arena;
    uint32_t *ranks, *groups, *members, *calls, *kinds; /* numbers of rows, as above */
    const struct ct_wire_trace_group **waits; /* of each row of ranks: where it waits, or NULL */
    uint32_t *waiters, *askers;               /* numbers of rows of ranks */
    uint32_t waiter_count, asker_count;
    struct ct_evidence_run *runs;
    uint32_t run_count;
    uint32_t *queue; /* while waiters are followed */
    bool *marked;
    uint64_t steps; /* rows looked at so far: what judging costs */
};

/* Initialise. 0 or CT_ENOMEM. */
int ct_evidence_init(struct ct_evidence *evidence, const struct ct_msg_traces *traces);

/* Free; a zeroed struct is valid. */
void ct_evidence_deinit(struct ct_evidence *evidence);

/* ---- looking up: NULL when there is none ---- */

const struct ct_wire_trace_rank *ct_evidence_rank(struct ct_evidence *evidence, uint32_t rank);
const struct ct_wire_trace_group *ct_evidence_group(struct ct_evidence *evidence, uint32_t rank,
                                                    uint64_t id);
const struct ct_wire_trace_group *ct_evidence_member(struct ct_evidence *evidence, uint64_t id,
                                                     uint32_t member);

/* Return the call of a rank; of transfers (number 0) the newest. */
const struct ct_wire_trace_call *ct_evidence_call(struct ct_evidence *evidence, uint32_t rank,
                                                  uint64_t group, uint64_t number);

/* Find the groups of a rank, and the calls of a rank in a group at a number: *ret_first is the
 * index of the first in evidence->groups, evidence->calls. Returns their number. */
uint32_t ct_evidence_groups(struct ct_evidence *evidence, uint32_t rank, uint32_t *ret_first);
uint32_t ct_evidence_calls(struct ct_evidence *evidence, uint32_t rank, uint64_t group,
                           uint64_t number, uint32_t *ret_first);

/* ---- the wait graph ---- */

/* Return the collective that the rank is in or failed in there; 0: none, CT_RECORD_TRANSFER: a
 * transfer. */
uint64_t ct_evidence_stuck_in(const struct ct_wire_trace_group *group);

/* Return the group in which a rank waits for others, running or failed there; NULL if it does not
 * wait. */
const struct ct_wire_trace_group *ct_evidence_waits(const struct ct_evidence *evidence,
                                                    const struct ct_wire_trace_rank *rank);

/* Return whether a rank that waits in `group` waits for `rank` itself. */
bool ct_evidence_waits_for(struct ct_evidence *evidence, const struct ct_wire_trace_group *group,
                           const struct ct_wire_trace_rank *rank);

/* Return how many wait for `rank` itself; a waiter in several ways counts more than once. */
uint32_t ct_evidence_near(struct ct_evidence *evidence, const struct ct_wire_trace_rank *rank);

/* Count the ranks that wait for `root`, directly or through others; also returns the longest
 * wait. */
uint32_t ct_evidence_follow(struct ct_evidence *evidence, const struct ct_wire_trace_rank *root,
                            uint64_t *ret_since_ms);

#endif
