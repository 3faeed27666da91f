/* The kernels of one element type: a template, included by reduce_kernels.h once a type, with the
 * macros that are explained there; it undefines them. Kernels that the table does not name are not
 * compiled.
 *
 * A block is four vectors of accumulators, in registers. For each block the sources are read in
 * order, so each source is read once and each destination written once. The remainder after the
 * last block is processed one vector at a time, the last one through a zero-filled copy. `join` and
 * `scaled` are constants wherever they are given, and are inlined.
 *
 * Large results are written with non-temporal stores: they exceed the caches, and a line that is
 * written whole need not be fetched.
 *
 * A copy lies in another core's cache, and in place it is a source as well: it is prefetched early,
 * for writing. So a line is transferred once; a read and then a write would transfer it twice.
 */
#define LANES (sizeof(S) / sizeof(T))
#define INLINE static inline __attribute__((always_inline))

typedef S NAME(unaligned) __attribute__((aligned(1), may_alias));

/* `n` elements of source `i`, LANES or fewer; times the source's factor when `scaled`. */
INLINE void NAME(load)(A *to, const struct ct_reduce_args *args, int i, size_t at, size_t n,
                       bool scaled)
{
    const T *from = (const T *)args->source[i] + at;
    S raw = {0};

    if (n == LANES)
        raw = *(const NAME(unaligned) *)from;
    else
        memcpy(&raw, from, n * sizeof(T));
    WIDEN(to, &raw);
    if (scaled)
        *to = (A)((C)*to * (N)args->factor[i]);
}

INLINE void NAME(put)(void *dst, size_t at, size_t n, const S *raw)
{
    T *to = (T *)dst + at;

    if (n == LANES)
        *(NAME(unaligned) *)to = *raw;
    else
        memcpy(to, raw, n * sizeof(T));
}

/* Divide if that is asked for, round. */
INLINE void NAME(finish)(const struct ct_reduce_args *args, S *raw, A *from)
{
    if (args->divisor > 1)
        *from = (A)((C)*from / (N)args->divisor);
    NARROW(raw, from);
}

INLINE void NAME(store)(const struct ct_reduce_args *args, size_t at, size_t n, A *from)
{
    S raw;

    NAME(finish)(args, &raw, from);
    NAME(put)(args->dst, at, n, &raw);
    for (int i = 0; i < args->copies; i++)
        NAME(put)(args->copy[i], at, n, &raw);
}

INLINE void NAME(put_block)(void *dst, size_t at, const S raw[4])
{
    for (size_t i = 0; i < 4; i++)
        NAME(put)(dst, at + i * LANES, LANES, &raw[i]);
}

/* A whole block to one after the other: stores to one that waits for its lines and to one that has
 * them, in turns, would all wait. */
INLINE void NAME(store_block)(const struct ct_reduce_args *args, size_t at, A from[4])
{
    S raw[4];

    for (int i = 0; i < 4; i++)
        NAME(finish)(args, &raw[i], &from[i]);
    NAME(put_block)(args->dst, at, raw);
    for (int i = 0; i < args->copies && !args->stream; i++)
        NAME(put_block)(args->copy[i], at, raw);
    for (int i = 0; i < args->copies && args->stream; i++)
        stream((T *)args->copy[i] + at, raw, sizeof raw);
}

/* The copies' next block but one, or so. */
INLINE void NAME(ask)(const struct ct_reduce_args *args, size_t at)
{
    if (args->stream)
        return;
    for (int i = 0; i < args->copies; i++)
        for (size_t line = 0; line < 4 * LANES * sizeof(T); line += 64)
            __builtin_prefetch((const char *)args->copy[i] + at * sizeof(T) + AHEAD + line, 1);
}

/* ---- joins: *acc = *acc o *x -----------------------------------------------------------------*/

static inline void NAME(add)(A *acc, const A *x)
{
    *acc += *x;
}

static inline void NAME(multiply)(A *acc, const A *x)
{
    *acc *= *x;
}

static inline void NAME(larger)(A *acc, const A *x)
{
    vec_u64 keep = (vec_u64)KEEP((C)*acc, >, (C)*x);

    *acc = (A)PICK(keep, (vec_u64)*acc, (vec_u64)*x);
}

static inline void NAME(smaller)(A *acc, const A *x)
{
    vec_u64 keep = (vec_u64)KEEP((C)*acc, <, (C)*x);

    *acc = (A)PICK(keep, (vec_u64)*acc, (vec_u64)*x);
}

static inline void NAME(both)(A *acc, const A *x)
{
    *acc = (A)((vec_u64)*acc & (vec_u64)*x);
}

static inline void NAME(either)(A *acc, const A *x)
{
    *acc = (A)((vec_u64)*acc | (vec_u64)*x);
}

/* ---- from left to right ----------------------------------------------------------------------*/

/* All whole blocks; where the next element lies. `args` is the caller's own copy. */
INLINE size_t NAME(fold_blocks)(const struct ct_reduce_args *args, void (*join)(A *acc, const A *x),
                                bool scaled)
{
    size_t at = 0;

    for (; args->count - at >= 4 * LANES; at += 4 * LANES) {
        A acc[4], x;

        NAME(ask)(args, at);
        for (size_t k = 0; k < 4; k++)
            NAME(load)(&acc[k], args, 0, at + k * LANES, LANES, scaled);
        for (int i = 1; i < args->sources; i++)
            for (size_t k = 0; k < 4; k++) {
                NAME(load)(&x, args, i, at + k * LANES, LANES, scaled);
                join(&acc[k], &x);
            }
        NAME(store_block)(args, at, acc);
    }
    return at;
}

/* Of two sources, to one copy: what two ranks do in each other's memory. Their addresses stay in
 * registers, which is worth a tenth of what lies in the caches. */
INLINE size_t NAME(fold_pair)(const struct ct_reduce_args *args, void (*join)(A *acc, const A *x))
{
    const void *const source[2] = {args->source[0], args->source[1]};
    void *const copy[1] = {args->copy[0]};
    struct ct_reduce_args pair = {.dst = args->dst,
                                  .copy = copy,
                                  .source = source,
                                  .factor = NULL,
                                  .sources = 2,
                                  .copies = 1,
                                  .divisor = args->divisor,
                                  .stream = false,
                                  .count = args->count};

    return NAME(fold_blocks)(&pair, join, false);
}

INLINE void NAME(fold)(const struct ct_reduce_args *args, void (*join)(A *acc, const A *x),
                       bool scaled)
{
    bool pair = args->sources == 2 && args->copies == 1 && !args->stream && !scaled;
    size_t at = pair ? NAME(fold_pair)(args, join) : NAME(fold_blocks)(args, join, scaled);

    for (; at < args->count; at += LANES) {
        size_t n = args->count - at < LANES ? args->count - at : LANES;
        A acc, x;

        NAME(load)(&acc, args, 0, at, n, scaled);
        for (int i = 1; i < args->sources; i++) {
            NAME(load)(&x, args, i, at, n, scaled);
            join(&acc, &x);
        }
        NAME(store)(args, at, n, &acc);
    }
}

/* ---- by the tree -----------------------------------------------------------------------------*/

/* A binary counter: level[k] holds the result of an aligned run of 2^k sources. */
INLINE void NAME(tree_vector)(const struct ct_reduce_args *args, size_t at, size_t n,
                              void (*join)(A *acc, const A *x), bool scaled)
{
    A level[LEVELS], left, x;

    for (int i = 0; i < args->sources; i++) {
        int k = 0;

        NAME(load)(&x, args, i, at, n, scaled);
        for (; (i >> k & 1) != 0; k++) {
            /* cppcheck-suppress uninitvar; written when bit k of i was last raised */
            left = level[k];
            join(&left, &x);
            x = left;
        }
        level[k] = x;
    }
    int low = __builtin_ctz((unsigned)args->sources);
    /* cppcheck-suppress uninitvar; as above, for the bits of the number of sources */
    x = level[low];
    for (int k = low + 1; args->sources >> k != 0; k++)
        if ((args->sources >> k & 1) != 0) {
            left = level[k];
            join(&left, &x);
            x = left;
        }
    NAME(store)(args, at, n, &x);
}

INLINE void NAME(fold_tree)(const struct ct_reduce_args *args, void (*join)(A *acc, const A *x),
                            bool scaled)
{
    size_t at = 0;

    for (; args->count - at >= LANES; at += LANES)
        NAME(tree_vector)(args, at, LANES, join, scaled);
    if (at < args->count)
        NAME(tree_vector)(args, at, args->count - at, join, scaled);
}

/* ---- the kernels -----------------------------------------------------------------------------*/

#define KERNEL(kernel, join, scaled)                                   \
    static inline void NAME(kernel)(const struct ct_reduce_args *args) \
    {                                                                  \
        NAME(fold)(args, NAME(join), scaled);                          \
    }
/* Of two sources both orders are one. */
#define KERNEL_TREE(kernel, join, scaled)                                     \
    static inline void NAME(kernel##_tree)(const struct ct_reduce_args *args) \
    {                                                                         \
        if (args->sources == 2)                                               \
            NAME(kernel)(args);                                               \
        else                                                                  \
            NAME(fold_tree)(args, NAME(join), scaled);                        \
    }

KERNEL(sum, add, false)
KERNEL_TREE(sum, add, false)
KERNEL(prod, multiply, false)
KERNEL_TREE(prod, multiply, false)
KERNEL(premul, add, true)
KERNEL_TREE(premul, add, true)
KERNEL(max, larger, false)
KERNEL(min, smaller, false)
KERNEL(and, both, false)
KERNEL(or, either, false)

#undef KERNEL
#undef KERNEL_TREE
#undef INLINE
#undef LANES
#undef NAME
#undef T
#undef S
#undef A
#undef C
#undef N
#undef WIDEN
#undef NARROW
#undef KEEP
