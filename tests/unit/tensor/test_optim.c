/* Optimizers and clipping: the formulas of torch.optim written down in double, over several steps.
 */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(optim, .timeout = 30);

enum { N = 67, STEPS = 5 };

struct model {
    double p[N], buffer[N], m[N], v[N];
};

/* torch.optim.SGD: d = g + wd p; b = mu b + d (b = d at first); p -= lr (nesterov ? d + mu b : b).
 */
static void sgd(struct model *s, const double *g, const struct ct_attr *a, double lr)
{
    for (int i = 0; i < N; i++) {
        double d = g[i] + a->weight_decay * s->p[i];

        if (a->momentum != 0) {
            s->buffer[i] = a->momentum * s->buffer[i] + d;
            d = a->nesterov ? d + a->momentum * s->buffer[i] : s->buffer[i];
        }
        s->p[i] -= lr * d;
    }
}

/* torch.optim.AdamW. */
static void adamw(struct model *s, const double *g, const struct ct_attr *a, double lr, int step)
{
    double bias1 = 1 - pow(a->beta1, step), bias2 = 1 - pow(a->beta2, step);

    for (int i = 0; i < N; i++) {
        s->p[i] *= 1 - lr * a->weight_decay;
        s->m[i] = a->beta1 * s->m[i] + (1 - a->beta1) * g[i];
        s->v[i] = a->beta2 * s->v[i] + (1 - a->beta2) * g[i] * g[i];
        s->p[i] -= lr * (s->m[i] / bias1) / (sqrt(s->v[i] / bias2) + a->eps);
    }
}

/* Lion, algorithm 2 of its paper. */
static void lion(struct model *s, const double *g, const struct ct_attr *a, double lr)
{
    for (int i = 0; i < N; i++) {
        double c = a->beta1 * s->m[i] + (1 - a->beta1) * g[i];

        s->p[i] -= lr * ((c > 0) - (c < 0) + a->weight_decay * s->p[i]);
        s->m[i] = a->beta2 * s->m[i] + (1 - a->beta2) * g[i];
    }
}

static void compare(const struct ct_tensor *got, const double *want, double tolerance)
{
    for (int i = 0; i < N; i++)
        cr_assert(fabs(kit_get(got, i) - want[i]) <= tolerance, "element %d: %.12g, not %.12g", i,
                  kit_get(got, i), want[i]);
}

static void train(enum ct_op_kind op, enum ct_dtype dtype, struct ct_attr attr, double scale)
{
    const double tolerance = dtype == CT_F32 ? 2e-6 : 1e-13;
    struct kit kit;
    struct model model = {0};
    struct ct_kernel_args args = {.attr = attr};

    kit_init(&kit, 3);
    args.in[0] = kit_tensor(&kit, dtype, ct_shape1(N));
    args.in[1] = kit_scalar(&kit, 0);
    args.in[2] = kit_scalar(&kit, scale);
    if (op == CT_OP_ADAMW)
        args.in[3] = args.in[2];
    args.out[0] = kit_random(&kit, dtype, ct_shape1(N), -1, 1);
    if (op != CT_OP_SGD || attr.momentum != 0)
        args.out[1] = kit_tensor(&kit, dtype, ct_shape1(N));
    if (op == CT_OP_ADAMW)
        args.out[2] = kit_tensor(&kit, dtype, ct_shape1(N));
    for (int i = 0; i < N; i++)
        model.p[i] = kit_get(&args.out[0], i);
    for (int step = 1; step <= STEPS; step++) {
        double g[N], lr = 0.1 / step;

        for (int i = 0; i < N; i++) {
            kit_set(&args.in[0], i, kit_uniform(&kit, -2, 2));
            g[i] = scale * kit_get(&args.in[0], i);
        }
        kit_set(&args.in[1], 0, lr);
        if (op == CT_OP_ADAMW)
            args.in[2] = kit_scalar(&kit, step);
        kit_run(CT_CPU_AUTO, 1, op, dtype, &args);
        if (op == CT_OP_SGD)
            sgd(&model, g, &attr, lr);
        else if (op == CT_OP_LION)
            lion(&model, g, &attr, lr);
        else
            adamw(&model, g, &attr, lr, step);
        compare(&args.out[0], model.p, tolerance);
    }
    if (op == CT_OP_ADAMW) {
        compare(&args.out[1], model.m, tolerance);
        compare(&args.out[2], model.v, tolerance);
    } else if (op == CT_OP_LION) {
        compare(&args.out[1], model.m, tolerance);
    } else if (attr.momentum != 0) {
        compare(&args.out[1], model.buffer, 2 * tolerance);
    }
    kit_deinit(&kit);
}

Test(optim, sgd_follows_torch)
{
    static const struct ct_attr attrs[] = {
        {0},
        {.weight_decay = 0.1},
        {.momentum = 0.9},
        {.momentum = 0.9, .weight_decay = 0.1},
        {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
    };

    for (size_t i = 0; i < CT_COUNT(attrs); i++) {
        train(CT_OP_SGD, CT_F32, attrs[i], 1);
        train(CT_OP_SGD, CT_F64, attrs[i], 0.37);
    }
}

Test(optim, adamw_follows_torch)
{
    static const struct ct_attr attrs[] = {
        {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
        {.beta1 = 0, .beta2 = 0.5, .eps = 1e-3, .weight_decay = 0.01},
    };

    for (size_t i = 0; i < CT_COUNT(attrs); i++) {
        train(CT_OP_ADAMW, CT_F32, attrs[i], 1);
        train(CT_OP_ADAMW, CT_F64, attrs[i], 0.37);
    }
}

Test(optim, lion_follows_its_paper)
{
    static const struct ct_attr attrs[] = {
        {.beta1 = 0.9, .beta2 = 0.99},
        {.beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.1},
        {.beta1 = 0, .beta2 = 0.5, .weight_decay = 0.01},
    };

    for (size_t i = 0; i < CT_COUNT(attrs); i++) {
        train(CT_OP_LION, CT_F32, attrs[i], 1);
        train(CT_OP_LION, CT_F64, attrs[i], 0.37);
    }
}

Test(optim, lion_stands_still_without_a_gradient_and_shows_an_undefined_one)
{
    struct kit kit;

    kit_init(&kit, 10);
    struct ct_kernel_args args = {
        .in = {kit_tensor(&kit, CT_F32, ct_shape1(2)), kit_scalar(&kit, 0.1)},
        .out = {kit_tensor(&kit, CT_F32, ct_shape1(2)), kit_tensor(&kit, CT_F32, ct_shape1(2))},
        .attr = {.beta1 = 0.9, .beta2 = 0.99}};
    kit_set(&args.in[0], 1, NAN);
    kit_set(&args.out[0], 0, 3);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LION, CT_F32, &args);
    cr_assert_eq(kit_get(&args.out[0], 0), 3);
    cr_assert(isnan(kit_get(&args.out[0], 1)));
    kit_deinit(&kit);
}

Test(optim, no_scale_is_a_scale_of_one)
{
    static const enum ct_op_kind ops[] = {CT_OP_SGD, CT_OP_ADAMW, CT_OP_LION};

    for (size_t i = 0; i < CT_COUNT(ops); i++) {
        struct kit kit;
        int scale = ops[i] == CT_OP_ADAMW ? 3 : 2;

        kit_init(&kit, 4);
        struct ct_kernel_args with =
            kit_args(&kit, ops[i], CT_F32, (struct kit_sizes){.flat = 100});
        kit_set(&with.in[scale], 0, 1);
        struct ct_kernel_args without = kit_copy_args(&kit, &with);

        without.in[scale].data = NULL;
        kit_run(CT_CPU_AUTO, 1, ops[i], CT_F32, &with);
        kit_run(CT_CPU_AUTO, 1, ops[i], CT_F32, &without);
        kit_same_bytes(&with.out[0], &without.out[0], ct_op_info(ops[i])->name);
        kit_deinit(&kit);
    }
}

Test(optim, a_scale_that_is_undefined_leaves_all_as_it_was)
{
    static const enum ct_op_kind ops[] = {CT_OP_SGD, CT_OP_ADAMW, CT_OP_LION};

    for (size_t i = 0; i < CT_COUNT(ops); i++) {
        struct kit kit;

        kit_init(&kit, 11);
        struct ct_kernel_args args =
            kit_args(&kit, ops[i], CT_F32, (struct kit_sizes){.flat = 100});
        kit_set(&args.in[ops[i] == CT_OP_ADAMW ? 3 : 2], 0, NAN);
        struct ct_kernel_args before = kit_copy_args(&kit, &args);
        kit_run(CT_CPU_AUTO, 1, ops[i], CT_F32, &args);
        for (int o = 0; o < CT_OP_MAX_OUT; o++)
            if (args.out[o].data != NULL)
                kit_same_bytes(&args.out[o], &before.out[o], ct_op_info(ops[i])->name);
        kit_deinit(&kit);
    }
}

static double guard(struct kit *kit, double sumsq, double loss, double scale)
{
    struct ct_kernel_args args = {
        .in = {kit_scalar(kit, sumsq), kit_scalar(kit, loss), kit_scalar(kit, scale)},
        .out = {kit_scalar(kit, 99)}};

    if (scale == 1)
        args.in[2].data = NULL;
    kit_run(CT_CPU_AUTO, 1, CT_OP_GUARD, CT_F32, &args);
    return kit_get(&args.out[0], 0);
}

Test(optim, an_average_begins_at_the_first_update_and_follows)
{
    struct kit kit;
    double want[N];

    kit_init(&kit, 13);
    struct ct_kernel_args args = {
        .in = {kit_random(&kit, CT_F32, ct_shape1(N), -1, 1), kit_scalar(&kit, 1)},
        .out = {kit_random(&kit, CT_F32, ct_shape1(N), -1, 1)},
        .attr = {.decay = 0.9}};
    kit_run(CT_CPU_AUTO, 1, CT_OP_EMA, CT_F32, &args);
    kit_same_bytes(&args.out[0], &args.in[0], "the first update");
    for (int i = 0; i < N; i++)
        want[i] = kit_get(&args.in[0], i);
    for (int step = 2; step < 6; step++) {
        kit_set(&args.in[1], 0, step);
        for (int i = 0; i < N; i++) {
            kit_set(&args.in[0], i, kit_uniform(&kit, -2, 2));
            want[i] = 0.9 * want[i] + 0.1 * kit_get(&args.in[0], i);
        }
        kit_run(CT_CPU_AUTO, 1, CT_OP_EMA, CT_F32, &args);
        compare(&args.out[0], want, 1e-6);
    }
    args.in[2] = kit_scalar(&kit, NAN);
    kit_run(CT_CPU_AUTO, 1, CT_OP_EMA, CT_F32, &args);
    compare(&args.out[0], want, 1e-6);
    kit_deinit(&kit);
}

Test(optim, the_guard_passes_finite_steps_only)
{
    struct kit kit;

    kit_init(&kit, 12);
    cr_assert_eq(guard(&kit, 1e300, -3, 0.25), 0.25);
    cr_assert_eq(guard(&kit, 0, 0, 1), 1);
    cr_assert(isnan(guard(&kit, INFINITY, 0, 1)));
    cr_assert(isnan(guard(&kit, NAN, 0, 0.5)));
    cr_assert(isnan(guard(&kit, 1, -INFINITY, 0.5)));
    cr_assert(isnan(guard(&kit, 1, NAN, 1)));
    kit_deinit(&kit);
}

Test(optim, a_range_of_parameters_moves_as_it_does_in_the_whole)
{
    static const enum ct_op_kind ops[] = {CT_OP_SGD, CT_OP_ADAMW, CT_OP_LION};

    for (size_t i = 0; i < CT_COUNT(ops); i++) {
        struct kit kit;

        kit_init(&kit, 5);
        struct ct_kernel_args whole =
            kit_args(&kit, ops[i], CT_F32, (struct kit_sizes){.flat = 1000});
        struct ct_kernel_args part = kit_copy_args(&kit, &whole);

        part.in[0] = ct_tensor_range(&part.in[0], 333, 100);
        for (int o = 0; o < CT_OP_MAX_OUT; o++)
            if (part.out[o].data != NULL)
                part.out[o] = ct_tensor_range(&part.out[o], 333, 100);
        kit_run(CT_CPU_AUTO, 3, ops[i], CT_F32, &whole);
        struct ct_tensor want = ct_tensor_range(&whole.out[0], 333, 100);
        struct ct_device *device = kit_device(CT_CPU_AUTO, 1);

        ct_device_run(device, ops[i], CT_F32, &part);
        ct_device_free(device);
        kit_same_bytes(&part.out[0], &want, ct_op_info(ops[i])->name);
        kit_deinit(&kit);
    }
}

static double clip(struct kit *kit, double sumsq, double max_norm)
{
    struct ct_kernel_args args = {.in = {kit_scalar(kit, sumsq)},
                                  .out = {kit_scalar(kit, 99)},
                                  .attr = {.max_norm = max_norm}};

    kit_run(CT_CPU_AUTO, 1, CT_OP_CLIP_SCALE, CT_F32, &args);
    return kit_get(&args.out[0], 0);
}

Test(optim, clipping_scales_large_norms_down_and_leaves_small_ones_alone)
{
    struct kit kit;

    kit_init(&kit, 6);
    cr_assert_eq(clip(&kit, 0, 1), 1);
    cr_assert_eq(clip(&kit, 0.25, 1), 1);
    cr_assert_float_eq(clip(&kit, 16, 1), 1 / (4 + 1e-6), 1e-15);
    cr_assert_eq(clip(&kit, INFINITY, 1), 0);
    cr_assert(isnan(clip(&kit, NAN, 1)));
    kit_deinit(&kit);
}

static double sumsq(const struct ct_tensor *x, int threads)
{
    double sum = 99;
    struct ct_kernel_args args = {.in = {*x}, .out = {{CT_F64, ct_shape1(1), &sum}}};
    struct ct_device *device = kit_device(CT_CPU_AUTO, threads);

    ct_device_run(device, CT_OP_SUMSQ, x->dtype, &args);
    ct_device_free(device);
    return sum;
}

Test(optim, sumsq_is_exact_to_double_precision_at_every_size)
{
    static const int64_t counts[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 4097, 300001};
    struct kit kit;

    kit_init(&kit, 7);
    for (size_t i = 0; i < CT_COUNT(counts); i++) {
        struct ct_tensor x = kit_random(&kit, CT_F32, ct_shape1(counts[i]), -1, 1);
        long double want = 0;

        for (int64_t j = 0; j < counts[i]; j++)
            want += (long double)kit_get(&x, j) * kit_get(&x, j);
        double got = sumsq(&x, 1);

        cr_assert_float_eq(got, (double)want, 1e-14 * (double)want);
        cr_assert_eq(sumsq(&x, 4), got);
    }
    kit_deinit(&kit);
}

/* A leaf of 1024 elements: lane l adds elements l, l + 16, ...; lanes fold 8, 4, 2, 1. */
static double leaf_sum(const float *x, int64_t count)
{
    double lane[16] = {0};

    for (int64_t i = 0; i < count; i++)
        lane[i % 16] += (double)x[i] * (double)x[i];
    for (int width = 8; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

static double tree_sum(const float *x, int64_t count)
{
    int64_t half = 1024;

    if (count <= half)
        return leaf_sum(x, count);
    while (half * 2 < count)
        half *= 2;
    return tree_sum(x, half) + tree_sum(x + half, count - half);
}

Test(optim, sumsq_is_one_tree_whatever_the_segments_and_threads)
{
    static const int64_t counts[] = {1024, 2049, 5000, 140001, 201001, 210001, 300001, 330001};
    struct kit kit;

    kit_init(&kit, 9);
    for (size_t i = 0; i < CT_COUNT(counts); i++) {
        struct ct_tensor x = kit_random(&kit, CT_F32, ct_shape1(counts[i]), -1, 1);

        for (int threads = 1; threads <= 7; threads += 3)
            cr_assert_eq(sumsq(&x, threads), tree_sum(x.data, counts[i]), "%lld elements",
                         (long long)counts[i]);
    }
    kit_deinit(&kit);
}

Test(optim, sumsq_of_large_gradients_does_not_overflow_and_shows_nan)
{
    struct kit kit;

    kit_init(&kit, 8);
    struct ct_tensor x = kit_random(&kit, CT_F32, ct_shape1(100), 3e38, 3e38);

    cr_assert_float_eq(sumsq(&x, 1) / 9e78, 1, 1e-6);
    kit_set(&x, 99, NAN);
    cr_assert(isnan(sumsq(&x, 1)));
    kit_deinit(&kit);
}
