/* Supervises the guard process of this node's workers (launch/guard.h): its loss is reported once,
 * and the job continues. No second guard is started, because an agent with a loop and threads
 * should not fork. */
#ifndef CT_CTRUN_AGENT_GUARD_UV_H
#define CT_CTRUN_AGENT_GUARD_UV_H

struct node;

/* Start and stop the supervision. guard_close is required of every node, started or not. */
void guard_watch(struct node *node);
void guard_close(struct node *node);

#endif
