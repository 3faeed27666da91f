/* A group's helper: a thread that advances open non-blocking calls while the group's own thread
 * computes.
 *
 *     the group's thread                           the helper
 *     ct_..._start: one attempt; open?
 *     release ------------------------------------> wakes, owns the group
 *     computes                                      advances open calls, sleeps while it cannot
 *     ct_test: one load: over?
 *     ct_wait, ct_..._start: acquire <------------- returns it
 *     advances by itself, as fast as a blocking call
 *     release, when calls are still open
 *
 * At any moment one of the two owns the group, so for the rest of the library there is one thread.
 * A helper is created when a first request stays open, and ends with the group; while no request is
 * open it sleeps on a futex, and blocking calls never wake it. Where no thread can be created,
 * requests advance inside calls only. */
#ifndef CT_COLL_GROUP_HELPER_H
#define CT_COLL_GROUP_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_group;

/* The owner of the group. */
enum ct_helper_owner {
    CT_HELPER_NONE,     /* the group's thread; the helper sleeps, or there is none */
    CT_HELPER_OFFERED,  /* the first of the two that acquires it */
    CT_HELPER_OWNS,     /* the helper */
    CT_HELPER_RECALLED, /* the helper, which is to return it */
    CT_HELPER_ENDED,    /* the helper's thread ends */
};

struct ct_helper {
    bool disabled; /* by the group's options, or no thread could be created */
    bool created;
    pthread_t thread;
    _Atomic uint32_t owner; /* enum ct_helper_owner; a futex word */
};

/* The group's own thread calls all of these. */

/* Return whether the helper sleeps, or none exists: then this thread owns the group already. */
static inline bool ct_helper_is_idle(const struct ct_helper *helper)
{
    return !helper->created ||
           atomic_load_explicit(&helper->owner, memory_order_acquire) == CT_HELPER_NONE;
}

/* Acquire the group for this thread, until the release. */
void ct_helper_acquire(struct ct_group *group);

/* Release the group: the helper may own it while requests are open. */
void ct_helper_release(struct ct_group *group);

/* Return whether the helper owns the group: then this thread can only test requests. */
bool ct_helper_is_busy(const struct ct_group *group);

/* End the helper, and own the group for good. */
void ct_helper_end(struct ct_group *group);

#endif
