/* What holds for every op of op.def, with operands made from its row: an op that is added is tested
 * here at once. */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(every_op, .timeout = 60);

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},      {3, 17, 5, 10, 17},  {65, 33, 300, 17, 1025}, {17, 65, 3, 300, 70003},
    {900, 70, 5, 65, 33}, {100, 3, 2, 601, 3}, {0, 3, 0, 3, 0},
};

static void same_outputs(const struct ct_kernel_args *a, const struct ct_kernel_args *b,
                         const char *what)
{
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (a->out[i].data != NULL)
            kit_same_bytes(&a->out[i], &b->out[i], what);
}

/* The reference is portable code on one thread. */
static void compare_op(enum ct_op_kind op, struct kit_sizes size)
{
    struct kit kit;
    char what[64];

    kit_init(&kit, kit_seed(op, 0));
    struct ct_kernel_args args = kit_args(&kit, op, CT_F32, size);
    struct ct_kernel_args reference = kit_copy_args(&kit, &args);

    kit_run(CT_CPU_PORTABLE, 1, op, CT_F32, &reference);
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa < CT_CPU_ISAS; isa++) {
        if (!ct_cpu_isa_runs(isa))
            continue;
        for (int threads = 1; threads <= 5; threads += 2) {
            kit.skew = threads == 3 ? sizeof(double) : 0;
            struct ct_kernel_args copy = kit_copy_args(&kit, &args);

            kit_run(isa, threads, op, CT_F32, &copy);
            (void)snprintf(what, sizeof what, "%s, %s, %d threads", ct_op_info(op)->name,
                           ct_cpu_isa_name(isa), threads);
            same_outputs(&copy, &reference, what);
        }
    }
    kit_deinit(&kit);
}

Test(every_op, gives_the_same_bits_on_every_instruction_set_thread_count_and_alignment)
{
    for (int op = 0; op < CT_OP_COUNT; op++)
        for (size_t i = 0; i < CT_COUNT(sizes); i++)
            compare_op((enum ct_op_kind)op, sizes[i]);
}

Test(every_op, gives_the_same_bits_in_place)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        int in = ct_op_info((enum ct_op_kind)op)->in_place;
        struct kit kit;

        if (in < 0)
            continue;
        kit_init(&kit, 100);
        struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, CT_F32, sizes[2]);
        struct ct_kernel_args in_place = kit_copy_args(&kit, &args);

        in_place.out[0] = in_place.in[in];
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &args);
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &in_place);
        kit_same_bytes(&in_place.out[0], &args.out[0], ct_op_info((enum ct_op_kind)op)->name);
        kit_deinit(&kit);
    }
}

Test(every_op, changes_no_input)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        struct kit kit;

        kit_init(&kit, 200);
        struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, CT_F32, sizes[2]);
        struct ct_kernel_args before = kit_copy_args(&kit, &args);

        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &args);
        for (int i = 0; i < CT_OP_MAX_IN; i++)
            if (args.in[i].data != NULL)
                kit_same_bytes(&args.in[i], &before.in[i], ct_op_info((enum ct_op_kind)op)->name);
        kit_deinit(&kit);
    }
}

/* Floating operands as double, labels and scalars as they are. */
static struct ct_kernel_args as_f64(struct kit *kit, const struct ct_kernel_args *args)
{
    struct ct_kernel_args copy = kit_copy_args(kit, args);

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        if (args->in[i].data != NULL && args->in[i].dtype == CT_F32)
            copy.in[i] = kit_copy(kit, &args->in[i], CT_F64);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        if (args->out[i].data != NULL && args->out[i].dtype == CT_F32)
            copy.out[i] = kit_copy(kit, &args->out[i], CT_F64);
    return copy;
}

Test(every_op, agrees_with_itself_in_double)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        const struct kit_sizes short_sums = {40, 33, 8, 17, 1025};
        struct kit kit;

        kit_init(&kit, 300);
        struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, CT_F32, short_sums);
        struct ct_kernel_args wide = as_f64(&kit, &args);

        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &args);
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F64, &wide);
        for (int i = 0; i < CT_OP_MAX_OUT; i++)
            if (args.out[i].data != NULL)
                kit_near(&args.out[i], &wide.out[i], 1e-5, ct_op_info((enum ct_op_kind)op)->name);
        kit_deinit(&kit);
    }
}

/* Output k: `first` and what was there at the `start`, or else `first` alone. */
static void expect_added(int op, int k, const struct ct_tensor *got, const struct ct_tensor *first,
                         struct ct_tensor *start)
{
    const char *what = ct_op_info((enum ct_op_kind)op)->name;

    if (got->data == NULL)
        return;
    if (!ct_op_adds_to((enum ct_op_kind)op, k)) {
        kit_same_bytes(got, first, what);
        return;
    }
    for (int64_t i = 0; i < ct_shape_elements(start->shape); i++)
        kit_set(start, i, kit_get(start, i) + kit_get(first, i));
    kit_near(got, start, 1e-6, what);
}

Test(every_op, that_accumulates_adds_to_its_sums_over_rows_and_to_nothing_else)
{
    for (int op = 0; op < CT_OP_COUNT; op++) {
        struct kit kit;

        if ((ct_op_info((enum ct_op_kind)op)->attributes & 1u << CT_ATTR_accumulate) == 0)
            continue;
        kit_init(&kit, 400);
        struct ct_kernel_args args = kit_args(&kit, (enum ct_op_kind)op, CT_F32, sizes[2]);
        struct ct_kernel_args more = kit_copy_args(&kit, &args);

        more.attr.accumulate = true;
        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &args);
        struct ct_kernel_args start = kit_copy_args(&kit, &more);

        kit_run(CT_CPU_AUTO, 1, (enum ct_op_kind)op, CT_F32, &more);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            expect_added(op, k, &more.out[k], &args.out[k], &start.out[k]);
        kit_deinit(&kit);
    }
}
