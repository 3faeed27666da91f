/* Losses: against sums in double, their gradients against differences, masks, and logits of any
 * size. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(losses, .timeout = 30);

static double exact_row(const struct ct_tensor *logits, int64_t row, int64_t label)
{
    int64_t c = ct_shape_columns(logits->shape);
    double max = -INFINITY, sum = 0;

    for (int64_t j = 0; j < c; j++)
        max = fmax(max, kit_get(logits, row * c + j));
    for (int64_t j = 0; j < c; j++)
        sum += exp(kit_get(logits, row * c + j) - max);
    return log(sum) + max - kit_get(logits, row * c + label);
}

static double exact_loss(const struct ct_tensor *logits, const struct ct_tensor *labels)
{
    double loss = 0;

    for (int64_t row = 0; row < ct_shape_rows(logits->shape); row++)
        if (kit_get(labels, row) >= 0)
            loss += exact_row(logits, row, (int64_t)kit_get(labels, row));
    return loss;
}

static struct ct_kernel_args cross_entropy(struct kit *kit, const struct ct_tensor *logits,
                                           const struct ct_tensor *labels)
{
    struct ct_shape stats = ct_shape2(ct_shape_rows(logits->shape), 2);
    struct ct_kernel_args args = {
        .in = {*logits, *labels},
        .out = {kit_scalar(kit, 99), kit_tensor(kit, logits->dtype, stats)}};

    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY, logits->dtype, &args);
    return args;
}

static struct ct_tensor cross_entropy_bw(struct kit *kit, const struct ct_kernel_args *forward,
                                         double scale)
{
    struct ct_kernel_args args = {
        .in = {forward->in[0], forward->in[1], forward->out[1], kit_scalar(kit, scale)},
        .out = {kit_tensor(kit, forward->in[0].dtype, forward->in[0].shape)}};

    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY_BW, args.in[0].dtype, &args);
    return args.out[0];
}

Test(losses, cross_entropy_is_the_sum_over_rows_that_count)
{
    static const int64_t classes[] = {1, 2, 3, 10, 16, 17, 65, 256, 257, 1000};
    struct kit kit;

    kit_init(&kit, 1);
    for (size_t i = 0; i < CT_COUNT(classes); i++) {
        struct ct_tensor logits = kit_random(&kit, CT_F32, ct_shape2(37, classes[i]), -4, 4);
        struct ct_tensor labels = kit_labels(&kit, 37, classes[i]);
        struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
        double want = exact_loss(&logits, &labels), got = kit_get(&done.out[0], 0);

        cr_assert(fabs(got - want) <= 3e-7 * fabs(want), "C=%lld: %.12g, not %.12g",
                  (long long)classes[i], got, want);
    }
    kit_deinit(&kit);
}

Test(losses, logits_of_any_size_keep_their_precision)
{
    static const double levels[] = {0, 1e4, -1e4, 1e30, -1e30};
    struct kit kit;

    kit_init(&kit, 2);
    for (size_t i = 0; i < CT_COUNT(levels); i++) {
        struct ct_tensor logits = kit_random(&kit, CT_F32, ct_shape2(1, 19), levels[i], levels[i]);
        struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(1));
        struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
        struct ct_tensor dx = cross_entropy_bw(&kit, &done, 1);

        cr_assert_float_eq(kit_get(&done.out[0], 0), log(19), 1e-6);
        cr_assert_float_eq(kit_get(&dx, 1), 1.0 / 19, 1e-7);
        cr_assert_float_eq(kit_get(&dx, 0), 1.0 / 19 - 1, 1e-7);
    }
    kit_deinit(&kit);
}

Test(losses, one_huge_logit_wins_without_overflow)
{
    struct kit kit;

    kit_init(&kit, 3);
    struct ct_tensor logits = kit_tensor(&kit, CT_F32, ct_shape2(2, 20));
    struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(2));

    kit_set(&logits, 7, 3e38);
    kit_set(&logits, 20 + 7, -INFINITY);
    kit_set(&labels, 0, 7);
    kit_set(&labels, 1, 3);
    struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
    struct ct_tensor dx = cross_entropy_bw(&kit, &done, 1);

    cr_assert_float_eq(kit_get(&done.out[0], 0), log(19), 1e-6);
    for (int j = 0; j < 20; j++)
        cr_assert_eq(kit_get(&dx, j), 0);
    cr_assert_eq(kit_get(&dx, 20 + 7), 0);
    kit_deinit(&kit);
}

Test(losses, nan_and_infinite_logits_make_their_row_nan)
{
    static const double bad[] = {NAN, INFINITY};
    struct kit kit;

    kit_init(&kit, 4);
    for (size_t i = 0; i < CT_COUNT(bad); i++)
        for (int j = 0; j < 20; j += 19) {
            struct ct_tensor logits = kit_tensor(&kit, CT_F32, ct_shape2(2, 20));
            struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(2));

            kit_set(&logits, j, bad[i]);
            struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
            struct ct_tensor dx = cross_entropy_bw(&kit, &done, 1);

            cr_assert(isnan(kit_get(&done.out[0], 0)));
            cr_assert(isnan(kit_get(&dx, 5)));
            cr_assert_float_eq(kit_get(&dx, 25), 0.05, 1e-7, "the other row is sound");
        }
    kit_deinit(&kit);
}

Test(losses, masked_rows_count_for_nothing_whatever_they_hold)
{
    struct kit kit;

    kit_init(&kit, 5);
    struct ct_tensor logits = kit_random(&kit, CT_F32, ct_shape2(3, 11), -1, 1);
    struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(3));

    kit_set(&labels, 0, 4);
    kit_set(&labels, 1, -1);
    kit_set(&labels, 2, 10);
    double want = exact_loss(&logits, &labels);

    for (int j = 11; j < 22; j++)
        kit_set(&logits, j, NAN);
    struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
    struct ct_tensor dx = cross_entropy_bw(&kit, &done, 0.5);

    cr_assert_float_eq(kit_get(&done.out[0], 0), want, 1e-6);
    for (int j = 11; j < 22; j++)
        cr_assert_eq(kit_get(&dx, j), 0);
    kit_deinit(&kit);
}

static double sum_of(struct kit *kit, enum ct_op_kind op, enum ct_dtype dtype,
                     const struct ct_tensor *x, const struct ct_tensor *labels, double start)
{
    struct ct_kernel_args args = {.in = {*x}, .out = {kit_scalar(kit, start)}};

    if (labels != NULL)
        args.in[1] = *labels;
    if (op == CT_OP_CROSS_ENTROPY)
        args.out[1] = kit_tensor(kit, ct_dtype_wide(dtype), ct_shape2(ct_shape_rows(x->shape), 2));
    args.attr.accumulate = start != 0;
    kit_run(CT_CPU_AUTO, 3, op, dtype, &args);
    return kit_get(&args.out[0], 0);
}

/* One reading of the logits gives the bits of three, also where it writes over them. */
static void check_fused(struct kit *kit, enum ct_dtype dtype, int64_t rows, int64_t classes)
{
    struct ct_tensor logits = kit_random(kit, dtype, ct_shape2(rows, classes), -3, 3);
    struct ct_tensor labels = kit_labels(kit, rows, classes), copy = kit_copy(kit, &logits, dtype);
    struct ct_tensor scale = kit_scalar(kit, 0.37);

    for (int64_t row = 0; row < rows; row += 3) /* some rows are right, some by a tie */
        if (kit_get(&labels, row) >= 0)
            kit_set(&logits, row * classes + (int64_t)kit_get(&labels, row), 3);
    for (int64_t i = 0; i < rows * classes; i++)
        kit_set(&copy, i, kit_get(&logits, i));
    struct ct_kernel_args loss = {
        .in = {logits, labels},
        .out = {kit_scalar(kit, 0), kit_tensor(kit, ct_dtype_wide(dtype), ct_shape2(rows, 2))}};
    struct ct_kernel_args back = {.in = {logits, labels, loss.out[1], scale},
                                  .out = {kit_tensor(kit, dtype, logits.shape)}};
    struct ct_kernel_args fused = {.in = {copy, labels, scale},
                                   .out = {copy, kit_tensor(kit, CT_F64, ct_shape1(rows)),
                                           kit_tensor(kit, CT_F64, ct_shape1(rows))}};

    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY, dtype, &loss);
    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY_BW, dtype, &back);
    kit_run(CT_CPU_AUTO, 2, CT_OP_CROSS_ENTROPY_GRAD, dtype, &fused);
    kit_same_bytes(&fused.out[0], &back.out[0], "dlogits");
    for (int start = 0; start < 2; start++) {
        cr_assert_eq(sum_of(kit, CT_OP_SUM_ROWS, CT_F64, &fused.out[1], NULL, start),
                     sum_of(kit, CT_OP_CROSS_ENTROPY, dtype, &logits, &labels, start));
        cr_assert_eq(sum_of(kit, CT_OP_SUM_ROWS, CT_F64, &fused.out[2], NULL, start),
                     sum_of(kit, CT_OP_CORRECT, dtype, &logits, &labels, start));
    }
}

Test(losses, with_their_gradient_have_the_bits_of_the_ops_one_by_one)
{
    static const enum ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};
    static const int64_t rows[] = {1, 7, 8, 9, 600}, classes[] = {1, 10, 257, 1000};
    struct kit kit;

    kit_init(&kit, 12);
    for (size_t t = 0; t < CT_COUNT(types); t++)
        for (size_t r = 0; r < CT_COUNT(rows); r++)
            for (size_t c = 0; c < CT_COUNT(classes); c++)
                check_fused(&kit, types[t], rows[r], classes[c]);
    kit_deinit(&kit);
}

Test(losses, of_masked_rows_have_no_gradient_and_are_not_right)
{
    struct kit kit;

    kit_init(&kit, 13);
    struct ct_tensor x = kit_tensor(&kit, CT_F32, ct_shape2(2, 5));
    struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(2));

    for (int j = 0; j < 5; j++)
        kit_set(&x, j, NAN);
    kit_set(&labels, 0, -1);
    struct ct_kernel_args args = {.in = {x, labels, kit_scalar(&kit, 1)},
                                  .out = {kit_tensor(&kit, CT_F32, x.shape),
                                          kit_random(&kit, CT_F64, ct_shape1(2), 9, 9),
                                          kit_random(&kit, CT_F64, ct_shape1(2), 9, 9)}};
    kit_run(CT_CPU_AUTO, 1, CT_OP_CROSS_ENTROPY_GRAD, CT_F32, &args);
    for (int j = 0; j < 5; j++)
        cr_assert_eq(kit_get(&args.out[0], j), 0);
    cr_assert_eq(kit_get(&args.out[1], 0), 0);
    cr_assert_eq(kit_get(&args.out[2], 0), 0);
    cr_assert_float_eq(kit_get(&args.out[1], 1), log(5), 1e-6);
    cr_assert_eq(kit_get(&args.out[2], 1), 1, "the first of equal logits");
    kit_deinit(&kit);
}

/* scale * d loss / d x by central differences in double, beside the op's gradient. */
static void check_gradient(struct ct_tensor *x, const struct ct_tensor *gradient, double scale,
                           double (*loss)(const struct ct_tensor *x, const struct ct_tensor *other),
                           const struct ct_tensor *other)
{
    const double h = 1e-5;

    for (int64_t i = 0; i < ct_shape_elements(x->shape); i++) {
        double at = kit_get(x, i);

        kit_set(x, i, at + h);
        double above = loss(x, other);
        kit_set(x, i, at - h);
        double slope = scale * (above - loss(x, other)) / (2 * h);
        kit_set(x, i, at);
        cr_assert(fabs(kit_get(gradient, i) - slope) <= 1e-8, "element %lld: %.12g, not %.12g",
                  (long long)i, kit_get(gradient, i), slope);
    }
}

Test(losses, the_gradient_of_cross_entropy_is_its_slope)
{
    struct kit kit;

    kit_init(&kit, 6);
    struct ct_tensor logits = kit_random(&kit, CT_F64, ct_shape2(6, 17), -3, 3);
    struct ct_tensor labels = kit_labels(&kit, 6, 17);

    kit_set(&labels, 0, 5);
    struct ct_kernel_args done = cross_entropy(&kit, &logits, &labels);
    struct ct_tensor dx = cross_entropy_bw(&kit, &done, 0.25);

    check_gradient(&logits, &dx, 0.25, exact_loss, &labels);
    kit_deinit(&kit);
}

static double exact_mse(const struct ct_tensor *x, const struct ct_tensor *target)
{
    int64_t n = ct_shape_elements(x->shape), c = ct_shape_columns(x->shape);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += pow(kit_get(x, i) - kit_get(target, i), 2);
    return sum / (double)c;
}

static void mse(struct kit *kit, enum ct_dtype dtype, const struct ct_tensor x[2],
                const struct ct_tensor *labels, struct ct_tensor ret[2])
{
    struct ct_tensor mask = labels != NULL ? *labels : (struct ct_tensor){0};

    ret[0] = kit_scalar(kit, 99);
    ret[1] = kit_tensor(kit, dtype, x[0].shape);
    kit_run(CT_CPU_AUTO, 1, CT_OP_MSE, dtype,
            &(struct ct_kernel_args){.in = {x[0], x[1], mask}, .out = {ret[0]}});
    kit_run(CT_CPU_AUTO, 1, CT_OP_MSE_BW, dtype,
            &(struct ct_kernel_args){.in = {x[0], x[1], kit_scalar(kit, 0.125), mask},
                                     .out = {ret[1]}});
}

Test(losses, mse_is_the_mean_over_columns_and_its_gradient_the_slope)
{
    struct kit kit;

    kit_init(&kit, 7);
    for (int64_t c = 1; c < 20; c += 6) {
        struct ct_tensor x[2] = {kit_random(&kit, CT_F64, ct_shape2(9, c), -2, 2),
                                 kit_random(&kit, CT_F64, ct_shape2(9, c), -2, 2)};
        struct ct_tensor out[2];

        mse(&kit, CT_F64, x, NULL, out);
        cr_assert_float_eq(kit_get(&out[0], 0), exact_mse(&x[0], &x[1]), 1e-12);
        check_gradient(&x[0], &out[1], 0.125, exact_mse, &x[1]);
    }
    kit_deinit(&kit);
}

Test(losses, mse_skips_masked_rows)
{
    struct kit kit;

    kit_init(&kit, 8);
    struct ct_tensor x[2] = {kit_random(&kit, CT_F32, ct_shape2(3, 4), -2, 2),
                             kit_random(&kit, CT_F32, ct_shape2(3, 4), -2, 2)};
    struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(3)), out[2];
    struct ct_tensor first = ct_tensor_slice(&x[0], 0, 2), target = ct_tensor_slice(&x[1], 0, 2);

    kit_set(&labels, 2, -1);
    kit_set(&x[0], 9, NAN);
    mse(&kit, CT_F32, x, &labels, out);
    cr_assert_float_eq(kit_get(&out[0], 0), exact_mse(&first, &target), 1e-6);
    for (int i = 8; i < 12; i++)
        cr_assert_eq(kit_get(&out[1], i), 0);
    cr_assert_neq(kit_get(&out[1], 0), 0);
    kit_deinit(&kit);
}

static double count_correct(struct kit *kit, const struct ct_tensor *logits,
                            const struct ct_tensor *labels)
{
    struct ct_tensor count = kit_scalar(kit, 99);

    kit_run(CT_CPU_AUTO, 1, CT_OP_CORRECT, CT_F32,
            &(struct ct_kernel_args){.in = {*logits, *labels}, .out = {count}});
    return kit_get(&count, 0);
}

Test(losses, correct_takes_the_first_largest_logit)
{
    static const struct {
        double row[4];
        int label;
        int right;
    } rows[] = {
        {{0, 1, 2, 3}, 3, 1},
        {{0, 1, 2, 3}, 2, 0},
        {{3, 1, 2, 3}, 0, 1},
        {{3, 1, 2, 3}, 3, 0},
        {{0, 0, 0, 0}, 0, 1},
        {{0, 0, 0, 0}, 1, 0},
        {{0, 1, 2, 3}, -1, 0},
        {{NAN, 1, 2, 3}, 3, 0},
        {{0, 1, 2, NAN}, 2, 0},
        {{0, 1, 2, NAN}, 3, 0},
        {{-INFINITY, -9, -9, -9}, 1, 1},
        {{0, INFINITY, 2, 3}, 1, 1},
    };
    struct kit kit;
    double right = 0;

    kit_init(&kit, 9);
    struct ct_tensor logits = kit_tensor(&kit, CT_F32, ct_shape2(CT_COUNT(rows), 4));
    struct ct_tensor labels = kit_tensor(&kit, CT_I32, ct_shape1(CT_COUNT(rows)));

    for (int64_t i = 0; i < (int64_t)CT_COUNT(rows); i++) {
        for (int j = 0; j < 4; j++)
            kit_set(&logits, i * 4 + j, rows[i].row[j]);
        kit_set(&labels, i, rows[i].label);
        struct ct_tensor row = ct_tensor_slice(&logits, i, 1),
                         label = ct_tensor_slice(&labels, i, 1);

        cr_assert_eq(count_correct(&kit, &row, &label), rows[i].right, "row %lld", (long long)i);
        right += rows[i].right;
    }
    cr_assert_eq(count_correct(&kit, &logits, &labels), right);
    kit_deinit(&kit);
}

Test(losses, one_hot_marks_the_label_and_leaves_masked_rows_empty)
{
    struct kit kit;

    kit_init(&kit, 10);
    struct ct_tensor labels = kit_labels(&kit, 40, 7);
    struct ct_tensor y = kit_random(&kit, CT_F32, ct_shape2(40, 7), -1, 1);

    kit_run(CT_CPU_AUTO, 1, CT_OP_ONE_HOT, CT_F32,
            &(struct ct_kernel_args){.in = {labels}, .out = {y}});
    for (int64_t i = 0; i < 40; i++)
        for (int64_t j = 0; j < 7; j++)
            cr_assert_eq(kit_get(&y, i * 7 + j), kit_get(&labels, i) == (double)j);
    kit_deinit(&kit);
}
