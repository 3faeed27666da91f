/* See numa.h.
 *
 * GPU of a worker (its list, /proc/driver/nvidia) -> PCI address -> NUMA node (sysfs) -> CPUs of
 * the node -> those of them that the mode gives to this worker. */
#include "hardware/numa.h"

#include "base/assert.h"
#include "base/str.h"
#include "hardware/devices.h"
#include "hardware/gpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1024, TEXT_ROOM = 4096 };

/* ---- GPUs ----------------------------------------------------------------------------------- */

/* The GPU of a worker, or NULL with the sentence. */
static const struct ct_gpu *gpu_of(const struct ct_numa *numa, uint32_t local_rank,
                                   const struct ct_gpus *gpus, struct ct_error *err)
{
    const char *list = numa->visible != NULL ? numa->visible[local_rank] : NULL;
    char entry[128];

    (void)snprintf(entry, sizeof entry, "%" PRIu32, local_rank);
    if (list != NULL &&
        !ct_devices_entry(list, numa->own_list ? 0 : local_rank, entry, sizeof entry))
        entry[0] = '\0';
    int index = ct_gpus_find(gpus, entry);
    if (index >= 0)
        return &gpus->at[index];
    (void)ct_error_set(err, CT_EUNAVAILABLE,
                       "local rank %" PRIu32 " has no GPU to be bound to: of %" PRIu32
                       " GPUs in /proc/driver/nvidia none is %s; start fewer workers, or leave "
                       "--numa_binding out",
                       local_rank, gpus->count, entry[0] != '\0' ? entry : "its own");
    return NULL;
}

/* ---- NUMA nodes ----------------------------------------------------------------------------- */

static struct ct_cpus common(const struct ct_cpus *a, const struct ct_cpus *b)
{
    struct ct_cpus both = {{0}};

    for (size_t i = 0; i < CT_COUNT(both.bits); i++)
        both.bits[i] = a->bits[i] & b->bits[i];
    return both;
}

static int lowest(const struct ct_cpus *cpus)
{
    for (unsigned cpu = 0; cpu < CT_CPUS_MAX; cpu++)
        if (ct_cpus_has(cpus, cpu))
            return (int)cpu;
    return -1;
}

/* The CPUs of a NUMA node that this process may use; none when there is no such node. A machine
 * without NUMA files is one node. */
static struct ct_cpus cpus_of_node(const struct ct_numa *numa, int32_t node)
{
    struct ct_cpus cpus = {{0}};
    char path[96], text[TEXT_ROOM];

    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%" PRId32 "/cpulist", node);
    if (ct_sys_read(numa->root, path, text, sizeof text) && ct_cpus_parse(text, &cpus))
        return common(&cpus, numa->allowed);
    return node == 0 ? *numa->allowed : cpus;
}

/* The nodes that have CPUs for this process, in order. */
static uint32_t usable_nodes(const struct ct_numa *numa, int32_t nodes[NODES_MAX])
{
    struct ct_cpus online, cpus;
    char text[TEXT_ROOM];
    uint32_t count = 0;

    if (!ct_sys_read(numa->root, "/sys/devices/system/node/online", text, sizeof text) ||
        !ct_cpus_parse(text, &online))
        online = (struct ct_cpus){{1}};
    for (int32_t node = 0; node < NODES_MAX; node++) {
        if (!ct_cpus_has(&online, (unsigned)node))
            continue;
        cpus = cpus_of_node(numa, node);
        if (lowest(&cpus) >= 0)
            nodes[count++] = node;
    }
    return count;
}

/* The NUMA node of each worker; -1 for a GPU that the machine gives none. */
static int find_nodes(const struct ct_numa *numa, const struct ct_gpus *gpus, int32_t *node_of,
                      struct ct_error *err)
{
    int32_t nodes[NODES_MAX];
    uint32_t usable = usable_nodes(numa, nodes);

    for (uint32_t i = 0; i < numa->workers; i++) {
        if (gpus->count == 0) {
            node_of[i] = usable > 0 ? nodes[(uint64_t)i * usable / numa->workers] : 0;
            continue;
        }
        const struct ct_gpu *gpu = gpu_of(numa, i, gpus, err);
        if (gpu == NULL)
            return CT_EUNAVAILABLE;
        if (!ct_gpu_node(numa->root, gpu, &node_of[i]))
            return ct_error_set(err, CT_EUNAVAILABLE,
                                "the NUMA node of GPU %s is not known: "
                                "/sys/bus/pci/devices/%s/numa_node cannot be read; leave "
                                "--numa_binding out",
                                gpu->address, gpu->address);
    }
    return 0;
}

/* ---- modes ---------------------------------------------------------------------------------- */

static long package_of(const struct ct_numa *numa, int cpu)
{
    char path[96], text[64];

    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                   cpu);
    return ct_sys_read(numa->root, path, text, sizeof text) ? strtol(text, NULL, 10) : -1;
}

static struct ct_cpus socket_of(const struct ct_numa *numa, int32_t node)
{
    struct ct_cpus cpus = cpus_of_node(numa, node);
    long package = package_of(numa, lowest(&cpus));
    int32_t nodes[NODES_MAX];
    uint32_t count = usable_nodes(numa, nodes);

    for (uint32_t i = 0; i < count; i++) {
        struct ct_cpus others = cpus_of_node(numa, nodes[i]);

        for (size_t w = 0; package_of(numa, lowest(&others)) == package && w < CT_COUNT(cpus.bits);
             w++)
            cpus.bits[w] |= others.bits[w];
    }
    return cpus;
}

/* The threads of the core that `cpu` belongs to. */
static bool core_of(const char *root, unsigned cpu, struct ct_cpus *ret_cpus)
{
    char path[96], text[TEXT_ROOM];

    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                   cpu);
    return ct_sys_read(root, path, text, sizeof text) && ct_cpus_parse(text, ret_cpus);
}

/* The CPUs that share the last-level cache with `cpu`. */
static bool complex_of(const char *root, unsigned cpu, struct ct_cpus *ret_cpus)
{
    enum { INDICES = 16 };
    char path[96], text[TEXT_ROOM];
    long highest = -1;

    for (int i = 0; i < INDICES; i++) {
        struct ct_cpus cpus;
        int stem =
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%d/", cpu, i);
        char *leaf = path + stem;
        size_t room = sizeof path - (size_t)stem;

        (void)ct_str_copy(leaf, room, "type");
        if (!ct_sys_read(root, path, text, sizeof text) || ct_starts_with(text, "Instruction"))
            continue;
        (void)ct_str_copy(leaf, room, "level");
        if (!ct_sys_read(root, path, text, sizeof text) || strtol(text, NULL, 10) <= highest)
            continue;
        long level = strtol(text, NULL, 10);
        (void)ct_str_copy(leaf, room, "shared_cpu_list");
        if (!ct_sys_read(root, path, text, sizeof text) || !ct_cpus_parse(text, &cpus))
            continue;
        highest = level;
        *ret_cpus = cpus;
    }
    return highest >= 0;
}

/* CPUs in groups, a group being named by its lowest CPU. */
struct groups {
    uint16_t of[CT_CPUS_MAX];   /* the group of a CPU */
    uint16_t list[CT_CPUS_MAX]; /* all groups, in order */
    uint16_t size[CT_CPUS_MAX]; /* of the group with that name */
    uint32_t count;
};

static void make_groups(const char *root, const struct ct_cpus *cpus,
                        bool (*group_of)(const char *, unsigned, struct ct_cpus *),
                        struct groups *groups)
{
    *groups = (struct groups){.count = 0};
    for (unsigned cpu = 0; cpu < CT_CPUS_MAX; cpu++) {
        struct ct_cpus group = {{0}};

        if (!ct_cpus_has(cpus, cpu))
            continue;
        if (!group_of(root, cpu, &group))
            ct_cpus_add(&group, cpu);
        group = common(&group, cpus);
        unsigned name = ct_cpus_has(&group, cpu) ? (unsigned)lowest(&group) : cpu;
        groups->of[cpu] = (uint16_t)name;
        if (name == cpu)
            groups->list[groups->count++] = (uint16_t)cpu;
        groups->size[name]++;
    }
}

/* The CPUs of the groups list[first .. end). */
static struct ct_cpus pick_groups(const struct groups *groups, const struct ct_cpus *cpus,
                                  uint32_t first, uint32_t end)
{
    struct ct_cpus taken = {{0}};

    for (unsigned cpu = 0; cpu < CT_CPUS_MAX; cpu++)
        for (uint32_t i = first; i < end && ct_cpus_has(cpus, cpu); i++)
            if (groups->of[cpu] == groups->list[i])
                ct_cpus_add(&taken, cpu);
    return taken;
}

/* Larger groups first; of equal ones the lower first (an insertion sort keeps that order). */
static void sort_by_size(struct groups *groups)
{
    for (uint32_t i = 1; i < groups->count; i++) {
        uint16_t moved = groups->list[i];
        uint32_t at = i;

        for (; at > 0 && groups->size[groups->list[at - 1]] < groups->size[moved]; at--)
            groups->list[at] = groups->list[at - 1];
        groups->list[at] = moved;
    }
}

/* The CPUs of worker `turn` of the `peers` that share `node`. */
static int place(const struct ct_numa *numa, int32_t node, uint32_t turn, uint32_t peers,
                 struct ct_cpus *ret_cpus, struct ct_error *err)
{
    struct ct_cpus cpus = cpus_of_node(numa, node);
    struct groups groups;

    if (lowest(&cpus) < 0)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "NUMA node %" PRId32 " of a worker's GPU has no CPU that this process "
                            "may use; give it some (taskset, cpuset), or leave --numa_binding out",
                            node);
    switch (numa->mode) {
    case CT_NUMA_NONE:
    case CT_NUMA_NODE:
        *ret_cpus = cpus;
        break;
    case CT_NUMA_SOCKET:
        *ret_cpus = socket_of(numa, node);
        break;
    case CT_NUMA_AUTO:
    case CT_NUMA_EXCLUSIVE:
        make_groups(numa->root, &cpus, core_of, &groups);
        if (groups.count < peers && numa->mode == CT_NUMA_AUTO) {
            *ret_cpus = cpus;
            break;
        }
        if (groups.count < peers)
            return ct_error_set(err, CT_EUNAVAILABLE,
                                "NUMA node %" PRId32 " has %" PRIu32 " cores for %" PRIu32
                                " workers; exclusive needs one each, --numa_binding node does not",
                                node, groups.count, peers);
        /* The first ones get one more when it does not come out even. */
        uint32_t each = groups.count / peers, more = groups.count % peers;
        uint32_t first = turn * each + CT_MIN(turn, more);
        *ret_cpus = pick_groups(&groups, &cpus, first, first + each + (turn < more));
        break;
    case CT_NUMA_CORE_COMPLEX:
        make_groups(numa->root, &cpus, complex_of, &groups);
        sort_by_size(&groups);
        *ret_cpus = pick_groups(&groups, &cpus, turn % groups.count, turn % groups.count + 1);
        break;
    }
    return 0;
}

/* The CPUs of all workers on the nodes `node_of`. */
static int place_all(const struct ct_numa *numa, const int32_t *node_of, struct ct_cpus *ret_cpus,
                     struct ct_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < numa->workers; i++) {
        uint32_t turn = 0, peers = 0;

        for (uint32_t other = 0; other < numa->workers; other++) {
            bool peer = node_of[other] == node_of[i];

            turn += peer && other < i;
            peers += peer;
        }
        rc = place(numa, node_of[i], turn, peers, &ret_cpus[i], err);
    }
    return rc;
}

int ct_numa_bind(const struct ct_numa *numa, struct ct_cpus *ret_cpus, struct ct_error *err)
{
    int32_t *node_of = calloc(numa->workers, sizeof *node_of);
    struct ct_gpus gpus;

    if (node_of == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for NUMA nodes");
    ct_gpus_read(numa->root, &gpus);
    int rc = find_nodes(numa, &gpus, node_of, err);
    for (uint32_t i = 0; i < numa->workers; i++)
        node_of[i] = CT_MAX(node_of[i], 0); /* -1: there is only one */
    if (rc == 0)
        rc = place_all(numa, node_of, ret_cpus, err);
    free(node_of);
    return rc;
}

/* ---- by itself ------------------------------------------------------------------------------ */

/* Is the i-th of the bus CUDA's i-th, too? CUDA puts the fastest first unless told otherwise. */
static bool order_is_known(const struct ct_numa *numa, const struct ct_gpus *gpus)
{
    for (uint32_t i = 1; i < gpus->count && !numa->by_bus; i++)
        if (strcmp(gpus->at[i].model, gpus->at[0].model) != 0)
            return false;
    return true;
}

/* Does every worker have a node, and would it be another one than where it is anyway? */
static bool nodes_matter(const struct ct_numa *numa, const int32_t *node_of)
{
    int32_t nodes[NODES_MAX];
    uint32_t usable = usable_nodes(numa, nodes);
    bool elsewhere = usable > 1;

    for (uint32_t i = 0; i < numa->workers; i++) {
        if (node_of[i] < 0)
            return false;
        elsewhere |= usable == 0 || node_of[i] != nodes[0];
    }
    return elsewhere;
}

/* Those of a worker whose node has no CPU for it. */
static bool find_excluded(const struct ct_numa *numa, const struct ct_gpus *gpus,
                          const int32_t *node_of, struct ct_error *ret_why)
{
    for (uint32_t i = 0; i < numa->workers; i++) {
        struct ct_cpus cpus = cpus_of_node(numa, node_of[i]);

        if (lowest(&cpus) >= 0)
            continue;
        (void)ct_error_set(ret_why, CT_EUNAVAILABLE,
                           "workers are not bound near their GPUs: GPU %s, of local rank %" PRIu32
                           ", is on NUMA node %" PRId32 ", of which this process may use no CPU "
                           "(taskset, a cpuset, Slurm's binding); copies to that GPU are slower",
                           gpu_of(numa, i, gpus, ret_why)->address, i, node_of[i]);
        return true;
    }
    return false;
}

bool ct_numa_near(const struct ct_numa *numa, struct ct_cpus *ret_cpus, struct ct_error *ret_why)
{
    int32_t *node_of = calloc(numa->workers, sizeof *node_of);
    struct ct_error err = {0};
    struct ct_gpus gpus;

    *ret_why = (struct ct_error){0};
    if (node_of == NULL)
        return false;
    ct_gpus_read(numa->root, &gpus);
    bool near = gpus.count > 0 && order_is_known(numa, &gpus) &&
                find_nodes(numa, &gpus, node_of, &err) == 0 && nodes_matter(numa, node_of) &&
                !find_excluded(numa, &gpus, node_of, ret_why) &&
                place_all(numa, node_of, ret_cpus, &err) == 0;
    free(node_of);
    return near;
}
