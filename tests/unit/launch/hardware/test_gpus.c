/* The GPUs of a machine made of files. */
#include "hardware/gpus.h"

#include "tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tree tree;
static struct ct_gpus gpus;

static void set_up(void)
{
    tree_init(&tree);
}

static void tear_down(void)
{
    tree_deinit(&tree);
}

TestSuite(gpus, .timeout = 10, .init = set_up, .fini = tear_down);

static void add(const char *address, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", address);
    tree_file(&tree, path, text);
}

Test(gpus, are_described_by_the_driver_in_the_order_of_the_bus)
{
    add("0000:65:00.0", "Model: \t\t NVIDIA H100 80GB HBM3 \nIRQ:   \t\t 18\n"
                        "GPU UUID: \t GPU-8f3a-1\nDevice Minor: \t 1\n");
    add("0000:1B:00.0", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-?\n");
    add("version", "no card\n");
    ct_gpus_read(tree.root, &gpus);
    cr_assert_eq(gpus.count, 2u);
    cr_assert_str_eq(gpus.at[0].address, "0000:1b:00.0");
    cr_assert_str_eq(gpus.at[0].uuid, "", "not opened yet");
    cr_assert_str_eq(gpus.at[1].address, "0000:65:00.0");
    cr_assert_str_eq(gpus.at[1].uuid, "GPU-8f3a-1");
    cr_assert_str_eq(gpus.at[1].model, "NVIDIA H100 80GB HBM3");
    cr_assert_not(gpus.at[1].is_cut);
    cr_assert_eq(ct_gpus_present(tree.root), 2u, "nothing in /dev yet");
}

Test(gpus, without_a_driver_are_none)
{
    ct_gpus_read(tree.root, &gpus);
    cr_assert_eq(gpus.count, 0u);
    cr_assert_eq(ct_gpus_present(tree.root), 0u);
}

Test(gpus, that_dev_lacks_belong_to_others)
{
    add("0000:01:00.0", "Device Minor: \t 0\n");
    add("0000:02:00.0", "Device Minor: \t 1\n");
    tree_file(&tree, "/dev/nvidiactl", "");
    tree_file(&tree, "/dev/nvidia1", "");
    ct_gpus_read(tree.root, &gpus);
    cr_assert_eq(gpus.count, 1u);
    cr_assert_str_eq(gpus.at[0].address, "0000:02:00.0");
    cr_assert_eq(ct_gpus_present(tree.root), 1u);
}

Test(gpus, cut_into_mig_devices_have_instances)
{
    add("0000:01:00.0", "Device Minor: \t 0\n");
    add("0000:02:00.0", "Device Minor: \t 1\n");
    tree_file(&tree, "/proc/driver/nvidia/capabilities/gpu0/mig/config", "");
    tree_file(&tree, "/proc/driver/nvidia/capabilities/gpu1/mig/gi2/access", "");
    ct_gpus_read(tree.root, &gpus);
    cr_assert_not(gpus.at[0].is_cut, "MIG mode alone cuts nothing");
    cr_assert(gpus.at[1].is_cut);
}

Test(gpus, are_found_by_place_and_by_a_name_that_fits_one)
{
    add("0000:01:00.0", "GPU UUID: \t GPU-8f3a-1\n");
    add("0000:02:00.0", "GPU UUID: \t GPU-8f3a-2\n");
    ct_gpus_read(tree.root, &gpus);
    cr_assert_eq(ct_gpus_find(&gpus, "1"), 1);
    cr_assert_eq(ct_gpus_find(&gpus, "2"), -1);
    cr_assert_eq(ct_gpus_find(&gpus, "GPU-8f3a-2"), 1);
    cr_assert_eq(ct_gpus_find(&gpus, "GPU-8f3a"), -1, "two");
    cr_assert_eq(ct_gpus_find(&gpus, "MIG-GPU-8f3a-2/3/0"), 1);
    cr_assert_eq(ct_gpus_find(&gpus, "MIG-1234"), -1);
    cr_assert_eq(ct_gpus_find(&gpus, ""), -1);
}

Test(gpus, have_the_node_that_the_kernel_says)
{
    const struct ct_gpu known = {.address = "0000:01:00.0"}, unknown = {.address = "0000:02:00.0"};
    int32_t node = 7;

    tree_file(&tree, "/sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n");
    cr_assert(ct_gpu_node(tree.root, &known, &node));
    cr_assert_eq(node, 1);
    cr_assert_not(ct_gpu_node(tree.root, &unknown, &node));
}
