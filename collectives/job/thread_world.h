/* A whole job inside one process: N ranks as threads, for replicas of one process and for tests.
 *
 *     struct ct_thread_world *world;
 *     ct_thread_world_new(4, &world);
 *     ct_thread_world_job(world, rank)       for the thread of each rank, which makes its groups
 *     ct_thread_world_free(world);
 *
 * Groups made here use backend "thread" unless "shm" or "tcp" is requested. Everything is in the
 * world object: two worlds may exist at the same time. */
#ifndef CT_COLL_JOB_THREAD_WORLD_H
#define CT_COLL_JOB_THREAD_WORLD_H

#include "ctrun.h"

struct ct_thread_world;

/* Make a world of `world` ranks (1 .. 64). 0 or CT_ENOMEM. */
int ct_thread_world_new(int world, struct ct_thread_world **ret_world);

/* Make one as if on `nodes` nodes with equally many ranks, which reach each other by loopback. 0 or
 * CT_ENOMEM. */
int ct_thread_world_new_nodes(int world, int nodes, struct ct_thread_world **ret_world);

/* Free the world, whose jobs are not in use any more. NULL is fine. */
void ct_thread_world_free(struct ct_thread_world *world);

/* Return rank `rank`'s job, which the world owns: never pass it to ct_job_close. */
struct ct_job *ct_thread_world_job(struct ct_thread_world *world, int rank);

/* Revoke the round for every rank, as agents do when a member is lost. Any thread. */
void ct_thread_world_revoke(struct ct_thread_world *world);

#endif
