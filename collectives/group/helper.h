/* A group's helper: a thread that advances open non-blocking calls while the group's own thread
 * computes.
 *
 *     the group's thread                           the helper
 *     ct_..._start: one attempt; open?
 *     leaves: offer ------------------------------> wakes, takes the group
 *     computes                                      advances open calls, sleeps while it cannot
 *     ct_test: one load: over?
 *     ct_wait, ct_..._start: take <---------------- gives it back
 *     advances by itself, as fast as a blocking call
 *     leaves: offer, when calls are still open
 *
 * At any moment one of the two owns the group, so for the rest of the library there is one thread.
 * A helper is made when a first request stays open, and ends with the group; while nothing is open
 * it sleeps on a futex, and blocking calls never wake it. Where no thread can be made, requests
 * advance inside calls only. */
#ifndef CT_COLL_GROUP_HELPER_H
#define CT_COLL_GROUP_HELPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_group;

/* Who has the group. */
enum ct_helper_turn {
    CT_HELPER_NONE,    /* the group's thread; the helper sleeps, or there is none */
    CT_HELPER_OFFERED, /* who comes first */
    CT_HELPER_HAS,     /* the helper */
    CT_HELPER_ASKED,   /* the helper, who is to give it back */
    CT_HELPER_ENDS,    /* nobody any more */
};

struct ct_helper {
    bool refused; /* the group's options say so, or there was no thread to be had */
    bool made;
    pthread_t thread;
    _Atomic uint32_t turn; /* enum ct_helper_turn; a futex word */
};

/* All by the group's own thread. */

/* Does it sleep, or is there none? Then the group is this thread's already. */
static inline bool ct_helper_rests(const struct ct_helper *helper)
{
    return !helper->made ||
           atomic_load_explicit(&helper->turn, memory_order_acquire) == CT_HELPER_NONE;
}

/* Enter: the group is this thread's until it leaves. */
void ct_helper_take(struct ct_group *group);

/* Leave: the helper may have the group when requests are open. */
void ct_helper_offer(struct ct_group *group);

/* Is the helper at work? Then there is nothing to do but look whether a request is over. */
bool ct_helper_works(const struct ct_group *group);

/* Take the group for good. */
void ct_helper_end(struct ct_group *group);

#endif
