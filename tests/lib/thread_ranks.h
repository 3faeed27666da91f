/* Ranks as threads of one process, which a test starts all together.
 *
 *     static int body(struct ct_job *job, void *context)   runs once a rank, each on its thread
 *     {
 *         struct ct_group *group;
 *         int code = ct_group_new(job, NULL, &group, NULL);
 *         ...
 *     }
 *     struct ct_thread_world *world;
 *     ct_thread_world_new(4, &world);
 *     int code = thread_ranks_run(world, body, &shared);   the first non-zero return, or 0
 *     ct_thread_world_free(world);
 */
#ifndef TESTS_LIB_THREAD_RANKS_H
#define TESTS_LIB_THREAD_RANKS_H

#include "job/thread_world.h"

struct ct_seat;

/* Start a thread a rank with `body`, wait for all of them. Returns the first (by rank) non-zero
 * result. May be called again. */
int thread_ranks_run(struct ct_thread_world *world, int (*body)(struct ct_job *job, void *context),
                     void *context);

/* Each rank as if it ran in its seat (domains.h); `seats` outlives the world. For groups that are
 * made from now on. */
void thread_ranks_seat(struct ct_thread_world *world, const struct ct_seat *seats);

/* The next round, of the same ranks: a program whose ranks are fewer makes groups of those. All
 * groups are freed. */
void thread_ranks_next_round(struct ct_thread_world *world);

#endif
