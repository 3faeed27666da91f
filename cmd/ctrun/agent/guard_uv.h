/* Looks after the guard beside this node's workers (launch/guard.h): what is not guarded any more
 * is said once, and the job goes on. A fork of an agent that has a loop and threads is none to rely
 * on, so there is no second one. */
#ifndef CT_CTRUN_AGENT_GUARD_UV_H
#define CT_CTRUN_AGENT_GUARD_UV_H

struct node;

/* Begin and stop to look. Stopping is for every node, whether it has begun or not. */
void guard_watch(struct node *node);
void guard_close(struct node *node);

#endif
