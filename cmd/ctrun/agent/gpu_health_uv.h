/* The health of this node's GPUs, reported once as the job starts, new faults when a failed round
 * is followed by another, and Xids as they occur. Nothing waits for an answer: neither the workers,
 * nor the exit. */
#ifndef CT_CTRUN_AGENT_GPU_HEALTH_UV_H
#define CT_CTRUN_AGENT_GPU_HEALTH_UV_H

#include "base/bytes.h"

#include <stdint.h>

struct node;
struct health;

/* NULL without memory, or where there is nothing to ask: no GPU, a job on CPUs, gpu_check 0. */
struct health *health_new(struct node *node);

/* Ask, unless an answer is still waited for. NULL is nothing, here and below. */
void health_probe(struct health *health);

/* A round begins, or soon will: wait for Xids from now on, unless that goes on already. Each is
 * told when it comes; those of an earlier round explain nothing any more. */
void health_watch(struct health *health);

/* Append what the GPUs of this worker have reported in this round, a line each with an end. */
void health_explain(struct health *health, uint32_t local_rank, struct ct_buf *to);

void health_close(struct health *health);
void health_free(struct health *health); /* when the loop has ended */

#endif
