/* Signals as events of the core: some end the node, some are passed on to its workers, some have
 * the job queued again (launch.signals_to_handle, forward_signals, requeue_signals).
 *
 *     signal -> ctrun alone                      the workers get it from ctrun
 *            -> all processes of the step        they have got it: nothing more is sent
 *
 * Slurm does the latter where it follows processes by their parents; the guard beside the workers
 * knows whether it got the signal, too (launch/guard.h). */
#ifndef CT_CTRUN_AGENT_SIGNALS_UV_H
#define CT_CTRUN_AGENT_SIGNALS_UV_H

#include <stdint.h>
#include <uv.h>

enum { NODE_SIGNALS = 64 }; /* more than there are */

struct node;

struct signals {
    uint64_t ignored_late;             /* those that are no ends: ignored once nobody listens */
    uint64_t forwards;                 /* each comes anew */
    uint64_t reached;                  /* ends that who sent them sent to the workers, too */
    uv_signal_t handles[NODE_SIGNALS]; /* that this node listens to */
    int count;
};

/* Listen; signals that were ignored when ctrun was started stay so. */
void signals_watch(struct node *node);

/* Stop listening; signals that are no ends may come late, and are ignored from here on. */
void signals_close(struct node *node);

/* Return the signal to send to the workers: `signal`, or 0 when they have received it already. */
int signals_to_send(struct node *node, int signal);

/* Forward the signals of this set to the workers; the job continues. */
void signals_forward(struct node *node, uint64_t set);

#endif
