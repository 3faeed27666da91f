/* How many workers a node starts. */
#include "hardware/nproc.h"

#include "base/assert.h"
#include "tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tree tree;

static void set_up(void)
{
    tree_init(&tree);
}

static void tear_down(void)
{
    tree_deinit(&tree);
}

TestSuite(nproc, .timeout = 10, .init = set_up, .fini = tear_down);

static void add_cards(unsigned count)
{
    char path[64];

    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(path, sizeof path, "/dev/nvidia%u", i);
        tree_file(&tree, path, "");
    }
    tree_file(&tree, "/dev/nvidiactl", "");
    tree_file(&tree, "/dev/nvidia-uvm", "");
}

static uint32_t resolve(const char *text, const char *visible)
{
    struct ct_host_view host = {tree.root, 6, visible, "node3.lan"};
    struct ct_error err = {0};
    uint32_t nproc = 0;

    cr_assert_eq(ct_nproc_resolve(text, &host, &nproc, &err), 0, "%s", err.text);
    return nproc;
}

Test(nproc, a_number_is_taken_as_it_is)
{
    cr_assert_eq(resolve("1", NULL), 1u);
    cr_assert_eq(resolve("4096", NULL), 4096u);
}

Test(nproc, anything_else_is_refused_with_what_it_takes)
{
    static const char *const texts[] = {"0", "-1", "4097", "", "two", "gpus", "3x", "1.5", "0x2"};
    struct ct_host_view host = {tree.root, 6, NULL, "node3.lan"};

    for (size_t i = 0; i < CT_COUNT(texts); i++) {
        struct ct_error err = {0};
        uint32_t nproc = 9;

        cr_assert_eq(ct_nproc_resolve(texts[i], &host, &nproc, &err), CT_EUSAGE, "\"%s\"",
                     texts[i]);
        cr_assert_eq(nproc, 9u);
        cr_assert_not_null(strstr(err.text, "\"auto\""));
    }
}

Test(nproc, without_a_driver_there_is_no_gpu_and_auto_means_cpus)
{
    struct ct_host_view host = {tree.root, 6, NULL, "node3.lan"};
    struct ct_error err = {0};
    uint32_t nproc;

    cr_assert_eq(resolve("cpu", NULL), 6u);
    cr_assert_eq(resolve("auto", NULL), 6u);
    cr_assert_eq(resolve("auto", "0,1"), 6u, "a list makes no cards");
    cr_assert_eq(resolve("auto", "GPU-8f3a"), 6u, "nor does a name");
    cr_assert_eq(ct_nproc_resolve("gpu", &host, &nproc, &err), CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(err.text, "no NVIDIA GPU"));
}

Test(nproc, device_files_are_counted_but_not_the_drivers_own)
{
    add_cards(3);
    cr_assert_eq(resolve("gpu", NULL), 3u);
    cr_assert_eq(resolve("auto", NULL), 3u);
    cr_assert_eq(resolve("cpu", NULL), 6u);
}

Test(nproc, a_container_has_the_cards_of_its_dev_not_all_of_proc)
{
    tree_file(&tree, "/proc/driver/nvidia/gpus/0000:17:00.0/information", "");
    tree_file(&tree, "/proc/driver/nvidia/gpus/0000:65:00.0/information", "");
    cr_assert_eq(resolve("gpu", NULL), 2u, "before CUDA ran there is nothing in /dev");
    add_cards(1);
    cr_assert_eq(resolve("gpu", NULL), 1u);
}

Test(nproc, visible_devices_hide_the_others)
{
    struct ct_host_view host = {tree.root, 6, "", "node3.lan"};
    struct ct_error err = {0};
    uint32_t nproc;

    add_cards(4);
    cr_assert_eq(resolve("gpu", "2,3"), 2u);
    cr_assert_eq(resolve("auto", ""), 6u);
    cr_assert_eq(ct_nproc_resolve("gpu", &host, &nproc, &err), CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(err.text, "CUDA_VISIBLE_DEVICES"));
}

Test(nproc, the_list_is_read_as_cuda_reads_it)
{
    static const struct {
        const char *list;
        uint32_t count;
    } rows[] = {
        {"", 0},        {"0", 1},          {"0,1,2,3", 4},         {"3, 1", 2},
        {"0,-1,2", 1},  {"-1", 0},         {"0,4,1", 1},           {"NoDevFiles", 0},
        {"1,1", 0},     {"0,,1", 1},       {"GPU-8f3a,GPU-11", 2}, {"MIG-GPU-1/2/3", 1},
        {"0,MIG-a", 2}, {"0 1", 1},        {"99999999999", 0},     {"0,", 1},
        {" 2", 1},      {"2147483648", 0},
    };

    static const struct ct_gpus unknown;

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        uint32_t count = ct_nproc_visible(rows[i].list, 4, &unknown);

        cr_assert_eq(count, rows[i].count, "\"%s\" gave %u", rows[i].list, count);
    }
}

/* Card `minor`, "GPU-1a", "GPU-1b", ... */
static void describe_card(unsigned minor)
{
    char path[128], text[128];

    (void)snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/0000:%02u:00.0/information",
                   minor + 1);
    (void)snprintf(text, sizeof text, "GPU UUID: \t GPU-1%c\nDevice Minor: \t %u\n",
                   (int)('a' + minor), minor);
    tree_file(&tree, path, text);
}

Test(nproc, a_name_that_no_card_here_has_ends_the_list)
{
    add_cards(2);
    describe_card(0);
    describe_card(1);
    cr_assert_eq(resolve("gpu", "GPU-1b,GPU-1a"), 2u);
    cr_assert_eq(resolve("gpu", "GPU-1b,GPU-7,GPU-1a"), 1u);
    cr_assert_eq(resolve("auto", "GPU-1"), 6u, "which of two cards?");
    cr_assert_eq(resolve("auto", "GPU-1b,GPU-1b"), 6u, "a repeated one hides all");
    cr_assert_eq(resolve("auto", "MIG-GPU-9/1/0,MIG-GPU-1a/1/0"), 6u);
}

Test(nproc, mig_devices_are_counted_one_by_one_where_they_are_named)
{
    add_cards(2);
    describe_card(0);
    describe_card(1);
    tree_file(&tree, "/proc/driver/nvidia/capabilities/gpu1/mig/gi1/access", "");
    cr_assert_eq(resolve("gpu", "MIG-77,MIG-78,MIG-79"), 3u);
    cr_assert_eq(resolve("gpu", "MIG-GPU-1b/1/0,MIG-GPU-1b/2/0"), 2u);
    cr_assert_eq(resolve("auto", "MIG-77,MIG-77"), 6u, "a repeated one hides all");
    cr_assert_eq(resolve("gpu", "0"), 1u);
    cr_assert_eq(resolve("gpu", NULL), 1u, "unnamed, CUDA opens one");
    cr_assert(ct_nproc_names_cuts("MIG-77,MIG-78"));
    cr_assert_not(ct_nproc_names_cuts("GPU-1a"));
    cr_assert_not(ct_nproc_names_cuts(NULL));
}

Test(nproc, each_host_of_a_table_has_its_own_number)
{
    add_cards(3);
    cr_assert_eq(resolve("node[1-4]=8,*=2", NULL), 8u);
    cr_assert_eq(resolve("node[1-2,4],other=8,*=2", NULL), 2u);
    cr_assert_eq(resolve("other=8,node3.lan=5", NULL), 5u);
    cr_assert_eq(resolve("node[1-2],node3=5", NULL), 5u, "a list of hosts");
    cr_assert_eq(resolve("node3=gpu,*=1", NULL), 3u);
    cr_assert_eq(resolve("*=4,node3=5", NULL), 4u, "the first that fits");
}

Test(nproc, a_table_that_is_wrong_or_lacks_this_host_is_refused)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"node[1-2]=8", "names no number for this host, node3.lan; add node3.lan=N"},
        {"node3=", "takes a number"},
        {"node3=x", "takes a number"},
        {"=3", "nproc_per_node"},
        {"node[1-=3", "nproc_per_node"},
        {"node1=3,node3", "has \"node3\" among its hosts"},
        {"node3=12345678901234567890", "among its hosts"},
    };
    struct ct_host_view host = {tree.root, 6, NULL, "node3.lan"};

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_error err = {0};
        uint32_t nproc = 9;

        cr_assert_eq(ct_nproc_resolve(rows[i].text, &host, &nproc, &err), CT_EUSAGE, "\"%s\"",
                     rows[i].text);
        cr_assert_eq(nproc, 9u);
        cr_assert_not_null(strstr(err.text, rows[i].expected), "%s", err.text);
    }
}

Test(nproc, more_than_four_workers_a_cpu_are_a_crowd)
{
    cr_assert_not(ct_nproc_is_crowded(1, 1));
    cr_assert_not(ct_nproc_is_crowded(8, 2));
    cr_assert(ct_nproc_is_crowded(9, 2));
    cr_assert(ct_nproc_is_crowded(32, 2));
    cr_assert_not(ct_nproc_is_crowded(CT_NPROC_MAX, 2147483648u));
}
