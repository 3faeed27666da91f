/* A whole job inside one process: N ranks as threads, for tests.
 *
 *     static int body(struct ct_job *job, void *context)   runs once a rank, each on its thread
 *     {
 *         struct ct_group *group;
 *         int code = ct_group_new(job, NULL, &group, NULL);
 *         ...
 *     }
 *     struct ct_thread_world *world;
 *     ct_thread_world_new(4, &world);
 *     int code = ct_thread_world_run(world, body, &shared);  the first non-zero return, or 0
 *     ct_thread_world_free(world);
 *
 * Groups made here use backend "thread" unless "shm" or "tcp" is requested. Everything is in the
 * world object: two worlds may exist at the same time. */
#ifndef CT_COLL_JOB_THREAD_WORLD_H
#define CT_COLL_JOB_THREAD_WORLD_H

#include "ctrun.h"

struct ct_seat;
struct ct_thread_world;

/* A world of `world` ranks (1 .. 64). 0 or CT_ENOMEM. */
int ct_thread_world_new(int world, struct ct_thread_world **ret_world);

/* The same, as if on `nodes` nodes with equally many ranks, which reach each other by loopback. */
int ct_thread_world_new_nodes(int world, int nodes, struct ct_thread_world **ret_world);

/* The jobs must not be in use any more. NULL is fine. */
void ct_thread_world_free(struct ct_thread_world *world);

/* Each rank as if it ran in its seat (domains.h); `seats` outlives the world. For groups that are
 * made from now on. */
void ct_thread_world_seat(struct ct_thread_world *world, const struct ct_seat *seats);

/* Rank `rank`'s job, for programs that start their own threads. Belongs to the world: never given
 * to ct_job_close. */
struct ct_job *ct_thread_world_job(struct ct_thread_world *world, int rank);

/* Start a thread a rank with `body`, wait for all of them. Returns the first (by rank) non-zero
 * result. May be called again. */
int ct_thread_world_run(struct ct_thread_world *world,
                        int (*body)(struct ct_job *job, void *context), void *context);

/* What the agents do when a member is lost: the round is over for every rank. Any thread. */
void ct_thread_world_revoke(struct ct_thread_world *world);

/* The next round, of the same ranks: a program whose ranks are fewer makes groups of those. All
 * groups are freed. */
void ct_thread_world_next(struct ct_thread_world *world);

#endif
