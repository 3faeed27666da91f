/* Embeddings, places, attention, norms and dropout against their definitions, in double. */
#include "kit.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(tokens, .timeout = 60);

static struct kit kit;

static void setup(void)
{
    kit_init(&kit, 5);
}

static void teardown(void)
{
    kit_deinit(&kit);
}

static double *at(const struct ct_tensor *tensor, int64_t row)
{
    return (double *)tensor->data + row * ct_shape_columns(tensor->shape);
}

/* ---- attention ------------------------------------------------------------------------------ */

enum { SEQUENCE = 150, HEADS = 2, SIZE = 6, WIDTH = HEADS * SIZE, ROWS = 2 * SEQUENCE };

static struct ct_kernel_args attention_args(void)
{
    return (struct ct_kernel_args){
        .in = {kit_random(&kit, CT_F64, ct_shape2(ROWS, 3 * WIDTH), -2, 2)},
        .out = {kit_tensor(&kit, CT_F64, ct_shape2(ROWS, WIDTH)),
                kit_tensor(&kit, CT_F64, ct_shape2(ROWS, HEADS))},
        .attr = {.sequence = SEQUENCE, .heads = HEADS}};
}

/* softmax(q k^T / sqrt D) v of one query, written down. */
static double attended(const struct ct_tensor *qkv, int64_t row, int head, int column,
                       double *ret_lse)
{
    int64_t first = row - row % SEQUENCE;
    double total = 0, sum = 0;

    for (int64_t key = first; key <= row; key++) {
        const double *q = at(qkv, row) + head * SIZE, *k = at(qkv, key) + WIDTH + head * SIZE;
        double score = 0;

        for (int i = 0; i < SIZE; i++)
            score += q[i] * k[i];
        double e = exp(score / sqrt(SIZE));
        total += e;
        sum += e * at(qkv, key)[2 * WIDTH + head * SIZE + column];
    }
    *ret_lse = log(total);
    return sum / total;
}

Test(tokens, attention_is_a_softmax_over_the_places_so_far, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = attention_args();

    kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION, CT_F64, &args);
    for (int64_t row = 0; row < ROWS; row++)
        for (int column = 0; column < WIDTH; column++) {
            double lse, y = attended(&args.in[0], row, column / SIZE, column % SIZE, &lse);

            cr_assert_float_eq(at(&args.out[0], row)[column], y, 1e-12);
            cr_assert_float_eq(at(&args.out[1], row)[column / SIZE], lse, 1e-12);
        }
}

Test(tokens, a_query_sees_nothing_behind_its_place, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = attention_args();

    args.in[0] = kit_copy(&kit, &args.in[0], CT_F32);
    args.out[0] = kit_copy(&kit, &args.out[0], CT_F32);
    args.out[1] = kit_copy(&kit, &args.out[1], CT_F32);
    struct ct_kernel_args changed = kit_copy_args(&kit, &args);

    for (int64_t i = 0; i < SEQUENCE - 20; i++) /* all of the first sequence but 20 rows */
        for (int64_t j = 0; j < (int64_t)3 * WIDTH; j++)
            kit_set(&changed.in[0], (20 + i) * 3 * WIDTH + j, 1e3);
    kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION, CT_F32, &args);
    kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION, CT_F32, &changed);
    args.out[0].shape = changed.out[0].shape = ct_shape2(20, WIDTH);
    kit_same_bytes(&changed.out[0], &args.out[0], "first 20 places");
    args.out[0] = (struct ct_tensor){CT_F32, ct_shape2(SEQUENCE, WIDTH),
                                     (float *)args.out[0].data + SEQUENCE * WIDTH};
    changed.out[0] = (struct ct_tensor){CT_F32, ct_shape2(SEQUENCE, WIDTH),
                                        (float *)changed.out[0].data + SEQUENCE * WIDTH};
    kit_same_bytes(&changed.out[0], &args.out[0], "the other sequence");
}

/* Rows first .. first + rows - 1 of `whole`. */
static struct ct_tensor rows_of(const struct ct_tensor *whole, int64_t first, int64_t rows)
{
    size_t row = ct_tensor_bytes(whole) / (size_t)ct_shape_rows(whole->shape);

    return (struct ct_tensor){whole->dtype, ct_shape2(rows, ct_shape_columns(whole->shape)),
                              (char *)whole->data + (size_t)first * row};
}

Test(tokens, attention_by_a_cache_has_the_bits_of_the_whole_sequence, .init = setup,
     .fini = teardown)
{
    static const int64_t steps[] = {1, 1, 60, 7, 1, 64, 16}; /* tiles are of 64 */
    struct ct_kernel_args whole = attention_args();
    int64_t place = 0;

    whole.in[0] = kit_copy(&kit, &whole.in[0], CT_F32);
    whole.out[0] = kit_copy(&kit, &whole.out[0], CT_F32);
    whole.out[1] = kit_copy(&kit, &whole.out[1], CT_F32);
    kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION, CT_F32, &whole);
    struct ct_tensor cache = kit_random(&kit, CT_F32, ct_shape2(SEQUENCE + 5, 2 * WIDTH), -2, 2);
    for (size_t i = 0; i < CT_COUNT(steps); place += steps[i++]) {
        struct ct_kernel_args part = {
            .in = {rows_of(&whole.in[0], place, steps[i]), kit_places(&kit, steps[i], place)},
            .out = {kit_tensor(&kit, CT_F32, ct_shape2(steps[i], WIDTH)), cache},
            .attr = {.heads = HEADS}};
        struct ct_tensor y = rows_of(&whole.out[0], place, steps[i]);

        kit_run(CT_CPU_AUTO, 1, CT_OP_ATTENTION_CACHED, CT_F32, &part);
        kit_same_bytes(&part.out[0], &y, "by the cache");
    }
    cr_assert_eq(place, SEQUENCE);
}

Test(tokens, rotary_turns_by_the_places_that_are_given, .init = setup, .fini = teardown)
{
    struct ct_kernel_args whole = {
        .in = {kit_random(&kit, CT_F32, ct_shape2(SEQUENCE, 3 * WIDTH), -2, 2)},
        .out = {kit_tensor(&kit, CT_F32, ct_shape2(SEQUENCE, 3 * WIDTH))},
        .attr = {.sequence = SEQUENCE, .heads = HEADS, .base = 10000}};
    struct ct_kernel_args part = whole;
    struct ct_tensor y = rows_of(&whole.out[0], 40, 9);

    kit_run(CT_CPU_AUTO, 1, CT_OP_ROPE, CT_F32, &whole);
    part.in[0] = rows_of(&whole.in[0], 40, 9);
    part.in[1] = kit_places(&kit, 9, 40);
    part.out[0] = kit_tensor(&kit, CT_F32, ct_shape2(9, 3 * WIDTH));
    part.attr.sequence = 0;
    kit_run(CT_CPU_AUTO, 1, CT_OP_ROPE, CT_F32, &part);
    kit_same_bytes(&part.out[0], &y, "rows from place 40 on");
}

Test(tokens, rotary_turns_each_pair_by_its_place, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = {
        .in = {kit_random(&kit, CT_F64, ct_shape2(ROWS, 3 * WIDTH), -2, 2)},
        .out = {kit_tensor(&kit, CT_F64, ct_shape2(ROWS, 3 * WIDTH))},
        .attr = {.sequence = SEQUENCE, .heads = HEADS, .base = 10000}};
    struct ct_kernel_args back;

    kit_run(CT_CPU_AUTO, 1, CT_OP_ROPE, CT_F64, &args);
    for (int64_t row = 0; row < ROWS; row++) {
        const double *x = at(&args.in[0], row), *y = at(&args.out[0], row);

        for (int j = 0; j < 3 * WIDTH; j++) {
            int i = j % SIZE % (SIZE / 2), first = j - j % SIZE + i;
            double angle = (double)(row % SEQUENCE) * pow(10000, -2.0 * i / SIZE);
            double a = x[first], b = x[first + SIZE / 2];
            double turned = j % SIZE < SIZE / 2 ? a * cos(angle) - b * sin(angle)
                                                : b * cos(angle) + a * sin(angle);

            cr_assert_float_eq(y[j], j < 2 * WIDTH ? turned : x[j], 1e-12);
        }
    }
    back = args;
    back.in[0] = args.out[0];
    back.out[0] = kit_tensor(&kit, CT_F64, ct_shape2(ROWS, 3 * WIDTH));
    back.attr.inverse = true;
    kit_run(CT_CPU_AUTO, 1, CT_OP_ROPE, CT_F64, &back);
    kit_near(&back.out[0], &args.in[0], 1e-12, "turned and turned back");
}

Test(tokens, sizes_that_do_not_hang_together_are_refused, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = attention_args();
    struct ct_error err;

    args.attr.heads = 5;
    cr_assert_eq(ct_op_check(CT_OP_ATTENTION, CT_F64, &args, &err), CT_EBUG);
    args = attention_args();
    args.attr.sequence = 7;
    cr_assert_eq(ct_op_check(CT_OP_ATTENTION, CT_F64, &args, &err), CT_EBUG);
    cr_assert_str_eq(err.text, "attention: 300 rows are no sequences of 7");
    args.attr.sequence = 0;
    cr_assert_eq(ct_op_check(CT_OP_ATTENTION, CT_F64, &args, &err), CT_EBUG);
    args.in[1] = kit_places(&kit, ROWS, 0);
    args.out[1] = kit_tensor(&kit, CT_F64, ct_shape2(ROWS - 1, 2 * WIDTH));
    cr_assert_eq(ct_op_check(CT_OP_ATTENTION_CACHED, CT_F64, &args, &err), CT_EBUG);
    cr_assert_str_eq(err.text, "attention_cached: y or cache do not fit qkv");
}

/* ---- embedding ------------------------------------------------------------------------------ */

Test(tokens, embedding_adds_the_tokens_row_and_the_places_row, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = {.in = {kit_labels(&kit, 12, 7),
                                         kit_random(&kit, CT_F64, ct_shape2(7, 5), -1, 1),
                                         kit_random(&kit, CT_F64, ct_shape2(6, 5), -1, 1)},
                                  .out = {kit_tensor(&kit, CT_F64, ct_shape2(12, 5))},
                                  .attr = {.sequence = 4}};

    kit_run(CT_CPU_AUTO, 1, CT_OP_EMBEDDING, CT_F64, &args);
    for (int64_t row = 0; row < 12; row++)
        for (int j = 0; j < 5; j++) {
            int64_t id = (int64_t)kit_get(&args.in[0], row);
            double token = id < 0 ? 0 : at(&args.in[1], id)[j];

            cr_assert_eq(at(&args.out[0], row)[j], token + at(&args.in[2], row % 4)[j]);
        }
}

/* ---- norms ---------------------------------------------------------------------------------- */

Test(tokens, norms_give_rows_of_mean_0_and_variance_1, .init = setup, .fini = teardown)
{
    for (int rms = 0; rms < 2; rms++) {
        struct ct_kernel_args args = {.in = {kit_random(&kit, CT_F64, ct_shape2(9, 37), -1, 3),
                                             kit_random(&kit, CT_F64, ct_shape1(37), 1, 1)},
                                      .out = {kit_tensor(&kit, CT_F64, ct_shape2(9, 37)),
                                              kit_tensor(&kit, CT_F64, ct_shape2(9, 2))}};

        kit_run(CT_CPU_AUTO, 1, rms ? CT_OP_RMSNORM : CT_OP_LAYERNORM, CT_F64, &args);
        for (int64_t row = 0; row < 9; row++) {
            double sum = 0, squares = 0;

            for (int j = 0; j < 37; j++) {
                sum += at(&args.out[0], row)[j];
                squares += at(&args.out[0], row)[j] * at(&args.out[0], row)[j];
            }
            cr_assert_float_eq(squares / 37, 1, 1e-12);
            if (!rms)
                cr_assert_float_eq(sum, 0, 1e-12);
        }
    }
}

/* Of sum(dy y) by the mean of differences to both sides. */
static double slope_of(enum ct_op_kind norm, struct ct_kernel_args *args,
                       const struct ct_tensor *dy, struct ct_tensor *by, int64_t i)
{
    const double at = kit_get(by, i), step = 1e-5;
    double sums[2] = {0, 0};

    for (int side = 0; side < 2; side++) {
        kit_set(by, i, side == 0 ? at - step : at + step);
        kit_run(CT_CPU_AUTO, 1, norm, CT_F64, args);
        for (int64_t k = 0; k < ct_shape_elements(dy->shape); k++)
            sums[side] += kit_get(dy, k) * kit_get(&args->out[0], k);
    }
    kit_set(by, i, at);
    kit_run(CT_CPU_AUTO, 1, norm, CT_F64, args);
    return (sums[1] - sums[0]) / (2 * step);
}

Test(tokens, gradients_of_norms_equal_finite_differences, .init = setup, .fini = teardown)
{
    enum { M = 3, K = 7 };
    static const enum ct_op_kind norms[] = {CT_OP_LAYERNORM, CT_OP_RMSNORM},
                                 backs[] = {CT_OP_LAYERNORM_BW, CT_OP_RMSNORM_BW};

    for (size_t n = 0; n < CT_COUNT(norms); n++) {
        const struct kit_sizes size = {.m = M, .k = K};
        struct ct_kernel_args args = kit_args(&kit, norms[n], CT_F64, size);
        struct ct_kernel_args back = kit_args(&kit, backs[n], CT_F64, size);
        int biased = back.out[2].data != NULL;

        kit_run(CT_CPU_AUTO, 1, norms[n], CT_F64, &args);
        back.in[1] = args.in[0];
        back.in[2] = args.in[1];
        back.in[3] = args.out[1];
        kit_run(CT_CPU_AUTO, 1, backs[n], CT_F64, &back);
        for (int which = 0; which < 2 + biased; which++)
            for (int64_t i = 0; i < (which == 0 ? M * K : K); i++)
                cr_assert_float_eq(kit_get(&back.out[which], i),
                                   slope_of(norms[n], &args, &back.in[0], &args.in[which], i), 1e-8,
                                   "%s: gradient %d", ct_op_info(norms[n])->name, which);
    }
}

/* One by one, in any type, and added to what is there. */
Test(tokens, gradients_of_norms_in_one_op_have_the_bits_of_the_ops_that_it_stands_for,
     .init = setup, .fini = teardown)
{
    static const enum ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};

    for (size_t i = 0; i < 4 * CT_COUNT(types); i++) {
        enum ct_dtype dtype = types[i / 4];
        bool layer = i % 2 == 0;
        struct ct_kernel_args all = kit_args(&kit, layer ? CT_OP_LAYERNORM_BW : CT_OP_RMSNORM_BW,
                                             dtype, (struct kit_sizes){.m = 300, .k = 37});
        all.attr.accumulate = i % 4 < 2;
        struct ct_kernel_args own = kit_copy_args(&kit, &all);
        struct ct_kernel_args dx = {.in = {all.in[0], all.in[1], all.in[2], all.in[3]},
                                    .out = {own.out[0]}};
        struct ct_kernel_args dg = {
            .in = {all.in[0], all.in[1], all.in[3]}, .out = {own.out[1]}, .attr = all.attr};
        struct ct_kernel_args db = {.in = {all.in[0]}, .out = {own.out[2]}, .attr = all.attr};

        kit_run(CT_CPU_AUTO, 3, layer ? CT_OP_LAYERNORM_BW : CT_OP_RMSNORM_BW, dtype, &all);
        kit_run(CT_CPU_AUTO, 1, layer ? CT_OP_LAYERNORM_DX : CT_OP_RMSNORM_DX, dtype, &dx);
        kit_run(CT_CPU_AUTO, 1, CT_OP_NORM_DG, dtype, &dg);
        kit_same_bytes(&all.out[0], &dx.out[0], "dx");
        kit_same_bytes(&all.out[1], &dg.out[0], "dg");
        if (!layer)
            continue;
        kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR_DB, dtype, &db);
        kit_same_bytes(&all.out[2], &db.out[0], "db");
    }
}

Test(tokens, norms_of_a_sum_have_the_bits_of_the_ops_that_they_stand_for, .init = setup,
     .fini = teardown)
{
    static const enum ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};

    for (size_t i = 0; i < 2 * CT_COUNT(types); i++) {
        enum ct_dtype dtype = types[i / 2];
        bool layer = i % 2 == 0;
        enum ct_op_kind both = layer ? CT_OP_ADD_LAYERNORM : CT_OP_ADD_RMSNORM;
        struct ct_kernel_args all =
            kit_args(&kit, both, dtype, (struct kit_sizes){.m = 30, .k = 37});
        struct ct_kernel_args own = kit_copy_args(&kit, &all);
        struct ct_kernel_args sum = {.in = {all.in[0], all.in[1]}, .out = {own.out[0]}};
        struct ct_kernel_args norm = {.in = {own.out[0], all.in[2], all.in[3]},
                                      .out = {own.out[1], own.out[2]},
                                      .attr = all.attr};

        kit_run(CT_CPU_AUTO, 3, both, dtype, &all);
        kit_run(CT_CPU_AUTO, 1, CT_OP_ADD, dtype, &sum);
        kit_run(CT_CPU_AUTO, 1, layer ? CT_OP_LAYERNORM : CT_OP_RMSNORM, dtype, &norm);
        kit_same_bytes(&all.out[0], &sum.out[0], "h");
        kit_same_bytes(&all.out[1], &norm.out[0], "y");
        kit_same_bytes(&all.out[2], &norm.out[1], "stats");
    }
}

/* ---- dropout -------------------------------------------------------------------------------- */

static struct ct_kernel_args dropout_args(int64_t count, double step, double sample)
{
    struct ct_kernel_args args = {.in = {kit_random(&kit, CT_F32, ct_shape1(count), 1, 1),
                                         kit_random(&kit, CT_F64, ct_shape1(2), step, step)},
                                  .out = {kit_tensor(&kit, CT_F32, ct_shape1(count))},
                                  .attr = {.rate = 0.25, .key = 9, .unit = 10}};

    kit_set(&args.in[1], 1, sample);
    return args;
}

Test(tokens, dropout_keeps_its_share_and_scales_it, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = dropout_args(100000, 1, 0);
    int64_t kept = 0;

    kit_run(CT_CPU_AUTO, 1, CT_OP_DROPOUT, CT_F32, &args);
    for (int64_t i = 0; i < 100000; i++) {
        float y = ((float *)args.out[0].data)[i];

        cr_assert(y == 0 || y == 1 / 0.75F);
        kept += y != 0;
    }
    cr_assert_lt(fabs((double)kept / 100000 - 0.75), 0.01);
}

Test(tokens, dropout_draws_by_the_place_in_the_global_batch, .init = setup, .fini = teardown)
{
    struct ct_kernel_args whole = dropout_args(1000, 3, 0), next = dropout_args(1000, 4, 0);

    kit_run(CT_CPU_AUTO, 1, CT_OP_DROPOUT, CT_F32, &whole);
    kit_run(CT_CPU_AUTO, 1, CT_OP_DROPOUT, CT_F32, &next);
    cr_assert(memcmp(whole.out[0].data, next.out[0].data, 4000) != 0, "every step draws anew");
    for (int sample = 0; sample < 100; sample += 7) { /* a rank that starts there */
        struct ct_kernel_args part = dropout_args(40, 3, sample - sample % 2);

        part.attr.first = sample % 2 == 0 ? 0 : 10; /* its second micro-batch */
        int64_t first = sample * 10, count = CT_MIN(1000 - first, 40);
        kit_run(CT_CPU_AUTO, 1, CT_OP_DROPOUT, CT_F32, &part);
        cr_assert_eq(memcmp(part.out[0].data, (float *)whole.out[0].data + first,
                            (size_t)count * sizeof(float)),
                     0);
    }
}

Test(tokens, dropout_uses_philox_of_key_block_and_step, .init = setup, .fini = teardown)
{
    struct ct_kernel_args args = dropout_args(64, 3, 0);
    uint32_t words[4];

    kit_run(CT_CPU_AUTO, 1, CT_OP_DROPOUT, CT_F32, &args);
    for (uint32_t i = 0; i < 64; i++) {
        ct_philox(9, (uint32_t[4]){i / 4, 0, 3, 0}, words);
        cr_assert_eq(((float *)args.out[0].data)[i] != 0, ct_uniform_f32(words[i % 4]) >= 0.25F);
    }
}
