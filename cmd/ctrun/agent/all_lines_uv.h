/* The lines of all nodes' workers on the first node's console (log.console), beside its own:
 *
 *      LINES of the others --> line_reader.h --> fold.h --> console
 *
 * They come over the node's link to the rendezvous, in a window small enough for its lease. While
 * the console is slow none are asked for: the others overwrite them, and what was missed is told.
 * Another node takes over in the round in which it becomes the first. */
#ifndef CT_CTRUN_AGENT_ALL_LINES_UV_H
#define CT_CTRUN_AGENT_ALL_LINES_UV_H

struct all_lines;
struct ct_msg_lines;
struct node;

/* Allocate; NULL without memory. */
struct all_lines *all_lines_new(struct node *node);

/* Begin to show them in the node's new round, or over a new link; or stop. */
void all_lines_begin(struct all_lines *all);

/* Handle lines of another node. */
void all_lines_receive(struct all_lines *all, const struct ct_msg_lines *lines);

/* Show what waits for its equals: before the final report. NULL is allowed. */
void all_lines_flush(struct all_lines *all);

/* Stop; free when the loop has ended. NULL is allowed. */
void all_lines_close(struct all_lines *all);
void all_lines_free(struct all_lines *all);

#endif
