/* An exchange: many sends and receives that start together.
 *
 * Each peer and direction has a queue. Its messages move one after the other, in the order of the
 * list, after the plain transfers of this peer and direction that were started before; all queues
 * advance together, so each waits only for its own other end and no order of the lists can
 * deadlock. To the backend they are plain sends and receives. */
#ifndef CT_COLL_GROUP_EXCHANGE_H
#define CT_COLL_GROUP_EXCHANGE_H

#include "group/group.h"

/* Return whether each message of the list is well formed, and those from this rank to itself
 * match. */
bool ct_exchange_valid(const struct ct_call *call);

/* Return whether an exchange has messages left in this direction (CT_CALL_SEND to `peer`, or
 * CT_CALL_RECV from it): then a plain transfer that was started later waits. */
bool ct_exchange_holds(const struct ct_group *group, const struct ct_task *task,
                       enum ct_call_kind kind, int peer);

/* Do as ct_backend.progress. One exchange at a time advances in a group. */
int ct_exchange_progress(struct ct_group *group, struct ct_task *task, struct ct_error *err);

/* Return a peer that it waits for, a sender before a receiver; -1 if none. */
int ct_exchange_missing(const struct ct_group *group);

#endif
