/* Shares of the CPUs. */
#include "hardware/affinity.h"

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

TestSuite(affinity, .timeout = 10, .init = set_up, .fini = tear_down);

static struct ct_cpus set_of(const char *list)
{
    struct ct_cpus cpus;

    cr_assert(ct_cpus_parse(list, &cpus), "%s", list);
    return cpus;
}

static void assert_order(const char *allowed, const char *expected)
{
    struct ct_cpus cpus = set_of(allowed);
    uint16_t order[CT_CPUS_MAX];
    char text[256] = "";
    uint32_t count = ct_cpus_order(tree.root, &cpus, order);

    for (uint32_t i = 0; i < count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), i > 0 ? " %u" : "%u",
                       order[i]);
    cr_assert_str_eq(text, expected);
}

static void add_siblings(unsigned cpus, unsigned stride)
{
    char path[96], list[32];

    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        (void)snprintf(path, sizeof path,
                       "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
        (void)snprintf(list, sizeof list, "%u,%u\n", cpu % stride, cpu % stride + stride);
        tree_file(&tree, path, list);
    }
}

Test(affinity, kernel_lists_are_sets)
{
    struct ct_cpus cpus = set_of("0-2,8,10-11\n");

    cr_assert_eq(ct_cpus_count(&cpus), 6u);
    cr_assert(ct_cpus_has(&cpus, 2) && ct_cpus_has(&cpus, 10) && !ct_cpus_has(&cpus, 9));
    cpus = set_of("4095");
    cr_assert(ct_cpus_has(&cpus, 4095) && !ct_cpus_has(&cpus, 4096));
    cr_assert_not(ct_cpus_parse("4096", &cpus));
    cr_assert_not(ct_cpus_parse("3-1", &cpus));
    cr_assert_not(ct_cpus_parse("0-", &cpus));
    cr_assert_not(ct_cpus_parse("all", &cpus));
}

Test(affinity, this_process_may_use_at_least_one_cpu)
{
    struct ct_cpus cpus;

    cr_assert_eq(ct_cpus_allowed(&cpus), 0);
    cr_assert_geq(ct_cpus_count(&cpus), 1u);
}

Test(affinity, a_cgroup_quota_counts_as_cpus)
{
    static const struct {
        const char *quota;
        uint32_t cpus;
    } rows[] = {{"max 100000\n", 8},  {"200000 100000\n", 2},  {"150000 100000\n", 2},
                {"1000 100000\n", 1}, {"9900000 100000\n", 8}, {"junk\n", 8}};
    struct ct_cpus allowed = set_of("0-7");

    cr_assert_eq(ct_cpus_available(tree.root, &allowed), 8u);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        tree_file(&tree, "/sys/fs/cgroup/cpu.max", rows[i].quota);
        cr_assert_eq(ct_cpus_available(tree.root, &allowed), rows[i].cpus, "%s", rows[i].quota);
    }
}

Test(affinity, without_topology_cpus_stay_in_order)
{
    assert_order("1,3-5", "1 3 4 5");
}

Test(affinity, threads_of_a_core_stand_side_by_side)
{
    add_siblings(8, 4);
    assert_order("0-7", "0 4 1 5 2 6 3 7");
    assert_order("1-5", "1 5 2 3 4");
}

Test(affinity, numa_nodes_come_one_after_the_other)
{
    tree_file(&tree, "/sys/devices/system/node/online", "0-1\n");
    tree_file(&tree, "/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    tree_file(&tree, "/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    add_siblings(8, 4);
    assert_order("0-7", "0 4 1 5 2 6 3 7");
    tree_file(&tree, "/sys/devices/system/node/node0/cpulist", "0,2,4,6\n");
    tree_file(&tree, "/sys/devices/system/node/node1/cpulist", "1,3,5\n");
    assert_order("0-7", "0 4 2 6 1 5 3 7");
}

Test(affinity, shares_cover_all_cpus_once_and_differ_by_one_at_most)
{
    uint16_t order[13];

    for (uint16_t i = 0; i < CT_COUNT(order); i++)
        order[i] = (uint16_t)(100 + i);
    for (uint32_t workers = 1; workers <= CT_COUNT(order); workers++) {
        struct ct_cpus all = {{0}};
        uint32_t total = 0;

        for (uint32_t rank = 0; rank < workers; rank++) {
            struct ct_cpus share;

            cr_assert(ct_cpus_share(order, CT_COUNT(order), workers, rank, &share));
            uint32_t size = ct_cpus_count(&share), least = (uint32_t)CT_COUNT(order) / workers;
            cr_assert(size == least || size == least + 1);
            total += size;
            for (size_t i = 0; i < CT_COUNT(all.bits); i++)
                all.bits[i] |= share.bits[i];
        }
        cr_assert_eq(total, CT_COUNT(order));
        cr_assert_eq(ct_cpus_count(&all), CT_COUNT(order));
    }
}

Test(affinity, nobody_is_pinned_when_cpus_are_too_few)
{
    struct ct_cpus share = set_of("5");

    cr_assert_not(ct_cpus_share((const uint16_t[]){0, 1}, 2, 3, 0, &share));
    cr_assert(ct_cpus_has(&share, 5), "untouched");
}

Test(affinity, threads_are_cores_over_workers_and_at_least_one)
{
    cr_assert_eq(ct_omp_threads(16, 3), 5u);
    cr_assert_eq(ct_omp_threads(2, 8), 1u);
    cr_assert_eq(ct_omp_threads(4, 1), 4u);
}
