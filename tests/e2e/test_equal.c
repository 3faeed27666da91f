/* The equivalence table over the configurations that ship, ranks as processes (tests/lib/equal.h):
 * of each group the rows that say most; with TEST_EQUIVALENCE=all, all of them. */
#include "e2e.h"
#include "equal.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(equal, .init = e2e_enter, .fini = e2e_leave, .timeout = 600);

static void train(int world, const char *const words[])
{
    const char *argv[EQUAL_WORDS + 8] = {proc_program("ctrun"), "--nproc_per_node"};
    char workers[16];
    struct proc run;
    int count = 2;

    (void)snprintf(workers, sizeof workers, "%d", world);
    argv[count++] = workers;
    for (int i = 0; words[i] != NULL; i++) {
        CT_ASSERT(count < (int)CT_COUNT(argv) - 1);
        argv[count++] = words[i];
    }
    cr_assert_eq(proc_run(&run, argv, NULL, 120), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void check(const char *group)
{
    const char *wish = getenv("TEST_EQUIVALENCE");

    equal_check(group, e2e_in_root("."), wish != NULL && strcmp(wish, "all") == 0, train);
}

Test(equal, digits_have_the_same_bits_in_every_layout)
{
    check("digits");
}

Test(equal, digits_sum_up_to_the_same_in_slices_and_other_orders)
{
    check("digits_near");
}

Test(equal, digits_leave_out_the_same_steps_in_f16)
{
    check("digits_f16");
}

Test(equal, synchronised_batch_norm_has_the_same_bits)
{
    check("resnet");
}

Test(equal, the_perceptron_has_the_same_bits)
{
    check("perceptron");
}

Test(equal, the_convolutional_network_has_the_same_bits)
{
    check("pictures");
}

Test(equal, the_novel_has_the_same_bits_in_every_layout)
{
    check("novel");
}

Test(equal, the_novel_sums_up_to_the_same_in_slices_and_other_orders)
{
    check("novel_near");
}

Test(equal, stages_over_slices_have_the_bits_of_slices)
{
    check("novel_slices");
}

Test(equal, every_layout_begins_with_the_same_values)
{
    check("novel_first");
}

Test(equal, gpt2_has_the_same_bits)
{
    check("gpt2");
}

Test(equal, gpt2_sharded_has_the_same_bits)
{
    check("gpt2_fsdp");
}

Test(equal, two_cuts_sum_up_to_one_worker)
{
    check("gpt_2d");
}

Test(equal, three_cuts_sum_up_to_one_worker)
{
    check("gpt_3d");
}

Test(equal, workers_that_come_and_go_have_the_same_bits)
{
    check("elastic");
}

Test(equal, replicas_as_threads_have_the_bits_of_workers)
{
    check("dp");
}

Test(equal, the_novel_in_bf16_has_the_same_bits)
{
    check("novel_bf16");
}

Test(equal, sharded_slices_in_bf16_have_the_bits_of_whole_ones)
{
    check("novel_bf16_slices");
}
