/* See host_subgroup.h. */
#include "group/host_subgroup.h"

int ct_talk_begin(struct ct_group *group, struct ct_group **ret_talk)
{
    if (group->backend->host == NULL) {
        *ret_talk = group;
        return 0;
    }
    int code = ct_barrier(group, NULL); /* behind all earlier collectives */
    if (code != 0)
        return code;
    ct_helper_take(group);
    *ret_talk = group->backend->host(group->state);
    return 0;
}

void ct_talk_end(struct ct_group *group, struct ct_group *talk)
{
    if (talk != group)
        ct_helper_offer(group);
}
