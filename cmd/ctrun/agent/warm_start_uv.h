/* Interpreters ahead of workers (lib/launch/warm_start.h): one while a job runs whose workers live
 * on without others, and one a slot for a node that may join a running job. */
#ifndef CT_CTRUN_AGENT_WARM_START_UV_H
#define CT_CTRUN_AGENT_WARM_START_UV_H

#include <stdint.h>

struct node;

/* Have `wanted` of them, if the job's program is one for that. Its failure is a line of the log: a
 * worker can be started without. */
void warm_start_fill(struct node *node, uint32_t wanted);

#endif
