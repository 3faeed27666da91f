/* The agent as the watchman of its workers: it looks at their records twice a second
 * (diagnose/watch.h decides), says who hangs, keeps what the kernel and gdb say about it, and ends
 * it; the rest is an ordinary failure. It also tells the user of stragglers that the ranks have
 * found among themselves.
 *
 *     look --> verdict --> one line --> stacks --> SIGKILL --> on_failure
 *                                         |
 *                                         `--> LOG_DIR/hang-rank-0003.g7.txt, where logs are kept
 *
 * Programs that do not link ctrun's library keep no record: nobody judges them. */
#ifndef CT_CTRUN_AGENT_WATCH_UV_H
#define CT_CTRUN_AGENT_WATCH_UV_H

struct node;
struct watch;

/* Begin to look at whatever round the node is in; NULL without memory. */
struct watch *watch_new(struct node *node);

/* Look no more. NULL is fine. */
void watch_close(struct watch *watch);

/* When the loop has ended. NULL is fine. */
void watch_free(struct watch *watch);

#endif
