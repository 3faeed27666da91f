/* NUMA binding: the CPUs near the GPU that a worker uses, as torchrun's --numa-binding chooses
 * them.
 *
 *   mode           worker i may run on
 *   node           all CPUs of the NUMA node of its GPU
 *   socket         all CPUs of that node's socket
 *   exclusive      its equal part of the node's cores, among the workers of that node
 *   core-complex   the cores that share a last-level cache, another one for each worker of the node
 *                  while there are enough, the largest first
 *   auto           as exclusive where that can be, as node where the node has fewer cores than
 *                  workers, and nothing where GPUs and their nodes are not known
 *
 * Only CPUs that this process may use count. Without GPUs the workers are spread over the NUMA
 * nodes, in order and evenly. Everything is read from the kernel's files under a root; memory
 * follows the CPUs, as the kernel places a page on the node that touches it first. */
#ifndef CT_HARDWARE_NUMA_H
#define CT_HARDWARE_NUMA_H

#include "base/error.h"
#include "hardware/affinity.h"

enum ct_numa_mode {
    CT_NUMA_AUTO,
    CT_NUMA_NONE,
    CT_NUMA_NODE,
    CT_NUMA_SOCKET,
    CT_NUMA_EXCLUSIVE,
    CT_NUMA_CORE_COMPLEX,
};

struct ct_numa {
    const char *root; /* in front of /dev, /proc and /sys: "" on a real host */
    enum ct_numa_mode mode;
    const struct ct_cpus *allowed; /* that this process may use */
    uint32_t workers;
    const char *const *visible; /* CUDA_VISIBLE_DEVICES of each worker; NULL: all GPUs */
    bool own_list; /* those lists are the workers' own: its GPU is the first, not the i-th entry */
    bool by_bus;   /* CUDA was told to count in the order of the bus (CUDA_DEVICE_ORDER) */
};

/* Choose the CPUs of all workers, `ret_cpus[0 .. workers)`. 0, or CT_EUNAVAILABLE with the missing
 * fact. */
int ct_numa_bind(const struct ct_numa *numa, struct ct_cpus *ret_cpus, struct ct_error *err);

/* Choose for mode auto, for all workers or none: true when every worker's GPU and its NUMA node are
 * known, and there are several nodes. When false, `ret_why` has a sentence (else code 0) if it is
 * of use to the user: a GPU's node has no CPU that this process may use. */
bool ct_numa_near(const struct ct_numa *numa, struct ct_cpus *ret_cpus, struct ct_error *ret_why);

#endif
