/* The inside of a job: the declarations that groups need. */
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

/* Where ranks live: node i holds ranks first_rank .. first_rank + slots - 1. */
struct ct_job_node {
    int first_rank;
    int slots;
    char address[256]; /* where other nodes reach its workers; "" when only loopback does */
};

struct ct_job {
    struct ct_assignment assignment;
    struct ct_job_node *nodes;          /* assignment.nnodes of them, ascending by rank */
    struct ct_kv kv;                    /* no functions in a job of its own */
    const struct ct_control_page *page; /* may be NULL: never revoked */
    struct ct_worker_record *record;    /* may be NULL: nobody watches */
    struct ct_job_link *link;           /* NULL without an agent */
    struct ct_job_state *state;         /* see job_state.h; NULL: no step has begun */
    struct ct_job_names *names;
    struct ct_memory memory;
    _Atomic(struct ct_job_resource *) resources; /* of backends; job_resource.h */
    /* Instead of ending this process; NULL: end it. */
    void (*give_up)(struct ct_job *job, const struct ct_error *why);
    struct ct_thread_world *world; /* ranks are threads of this process; else NULL */
    const struct ct_seat *seat;    /* of a thread, set by tests (domains.h); else NULL */
    char run_id[129];
};

/* What starts processes of a job without an agent, and gives them ranks: mpirun. */
struct ct_job_launcher {
    /* Has it started this process, beside others? */
    bool (*launched)(void);
    /* Fill `job`, of which `memory` and `names` are there. 0, or a code with its sentence. */
    int (*open)(struct ct_job *job, struct ct_error *err);
};
extern const struct ct_job_launcher ct_launcher_mpi;

/* A call of a driver does not return: this process can neither go on nor exit, as its exit would
 * wait for the same driver. Tell the agent why, and end it by SIGKILL. */
void ct_job_give_up(struct ct_job *job, const struct ct_error *why);

/* Tell the agent which folder the training writes to: workers that it starts later write there,
 * too. 0, or the code of a broken link. */
int ct_job_output(struct ct_job *job, const char *folder);

/* The process writes into its record which program it runs. Nothing without a record. */
void ct_job_introduce(struct ct_job *job);

/* It waits for its agent: nobody minds how long. */
void ct_job_away(struct ct_job *job);

/* The node of a rank. */
const struct ct_job_node *ct_job_node(const struct ct_job *job, int rank);

#endif
