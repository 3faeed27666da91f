/* See pool.h.
 *
 * A run publishes its job under the lock and raises `generation`. Workers take indices from `next`
 * and count finished ones in `done`; the run is over when done == count. A worker that comes late
 * finds no index left and goes back to waiting: `job` is not changed before every worker that saw
 * the generation has left it (`inside`). */
#include "tensor/cpu/pool.h"

#include "base/assert.h"
#include "base/processor.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SPINS = 4000 }; /* about 20 us: longer than the gap between two ops of a step */

struct ct_pool {
    int threads;
    int started;
    pthread_t *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint generation;
    atomic_bool stop;

    void (*work)(void *context, int index);
    void *context;
    int count;
    atomic_int next, done, inside;
};

static void run_indices(struct ct_pool *pool)
{
    int index;

    while ((index = atomic_fetch_add(&pool->next, 1)) < pool->count) {
        pool->work(pool->context, index);
        atomic_fetch_add(&pool->done, 1);
    }
}

/* Wait until the generation differs from `seen` (or the pool stops) and enter it. */
static unsigned await_work(struct ct_pool *pool, unsigned seen)
{
    for (int i = 0; i < SPINS && atomic_load(&pool->generation) == seen; i++)
        ct_relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->wake, &pool->lock);
    seen = atomic_load(&pool->generation);
    atomic_fetch_add(&pool->inside, 1);
    pthread_mutex_unlock(&pool->lock);
    return seen;
}

static void *worker_main(void *argument)
{
    struct ct_pool *pool = argument;
    unsigned seen = 0;

    while (true) {
        seen = await_work(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        run_indices(pool);
        atomic_fetch_sub(&pool->inside, 1);
    }
}

/* Workers take no signals: those are for the program's own threads. */
static void start_workers(struct ct_pool *pool)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < pool->threads - 1 &&
           pthread_create(&pool->workers[pool->started], NULL, worker_main, pool) == 0)
        pool->started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct ct_pool *ct_pool_new(int threads)
{
    CT_ASSERT(threads >= 1 && threads <= CT_POOL_MAX_THREADS);
    struct ct_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return NULL;
    pool->threads = threads;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (pool->workers != NULL)
        start_workers(pool);
    if (pool->started == threads - 1 && pool->workers != NULL)
        return pool;
    ct_pool_free(pool);
    return NULL;
}

void ct_pool_free(struct ct_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

int ct_pool_threads(const struct ct_pool *pool)
{
    return pool->threads;
}

void ct_pool_run(struct ct_pool *pool, int count, void (*work)(void *context, int index),
                 void *context)
{
    CT_ASSERT(count <= pool->threads);
    if (count == 1) {
        work(context, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->inside) != 0) /* late comers of the run before */
        ct_relax();
    pool->work = work;
    pool->context = context;
    pool->count = count;
    atomic_store(&pool->done, 0);
    atomic_store(&pool->next, 0);
    atomic_fetch_add(&pool->generation, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    run_indices(pool);
    for (int spins = 0; atomic_load(&pool->done) < count; spins++) {
        if (spins < SPINS)
            ct_relax();
        else
            sched_yield(); /* more threads than cores: let the others finish */
    }
}
