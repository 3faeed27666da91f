/* Strategy ps: the last parallel.servers ranks are parameter servers (collectives/ps), the others
 * train.
 *
 *     rank 0 .. W - 1       worker->me: rank and world size among workers; collectives are theirs
 *     rank W .. W + S - 1   no data, no executor: one call that serves the round
 *
 * The servers hold the state. A round that breaks off leaves it there, and the next one continues
 * from it if all servers are the same processes; otherwise from the checkpoint. */
#ifndef CT_TRAINER_PS_H
#define CT_TRAINER_PS_H

#include "worker.h"

/* Return whether parameter servers hold the state; whether this rank is one of them in this
 * round. */
static inline bool ct_ps_used(const struct ct_worker *worker)
{
    return worker->cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS;
}

static inline bool ct_ps_serves(const struct ct_worker *worker)
{
    return worker->ps.serves;
}

/* Assign this rank its role at the beginning of a round: worker->me becomes its place among its
 * kind. Does nothing with other strategies. 0, or CT_ECONFIG when no rank trains. */
int ct_ps_assign_role(struct ct_worker *worker, struct ct_error *err);

/* Set `options` to those of a group of all ranks of this one's kind. 0 or CT_ENOMEM. */
int ct_ps_members(struct ct_worker *worker, struct ct_group_options *options, struct ct_error *err);

/* ---- a server -------------------------------------------------------------------------------- */

/* Open this round's server, after the plan was built, with the state that this process holds of
 * it. */
int ct_ps_open(struct ct_worker *worker, struct ct_error *err);

/* Serve until all workers leave; *ret_stopped if because of a stop. */
int ct_ps_serve(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err);

/* ---- a worker -------------------------------------------------------------------------------- */

/* Connect to the servers. *ret_found: all hold the state that the round continues from; step,
 * position and the like are then set. */
int ct_ps_find(struct ct_worker *worker, bool *ret_found, struct ct_error *err);

/* Begin: worker 0 stores its executor's state in the servers, unless they have it; all pull. */
int ct_ps_begin(struct ct_worker *worker, bool found, struct ct_error *err);

/* Push gradients for the executor (exec.h); `context` is the worker. */
int ct_ps_push(void *context, size_t at, const void *data, size_t bytes, struct ct_error *err);

/* Run a step in place of ct_exec_step: gradient, pushes, and the parameters of the next step. */
int ct_ps_step(struct ct_worker *worker, const struct ct_exec_step *args,
               const struct ct_sampler_batch *batch, struct ct_exec_result *ret_result,
               struct ct_error *err);

/* Synchronise before an evaluation or a checkpoint: all workers get the same parameters, and worker
 * 0 the whole state, if it `saves`. Collective. */
int ct_ps_complete(struct ct_worker *worker, bool saves, struct ct_error *err);

/* Leave the round for `reason`. */
int ct_ps_leave(struct ct_worker *worker, enum ct_ps_end reason, struct ct_error *err);

/* Close the connections of the round; free the state that the process holds. */
void ct_ps_disconnect(struct ct_worker *worker);
void ct_ps_free(struct ct_worker *worker);

#endif
