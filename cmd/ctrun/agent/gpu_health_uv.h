/* The health of this node's GPUs, reported once as the job starts, new faults when a failed round
 * is followed by another, and Xids as they occur. Neither the workers nor the exit wait for an
 * answer. */
#ifndef CT_CTRUN_AGENT_GPU_HEALTH_UV_H
#define CT_CTRUN_AGENT_GPU_HEALTH_UV_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

struct node;
struct health;

/* Allocate; NULL without memory, or when no check applies: no GPU, a job on CPUs, gpu_check 0. */
struct health *health_new(struct node *node);

/* Start a probe, unless one is still under way. NULL is ignored, here and below. */
void health_probe(struct health *health);

/* Start to watch for Xids at the begin of a round, unless a watch is under way. Each Xid is
 * reported as it occurs; those of an earlier round are discarded. */
void health_watch(struct health *health);

/* Before workers are started again: call `done` once the GPUs have given back the memory of those
 * that have ended, or launch.gpu_memory_timeout has passed. Asks twice a second, and shows what it
 * waits for. False: there is nothing to wait for, `done` is not called. A second call replaces the
 * first; `done` then comes for the last one. */
bool health_await_memory(struct health *health, void (*done)(struct node *node));

/* Append the Xids of this worker's GPUs in this round, one line each, with a newline. */
void health_explain(struct health *health, uint32_t local_rank, struct ct_buf *to);

void health_close(struct health *health);
void health_free(struct health *health); /* when the loop has ended */

#endif
