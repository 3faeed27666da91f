/* train.device cuda with the real programs, on GPUs that the host plays (device.h): the CPU's
 * numbers in each layout, on backends nccl and staged. */
#include "device.h"
#include "e2e.h"
#include "equal.h"

#include <criterion/criterion.h>

TestSuite(device, .init = e2e_enter, .fini = e2e_leave, .timeout = 300);

/* ---- numbers --------------------------------------------------------------------------------- */

static void train(int world, const char *const words[])
{
    equal_run(device_program("ctrun"), device_env(NULL), world, words);
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
