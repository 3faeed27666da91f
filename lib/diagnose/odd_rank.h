/* The odd one: of ranks that all give no sign, the one at fault, by what their processes and their
 * stacks show. The others wait for it in a collective.
 *
 *   rule, the first that holds     the rank
 *   STOPPED                        is stopped by a signal
 *   DISK                           waits for a disk or a file system, without end
 *   BEHIND                         has called fewer collectives of a group than others have
 *   OUTSIDE                        is in no collective, while others are in one
 *   ELSEWHERE                      is at another line than most, or in another collective
 *   DIFFER                         two, or two halves, that differ: both lines are told
 *   SAME                           all are at one line: nobody is odd
 *   ALONE                          there is no other
 *   UNKNOWN                        no stack could be had
 *
 * Pure. The result does not depend on the order of equals: the lowest rank of them is named. */
#ifndef CT_DIAGNOSE_ODD_RANK_H
#define CT_DIAGNOSE_ODD_RANK_H

#include "base/bytes.h"
#include "diagnose/python_stack.h"
#include "diagnose/torch_flight.h"

enum ct_odd_kind {
    CT_ODD_STOPPED,
    CT_ODD_DISK,
    CT_ODD_BEHIND,
    CT_ODD_OUTSIDE,
    CT_ODD_ELSEWHERE,
    CT_ODD_DIFFER,
    CT_ODD_SAME,
    CT_ODD_ALONE,
    CT_ODD_UNKNOWN,
};

/* A rank that gives no sign. */
struct ct_hung_rank {
    uint32_t rank;
    int pid;
    char host[64];
    char doing[128];              /* "sleeping (pipe_read)" */
    char state;                   /* of its process, as in /proc */
    bool works;                   /* it uses the processor */
    struct ct_python_place place; /* `known`: false without a stack */
    struct ct_python_place child; /* where a descendant of it is, if it is known */
    int child_pid;
    struct ct_torch_flight flight; /* group_count 0: it keeps no record that could be had */
};

struct ct_odd {
    enum ct_odd_kind kind;
    size_t culprit; /* index */
    size_t other;   /* one of those that it is compared with; the culprit itself without any */
    size_t others;  /* how many are where `other` is */
    uint64_t calls; /* BEHIND: the most calls of `group`, the culprit's index of it */
    size_t group;
};

/* Find it among `count` ranks, at least one. */
void ct_odd_find(const struct ct_hung_rank *ranks, size_t count, struct ct_odd *ret_odd);

/* Append "rank 3 (host b, pid 4711) hangs at /home/me/train.py:31 (step), outside of any
 * collective; 7 ranks wait in all_reduce at /home/me/train.py:40 (main); no sign of life for
 * 31.2 s; its process is sleeping (pipe_read)" */
void ct_odd_print(const struct ct_odd *odd, const struct ct_hung_rank *ranks, size_t count,
                  uint64_t silent_ms, struct ct_buf *to);

#endif
