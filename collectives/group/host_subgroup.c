/* See host_subgroup.h. */
#include "group/host_subgroup.h"

int ct_host_subgroup_acquire(struct ct_group *group, struct ct_group **ret_host)
{
    if (group->backend->host == NULL) {
        *ret_host = group;
        return 0;
    }
    int code = ct_barrier(group, NULL); /* behind all earlier collectives */
    if (code != 0)
        return code;
    ct_helper_acquire(group);
    *ret_host = group->backend->host(group->state);
    return 0;
}

void ct_host_subgroup_release(struct ct_group *group, struct ct_group *host)
{
    if (host != group)
        ct_helper_release(group);
}
