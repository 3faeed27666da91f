/* Symmetric memory: allocations of ct_mem_alloc, and how the other ranks of the node map them.
 *
 * An allocation is a memfd: a page for the header, then the user's bytes. It has no name, so that a
 * process that dies leaves nothing; its owner keeps the descriptor, through which others map it as
 * /proc/PID/fd/FD. Its size is sealed: a process that has it mapped may touch it, whatever the
 * owner does.
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

/* A place in memory: an allocation of this process, by its number (never used again; 0: in none),
 * and the offset from its start. */
struct ct_memory_place {
    uint64_t id, offset;
};

/* A handle of an allocation: threads of its process use `base`, other processes the rest. */
struct ct_memory_handle {
    uint64_t token[2]; /* random, also in the header */
    uint64_t bytes;    /* of the whole memfd */
    char *base;
    int32_t pid, fd;
};

void ct_memory_init(struct ct_memory *memory);

/* Free all allocations that are left. No mapping is attached any more. */
void ct_memory_deinit(struct ct_memory *memory);

/* Allocate zeroed memory. 0, or a code with its sentence. */
int ct_memory_alloc(struct ct_memory *memory, size_t bytes, void **ret_base, struct ct_error *err);

/* Free `base`, from ct_memory_alloc, or NULL. */
void ct_memory_free(struct ct_memory *memory, void *base);

/* Return the place of `bytes` bytes at `data`; id 0 if they do not lie in one allocation. */
struct ct_memory_place ct_memory_find(struct ct_memory *memory, const void *data, size_t bytes);

/* Return whether the allocation still exists. */
bool ct_memory_lives(struct ct_memory *memory, uint64_t id);

/* Return the handle of an existing allocation. */
struct ct_memory_handle ct_memory_handle(struct ct_memory *memory, uint64_t id);

/* Map the allocation behind the handle, or count one more user of its mapping. NULL if it cannot be
 * mapped here. */
struct ct_mapping *ct_memory_attach(struct ct_memory *memory,
                                    const struct ct_memory_handle *handle);
void ct_memory_detach(struct ct_memory *memory, struct ct_mapping *mapping);

/* Return the address of the user's first byte. */
char *ct_mapping_base(const struct ct_mapping *mapping);

/* Return whether the owner has freed it. */
bool ct_mapping_freed(const struct ct_mapping *mapping);

#endif
