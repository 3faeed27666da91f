/* Products as cuBLAS is asked for them, computed by the definition, against the CPU device. */
#include "tensor/cuda/product.h"

#include "base/assert.h"
#include "kit.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(product, .timeout = 30);

static const enum ct_op_kind ops[] = {CT_OP_LINEAR, CT_OP_LINEAR_DX, CT_OP_LINEAR_DW};

/* Element (row, column) of a matrix that lies column by column. */
static double element(const void *at, bool turned, int64_t step, int64_t row, int64_t column)
{
    return ((const float *)at)[turned ? column + row * step : row + column * step];
}

static void multiply(const struct ct_product *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float *c = (float *)p->c + i + j * p->c_step;
            double sum = p->accumulate ? (double)*c : 0;

            for (int64_t k = 0; k < p->k; k++)
                sum += element(p->a, p->a_transposed, p->a_step, i, k) *
                       element(p->b, p->b_transposed, p->b_step, k, j);
            *c = (float)(sum + (p->bias != NULL ? (double)((const float *)p->bias)[i] : 0));
        }
}

static void compare(enum ct_op_kind op, struct kit_sizes size, bool accumulate)
{
    struct kit kit;

    kit_init(&kit, kit_seed(op, 0));
    struct ct_kernel_args args = kit_args(&kit, op, CT_F32, size);

    args.attr.accumulate = accumulate && op == CT_OP_LINEAR_DW;
    struct ct_kernel_args expected = kit_copy_args(&kit, &args);
    const struct ct_product p = ct_product_of(op, CT_F32, &args);

    kit_run(CT_CPU_AUTO, 1, op, CT_F32, &expected);
    multiply(&p);
    kit_near(&args.out[0], &expected.out[0], 1e-5, ct_op_info(op)->name);
    kit_deinit(&kit);
}

Test(product, of_each_linear_op_is_the_cpus)
{
    static const struct kit_sizes sizes[] = {{3, 5, 7, 0, 0}, {17, 33, 9, 0, 0}, {1, 1, 1, 0, 0}};

    for (size_t i = 0; i < CT_COUNT(ops); i++)
        for (size_t j = 0; j < CT_COUNT(sizes); j++) {
            compare(ops[i], sizes[j], false);
            compare(ops[i], sizes[j], true);
        }
}

Test(product, takes_narrow_inputs_and_gives_what_op_def_says)
{
    float memory[1];
    struct ct_kernel_args args = {
        .in = {{CT_BF16, ct_shape2(4, 8), memory}, {CT_BF16, ct_shape2(4, 6), memory}},
        .out = {{CT_F32, ct_shape2(8, 6), memory}}};
    struct ct_product p = ct_product_of(CT_OP_LINEAR_DW, CT_BF16, &args);

    cr_assert_eq(p.in, CT_BF16);
    cr_assert_eq(p.out, CT_F32);
    cr_assert_eq(p.m, 6);
    cr_assert_eq(p.n, 8);
    cr_assert_eq(p.k, 4);
}

/* A matrix like the result, whose columns lie as close. */
Test(product, of_linear_gelu_writes_what_gelu_takes_and_of_its_gradient_reads_it)
{
    float y[1], pre[1];
    struct ct_kernel_args args = {
        .in = {{CT_BF16, ct_shape2(4, 8), y}, {CT_BF16, ct_shape2(16, 8), y}},
        .out = {{CT_BF16, ct_shape2(4, 16), y}, {CT_BF16, ct_shape2(4, 16), pre}}};
    struct ct_product p = ct_product_of(CT_OP_LINEAR_GELU, CT_BF16, &args);

    cr_assert_eq(p.end, CT_PRODUCT_GELU);
    cr_assert_eq(p.c, y);
    cr_assert_eq(p.aux, pre);
    cr_assert_eq(p.aux_step, 16);
    args = (struct ct_kernel_args){.in = {{CT_BF16, ct_shape2(4, 8), y},
                                          {CT_BF16, ct_shape2(8, 16), y},
                                          {CT_BF16, ct_shape2(4, 16), pre}},
                                   .out = {{CT_BF16, ct_shape2(4, 16), y}}};
    p = ct_product_of(CT_OP_LINEAR_DX_GELU, CT_BF16, &args);
    cr_assert_eq(p.end, CT_PRODUCT_DGELU);
    cr_assert_eq(p.aux, pre);
    cr_assert_eq(p.aux_step, 16);
    cr_assert_eq(ct_product_of(CT_OP_LINEAR_DX, CT_BF16, &args).end, CT_PRODUCT_PLAIN);
}

Test(product, key_tells_what_an_algorithm_depends_on)
{
    _Alignas(256) static float memory[256];
    struct ct_product p = {.a = memory, .b = memory + 4, .c = memory + 1, .m = 2, .n = 3, .k = 4};
    struct ct_product other = p;
    struct ct_product_key key = ct_product_key_of(&p);

    cr_assert_eq(key.a_align, 256);
    cr_assert_eq(key.b_align, 16);
    cr_assert_eq(key.c_align, 4);
    cr_assert_eq(key.bias_align, 0);
    other.b = memory + 12;
    struct ct_product_key same = ct_product_key_of(&other);

    cr_assert_eq(memcmp(&key, &same, sizeof key), 0, "another address of the same alignment");
    other.accumulate = true;
    struct ct_product_key unlike = ct_product_key_of(&other);

    cr_assert_neq(memcmp(&key, &unlike, sizeof key), 0);
}

Test(product, key_tells_epilogues_and_their_matrices_apart)
{
    _Alignas(256) static float memory[256];
    const struct ct_product plain = {.a = memory, .b = memory, .c = memory, .m = 8, .n = 3, .k = 4};
    struct ct_product ends[] = {plain, plain, plain, plain, plain};

    for (int i = 1; i < 5; i++) {
        ends[i].end = i == 2 ? CT_PRODUCT_DGELU : CT_PRODUCT_GELU;
        ends[i].aux = memory + (i == 3 ? 1 : 0);
        ends[i].aux_step = i == 4 ? 16 : 8;
    }
    for (size_t i = 0; i < CT_COUNT(ends); i++)
        for (size_t j = 0; j < CT_COUNT(ends); j++) {
            struct ct_product_key a = ct_product_key_of(&ends[i]), b = ct_product_key_of(&ends[j]);
            cr_assert_eq(memcmp(&a, &b, sizeof a) == 0, i == j, "%zu and %zu", i, j);
        }
}
