/* See fake.h: memory of ncclMemAlloc, and who has registered it. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct allocation {
    struct allocation *next;
    char *base;
    size_t bytes;
    int windows;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static int left_behind;

int ncclMemAlloc(void **memory, size_t bytes)
{
    size_t whole = (bytes + CT_NCCL_WIN_ALIGN - 1) / CT_NCCL_WIN_ALIGN * CT_NCCL_WIN_ALIGN;
    struct allocation *made = calloc(1, sizeof *made);
    const char *fault = getenv("FAKENCCL_FAULT");

    if (made == NULL)
        abort();
    if (fault == NULL || strcmp(fault, "fail_memory") != 0)
        made->base = fake_memory_new(whole);
    if (made->base == NULL) {
        free(made);
        return CT_NCCL_UNHANDLED_CUDA_ERROR;
    }
    made->bytes = whole;
    (void)pthread_mutex_lock(&lock);
    made->next = allocations;
    allocations = made;
    (void)pthread_mutex_unlock(&lock);
    *memory = made->base;
    return CT_NCCL_SUCCESS;
}

/* What lies under a window, or was never allocated, is not given back: that is a fault of ours. */
int ncclMemFree(void *memory)
{
    struct allocation **link = &allocations;

    (void)pthread_mutex_lock(&lock);
    while (*link != NULL && (*link)->base != memory)
        link = &(*link)->next;
    struct allocation *found = *link;
    if (found == NULL || found->windows > 0)
        abort();
    *link = found->next;
    (void)pthread_mutex_unlock(&lock);
    fake_memory_free(found->base);
    free(found);
    return CT_NCCL_SUCCESS;
}

struct ct_nccl_window *fake_window_new(const void *memory, size_t bytes)
{
    struct ct_nccl_window *window = NULL;
    const char *at = memory;

    (void)pthread_mutex_lock(&lock);
    for (struct allocation *a = allocations; a != NULL && window == NULL; a = a->next)
        if (at >= a->base && at + bytes <= a->base + a->bytes) {
            window = calloc(1, sizeof *window);
            if (window == NULL)
                abort();
            window->allocation = a;
            a->windows++;
        }
    (void)pthread_mutex_unlock(&lock);
    return window;
}

void fake_window_free(struct ct_nccl_window *window)
{
    (void)pthread_mutex_lock(&lock);
    window->allocation->windows--;
    (void)pthread_mutex_unlock(&lock);
    free(window);
}

/* NCCL forgets them with their communicator, and what it knows of their memory stays. */
void fake_windows_leave(struct ct_nccl_window *windows)
{
    while (windows != NULL) {
        struct ct_nccl_window *next = windows->next;

        (void)pthread_mutex_lock(&lock);
        left_behind++;
        (void)pthread_mutex_unlock(&lock);
        fake_window_free(windows);
        windows = next;
    }
}

void fake_memory_count(struct fakenccl_counts *ret)
{
    (void)pthread_mutex_lock(&lock);
    ret->left_behind = left_behind;
    for (const struct allocation *a = allocations; a != NULL; a = a->next) {
        ret->allocations++;
        ret->windows += a->windows;
    }
    (void)pthread_mutex_unlock(&lock);
}
