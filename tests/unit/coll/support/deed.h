/* A deed: one operation of a group with all that it is given, drawn or enumerated by a test; and
 * its performance by one rank: buffers made and filled, the call, the result against the plain
 * reference, canaries around every buffer, the input unchanged where it has to be.
 *
 *     struct deed deed = {.verb = DEED_ALL_REDUCE, .dtype = CT_F32, .count = 100, ...};
 *     struct performance *p;
 *
 *     line = deed_start(group, &deed, &p);      the same deed at each member
 *     ...                                       deed_test, or deed_wait
 *     line = deed_finish(p, line);              looks at the result, frees everything
 *
 * A line is 0, or that of the source where something was found wrong. */
#ifndef TEST_COLL_DEED_H
#define TEST_COLL_DEED_H

#include "ctrun.h"

enum deed_verb {
    DEED_ALL_REDUCE,
    DEED_REDUCE,
    DEED_BROADCAST,
    DEED_ALL_GATHER,
    DEED_REDUCE_SCATTER,
    DEED_GATHER,
    DEED_SCATTER,
    DEED_ALL_TO_ALL,
    DEED_MESSAGE,
    DEED_EXCHANGE,
    DEED_BARRIER,
    DEED_VERBS
};

struct deed {
    enum deed_verb verb;
    enum ct_dtype dtype;
    enum ct_reduce reduce;
    enum ct_reduce_mode mode;
    size_t count;   /* of the buffer or of each part; the most a part or a message has when they
                     * are drawn */
    int root, peer; /* a message goes from root to peer */
    bool in_place;  /* where the operation has such a form */
    bool uneven;    /* the v form, where there is one: parts of drawn lengths */
    bool blocking;  /* the form without a handle */
    bool symmetric; /* buffers of ct_mem_alloc */
    uint32_t tag;
    uint64_t seed; /* of all that is drawn; every member draws the same */
    size_t base;   /* where in the reference's input it begins: another base, other data */
};

struct performance;

/* Does `rank` make a call? All do, but for a message. */
bool deed_concerns(const struct deed *deed, int rank);

/* The result is given to all members: they have to have the same bits. */
bool deed_is_for_all(const struct deed *deed);

/* Make the call. A performance comes back in any case. */
int deed_start(struct ct_group *group, const struct deed *deed, struct performance **ret_p);

/* 1 over, 0 not yet, negative: failed. */
int deed_test(struct performance *p);
int deed_wait(struct performance *p);

/* The hash of the result of a deed for all, once it is over. */
uint64_t deed_digest(const struct performance *p);

/* `line` is what was found before. */
int deed_finish(struct performance *p, int line);

/* All of it, and, of a deed for all, that members have the same bits (in FAST, where the reference
 * does not know the order). */
int deed_perform(struct ct_group *group, const struct deed *deed);

/* "all_reduce of 17 F32, SUM, FAST, in place" */
void deed_print(const struct deed *deed, char *text, size_t room);

#endif
