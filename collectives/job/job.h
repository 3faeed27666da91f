/* The inside of a job, for groups. */
#ifndef CT_COLL_JOB_H
#define CT_COLL_JOB_H

#include "ctrun.h"
#include "job/job_names.h"
#include "job/symmetric_memory.h"
#include "kv.h"
#include "wire/control_page.h"
#include "wire/worker_record.h"

struct ct_job_link; /* the worker's link to its agent; job_link.h */
struct ct_job_resource;
struct ct_job_state;
struct ct_seat;
struct ct_thread_world;

/* The placement of ranks: node i holds ranks first_rank .. first_rank + slots - 1. */
struct ct_job_node {
    int first_rank;
    int slots;
};

struct ct_job {
    struct ct_assignment assignment;
    struct ct_job_node *nodes; /* assignment.nnodes of them, ascending by rank */
    char address[256]; /* at which other nodes reach this one's workers; "": loopback only */
    struct ct_kv kv;   /* no functions in a job of its own */
    const struct ct_control_page *page; /* may be NULL: never revoked */
    struct ct_worker_record *record;    /* NULL without an agent */
    struct ct_job_link *link;           /* NULL without an agent */
    struct ct_job_state *state;         /* see job_state.h; NULL: no step has begun */
    struct ct_job_names *names;
    struct ct_memory memory;
    _Atomic(struct ct_job_resource *) resources; /* of backends; job_resource.h */
    /* Called instead of ending this process; NULL: end it. */
    void (*give_up)(struct ct_job *job, const struct ct_error *why);
    struct ct_thread_world *world; /* ranks are threads of this process; else NULL */
    const struct ct_seat *seat;    /* of a thread, set by tests (domains.h); else NULL */
    char run_id[129];
};

/* A launcher that starts processes of a job without an agent, and assigns ranks: mpirun. */
struct ct_job_launcher {
    /* Return whether it has started this process. */
    bool (*launched)(void);
    /* Fill `job`, whose `memory` and `names` are set. 0, or a code with its sentence. */
    int (*open)(struct ct_job *job, struct ct_error *err);
};
extern const struct ct_job_launcher ct_launcher_mpi;

/* Give this process up, because a call of a driver does not return: it can neither continue nor
 * exit, as its exit would wait for the same driver. Report `why` to the agent, and end by
 * SIGKILL. */
void ct_job_give_up(struct ct_job *job, const struct ct_error *why);

/* Write into the worker's record which program it runs. Do nothing without a record. */
void ct_job_introduce(struct ct_job *job);

/* Note in the record that this process waits for its agent, without a deadline. */
void ct_job_away(struct ct_job *job);

/* Return the node of a rank, in O(log nodes). */
const struct ct_job_node *ct_job_node(const struct ct_job *job, int rank);

#endif
