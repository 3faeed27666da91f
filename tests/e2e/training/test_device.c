/* train.device cuda with the real programs, on emulated GPUs (device.h): the CPU's numbers in each
 * layout, on backends nccl and staged. */
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

#define NUMBERS(group, leaves_out, shows)                   \
    Test(device, shows, .disabled = leaves_out)             \
    {                                                       \
        equal_check(#group, e2e_in_root("."), true, train); \
    }
NUMBERS(gpu_digits, DEVICE_FEW,
        digits_have_the_cpus_bits_in_every_layout_and_from_checkpoint_to_checkpoint)
NUMBERS(gpu_digits_near, false, digits_in_slices_sum_up_to_the_cpus)
NUMBERS(gpu_digits_f16, false, digits_leave_out_the_same_steps_in_f16)
NUMBERS(gpu_resnet, DEVICE_FEW, the_residual_network_sums_up_to_the_cpus)
NUMBERS(gpu_novel_near, DEVICE_FEW, the_novel_sums_up_to_the_cpus)
NUMBERS(gpu_novel, false, the_novel_in_bf16_has_the_same_bits_in_every_layout)

/* ---- NCCL ------------------------------------------------------------------------------------ */

/* The program that asks a GPU's NCCL what is taken for granted of it (tests/bench/nccl.c) asks the
 * fake: all of it holds there, except for the faults that the fake is set to. */
static void ask(const char *env, int holds, const char *says)
{
    const char *const words[] = {env, NULL};
    const char *const argv[] = {device_program("nccl"), NULL};
    struct proc program;

    cr_assert_eq(proc_run(&program, argv, device_env(words), 120), 0, "%s",
                 ct_buf_str(&program.text));
    cr_assert_eq(e2e_count(ct_buf_str(&program.text), "holds          "), holds, "%s",
                 ct_buf_str(&program.text));
    e2e_said(&program, says);
    proc_free(&program);
}

Test(device, what_is_taken_for_granted_of_nccl_is_asked_of_it_a_line_a_fact, .disabled = DEVICE_FEW)
{
    ask(NULL, 6, "shrink_after_death: 2 of 3 ranks shrank their communicator, which adds right\n");
    ask("FAKENCCL_WITHOUT_REVOKE=1", 4, "does not hold  revoke_alone: ncclCommRevoke: an error");
    ask("FAKENCCL_FAULT=no_window", 6, "is not registered, without an error, and adds right\n");
    ask("FAKENCCL_FAULT=fail_shrink", 4, "does not hold  shrink_after_death: ncclCommShrink: an ");
}
