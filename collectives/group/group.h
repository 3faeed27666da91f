/* A group from the inside: its requests, and creation with tuning for tests. */
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
    uint64_t turn, queued;  /* in the flight recorder; ticks */
    bool started;
    _Atomic bool over; /* with the code; the last thing that is written */
    int code;
};

/* The messages of an exchange from one rank or to it: one at a time. */
struct ct_group_lane {
    struct ct_task task;
    size_t next; /* where in the list to look for the next one */
    bool busy;
};

/* A call that has been told to its peers, and recorded, before there was a request. */
struct ct_posted_call {
    bool posted;
    uint64_t number, turn, queued; /* as in the request that it becomes */
};

struct ct_group {
    struct ct_job *job;
    const struct ct_backend *backend;
    void *state;
    int rank, size;
    int *ranks;                    /* of the members, in the job */
    char *key;                     /* unique in the round: "world/1" */
    const char *wanted;            /* the backend that was asked for, or "auto" */
    bool encrypt;                  /* as asked for */
    const struct ct_accel *device; /* where the buffers lie; NULL: in the host's memory */
    struct ct_tuning tuning;       /* as given */
    struct ct_tuning sizes;        /* as they are */
    enum ct_algorithm last;        /* how the last collective went */
    uint64_t splits;               /* how often it was split */
    struct ct_group_lane *lanes;   /* [direction][peer] */
    uint64_t timeout_ms;
    _Atomic bool revoked;
    _Atomic int broken; /* 0, or failure.code: then nothing of it changes any more */
    struct ct_error failure;
    struct ct_helper helper;
    bool waiting; /* in a blocking form: what it starts is not for the helper */
    struct ct_request *free;
    struct ct_request *queue[CT_REQUESTS_MAX]; /* not over, in the order of their start */
    int queued;
    _Atomic uint64_t moves;         /* of all tasks: what a waiter watches */
    uint64_t collectives;           /* started */
    struct ct_posted_call early;    /* posted: the request that is started next */
    uint64_t waited_ns;             /* in ct_wait, altogether */
    struct ct_record_group *record; /* never NULL once the group has formed */
    struct ct_record_group unread;  /* its record when nobody watches */
    struct ct_flight_ring *flight;  /* NULL: nobody watches */
    struct ct_request requests[CT_REQUESTS_MAX];
};

/* Is `name` a backend's, or "auto"? 0, and whether it moves a device's memory; CT_EUSAGE with the
 * sentence that lists them. */
int ct_backend_check(const char *name, bool *ret_on_device, struct ct_error *err);

/* As ct_group_new, with sizes that reach the rare paths. */
int ct_group_new_tuned(struct ct_job *job, const struct ct_group_options *options,
                       const struct ct_tuning *tuning, struct ct_group **ret_group,
                       struct ct_error *err);

/* As ct_group_new_tuned, without a look at the options: ranks may come in any order. `parent`: what
 * it is a part of; or NULL. */
int ct_group_make(struct ct_job *job, const struct ct_group_options *options,
                  const struct ct_tuning *tuning, const struct ct_group *parent,
                  struct ct_group **ret_group, struct ct_error *err);

/* Queue a call that ct_call_complete has checked; `timeout_ms` 0: the group's. 0, CT_ELIMIT, or the
 * code of a broken group. */
int ct_request_start(struct ct_group *group, const struct ct_call *call, uint64_t timeout_ms,
                     struct ct_request **ret_request);

/* End all that is open, and all that will be started, with `code`; the sentence is in
 * group->failure already. */
void ct_group_break(struct ct_group *group, int code);

/* Everything that can advance now. By who has the group (helper.h). */
void ct_group_advance(struct ct_group *group);

/* 0, or the code that the group is broken with. */
static inline int ct_group_broken(const struct ct_group *group)
{
    return atomic_load_explicit(&group->broken, memory_order_acquire);
}

#endif
