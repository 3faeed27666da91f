/* log.wandb: the records of the training's metrics.jsonl, handed to the user's own Python package
 * wandb by a process beside the job, on the node whose worker writes them.
 *
 *   a worker names its folder --> wandb_follow --> python3 -c wandb_follow.py follow FOLDER MODE
 *                                                     |  a line each on its standard error
 *   the job ends, or another node has rank 0          v
 *     its standard input ends <-- wandb_leave      the node's log
 *     and is waited for       <-- wandb_finish
 *
 * The training never waits for it: the process reads a file. What it cannot do is told in a line,
 * and the job's exit status is the training's. All on the loop's thread. */
#ifndef CT_CTRUN_AGENT_WANDB_UV_H
#define CT_CTRUN_AGENT_WANDB_UV_H

#include "base/error.h"

#include <sys/types.h>

struct node;
struct wandb;

/* Create; *ret_wandb is NULL when log.wandb is off, and the functions below take that.
 * CT_ENOMEM. */
int wandb_new(struct node *node, struct wandb **ret_wandb, struct ct_error *err);

/* A worker of this node writes its metrics to `folder`: follow them. */
void wandb_follow(struct wandb *wandb, const char *folder);

/* A round begins in which another node has rank 0: hand over what is written here, and end. */
void wandb_leave(struct wandb *wandb);

/* A child of this process has ended that is no worker. */
void wandb_reaped(struct wandb *wandb, pid_t pid, int status);

/* Nothing more is written: give the process a bounded time to hand over the rest, then free all and
 * call `finished`: from the loop, or now if there is no such process. */
void wandb_finish(struct wandb *wandb, void (*finished)(struct node *node), struct node *node);

/* Wait no longer for it, if it is waited for. */
void wandb_hurry(struct wandb *wandb);

#endif
