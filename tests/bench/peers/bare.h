/* What an all_reduce of fresh data in place has to do at least, and nothing else: ranks that reach
 * each other's memory meet at flags, each reads its share of everyone's data and writes the sum to
 * everyone, and they meet again. probe.c does so on pages of its own, ../peer.c on those of the
 * group that it measures, call by call in turns. C; GCC and clang.
 *
 *   bare_hop     a cache line's way from one core to the other
 *   bare_sum     between two meetings; nothing can move less: whoever adds up an element needs all
 *                ranks' values of it, and all ranks need the sum */
#ifndef CT_BENCH_BARE_H
#define CT_BENCH_BARE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    BARE_RANKS_MAX = 64,
    BARE_LINE = 128,
    BARE_BLOCK = 4,   /* lines */
    BARE_AHEAD = 1024 /* bytes: asked for by who will change them, so that they travel once */
};

struct bare_flag {
    _Alignas(64) _Atomic uint64_t value;
    char rest[BARE_LINE - sizeof(uint64_t)];
};

struct bare {
    int ranks, rank;
    int crowded; /* ranks share cores */
    uint64_t met;
    struct bare_flag *flags[BARE_RANKS_MAX]; /* one a rank; of zeros at first */
    char *data[BARE_RANKS_MAX];
};

static void bare_await(const struct bare *bare, int other)
{
    while (atomic_load_explicit(&bare->flags[other]->value, memory_order_acquire) < bare->met)
        if (bare->crowded)
            (void)sched_yield();
}

static void bare_post(struct bare *bare)
{
    atomic_store_explicit(&bare->flags[bare->rank]->value, ++bare->met, memory_order_release);
}

static void bare_meet(struct bare *bare)
{
    bare_post(bare);
    for (int i = 0; i < bare->ranks; i++)
        bare_await(bare, i);
}

/* Between two ranks. */
static inline void bare_hop(struct bare *bare)
{
    bare_post(bare);
    bare_await(bare, 1 - bare->rank);
}

/* A cache line of numbers. */
typedef float bare_vector __attribute__((vector_size(64)));

/* So many cache lines of all ranks: read, added up, written to one after the other, which is a
 * quarter faster than each line to all. `lines` and, of two ranks, the others are constants. */
static inline __attribute__((always_inline)) void bare_block(bare_vector *const *of, int ranks,
                                                             int rank, size_t at, size_t lines)
{
    bare_vector sum[BARE_BLOCK];

    for (int r = 0; r < ranks; r++)
        for (size_t k = 0; r != rank && k < lines; k++)
            __builtin_prefetch((char *)(of[r] + at + k) + BARE_AHEAD, 1);
#pragma GCC unroll 4
    for (size_t k = 0; k < lines; k++)
        sum[k] = of[0][at + k];
    for (int r = 1; r < ranks; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < lines; k++)
            sum[k] += of[r][at + k];
    for (int r = 0; r < ranks; r++)
#pragma GCC unroll 4
        for (size_t k = 0; k < lines; k++)
            of[(rank + r) % ranks][at + k] = sum[k];
}

static inline __attribute__((always_inline)) void bare_run(bare_vector *const *of, int ranks,
                                                           int rank, size_t at, size_t end)
{
    for (; at + BARE_BLOCK <= end; at += BARE_BLOCK)
        bare_block(of, ranks, rank, at, BARE_BLOCK);
    for (; at < end; at++)
        bare_block(of, ranks, rank, at, 1);
}

/* Sixteen numbers at a time where the machine can. */
#if defined(__x86_64__) && !defined(__AVX512F__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static void
bare_sum(const struct bare *bare, size_t bytes)
{
    size_t lines = (bytes + 63) / 64, ranks = (size_t)bare->ranks;
    size_t share = (lines + ranks - 1) / ranks, at = (size_t)bare->rank * share;
    size_t end = at + share < lines ? at + share : lines;
    bare_vector *of[BARE_RANKS_MAX];

    for (size_t r = 0; r < ranks; r++)
        of[r] = (bare_vector *)(void *)bare->data[r];
    if (ranks == 2 && bare->rank == 0)
        bare_run(of, 2, 0, at, end);
    else if (ranks == 2)
        bare_run(of, 2, 1, at, end);
    else
        bare_run(of, (int)ranks, bare->rank, at, end);
}

#endif
