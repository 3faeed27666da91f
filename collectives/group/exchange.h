/* An exchange: many sends and receives that start together.
 *
 * A lane is the queue of one peer and direction. Its messages go one after the other, in the order
 * of the list, after the plain transfers of this queue that were started before; all queues advance
 * together, so each waits only for its own other end and no order of the lists can deadlock. To the
 * backend they are plain sends and receives. */
#ifndef CT_COLL_GROUP_EXCHANGE_H
#define CT_COLL_GROUP_EXCHANGE_H

#include "group/group.h"

/* Is each message of the list well formed, and does what goes from this rank to itself match? */
bool ct_exchange_valid(const struct ct_call *call);

/* Does an exchange have, or has it still to take up, messages in this lane (CT_CALL_SEND to `peer`,
 * or CT_CALL_RECV from it)? Then a plain transfer that was started later waits. */
bool ct_exchange_holds(const struct ct_group *group, const struct ct_task *task,
                       enum ct_call_kind kind, int peer);

/* As ct_backend.progress. One exchange at a time advances in a group. */
int ct_exchange_progress(struct ct_group *group, struct ct_task *task, struct ct_error *err);

/* A peer that it waits for, a sender before a receiver; -1 when there is none. */
int ct_exchange_missing(const struct ct_group *group);

#endif
