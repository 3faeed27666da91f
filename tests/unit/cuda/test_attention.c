/* Attention's kernels on the host, against the CPU device. */
#include "tensor/cuda/attention/attention.h"

#include "base/assert.h"
#include "host.h"
#include "kit.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

TestSuite(attention, .timeout = 60);

#define KERNEL(op, name, dtypes) [CT_OP_##op] = {ct_cuda_##name, NULL, 0},
#define PREPARED(op, name, dtypes) [CT_OP_##op] = {ct_cuda_##name, ct_cuda_##name##_prepare, 0},
#define LIBRARY(op, name, dtypes)
static const struct ct_cuda_kernel kernels[CT_OP_COUNT] = {
#include "tensor/cuda/kernel.def"
};

struct layout {
    int64_t sequences, sequence, heads, size;
};

static void attributes(struct ct_kernel_args *args, const struct layout *l)
{
    args->attr.heads = (uint64_t)l->heads;
    args->attr.sequence = (uint64_t)l->sequence;
}

/* Operands of attention, the results in front of a guard. */
static struct ct_kernel_args forward_args(struct kit *kit, enum ct_dtype dtype,
                                          const struct layout *l)
{
    int64_t rows = l->sequences * l->sequence, width = l->heads * l->size;
    struct ct_kernel_args args = {.in = {kit_random(kit, dtype, ct_shape2(rows, 3 * width), -2, 2)},
                                  .out = {kit_tensor(kit, dtype, ct_shape2(rows, width)),
                                          kit_tensor(kit, CT_F32, ct_shape2(rows, l->heads))}};

    attributes(&args, l);
    return args;
}

/* Operands of attention_bw, y and lse as attention gives them. */
static struct ct_kernel_args backward_args(struct kit *kit, enum ct_dtype dtype,
                                           const struct layout *l)
{
    struct ct_kernel_args forward = forward_args(kit, dtype, l);
    struct ct_shape rows = forward.out[0].shape;

    kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION, dtype, &forward);
    struct ct_kernel_args args = {
        .in = {kit_random(kit, dtype, rows, -1, 1), forward.in[0], forward.out[0], forward.out[1]},
        .out = {kit_tensor(kit, dtype, forward.in[0].shape)}};

    attributes(&args, l);
    return args;
}

static bool warpgroups; /* of the queue: which kernels multiply */

/* Run an op of kernel.def on the host's memory; the workspace holds what `prepare` asked for. */
static void run(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args)
{
    const struct ct_cuda_kernel *kernel = &kernels[op];
    struct ct_cuda_queue queue = {.processors = 4, .warpgroups = warpgroups};
    struct ct_error err;
    size_t bytes = 0;

    cr_assert_eq(ct_op_check(op, dtype, args, &err), 0);
    if (kernel->prepare != NULL)
        cr_assert_eq(kernel->prepare(&queue, dtype, args, &bytes, &err), 0);
    queue.workspace = malloc(bytes + 1);
    cr_assert_not_null(queue.workspace);
    kernel->launch(&queue, dtype, args);
    free(queue.workspace);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args->out[i].data != NULL)
            kit_guards(&args->out[i]);
}

/* How far `a` is from `b`, as a share of b's norm; infinite for a NaN. */
static double distance(const struct ct_tensor *a, const struct ct_tensor *b)
{
    double difference = 0, norm = 1e-30;

    for (int64_t i = 0; i < ct_shape_elements(a->shape); i++) {
        difference += pow(kit_get(a, i) - kit_get(b, i), 2);
        norm += pow(kit_get(b, i), 2);
    }
    return isnan(difference) ? (double)INFINITY : sqrt(difference / norm);
}

/* Scores are sums of products of 16 bits in f32; p and ds, and then results, are rounded once. */
static double bound(enum ct_dtype dtype)
{
    if (dtype == CT_F32)
        return 1e-6;
    return dtype == CT_BF16 ? 4e-3 : 5e-4;
}

static void compare(enum ct_op_kind op, enum ct_dtype dtype, const struct layout *l)
{
    struct kit kit;

    kit_init(&kit, (uint64_t)(l->sequence * 1000 + l->size));
    struct ct_kernel_args args =
        op == CT_OP_ATTENTION ? forward_args(&kit, dtype, l) : backward_args(&kit, dtype, l);
    struct ct_kernel_args expected = kit_copy_args(&kit, &args);

    run(op, dtype, &args);
    kit_run(CT_CPU_AUTO, 1, op, dtype, &expected);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args.out[i].data != NULL) {
            double far = distance(&args.out[i], &expected.out[i]);

            cr_assert_lt(
                far, bound(dtype), "%s of %s, sequences of %d, heads of %d: output %d is %g off",
                ct_op_info(op)->name, ct_dtype_name(dtype), (int)l->sequence, (int)l->size, i, far);
        }
    kit_deinit(&kit);
}

static const int64_t lengths[] = {1, 17, 64, 65, 130, 193};

static void compare_lengths(enum ct_op_kind op, enum ct_dtype of_64, enum ct_dtype of_128)
{
    for (size_t i = 0; i < CT_COUNT(lengths); i++)
        for (int64_t size = 64; size <= 128; size += 64) {
            struct layout l = {2, lengths[i], 2, size};

            compare(op, size == 64 ? of_64 : of_128, &l);
        }
}

Test(attention, on_tensor_cores_is_the_cpus)
{
    compare_lengths(CT_OP_ATTENTION, CT_BF16, CT_F16);
}

Test(attention, on_tensor_cores_has_the_cpus_gradients)
{
    compare_lengths(CT_OP_ATTENTION_BW, CT_F16, CT_BF16);
}

Test(attention, by_warpgroups_is_the_cpus)
{
    warpgroups = true;
    compare_lengths(CT_OP_ATTENTION, CT_F16, CT_BF16);
}

Test(attention, by_warpgroups_has_the_cpus_gradients)
{
    warpgroups = true;
    compare_lengths(CT_OP_ATTENTION_BW, CT_BF16, CT_F16);
}

Test(attention, of_any_head_is_the_cpus)
{
    static const int64_t sizes[] = {1, 33, 64, 80, 200, 300};
    static const enum ct_dtype types[] = {CT_F32, CT_BF16, CT_F16};

    for (size_t i = 0; i < CT_COUNT(sizes); i++) {
        struct layout l = {2, 21, 3, sizes[i]};
        enum ct_dtype dtype = sizes[i] == 64 ? CT_F32 : types[i % CT_COUNT(types)];

        compare(CT_OP_ATTENTION, dtype, &l);
        compare(CT_OP_ATTENTION_BW, dtype, &l);
    }
}

static void repeat(enum ct_op_kind op, enum ct_dtype dtype, int64_t size)
{
    const struct layout l = {1, 130, 1, size};
    struct kit kit;

    kit_init(&kit, 9);
    struct ct_kernel_args args =
        op == CT_OP_ATTENTION ? forward_args(&kit, dtype, &l) : backward_args(&kit, dtype, &l);
    struct ct_kernel_args again = kit_copy_args(&kit, &args);

    run(op, dtype, &args);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        hostcuda_seed(seed);
        run(op, dtype, &again);
        kit_same_bytes(&args.out[0], &again.out[0], ct_op_info(op)->name);
    }
    kit_deinit(&kit);
}

Test(attention, has_the_same_bits_in_any_order_of_blocks_and_warps)
{
    repeat(CT_OP_ATTENTION, CT_F32, 40);
    repeat(CT_OP_ATTENTION_BW, CT_F32, 40);
    for (int i = 0; i < 2; i++) {
        warpgroups = i == 1;
        repeat(CT_OP_ATTENTION, CT_BF16, 64);
        repeat(CT_OP_ATTENTION_BW, CT_BF16, 64);
        repeat(CT_OP_ATTENTION_BW, CT_F16, 128);
    }
}

/* Row `row` of y sees a NaN in the key of row 70 from there on. */
static void spread_nan(void)
{
    const struct layout l = {1, 130, 1, 64};
    struct kit kit;

    kit_init(&kit, 10);
    struct ct_kernel_args args = forward_args(&kit, CT_BF16, &l);

    kit_set(&args.in[0], 70 * 192 + 64, (double)NAN);
    run(CT_OP_ATTENTION, CT_BF16, &args);
    for (int64_t row = 0; row < l.sequence; row++)
        cr_assert_eq(isnan(kit_get(&args.out[0], row * 64)) != 0, row >= 70, "row %d", (int)row);
    kit_deinit(&kit);
}

Test(attention, hands_a_nan_to_those_who_see_it_and_to_no_other)
{
    spread_nan();
    warpgroups = true;
    spread_nan();
}

Test(attention, goes_to_tensor_cores_where_rows_are_whole_words)
{
    _Alignas(16) static char memory[64];
    struct ct_cuda_heads a = {.qkv = memory, .y = memory, .size = 64, .heads = 1, .sequence = 1};
    struct ct_cuda_queue queue = {.warpgroups = false};

    cr_assert_eq(ct_cuda_heads_flash(&queue, &a, CT_BF16), &ct_cuda_flash_64);
    cr_assert_eq(ct_cuda_heads_flash(&queue, &a, CT_F16), &ct_cuda_flash_64);
    cr_assert_null(ct_cuda_heads_flash(&queue, &a, CT_F32));
    queue.warpgroups = true;
    cr_assert_eq(ct_cuda_heads_flash(&queue, &a, CT_BF16), &ct_cuda_hopper_64);
    a.y = memory + 8;
    cr_assert_null(ct_cuda_heads_flash(&queue, &a, CT_BF16));
    a.y = memory;
    a.size = 128;
    cr_assert_eq(ct_cuda_heads_flash(&queue, &a, CT_BF16), &ct_cuda_hopper_128);
    a.size = 80;
    cr_assert_null(ct_cuda_heads_flash(&queue, &a, CT_BF16));
}

/* Tokens that come in two calls get what they get in one, from a cache or not. */
Test(attention, cached_has_the_bits_of_the_whole_sequence)
{
    const struct layout l = {1, 40, 3, 20};
    const int64_t width = l.heads * l.size, split = 23;
    struct kit kit;

    kit_init(&kit, 11);
    struct ct_kernel_args whole = forward_args(&kit, CT_F32, &l);
    struct ct_tensor cache = kit_tensor(&kit, CT_F32, ct_shape2(50, 2 * width));

    run(CT_OP_ATTENTION, CT_F32, &whole);
    for (int64_t first = 0; first < l.sequence; first += split) {
        int64_t rows = CT_MIN(split, l.sequence - first);
        struct ct_kernel_args part = {
            .in = {ct_tensor_slice(&whole.in[0], first, rows), kit_places(&kit, rows, first)},
            .out = {kit_tensor(&kit, CT_F32, ct_shape2(rows, width)), cache}};
        struct ct_tensor expected = ct_tensor_slice(&whole.out[0], first, rows);

        part.attr.heads = (uint64_t)l.heads;
        run(CT_OP_ATTENTION_CACHED, CT_F32, &part);
        kit_same_bytes(&part.out[0], &expected, "attention_cached");
    }
    kit_deinit(&kit);
}

static void rotate(enum ct_dtype dtype, const struct layout *l, bool places, bool inverse)
{
    int64_t rows = l->sequences * l->sequence;
    struct kit kit;

    kit_init(&kit, 12);
    struct ct_shape shape = ct_shape2(rows, 3 * l->heads * l->size);
    struct ct_kernel_args args = {.in = {kit_random(&kit, dtype, shape, -2, 2)},
                                  .out = {kit_tensor(&kit, dtype, shape)}};

    attributes(&args, l);
    args.attr.base = 10000;
    args.attr.inverse = inverse;
    args.attr.first = 3;
    if (places)
        args.in[1] = kit_places(&kit, rows, 900);
    struct ct_kernel_args expected = kit_copy_args(&kit, &args);
    struct ct_kernel_args in_place = kit_copy_args(&kit, &args);

    in_place.out[0] = in_place.in[0];
    run(CT_OP_ROPE, dtype, &args);
    run(CT_OP_ROPE, dtype, &in_place);
    kit_run(CT_CPU_AUTO, 1, CT_OP_ROPE, dtype, &expected);
    kit_same_bytes(&args.out[0], &expected.out[0], "rope");
    kit_same_bytes(&in_place.out[0], &expected.out[0], "rope in place");
    kit_deinit(&kit);
}

Test(attention, rope_has_the_cpus_bits)
{
    const struct layout small = {3, 5, 2, 6}, wide = {1, 4, 2, 256};

    rotate(CT_F32, &small, false, false);
    rotate(CT_F32, &small, true, true);
    rotate(CT_F32, &wide, false, true);
    rotate(CT_BF16, &small, true, false);
    rotate(CT_F16, &wide, false, false);
}
