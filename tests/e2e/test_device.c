/* train.device cuda with the real programs, on GPUs that the host plays (device.h): the CPU's
 * numbers in each layout, on backends nccl and staged. */
#include "device.h"
#include "e2e.h"
#include "equal.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(device, .init = e2e_enter, .fini = e2e_leave, .timeout = 300);

/* ---- numbers --------------------------------------------------------------------------------- */

static void train(int world, const char *const words[])
{
    const char *argv[EQUAL_WORDS + 8] = {device_program("ctrun"), "--nproc_per_node"};
    char workers[16];
    struct proc run;
    int count = 2;

    (void)snprintf(workers, sizeof workers, "%d", world);
    argv[count++] = workers;
    for (int i = 0; words[i] != NULL; i++) {
        CT_ASSERT(count < (int)CT_COUNT(argv) - 1);
        argv[count++] = words[i];
    }
    cr_assert_eq(proc_run(&run, argv, device_env(NULL), 120), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

#define NUMBERS(group, shows)                               \
    Test(device, shows)                                     \
    {                                                       \
        equal_check(#group, e2e_in_root("."), true, train); \
    }
NUMBERS(gpu_digits, digits_have_the_cpus_bits_in_every_layout_and_from_checkpoint_to_checkpoint)
NUMBERS(gpu_digits_near, digits_in_slices_sum_up_to_the_cpus)
NUMBERS(gpu_digits_f16, digits_leave_out_the_same_steps_in_f16)
NUMBERS(gpu_resnet, the_residual_network_sums_up_to_the_cpus)
NUMBERS(gpu_novel_near, the_novel_sums_up_to_the_cpus)
NUMBERS(gpu_novel, the_novel_in_bf16_has_the_same_bits_in_every_layout)
