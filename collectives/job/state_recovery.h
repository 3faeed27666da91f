/* The choice of the state that a round starts from.
 *
 * Each rank reports the state that it holds, all ranks see the same table and draw the same
 * conclusions: the most advanced survivor of the job's lineage is the base, and broadcasts its
 * state unless all hold it already. Pure. */
#ifndef CT_COLL_JOB_STATE_RECOVERY_H
#define CT_COLL_JOB_STATE_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

/* The state that a rank brings into the round. Sent between ranks as it is: fixed width, no
 * padding. */
struct ct_holding {
    uint64_t lineage; /* the last round in which all ranks had its state; 0: it holds none */
    uint64_t step;    /* completed */
    uint64_t digest;  /* of the state */
    uint64_t own[2];  /* the caller's */
};

/* Return the lowest rank with the highest step of `lineage`; -1 if no rank is of it. */
int ct_state_recovery_base(const struct ct_holding *all, int world, uint64_t lineage);

/* Return a rank of the base's lineage and step with another state than the base; -1 if none. */
int ct_state_recovery_diverged(const struct ct_holding *all, int world, int base);

/* Return whether both hold the same state. Lineages may differ: a rank that had not completed the
 * last recovery may hold it. */
bool ct_state_recovery_is_equal(const struct ct_holding *a, const struct ct_holding *b);

/* Return whether the base must broadcast its state: not if all hold it. */
bool ct_state_recovery_needed(const struct ct_holding *all, int world, int base);

#endif
