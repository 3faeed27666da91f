/* The small-message fast path of blocking calls: an all_reduce of up to CT_SMALL_MESSAGE_BYTES, a
 * barrier.
 *
 *     post        through the backend
 *     record      the call and its time: the peers' own post is in flight meanwhile
 *     collect     the peers have arrived: done and recorded, without a request
 *     request     they have not: the request that is made next has been posted and recorded
 *
 * Only where no other call of the group is open, so by the thread that owns the group and in order.
 * The latency of such a call should be dominated by one cache-line transfer. */
#ifndef CT_COLL_GROUP_SMALL_MESSAGE_H
#define CT_COLL_GROUP_SMALL_MESSAGE_H

#include "group/group.h"

/* Try to run a call at once. Return true when it has succeeded. False: the caller makes a request,
 * which also refuses invalid arguments. `site`: the return address in the program. */
bool ct_small_message_run(struct ct_group *group, enum ct_call_kind kind,
                          const struct ct_data *data, enum ct_reduce reduce,
                          const struct ct_options *options, const void *site);

#endif
