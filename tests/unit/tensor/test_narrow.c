/* Ops on 16-bit floats: conversions as base/dtype.h has them, and every op that a device has for
 * them gives what it gives for F32 operands of the same values, rounded once. */
#include "kit.h"

#include "base/assert.h"
#include "tensor/cpu/cpu.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(narrow, .timeout = 60);

static const enum ct_dtype types[] = {CT_BF16, CT_F16};

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},      {3, 17, 5, 10, 17}, {65, 33, 300, 17, 1025}, {17, 600, 3, 300, 20003},
    {600, 70, 5, 65, 33}, {2, 3, 1500, 9, 3}, {0, 3, 0, 3, 0},
};

static float widened(enum ct_dtype dtype, uint16_t half)
{
    return dtype == CT_BF16 ? ct_bf16_to_f32(half) : ct_f16_to_f32(half);
}

static uint16_t narrowed(enum ct_dtype dtype, float value)
{
    return dtype == CT_BF16 ? ct_bf16_from_f32(value) : ct_f16_from_f32(value);
}

/* All halves, and the floats in the middle between two of them and next to it, both signs. */
static void check_conversions(enum ct_cpu_isa isa, enum ct_dtype dtype)
{
    enum { HALVES = 1 << 16 };
    const struct ct_half_kernels *kernels = &ct_cpu_sets[isa].half[dtype];
    static uint16_t half[HALVES], back[HALVES];
    static float wide[HALVES];
    const uint32_t middle = dtype == CT_BF16 ? 0x8000u : 0x1000u;

    for (int i = 0; i < HALVES; i++)
        half[i] = (uint16_t)i;
    kernels->widen(wide, half, HALVES);
    for (int i = 0; i < HALVES; i++) {
        float expected = widened(dtype, half[i]);
        cr_assert_eq(memcmp(&wide[i], &expected, sizeof expected), 0, "%s: half %#x",
                     ct_cpu_isa_name(isa), (unsigned)i);
    }
    for (int near = -1; near <= 1; near++) {
        for (int i = 0; i < HALVES; i++) {
            float exact = widened(dtype, half[i]);
            uint32_t bits;
            memcpy(&bits, &exact, sizeof bits);
            bits += middle + (uint32_t)near;
            memcpy(&wide[i], &bits, sizeof bits);
        }
        kernels->narrow(back, wide, HALVES);
        for (int i = 0; i < HALVES; i++)
            cr_assert_eq(back[i], narrowed(dtype, wide[i]), "%s: %a is %#x", ct_cpu_isa_name(isa),
                         (double)wide[i], (unsigned)back[i]);
    }
}

Test(narrow, conversions_are_those_of_the_types_on_every_instruction_set)
{
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++)
        for (size_t i = 0; i < CT_COUNT(types) && ct_cpu_isa_runs(isa); i++)
            check_conversions(isa, types[i]);
}

/* The operands with their 16-bit floats as F32. */
static struct ct_kernel_args as_f32(struct kit *kit, const struct ct_kernel_args *args)
{
    struct ct_kernel_args wide = kit_copy_args(kit, args);

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        if (wide.in[i].data != NULL && ct_dtype_is_narrow(wide.in[i].dtype))
            wide.in[i] = kit_copy(kit, &wide.in[i], CT_F32);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (wide.out[i].data != NULL && ct_dtype_is_narrow(wide.out[i].dtype))
            wide.out[i] = kit_copy(kit, &wide.out[i], CT_F32);
    return wide;
}

/* What an op gives of its type, as it would be in `dtype`. */
static void round_results(struct kit *kit, const struct ct_op_part *part, enum ct_dtype dtype)
{
    struct ct_operands operands;

    ct_op_operands(part->op, &operands);
    for (int k = 0; k < operands.out_count; k++) {
        struct ct_tensor out = part->args.out[k];
        if (out.data == NULL || operands.out[k].dtype != CT_OPERAND_T)
            continue;
        struct ct_tensor rounded = kit_copy(kit, &out, dtype);
        for (int64_t i = 0; i < ct_shape_elements(out.shape); i++)
            kit_set(&out, i, kit_get(&rounded, i));
    }
}

/* In F32; an op that stands for several rounds what each of them gives to `dtype`. */
static void run_wide(struct kit *kit, enum ct_op_kind op, enum ct_dtype dtype,
                     struct ct_kernel_args *wide)
{
    struct ct_op_part parts[CT_OP_MAX_PARTS];
    int count = ct_op_parts(op, wide, parts);

    if (count == 0)
        kit_run(CT_CPU_AUTO, 1, op, CT_F32, wide);
    for (int i = 0; i < count; i++) {
        kit_run(CT_CPU_AUTO, 1, parts[i].op, CT_F32, &parts[i].args);
        round_results(kit, &parts[i], dtype);
    }
}

static void compare_op(enum ct_op_kind op, enum ct_dtype dtype, struct kit_sizes size,
                       bool accumulate)
{
    struct kit kit;
    char what[64];

    kit_init(&kit, kit_seed(op, 0));
    struct ct_kernel_args args = kit_args(&kit, op, dtype, size);
    args.attr.accumulate = accumulate;
    struct ct_kernel_args wide = as_f32(&kit, &args);

    run_wide(&kit, op, dtype, &wide);
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++)
        for (int threads = 1; threads <= 3 && ct_cpu_isa_runs(isa); threads += 2) {
            kit.skew = threads == 3 ? sizeof(double) : 0;
            struct ct_kernel_args copy = kit_copy_args(&kit, &args);

            kit_run(isa, threads, op, dtype, &copy);
            (void)snprintf(what, sizeof what, "%s, %s, %d threads, %s", ct_op_info(op)->name,
                           ct_cpu_isa_name(isa), threads, ct_dtype_name(dtype));
            for (int i = 0; i < CT_OP_MAX_OUT; i++) {
                if (copy.out[i].data == NULL)
                    continue;
                struct ct_tensor rounded = kit_copy(&kit, &wide.out[i], copy.out[i].dtype);
                kit_same_bytes(&copy.out[i], &rounded, what);
            }
        }
    kit_deinit(&kit);
}

Test(narrow, ops_give_the_rounded_results_of_f32_on_every_instruction_set_and_thread_count)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t i = 0; i < CT_COUNT(sizes) && ct_op_narrows((enum ct_op_kind)op); i++)
            for (size_t t = 0; t < CT_COUNT(types); t++)
                compare_op((enum ct_op_kind)op, types[t], sizes[i], false);
}

Test(narrow, ops_that_accumulate_add_in_the_order_of_f32)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        uint32_t attributes = ct_op_info((enum ct_op_kind)op)->attributes;

        for (size_t i = 0; i < CT_COUNT(sizes) && ct_op_narrows((enum ct_op_kind)op); i++)
            if ((attributes & 1u << CT_ATTR_accumulate) != 0)
                compare_op((enum ct_op_kind)op, CT_BF16, sizes[i], true);
    }
}

Test(narrow, ops_work_in_place_where_they_may)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        int in = ct_op_info((enum ct_op_kind)op)->in_place;
        struct kit kit;

        if (in < 0 || !ct_op_narrows((enum ct_op_kind)op))
            continue;
        kit_init(&kit, 100);
        struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, CT_BF16, sizes[2]);
        struct ct_kernel_args in_place = kit_copy_args(&kit, &args);

        in_place.out[0] = in_place.in[in];
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_BF16, &args);
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_BF16, &in_place);
        kit_same_bytes(&in_place.out[0], &args.out[0], ct_op_info((enum ct_op_kind)op)->name);
        kit_deinit(&kit);
    }
}

/* Rounding has error u = 2^-8 a result at most (bf16), 2^-11 (f16): for sums of a few terms that is
 * all there is. */
Test(narrow, a_product_of_large_sums_is_rounded_once)
{
    static const double unit[] = {0x1p-8, 0x1p-11};

    for (size_t t = 0; t < CT_COUNT(types); t++) {
        struct kit kit;

        kit_init(&kit, 7);
        struct ct_kernel_args args =
            kit_args(&kit, CT_OP_LINEAR, types[t], (struct kit_sizes){9, 20, 3000, 0, 0});
        kit_run(CT_CPU_AUTO, 1, CT_OP_LINEAR, types[t], &args);
        for (int64_t i = 0; i < 9; i++)
            for (int64_t j = 0; j < 20; j++) {
                double sum = kit_get(&args.in[2], j), y = kit_get(&args.out[0], i * 20 + j);
                for (int64_t k = 0; k < 3000; k++)
                    sum += kit_get(&args.in[0], i * 3000 + k) * kit_get(&args.in[1], j * 3000 + k);
                cr_assert(sum - y <= unit[t] * (sum < 0 ? -sum : sum) + 1e-4 &&
                              y - sum <= unit[t] * (sum < 0 ? -sum : sum) + 1e-4,
                          "%g instead of %g", y, sum);
            }
        kit_deinit(&kit);
    }
}

Test(narrow, rows_that_are_too_long_are_refused)
{
    static uint16_t x[CT_NARROW_MAX_COLUMNS + 1], y[CT_NARROW_MAX_COLUMNS + 1];
    struct ct_kernel_args args = {.in = {{CT_BF16, ct_shape2(1, CT_NARROW_MAX_COLUMNS + 1), x}},
                                  .out = {{CT_BF16, ct_shape2(1, CT_NARROW_MAX_COLUMNS + 1), y}},
                                  .attr = {.heads = 1, .sequence = 1, .base = 10000}};
    struct ct_error err = {0};

    cr_assert_eq(ct_op_check(CT_OP_ROPE, CT_BF16, &args, &err), CT_EBUG);
    cr_assert_str_eq(err.text, "rope: operand x has rows of 262145, 262144 of BF16 fit");
}
