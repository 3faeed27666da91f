/* Memory of the device, of the host where it is pinned, copies (runtime.h).
 *
 *     far    [ ...... | allocation | ...... | allocation | ...]    what the program has: no access
 *     near   [ ...... | allocation | ...... | allocation | ...]    the same, for kernels and copies
 *
 * Pages between allocations, and those of memory that was given back, are accessible in neither. */
#include "runtime.h"

#include "base/assert.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPAN ((size_t)1 << 38)

enum { PAGE = 4096, ALLOCATIONS_MAX = 1 << 14, PINNED_MAX = 1 << 12, UNSET_BYTE = 0xff };

struct range {
    char *at;
    size_t bytes;
};

static struct {
    pthread_mutex_t mutex;
    char *far, *near;
    size_t used, taken; /* of the span so far; bytes that are allocated now */
    struct range allocations[ALLOCATIONS_MAX], pinned[PINNED_MAX];
    int allocation_count, pinned_count;
} memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    (void)pthread_mutex_lock(&memory.mutex);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&memory.mutex);
}

static struct range *find(struct range *ranges, int count, const void *at, size_t bytes)
{
    const char *first = at;

    for (int i = 0; i < count; i++)
        if (first >= ranges[i].at && first + bytes <= ranges[i].at + ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool is_far(const void *at)
{
    const char *address = at;

    return memory.far != NULL && address >= memory.far && address < memory.far + SPAN;
}

void *hostcuda_near(const void *at)
{
    char *address = (char *)(uintptr_t)at;

    return is_far(at) ? memory.near + (address - memory.far) : address;
}

bool hostcuda_is_reachable(const void *at)
{
    lock();
    bool reachable =
        at == NULL || is_far(at) || find(memory.pinned, memory.pinned_count, at, 0) != NULL;
    unlock();
    return reachable;
}

/* ---- the device's ---------------------------------------------------------------------------- */

static char *reserve(void)
{
    char *at = mmap(NULL, SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CT_ASSERT(at != MAP_FAILED);
    return at;
}

static size_t room(void)
{
    const char *text = getenv("HOSTCUDA_MEMORY");

    return text != NULL ? strtoull(text, NULL, 10) : (size_t)8 << 30;
}

/* Up to the last page of it, which ends with an allocation of whole 256 bytes. */
static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static cudaError_t allocate(void **ret_memory, size_t bytes)
{
    if (memory.far == NULL) {
        memory.near = reserve();
        memory.far = reserve();
    }
    if (bytes > room() || memory.taken > room() - bytes ||
        memory.allocation_count == ALLOCATIONS_MAX ||
        memory.used + whole_pages(bytes) + PAGE > SPAN)
        return cudaErrorMemoryAllocation;
    char *near = memory.near + memory.used;

    CT_ASSERT(mprotect(near, whole_pages(bytes), PROT_READ | PROT_WRITE) == 0);
    memset(near, UNSET_BYTE, bytes);
    *ret_memory = memory.far + memory.used;
    memory.allocations[memory.allocation_count++] = (struct range){*ret_memory, bytes};
    memory.used += whole_pages(bytes) + PAGE;
    memory.taken += bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **ret_memory, size_t bytes)
{
    cudaError_t error = hostcuda_forbidden() ? cudaErrorStreamCaptureUnsupported : hostcuda_state();

    if (error != cudaSuccess)
        return hostcuda_error(error);
    lock();
    error = allocate(ret_memory, bytes);
    unlock();
    return hostcuda_error(error);
}

/* As CUDA's it waits for the whole device. */
cudaError_t cudaFree(void *at)
{
    cudaError_t error = cudaErrorInvalidValue;

    if (hostcuda_forbidden())
        return hostcuda_error(cudaErrorStreamCaptureUnsupported);
    if (at == NULL)
        return cudaSuccess;
    hostcuda_wait_all();
    lock();
    struct range *range = find(memory.allocations, memory.allocation_count, at, 0);
    if (range != NULL && range->at == at) {
        size_t bytes = whole_pages(range->bytes);

        CT_ASSERT(madvise(hostcuda_near(at), bytes, MADV_DONTNEED) == 0 &&
                  mprotect(hostcuda_near(at), bytes, PROT_NONE) == 0);
        memory.taken -= range->bytes;
        *range = memory.allocations[--memory.allocation_count];
        error = cudaSuccess;
    }
    unlock();
    return hostcuda_error(error == cudaSuccess ? hostcuda_state() : error);
}

/* ---- the host's ------------------------------------------------------------------------------ */

static cudaError_t pin(void *at, size_t bytes)
{
    cudaError_t error = memory.pinned_count < PINNED_MAX ? cudaSuccess : cudaErrorMemoryAllocation;

    for (int i = 0; i < memory.pinned_count; i++)
        if ((char *)at < memory.pinned[i].at + memory.pinned[i].bytes &&
            (char *)at + bytes > memory.pinned[i].at)
            error = cudaErrorHostMemoryAlreadyRegistered;
    if (error == cudaSuccess)
        memory.pinned[memory.pinned_count++] = (struct range){at, bytes};
    return error;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    cudaError_t error = hostcuda_forbidden() ? cudaErrorStreamCaptureUnsupported : hostcuda_state();

    (void)flags;
    if (error == cudaSuccess && (at == NULL || bytes == 0))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return hostcuda_error(error);
    lock();
    error = pin(at, bytes);
    unlock();
    return hostcuda_error(error);
}

cudaError_t cudaHostUnregister(void *at)
{
    lock();
    struct range *range = find(memory.pinned, memory.pinned_count, at, 0);
    bool found = range != NULL && range->at == at;
    if (found)
        *range = memory.pinned[--memory.pinned_count];
    unlock();
    return hostcuda_error(found ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMallocHost(void **ret_memory, size_t bytes)
{
    cudaError_t error = cudaErrorMemoryAllocation;

    if (posix_memalign(ret_memory, PAGE, bytes) != 0)
        return hostcuda_error(error);
    error = cudaHostRegister(*ret_memory, bytes, cudaHostRegisterPortable);
    if (error != cudaSuccess)
        free(*ret_memory);
    return error;
}

cudaError_t cudaFreeHost(void *at)
{
    cudaError_t error = at != NULL ? cudaHostUnregister(at) : cudaSuccess;

    if (error == cudaSuccess)
        free(at);
    return error;
}

/* ---- copies ---------------------------------------------------------------------------------- */

enum place { DEVICE, PINNED, PAGEABLE, BEYOND };

static enum place place_of(const void *at, size_t bytes)
{
    lock();
    enum place place = PAGEABLE;
    if (is_far(at))
        place =
            find(memory.allocations, memory.allocation_count, at, bytes) != NULL ? DEVICE : BEYOND;
    else if (find(memory.pinned, memory.pinned_count, at, bytes) != NULL)
        place = PINNED;
    unlock();
    return place;
}

struct copy {
    void *to;
    const void *from; /* NULL: the bytes behind this struct, or, to set, `value` */
    size_t bytes;
    int value;
    bool sets;
    char staged[];
};

static void run_copy(void *context)
{
    struct copy *copy = context;

    if (copy->sets)
        memset(copy->to, copy->value, copy->bytes);
    else
        memmove(copy->to, copy->from != NULL ? copy->from : copy->staged, copy->bytes);
}

static struct copy *make_copy(void *to, const void *from, size_t bytes, size_t staged)
{
    struct copy *copy = malloc(sizeof *copy + staged);

    CT_ASSERT(copy != NULL);
    *copy = (struct copy){.to = hostcuda_near(to), .from = hostcuda_near(from), .bytes = bytes};
    return copy;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    enum place source = place_of(from, bytes), goal = place_of(to, bytes);

    if (kind != cudaMemcpyDefault || source == BEYOND || goal == BEYOND)
        return hostcuda_error(cudaErrorInvalidValue);
    struct copy *copy = make_copy(to, from, bytes, source == PAGEABLE ? bytes : 0);

    if (source == PAGEABLE) {
        memcpy(copy->staged, from, bytes);
        copy->from = NULL;
    }
    cudaError_t error = hostcuda_push(stream, (struct hostcuda_work){run_copy, free, copy});
    return error == cudaSuccess && goal == PAGEABLE ? cudaStreamSynchronize(stream) : error;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (stream != NULL && place_of(to, bytes) != DEVICE)
        return hostcuda_error(cudaErrorInvalidValue);
    struct copy *copy = make_copy(to, NULL, bytes, 0);

    copy->sets = true;
    copy->value = value;
    return hostcuda_push(stream, (struct hostcuda_work){run_copy, free, copy});
}
