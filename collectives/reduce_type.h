/* The kernels of one element type: a template, included by reduce_kernels.h once a type, with the
 * macros that are explained there; it undefines them.
 *
 * A block is four vectors of accumulators, in registers. For each block the sources are walked in
 * order, so each source is read once and the destination written once. What is left behind the last
 * block goes one vector at a time, the last one through a zero-filled copy. */
#define LANES (sizeof(S) / sizeof(T))

typedef S NAME(unaligned) __attribute__((aligned(1), may_alias));

static inline void NAME(load)(A *to, const void *from, size_t at)
{
    S raw = *(const NAME(unaligned) *)((const T *)from + at);

    *to = WIDEN(raw);
}

static inline void NAME(store)(void *to, size_t at, const A *from)
{
    S raw;

    NARROW(&raw, from);
    *(NAME(unaligned) *)((T *)to + at) = raw;
}

static void NAME(load_part)(A *to, const void *from, size_t at, size_t n)
{
    S raw = {0};

    memcpy(&raw, (const T *)from + at, n * sizeof(T));
    *to = WIDEN(raw);
}

static void NAME(store_part)(void *to, size_t at, size_t n, const A *from)
{
    S raw;

    NARROW(&raw, from);
    memcpy((T *)to + at, &raw, n * sizeof(T));
}

static inline void NAME(add)(A *acc, const A *x)
{
    *acc += *x;
}

static inline void NAME(larger)(A *acc, const A *x)
{
    vec_u64 keep = (vec_u64)KEEP(*acc, *x);

    *acc = (A)((keep & (vec_u64)*acc) | (~keep & (vec_u64)*x));
}

static void NAME(divide)(A *x, int n)
{
    *x = DIVIDE(*x, n);
}

/* The elements from `at` on, fewer than a block. */
static void NAME(fold_rest)(const struct ct_reduce_args *args, size_t at,
                            void (*join)(A *acc, const A *x))
{
    for (; at < args->count; at += LANES) {
        size_t n = args->count - at < LANES ? args->count - at : LANES;
        A acc, x;

        NAME(load_part)(&acc, args->source[0], at, n);
        for (int i = 1; i < args->sources; i++) {
            NAME(load_part)(&x, args->source[i], at, n);
            join(&acc, &x);
        }
        if (args->divisor > 1)
            NAME(divide)(&acc, args->divisor);
        NAME(store_part)(args->dst, at, n, &acc);
    }
}

/* From left to right; `join` is a constant at both calls and is inlined. */
static inline __attribute__((always_inline)) void NAME(fold)(const struct ct_reduce_args *args,
                                                             void (*join)(A *acc, const A *x))
{
    size_t at = 0;

    for (; args->count - at >= 4 * LANES; at += 4 * LANES) {
        A a, b, c, d, x;

        NAME(load)(&a, args->source[0], at);
        NAME(load)(&b, args->source[0], at + LANES);
        NAME(load)(&c, args->source[0], at + 2 * LANES);
        NAME(load)(&d, args->source[0], at + 3 * LANES);
        for (int i = 1; i < args->sources; i++) {
            NAME(load)(&x, args->source[i], at);
            join(&a, &x);
            NAME(load)(&x, args->source[i], at + LANES);
            join(&b, &x);
            NAME(load)(&x, args->source[i], at + 2 * LANES);
            join(&c, &x);
            NAME(load)(&x, args->source[i], at + 3 * LANES);
            join(&d, &x);
        }
        if (args->divisor > 1) {
            NAME(divide)(&a, args->divisor);
            NAME(divide)(&b, args->divisor);
            NAME(divide)(&c, args->divisor);
            NAME(divide)(&d, args->divisor);
        }
        NAME(store)(args->dst, at, &a);
        NAME(store)(args->dst, at + LANES, &b);
        NAME(store)(args->dst, at + 2 * LANES, &c);
        NAME(store)(args->dst, at + 3 * LANES, &d);
    }
    NAME(fold_rest)(args, at, join);
}

static void NAME(sum)(const struct ct_reduce_args *args)
{
    NAME(fold)(args, NAME(add));
}

static void NAME(max)(const struct ct_reduce_args *args)
{
    NAME(fold)(args, NAME(larger));
}

/* A binary counter: level[k] holds the sum of an aligned run of 2^k sources. */
static inline __attribute__((always_inline)) void
NAME(tree_vector)(const struct ct_reduce_args *args, size_t at, size_t n)
{
    A level[LEVELS], x;

    for (int i = 0; i < args->sources; i++) {
        int k = 0;

        if (n == LANES)
            NAME(load)(&x, args->source[i], at);
        else
            NAME(load_part)(&x, args->source[i], at, n);
        for (; (i >> k & 1) != 0; k++)
            /* cppcheck-suppress uninitvar; level k was written when bit k of i was last raised */
            x = level[k] + x;
        level[k] = x;
    }
    int low = __builtin_ctz((unsigned)args->sources);
    /* cppcheck-suppress uninitvar; as above, for the bits of the number of sources */
    x = level[low];
    for (int k = low + 1; args->sources >> k != 0; k++)
        if ((args->sources >> k & 1) != 0)
            x = level[k] + x;
    if (args->divisor > 1)
        NAME(divide)(&x, args->divisor);
    NAME(store_part)(args->dst, at, n, &x);
}

static void NAME(tree)(const struct ct_reduce_args *args)
{
    size_t at = 0;

    if (args->sources == 2) { /* both orders are one */
        NAME(sum)(args);
        return;
    }
    for (; args->count - at >= LANES; at += LANES)
        NAME(tree_vector)(args, at, LANES);
    if (at < args->count)
        NAME(tree_vector)(args, at, args->count - at);
}

#undef NAME
#undef T
#undef S
#undef A
#undef KEEP
#undef WIDEN
#undef NARROW
#undef DIVIDE
#undef LANES
