/* Is a history of concurrent operations on one object linearizable?
 *
 *      client 0   |--set 1--|        |---get = 2---|
 *      client 1        |----set 2----|                     yes: set 1, set 2, get = 2
 *                                                          no, if the get had answered 1
 *
 * Every answered operation must have taken effect at one moment between its invocation and its
 * answer; one without an answer at any moment after its invocation, or never. The search is that of
 * Wing and Gong ("Testing and verifying concurrent objects", 1993) with Lowe's memory of visited
 * configurations ("Testing for linearizability", 2017): a set of operations that have taken effect
 * together with the state that they left is never looked at twice, nor one of which only more open
 * operations have taken effect for the same answers and state.
 *
 * Operations without an answer are tried last: they take effect when nothing else explains an
 * answer. Histories of several objects are checked one object at a time. */
#ifndef TESTS_HISTORY_LINEAR_H
#define TESTS_HISTORY_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINEAR_OPEN UINT64_MAX

struct linear_op {
    uint64_t begin_ns, end_ns; /* invocation, answer; LINEAR_OPEN: none */
    const void *what;          /* the model's */
};

/* The state of an object. */
struct linear_state {
    int64_t a, b;
};

/* Could the operation take effect in this state with the answer that it got? If so, the state
 * afterwards. An open one has no answer that could contradict. */
typedef bool (*linear_apply_fn)(const struct linear_op *op, struct linear_state before,
                                struct linear_state *ret_after);

enum linear_result {
    LINEAR_YES,
    LINEAR_NO,
    LINEAR_GAVE_UP, /* more configurations than allowed */
    LINEAR_NO_MEMORY,
};

struct linear_verdict {
    enum linear_result result;
    size_t visited; /* configurations */
    size_t placed;  /* of LINEAR_NO: answered operations in the longest order that was found ... */
    size_t stuck;   /* ... and the one, as an index, whose answer no order beyond explains */
};

/* Search for an order of `ops` (any order, begin <= end) that `apply` allows, from `first`, within
 * `most` configurations. */
struct linear_verdict linear_check(const struct linear_op *ops, size_t count,
                                   struct linear_state first, linear_apply_fn apply, size_t most);

#endif
