/* Runs the lists of all ranks of a plan together and finds a rank that waits for ever.
 *
 *     rank 0   exchange ----.   all_reduce ---.
 *     rank 1   exchange ----'   F0 B0 ...     '--- all_reduce      each goes on as far as it can
 *
 * Every rank has its two queues; an op that only computes is over at once. A collective is over
 * when the op at hand of each member of its group is that collective; a message when it is in the
 * op at hand of both sides; an exchange with its last message. An op that can run later can run now
 * as well, so one order is enough: when no rank can continue and one is not at its end, they wait
 * for ever. */
#ifndef TESTS_LIB_DEADLOCK_CHECK_H
#define TESTS_LIB_DEADLOCK_CHECK_H

#include "collectives/plan/plan.h"

/* Play the steps, or the evaluations, of the `world` ranks' plans, where no message is buffered and
 * a collective ends when all its members are there. 0, or CT_EBUG with the rank and the op that
 * would wait for ever, or with the members that do not do the same, or CT_ENOMEM. */
int deadlock_check(const struct ct_plan *plans, int world, bool evaluation, struct ct_error *err);

#endif
