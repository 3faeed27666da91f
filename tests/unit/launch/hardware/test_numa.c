/* NUMA binding on machines made of files: two sockets of two nodes each, cores of two threads. */
#include "hardware/numa.h"

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

TestSuite(numa, .timeout = 60, .init = set_up, .fini = tear_down);

/* 32 CPUs: node n has CPUs 4n..4n+3 and their second threads 16+4n..16+4n+3; two nodes a socket;
 * two cores share a last-level cache. */
static void make_machine(void)
{
    char path[128], text[64];

    tree_file(&tree, "/sys/devices/system/node/online", "0-3\n");
    for (int node = 0; node < 4; node++) {
        (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        (void)snprintf(text, sizeof text, "%d-%d,%d-%d\n", 4 * node, 4 * node + 3, 16 + 4 * node,
                       16 + 4 * node + 3);
        tree_file(&tree, path, text);
    }
    for (int cpu = 0; cpu < 32; cpu++) {
        int core = cpu % 16, pair = core / 2 * 2;
        static const char *const types[] = {"Data", "Instruction", "Unified", "Unified"};

        (void)snprintf(path, sizeof path,
                       "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        tree_file(&tree, path, core < 8 ? "0\n" : "1\n");
        (void)snprintf(path, sizeof path,
                       "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        (void)snprintf(text, sizeof text, "%d,%d\n", core, core + 16);
        tree_file(&tree, path, text);
        for (int i = 0; i < 4; i++) {
            int stem =
                snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/", cpu, i);
            (void)snprintf(path + stem, sizeof path - (size_t)stem, "type");
            tree_file(&tree, path, types[i]);
            (void)snprintf(path + stem, sizeof path - (size_t)stem, "level");
            tree_file(&tree, path, i < 2 ? "1\n" : i == 2 ? "2\n" : "3\n");
            (void)snprintf(path + stem, sizeof path - (size_t)stem, "shared_cpu_list");
            if (i == 3)
                (void)snprintf(text, sizeof text, "%d-%d,%d-%d\n", pair, pair + 1, pair + 16,
                               pair + 17);
            tree_file(&tree, path, text);
        }
    }
}

/* Card `minor` at bus 10 * (1 + bus) (hexadecimal) on `node`. */
static void add_gpu(unsigned minor, unsigned bus, int node)
{
    char path[128], text[128];

    (void)snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/0000:%02X:00.0/information",
                   16 * (1 + bus) + 10);
    (void)snprintf(text, sizeof text,
                   "Model: \t\t NVIDIA X\nGPU UUID: \t GPU-%u%u%u-abc\nDevice Minor: \t %u\n",
                   minor, minor, minor, minor);
    tree_file(&tree, path, text);
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/0000:%02x:00.0/numa_node",
                   16 * (1 + bus) + 10);
    (void)snprintf(text, sizeof text, "%d\n", node);
    tree_file(&tree, path, text);
    (void)snprintf(path, sizeof path, "/dev/nvidia%u", minor);
    tree_file(&tree, path, "");
    tree_file(&tree, "/dev/nvidiactl", "");
}

static void four_gpus(void)
{
    add_gpu(0, 0, 3); /* in the order of the bus: nodes 3, 3, 1, 0 */
    add_gpu(1, 1, 3);
    add_gpu(2, 2, 1);
    add_gpu(3, 3, 0);
}

static struct ct_cpus allowed;

static struct ct_numa request(enum ct_numa_mode mode, uint32_t workers)
{
    cr_assert(ct_cpus_parse("0-31", &allowed));
    return (struct ct_numa){
        .root = tree.root, .mode = mode, .allowed = &allowed, .workers = workers};
}

/* The CPUs of all workers as "0,1 | 2,3", or the sentence. */
static const char *bound(const struct ct_numa *numa)
{
    static char text[2048];
    static struct ct_cpus cpus[16];
    struct ct_error err = {0};
    size_t used = 0;

    memset(cpus, 0, sizeof cpus);
    if (ct_numa_bind(numa, cpus, &err) != 0) {
        (void)snprintf(text, sizeof text, "%s", err.text);
        return text;
    }
    text[0] = '\0';
    for (uint32_t i = 0; i < numa->workers; i++) {
        const char *comma = i > 0 ? " | " : "";
        for (unsigned cpu = 0; cpu < 64; cpu++) {
            if (!ct_cpus_has(&cpus[i], cpu))
                continue;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%u", comma, cpu);
            comma = ",";
        }
    }
    return text;
}

Test(numa, node_is_the_node_of_the_workers_gpu_in_the_order_of_the_bus)
{
    struct ct_numa numa = request(CT_NUMA_NODE, 4);

    make_machine();
    four_gpus();
    cr_assert_str_eq(bound(&numa), "12,13,14,15,28,29,30,31 | 12,13,14,15,28,29,30,31 | "
                                   "4,5,6,7,20,21,22,23 | 0,1,2,3,16,17,18,19");
}

Test(numa, a_list_of_visible_devices_maps_workers_to_gpus)
{
    static const char *const agent[] = {"3,GPU-222", "3,GPU-222"};
    static const char *const own[] = {"GPU-222-abc,0", "1"};
    struct ct_numa numa = request(CT_NUMA_NODE, 2);

    make_machine();
    four_gpus();
    numa.visible = agent;
    cr_assert_str_eq(bound(&numa), "0,1,2,3,16,17,18,19 | 4,5,6,7,20,21,22,23");
    numa.visible = own;
    numa.own_list = true;
    cr_assert_str_eq(bound(&numa), "4,5,6,7,20,21,22,23 | 12,13,14,15,28,29,30,31");
}

Test(numa, socket_is_all_nodes_of_the_socket)
{
    struct ct_numa numa = request(CT_NUMA_SOCKET, 1);

    make_machine();
    add_gpu(0, 0, 2);
    cr_assert_str_eq(bound(&numa), "8,9,10,11,12,13,14,15,24,25,26,27,28,29,30,31");
}

Test(numa, exclusive_cuts_the_cores_of_a_node_among_its_workers)
{
    struct ct_numa numa = request(CT_NUMA_EXCLUSIVE, 3);

    make_machine();
    add_gpu(0, 0, 3);
    add_gpu(1, 1, 3);
    add_gpu(2, 2, 3);
    cr_assert_str_eq(bound(&numa), "12,13,28,29 | 14,30 | 15,31", "the first gets one more");
    cr_assert(ct_cpus_parse("0-13,28", &allowed));
    cr_assert_str_eq(bound(&numa),
                     "NUMA node 3 has 2 cores for 3 workers; exclusive needs one each, "
                     "--numa_binding node does not");
}

Test(numa, core_complex_is_a_shared_cache_the_largest_first_and_again_from_the_start)
{
    struct ct_numa numa = request(CT_NUMA_CORE_COMPLEX, 3);

    make_machine();
    add_gpu(0, 0, 3);
    add_gpu(1, 1, 3);
    add_gpu(2, 2, 3);
    cr_assert_str_eq(bound(&numa), "12,13,28,29 | 14,15,30,31 | 12,13,28,29");
    cr_assert(ct_cpus_parse("12,14-15", &allowed));
    cr_assert_str_eq(bound(&numa), "14,15 | 12 | 14,15", "as far as it may be used");
}

Test(numa, without_gpus_workers_are_spread_over_the_nodes)
{
    struct ct_numa numa = request(CT_NUMA_NODE, 2);

    make_machine();
    cr_assert_str_eq(bound(&numa), "0,1,2,3,16,17,18,19 | 8,9,10,11,24,25,26,27");
    numa = request(CT_NUMA_EXCLUSIVE, 8);
    cr_assert_str_eq(bound(&numa), "0,1,16,17 | 2,3,18,19 | 4,5,20,21 | 6,7,22,23 | 8,9,24,25 | "
                                   "10,11,26,27 | 12,13,28,29 | 14,15,30,31");
}

Test(numa, a_machine_that_says_nothing_is_one_node)
{
    struct ct_numa numa = request(CT_NUMA_EXCLUSIVE, 2);

    cr_assert(ct_cpus_parse("0-3", &allowed));
    cr_assert_str_eq(bound(&numa), "0,1 | 2,3");
    numa.mode = CT_NUMA_CORE_COMPLEX;
    cr_assert_str_eq(bound(&numa), "0 | 1");
    numa.mode = CT_NUMA_SOCKET;
    cr_assert_str_eq(bound(&numa), "0,1,2,3 | 0,1,2,3");
}

Test(numa, a_card_without_a_device_file_is_another_containers)
{
    struct ct_numa numa = request(CT_NUMA_NODE, 1);

    make_machine();
    add_gpu(5, 1, 2);
    tree_file(&tree, "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 4\n");
    tree_file(&tree, "/sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n");
    cr_assert_str_eq(bound(&numa), "8,9,10,11,24,25,26,27");
}

Test(numa, what_is_missing_is_named)
{
    struct ct_numa numa = request(CT_NUMA_NODE, 2);

    make_machine();
    add_gpu(0, 0, -1);
    cr_assert_str_eq(
        bound(&numa),
        "local rank 1 has no GPU to be bound to: of 1 GPUs in /proc/driver/nvidia none "
        "is 1; start fewer workers, or leave --numa_binding out");
    numa.workers = 1;
    cr_assert_str_eq(bound(&numa), "0,1,2,3,16,17,18,19", "-1: there is only one node");
    cr_assert(ct_cpus_parse("4-7", &allowed));
    cr_assert_not_null(strstr(bound(&numa), "NUMA node 0 of a worker's GPU has no CPU"));
}

/* ---- by itself ------------------------------------------------------------------------------ */

/* As `bound`, of mode auto; "(nothing)" where it leaves workers as they are and says nothing. */
static const char *bound_near(const struct ct_numa *numa)
{
    struct ct_cpus cpus[16];
    struct ct_error why;
    static char text[sizeof why.text];

    if (ct_numa_near(numa, cpus, &why))
        return bound(numa);
    (void)snprintf(text, sizeof text, "%s", why.code != 0 ? why.text : "(nothing)");
    return text;
}

Test(numa, by_itself_each_worker_gets_its_part_of_the_node_of_its_gpu)
{
    struct ct_numa numa = request(CT_NUMA_AUTO, 4);

    make_machine();
    four_gpus();
    cr_assert_str_eq(bound_near(&numa), "12,13,28,29 | 14,15,30,31 | 4,5,6,7,20,21,22,23 | "
                                        "0,1,2,3,16,17,18,19");
    cr_assert(ct_cpus_parse("0-12,28", &allowed));
    cr_assert_str_eq(bound_near(&numa), "12,28 | 12,28 | 4,5,6,7 | 0,1,2,3",
                     "one core for two workers is for both");
}

Test(numa, by_itself_nothing_happens_where_gpus_or_nodes_are_not_known)
{
    static const char *const cut[] = {"MIG-1", "MIG-2"};
    struct ct_numa numa = request(CT_NUMA_AUTO, 2);

    make_machine();
    cr_assert_str_eq(bound_near(&numa), "(nothing)", "no GPU");
    add_gpu(0, 0, 3);
    cr_assert_str_eq(bound_near(&numa), "(nothing)", "one GPU for two workers");
    add_gpu(1, 1, -1);
    cr_assert_str_eq(bound_near(&numa), "(nothing)", "a GPU without a node");
    add_gpu(1, 1, 2);
    cr_assert_str_neq(bound_near(&numa), "(nothing)");
    numa.visible = cut;
    numa.own_list = true;
    cr_assert_str_eq(bound_near(&numa), "(nothing)", "of which card is unknown");
}

Test(numa, by_itself_workers_keep_to_the_only_node_that_has_gpus)
{
    struct ct_numa numa = request(CT_NUMA_AUTO, 2);

    make_machine();
    add_gpu(0, 0, 0);
    add_gpu(1, 1, 0);
    cr_assert_str_eq(bound_near(&numa), "0,1,16,17 | 2,3,18,19", "not half of the machine each");
}

Test(numa, by_itself_nothing_happens_on_the_only_node)
{
    struct ct_numa numa = request(CT_NUMA_AUTO, 2);

    tree_file(&tree, "/sys/devices/system/node/online", "0\n");
    tree_file(&tree, "/sys/devices/system/node/node0/cpulist", "0-31\n");
    add_gpu(0, 0, 0);
    add_gpu(1, 1, 0);
    cr_assert_str_eq(bound_near(&numa), "(nothing)");
}

Test(numa, by_itself_unlike_cards_need_the_order_of_the_bus)
{
    struct ct_numa numa = request(CT_NUMA_AUTO, 2);

    make_machine();
    add_gpu(0, 0, 3);
    add_gpu(1, 1, 0);
    tree_file(&tree, "/proc/driver/nvidia/gpus/0000:2A:00.0/information",
              "Model: \t\t NVIDIA Y\nDevice Minor: \t 1\n");
    cr_assert_str_eq(bound_near(&numa), "(nothing)", "CUDA counts the fastest first");
    numa.by_bus = true;
    cr_assert_str_eq(bound_near(&numa), "12,13,14,15,28,29,30,31 | 0,1,2,3,16,17,18,19");
}

Test(numa, a_node_without_a_cpu_for_us_is_told_and_leaves_all_workers_as_they_are)
{
    struct ct_numa numa = request(CT_NUMA_AUTO, 4);

    make_machine();
    four_gpus();
    cr_assert(ct_cpus_parse("8-15", &allowed));
    cr_assert_str_eq(bound_near(&numa),
                     "workers are not bound near their GPUs: GPU 0000:3a:00.0, of local rank 2, is "
                     "on NUMA node 1, of which this process may use no CPU (taskset, a cpuset, "
                     "Slurm's binding); copies to that GPU are slower");
}
