/* Rules: every op completes its outputs and refuses operands that do not fit. */
#include "graph/rule.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(rule, .timeout = 10);

static struct ct_tensor given(enum ct_dtype dtype, struct ct_shape shape)
{
    static char memory;

    return (struct ct_tensor){dtype, shape, &memory};
}

Test(rule, linear_makes_its_output_from_its_inputs)
{
    struct ct_kernel_args args = {.in = {given(CT_F32, ct_shape2(32, 64)),
                                         given(CT_F32, ct_shape2(10, 64)),
                                         given(CT_F32, ct_shape1(10))}};
    struct ct_error err = {0};
    enum ct_dtype dtype;

    cr_assert_eq(ct_rule_complete(CT_OP_LINEAR, &args, &dtype, &err), 0, "%s", err.text);
    cr_assert_eq(dtype, CT_F32);
    cr_assert(ct_shape_equal(args.out[0].shape, ct_shape2(32, 10)));
    cr_assert_null(args.out[1].data);
    cr_assert_eq(ct_rule_flop(CT_OP_LINEAR, &args), 2.0 * 32 * 64 * 10);
}

Test(rule, the_element_type_follows_the_inputs)
{
    struct ct_kernel_args args = {
        .in = {given(CT_F64, ct_shape2(3, 4)), given(CT_I32, ct_shape1(3))}};
    enum ct_dtype dtype;

    cr_assert_eq(ct_rule_complete(CT_OP_CROSS_ENTROPY, &args, &dtype, NULL), 0);
    cr_assert_eq(dtype, CT_F64);
    cr_assert_eq(args.out[0].dtype, CT_F64);
    cr_assert(ct_shape_equal(args.out[0].shape, ct_shape1(1)));
    cr_assert(ct_shape_equal(args.out[1].shape, ct_shape2(3, 2)));
}

Test(rule, an_element_wise_op_keeps_the_shape)
{
    struct ct_kernel_args args = {.in = {given(CT_F32, ct_shape2(3, 5))}};
    enum ct_dtype dtype;

    cr_assert_eq(ct_rule_complete(CT_OP_GELU, &args, &dtype, NULL), 0);
    cr_assert(ct_shape_equal(args.out[0].shape, ct_shape2(3, 5)));
}

Test(rule, operands_that_do_not_fit_are_named)
{
    static const struct {
        int op;
        struct ct_shape shape[3];
        const char *expected;
    } rows[] = {
        {CT_OP_LINEAR, {{2, {32, 63}}, {2, {10, 64}}, {1, {10}}}, "linear: operand W"},
        {CT_OP_LINEAR, {{2, {32, 64}}, {2, {10, 64}}, {1, {11}}}, "linear: operand b"},
        {CT_OP_ADD, {{1, {6}}, {1, {7}}}, "add: operand b"},
        {CT_OP_RELU_BW, {{1, {6}}}, "relu_bw: operand y is missing"},
        {CT_OP_ALL_REDUCE, {{1, {6}}}, "all_reduce: needs an input and an output"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_kernel_args args = {0};
        struct ct_error err = {0};
        enum ct_dtype dtype;
        for (int k = 0; k < 3 && rows[i].shape[k].dims > 0; k++)
            args.in[k] = given(CT_F32, rows[i].shape[k]);
        cr_assert_eq(ct_rule_complete(rows[i].op, &args, &dtype, &err), CT_EBUG);
        cr_assert_not_null(strstr(err.text, rows[i].expected), "row %zu says '%s'", i, err.text);
    }
}

Test(rule, an_output_that_no_input_determines_must_be_given)
{
    struct ct_kernel_args args = {.in = {given(CT_I32, ct_shape1(3))}};
    struct ct_error err = {0};
    enum ct_dtype dtype;

    cr_assert_eq(ct_rule_complete(CT_OP_ONE_HOT, &args, &dtype, &err), CT_EBUG);
    cr_assert_str_eq(err.text, "one_hot: the size C of output y follows from no input");
    args.out[0] = given(CT_F32, ct_shape2(3, 4));
    cr_assert_eq(ct_rule_complete(CT_OP_ONE_HOT, &args, &dtype, &err), 0);
    cr_assert_eq(dtype, CT_F32);
}

Test(rule, communication_ops_have_names_and_work_in_place)
{
    cr_assert(ct_op_is_comm(CT_OP_ALL_REDUCE));
    cr_assert_not(ct_op_is_comm(CT_OP_ADAMW));
    cr_assert_str_eq(ct_rule_info(CT_OP_ALL_REDUCE)->name, "all_reduce");
    cr_assert_eq(ct_rule_info(CT_OP_ALL_REDUCE)->in_place, 0);
}

Test(rule, communication_ops_take_parts_and_wholes_that_fit)
{
    static const struct {
        int op;
        int64_t in, out;
        int code;
    } rows[] = {
        {CT_OP_ALL_REDUCE, 12, 12, 0},          {CT_OP_ALL_REDUCE, 12, 6, CT_EBUG},
        {CT_OP_REDUCE_SCATTER, 12, 3, 0},       {CT_OP_REDUCE_SCATTER, 12, 5, CT_EBUG},
        {CT_OP_REDUCE_SCATTER, 3, 12, CT_EBUG}, {CT_OP_ALL_GATHER, 3, 12, 0},
        {CT_OP_ALL_GATHER, 5, 12, CT_EBUG},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_kernel_args args = {.in = {given(CT_F32, ct_shape1(rows[i].in))},
                                      .out = {given(CT_F32, ct_shape1(rows[i].out))}};
        enum ct_dtype dtype;
        cr_assert_eq(ct_rule_complete(rows[i].op, &args, &dtype, NULL), rows[i].code, "row %zu", i);
    }
}

Test(rule, only_ops_with_the_attribute_accumulate)
{
    cr_assert(ct_rule_accumulates(CT_OP_LINEAR_DW));
    cr_assert(ct_rule_accumulates(CT_OP_CROSS_ENTROPY));
    cr_assert_not(ct_rule_accumulates(CT_OP_RELU_BW));
    cr_assert_not(ct_rule_accumulates(CT_OP_ALL_REDUCE));
}

Test(rule, a_push_takes_one_input_and_gives_nothing)
{
    struct ct_kernel_args args = {.in = {given(CT_F32, ct_shape1(3))}};
    enum ct_dtype dtype = CT_F64;

    cr_assert_eq(ct_rule_complete(CT_OP_PUSH, &args, &dtype, NULL), 0);
    cr_assert_eq(dtype, CT_F32);
    args.out[0] = args.in[0];
    cr_assert_eq(ct_rule_complete(CT_OP_PUSH, &args, &dtype, NULL), CT_EBUG);
}

Test(rule, an_exchange_takes_messages_of_one_type)
{
    struct ct_kernel_args both = {.in = {given(CT_F32, ct_shape1(3)), {0}},
                                  .out = {given(CT_F32, ct_shape1(5))}};
    struct ct_kernel_args mixed = {
        .in = {given(CT_F32, ct_shape1(3)), given(CT_F64, ct_shape1(3))}};
    struct ct_kernel_args none = {.in = {{0}}};
    enum ct_dtype dtype = CT_F64;

    cr_assert_eq(ct_rule_complete(CT_OP_EXCHANGE, &both, &dtype, NULL), 0);
    cr_assert_eq(dtype, CT_F32);
    cr_assert_eq(ct_rule_complete(CT_OP_EXCHANGE, &mixed, &dtype, NULL), CT_EBUG);
    cr_assert_eq(ct_rule_complete(CT_OP_EXCHANGE, &none, &dtype, NULL), CT_EBUG);
}
