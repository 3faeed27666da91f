/* See affinity.h. */
#include "hardware/affinity.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint32_t ct_cpus_count(const struct ct_cpus *cpus)
{
    uint32_t count = 0;

    for (size_t i = 0; i < CT_COUNT(cpus->bits); i++)
        count += (uint32_t)__builtin_popcountll(cpus->bits[i]);
    return count;
}

int ct_cpus_allowed(struct ct_cpus *ret_cpus)
{
    struct ct_cpus cpus = {{0}};

    if (sched_getaffinity(0, sizeof cpus, (cpu_set_t *)(void *)&cpus) != 0)
        return -errno;
    *ret_cpus = cpus;
    return 0;
}

bool ct_cpus_parse(const char *list, struct ct_cpus *ret_cpus)
{
    struct ct_cpus cpus = {{0}};

    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10);
        unsigned long last = first;

        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoul(end + 1, &end, 10);
        if (first > last || last >= CT_CPUS_MAX)
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            ct_cpus_add(&cpus, (unsigned)cpu);
        list = *end == ',' ? end + 1 : end;
    }
    if (*list != '\0' && *list != '\n')
        return false;
    *ret_cpus = cpus;
    return true;
}

bool ct_sys_read(const char *root, const char *path, char *text, size_t room)
{
    char full[4096];

    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, room - 1);
    (void)close(fd);
    if (size <= 0)
        return false;
    text[size] = '\0';
    return true;
}

uint32_t ct_cpus_available(const char *root, const struct ct_cpus *allowed)
{
    uint32_t count = CT_MAX(ct_cpus_count(allowed), 1u);
    unsigned long long quota, period;
    char text[64];

    /* Inside a container the namespace's own cgroup is the root of this file system. */
    if (ct_sys_read(root, "/sys/fs/cgroup/cpu.max", text, sizeof text) &&
        sscanf(text, "%llu %llu", &quota, &period) == 2 && quota > 0 && period > 0 &&
        quota <= UINT64_MAX - period) {
        unsigned long long whole = (quota + period - 1) / period;
        count = whole < count ? (uint32_t)whole : count;
    }
    return count;
}

/* Append `cpu` and the other threads of its core, those in `left`, and take them out of it. */
static uint32_t pick_core(const char *root, unsigned cpu, struct ct_cpus *left, uint16_t *order)
{
    struct ct_cpus core;
    uint32_t count = 0;
    char path[96], text[256];

    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                   cpu);
    if (!ct_sys_read(root, path, text, sizeof text) || !ct_cpus_parse(text, &core)) {
        core = (struct ct_cpus){{0}};
        ct_cpus_add(&core, cpu);
    }
    for (unsigned i = cpu; i < CT_CPUS_MAX; i++) {
        if (!ct_cpus_has(&core, i) || !ct_cpus_has(left, i))
            continue;
        order[count++] = (uint16_t)i;
        left->bits[i / 64] &= ~(UINT64_C(1) << i % 64);
    }
    return count;
}

/* Append the CPUs that lie in both sets, core by core, and take them out of `left`. */
static uint32_t receive_node(const char *root, const struct ct_cpus *node, struct ct_cpus *left,
                             uint16_t *order)
{
    uint32_t count = 0;

    for (unsigned cpu = 0; cpu < CT_CPUS_MAX; cpu++)
        if (ct_cpus_has(node, cpu) && ct_cpus_has(left, cpu))
            count += pick_core(root, cpu, left, order + count);
    return count;
}

uint32_t ct_cpus_order(const char *root, const struct ct_cpus *allowed, uint16_t *order)
{
    struct ct_cpus left = *allowed, node, online;
    uint32_t count = 0;
    char path[96], text[4096];

    if (ct_sys_read(root, "/sys/devices/system/node/online", text, sizeof text) &&
        ct_cpus_parse(text, &online)) {
        for (unsigned i = 0; i < CT_CPUS_MAX; i++) {
            if (!ct_cpus_has(&online, i))
                continue;
            (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", i);
            if (ct_sys_read(root, path, text, sizeof text) && ct_cpus_parse(text, &node))
                count += receive_node(root, &node, &left, order + count);
        }
    }
    node = left;
    return count + receive_node(root, &node, &left, order + count);
}

bool ct_cpus_share(const uint16_t *order, uint32_t count, uint32_t workers, uint32_t local_rank,
                   struct ct_cpus *ret_cpus)
{
    CT_ASSERT(local_rank < workers && count <= CT_CPUS_MAX);
    if (count < workers)
        return false;
    uint32_t first = (uint32_t)((uint64_t)count * local_rank / workers);
    uint32_t end = (uint32_t)((uint64_t)count * (local_rank + 1) / workers);

    *ret_cpus = (struct ct_cpus){{0}};
    for (uint32_t i = first; i < end; i++)
        ct_cpus_add(ret_cpus, order[i]);
    return true;
}

uint32_t ct_omp_threads(uint32_t cpus, uint32_t workers)
{
    CT_ASSERT(workers > 0);
    return CT_MAX(cpus / workers, 1u);
}
