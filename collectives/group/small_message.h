/* The small-message fast path of blocking calls: an all_reduce of up to CT_SMALL_MESSAGE_BYTES, a
 * barrier.
 *
 *     post        through the backend
 *     note        record the call and its time: the peers' own post is in flight meanwhile
 *     collect     the peers have arrived: done and recorded, without a request
 *     hand over   they have not: the request that is made next has been posted and recorded
 *
 * Only where nothing else of the group is open, so by the thread that owns the group and in order.
 * The latency of such a call should be dominated by one cache-line transfer. */
#ifndef CT_COLL_GROUP_SMALL_MESSAGE_H
#define CT_COLL_GROUP_SMALL_MESSAGE_H

#include "group/group.h"

/* True: the call is over, and succeeded. False: make the request; the arguments, if they make no
 * sense, are refused there. `site`: where the program called. */
bool ct_small_message_run(struct ct_group *group, enum ct_call_kind kind,
                          const struct ct_data *data, enum ct_reduce reduce,
                          const struct ct_options *options, const void *site);

#endif
