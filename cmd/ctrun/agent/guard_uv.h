/* Supervises the guard beside this node's workers (launch/guard.h): what is unguarded after its end
 * is printed once, and the job continues. There is no second guard, because an agent with a loop
 * and threads should not fork. */
#ifndef CT_CTRUN_AGENT_GUARD_UV_H
#define CT_CTRUN_AGENT_GUARD_UV_H

struct node;

/* Begin and stop to look. Stopping is for every node, whether it has begun or not. */
void guard_watch(struct node *node);
void guard_close(struct node *node);

#endif
