/* DataParallel: the replicas of one process (plan.h, `rooted`), a thread, a device and an executor
 * each, that take part in every step of the root's executor.
 *
 *     caller's thread                           replicas 1 .. n - 1
 *     ct_replicas_new      threads start        group, executor, sleep
 *     ct_exec_new(root)    with ct_replicas_group
 *     ct_replicas_step     wake them, then      broadcast -> their rows -> forward, backward ->
 *                          ct_exec_step         the reduction, sleep
 *     ct_exec_free(root), ct_replicas_free
 *
 * All that happens between steps (evaluation, checkpoints, reading and writing tensors) is the
 * root's alone: a step begins with a broadcast of its parameters. */
#ifndef CT_EXEC_REPLICAS_H
#define CT_EXEC_REPLICAS_H

#include "collectives/exec/exec.h"

struct ct_replicas;

/* Make the replicas of the root's plan, which was built from `spec` and `options`; `world` counts
 * the root. Each has a device with `threads` threads. Returns when all have their group; their
 * executors are made together with the root's. 0, CT_ENOMEM, CT_EOS, or the error of a plan, a
 * device or the group. */
int ct_replicas_new(struct ct_replicas **ret_replicas, const struct ct_model_spec *spec,
                    const struct ct_plan_options *options, uint64_t seed, int threads,
                    struct ct_error *err);

/* Free them, after the root's executor. */
void ct_replicas_free(struct ct_replicas *all);

/* Return the root's group, for its executor. */
struct ct_group *ct_replicas_group(struct ct_replicas *all);

/* Do ct_exec_step of the root together with the replicas: args->x and labels are the whole global
 * batch. 0, or the first failure, the root's before theirs. */
int ct_replicas_step(struct ct_replicas *all, struct ct_exec *root, const struct ct_exec_step *args,
                     struct ct_exec_result *ret_result, struct ct_error *err);

#endif
