/* Matrix products: the definition of gemm.h bit by bit, and against sums in double. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(linear, .timeout = 60);

enum { BLOCK = 256 }; /* CT_GEMM_KC */

/* Strides of the product that op computes: c[m,n] from a[m,k] and b[k,n]. */
struct product {
    int64_t m, n, k, a_row, a_k, b_k, b_col;
};

static struct product product_of(enum ct_op_kind op, struct kit_sizes s)
{
    if (op == CT_OP_LINEAR)
        return (struct product){s.m, s.n, s.k, s.k, 1, 1, s.k};
    if (op == CT_OP_LINEAR_DX)
        return (struct product){s.m, s.k, s.n, s.n, 1, s.k, 1};
    return (struct product){s.n, s.k, s.m, 1, s.n, s.k, 1};
}

/* What gemm.h defines, in float, element by element. */
static void define(enum ct_op_kind op, struct kit_sizes sizes, const struct ct_kernel_args *args)
{
    struct product p = product_of(op, sizes);
    const float *a = args->in[0].data, *b = args->in[1].data;
    const float *bias = op == CT_OP_LINEAR ? args->in[2].data : NULL;
    float *c = args->out[0].data;

    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            float sum = args->attr.accumulate ? c[i * p.n + j] : 0;
            bool add = args->attr.accumulate;

            for (int64_t first = 0; first < p.k; first += BLOCK) {
                float acc = 0;

                for (int64_t k = first; k < CT_MIN(first + BLOCK, p.k); k++)
                    acc = fmaf(a[i * p.a_row + k * p.a_k], b[k * p.b_k + j * p.b_col], acc);
                sum = add ? sum + acc : acc;
                add = true;
            }
            c[i * p.n + j] = bias != NULL ? sum + bias[j] : sum;
        }
}

static double exact(enum ct_op_kind op, struct kit_sizes sizes, const struct ct_kernel_args *args,
                    int64_t index)
{
    struct product p = product_of(op, sizes);
    int64_t i = index / p.n, j = index % p.n;
    double sum = op == CT_OP_LINEAR && args->in[2].data != NULL ? kit_get(&args->in[2], j) : 0;

    for (int64_t k = 0; k < p.k; k++)
        sum += kit_get(&args->in[0], i * p.a_row + k * p.a_k) *
               kit_get(&args->in[1], k * p.b_k + j * p.b_col);
    return sum;
}

static const enum ct_op_kind products[] = {CT_OP_LINEAR, CT_OP_LINEAR_DX, CT_OP_LINEAR_DW};

/* Odd sizes, sizes around the tiles of every instruction set, around blocks of K, and empty ones.
 */
static const struct kit_sizes sizes[] = {
    {.m = 1, .n = 1, .k = 1},    {.m = 3, .n = 17, .k = 65},   {.m = 32, .n = 64, .k = 64},
    {.m = 32, .n = 10, .k = 64}, {.m = 14, .n = 32, .k = 256}, {.m = 15, .n = 33, .k = 257},
    {.m = 29, .n = 16, .k = 31}, {.m = 257, .n = 5, .k = 9},   {.m = 2, .n = 1024, .k = 3},
    {.m = 5, .n = 3, .k = 1024}, {.m = 0, .n = 3, .k = 4},     {.m = 3, .n = 0, .k = 4},
    {.m = 3, .n = 4, .k = 0},    {.m = 300, .n = 7, .k = 20},  {.m = 7, .n = 600, .k = 33},
    {.m = 4, .n = 6, .k = 1500},
};

static void each_case(void (*check)(enum ct_op_kind op, struct kit_sizes sizes, bool accumulate))
{
    for (size_t o = 0; o < CT_COUNT(products); o++)
        for (size_t s = 0; s < CT_COUNT(sizes); s++) {
            check(products[o], sizes[s], false);
            if (products[o] == CT_OP_LINEAR_DW)
                check(products[o], sizes[s], true);
        }
}

static void check_definition(enum ct_op_kind op, struct kit_sizes s, bool accumulate)
{
    struct kit kit;
    char what[96];

    kit_init(&kit, 7);
    struct ct_kernel_args args = kit_args(&kit, op, CT_F32, s);
    args.attr.accumulate = accumulate;
    struct ct_kernel_args expected = kit_copy_args(&kit, &args);

    define(op, s, &expected);
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++) {
        if (!ct_cpu_isa_runs(isa))
            continue;
        struct ct_kernel_args copy = kit_copy_args(&kit, &args);

        kit_run(isa, 1, op, CT_F32, &copy);
        (void)snprintf(what, sizeof what, "%s %s M=%lld N=%lld K=%lld", ct_op_info(op)->name,
                       ct_cpu_isa_name(isa), (long long)s.m, (long long)s.n, (long long)s.k);
        kit_same_bytes(&copy.out[0], &expected.out[0], what);
    }
    kit_deinit(&kit);
}

Test(linear, products_add_along_k_in_one_order_on_every_instruction_set)
{
    each_case(check_definition);
}

static void check_exact(enum ct_op_kind op, struct kit_sizes s, bool accumulate)
{
    struct kit kit;

    if (accumulate)
        return;
    kit_init(&kit, 8);
    for (enum ct_dtype dtype = CT_F32; dtype <= CT_F64; dtype++) {
        struct ct_kernel_args args = kit_args(&kit, op, dtype, s);
        struct product p = product_of(op, s);

        kit_run(CT_CPU_AUTO, 1, op, dtype, &args);
        for (int64_t i = 0; i < p.m * p.n; i++) {
            double want = exact(op, s, &args, i), got = kit_get(&args.out[0], i);
            double unit = dtype == CT_F32 ? 0x1p-24 : 0x1p-53;

            cr_assert(fabs(got - want) <= 4 * unit * (double)(p.k + 2) * 2,
                      "%s element %lld: %.9g, not %.9g", ct_op_info(op)->name, (long long)i, got,
                      want);
        }
    }
    kit_deinit(&kit);
}

Test(linear, products_are_near_the_sums_in_double)
{
    each_case(check_exact);
}

Test(linear, the_bias_is_optional_and_added_last)
{
    struct kit kit;

    kit_init(&kit, 9);
    struct ct_kernel_args args =
        kit_args(&kit, CT_OP_LINEAR, CT_F32, (struct kit_sizes){.m = 20, .n = 35, .k = 300});
    struct ct_kernel_args plain = kit_copy_args(&kit, &args);

    plain.in[2].data = NULL;
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR, CT_F32, &args);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR, CT_F32, &plain);
    for (int64_t i = 0; i < 20 * 35; i++) {
        float sum = ((float *)plain.out[0].data)[i] + ((float *)args.in[2].data)[i % 35];

        cr_assert_eq(((float *)args.out[0].data)[i], sum);
    }
    kit_deinit(&kit);
}

Test(linear, threads_change_no_bit)
{
    static const struct kit_sizes big[] = {
        {.m = 96, .n = 300, .k = 270}, {.m = 400, .n = 40, .k = 130}, {.m = 3, .n = 700, .k = 600}};
    struct kit kit;

    kit_init(&kit, 10);
    for (size_t o = 0; o < CT_COUNT(products); o++)
        for (size_t s = 0; s < CT_COUNT(big); s++) {
            struct ct_kernel_args args = kit_args(&kit, products[o], CT_F32, big[s]);
            struct ct_kernel_args expected = kit_copy_args(&kit, &args);

            kit_run(CT_CPU_AUTO, 1, products[o], CT_F32, &expected);
            for (int threads = 2; threads <= 8; threads += 3) {
                struct ct_kernel_args copy = kit_copy_args(&kit, &args);

                kit_run(CT_CPU_AUTO, threads, products[o], CT_F32, &copy);
                kit_same_bytes(&copy.out[0], &expected.out[0], ct_op_info(products[o])->name);
            }
        }
    kit_deinit(&kit);
}

Test(linear, a_sample_does_not_see_the_others_of_its_batch)
{
    struct kit kit;
    const struct kit_sizes s = {.m = 65, .n = 33, .k = 270};

    kit_init(&kit, 11);
    for (int o = 0; o < 2; o++) { /* y and dx: rows of the batch */
        struct ct_kernel_args whole = kit_args(&kit, products[o], CT_F32, s), part = whole;
        struct ct_tensor expected;

        kit_run(CT_CPU_AUTO, 1, products[o], CT_F32, &whole);
        for (int64_t first = 0; first < s.m; first += 13) {
            part.in[0] = ct_tensor_slice(&whole.in[0], first, 13);
            expected = ct_tensor_slice(&whole.out[0], first, 13);
            part.out[0] = kit_tensor(&kit, CT_F32, expected.shape);
            kit_run(CT_CPU_AUTO, 1, products[o], CT_F32, &part);
            kit_same_bytes(&part.out[0], &expected, ct_op_info(products[o])->name);
        }
    }
    kit_deinit(&kit);
}

Test(linear, gradients_accumulated_over_whole_blocks_equal_those_of_one_batch)
{
    static const enum ct_op_kind ops[] = {CT_OP_LINEAR_DW, CT_OP_LINEAR_DB};
    struct kit kit;
    const struct kit_sizes s = {.m = 3 * BLOCK + 40, .n = 21, .k = 18};

    kit_init(&kit, 12);
    for (size_t o = 0; o < CT_COUNT(ops); o++) {
        struct ct_kernel_args whole = kit_args(&kit, ops[o], CT_F32, s);
        struct ct_kernel_args part = kit_copy_args(&kit, &whole);

        kit_run(CT_CPU_AUTO, 1, ops[o], CT_F32, &whole);
        for (int64_t first = 0; first < s.m; first += BLOCK) {
            int64_t rows = CT_MIN(BLOCK, s.m - first);

            part.in[0] = ct_tensor_slice(&whole.in[0], first, rows);
            if (ops[o] == CT_OP_LINEAR_DW)
                part.in[1] = ct_tensor_slice(&whole.in[1], first, rows);
            part.attr.accumulate = first > 0;
            kit_run(CT_CPU_AUTO, 1, ops[o], CT_F32, &part);
        }
        kit_same_bytes(&part.out[0], &whole.out[0], ct_op_info(ops[o])->name);
    }
    kit_deinit(&kit);
}

Test(linear, the_bias_gradient_is_the_weight_gradient_of_a_constant_input)
{
    struct kit kit;
    const struct kit_sizes s = {.m = 300, .n = 270, .k = 1};

    kit_init(&kit, 13);
    struct ct_kernel_args dw = kit_args(&kit, CT_OP_LINEAR_DW, CT_F32, s);
    struct ct_kernel_args db = kit_args(&kit, CT_OP_LINEAR_DB, CT_F32, s);

    for (int64_t i = 0; i < s.m; i++)
        kit_set(&dw.in[1], i, 1);
    db.in[0] = dw.in[0];
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR_DW, CT_F32, &dw);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR_DB, CT_F32, &db);
    kit_same_bytes(&db.out[0], &dw.out[0], "linear_db");
    kit_deinit(&kit);
}

Test(linear, nan_and_infinity_reach_their_row_and_column_only)
{
    struct kit kit;
    const struct kit_sizes s = {.m = 17, .n = 20, .k = 40};

    kit_init(&kit, 14);
    struct ct_kernel_args args = kit_args(&kit, CT_OP_LINEAR, CT_F32, s);

    kit_set(&args.in[0], 3 * 40 + 39, NAN);
    kit_set(&args.in[1], 5 * 40 + 1, INFINITY);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR, CT_F32, &args);
    for (int64_t i = 0; i < 17; i++)
        for (int64_t j = 0; j < 20; j++) {
            double y = kit_get(&args.out[0], i * 20 + j);

            cr_assert_eq(isnan(y) != 0, i == 3);
            if (i != 3)
                cr_assert_eq(isinf(y) != 0, j == 5);
        }
    kit_deinit(&kit);
}

/* ---- with an activation --------------------------------------------------------------------- */

/* The gradient goes through gelu_tanh at what the layer gave. */
static void check_halves(struct kit *kit, enum ct_dtype dtype, struct kit_sizes s)
{
    struct ct_kernel_args both = kit_args(kit, CT_OP_LINEAR_GELU, dtype, s);
    struct ct_kernel_args product = {.in = {both.in[0], both.in[1], both.in[2]},
                                     .out = {kit_tensor(kit, dtype, both.out[1].shape)}};
    struct ct_kernel_args map = {.in = {product.out[0]},
                                 .out = {kit_tensor(kit, dtype, both.out[0].shape)}};

    kit_run(CT_CPU_AUTO, 3, CT_OP_LINEAR_GELU, dtype, &both);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR, dtype, &product);
    kit_run(CT_CPU_AUTO, 1, CT_OP_GELU_TANH, dtype, &map);
    kit_same_bytes(&both.out[1], &product.out[0], "pre");
    kit_same_bytes(&both.out[0], &map.out[0], "y");

    both = kit_args(kit, CT_OP_LINEAR_DX_GELU, dtype, s);
    product = (struct ct_kernel_args){.in = {both.in[0], both.in[1]},
                                      .out = {kit_tensor(kit, dtype, both.out[0].shape)}};
    map = (struct ct_kernel_args){.in = {product.out[0], both.in[2]},
                                  .out = {kit_tensor(kit, dtype, both.out[0].shape)}};
    kit_run(CT_CPU_AUTO, 3, CT_OP_LINEAR_DX_GELU, dtype, &both);
    kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR_DX, dtype, &product);
    kit_run(CT_CPU_AUTO, 1, CT_OP_GELU_TANH_BW, dtype, &map);
    kit_same_bytes(&both.out[0], &map.out[0], "dx");
}

Test(linear, with_gelu_has_the_bits_of_the_two_ops_that_it_stands_for)
{
    static const enum ct_dtype types[] = {CT_F32, CT_F64, CT_BF16, CT_F16};
    struct kit kit;

    kit_init(&kit, 21);
    for (size_t t = 0; t < CT_COUNT(types); t++)
        for (size_t s = 0; s < CT_COUNT(sizes); s++)
            check_halves(&kit, types[t], sizes[s]);
    kit_deinit(&kit);
}
