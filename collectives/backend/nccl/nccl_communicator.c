/* See nccl_communicator.h: communicators at work. Their end is nccl_end.c's. */
#include "backend/nccl/nccl_communicator.h"

#include "backend/nccl/nccl_kept.h"
#include "base/assert.h"
#include "job/job_resource.h"

#include <stdlib.h>

/* ---- the job's -------------------------------------------------------------------------------*/

static void discard(struct ct_nccl *nccl)
{
    (void)pthread_mutex_destroy(&nccl->lock);
    free(nccl);
}

static void close_resource(struct ct_job *job, void *resource)
{
    struct ct_nccl *nccl = resource;

    while (nccl->kept != NULL)
        ct_nccl_kept_end(job, nccl, nccl->kept);
    if (nccl->hung)
        return;
    ct_nccl_memory_close(nccl);
    discard(nccl);
}

static const struct ct_job_resource_type resource_type = {.name = "nccl",
                                                          .close = close_resource,
                                                          .memory_new = ct_nccl_memory_new,
                                                          .memory_free = ct_nccl_memory_free,
                                                          .memory_bytes = ct_nccl_memory_bytes};

static int open_library(struct ct_nccl **ret_nccl, struct ct_error *err)
{
    struct ct_nccl *made = calloc(1, sizeof *made);

    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for NCCL's table");
    int code = ct_nccl_library_load(&made->lib, err);
    if (code != 0) {
        free(made);
        return code;
    }
    (void)pthread_mutex_init(&made->lock, NULL);
    *ret_nccl = made;
    return 0;
}

/* Another thread may come first. */
int ct_nccl_of_job(struct ct_job *job, struct ct_nccl **ret_nccl, struct ct_error *err)
{
    struct ct_nccl *made = NULL;

    *ret_nccl = ct_job_resource(job, &resource_type);
    if (*ret_nccl != NULL)
        return 0;
    int code = open_library(&made, err);
    if (code != 0)
        return code;
    CT_ASSERT(made != NULL);
    *ret_nccl = ct_job_resource_keep(job, &resource_type, made);
    if (*ret_nccl != made)
        discard(made);
    return *ret_nccl != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "no memory for NCCL's table");
}

bool ct_nccl_try_lock(struct ct_nccl *nccl)
{
    return pthread_mutex_trylock(&nccl->lock) == 0;
}

void ct_nccl_unlock(struct ct_nccl *nccl)
{
    (void)pthread_mutex_unlock(&nccl->lock);
}

/* ---- communicators ---------------------------------------------------------------------------*/

static int device_error(const struct ct_nccl_communicator *communicator, int code,
                        struct ct_error *err)
{
    return ct_error_set(err, code, "%s failed while NCCL worked on it: %s",
                        communicator->device->name, ct_strerror(code));
}

static void list(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator)
{
    communicator->next = nccl->communicators;
    nccl->communicators = communicator;
}

int ct_nccl_communicator_open(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              const struct ct_accel *device, struct ct_error *err)
{
    *communicator = (struct ct_nccl_communicator){.device = device};
    int code = device->enter(device->context);

    if (code == 0)
        code = device->stream_new(device->context, &communicator->stream);
    if (code == 0)
        code = device->event_new(device->context, &communicator->before);
    for (int i = 0; i < CT_NCCL_RING && code == 0; i++)
        code = device->event_new(device->context, &communicator->events[i]);
    (void)pthread_mutex_lock(&nccl->lock);
    list(nccl, communicator);
    ct_nccl_unlock(nccl);
    return code == 0 ? 0 : device_error(communicator, code, err);
}

void ct_nccl_communicator_list(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               const struct ct_accel *device)
{
    *communicator = (struct ct_nccl_communicator){.device = device};
    list(nccl, communicator);
}

/* Nothing is shared with a parent: shared flags would end both. */
struct ct_nccl_config ct_nccl_config(void)
{
    return (struct ct_nccl_config){.size = sizeof(struct ct_nccl_config),
                                   .magic = (unsigned)CT_NCCL_CONFIG_MAGIC,
                                   .version = CT_NCCL_CONFIG_VERSION,
                                   .blocking = 0,
                                   .cga_cluster_size = CT_NCCL_UNDEFINED,
                                   .min_ctas = CT_NCCL_UNDEFINED,
                                   .max_ctas = CT_NCCL_UNDEFINED,
                                   .net_name = NULL,
                                   .split_share = 0};
}

static bool went_well(int result)
{
    return result == CT_NCCL_SUCCESS || result == CT_NCCL_IN_PROGRESS;
}

int ct_nccl_communicator_form(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              int rank, int size, struct ct_nccl_id *ids, int count,
                              struct ct_error *err)
{
    struct ct_nccl_config config = ct_nccl_config();
    int result = count > 1 ? nccl->lib.ncclCommInitRankScalable(&communicator->comm, size, rank,
                                                                count, ids, &config)
                           : nccl->lib.ncclCommInitRankConfig(&communicator->comm, size, ids[0],
                                                              rank, &config);

    return went_well(result)
               ? 0
               : ct_nccl_error(&nccl->lib, NULL, result, "a communicator cannot be made", err);
}

/* The new one stays NULL until it is whole: the parent is asked. */
int ct_nccl_communicator_split(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                               struct ct_nccl_communicator *parent, int colour, int key,
                               struct ct_error *err)
{
    struct ct_nccl_config config = ct_nccl_config();

    CT_ASSERT(parent->launched == parent->done && !parent->busy);
    int result = nccl->lib.ncclCommSplit(parent->comm, colour, key, &communicator->comm, &config);
    return went_well(result) ? 0
                             : ct_nccl_error(&nccl->lib, parent->comm, result,
                                             "a communicator cannot be split", err);
}

int ct_nccl_communicator_poll(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                              struct ct_error *err)
{
    const struct ct_accel *device = communicator->device;
    int state = CT_NCCL_SUCCESS;

    if (communicator->aborted)
        return ct_error_set(err, CT_EREVOKED, "the round was revoked");
    if (communicator->comm == NULL)
        return 0;
    int result = nccl->lib.ncclCommGetAsyncError(communicator->comm, &state);
    if (result == CT_NCCL_SUCCESS && state == CT_NCCL_IN_PROGRESS)
        return 0;
    if (result != CT_NCCL_SUCCESS || state != CT_NCCL_SUCCESS)
        return ct_nccl_error(&nccl->lib, communicator->comm,
                             result != CT_NCCL_SUCCESS ? result : state, "a communicator failed",
                             err);
    if (communicator->busy) {
        int code = device->record(device->context,
                                  communicator->events[communicator->launched % CT_NCCL_RING],
                                  communicator->stream);
        if (code != 0)
            return device_error(communicator, code, err);
        communicator->busy = false;
    }
    return 1;
}

int ct_nccl_communicator_follow(struct ct_nccl_communicator *communicator, void *stream)
{
    const struct ct_accel *device = communicator->device;
    int code = device->enter(device->context);

    if (stream == NULL || code != 0)
        return code;
    code = device->record(device->context, communicator->before, stream);
    return code != 0 ? code
                     : device->wait(device->context, communicator->stream, communicator->before);
}

int ct_nccl_communicator_launched(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator,
                                  int result, struct ct_error *err)
{
    if (!went_well(result))
        return ct_nccl_error(&nccl->lib, communicator->comm, result, "a call was refused", err);
    CT_ASSERT(!communicator->busy && communicator->launched - communicator->done < CT_NCCL_RING);
    communicator->launched++;
    communicator->busy = true;
    int code = ct_nccl_communicator_poll(nccl, communicator, err);
    return code < 0 ? code : 0;
}

void ct_nccl_communicator_revoke(struct ct_nccl *nccl, struct ct_nccl_communicator *communicator)
{
    if (communicator->comm == NULL || communicator->revoked || nccl->lib.ncclCommRevoke == NULL)
        return;
    communicator->revoked = true;
    communicator->leaves = went_well(nccl->lib.ncclCommRevoke(communicator->comm, 0));
}

int ct_nccl_communicator_query(struct ct_nccl_communicator *communicator, struct ct_error *err)
{
    const struct ct_accel *device = communicator->device;
    uint64_t last = communicator->launched - communicator->busy;

    while (communicator->done < last) {
        int code = device->query(device->context,
                                 communicator->events[(communicator->done + 1) % CT_NCCL_RING]);

        if (code == 0)
            return 0;
        if (code < 0)
            return device_error(communicator, code, err);
        communicator->done++;
    }
    return 0;
}
