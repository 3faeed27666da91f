/* The times of a job around its steps: start, round, recovery, from the costs of job_cost.def.
 *
 *     start      spawn + round + groups                    a node's workers, until the first step
 *     round      hops + N join                             N connections, one thread of the daemon
 *     recovery   regroup + hops + N lost + groups + step   a lost node whose connection closes;
 *                                                          + lease where it falls silent
 *     groups     rank + R member + R^2 read + log2 R calls   R ranks find each other: a group over
 *                                                          tcp of all, and its first call of 16 B
 *
 * Up to CT_JOB_WHOLE_ROSTER nodes each node gets the whole roster: N^2 pair on top of N join. Not
 * in it: what a worker does before it joins (reading data, building its plan), and a state that a
 * newcomer copies. */
#ifndef CT_PLANNER_JOB_TIME_H
#define CT_PLANNER_JOB_TIME_H

#include "collectives/planner/machine.h"

enum {
    CT_JOB_WHOLE_ROSTER = 1024, /* rendezvous/service: larger rounds are told in short form */
    CT_JOB_GROUP_RANKS = 65536, /* lib/wire/signature.h: the most of a group */
};

struct ct_job_times {
    double start_s, round_s;
    double groups_s;     /* 0: more ranks than a group may have */
    double recovery_s;   /* a node whose connection closes */
    double silent_s;     /* a node that falls silent: a lease on top */
    double lease_s;      /* the shortest that so many nodes may have, but 5 s at least */
    double beats_share;  /* of a core: the daemon's, for heartbeats */
    double memory_bytes; /* the daemon's */
};

/* Return the times of a job on `machine` whose steps take `step_s`; `tls`: with a key. */
struct ct_job_times ct_job_times(const struct ct_machine *machine, bool tls, double step_s);

#endif
