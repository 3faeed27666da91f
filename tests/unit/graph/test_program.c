/* Programs: building, the first error, hash, cost, text. */
#include "graph/program.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(program, .timeout = 10);

/* y = x W^T + b with names that do not matter. */
static void build(struct ct_program *p, int64_t out, const char *name)
{
    struct ct_program_op op = ct_program_op(CT_OP_LINEAR);

    ct_program_init(p);
    p->stage = CT_STAGE_FORWARD;
    op.in[0] = ct_program_value(p, CT_VALUE_INPUT, CT_F32, ct_shape2(4, 3), name);
    op.in[1] = ct_program_value(p, CT_VALUE_PARAM, CT_F32, ct_shape2(out, 3), "w");
    op.in[2] = ct_program_value(p, CT_VALUE_PARAM, CT_F32, ct_shape1(out), "b");
    ct_program_emit(p, op);
}

static int scale(struct ct_program *p, int x, double alpha)
{
    struct ct_program_op op = ct_program_op(CT_OP_SCALE);

    op.in[0] = x;
    op.attr.alpha = alpha;
    return ct_program_emit(p, op);
}

Test(program, emit_makes_temporaries_for_results)
{
    struct ct_program p;

    build(&p, 2, "x");
    cr_assert_eq(p.error.code, 0, "%s", p.error.text);
    cr_assert_eq(p.op_count, 1);
    const struct ct_value *y = &p.values[p.ops[0].out[0]];
    cr_assert_eq(y->kind, CT_VALUE_TEMP);
    cr_assert_eq(y->bytes, 4 * 2 * sizeof(float));
    cr_assert(ct_shape_equal(y->shape, ct_shape2(4, 2)));
    ct_program_deinit(&p);
}

Test(program, the_first_error_stays_and_later_calls_do_nothing)
{
    struct ct_program p;

    build(&p, 2, "x");
    int bad = ct_program_view(&p, 0, 8, CT_F32, ct_shape2(4, 3), "too far");
    cr_assert_eq(bad, CT_NONE);
    cr_assert_eq(p.error.code, CT_EBUG);
    cr_assert_str_eq(p.error.text,
                     "view 'too far' of 48 bytes at 8 does not fit into 'x' of 48 bytes");
    struct ct_error first = p.error;
    int values = p.value_count;
    cr_assert_eq(scale(&p, bad, 2), CT_NONE);
    cr_assert_eq(ct_program_value(&p, CT_VALUE_TEMP, CT_F32, ct_shape1(1), "t"), CT_NONE);
    cr_assert_eq(p.value_count, values);
    cr_assert_eq(p.op_count, 1);
    cr_assert_str_eq(p.error.text, first.text);
    ct_program_deinit(&p);
}

Test(program, a_view_of_a_view_lies_in_the_root)
{
    struct ct_program p;

    build(&p, 2, "x");
    int rows = ct_program_view(&p, 0, 12, CT_F32, ct_shape2(2, 3), "rows 1 and 2");
    int row = ct_program_view(&p, rows, 12, CT_F32, ct_shape1(3), "row 2");
    cr_assert_eq(p.values[row].root, 0);
    cr_assert_eq(p.values[row].offset_bytes, 24);
    cr_assert_eq(p.values[row].kind, CT_VALUE_INPUT);
    ct_program_deinit(&p);
}

Test(program, the_hash_sees_what_is_computed_and_not_the_names)
{
    struct ct_program a, b, c, d, e;

    build(&a, 2, "x");
    build(&b, 2, "another name");
    build(&c, 3, "x");
    build(&d, 2, "x");
    build(&e, 2, "x");
    cr_assert_eq(ct_program_hash(&a), ct_program_hash(&b));
    cr_assert_neq(ct_program_hash(&a), ct_program_hash(&c));
    int y = scale(&a, 3, 2);
    scale(&d, 3, 2.5);
    cr_assert_neq(ct_program_hash(&a), ct_program_hash(&b), "an op more");
    cr_assert_neq(ct_program_hash(&a), ct_program_hash(&d), "another attribute");
    scale(&e, 3, 2);
    cr_assert_eq(ct_program_hash(&a), ct_program_hash(&e));
    scale(&a, y, 2);
    scale(&e, 3, 2);
    cr_assert_neq(ct_program_hash(&a), ct_program_hash(&e), "another operand of the same shape");
    ct_program_deinit(&a);
    ct_program_deinit(&b);
    ct_program_deinit(&c);
    ct_program_deinit(&d);
    ct_program_deinit(&e);
}

Test(program, cost_counts_operations_and_bytes)
{
    struct ct_program p;

    build(&p, 2, "x");
    struct ct_cost cost = ct_program_cost(&p, &p.ops[0]);
    cr_assert_eq(cost.flop, 2.0 * 4 * 3 * 2);
    cr_assert_eq(cost.bytes, 4.0 * (12 + 6 + 2 + 8));
    ct_program_deinit(&p);
}

Test(program, move_last_inserts_an_op)
{
    struct ct_program p;

    build(&p, 2, "x");
    scale(&p, 3, 2);
    scale(&p, 3, 3);
    ct_program_move_last(&p, 1);
    cr_assert_eq(p.ops[0].kind, CT_OP_LINEAR);
    cr_assert_eq(p.ops[1].attr.alpha, 3);
    cr_assert_eq(p.ops[2].attr.alpha, 2);
    ct_program_deinit(&p);
}

Test(program, ops_print_as_documented)
{
    struct ct_program p;
    struct ct_buf buf;

    build(&p, 2, "x");
    scale(&p, 3, 2.5);
    ct_buf_init(&buf, 0);
    ct_program_print_op(&p, 0, &buf);
    cr_assert_str_eq(ct_buf_str(&buf), "linear %0 x, %1 w, %2 b -> %3 linear F32[4, 2]");
    ct_buf_clear(&buf);
    ct_program_print_op(&p, 1, &buf);
    cr_assert_str_eq(ct_buf_str(&buf), "scale %3 linear -> %4 scale F32[4, 2] alpha=2.5");
    ct_buf_deinit(&buf);
    ct_program_deinit(&p);
}
