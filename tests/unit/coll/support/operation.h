/* One operation of a group with all that it is given, drawn or enumerated by a test; and its
 * performance by one rank: buffers made and filled, the call, the result against the plain
 * reference, canaries around every buffer, the input unchanged where it has to be.
 *
 *     struct operation operation = {.verb = OPERATION_ALL_REDUCE, .dtype = CT_F32, .count = 100};
 *     struct performance *p;
 *
 *     line = operation_start(group, &operation, &p);   the same operation at each member
 *     ...                                              operation_test, or operation_wait
 *     line = operation_finish(p, line);                checks the result, frees everything
 *
 * A line is 0, or that of the source where something was found wrong. */
#ifndef TEST_COLL_OPERATION_H
#define TEST_COLL_OPERATION_H

#include "ctrun.h"

enum operation_verb {
    OPERATION_ALL_REDUCE,
    OPERATION_REDUCE,
    OPERATION_BROADCAST,
    OPERATION_ALL_GATHER,
    OPERATION_REDUCE_SCATTER,
    OPERATION_GATHER,
    OPERATION_SCATTER,
    OPERATION_ALL_TO_ALL,
    OPERATION_MESSAGE,
    OPERATION_EXCHANGE,
    OPERATION_BARRIER,
    OPERATION_VERBS
};

struct operation {
    enum operation_verb verb;
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
bool operation_concerns(const struct operation *op, int rank);

/* The result is given to all members: they have to have the same bits. */
bool operation_is_for_all(const struct operation *op);

/* Make the call. A performance comes back in any case. */
int operation_start(struct ct_group *group, const struct operation *op, struct performance **ret_p);

/* 1 over, 0 not yet, negative: failed. */
int operation_test(struct performance *p);
int operation_wait(struct performance *p);

/* The hash of the result of an operation for all, once it is over. */
uint64_t operation_digest(const struct performance *p);

/* `line` is what was found before. */
int operation_finish(struct performance *p, int line);

/* All of it, and, of an operation for all, that members have the same bits (in FAST, where the
 * reference does not know the order). */
int operation_perform(struct ct_group *group, const struct operation *op);

/* "all_reduce of 17 F32, SUM, FAST, in place" */
void operation_print(const struct operation *op, char *text, size_t room);

#endif
