/* What holds for every op of op.def, with operands made from its row: adding an op adds its tests.
 */
#include "kit.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(every_op, .timeout = 60);

static const struct kit_sizes sizes[] = {
    {1, 1, 1, 1, 1},          {3, 17, 5, 10, 17}, {65, 33, 300, 17, 1025},
    {17, 65, 3, 300, 100003}, {0, 3, 0, 3, 0},
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

    kit_init(&kit, (uint64_t)op + 1);
    struct ct_kernel_args args = kit_args(&kit, op, CT_F32, size);
    struct ct_kernel_args reference = kit_copy_args(&kit, &args);

    kit_run(CT_CPU_PORTABLE, 1, op, CT_F32, &reference);
    for (enum ct_cpu_isa isa = CT_CPU_PORTABLE; isa <= ct_cpu_isa_best(); isa++) {
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
