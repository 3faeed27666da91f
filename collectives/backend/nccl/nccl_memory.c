/* See nccl_memory.h. */
#include "backend/nccl/nccl_memory.h"

#include "backend/nccl/nccl_communicator.h"
#include "base/assert.h"

#include <stdlib.h>

/* ---- allocation ------------------------------------------------------------------------------*/

static int allocate(struct ct_nccl *nccl, const struct ct_accel *device,
                    struct ct_nccl_memory *made, struct ct_error *err)
{
    int code = device->enter(device->context);

    if (code != 0)
        return ct_error_set(err, code, "%s failed", device->name);
    int result = nccl->lib.ncclMemAlloc(&made->base, made->bytes);
    if (result != CT_NCCL_SUCCESS)
        return ct_nccl_error(&nccl->lib, NULL, result, "no memory of a device", err);
    code = device->zero(device->context, made->base, made->bytes);
    if (code == 0)
        return 0;
    (void)nccl->lib.ncclMemFree(made->base);
    return ct_error_set(err, code, "%s failed while memory was zeroed", device->name);
}

int ct_nccl_memory_new(void *resource, const struct ct_accel *device, size_t bytes, void **ret_base,
                       struct ct_error *err)
{
    struct ct_nccl *nccl = resource;
    const char *why = ct_nccl_lacks(&nccl->lib, CT_NCCL_WINDOWS);

    if (why != NULL)
        return ct_error_set(err, CT_EUNSUPPORTED, "no windows of NCCL's: %s", why);
    struct ct_nccl_memory *made = calloc(1, sizeof *made);
    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for an allocation");
    made->bytes = (bytes + CT_NCCL_WIN_ALIGN - 1) / CT_NCCL_WIN_ALIGN * CT_NCCL_WIN_ALIGN;
    (void)pthread_mutex_lock(&nccl->lock);
    int code = allocate(nccl, device, made, err);
    if (code == 0) {
        made->next = nccl->memories;
        nccl->memories = made;
        *ret_base = made->base;
    }
    ct_nccl_unlock(nccl);
    if (code != 0)
        free(made);
    return code;
}

static void give_back(struct ct_nccl *nccl, struct ct_nccl_memory *memory)
{
    struct ct_nccl_memory **link = &nccl->memories;

    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    (void)nccl->lib.ncclMemFree(memory->base);
    free(memory);
}

struct ct_nccl_memory *ct_nccl_memory_find(struct ct_nccl *nccl, const void *base)
{
    struct ct_nccl_memory *memory = nccl->memories;

    while (memory != NULL && (memory->base != base || memory->freed))
        memory = memory->next;
    return memory;
}

uint64_t ct_nccl_memory_bytes(void *resource, const void *base)
{
    struct ct_nccl *nccl = resource;
    uint64_t bytes = 0;

    (void)pthread_mutex_lock(&nccl->lock);
    const struct ct_nccl_memory *memory = ct_nccl_memory_find(nccl, base);
    if (memory != NULL)
        bytes = memory->bytes;
    ct_nccl_unlock(nccl);
    return bytes;
}

void ct_nccl_memory_use(struct ct_nccl_memory *memory)
{
    memory->users++;
}

void ct_nccl_memory_leave(struct ct_nccl *nccl, struct ct_nccl_memory *memory)
{
    CT_ASSERT(memory->users > 0);
    if (--memory->users == 0 && memory->freed)
        give_back(nccl, memory);
}

bool ct_nccl_memory_free(void *resource, void *base)
{
    struct ct_nccl *nccl = resource;

    (void)pthread_mutex_lock(&nccl->lock);
    struct ct_nccl_memory *memory = ct_nccl_memory_find(nccl, base);

    if (memory != NULL) {
        memory->freed = true;
        if (memory->users == 0)
            give_back(nccl, memory);
    }
    ct_nccl_unlock(nccl);
    return memory != NULL;
}

void ct_nccl_memory_close(struct ct_nccl *nccl)
{
    struct ct_nccl_memory *next;

    for (struct ct_nccl_memory *memory = nccl->memories; memory != NULL; memory = next) {
        next = memory->next;
        if (memory->users == 0)
            give_back(nccl, memory);
    }
    while (nccl->memories != NULL) { /* an aborted communicator may still refer to these */
        struct ct_nccl_memory *memory = nccl->memories;

        nccl->memories = memory->next;
        free(memory);
    }
}

/* ---- windows ---------------------------------------------------------------------------------*/

int ct_nccl_communicator_cover(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               struct ct_nccl_memory *const *memories, int count,
                               struct ct_error *err)
{
    int code = ct_nccl_communicator_poll(nccl, communicator, err);

    while (code == 1 && communicator->view_count < count) {
        struct ct_nccl_view *view = &communicator->views[communicator->view_count];
        struct ct_nccl_memory *memory = memories[communicator->view_count];

        *view = (struct ct_nccl_view){.memory = memory};
        int result = nccl->lib.ncclCommWindowRegister(
            communicator->comm, memory->base, memory->bytes, &view->window, CT_NCCL_WIN_SYMMETRIC);
        if (result != CT_NCCL_SUCCESS && result != CT_NCCL_IN_PROGRESS)
            return ct_nccl_error(&nccl->lib, communicator->comm, result,
                                 "memory cannot be registered (collectives.windows: false does "
                                 "without)",
                                 err);
        ct_nccl_memory_use(memory);
        communicator->view_count++;
        code = ct_nccl_communicator_poll(nccl, communicator, err);
    }
    return code;
}

void ct_nccl_views_close(const struct ct_nccl_library *lib, struct ct_nccl_comm *comm,
                         struct ct_nccl_view *views, int count, bool at_rest)
{
    for (int i = 0; i < count && at_rest; i++)
        if (views[i].window != NULL &&
            lib->ncclCommWindowDeregister(comm, views[i].window) == CT_NCCL_SUCCESS)
            views[i].window = NULL;
}

void ct_nccl_views_leave(struct ct_nccl *nccl, const struct ct_nccl_view *views, int count)
{
    for (int i = 0; i < count; i++)
        if (views[i].window == NULL)
            ct_nccl_memory_leave(nccl, views[i].memory);
}
