/* Symmetric memory: allocations of ct_mem_alloc, and how the other ranks of the node map them.
 *
 * An allocation is a memfd: a page for the header, then the user's bytes. It has no name, so that a
 * process that dies leaves nothing; its owner keeps the descriptor, through which others map it as
 * /proc/PID/fd/FD. Its size is sealed: whoever has it mapped may touch it, whatever the owner does.
 *
 *     owner   alloc  id 7 ............................ free: header says so, pages go back at once
 *     peer           handle of id 7 -> attach ........ freed? -> detach
 *
 * A process maps an allocation of another once, however many of its groups use it. All functions
 * may be called from any thread. */
#ifndef CT_COLL_JOB_SYMMETRIC_MEMORY_H
#define CT_COLL_JOB_SYMMETRIC_MEMORY_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_allocation;
struct ct_mapping;

/* One process's allocations, and those of others that it has mapped. */
struct ct_memory {
    pthread_mutex_t lock; /* of what follows */
    struct ct_allocation *own;
    struct ct_mapping *mapped;
    uint64_t last_id;
};

/* Where bytes lie: an allocation of this process, by its number (never used again; 0: in none), and
 * how far behind its start. */
struct ct_memory_place {
    uint64_t id, offset;
};

/* How to get at an allocation: as a thread of its process, by `base`; from elsewhere by the rest.
 */
struct ct_memory_handle {
    uint64_t token[2]; /* random, also in the header */
    uint64_t bytes;    /* of the whole memfd */
    char *base;
    int32_t pid, fd;
};

void ct_memory_init(struct ct_memory *memory);

/* Gives back what was not freed. Nothing is attached any more. */
void ct_memory_deinit(struct ct_memory *memory);

int ct_memory_alloc(struct ct_memory *memory, size_t bytes, void **ret_base, struct ct_error *err);

/* `base` is what ct_memory_alloc gave, or NULL. */
void ct_memory_free(struct ct_memory *memory, void *base);

/* The place of `bytes` bytes at `data`, that of id 0 when they do not lie in one allocation. */
struct ct_memory_place ct_memory_find(struct ct_memory *memory, const void *data, size_t bytes);

/* Is it there still? */
bool ct_memory_lives(struct ct_memory *memory, uint64_t id);

/* The handle of a living allocation. */
struct ct_memory_handle ct_memory_handle(struct ct_memory *memory, uint64_t id);

/* Map the allocation behind the handle, or count one more user of its mapping. NULL when that is
 * not possible here. */
struct ct_mapping *ct_memory_attach(struct ct_memory *memory,
                                    const struct ct_memory_handle *handle);
void ct_memory_detach(struct ct_memory *memory, struct ct_mapping *mapping);

/* The first of the user's bytes. */
char *ct_mapping_base(const struct ct_mapping *mapping);

/* Has the owner freed it? */
bool ct_mapping_freed(const struct ct_mapping *mapping);

#endif
