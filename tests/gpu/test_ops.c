/* E17 on a GPU: every op of the CUDA device beside the CPU's, by the norm of the difference.
 * Outputs are poisoned, so that an element that is not written is NaN; NaN agrees with nothing. */
#include "base/assert.h"
#include "kit.h"
#include "tensor/plugin.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(gpu_ops, .timeout = 300);

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},
    {3, 17, 5, 10, 17},
    {65, 33, 300, 17, 1025},
    {17, 65, 3, 300, 70003},
    {900, 70, 5, 65, 33},
    {100, 3, 2, 601, 3},
    {512, 768, 256, 5003, 1 << 20}, /* heads of 64, ... */
    {200, 96, 128, 40, 4097},       /* ... of 128 (kit.c) */
};

/* How far a result may be, as a share of its norm: sums of some hundred products in another order,
 * or a step of 8 or 11 bits, which is how far two numbers may be rounded apart. */
static double share_of(enum ct_dtype dtype)
{
    return dtype == CT_F32 ? 2e-5 : dtype == CT_BF16 ? 0x1p-7 : 0x1p-10;
}

/* And besides, of each element, however small the sum is that it came to: 32 units of f32, as
 * tests/unit/cuda/test_kernels.c has them; where a device takes on what the CPU has rounded in
 * between, half a step of that, times GELU's steepest slope (1.13): a sum of products of numbers up
 * to 2, as many as in[0] has columns (three deviations: 4 sqrt(columns)), or attention's p and ds.
 */
static double floor_of(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args)
{
    double half = ct_dtype_is_narrow(dtype) ? share_of(dtype) / 2 : 0, units = 0x1p-18;

    if (op == CT_OP_LINEAR_GELU || op == CT_OP_LINEAR_DX_GELU)
        return units + half * 1.13 * 4 * sqrt((double)ct_shape_columns(args->in[0].shape));
    return op == CT_OP_ATTENTION || op == CT_OP_ATTENTION_BW ? units + half : units;
}

struct rig {
    struct ct_device *gpu;
    char *arena;
    size_t bytes;
};

enum { ARENA_BYTES = 1 << 28 };

static void rig_init(struct rig *rig)
{
    const struct ct_device_request request = {.kind = CT_DEVICE_CUDA};
    struct ct_error why, err = {0};
    void *arena = NULL;

    cr_assert_eq(ct_device_open(&request, &rig->gpu, &why, &err), 0, "%s", err.text);
    cr_assert_eq(ct_device_alloc(rig->gpu, ARENA_BYTES, &arena, &err), 0, "%s", err.text);
    rig->arena = arena;
}

static void rig_deinit(struct rig *rig)
{
    ct_device_release(rig->gpu, rig->arena, ARENA_BYTES);
    ct_device_free(rig->gpu);
}

/* The operand on the device. */
static struct ct_tensor place(struct rig *rig, const struct ct_tensor *tensor)
{
    struct ct_tensor copy = *tensor;
    size_t bytes = ct_tensor_bytes(tensor);

    if (tensor->data == NULL)
        return copy;
    cr_assert(rig->bytes + bytes + 256 <= ARENA_BYTES);
    copy.data = rig->arena + rig->bytes;
    rig->bytes += (bytes + 255) / 256 * 256;
    ct_device_copy_in(rig->gpu, copy.data, tensor->data, bytes);
    return copy;
}

/* As a share of what rounding may do. */
static double difference(const struct ct_tensor *got, const struct ct_tensor *want, double share,
                         double floor)
{
    int64_t count = ct_shape_elements(got->shape);
    double apart = 0, norm = 0;

    for (int64_t i = 0; i < count; i++) {
        double x = kit_get(got, i), y = kit_get(want, i);
        apart += isinf(y) && x == y ? 0 : (x - y) * (x - y);
        norm += isinf(y) ? 0 : y * y;
    }
    return apart == 0 ? 0 : sqrt(apart) / (share * sqrt(norm) + floor * sqrt((double)count));
}

/* The worst of the op's outputs. */
static double compare(struct rig *rig, enum ct_op_kind op, enum ct_dtype dtype,
                      struct kit_sizes size, bool accumulate)
{
    struct kit kit;
    struct ct_error err = {0};
    double worst = 0;

    kit_init(&kit, kit_seed(op, (uint64_t)size.m));
    struct ct_kernel_args args = kit_args(&kit, op, dtype, size);
    args.attr.accumulate = accumulate;
    bool reads = accumulate || ct_op_info(op)->updates;
    for (int i = 0; i < CT_OP_MAX_OUT && !reads; i++)
        if (args.out[i].data != NULL)
            memset(args.out[i].data, 0xff, ct_tensor_bytes(&args.out[i]));
    struct ct_kernel_args far = args;

    rig->bytes = 0;
    for (int i = 0; i < CT_OP_MAX_IN; i++)
        far.in[i] = place(rig, &args.in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        far.out[i] = place(rig, &args.out[i]);
    cr_assert_eq(ct_device_prepare(rig->gpu, op, dtype, &far, &err), 0, "%s", err.text);
    ct_device_run(rig->gpu, op, dtype, &far);
    cr_assert_eq(ct_device_finish(rig->gpu, &err), 0, "%s", err.text);
    kit_run(CT_CPU_AUTO, 8, op, dtype, &args);
    for (int i = 0; i < CT_OP_MAX_OUT; i++) {
        if (args.out[i].data == NULL)
            continue;
        struct ct_tensor back = kit_copy(&kit, &args.out[i], args.out[i].dtype);
        ct_device_copy_out(rig->gpu, back.data, far.out[i].data, ct_tensor_bytes(&back));
        double apart = difference(&back, &args.out[i], share_of(dtype), floor_of(op, dtype, &args));
        worst = isnan(apart) || apart > worst ? apart : worst;
    }
    kit_deinit(&kit);
    return worst;
}

/* Whether a size is asked for: CTRUN_GPU_SIZES has the digits of those that are, fewer where a
 * sanitizer makes each kernel slow; all of them without it. */
static bool is_wanted(size_t i)
{
    const char *digits = getenv("CTRUN_GPU_SIZES");

    return digits == NULL || strchr(digits, '0' + (int)i) != NULL;
}

/* Prints a line an op; how many do not agree. */
static int compare_op(struct rig *rig, enum ct_op_kind op, enum ct_dtype dtype)
{
    bool accumulates = (ct_op_info(op)->attributes >> CT_ATTR_accumulate & 1) != 0;
    double worst = 0;

    for (size_t i = 0; i < CT_COUNT(sizes); i++)
        for (int accumulate = 0; accumulate <= (accumulates ? 1 : 0) && is_wanted(i);
             accumulate++) {
            double apart = compare(rig, op, dtype, sizes[i], accumulate != 0);
            worst = isnan(apart) || apart > worst ? apart : worst;
        }
    bool agrees = worst <= 1;
    (void)printf("%-18s %-5s %9.2g of what rounding may do%s\n", ct_op_info(op)->name,
                 ct_dtype_name(dtype), worst, agrees ? "" : "  DIFFERS");
    return agrees ? 0 : 1;
}

Test(gpu_ops, give_the_cpus_results)
{
    static const enum ct_dtype dtypes[] = {CT_F32, CT_BF16, CT_F16};
    struct rig rig = {0};
    int differ = 0, absent = 0;

    rig_init(&rig);
    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t i = 0; i < CT_COUNT(dtypes); i++) {
            if (ct_device_has(rig.gpu, (enum ct_op_kind)op, dtypes[i]))
                differ += compare_op(&rig, (enum ct_op_kind)op, dtypes[i]);
            else if (i == 0 && op != CT_OP_NARROW && op != CT_OP_WIDEN) {
                (void)printf("%-18s is not there\n", ct_op_info((enum ct_op_kind)op)->name);
                absent++;
            }
        }
    rig_deinit(&rig);
    cr_assert_eq(differ, 0, "%d ops differ from the CPU's", differ);
    cr_assert_eq(absent, 0, "%d ops are not there", absent);
}
