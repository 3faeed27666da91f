/* Conferring: before the agent of a node ends a rank that gives no sign, each other node of the
 * round must have said that its ranks give none either: else they may wait for a rank that works.
 *
 *     node 0   quiet      asks 1: quiet, 2: no, 2: no ...  2: quiet, 1: quiet, 2: quiet    all are
 *     node 1   quiet      asks 2: no ...
 *     node 2   .  .  .  .  works  .  .  .  .  quiet        asks 0: quiet, 1: quiet, ...    all are
 *
 * Nodes are asked one after the other, so a job that has one at work costs one request at a time;
 * twice, so that one that went on meanwhile is heard. Pure. */
#ifndef CT_DIAGNOSE_CONFER_H
#define CT_DIAGNOSE_CONFER_H

#include <stdbool.h>
#include <stdint.h>

struct ct_confer {
    uint32_t self, nodes;
    uint32_t next;  /* the node to be asked */
    uint64_t quiet; /* that were, one after the other */
};

/* Begin, as node `self` of `nodes`, at least two. */
void ct_confer_begin(struct ct_confer *confer, uint32_t self, uint32_t nodes);

/* Note the answer of node `next`. True: all are quiet; no more is to be asked. */
bool ct_confer_hear(struct ct_confer *confer, bool is_quiet);

#endif
