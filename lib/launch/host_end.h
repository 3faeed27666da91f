/* Decides when the node that hosts the rendezvous may end after its workers: others learn from it
 * that the job is over, and a job that continues without this node's workers still needs it.
 *
 *   released, the job runs  YIELD   another node can serve as well: it is asked to
 *                           STAY    without workers, until one can, or the job is over
 *   released, it did serve  STAY    until another one does
 *   else, others connected  WAIT    so that they learn it, for at most CT_HOST_WAIT_MS
 *   else                    CLOSE
 *
 * Pure. */
#ifndef CT_LAUNCH_HOST_END_H
#define CT_LAUNCH_HOST_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_HOST_WAIT_MS = 2000 }; /* a lost node never leaves */

enum ct_host_end { CT_HOST_CLOSE, CT_HOST_WAIT, CT_HOST_STAY, CT_HOST_YIELD };

struct ct_host_view {
    bool alone;         /* the job has no other nodes */
    bool forced;        /* somebody insists on the end */
    bool released;      /* this node has left a job that goes on */
    bool can_yield;     /* another node can serve it */
    bool unserved;      /* this one served it, and no other does yet */
    size_t jobs;        /* that are not over and have nodes, connected or not */
    size_t links;       /* connections of other nodes, and of commands */
    uint64_t waited_ms; /* since this node ended, or since the job did when it stayed */
};

enum ct_host_end ct_host_next(const struct ct_host_view *view);

/* Return whether a leaving node may wait for the next step boundary: only while connected, since
 * the rendezvous announces it, and only with workers that survive a round. */
bool ct_host_boundary_comes(bool connected, bool lives_on);

#endif
