/* Numbers that the members of a group exchange before an operation on the group itself: in host
 * memory, wherever the group's buffers are. */
#ifndef CT_COLL_GROUP_HOST_SUBGROUP_H
#define CT_COLL_GROUP_HOST_SUBGROUP_H

#include "group/group.h"

/* The group to talk over: `group` itself, or the host group of one on a device, of which nothing
 * else is under way until ct_talk_end. Collective, among the group's other collectives. 0, or the
 * code of a broken group. */
int ct_talk_begin(struct ct_group *group, struct ct_group **ret_talk);
void ct_talk_end(struct ct_group *group, struct ct_group *talk);

#endif
