/* Device memory registered with communicators: allocated by ncclMemAlloc, registered as a window.
 *
 *     ct_nccl_memory_new            alloc, zeroed   local; the job's, it outlives groups and rounds
 *     ct_nccl_communicator_cover    register        collective, same memories in the same order
 *     ct_nccl_views_close           deregister      local, no kernel of the communicator runs
 *     ct_nccl_memory_free           free            at once, or with the last window on it
 *
 * A window is symmetric: all ranks have one of the same size, and calls of members use the same
 * part of it. NCCL refuses one silently, by success without a handle, where GPUs do not reach each
 * other's memory; calls work all the same. A whole allocation is one window: several on one were
 * corrupted before NCCL 2.31.2 (NVIDIA/nccl issue 2198).
 *
 * NCCL does not deregister at an abort: so windows are closed before it, when the communicator is
 * idle. One that does not become idle keeps its windows, and their memory stays allocated until the
 * process ends. */
#ifndef CT_COLL_NCCL_MEMORY_H
#define CT_COLL_NCCL_MEMORY_H

#include "backend/nccl/nccl_library.h"
#include "base/accel.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_nccl;
struct ct_nccl_communicator;

struct ct_nccl_memory {
    struct ct_nccl_memory *next;
    void *base;
    size_t bytes;
    int users;  /* views and groups */
    bool freed; /* by its owner */
};

/* The registration of a memory with a communicator. */
struct ct_nccl_view {
    struct ct_nccl_memory *memory;
    struct ct_nccl_window *window; /* NULL: refused, or not there yet. NCCL writes it late */
};

enum { CT_NCCL_VIEWS = 4 };

/* The next three are functions of job_resource.h: `resource` is a struct ct_nccl.
 *
 * Allocate zeroed memory of `device`. 0, CT_EUNSUPPORTED with the reason, or CT_ENOMEM. */
int ct_nccl_memory_new(void *resource, const struct ct_accel *device, size_t bytes, void **ret_base,
                       struct ct_error *err);

/* Free `base`; return false when it is no such memory. */
bool ct_nccl_memory_free(void *resource, void *base);

/* Return its size, rounded up; 0: no such memory of this job's. */
uint64_t ct_nccl_memory_bytes(void *resource, const void *base);

/* Free all that is left, at the job's end, but memory that is still in use. */
void ct_nccl_memory_close(struct ct_nccl *nccl);

/* The functions below are called under the job's lock. */

/* Return the memory that begins at `base`; NULL if none. */
struct ct_nccl_memory *ct_nccl_memory_find(struct ct_nccl *nccl, const void *base);

/* Count one user more; one less. */
void ct_nccl_memory_use(struct ct_nccl_memory *memory);
void ct_nccl_memory_leave(struct ct_nccl *nccl, struct ct_nccl_memory *memory);

/* Register those of `memories` that are not yet registered with the communicator, one after the
 * other: call it until it is not 0. 1: all are; negative: NCCL failed. */
int ct_nccl_communicator_cover(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               struct ct_nccl_memory *const *memories, int count,
                               struct ct_error *err);

/* Deregister `count` views of `comm` if it is idle (`at_rest`). Without the lock. */
void ct_nccl_views_close(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                         struct ct_nccl_view *views, int count, bool at_rest);

/* After that, under the lock: count one user less of each memory without a window. */
void ct_nccl_views_leave(struct ct_nccl *nccl, const struct ct_nccl_view *views, int count);

#endif
