/* CPUs for workers: which ones this process may use, and each worker's share of them.
 *
 * The CPUs are put in topology order (NUMA node, then core, the threads of a core side by side) and
 * divided into equal contiguous shares, so that a worker's threads share caches and no core serves
 * two workers when there are enough. With fewer CPUs than workers no worker is pinned. */
#ifndef CT_HARDWARE_AFFINITY_H
#define CT_HARDWARE_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_CPUS_MAX = 4096 };

/* A set, in the kernel's form (bit i of the little-endian words). */
struct ct_cpus {
    uint64_t bits[CT_CPUS_MAX / 64];
};

static inline bool ct_cpus_has(const struct ct_cpus *cpus, unsigned cpu)
{
    return cpu < CT_CPUS_MAX && (cpus->bits[cpu / 64] >> cpu % 64 & 1) != 0;
}

static inline void ct_cpus_add(struct ct_cpus *cpus, unsigned cpu)
{
    cpus->bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

uint32_t ct_cpus_count(const struct ct_cpus *cpus);

/* Return the affinity mask of this process. 0, or a negative errno. */
int ct_cpus_allowed(struct ct_cpus *ret_cpus);

/* Parse a kernel list, "0-3,8,10-11"; false when malformed or beyond CT_CPUS_MAX. */
bool ct_cpus_parse(const char *list, struct ct_cpus *ret_cpus);

/* Read a small file of the kernel, `root` + `path`, terminated; false when it cannot be read. */
bool ct_sys_read(const char *root, const char *path, char *text, size_t room);

/* Return the CPU time of this process in CPUs: `allowed`, or the quota of its cgroup (cpu.max under
 * `root`, rounded up) if less; at least 1. */
uint32_t ct_cpus_available(const char *root, const struct ct_cpus *allowed);

/* Return the CPUs of `allowed` in topology order, read from `root`/sys; numeric order where sysfs
 * has no topology; returns the number written to `order` (room for CT_CPUS_MAX). */
uint32_t ct_cpus_order(const char *root, const struct ct_cpus *allowed, uint16_t *order);

/* Return the share of worker `local_rank` of `workers` in `order[count]`; false, and no set, when
 * there are fewer CPUs than workers. */
bool ct_cpus_share(const uint16_t *order, uint32_t count, uint32_t workers, uint32_t local_rank,
                   struct ct_cpus *ret_cpus);

/* Return OMP_NUM_THREADS for each of `workers` on `cpus` CPUs: an equal share, at least 1. */
uint32_t ct_omp_threads(uint32_t cpus, uint32_t workers);

#endif
