/* Operators who read the lines of this node's workers, over the rendezvous (`ctrun logs`, wire.def:
 * LINES_QUERY, LINES).
 *
 *      operator --- LINES_QUERY ---> an asker, with a grant of bytes
 *      workers' last lines (recent.h) --- every LINES_MS, as far as the grant goes ---> LINES
 *
 * Nothing is sent, and no timer runs, while nobody asks. Workers never wait for an operator: what
 * is overwritten before it could go is counted. */
#ifndef CT_CTRUN_AGENT_LINES_UV_H
#define CT_CTRUN_AGENT_LINES_UV_H

#include <stdint.h>

struct ct_msg_lines_query;
struct lines;
struct node;

/* Allocate; NULL without memory. */
struct lines *lines_new(struct node *node);

/* Handle an operator's query. */
void lines_query(struct lines *lines, const struct ct_msg_lines_query *query);

/* Send what has come, at once, and how much waits for each reader: before the rendezvous is told of
 * a worker's end, so that its last lines are on their way first. NULL is allowed. */
void lines_flush(struct lines *lines);

/* Stop; free when the loop has ended. NULL is allowed. */
void lines_close(struct lines *lines);
void lines_free(struct lines *lines);

#endif
