/* The op table: names, operands as op.def writes them, and what ct_op_check refuses. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(op, .timeout = 30);

Test(op, every_op_is_found_by_its_name)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        cr_assert_eq(ct_op_find(ct_op_info((enum ct_op_kind)op)->name), op);
    cr_assert_eq(ct_op_find("no_such_op"), -1);
}

Test(op, every_row_names_operands_that_exist)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        const struct ct_op_info *info = ct_op_info((enum ct_op_kind)op);
        struct ct_operands operands;

        ct_op_operands((enum ct_op_kind)op, &operands);
        cr_assert_geq(operands.out_count, 1, "%s", info->name);
        cr_assert_lt(info->in_place, operands.in_count, "%s", info->name);
        cr_assert_not(operands.out[0].optional, "%s", info->name);
        cr_assert_eq(info->attributes >> CT_ATTR_COUNT, 0, "%s", info->name);
    }
}

Test(op, operands_carry_name_type_and_sizes)
{
    struct ct_operands operands;

    ct_op_operands(CT_OP_MSE_BW, &operands);
    cr_assert_eq(operands.in_count, 4);
    cr_assert_eq(operands.out_count, 1);
    cr_assert_str_eq(operands.in[1].name, "target");
    cr_assert_eq(operands.in[1].dtype, -1);
    cr_assert_eq(operands.in[1].dim[1], 'C');
    cr_assert_eq(operands.in[2].dtype, CT_F64);
    cr_assert_eq(operands.in[2].dim[0], '1');
    cr_assert(operands.in[3].optional);
    cr_assert_eq(operands.in[3].dtype, CT_I32);
}

Test(op, attributes_are_found_by_offset)
{
    struct ct_attr attr = {.eps = 0.5, .key = 7, .nesterov = true};
    const char *base = (const char *)&attr;
    double eps;

    memcpy(&eps, base + ct_attr_info(CT_ATTR_eps)->offset, sizeof eps);
    cr_assert_eq(eps, 0.5);
    cr_assert_str_eq(ct_attr_info(CT_ATTR_key)->name, "key");
    cr_assert_eq(ct_attr_info(CT_ATTR_key)->type, CT_ATTR_TYPE_uint64_t);
    cr_assert_eq(ct_attr_info(CT_ATTR_nesterov)->type, CT_ATTR_TYPE_bool);
    cr_assert(ct_op_info(CT_OP_ADAMW)->attributes & 1u << CT_ATTR_eps);
    cr_assert_not(ct_op_info(CT_OP_SGD)->attributes & 1u << CT_ATTR_eps);
}

static void refused(enum ct_op_kind op, const struct ct_kernel_args *args, const char *sentence)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_op_check(op, CT_F32, args, &err), CT_EBUG);
    cr_assert_str_eq(err.text, sentence);
    cr_assert_eq(ct_op_check(op, CT_F32, args, NULL), CT_EBUG);
}

Test(op, operands_that_do_not_fit_are_named)
{
    struct kit kit;

    kit_init(&kit, 1);
    const struct ct_kernel_args good =
        kit_args(&kit, CT_OP_LINEAR, CT_F32, (struct kit_sizes){4, 3, 5, 0, 0});
    struct ct_kernel_args args = good;

    cr_assert_eq(ct_op_check(CT_OP_LINEAR, CT_F32, &args, NULL), 0);
    args.in[2].data = NULL;
    cr_assert_eq(ct_op_check(CT_OP_LINEAR, CT_F32, &args, NULL), 0, "the bias is optional");
    args.in[1].data = NULL;
    refused(CT_OP_LINEAR, &args, "linear: operand W is missing");
    args = good;
    args.in[1].shape = ct_shape2(3, 4);
    refused(CT_OP_LINEAR, &args, "linear: operand W has 4 for K, where 5 is needed");
    args = good;
    args.out[0].shape = ct_shape2(4, 4);
    refused(CT_OP_LINEAR, &args, "linear: operand y has 4 for N, where 3 is needed");
    args = good;
    args.in[0].dtype = CT_F64;
    refused(CT_OP_LINEAR, &args, "linear: operand x is F64, not F32");
    args = good;
    args.in[3] = good.in[0];
    refused(CT_OP_LINEAR, &args, "linear: takes 3 inputs, more are given");
    args = good;
    args.out[1] = good.out[0];
    refused(CT_OP_LINEAR, &args, "linear: gives 1 outputs, more are asked for");
    kit_deinit(&kit);
}

Test(op, any_shape_of_the_right_rows_and_columns_fits)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args =
        kit_args(&kit, CT_OP_LINEAR, CT_F32, (struct kit_sizes){6, 3, 5, 0, 0});

    args.in[0].shape = (struct ct_shape){3, {2, 3, 5, 0}};
    args.out[0].shape = (struct ct_shape){3, {3, 2, 3, 0}};
    cr_assert_eq(ct_op_check(CT_OP_LINEAR, CT_F32, &args, NULL), 0);
    kit_deinit(&kit);
}

Test(op, scalars_are_one_double)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args =
        kit_args(&kit, CT_OP_SUMSQ, CT_F32, (struct kit_sizes){0, 0, 0, 0, 9});

    args.out[0] = kit_tensor(&kit, CT_F32, ct_shape1(1));
    refused(CT_OP_SUMSQ, &args, "sumsq: operand sumsq is F32, not F64");
    args.out[0] = kit_tensor(&kit, CT_F64, ct_shape1(2));
    refused(CT_OP_SUMSQ, &args, "sumsq: operand sumsq has 2 for 1, where 1 is needed");
    kit_deinit(&kit);
}

/* Rows that are given beside the sums over them are written anew. */
Test(op, what_accumulates_adds_to_its_sums_over_rows)
{
    cr_assert(ct_op_adds_to(CT_OP_LINEAR_DW, 0));
    cr_assert(ct_op_adds_to(CT_OP_CROSS_ENTROPY, 0));
    cr_assert_not(ct_op_adds_to(CT_OP_CROSS_ENTROPY, 1));
    cr_assert_not(ct_op_adds_to(CT_OP_LAYERNORM_BW, 0));
    cr_assert(ct_op_adds_to(CT_OP_LAYERNORM_BW, 1));
    cr_assert(ct_op_adds_to(CT_OP_LAYERNORM_BW, 2));
    cr_assert_not(ct_op_adds_to(CT_OP_RMSNORM_BW, 2), "it has no such output");
    cr_assert_not(ct_op_adds_to(CT_OP_BATCH_GRADS, 0), "it never accumulates");
}

Test(op, momentum_needs_its_buffer)
{
    struct kit kit;

    kit_init(&kit, 1);
    struct ct_kernel_args args =
        kit_args(&kit, CT_OP_SGD, CT_F32, (struct kit_sizes){0, 0, 0, 0, 9});

    args.out[1].data = NULL;
    refused(CT_OP_SGD, &args, "sgd: momentum needs operand buffer");
    args.attr.momentum = 0;
    cr_assert_eq(ct_op_check(CT_OP_SGD, CT_F32, &args, NULL), 0);
    kit_deinit(&kit);
}
