/* Every kernel of the CUDA device that is our own, run on the host (tests/lib/hostcuda) and
 * compared with the CPU device: the same bits, but where `bounds` says why not. */
#include "host.h"
#include "kit.h"
#include "sanitized.h"

#include "base/assert.h"
#include "tensor/cuda/cuda.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(kernels, .timeout = 120);

enum {
    F32 = 1 << CT_F32,
    F64 = 1 << CT_F64,
    NARROWS = 1 << CT_BF16 | 1 << CT_F16,
    FLOATS = F32 | NARROWS
};

#define KERNEL(op, name, dtypes) [CT_OP_##op] = {ct_cuda_##name, NULL, dtypes},
#define PREPARED(op, name, dtypes) \
    [CT_OP_##op] = {ct_cuda_##name, ct_cuda_##name##_prepare, dtypes},
#define LIBRARY(op, name, dtypes)
static const struct ct_cuda_kernel kernels[CT_OP_COUNT] = {
#include "tensor/cuda/kernel.def"
};

/* How far a result may be from the CPU's before it is rounded to its type, in units (2^-23, 2^-52
 * of sums in f64) of its magnitude, 1 or the first operand's; 0: the same bits. In 16-bit elements
 * the exponential e^z of a GPU is 2 + 1.2 |z| units off, its quotient 2 (hostcuda.h), the CPU's
 * exponential 1.5, every other step a half for each of the two; |z| <= 6 with kit.c's operands.
 *
 * `walk`: sums of many terms in another order. The k-th partial sum of terms with mean square v is
 * about sqrt(k v), and adding to it errs by half a unit of that at most, evenly: the deviation of n
 * terms is n sqrt(v / 24) units. Six deviations of the difference of two sums: 1.8 n sqrt(v). */
struct bound {
    double f32, narrow, walk, narrow_walk; /* the last: of 16-bit elements alone */
};

#define WALK 1.8 /* times sqrt(v) */

static const struct bound bounds[CT_OP_COUNT] = {
    /* 5.5 of the density, which is 0.25 of x times it at most */
    [CT_OP_GELU_BW] = {.narrow = 3},
    /* the sigmoid s of z <= 3.8: (1 - s) 8 + 3.5 */
    [CT_OP_GELU_TANH] = {.narrow = 12},
    /* s, and x s (1 - s) times a slope up to 2.5: 11 + 4.9 * 3.7, roundings */
    [CT_OP_GELU_TANH_BW] = {.narrow = 32},
    /* s of z <= 2: (1 - s) 5.9 + 3.5, times two numbers up to 2 */
    [CT_OP_SWIGLU] = {.narrow = 12},
    /* d u (s + x s (1 - s)): 9 + 2 * 7, times 2 */
    [CT_OP_SWIGLU_BW] = {.narrow = 48},
    /* the logarithm of a sum of exponentials of z >= -4 */
    [CT_OP_CROSS_ENTROPY] = {.narrow = 10},
    /* e^z with z <= 1, and what the logarithm is off */
    [CT_OP_CROSS_ENTROPY_BW] = {.narrow = 16},
    [CT_OP_CROSS_ENTROPY_GRAD] = {.narrow = 16},
    /* means of numbers up to 4 (v = 16 / 9) in another order, 2.4 each, times numbers up to 4 */
    [CT_OP_LAYERNORM] = {.narrow = 12},
    [CT_OP_RMSNORM] = {.narrow = 12},
    [CT_OP_ADD_LAYERNORM] = {.narrow = 12},
    [CT_OP_ADD_RMSNORM] = {.narrow = 12},
    [CT_OP_LAYERNORM_BW] = {.narrow = 12, .narrow_walk = WALK * 2.7},
    [CT_OP_RMSNORM_BW] = {.narrow = 12, .narrow_walk = WALK * 2.7},
    /* numbers up to 2 (v = 4 / 3); times (x - mean) rstd up to 8 (v = 7) */
    [CT_OP_LINEAR_DB] = {.narrow_walk = WALK * 1.2},
    [CT_OP_NORM_DG] = {.narrow_walk = WALK * 2.7},
    /* x, its square (v = 3.2); dy and (x - mean) rstd up to 8 (v = 7) */
    [CT_OP_BATCH_SUMS] = {.walk = WALK * 1.8},
    [CT_OP_BATCH_GRADS] = {.walk = WALK * 2.7},
    /* x and W between -2 and 2 (v = 16 / 9) */
    [CT_OP_CONV2D] = {.walk = WALK * 1.34},
    [CT_OP_CONV2D_DX] = {.walk = WALK * 1.34},
    [CT_OP_CONV2D_DW] = {.walk = WALK * 1.34},
    /* Numbers up to 0.5 (a third: 2): scores of up to 34 columns are a unit off (10), the
     * exponential 4, sums over 150 places of p v, p dy, ds k and ds q, with p up to 0.6, another 6
     */
    [CT_OP_ATTENTION] = {.f32 = 16, .narrow = 16},
    [CT_OP_ATTENTION_BW] = {.f32 = 16, .narrow = 16},
    [CT_OP_ATTENTION_CACHED] = {.f32 = 32},
};

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},      {3, 17, 5, 10, 17}, {65, 33, 300, 17, 1025}, {17, 65, 3, 300, 20003},
    {900, 70, 5, 65, 33}, {2, 3, 1500, 9, 3}, {0, 3, 0, 3, 0},
};

/* Terms of the sum that an element of the result is. */
static int64_t terms_of(enum ct_op_kind op, const struct ct_kernel_args *args)
{
    int64_t filter = ct_shape_elements(args->in[1].shape);

    if (op == CT_OP_CONV2D || op == CT_OP_CONV2D_DX)
        return filter / ct_shape_columns(args->out[0].shape);
    return ct_shape_rows(args->in[0].shape);
}

static double bound_of(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args)
{
    const struct bound *bound = &bounds[op];
    const double unit = args->out[0].dtype == CT_F64 ? 0x1p-52 : 0x1p-23;

    double walk = bound->walk + (dtype == CT_F32 ? 0 : bound->narrow_walk);

    if (walk != 0)
        return (bound->narrow + walk * (double)terms_of(op, args)) * unit;
    return (dtype == CT_F32 ? bound->f32 : bound->narrow) * 0x1p-23;
}

/* ---- running on memory of the exact size, so that AddressSanitizer sees what lies beyond ---- */

struct exact {
    void *memory[CT_OP_MAX_IN + CT_OP_MAX_OUT];
    int count;
};

static struct ct_tensor exact_copy(struct exact *exact, const struct ct_tensor *tensor, size_t skew)
{
    size_t bytes = ct_tensor_bytes(tensor);
    struct ct_tensor copy = *tensor;

    if (tensor->data == NULL)
        return copy;
    void *memory = NULL;

    cr_assert_eq(posix_memalign(&memory, CT_DEVICE_ALIGN, CT_MAX(bytes + skew, 1)), 0);
    exact->memory[exact->count++] = memory;
    copy.data = (char *)memory + skew;
    memcpy(copy.data, tensor->data, bytes);
    return copy;
}

static struct ct_kernel_args exact_args(struct exact *exact, const struct ct_kernel_args *args,
                                        size_t skew)
{
    struct ct_kernel_args copy = *args;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        copy.in[i] = exact_copy(exact, &args->in[i], skew);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        copy.out[i] = exact_copy(exact, &args->out[i], skew);
    return copy;
}

static void free_exact(struct exact *exact)
{
    for (int i = 0; i < exact->count; i++)
        free(exact->memory[i]);
}

/* The kernel on what a queue gives it, the workspace filled with what an op before has left. */
static void run_kernel(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args,
                       int processors)
{
    struct ct_cuda_queue queue = {.processors = processors, .shared_bytes = HOSTCUDA_MAX_SHARED};
    struct ct_error err = {0};
    size_t bytes = 0;

    if (kernels[op].prepare != NULL)
        cr_assert_eq(kernels[op].prepare(&queue, dtype, args, &bytes, &err), 0, "%s", err.text);
    queue.workspace = malloc(bytes == 0 ? 1 : bytes);
    queue.workspace_bytes = bytes;
    cr_assert_not_null(queue.workspace);
    memset(queue.workspace, 0xff, bytes);
    kernels[op].launch(&queue, dtype, args);
    cr_assert_eq(queue.failure.code, 0, "%s", queue.failure.text);
    free(queue.workspace);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* From a 16-bit float as large as x to the next. */
static double step_of(enum ct_dtype dtype, double x)
{
    const bool bf16 = dtype == CT_BF16;

    if (!ct_dtype_is_narrow(dtype))
        return 0;
    return ldexp(1, CT_MAX(ilogb(x), bf16 ? -126 : -14) - (bf16 ? 7 : 10));
}

/* Two numbers `apart` at most before each is rounded to its nearest. NaN is NaN, whatever its bits;
 * infinity is where the type's numbers end. */
static bool near(double x, double y, double apart, enum ct_dtype dtype)
{
    double end = dtype == CT_F16 ? 0x1p16 : 0x1p128;

    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (apart == 0)
        return x == y && signbit(x) == signbit(y);
    x = fmin(fmax(x, -end), end);
    y = fmin(fmax(y, -end), end);
    return fabs(x - y) <= apart + step_of(dtype, fmax(fabs(x), fabs(y)));
}

/* 1, or as large as the operands are: element i of `want`, and of the first operand where that has
 * as many. */
static double magnitude_of(const struct ct_tensor *first, const struct ct_tensor *want, int64_t i)
{
    double own = fabs(kit_get(want, i)), other = 0;

    if (first->data != NULL && ct_shape_elements(first->shape) == ct_shape_elements(want->shape))
        other = fabs(kit_get(first, i));
    return fmax(1, fmax(isfinite(own) ? own : 0, isfinite(other) ? other : 0));
}

static void agree(const struct ct_tensor *got, const struct ct_tensor *want,
                  const struct ct_tensor *first, double bound, const char *what)
{
    for (int64_t i = 0; i < ct_shape_elements(got->shape); i++) {
        double x = kit_get(got, i), y = kit_get(want, i);

        cr_assert(near(x, y, bound * magnitude_of(first, want, i), got->dtype),
                  "%s: element %lld is %.9g, not %.9g", what, (long long)i, x, y);
    }
}

struct variant {
    uint64_t seed;
    int processors;
    size_t skew;
    bool in_place;
};

static void compare(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args,
                    const struct ct_kernel_args *expected, struct variant variant)
{
    struct exact exact = {0};
    struct ct_kernel_args copy = exact_args(&exact, args, variant.skew);
    int in = ct_op_info(op)->in_place;
    char what[96];

    if (variant.in_place) {
        if (in < 0 || copy.in[in].dtype != copy.out[0].dtype) {
            free_exact(&exact);
            return;
        }
        copy.out[0] = copy.in[in];
    }
    (void)snprintf(what, sizeof what, "%s, %s, seed %llu, skew %zu%s", ct_op_info(op)->name,
                   ct_dtype_name(dtype), (unsigned long long)variant.seed, variant.skew,
                   variant.in_place ? ", in place" : "");
    hostcuda_seed(variant.seed);
    run_kernel(op, dtype, &copy, variant.processors);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (copy.out[i].data != NULL)
            agree(&copy.out[i], &expected->out[i], &args->in[0], bound_of(op, dtype, args), what);
    free_exact(&exact);
}

/* Results depend neither on the order of blocks and warps, nor on how many processors share the
 * work, nor on alignment. */
static void compare_args(struct kit *kit, enum ct_op_kind op, enum ct_dtype dtype,
                         const struct ct_kernel_args *args)
{
    static const struct variant variants[] = {
        {1, 1, 0, false}, {2, 132, 8, false}, {3, 2, 0, true}};
    struct ct_kernel_args expected = kit_copy_args(kit, args);

    kit_run(CT_CPU_AUTO, 1, op, dtype, &expected);
    /* another order alone touches no other byte: nothing for a sanitizer */
    for (size_t i = SANITIZED; i < CT_COUNT(variants); i++)
        compare(op, dtype, args, &expected, variants[i]);
}

static bool has_attr(enum ct_op_kind op, enum ct_attr_id id)
{
    return (ct_op_info(op)->attributes >> id & 1) != 0;
}

static void compare_op(enum ct_op_kind op, enum ct_dtype dtype, struct kit_sizes size)
{
    struct kit kit;

    kit_init(&kit, kit_seed(op, 0));
    struct ct_kernel_args args = kit_args(&kit, op, dtype, size);

    compare_args(&kit, op, dtype, &args);
    if (has_attr(op, CT_ATTR_accumulate)) {
        args.attr.accumulate = true;
        compare_args(&kit, op, dtype, &args);
    }
    kit_deinit(&kit);
}

static void compare_all(enum ct_dtype dtype)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t i = 0; i < CT_COUNT(sizes) && (kernels[op].dtypes >> dtype & 1) != 0; i++)
            compare_op((enum ct_op_kind)op, dtype, sizes[i]);
}

Test(kernels, give_the_cpus_results_in_f32)
{
    compare_all(CT_F32);
}

/* What a plan copies of its sums. */
Test(kernels, give_the_cpus_results_in_f64)
{
    compare_all(CT_F64);
}

Test(kernels, give_the_cpus_results_in_bf16)
{
    compare_all(CT_BF16);
}

Test(kernels, give_the_cpus_results_in_f16)
{
    compare_all(CT_F16);
}

/* ---- what operands of random numbers do not reach ------------------------------------------- */

static const enum ct_dtype types[] = {CT_F32, CT_BF16, CT_F16};

/* Some rows of a table, some classes of the logits. */
Test(kernels, of_a_part_give_the_cpus_results)
{
    static const struct {
        uint64_t begin, classes;
    } parts[] = {{0, 10}, {5, 22}, {30, 40}, {50, 45}};

    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t i = 0; i < CT_COUNT(parts) * CT_COUNT(types); i++) {
            enum ct_dtype dtype = types[i % CT_COUNT(types)];
            struct kit_sizes size = {63, 13, 21, 17, 9};
            struct kit kit;

            if (!has_attr((enum ct_op_kind)op, CT_ATTR_part) ||
                (kernels[op].dtypes >> dtype & 1) == 0)
                continue;
            /* kernels for halves of the CPU know no part of what is summed by places */
            if (op == CT_OP_EMBEDDING_DP && dtype != CT_F32)
                continue;
            kit_init(&kit, kit_seed((enum ct_op_kind)op, i));
            struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, dtype, size);
            args.attr.part = true;
            args.attr.begin = parts[i / CT_COUNT(types)].begin;
            args.attr.classes = parts[i / CT_COUNT(types)].classes;
            for (int in = 0; in < CT_OP_MAX_IN; in++)
                if (args.in[in].data != NULL && args.in[in].dtype == CT_I32)
                    args.in[in] = kit_labels(&kit, ct_shape_elements(args.in[in].shape),
                                             (int64_t)args.attr.classes);
            compare_args(&kit, (enum ct_op_kind)op, dtype, &args);
            kit_deinit(&kit);
        }
}

static const double odd[] = {NAN,   INFINITY, -INFINITY, 0,    -0.0, 1e-42,
                             -1e-7, 88.5,     -88.5,     3e38, 60000};

/* Element by element, so that a NaN stays where it is. */
Test(kernels, hide_no_nan_and_no_infinity)
{
    static const enum ct_op_kind ops[] = {CT_OP_RELU,
                                          CT_OP_RELU_BW,
                                          CT_OP_GELU,
                                          CT_OP_GELU_BW,
                                          CT_OP_TANH,
                                          CT_OP_TANH_BW,
                                          CT_OP_ADD,
                                          CT_OP_MUL,
                                          CT_OP_SCALE,
                                          CT_OP_AXPY,
                                          CT_OP_COPY,
                                          CT_OP_NARROW,
                                          CT_OP_WIDEN,
                                          CT_OP_DROPOUT,
                                          CT_OP_SGD,
                                          CT_OP_ADAMW,
                                          CT_OP_LION,
                                          CT_OP_EMA,
                                          CT_OP_NARROW_STOCHASTIC};

    for (size_t i = 0; i < CT_COUNT(ops) * CT_COUNT(types); i++) {
        enum ct_op_kind op = ops[i / CT_COUNT(types)];
        enum ct_dtype dtype = types[i % CT_COUNT(types)];
        struct kit kit;

        if ((kernels[op].dtypes >> dtype & 1) == 0)
            continue;
        kit_init(&kit, i);
        struct ct_kernel_args args = kit_args(&kit, op, dtype, sizes[2]);
        for (int64_t j = 0; j < ct_shape_elements(args.in[0].shape); j++)
            if (j % 3 == 0)
                kit_set(&args.in[0], j, odd[(size_t)j / 3 % CT_COUNT(odd)]);
        compare_args(&kit, op, dtype, &args);
        kit_deinit(&kit);
    }
}

/* Equal logits, before and behind the label's, and NaN among them. */
Test(kernels, of_counts_see_equal_logits_as_the_cpu_does)
{
    static const enum ct_op_kind ops[] = {CT_OP_CORRECT, CT_OP_CROSS_ENTROPY_GRAD, CT_OP_VOCAB_SUMS,
                                          CT_OP_VOCAB_CORRECT};

    for (size_t i = 0; i < CT_COUNT(ops) * CT_COUNT(types); i++) {
        enum ct_op_kind op = ops[i / CT_COUNT(types)];
        enum ct_dtype dtype = types[i % CT_COUNT(types)];
        struct kit_sizes size = {200, 3, 3, 4, 5};
        struct kit kit;

        if ((kernels[op].dtypes >> dtype & 1) == 0)
            continue;
        kit_init(&kit, i);
        struct ct_kernel_args args = kit_args(&kit, op, dtype, size);
        for (int in = 0; in < CT_OP_MAX_IN; in += 2)
            for (int64_t j = 0;
                 args.in[in].data != NULL && j < ct_shape_elements(args.in[in].shape); j++)
                kit_set(&args.in[in], j, (double)ct_rng_below(&kit.rng, 3));
        if (op == CT_OP_CORRECT || op == CT_OP_CROSS_ENTROPY_GRAD)
            kit_set(&args.in[0], 5, NAN);
        compare_args(&kit, op, dtype, &args);
        kit_deinit(&kit);
    }
}

/* Wherever the batch begins in a block of philox's numbers. */
Test(kernels, of_dropout_draw_the_same_numbers_from_any_element_on)
{
    for (size_t i = 0; i < 4 * CT_COUNT(types); i++) {
        struct kit kit;

        kit_init(&kit, i);
        struct ct_kernel_args args =
            kit_args(&kit, CT_OP_DROPOUT, types[i % CT_COUNT(types)], sizes[2]);
        args.attr.first = ((uint64_t)1 << 34) + i / CT_COUNT(types);
        compare_args(&kit, CT_OP_DROPOUT, types[i % CT_COUNT(types)], &args);
        kit_deinit(&kit);
    }
}

/* Runs of a larger tensor: what a rank holds of columns. */
Test(kernels, of_initial_values_draw_runs_of_a_larger_tensor)
{
    for (int i = 0; i < 2; i++) {
        enum ct_op_kind op = i == 0 ? CT_OP_UNIFORM : CT_OP_NORMAL;
        struct kit kit;

        kit_init(&kit, 1);
        struct ct_kernel_args args = kit_args(&kit, op, CT_F32, sizes[2]);
        args.attr.run = 7;
        args.attr.stride = 26;
        compare_args(&kit, op, CT_F32, &args);
        kit_deinit(&kit);
    }
}

/* From any element on, whole or in runs: a shard of a slice. */
Test(kernels, of_rounding_draw_for_the_numbers_of_the_whole)
{
    for (uint64_t i = 0; i < 10; i++) {
        struct kit kit;

        kit_init(&kit, i);
        struct ct_kernel_args args =
            kit_args(&kit, CT_OP_NARROW_STOCHASTIC, CT_BF16, sizes[2 + i % 2]);
        args.attr.first = ((uint64_t)1 << 35) + i;
        args.attr.begin = 14;
        args.attr.run = i < 5 ? 0 : 7;
        args.attr.stride = 26;
        compare_args(&kit, CT_OP_NARROW_STOCHASTIC, CT_BF16, &args);
        kit_deinit(&kit);
    }
}

/* A vocabulary like GPT-2's: rows that fit into shared memory and rows that do not; ids of three
 * digits of the sort, one of them in most rows. */
Test(kernels, give_the_cpus_results_for_many_classes)
{
    static const enum ct_op_kind ops[] = {CT_OP_CROSS_ENTROPY, CT_OP_CROSS_ENTROPY_BW,
                                          CT_OP_CROSS_ENTROPY_GRAD, CT_OP_CORRECT,
                                          CT_OP_VOCAB_SUMS};
    const struct kit_sizes few = {3, 3, 4, 50257, 5}, many = {3, 3, 4, 140000, 5};

    for (size_t i = 0; i < CT_COUNT(ops) * CT_COUNT(types); i++)
        if ((kernels[ops[i / CT_COUNT(types)]].dtypes >> types[i % CT_COUNT(types)] & 1) != 0)
            compare_op(ops[i / CT_COUNT(types)], types[i % CT_COUNT(types)], few);
    compare_op(CT_OP_CROSS_ENTROPY, CT_F32, many);
    compare_op(CT_OP_CROSS_ENTROPY_GRAD, CT_F32, many);
}

Test(kernels, give_the_cpus_results_for_many_tokens)
{
    enum { TOKENS = 20000 };

    for (size_t i = 0; i < CT_COUNT(types); i++) {
        struct kit kit;

        kit_init(&kit, i);
        struct ct_kernel_args args = kit_args(&kit, CT_OP_EMBEDDING_DW, types[i],
                                              (struct kit_sizes){TOKENS, 3, 5, 70000, 5});
        for (int64_t row = 0; row < TOKENS; row++)
            if (row % 5 < 3)
                kit_set(&args.in[0], row, 65538);
        compare_args(&kit, CT_OP_EMBEDDING_DW, types[i], &args);
        kit_deinit(&kit);
    }
}

/* Rows of which 16, a few, or not even one fit into shared memory. */
Test(kernels, of_norms_give_the_cpus_results_for_rows_of_any_length)
{
    static const enum ct_op_kind ops[] = {CT_OP_LAYERNORM_BW, CT_OP_RMSNORM_BW, CT_OP_ADD_LAYERNORM,
                                          CT_OP_ADD_RMSNORM};
    static const struct kit_sizes rows[] = {
        {.m = 19, .k = 768}, {.m = 19, .k = 3000}, {.m = 5, .k = 6001}, {.m = 2, .k = 40000}};

    for (size_t i = 0; i < CT_COUNT(ops) * CT_COUNT(rows); i++)
        for (size_t t = 0; t < CT_COUNT(types); t++)
            compare_op(ops[i % CT_COUNT(ops)], types[t], rows[i / CT_COUNT(ops)]);
}

/* What it is for: dy and x are read by one kernel, the sums of its blocks by another. */
Test(kernels, of_a_norms_gradients_are_two)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args =
        kit_args(&kit, CT_OP_LAYERNORM_BW, CT_BF16, (struct kit_sizes){.m = 600, .k = 768});
    uint64_t before = hostcuda_launches();

    run_kernel(CT_OP_LAYERNORM_BW, CT_BF16, &args, 132);
    cr_assert_eq(hostcuda_launches() - before, 2);
    kit_deinit(&kit);
}

/* Operands that may be left out are. */
Test(kernels, take_optional_operands_as_the_cpu_does)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t t = 0; t < CT_COUNT(types); t++) {
            struct ct_operands operands;
            struct kit kit;

            if ((kernels[op].dtypes >> types[t] & 1) == 0)
                continue;
            ct_op_operands((enum ct_op_kind)op, &operands);
            kit_init(&kit, kit_seed((enum ct_op_kind)op, 0));
            struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, types[t], sizes[2]);
            bool any = false;

            for (int i = 0; i < operands.in_count; i++)
                if (operands.in[i].optional) {
                    args.in[i].data = NULL;
                    any = true;
                }
            if (any)
                compare_args(&kit, (enum ct_op_kind)op, types[t], &args);
            kit_deinit(&kit);
        }
}

/* A step that cannot be taken leaves all as it was; SGD in its three forms. */
Test(kernels, of_optimizers_follow_their_attributes)
{
    static const enum ct_op_kind ops[] = {CT_OP_SGD, CT_OP_ADAMW, CT_OP_LION, CT_OP_EMA,
                                          CT_OP_RUNNING_UPDATE};
    static const int scale_of[] = {2, 3, 2, 2, 1};

    for (size_t i = 0; i < CT_COUNT(ops); i++)
        for (int form = 0; form < 4; form++) {
            struct kit kit;

            kit_init(&kit, i);
            struct ct_kernel_args args = kit_args(&kit, ops[i], CT_F32, sizes[2]);
            args.attr.momentum = form == 0 ? 0 : 0.9;
            args.attr.nesterov = form == 1;
            if (form == 3)
                kit_set(&args.in[scale_of[i]], 0, NAN);
            compare_args(&kit, ops[i], CT_F32, &args);
            kit_deinit(&kit);
        }
}
