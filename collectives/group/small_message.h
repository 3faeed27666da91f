/* The quick way of a blocking call of few bytes: an all_reduce of up to CT_BRIEF_BYTES, a barrier.
 *
 *     post        through the backend
 *     note        that it is entered, and when: the peers' own post is on its way meanwhile
 *     collect     they are there: done and recorded, and there never was a request
 *     hand over   they are not: the request that is made next has been posted and recorded
 *
 * Only where nothing else of the group is open, so by who has the group and in order. Of what such
 * a call costs, the way of a line from core to core is to be the larger part. */
#ifndef CT_COLL_GROUP_SMALL_MESSAGE_H
#define CT_COLL_GROUP_SMALL_MESSAGE_H

#include "group/group.h"

/* True: the call is over, and succeeded. False: make the request; the arguments, if they make no
 * sense, are refused there. `site`: where the program called. */
bool ct_quick(struct ct_group *group, enum ct_call_kind kind, const struct ct_data *data,
              enum ct_reduce reduce, const struct ct_options *options, const void *site);

#endif
