/* The host subgroup: over it the members of a group exchange numbers before an operation on the
 * group itself, in host memory, wherever the group's buffers are. */
#ifndef CT_COLL_GROUP_HOST_SUBGROUP_H
#define CT_COLL_GROUP_HOST_SUBGROUP_H

#include "group/group.h"

/* Acquire the host subgroup: `group` itself, or the host group of one on a device, whose own calls
 * rest until the release. Collective, in order with the group's other collectives. 0, or the code
 * of a broken group. */
int ct_host_subgroup_acquire(struct ct_group *group, struct ct_group **ret_host);
/* Release what ct_host_subgroup_acquire gave. */
void ct_host_subgroup_release(struct ct_group *group, struct ct_group *host);

#endif
