/* Hang detection in the agent: it polls its workers' records twice a second (diagnose/watch.h
 * decides), names a hanging rank, collects its stacks from the kernel and gdb, and ends it; the
 * rest is an ordinary failure. It also reports stragglers that the ranks have found among
 * themselves.
 *
 *     poll --> verdict --> one line --> stacks --> SIGKILL --> on_failure
 *                                         |
 *                                         `--> LOG_DIR/hang-rank-0003.g7.txt, where logs are kept
 *
 * Programs that do not link ctrun's library keep no record: script_watch_uv.h judges them. */
#ifndef CT_CTRUN_AGENT_WATCH_UV_H
#define CT_CTRUN_AGENT_WATCH_UV_H

struct node;
struct watch;

/* Begin to look at whatever round the node is in; NULL without memory. */
struct watch *watch_new(struct node *node);

/* Stop polling. NULL is ignored. */
void watch_close(struct watch *watch);

/* Free, after the loop has ended. NULL is ignored. */
void watch_free(struct watch *watch);

#endif
