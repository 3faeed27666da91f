/* See host.h. The scheduler of one block:
 *
 *     some warp is ready     take the first of them in the order: run its threads until all wait or
 *                            are over, settle its meetings; again, until it is not ready
 *     no warp is ready       settle the wider meetings, draw a new order of warps
 *     nothing to settle      all are over, or some thread waits for one that never comes */
#include "host.h"

#include "fiber.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNSET_BYTE = 0xff, SHARED_ALIGN = 1024 }; /* a NaN of every type */

enum state { READY, WAITS, OVER };

struct sync {
    int width;
    unsigned mask;
    hostcuda_exchange exchange;
    void *mine;
    const struct hostcuda_site *site;
};

struct thread {
    struct fiber *fiber;
    enum state state;
    struct sync sync;
};

struct hostcuda_place hostcuda_place;

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER; /* one grid at a time */

static struct {
    struct ct_rng rng;
    bool seeded;
    uint64_t launches;
    struct thread threads[HOSTCUDA_MAX_THREADS];
    int count, running;                              /* threads of the block; the one that runs */
    int order[HOSTCUDA_MAX_THREADS / HOSTCUDA_WARP]; /* of warps */
    void (*body)(void *context);
    void *context;
} host;

/* The section that holds all __shared__ variables; absent when no kernel has one. */
extern char __start_hostcuda_shared[] __attribute__((weak));
extern char __stop_hostcuda_shared[] __attribute__((weak));

void hostcuda_seed(uint64_t seed)
{
    ct_rng_init(&host.rng, seed);
    host.seeded = true;
}

uint64_t hostcuda_launches(void)
{
    return host.launches;
}

void hostcuda_fail(const char *what, const struct hostcuda_site *site)
{
    const struct hostcuda_place *p = &hostcuda_place;

    (void)fprintf(stderr, "hostcuda: %s (%s:%d, block %u,%u,%u, thread %u,%u,%u)\n", what,
                  site->file, site->line, p->block.x, p->block.y, p->block.z, p->thread.x,
                  p->thread.y, p->thread.z);
    abort();
}

/* ---- threads --------------------------------------------------------------------------------- */

static void shuffle(int *order, int count)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int other = (int)ct_rng_below(&host.rng, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static struct hostcuda_dim dim_of(unsigned index, struct hostcuda_dim size)
{
    return (struct hostcuda_dim){index % size.x, index / size.x % size.y,
                                 index / (size.x * size.y)};
}

static void thread_main(void *argument)
{
    struct thread *thread = argument;

    host.body(host.context);
    thread->state = OVER;
}

static void run_thread(int index)
{
    host.running = index;
    hostcuda_place.thread = dim_of((unsigned)index, hostcuda_place.threads);
    fiber_resume(host.threads[index].fiber);
}

void hostcuda_sync(int width, unsigned mask, hostcuda_exchange exchange, void *mine,
                   const struct hostcuda_site *site)
{
    int index = host.running;
    struct thread *thread = &host.threads[index];

    if (width == HOSTCUDA_WARP && (mask >> index % HOSTCUDA_WARP & 1) == 0)
        hostcuda_fail("a lane that its own mask leaves out", site);
    if (host.count % width != 0)
        hostcuda_fail("a group that does not divide the block", site);
    thread->state = WAITS;
    thread->sync = (struct sync){width, mask, exchange, mine, site};
    fiber_yield();
}

/* ---- meetings -------------------------------------------------------------------------------- */

static bool participates(const struct sync *sync, int index)
{
    return sync->width != HOSTCUDA_WARP || (sync->mask >> index % HOSTCUDA_WARP & 1) != 0;
}

static bool same_exchange(const struct sync *a, const struct sync *b)
{
    return a->width == b->width && a->mask == b->mask && a->exchange == b->exchange &&
           a->site->line == b->site->line && strcmp(a->site->file, b->site->file) == 0 &&
           strcmp(a->site->what, b->site->what) == 0;
}

/* Let the threads that thread `index` waits for go on, if all are there. */
static bool complete(int index)
{
    const struct sync sync = host.threads[index].sync;
    int first = index / sync.width * sync.width;
    void *mine[HOSTCUDA_MAX_THREADS] = {NULL};

    for (int i = 0; i < sync.width; i++) {
        const struct thread *other = &host.threads[first + i];

        mine[i] = participates(&sync, i) ? other->sync.mine : NULL;
        if (participates(&sync, i) &&
            (other->state != WAITS || !same_exchange(&sync, &other->sync)))
            return false;
    }
    if (sync.exchange != NULL)
        sync.exchange(mine, sync.width);
    for (int i = 0; i < sync.width; i++)
        if (participates(&sync, i))
            host.threads[first + i].state = READY;
    return true;
}

static bool complete_range(int first, int count, bool wide)
{
    bool any = false;

    for (int i = first; i < first + count; i++)
        if (host.threads[i].state == WAITS && wide == (host.threads[i].sync.width != HOSTCUDA_WARP))
            any |= complete(i);
    return any;
}

static void report_stuck(void)
{
    int over = 0, waiting = -1;

    for (int i = host.count - 1; i >= 0; i--) {
        over += host.threads[i].state == OVER;
        if (host.threads[i].state == WAITS)
            waiting = i;
    }
    if (waiting < 0)
        return;
    const struct sync *sync = &host.threads[waiting].sync;
    char text[256];

    hostcuda_place.thread = dim_of((unsigned)waiting, hostcuda_place.threads);
    (void)snprintf(
        text, sizeof text,
        "%s: waits for threads that never come (%d of %d are over, others wait elsewhere)",
        sync->site->what, over, host.count);
    hostcuda_fail(text, sync->site);
}

/* ---- a block --------------------------------------------------------------------------------- */

static bool is_ready(int warp)
{
    for (int i = 0; i < HOSTCUDA_WARP; i++)
        if (host.threads[warp * HOSTCUDA_WARP + i].state == READY)
            return true;
    return false;
}

/* Until all its threads are over or wait for other warps. */
static void run_warp(int warp)
{
    int first = warp * HOSTCUDA_WARP, order[HOSTCUDA_WARP];

    do {
        shuffle(order, HOSTCUDA_WARP);
        for (int i = 0; i < HOSTCUDA_WARP; i++)
            if (host.threads[first + order[i]].state == READY)
                run_thread(first + order[i]);
    } while (complete_range(first, HOSTCUDA_WARP, false));
}

__attribute__((no_sanitize("address"))) static void unset_shared(void)
{
    volatile char *at = __start_hostcuda_shared;

    while (at != __stop_hostcuda_shared)
        *at++ = (char)UNSET_BYTE;
}

static void run_block(size_t shared)
{
    int warps = host.count / HOSTCUDA_WARP;
    void *memory = NULL;

    CT_ASSERT(posix_memalign(&memory, SHARED_ALIGN, shared + (shared == 0)) == 0);
    memset(memory, UNSET_BYTE, shared);
    unset_shared();
    hostcuda_place.shared = memory;
    for (int i = 0; i < host.count; i++) {
        struct thread *thread = &host.threads[i];

        thread->state = READY;
        thread->fiber = fiber_start(i, thread_main, thread);
    }
    do {
        shuffle(host.order, warps);
        for (int i = 0; i < warps; i++)
            if (is_ready(host.order[i]))
                run_warp(host.order[i]);
    } while (complete_range(0, host.count, true));
    report_stuck();
    free(memory);
}

static unsigned volume(struct hostcuda_dim dim)
{
    return dim.x * dim.y * dim.z;
}

void hostcuda_run(const struct hostcuda_grid *grid, void (*body)(void *context), void *context)
{
    unsigned blocks = volume(grid->blocks), threads = volume(grid->threads);
    int *order = calloc(blocks, sizeof *order);

    CT_ASSERT(pthread_mutex_lock(&launching) == 0);
    CT_ASSERT(blocks > 0 && order != NULL);
    CT_ASSERT(threads > 0 && threads <= HOSTCUDA_MAX_THREADS && threads % HOSTCUDA_WARP == 0);
    CT_ASSERT(grid->shared <= HOSTCUDA_MAX_SHARED);
    if (!host.seeded)
        hostcuda_seed(0);
    host.launches++;
    host.count = (int)threads;
    host.body = body;
    host.context = context;
    hostcuda_place.blocks = grid->blocks;
    hostcuda_place.threads = grid->threads;
    shuffle(order, (int)blocks);
    for (unsigned i = 0; i < blocks; i++) {
        hostcuda_place.block = dim_of((unsigned)order[i], grid->blocks);
        run_block(grid->shared);
    }
    free(order);
    CT_ASSERT(pthread_mutex_unlock(&launching) == 0);
}
