/* See symmetric_memory.h. */
#include "job/symmetric_memory.h"

#include "base/assert.h"
#include "job/job.h"
#include "job/job_resource.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first page of the memfd. */
enum { HEADER_BYTES = 4096 };
struct header {
    uint64_t token[2];
    _Atomic uint32_t freed;
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "a page");

struct ct_allocation {
    struct ct_allocation *next;
    uint64_t id;
    char *memory;
    size_t bytes; /* of the memfd */
    int fd;
};

struct ct_mapping {
    struct ct_mapping *next;
    char *memory;
    size_t bytes;
    int users;
};

enum { HUGE_FROM_BYTES = 4 << 20 }; /* pages of 2 MiB are worth their rounding */

static struct header *header_of(void *memory)
{
    return memory;
}

void ct_memory_init(struct ct_memory *memory)
{
    *memory = (struct ct_memory){0};
    (void)pthread_mutex_init(&memory->lock, NULL);
}

/* Map the whole memfd; NULL with errno set. */
static char *map_all(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_FROM_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a kernel without them does without */
    return memory;
}

/* ---- the owner -------------------------------------------------------------------------------*/

static int os_error(struct ct_error *err, const char *what, size_t bytes)
{
    int code = -errno;

    return ct_error_set(err, code, "%s for %zu bytes of shared memory failed: %s", what, bytes,
                        strerrordesc_np(-code));
}

/* Descriptor, size, seals, mapping, header. What is half made is the caller's to close. */
static int fill(struct ct_allocation *made, struct ct_error *err)
{
    struct header header = {0};

    made->fd = memfd_create("ctrun-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made->fd < 0)
        return os_error(err, "memfd_create", made->bytes);
    if (ftruncate(made->fd, (off_t)made->bytes) != 0)
        return os_error(err, "ftruncate", made->bytes);
    if (fcntl(made->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return os_error(err, "sealing", made->bytes);
    made->memory = map_all(made->fd, made->bytes);
    if (made->memory == NULL)
        return os_error(err, "mmap", made->bytes);
    if (getrandom(header.token, sizeof header.token, 0) != sizeof header.token)
        return os_error(err, "getrandom", made->bytes);
    memcpy(header_of(made->memory)->token, header.token, sizeof header.token);
    return 0;
}

static void close_allocation(struct ct_allocation *allocation)
{
    if (allocation->memory != NULL)
        (void)munmap(allocation->memory, allocation->bytes);
    if (allocation->fd >= 0)
        (void)close(allocation->fd);
    free(allocation);
}

int ct_memory_alloc(struct ct_memory *memory, size_t bytes, void **ret_base, struct ct_error *err)
{
    struct ct_allocation *made;
    int code;

    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return ct_error_set(err, CT_EUSAGE, "an allocation of %zu bytes", bytes);
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for an allocation");
    made->bytes = HEADER_BYTES + (bytes + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
    code = fill(made, err);
    if (code != 0) {
        close_allocation(made);
        return code;
    }
    (void)pthread_mutex_lock(&memory->lock);
    made->id = ++memory->last_id;
    made->next = memory->own;
    memory->own = made;
    (void)pthread_mutex_unlock(&memory->lock);
    *ret_base = made->memory + HEADER_BYTES;
    return 0;
}

/* Others may have it mapped for as long as they do not look; the pages need not wait for that. */
static void retire(struct ct_allocation *allocation)
{
    atomic_store(&header_of(allocation->memory)->freed, 1);
    (void)fallocate(allocation->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HEADER_BYTES,
                    (off_t)(allocation->bytes - HEADER_BYTES));
    close_allocation(allocation);
}

/* What points to the allocation whose user part is `base`. */
static struct ct_allocation **link_of(struct ct_memory *memory, const void *base)
{
    struct ct_allocation **link = &memory->own;

    while (*link != NULL && (*link)->memory + HEADER_BYTES != base)
        link = &(*link)->next;
    CT_ASSERT(*link != NULL);
    return link;
}

void ct_memory_free(struct ct_memory *memory, void *base)
{
    if (base == NULL)
        return;
    (void)pthread_mutex_lock(&memory->lock);
    struct ct_allocation **link = link_of(memory, base), *found = *link;
    *link = found->next;
    (void)pthread_mutex_unlock(&memory->lock);
    retire(found);
}

void ct_memory_deinit(struct ct_memory *memory)
{
    CT_ASSERT(memory->mapped == NULL);
    while (memory->own != NULL) {
        struct ct_allocation *allocation = memory->own;

        memory->own = allocation->next;
        retire(allocation);
    }
    (void)pthread_mutex_destroy(&memory->lock);
}

struct ct_memory_place ct_memory_find(struct ct_memory *memory, const void *data, size_t bytes)
{
    struct ct_memory_place place = {0};
    uintptr_t at = (uintptr_t)data;

    (void)pthread_mutex_lock(&memory->lock);
    for (const struct ct_allocation *a = memory->own; a != NULL && place.id == 0; a = a->next) {
        uintptr_t base = (uintptr_t)a->memory + HEADER_BYTES;
        size_t room = a->bytes - HEADER_BYTES;

        if (at >= base && at - base <= room && bytes <= room - (at - base))
            place = (struct ct_memory_place){a->id, at - base};
    }
    (void)pthread_mutex_unlock(&memory->lock);
    return place;
}

bool ct_memory_lives(struct ct_memory *memory, uint64_t id)
{
    bool found = false;

    (void)pthread_mutex_lock(&memory->lock);
    for (const struct ct_allocation *a = memory->own; a != NULL; a = a->next)
        found = found || a->id == id;
    (void)pthread_mutex_unlock(&memory->lock);
    return found;
}

struct ct_memory_handle ct_memory_handle(struct ct_memory *memory, uint64_t id)
{
    struct ct_memory_handle handle = {.pid = getpid()};
    const struct ct_allocation *a;

    (void)pthread_mutex_lock(&memory->lock);
    for (a = memory->own; a->id != id; a = a->next)
        CT_ASSERT(a->next != NULL);
    memcpy(handle.token, header_of(a->memory)->token, sizeof handle.token);
    handle.bytes = a->bytes;
    handle.base = a->memory + HEADER_BYTES;
    handle.fd = a->fd;
    (void)pthread_mutex_unlock(&memory->lock);
    return handle;
}

/* ---- the others ------------------------------------------------------------------------------*/

/* What lies behind the handle, of the size it says and with its token; or NULL. */
static char *map(const struct ct_memory_handle *handle)
{
    char path[64];
    struct stat status;
    char *memory = NULL;

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_size == handle->bytes)
        memory = map_all(fd, handle->bytes);
    (void)close(fd);
    if (memory == NULL)
        return NULL;
    if (memcmp(header_of(memory)->token, handle->token, sizeof handle->token) == 0)
        return memory;
    (void)munmap(memory, handle->bytes);
    return NULL;
}

static struct ct_mapping *find_mapping(struct ct_memory *memory,
                                       const struct ct_memory_handle *handle)
{
    struct ct_mapping *m = memory->mapped;

    while (m != NULL &&
           memcmp(header_of(m->memory)->token, handle->token, sizeof handle->token) != 0)
        m = m->next;
    return m;
}

struct ct_mapping *ct_memory_attach(struct ct_memory *memory, const struct ct_memory_handle *handle)
{
    (void)pthread_mutex_lock(&memory->lock);
    struct ct_mapping *mapping = find_mapping(memory, handle);
    char *mapped = mapping == NULL ? map(handle) : NULL;

    if (mapped != NULL)
        mapping = calloc(1, sizeof *mapping);
    if (mapped != NULL && mapping == NULL)
        (void)munmap(mapped, handle->bytes);
    if (mapped != NULL && mapping != NULL) {
        *mapping = (struct ct_mapping){memory->mapped, mapped, handle->bytes, 0};
        memory->mapped = mapping;
    }
    if (mapping != NULL)
        mapping->users++;
    (void)pthread_mutex_unlock(&memory->lock);
    return mapping;
}

void ct_memory_detach(struct ct_memory *memory, struct ct_mapping *mapping)
{
    struct ct_mapping **link = &memory->mapped;

    (void)pthread_mutex_lock(&memory->lock);
    bool last = --mapping->users == 0;
    while (last && *link != mapping)
        link = &(*link)->next;
    if (last)
        *link = mapping->next;
    (void)pthread_mutex_unlock(&memory->lock);
    if (!last)
        return;
    (void)munmap(mapping->memory, mapping->bytes);
    free(mapping);
}

char *ct_mapping_base(const struct ct_mapping *mapping)
{
    return mapping->memory + HEADER_BYTES;
}

bool ct_mapping_freed(const struct ct_mapping *mapping)
{
    return atomic_load(&header_of(mapping->memory)->freed) != 0;
}

/* ---- the public face -------------------------------------------------------------------------*/

int ct_mem_alloc(struct ct_job *job, size_t bytes, void **ret_memory, struct ct_error *err)
{
    struct ct_error unread = {0};

    return ct_memory_alloc(&job->memory, bytes, ret_memory, err != NULL ? err : &unread);
}

void ct_mem_free(struct ct_job *job, void *memory)
{
    if (!ct_job_device_memory_free(job, memory))
        ct_memory_free(&job->memory, memory);
}
