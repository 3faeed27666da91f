/* The inside of a group: its requests, and creation with tuning for tests. */
#ifndef CT_COLL_GROUP_H
#define CT_COLL_GROUP_H

#include "backend/backend.h"
#include "group/helper.h"

struct ct_request {
    struct ct_group *group;
    struct ct_request *next_free;
    struct ct_task task;
    uint64_t timeout_ms;
    uint64_t number;        /* of a collective, among the group's, from 1; 0: a transfer */
    uint64_t first_test_ns; /* 0: not tested yet */
    uint64_t entry, queued; /* in the flight recorder; ticks */
    bool started;
    _Atomic bool over; /* written last, after the code */
    int code;
};

/* The messages of an exchange from one rank or to it, which move one at a time. */
struct ct_transfer_queue {
    struct ct_task task;
    size_t next; /* index in the list from which to search for the next one */
    bool busy;
};

/* A small-message call that was posted and recorded before it became a request. */
struct ct_small_call {
    bool posted;
    uint64_t number, entry, queued; /* as in the request that it becomes */
};

struct ct_group {
    struct ct_job *job;
    const struct ct_backend *backend;
    void *state;
    int rank, size;
    int *ranks;                    /* of the members, in the job */
    char *key;                     /* unique in the round: "world/1" */
    const char *wanted;            /* the requested backend, or "auto" */
    bool encrypt;                  /* as requested */
    const struct ct_accel *device; /* where the buffers lie; NULL: in the host's memory */
    struct ct_tuning tuning;       /* as given */
    struct ct_tuning sizes;        /* in effect */
    enum ct_algorithm last;        /* of the last collective */
    uint64_t splits;               /* how often it was split */
    struct ct_transfer_queue *transfer_queues; /* [direction][peer] */
    uint64_t timeout_ms;
    _Atomic bool revoked;
    _Atomic int broken; /* 0, or failure.code: then the failure does not change any more */
    struct ct_error failure;
    struct ct_helper helper;
    bool waiting; /* in a blocking call: the helper does not advance it */
    struct ct_request *free;
    struct ct_request *queue[CT_REQUESTS_MAX]; /* not over, in the order of their start */
    int queued;
    _Atomic uint64_t moves;           /* of all tasks: a waiter polls it */
    uint64_t collectives;             /* started */
    struct ct_small_call posted_call; /* posted: the request that is started next */
    uint64_t waited_ns;               /* in ct_wait, altogether */
    struct ct_record_group *record;   /* never NULL once the group has formed */
    struct ct_record_group unread;    /* its record without an agent */
    struct ct_flight_ring *flight;    /* NULL: without an agent */
    struct ct_request requests[CT_REQUESTS_MAX];
};

/* Check that `name` is a backend's or "auto", and whether it moves a device's memory. 0, or
 * CT_EUSAGE with a sentence that lists the names. */
int ct_backend_check(const char *name, bool *ret_on_device, struct ct_error *err);

/* Do as ct_group_new, with sizes that reach the rare paths. */
int ct_group_new_tuned(struct ct_job *job, const struct ct_group_options *options,
                       const struct ct_tuning *tuning, struct ct_group **ret_group,
                       struct ct_error *err);

/* Do as ct_group_new_tuned without checking the options: ranks may be in any order. `parent`: the
 * group that it is split from, or NULL. */
int ct_group_make(struct ct_job *job, const struct ct_group_options *options,
                  const struct ct_tuning *tuning, const struct ct_group *parent,
                  struct ct_group **ret_group, struct ct_error *err);

/* Queue a call that ct_call_complete has checked; `timeout_ms` 0: the group's. 0, CT_ELIMIT, or the
 * code of a broken group. */
int ct_request_start(struct ct_group *group, const struct ct_call *call, uint64_t timeout_ms,
                     struct ct_request **ret_request);

/* End all open requests, and all that will be started, with `code`; the sentence is in
 * group->failure already. */
void ct_group_break(struct ct_group *group, int code);

/* Advance all that can advance now. The owner of the group (helper.h) calls. */
void ct_group_advance(struct ct_group *group);

/* Return 0, or the code that the group is broken with. */
static inline int ct_group_broken(const struct ct_group *group)
{
    return atomic_load_explicit(&group->broken, memory_order_acquire);
}

#endif
