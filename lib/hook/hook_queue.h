/* Events that are to be given to a hook: when each is tried, and when it is given up. Pure.
 *
 *   ct_hook_put --> WAITING --START--> RUNNING --it was taken--> gone
 *                    ^   |                | `--KILL when its time is over--> KILLED
 *                    |   `-- too many     |                                    |
 *                    |       wait: gone   v                                    |
 *                    `-- later -- it was not taken <---------------------------'
 *                                       `-- tried often enough: gone
 *
 * Of each job one event at a time, in the order in which they came: one that is tried again holds
 * up the later ones of its job, and no other job's. Entries are the caller's, a field of what he
 * keeps of an event; the queue only links them. */
#ifndef CT_HOOK_QUEUE_H
#define CT_HOOK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_HOOK_WAIT = 64,       /* events of one job that may wait */
    CT_HOOK_WAIT_ALL = 1024, /* of all jobs */
    CT_HOOK_AT_ONCE = 16,    /* that are being tried */
    CT_HOOK_TRIES = 7,       /* of one event */
    CT_HOOK_RETRY_MS = 250,  /* until the second; doubled for each further one: 16 s in all */
};

enum ct_hook_state { CT_HOOK_WAITING, CT_HOOK_RUNNING, CT_HOOK_KILLED };

struct ct_hook_entry {
    struct ct_hook_entry *next, *prev;
    uint64_t job;    /* a number for its name */
    uint64_t due_ms; /* WAITING: of the next try; RUNNING: when its time is over */
    uint32_t tries;
    enum ct_hook_state state;
};

struct ct_hook_queue {
    struct ct_hook_entry *first, *last; /* in the order in which they came */
    uint32_t count, running;
    uint64_t timeout_ms; /* of a try */
    uint64_t until_ms;   /* after which nothing is tried; UINT64_MAX: never */
};

enum ct_hook_act { CT_HOOK_NOTHING, CT_HOOK_START, CT_HOOK_KILL };

struct ct_hook_task {
    enum ct_hook_act act;
    struct ct_hook_entry *entry; /* NULL: NOTHING */
};

enum ct_hook_fate {
    CT_HOOK_TAKEN,
    CT_HOOK_AGAIN, /* it stays, and is tried again later */
    CT_HOOK_GIVEN_UP,
};

/* Initialise an empty queue. */
void ct_hook_queue_init(struct ct_hook_queue *queue, uint64_t timeout_ms);

/* Append an event of `job`. Returns one that has to go for it and is no more in the queue: the
 * oldest that waits, of the job or of all; NULL: there is room. */
struct ct_hook_entry *ct_hook_put(struct ct_hook_queue *queue, uint64_t now_ms,
                                  struct ct_hook_entry *entry, uint64_t job);

/* Return what is to be done now: one task a call, until there is none. */
struct ct_hook_task ct_hook_next(struct ct_hook_queue *queue, uint64_t now_ms);

/* Note how a try has ended. Unless AGAIN is returned the entry is no more in the queue. */
enum ct_hook_fate ct_hook_ended(struct ct_hook_queue *queue, uint64_t now_ms,
                                struct ct_hook_entry *entry, bool taken);

/* From now on nothing is tried that could not be before `until_ms`; a later time than given before
 * changes nothing. */
void ct_hook_finish(struct ct_hook_queue *queue, uint64_t until_ms);

/* Take out an entry that will not be tried, or whose try is not waited for, after ct_hook_finish's
 * time; NULL: none is left. */
struct ct_hook_entry *ct_hook_drop(struct ct_hook_queue *queue, uint64_t now_ms);

/* Return the time at which ct_hook_next or ct_hook_drop has something to do; UINT64_MAX: never. */
uint64_t ct_hook_deadline(const struct ct_hook_queue *queue);

#endif
