/* The node agent: joins the rendezvous, runs this node's workers round after round, informs the
 * user.
 *
 *   host, join
 *     v  on_prepare(g)     everything older is revoked; workers are stopped; then the promise
 *     v  on_round(g)       workers start, each receives its place
 *     v  a worker fails    FAILURE; the others stop; prepare(g+1) or the end follows
 *     v  all end well      DONE
 *     v  on_closed         the job is over
 *   the end: leave, workers gone, other nodes gone (where this one hosts), report, exit status
 *
 * A signal (INT, TERM, HUP, QUIT, or those in launch.signals_to_handle) stops the workers and the
 * job; a second one kills at once. Others (launch.forward_signals) are forwarded to the workers. */
#ifndef CT_CTRUN_AGENT_NODE_UV_H
#define CT_CTRUN_AGENT_NODE_UV_H

#include "job/launch_job.h"

/* Run the job on this node to its end; the exit status of ctrun. `err` is set when it could not
 * even begin to: nothing was said of that. */
int node_run(const struct job *job, struct ct_error *err);

#endif
