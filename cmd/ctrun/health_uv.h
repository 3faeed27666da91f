/* How this node's GPUs are, said once as the job starts, and what has gone wrong with them when a
 * failed round is followed by another. Nothing waits for the answer: not the workers, not the end.
 */
#ifndef CT_CTRUN_HEALTH_UV_H
#define CT_CTRUN_HEALTH_UV_H

struct node;
struct health;

/* NULL without memory, or where there is nothing to ask: no GPU, a job on CPUs, gpu_check 0. */
struct health *health_new(struct node *node);

/* Ask, unless an answer is still waited for. NULL is nothing, here and below. */
void health_look(struct health *health);

void health_close(struct health *health);
void health_free(struct health *health); /* when the loop has ended */

#endif
