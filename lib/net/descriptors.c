/* See descriptors.h. */
#include "net/descriptors.h"

#include "base/assert.h"

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
