/* The inside of the thread world: memory that its ranks share for backend thread. */
#ifndef CT_COLL_JOB_THREAD_MEMORY_H
#define CT_COLL_JOB_THREAD_MEMORY_H

#include "job/thread_world.h"

/* Allocate `bytes` of zeroed memory for `members` ranks; pages are used only when touched. NULL
 * without memory. */
void *ct_world_segment_new(struct ct_thread_world *world, size_t bytes, int members);
void *ct_world_segment_memory(void *segment);

/* Leave it: the last member frees the memory, or the world does. */
void ct_world_segment_leave(void *segment);

#endif
