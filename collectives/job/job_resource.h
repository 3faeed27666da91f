/* A resource that a backend keeps in a job for all of its groups, across rounds: a library with its
 * communicators, a worker with its endpoints. A job knows no backend by name: it closes its
 * resources, notifies them when the process gives up, and requests memory that is registered
 * with its groups. */
#ifndef CT_COLL_JOB_RESOURCE_H
#define CT_COLL_JOB_RESOURCE_H

#include "ctrun.h"

struct ct_job_resource_type {
    const char *name; /* "nccl" */

    /* Free it, at the job's end; no group is left. */
    void (*close)(struct ct_job *job, void *resource);

    /* Note that this process has failed and will end. NULL: nothing to do. */
    void (*give_up)(void *resource);

    /* Device memory that the backend's groups can register (ctrun.h, part "memory"); all NULL:
     * none. `memory_new`: allocate it zeroed; 0, or CT_EUNSUPPORTED, CT_ENOMEM with the sentence.
     * `memory_free`: free it; false when it is no such memory. `memory_bytes`: return its size,
     * rounded up; 0: no such memory. */
    int (*memory_new)(void *resource, const struct ct_accel *device, size_t bytes, void **ret_base,
                      struct ct_error *err);
    bool (*memory_free)(void *resource, void *base);
    uint64_t (*memory_bytes)(void *resource, const void *base);
};

struct ct_job_resource; /* an entry of the job's list */

/* Return the job's resource of this type; NULL if none. Any thread. */
void *ct_job_resource(const struct ct_job *job, const struct ct_job_resource_type *type);

/* Keep `resource` as the job's only one of its type. Return the one that the job has then: if
 * another thread was first, `resource` stays the caller's. NULL: no memory. Any thread. */
void *ct_job_resource_keep(struct ct_job *job, const struct ct_job_resource_type *type,
                           void *resource);

/* Notify all that this process has failed and will end. */
void ct_job_resources_give_up(struct ct_job *job);

/* Close all, the newest first. */
void ct_job_resources_close(struct ct_job *job);

/* Free device memory; return false if no resource has allocated it. NULL is fine. */
bool ct_job_device_memory_free(struct ct_job *job, void *memory);

/* Return its size, rounded up; 0: no such memory of this job's. */
uint64_t ct_job_device_memory_bytes(struct ct_job *job, const void *memory);

#endif
