/* What signals do to the node: some end it, some are passed on to its workers, some have the job
 * queued again (launch.signals_to_handle, forward_signals, requeue_signals).
 *
 *     signal -> ctrun alone                      the workers get it from ctrun
 *            -> all processes of the step        they have got it: nothing more is sent
 *
 * Slurm does the latter where it follows processes by their parents. Under Slurm a signal is held
 * for a moment, to see whether the guard beside the workers got it, too (launch/guard.h). */
#ifndef CT_CTRUN_AGENT_SIGNALS_UV_H
#define CT_CTRUN_AGENT_SIGNALS_UV_H

#include <stdbool.h>

struct node;

/* Listen; signals that were ignored when ctrun was started stay so. */
void signals_watch(struct node *node);

/* Stop listening; signals that are no ends may come late, and are ignored from here on. */
void signals_close(struct node *node);

/* A worker died of this signal. When it is one that is being held, it takes effect now: true. */
bool signals_claim(struct node *node, int signal);

/* What ends the workers: `signal`, or 0 when they have got it. */
int signals_to_send(struct node *node, int signal);

#endif
