/* CUDA kernels on the host: g++ compiles our .cu files as they are, without a GPU and without the
 * toolkit, so that tests compare every kernel with the CPU device.
 *
 *     g++ -x c++ -DCT_HOSTCUDA -Itests/lib/hostcuda file.cu    hostcuda.h: what it sees of CUDA
 *     CT_LAUNCH(kernel, grid, block, ...)                      runs the grid at once, a block at a
 *                                                              time
 *
 *     block 5   (an order drawn from the seed)     a thread is a fiber with a stack of its own; it
 *       warp 2: thread 71 . 64 . 95 ...            runs until it meets others: at a barrier, in a
 *       warp 0: thread 13 . 30 . 02 ...            shuffle or a vote, where values change hands
 *       ...     (drawn again at barriers)
 *
 * What it finds beside wrong results:
 * - shared memory that is read before it is written: it starts as NaN, in every block;
 * - missing barriers: one warp runs ahead to the next barrier of its block before another starts,
 *   in an order that depends on the seed, so tests run each kernel with a few seeds;
 * - barriers and warp instructions that not all threads reach, or at different lines of the source;
 * - values taken from lanes that do not take part: they are NaN;
 * - blocks that count on the order of blocks;
 * - under AddressSanitizer: accesses beyond buffers and shared memory; under UBSan: misaligned
 *   ones.
 *
 * What it cannot: memory that another block or thread writes at the same time, caches, the bits of
 * fast intrinsics (here they are off by what NVIDIA's may be), resources beyond the size of shared
 * memory. One launch runs at a time. Whatever is found ends the program with a sentence.
 *
 * A launch on no stream runs before it returns, as unit tests want it; runtime.h has streams, and
 * all else that the whole device needs to train on the host. */
#ifndef CT_TESTS_HOSTCUDA_HOST_H
#define CT_TESTS_HOSTCUDA_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HOSTCUDA_WARP = 32,
    HOSTCUDA_MAX_THREADS = 1024,     /* of a block */
    HOSTCUDA_MAX_SHARED = 227 * 1024 /* bytes of a block of compute capability 9.0 */
};

struct hostcuda_dim {
    unsigned x, y, z;
};

/* Where the running thread stands: what kernels call threadIdx, blockIdx, blockDim, gridDim. */
struct hostcuda_place {
    struct hostcuda_dim thread, block, threads, blocks;
    void *shared; /* the launch's dynamic shared memory */
};
extern struct hostcuda_place hostcuda_place;

/* The orders of blocks, warps and threads from now on; at first those of 0. */
void hostcuda_seed(uint64_t seed);

/* How many launches there were. */
uint64_t hostcuda_launches(void);

struct hostcuda_grid {
    struct hostcuda_dim blocks, threads; /* threads of a block: whole warps */
    size_t shared;                       /* bytes of dynamic shared memory */
};

/* body(context) by every thread of the grid. */
void hostcuda_run(const struct hostcuda_grid *grid, void (*body)(void *context), void *context);

/* A place in the source. */
struct hostcuda_site {
    const char *what, *file;
    int line;
};

/* Called once for threads that have met, with the `mine` of each: those that take no part are NULL.
 */
typedef void (*hostcuda_exchange)(void *const mine[], int width);

/* Wait for the threads of the caller's group: `width` threads in a row (32: a warp, of which `mask`
 * participates; else a divisor of the block's threads, all of which participate). All must call
 * with the same mask, exchange and site. Then `exchange` (may be NULL) gets each thread's
 * pointer. */
void hostcuda_sync(int width, unsigned mask, hostcuda_exchange exchange, void *mine,
                   const struct hostcuda_site *site);

/* End the program: "hostcuda: <what> (file:line, block 1,0,0, thread 7,0,0)". */
void hostcuda_fail(const char *what, const struct hostcuda_site *site) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
