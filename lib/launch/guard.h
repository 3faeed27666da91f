/* A small process beside the agent that ends its workers' remaining processes, however the agent
 * ends.
 *
 *     agent <--- a table of workers, in memory that both see ---> guard
 *       |                                            a surviving worker is moved
 *       x  SIGKILL: the kernel kills its workers     into a cgroup (cgroup.h),
 *       :  (spawn.h), not their descendants          where that is allowed
 *       :.. the connection has ended ................> SIGKILL to the process groups that
 *                                                      are not empty, to the cgroup, and to
 *                                                      processes outside both (strays.h);
 *                                                      its temporary folder is removed
 *
 * It is a fork of the agent that no signal ends and that holds no descriptor but its connection.
 *
 * A program that starts the agent may send a signal to all its descendants: the agent, the guard,
 * each worker. The agent need not forward a signal that the guard has received this way. */
#ifndef CT_LAUNCH_GUARD_H
#define CT_LAUNCH_GUARD_H

#include "launch/failure/exit.h"
#include "launch/strays.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CT_GUARD_WORKERS = 4096,              /* more are not looked after */
    CT_GUARD_MARKS = 8 * CT_MARK_TEXT + 1 /* of so many agents inside of each other */
};

struct ct_guard_table; /* what both see */

struct ct_guard {
    int link;  /* -1: there is no guard. It never says anything: readable once it has ended */
    pid_t pid; /* of the guard */
    char marks[CT_GUARD_MARKS]; /* CT_ENV_MARKS of the workers; "": none */
    struct ct_guard_table *table;
};

/* Start it; only while the agent has one thread and no loop. Without one, ctrun does without.
 * `folder` (an absolute path, "": none) is removed when the agent ends without ct_guard_stop. */
void ct_guard_start(struct ct_guard *guard, const char *folder);

/* Set the process of a worker; 0 when none of its processes runs any more. */
void ct_guard_set(const struct ct_guard *guard, uint32_t local_rank, pid_t pid);

/* Notify the guard of new workers in the table. */
void ct_guard_notify(const struct ct_guard *guard);

/* Return whether the guard itself has received this signal within the last second, from an ancestor
 * of the agent (or an invisible process). Each signal is reported once. */
bool ct_guard_received(const struct ct_guard *guard, int signal);

/* Reap a guard that has closed its end of `link` (which then is readable), and return its exit.
 * `link` is closed and must not be in a loop. */
struct ct_exit ct_guard_bury(struct ct_guard *guard);

/* Let it do its work, and wait for its end. */
void ct_guard_stop(struct ct_guard *guard);

#endif
