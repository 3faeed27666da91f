/* See kit.h. */
#include "kit.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0x5a };

void kit_init(struct kit *kit, uint64_t seed)
{
    const char *text = getenv("TEST_SEED");
    uint64_t other = text != NULL ? strtoull(text, NULL, 10) : 0;

    *kit = (struct kit){0};
    ct_arena_init(&kit->arena, (size_t)1 << 30);
    ct_rng_init(&kit->rng, other != 0 ? ct_hash64(&seed, sizeof seed, other) : seed);
}

uint64_t kit_seed(enum ct_op_kind op, uint64_t number)
{
    return ct_hash_str(ct_op_info(op)->name) + number;
}

void kit_deinit(struct kit *kit)
{
    ct_arena_deinit(&kit->arena);
}

double kit_uniform(struct kit *kit, double low, double high)
{
    double share = (double)(ct_rng_next(&kit->rng) >> 11) * 0x1p-53;

    return low == high ? low : low + (high - low) * share;
}

struct ct_tensor kit_tensor(struct kit *kit, enum ct_dtype dtype, struct ct_shape shape)
{
    struct ct_tensor tensor = {dtype, shape, NULL};
    size_t bytes = ct_tensor_bytes(&tensor);
    char *memory = ct_arena_alloc(&kit->arena, bytes + 4 * GUARD);

    cr_assert_not_null(memory);
    char *start = memory + GUARD + (GUARD - (uintptr_t)memory % GUARD) % GUARD + kit->skew;

    memset(start - GUARD, GUARD_BYTE, GUARD);
    memset(start + bytes, GUARD_BYTE, GUARD);
    tensor.data = start;
    return tensor;
}

void kit_guards(const struct ct_tensor *tensor)
{
    const char *start = tensor->data;
    size_t bytes = ct_tensor_bytes(tensor);

    for (int i = 0; i < GUARD; i++) {
        cr_assert_eq(start[i - GUARD], GUARD_BYTE, "written before the tensor");
        cr_assert_eq(start[bytes + (size_t)i], GUARD_BYTE, "written behind the tensor");
    }
}

double kit_get(const struct ct_tensor *tensor, int64_t i)
{
    switch (tensor->dtype) {
    case CT_F32:
        return (double)((const float *)tensor->data)[i];
    case CT_F64:
        return ((const double *)tensor->data)[i];
    case CT_BF16:
        return (double)ct_bf16_to_f32(((const uint16_t *)tensor->data)[i]);
    case CT_F16:
        return (double)ct_f16_to_f32(((const uint16_t *)tensor->data)[i]);
    default:
        CT_ASSERT(tensor->dtype == CT_I32);
        return ((const int32_t *)tensor->data)[i];
    }
}

void kit_set(struct ct_tensor *tensor, int64_t i, double value)
{
    switch (tensor->dtype) {
    case CT_F32:
        ((float *)tensor->data)[i] = (float)value;
        break;
    case CT_F64:
        ((double *)tensor->data)[i] = value;
        break;
    case CT_BF16:
        ((uint16_t *)tensor->data)[i] = ct_bf16_from_f32((float)value);
        break;
    case CT_F16:
        ((uint16_t *)tensor->data)[i] = ct_f16_from_f32((float)value);
        break;
    default:
        CT_ASSERT(tensor->dtype == CT_I32);
        ((int32_t *)tensor->data)[i] = (int32_t)value;
    }
}

struct ct_tensor kit_random(struct kit *kit, enum ct_dtype dtype, struct ct_shape shape, double low,
                            double high)
{
    struct ct_tensor tensor = kit_tensor(kit, dtype, shape);

    for (int64_t i = 0; i < ct_shape_elements(shape); i++)
        kit_set(&tensor, i, kit_uniform(kit, low, high));
    return tensor;
}

struct ct_tensor kit_copy(struct kit *kit, const struct ct_tensor *tensor, enum ct_dtype dtype)
{
    struct ct_tensor copy = kit_tensor(kit, dtype, tensor->shape);

    for (int64_t i = 0; i < ct_shape_elements(tensor->shape); i++)
        kit_set(&copy, i, kit_get(tensor, i));
    return copy;
}

struct ct_tensor kit_scalar(struct kit *kit, double value)
{
    return kit_random(kit, CT_F64, ct_shape1(1), value, value);
}

struct ct_tensor kit_labels(struct kit *kit, int64_t rows, int64_t classes)
{
    struct ct_tensor labels = kit_tensor(kit, CT_I32, ct_shape1(rows));

    for (int64_t i = 0; i < rows; i++)
        kit_set(&labels, i, (double)ct_rng_below(&kit->rng, (uint64_t)classes + 1) - 1);
    return labels;
}

struct ct_tensor kit_places(struct kit *kit, int64_t rows, int64_t first)
{
    struct ct_tensor places = kit_tensor(kit, CT_I32, ct_shape1(rows));

    for (int64_t i = 0; i < rows; i++)
        kit_set(&places, i, (double)(first + i));
    return places;
}

/* ---- operands from op.def ------------------------------------------------------------------- */

enum { HEADS = 3, KERNEL = 3, PAD = 1, BLOCK_ROWS = 2, BLOCK_COLUMNS = 3 };

/* What op.def cannot say: heads of even size, whole sequences of `places` tokens. */
struct fitted {
    struct kit_sizes sizes;
    int64_t places;
    double low, high;     /* of floating operands */
    struct ct_shape x, y; /* images, with windows of KERNEL pixels */
    int64_t stride;
};

static void fit_image(struct fitted *fitted, bool convolution)
{
    struct kit_sizes *s = &fitted->sizes;
    int64_t samples = s->m % 7, channels = 1 + s->k % 20;

    fitted->stride = 1 + s->n % 2;
    fitted->x = (struct ct_shape){4, {samples, 4 + s->n % 11, 3 + s->c % 13, channels}};
    fitted->y = fitted->x;
    for (int i = 1; i <= 2; i++)
        fitted->y.dim[i] = (fitted->x.dim[i] + 2 * PAD - KERNEL) / fitted->stride + 1;
    if (convolution)
        fitted->y.dim[3] = s->n = 1 + s->c % 40;
}

/* Multiples of 64 give the heads that GPUs have kernels of their own for. */
static int64_t head_of(int64_t k)
{
    if (k > 0 && k % 64 == 0)
        return k <= 128 ? k : 64;
    return 2 + 2 * (k % 17);
}

static struct fitted fit(enum ct_op_kind op, struct kit_sizes sizes)
{
    struct fitted fitted = {.sizes = sizes, .places = 1 + sizes.n, .low = -2, .high = 2};

    fit_image(&fitted, op >= CT_OP_CONV2D && op <= CT_OP_CONV2D_DW);
    switch (op) {
    case CT_OP_SWAP:
        fitted.sizes.flat = sizes.flat / 2 * BLOCK_ROWS * BLOCK_COLUMNS;
        break;
    case CT_OP_EMBEDDING:
    case CT_OP_EMBEDDING_DP:
    case CT_OP_ADD_ROWS:
        fitted.sizes.m = fitted.places * (sizes.m % 4);
        break;
    case CT_OP_ROPE:
    case CT_OP_ATTENTION:
    case CT_OP_ATTENTION_BW:
        fitted.places = 1 + (sizes.m + 70) % 150;
        fitted.sizes.m = fitted.places * (sizes.m % 3);
        fitted.sizes.k = HEADS * head_of(sizes.k);
        fitted.sizes.n = 3 * fitted.sizes.k;
        fitted.low = -0.5;
        fitted.high = 0.5;
        break;
    case CT_OP_ATTENTION_CACHED:
        fitted.places = fitted.sizes.m = 1 + (sizes.m + 70) % 150;
        fitted.sizes.k = HEADS * (1 + sizes.k % 17);
        fitted.sizes.n = 3 * fitted.sizes.k;
        break;
    default:
        break;
    }
    return fitted;
}

static int64_t size_of(char letter, struct kit_sizes sizes)
{
    switch (letter) {
    case 'L':
    case 'M':
        return sizes.m;
    case 'N':
        return sizes.n;
    case 'n':
        return sizes.flat;
    case 'K':
        return sizes.k;
    case 'W':
        return 2 * sizes.k;
    case 'R':
        return 3;
    case 'C':
        return sizes.c;
    default:
        return letter - '0';
    }
}

static int64_t fitted_size(char letter, const struct fitted *fitted)
{
    return letter == 'T'   ? fitted->places + 2
           : letter == 'H' ? HEADS
                           : size_of(letter, fitted->sizes);
}

static struct ct_tensor make_operand(struct kit *kit, const struct ct_operand *operand,
                                     enum ct_dtype dtype, const struct fitted *fitted)
{
    struct ct_shape shape = ct_shape1(fitted_size(operand->dim[0], fitted));
    int64_t window = (int64_t)KERNEL * KERNEL * fitted->x.dim[3];
    enum ct_dtype type = ct_operand_dtype(operand, dtype);

    if (operand->dim[0] == 'X')
        shape = fitted->x;
    if (operand->dim[0] == 'Y')
        shape = fitted->y;
    if (operand->dim[0] == 'F')
        shape = ct_shape1(fitted->y.dim[3] * window);

    if (operand->dims == 2)
        shape = ct_shape2(shape.dim[0], fitted_size(operand->dim[1], fitted));
    if (strcmp(operand->name, "places") == 0)
        return kit_places(kit, shape.dim[0], 2);
    if (operand->dtype == CT_I32)
        return kit_labels(kit, shape.dim[0], fitted->sizes.c);
    if (strcmp(operand->name, "at") == 0)
        return kit_random(kit, CT_F64, shape, 3, 3);
    if (strcmp(operand->name, "lse") == 0)
        return kit_random(kit, type, shape, 2, 3);
    if (strcmp(operand->name, "step") == 0)
        return kit_scalar(kit, 3);
    if (strcmp(operand->name, "v") == 0 || strcmp(operand->name, "var") == 0 ||
        strcmp(operand->name, "stats") == 0 ||
        (strcmp(operand->name, "sums") == 0 && operand->dtype < 0))
        return kit_random(kit, type, shape, 0.5, 2); /* a square, a logarithm of a sum */
    return kit_random(kit, type, shape, operand->dtype < 0 ? fitted->low : 0.1,
                      operand->dtype < 0 ? fitted->high : 0.9);
}

struct ct_kernel_args kit_args(struct kit *kit, enum ct_op_kind op, enum ct_dtype dtype,
                               struct kit_sizes sizes)
{
    struct ct_kernel_args args = {0};
    struct ct_operands operands;
    struct fitted fitted = fit(op, sizes);

    ct_op_operands(op, &operands);
    for (int i = 0; i < operands.in_count; i++)
        args.in[i] = make_operand(kit, &operands.in[i], dtype, &fitted);
    for (int i = 0; i < operands.out_count; i++)
        args.out[i] = make_operand(kit, &operands.out[i], dtype, &fitted);
    if (op == CT_OP_RMSNORM_DX || op == CT_OP_RMSNORM_BW)
        for (int64_t row = 0; row < ct_shape_rows(args.in[3].shape); row++)
            kit_set(&args.in[3], 2 * row, 0); /* its mean */
    args.attr = (struct ct_attr){.alpha = 0.3,
                                 .low = -0.125,
                                 .high = 0.125,
                                 .mean = 0.5,
                                 .std = 2,
                                 .max_norm = 0.25,
                                 .momentum = 0.9,
                                 .weight_decay = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .rate = 0.3,
                                 .base = 10000,
                                 .key = 42,
                                 .first = 1000003,
                                 .unit = 77,
                                 .sequence = (uint64_t)fitted.places,
                                 .heads = HEADS,
                                 .kernel = KERNEL,
                                 .stride = (uint64_t)fitted.stride,
                                 .pad = PAD,
                                 .rows = BLOCK_ROWS,
                                 .columns = BLOCK_COLUMNS};
    return args;
}

struct ct_kernel_args kit_copy_args(struct kit *kit, const struct ct_kernel_args *args)
{
    struct ct_kernel_args copy = *args;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        if (args->in[i].data != NULL)
            copy.in[i] = kit_copy(kit, &args->in[i], args->in[i].dtype);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args->out[i].data != NULL)
            copy.out[i] = kit_copy(kit, &args->out[i], args->out[i].dtype);
    return copy;
}

/* ---- running and comparing ------------------------------------------------------------------ */

struct ct_device *kit_device(enum ct_cpu_isa isa, int threads)
{
    struct ct_device *device = NULL;
    struct ct_error err = {0};
    int rc = ct_device_cpu_new(&(struct ct_cpu_options){threads, isa}, &device, &err);

    cr_assert_eq(rc, 0, "%s", err.text);
    return device;
}

void kit_run(enum ct_cpu_isa isa, int threads, enum ct_op_kind op, enum ct_dtype dtype,
             const struct ct_kernel_args *args)
{
    struct ct_device *device = kit_device(isa, threads);
    struct ct_error err = {0};

    cr_assert_eq(ct_op_check(op, dtype, args, &err), 0, "%s", err.text);
    cr_assert(ct_device_has(device, op, dtype));
    ct_device_run(device, op, dtype, args);
    ct_device_free(device);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args->out[i].data != NULL)
            kit_guards(&args->out[i]);
}

void kit_same_bytes(const struct ct_tensor *a, const struct ct_tensor *b, const char *what)
{
    size_t size = ct_dtype_size(a->dtype);
    const char *x = a->data, *y = b->data;

    cr_assert_eq(ct_tensor_bytes(a), ct_tensor_bytes(b));
    for (int64_t i = 0; i < ct_shape_elements(a->shape); i++)
        cr_assert(memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0,
                  "%s: element %lld is %.9g, not %.9g", what, (long long)i, kit_get(a, i),
                  kit_get(b, i));
}

void kit_near(const struct ct_tensor *a, const struct ct_tensor *b, double tolerance,
              const char *what)
{
    cr_assert_eq(ct_shape_elements(a->shape), ct_shape_elements(b->shape));
    for (int64_t i = 0; i < ct_shape_elements(a->shape); i++) {
        double x = kit_get(a, i), y = kit_get(b, i);

        cr_assert(fabs(x - y) <= tolerance * fmax(1, fabs(y)), "%s: element %lld is %.9g, not %.9g",
                  what, (long long)i, x, y);
    }
}
