/* Every kernel of the CUDA device that is our own, run on the host (tests/lib/hostcuda) and
 * compared with the CPU device: the same bits, but where `bounds` says why not. */
#include "host.h"
#include "kit.h"

#include "base/assert.h"
#include "tensor/cuda/cuda.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(kernels, .timeout = 120);

enum { F32 = 1 << CT_F32, NARROWS = 1 << CT_BF16 | 1 << CT_F16, FLOATS = F32 | NARROWS };

#define KERNEL(op, name, dtypes) [CT_OP_##op] = {ct_cuda_##name, NULL, dtypes},
#define PREPARED(op, name, dtypes) \
    [CT_OP_##op] = {ct_cuda_##name, ct_cuda_##name##_prepare, dtypes},
#define LIBRARY(op, name, dtypes)
static const struct ct_cuda_kernel kernels[CT_OP_COUNT] = {
#include "tensor/cuda/kernel.def"
};

/* How far a result may be from the CPU's, relative to its magnitude or to 1: where an op adds up in
 * another order, or computes 16-bit elements by shorter formulas, which may round a result to its
 * neighbour. 0: the same bits. */
struct bound {
    double f32, bf16, f16;
};

static const struct bound bounds[CT_OP_COUNT] = {
    [CT_OP_GELU_BW] = {0, 0x1p-8, 0x1p-11},          [CT_OP_GELU_TANH] = {0, 0x1p-8, 0x1p-11},
    [CT_OP_GELU_TANH_BW] = {0, 0x1p-8, 0x1p-11},     [CT_OP_SWIGLU] = {0, 0x1p-8, 0x1p-11},
    [CT_OP_SWIGLU_BW] = {0, 0x1p-8, 0x1p-11},        [CT_OP_CROSS_ENTROPY] = {0, 1e-6, 1e-6},
    [CT_OP_CROSS_ENTROPY_BW] = {0, 0x1p-8, 0x1p-11},
};

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},      {3, 17, 5, 10, 17}, {65, 33, 300, 17, 1025}, {17, 65, 3, 300, 20003},
    {900, 70, 5, 65, 33}, {2, 3, 1500, 9, 3}, {0, 3, 0, 3, 0},
};

static double bound_of(enum ct_op_kind op, enum ct_dtype dtype)
{
    const struct bound *bound = &bounds[op];

    return dtype == CT_F32 ? bound->f32 : dtype == CT_BF16 ? bound->bf16 : bound->f16;
}

/* ---- running on memory of the exact size, so that AddressSanitizer sees what lies beyond
 * ----------- */

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
static void run_kernel(enum ct_op_kind op, enum ct_dtype dtype, const struct ct_kernel_args *args)
{
    struct ct_cuda_queue queue = {.processors = 2, .shared_bytes = HOSTCUDA_MAX_SHARED};
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

static void agree(const struct ct_tensor *got, const struct ct_tensor *want, double bound,
                  const char *what)
{
    if (bound == 0) {
        kit_same_bytes(got, want, what);
        return;
    }
    for (int64_t i = 0; i < ct_shape_elements(got->shape); i++) {
        double x = kit_get(got, i), y = kit_get(want, i);

        cr_assert(fabs(x - y) <= bound * fmax(1, fabs(y)), "%s: element %lld is %.9g, not %.9g",
                  what, (long long)i, x, y);
    }
}

struct variant {
    uint64_t seed;
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
    run_kernel(op, dtype, &copy);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (copy.out[i].data != NULL)
            agree(&copy.out[i], &expected->out[i], bound_of(op, dtype), what);
    free_exact(&exact);
}

static void compare_op(enum ct_op_kind op, enum ct_dtype dtype, struct kit_sizes size,
                       bool accumulate)
{
    static const struct variant variants[] = {{1, 0, false}, {2, 8, false}, {3, 0, true}};
    struct kit kit;

    kit_init(&kit, (uint64_t)op + 1);
    struct ct_kernel_args args = kit_args(&kit, op, dtype, size);
    args.attr.accumulate = accumulate;
    struct ct_kernel_args expected = kit_copy_args(&kit, &args);

    kit_run(CT_CPU_AUTO, 1, op, dtype, &expected);
    for (size_t i = 0; i < CT_COUNT(variants); i++)
        compare(op, dtype, &args, &expected, variants[i]);
    kit_deinit(&kit);
}

static void compare_all(enum ct_dtype dtype)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        bool accumulates =
            (ct_op_info((enum ct_op_kind)op)->attributes >> CT_ATTR_accumulate & 1) != 0;

        for (size_t i = 0; i < CT_COUNT(sizes) && (kernels[op].dtypes >> dtype & 1) != 0; i++) {
            compare_op((enum ct_op_kind)op, dtype, sizes[i], false);
            if (accumulates)
                compare_op((enum ct_op_kind)op, dtype, sizes[i], true);
        }
    }
}

Test(kernels, give_the_cpus_results_in_f32)
{
    compare_all(CT_F32);
}

Test(kernels, give_the_cpus_results_in_bf16)
{
    compare_all(CT_BF16);
}

Test(kernels, give_the_cpus_results_in_f16)
{
    compare_all(CT_F16);
}
