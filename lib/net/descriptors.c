/* See descriptors.h. */
#include "net/descriptors.h"

#include "base/assert.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

bool ct_descriptors_raise(struct rlimit *ret_before)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    *ret_before = limit;
    limit.rlim_cur = limit.rlim_max;
    return limit.rlim_cur != ret_before->rlim_cur && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

uint32_t ct_descriptors_for_links(uint32_t reserved, uint32_t most)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return most;
    if (limit.rlim_cur <= 2 * (rlim_t)reserved)
        return CT_MAX((uint32_t)limit.rlim_cur / 2, 1u);
    return (uint32_t)CT_MIN(limit.rlim_cur - reserved, (rlim_t)most);
}

uint64_t ct_descriptors_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

/* From the end on, where they are free as a rule. */
uint32_t ct_descriptors_left(uint32_t needed)
{
    uint64_t limit = CT_MIN(ct_descriptors_limit(), (uint64_t)INT_MAX);
    uint32_t left = 0;

    for (int fd = (int)limit - 1; fd >= 0 && left < needed; fd--)
        left += fcntl(fd, F_GETFD) < 0;
    return left;
}

const char *ct_descriptors_describe(uint32_t links, char text[CT_DESCRIPTORS_TEXT])
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        (void)snprintf(text, CT_DESCRIPTORS_TEXT, "%u connections at once", links);
    else
        (void)snprintf(text, CT_DESCRIPTORS_TEXT,
                       "%u connections at once (it may have %llu descriptors, `ulimit -Hn`)", links,
                       (unsigned long long)limit.rlim_cur);
    return text;
}
