/* See job_resource.h. The list only grows while the job lives, so readers take no lock. */
#include "job/job_resource.h"

#include "job/job.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ct_job_resource {
    struct ct_job_resource *next;
    const struct ct_job_resource_type *type;
    void *resource;
};

static struct ct_job_resource *find(struct ct_job_resource *entry,
                                    const struct ct_job_resource_type *type)
{
    while (entry != NULL && entry->type != type)
        entry = entry->next;
    return entry;
}

void *ct_job_resource(const struct ct_job *job, const struct ct_job_resource_type *type)
{
    const struct ct_job_resource *entry = find(atomic_load(&job->resources), type);

    return entry != NULL ? entry->resource : NULL;
}

void *ct_job_resource_keep(struct ct_job *job, const struct ct_job_resource_type *type,
                           void *resource)
{
    struct ct_job_resource *made = malloc(sizeof *made), *head = atomic_load(&job->resources);

    if (made == NULL)
        return NULL;
    do {
        const struct ct_job_resource *present = find(head, type);

        if (present != NULL) {
            free(made);
            return present->resource;
        }
        *made = (struct ct_job_resource){.next = head, .type = type, .resource = resource};
    } while (!atomic_compare_exchange_weak(&job->resources, &head, made));
    return resource;
}

void ct_job_resources_give_up(struct ct_job *job)
{
    for (struct ct_job_resource *entry = atomic_load(&job->resources); entry != NULL;
         entry = entry->next)
        if (entry->type->give_up != NULL)
            entry->type->give_up(entry->resource);
}

void ct_job_resources_close(struct ct_job *job)
{
    struct ct_job_resource *entry = atomic_exchange(&job->resources, NULL);

    while (entry != NULL) {
        struct ct_job_resource *next = entry->next;

        entry->type->close(job, entry->resource);
        free(entry);
        entry = next;
    }
}

/* ---- memory of devices -----------------------------------------------------------------------*/

int ct_mem_alloc_on(struct ct_job *job, const struct ct_accel *device, size_t bytes,
                    void **ret_memory, struct ct_error *err)
{
    const struct ct_job_resource *entry = atomic_load(&job->resources);
    struct ct_error unread = {0};

    err = err != NULL ? err : &unread;
    if (bytes == 0)
        return ct_error_set(err, CT_EUSAGE, "an allocation of %zu bytes", bytes);
    while (entry != NULL && entry->type->memory_new == NULL)
        entry = entry->next;
    if (entry == NULL)
        return ct_error_set(err, CT_EUNSUPPORTED, "no group of this job is on backend nccl");
    return entry->type->memory_new(entry->resource, device, bytes, ret_memory, err);
}

bool ct_job_device_memory_free(struct ct_job *job, void *memory)
{
    for (struct ct_job_resource *entry = atomic_load(&job->resources);
         memory != NULL && entry != NULL; entry = entry->next)
        if (entry->type->memory_free != NULL && entry->type->memory_free(entry->resource, memory))
            return true;
    return false;
}

uint64_t ct_job_device_memory_bytes(struct ct_job *job, const void *memory)
{
    uint64_t bytes = 0;

    for (struct ct_job_resource *entry = atomic_load(&job->resources);
         memory != NULL && entry != NULL && bytes == 0; entry = entry->next)
        if (entry->type->memory_bytes != NULL)
            bytes = entry->type->memory_bytes(entry->resource, memory);
    return bytes;
}
