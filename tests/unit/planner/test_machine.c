/* Devices and what they take. */
#include "collectives/planner/machine.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(machine, .timeout = 10);

static struct ct_machine machine_of(int nodes, int per_node)
{
    struct ct_machine machine = {.nodes = nodes, .per_node = per_node};

    cr_assert_eq(ct_machine_device("a100-80g", &machine.device, NULL), 0);
    machine.device.start_s = 0;
    return machine;
}

Test(machine, a_device_that_is_not_there_is_answered_by_those_that_are)
{
    struct ct_device_figures figures;
    struct ct_error err = {0};

    cr_assert_eq(ct_machine_device("a100-80", &figures, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "--device \"a100-80\" is not known; did you mean a100-80g?");
    cr_assert_eq(ct_machine_device("tpu-v5", &figures, &err), CT_EUSAGE);
    cr_assert_not_null(strstr(err.text, "there are a100-80g, h100, h200, cpu"));
}

Test(machine, what_stays_in_a_node_takes_its_links_and_what_leaves_it_the_cards)
{
    struct ct_machine one = machine_of(1, 8), two = machine_of(2, 8);
    const double reached = one.device.bytes_share;
    double near = ct_machine_gather_s(&one, 8, 1, 8e9);

    cr_assert_float_eq(near, 7e9 / 300e9 / reached, 1e-9);
    /* half of each rank's eighth comes from the other node, over its own card */
    cr_assert_float_eq(ct_machine_gather_s(&two, 16, 1, 8e9) - near, 0.5e9 / 25e9 / reached, 1e-9);
    /* ranks that are a node apart have no link but the cards */
    cr_assert_float_eq(ct_machine_gather_s(&two, 2, 8, 8e9), 4e9 / 25e9 / reached, 1e-9);
    cr_assert_eq(ct_machine_gather_s(&one, 1, 1, 8e9), 0);
    cr_assert_float_eq(ct_machine_send_s(&two, 1, 3e9), 3e9 / 300e9 / reached, 1e-9);
    cr_assert_float_eq(ct_machine_send_s(&two, 8, 3e9), 3e9 / 25e9 / reached, 1e-9);
}

Test(machine, an_op_takes_as_long_as_its_work_or_its_bytes)
{
    struct ct_machine machine = machine_of(1, 1);

    cr_assert_float_eq(ct_machine_op_s(&machine, 312e12, 1, machine.device.bf16_flops),
                       1 / machine.device.flop_share, 1e-9);
    cr_assert_float_eq(ct_machine_op_s(&machine, 1, 2039e9, machine.device.bf16_flops),
                       1 / machine.device.bytes_share, 1e-9);
}
