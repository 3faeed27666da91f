/* A few threads that wait for loops to share.
 *
 *     caller            worker 1 .. n-1
 *     ct_pool_run   ->  wake (spinning briefly, then asleep)
 *     take indices 0, 1, 2, ... from one counter, all of them together
 *     wait for the last one; return
 *
 * The assignment of indices to threads is not deterministic, so the result of an index must not
 * depend on it. One ct_pool_run at a time. A pool of one thread starts none and runs inline. */
#ifndef CT_TENSOR_CPU_POOL_H
#define CT_TENSOR_CPU_POOL_H

struct ct_pool;

enum { CT_POOL_MAX_THREADS = 1024 };

/* Create a pool of `threads` (1 .. CT_POOL_MAX_THREADS), the caller included; NULL without memory
 * or threads. */
struct ct_pool *ct_pool_new(int threads);
void ct_pool_free(struct ct_pool *pool);

int ct_pool_threads(const struct ct_pool *pool);

/* Call work(context, i) for i = 0 .. count - 1, each once, and return when all are done. count is
 * at most the number of threads, so no two indices need run on one thread. */
void ct_pool_run(struct ct_pool *pool, int count, void (*work)(void *context, int index),
                 void *context);

#endif
