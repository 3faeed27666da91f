/* Activations and plain arithmetic against libm in double, and at the edges of the number line. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(elementwise, .timeout = 30);

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double gelu(double x)
{
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static const struct activation {
    enum ct_op_kind forward, backward;
    double (*f)(double);
    bool backward_reads_y;
} activations[] = {
    {CT_OP_RELU, CT_OP_RELU_BW, relu, true},
    {CT_OP_GELU, CT_OP_GELU_BW, gelu, false},
    {CT_OP_GELU_TANH, CT_OP_GELU_TANH_BW, gelu_tanh, false},
    {CT_OP_TANH, CT_OP_TANH_BW, tanh, true},
};

enum { POINTS = 4001 };

/* -20 .. 20, dense around 0. */
static struct ct_tensor grid(struct kit *kit, enum ct_dtype dtype)
{
    struct ct_tensor x = kit_tensor(kit, dtype, ct_shape1(POINTS));

    for (int i = 0; i < POINTS; i++) {
        double u = (double)(i - POINTS / 2) / (POINTS / 2);

        kit_set(&x, i, 20 * u * u * u);
    }
    return x;
}

static struct ct_tensor run_on(struct kit *kit, enum ct_op_kind op, const struct ct_tensor *a,
                               const struct ct_tensor *b)
{
    struct ct_kernel_args args = {.in = {*a}};

    if (b != NULL)
        args.in[1] = *b;
    args.out[0] = kit_tensor(kit, a->dtype, a->shape);
    kit_run(CT_CPU_AUTO, 1, op, a->dtype, &args);
    return args.out[0];
}

Test(elementwise, activations_equal_libm_in_double_within_rounding)
{
    struct kit kit;

    kit_init(&kit, 1);
    for (size_t i = 0; i < CT_COUNT(activations); i++) {
        struct ct_tensor x = grid(&kit, CT_F32);
        struct ct_tensor y = run_on(&kit, activations[i].forward, &x, NULL);

        for (int j = 0; j < POINTS; j++) {
            double at = kit_get(&x, j), want = activations[i].f(at), got = kit_get(&y, j);

            cr_assert(fabs(got - want) <= 2e-7 * fmax(1, fabs(at)), "%s(%g) = %.9g, not %.9g",
                      ct_op_info(activations[i].forward)->name, at, got, want);
        }
    }
    kit_deinit(&kit);
}

/* dx of the backward op for dy = 1, in double, beside (f(x + h) - f(x - h)) / 2h. */
Test(elementwise, backward_is_the_slope_of_forward)
{
    const double h = 1e-5;
    struct kit kit;

    kit_init(&kit, 2);
    for (size_t i = 0; i < CT_COUNT(activations); i++) {
        const struct activation *a = &activations[i];
        struct ct_tensor x = grid(&kit, CT_F64), dy = kit_random(&kit, CT_F64, x.shape, 1, 1);
        struct ct_tensor y = run_on(&kit, a->forward, &x, NULL);
        struct ct_tensor dx = run_on(&kit, a->backward, &dy, a->backward_reads_y ? &y : &x);

        for (int j = 0; j < POINTS; j++) {
            double at = kit_get(&x, j), slope = (a->f(at + h) - a->f(at - h)) / (2 * h);

            if (a->forward == CT_OP_RELU && fabs(at) <= h)
                continue; /* the corner has no slope */
            cr_assert(fabs(kit_get(&dx, j) - slope) <= 1e-8, "%s at %g: %.12g, not %.12g",
                      ct_op_info(a->backward)->name, at, kit_get(&dx, j), slope);
        }
    }
    kit_deinit(&kit);
}

static double at_point(struct kit *kit, enum ct_op_kind op, double a, double b)
{
    struct ct_operands operands;
    struct ct_tensor x = kit_random(kit, CT_F32, ct_shape1(17), a, a);
    struct ct_tensor other = kit_random(kit, CT_F32, ct_shape1(17), b, b);

    ct_op_operands(op, &operands);
    struct ct_tensor y = run_on(kit, op, &x, operands.in_count == 2 ? &other : NULL);

    for (int i = 1; i < 17; i++)
        cr_assert(kit_get(&y, i) == kit_get(&y, 0) || isnan(kit_get(&y, 0)));
    return kit_get(&y, 0);
}

Test(elementwise, large_inputs_saturate_and_do_not_overflow)
{
    struct kit kit;

    kit_init(&kit, 3);
    cr_assert_eq(at_point(&kit, CT_OP_TANH, 1e30, 0), 1);
    cr_assert_eq(at_point(&kit, CT_OP_TANH, -INFINITY, 0), -1);
    cr_assert_eq(at_point(&kit, CT_OP_GELU, 1e4, 0), 1e4);
    cr_assert_eq(at_point(&kit, CT_OP_GELU, -1e4, 0), 0);
    cr_assert_eq(at_point(&kit, CT_OP_GELU_TANH, 1e4, 0), 1e4);
    cr_assert_eq(at_point(&kit, CT_OP_GELU_TANH, -1e4, 0), 0);
    cr_assert_eq(at_point(&kit, CT_OP_GELU_BW, 3, 1e4), 3);
    cr_assert_eq(at_point(&kit, CT_OP_GELU_BW, 3, -1e4), 0);
    cr_assert_eq(at_point(&kit, CT_OP_GELU_TANH_BW, 3, 1e4), 3);
    cr_assert_eq(at_point(&kit, CT_OP_RELU, INFINITY, 0), INFINITY);
    kit_deinit(&kit);
}

Test(elementwise, nan_stays_nan)
{
    struct kit kit;

    kit_init(&kit, 4);
    for (size_t i = 0; i < CT_COUNT(activations); i++) {
        cr_assert(isnan(at_point(&kit, activations[i].forward, NAN, 0)));
        cr_assert(isnan(at_point(&kit, activations[i].backward, NAN, 1)));
    }
    cr_assert(isnan(at_point(&kit, CT_OP_ADD, 1, NAN)));
    kit_deinit(&kit);
}

Test(elementwise, relu_has_no_slope_at_zero)
{
    struct kit kit;

    kit_init(&kit, 5);
    cr_assert_eq(at_point(&kit, CT_OP_RELU_BW, 3, 0), 0);
    cr_assert_eq(at_point(&kit, CT_OP_RELU_BW, 3, 1e-30), 3);
    kit_deinit(&kit);
}

Test(elementwise, arithmetic_is_ieee_single_precision)
{
    struct kit kit;

    kit_init(&kit, 6);
    struct ct_tensor a = kit_random(&kit, CT_F32, ct_shape1(65), -2, 2);
    struct ct_tensor b = kit_random(&kit, CT_F32, ct_shape1(65), -2, 2);
    struct ct_tensor sum = run_on(&kit, CT_OP_ADD, &a, &b);
    struct ct_tensor y = kit_copy(&kit, &b, CT_F32), scaled = kit_copy(&kit, &b, CT_F32);
    struct ct_tensor copied = kit_copy(&kit, &b, CT_F32), filled = kit_copy(&kit, &b, CT_F32);
    const struct ct_attr attr = {.alpha = 0.3};

    kit_run(CT_CPU_AUTO, 1, CT_OP_AXPY, CT_F32,
            &(struct ct_kernel_args){.in = {a}, .out = {y}, .attr = attr});
    kit_run(CT_CPU_AUTO, 1, CT_OP_SCALE, CT_F32,
            &(struct ct_kernel_args){.in = {a}, .out = {scaled}, .attr = attr});
    kit_run(CT_CPU_AUTO, 1, CT_OP_COPY, CT_F32,
            &(struct ct_kernel_args){.in = {a}, .out = {copied}, .attr = attr});
    kit_run(CT_CPU_AUTO, 1, CT_OP_FILL, CT_F32,
            &(struct ct_kernel_args){.out = {filled}, .attr = attr});
    for (int i = 0; i < 65; i++) {
        float p = ((float *)a.data)[i], q = ((float *)b.data)[i];

        cr_assert_eq(((float *)sum.data)[i], p + q);
        cr_assert_eq(((float *)y.data)[i], q + 0.3f * p);
        cr_assert_eq(((float *)scaled.data)[i], 0.3f * p);
        cr_assert_eq(((float *)copied.data)[i], p);
        cr_assert_eq(((float *)filled.data)[i], 0.3f);
    }
    kit_deinit(&kit);
}
