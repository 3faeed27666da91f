/* The thread world from the inside: memory that its ranks share for backend thread. */
#ifndef CT_COLL_JOB_THREAD_MEMORY_H
#define CT_COLL_JOB_THREAD_MEMORY_H

#include "job/thread_world.h"

/* `bytes` of zeroed memory for `members` ranks, touched only where used. NULL without memory. */
void *ct_world_segment_new(struct ct_thread_world *world, size_t bytes, int members);
void *ct_world_segment_memory(void *segment);

/* One member is done with it. The memory goes with the last one, or with the world. */
void ct_world_segment_leave(void *segment);

#endif
