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

/* Is the state with parameter servers? And is this rank one of them in this round? */
static inline bool ct_ps_used(const struct ct_worker *worker)
{
    return worker->cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS;
}

static inline bool ct_ps_serves(const struct ct_worker *worker)
{
    return worker->ps.serves;
}

/* A round begins: worker->me becomes this rank's place in it. CT_ECONFIG when there is no worker.
 * Does nothing with other strategies. */
int ct_ps_sit(struct ct_worker *worker, struct ct_error *err);

/* Let `options` be those of a group of all ranks of this one's kind. CT_ENOMEM. */
int ct_ps_members(struct ct_worker *worker, struct ct_group_options *options, struct ct_error *err);

/* ---- a server -------------------------------------------------------------------------------- */

/* The plan is made: be the server of this round's number, with what this process holds of it. */
int ct_ps_open(struct ct_worker *worker, struct ct_error *err);

/* Serve until all workers leave; *ret_stopped when they do because of a stop. */
int ct_ps_serve(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err);

/* ---- a worker -------------------------------------------------------------------------------- */

/* Meet the servers. *ret_found: all hold the state that the round goes on from, and step, position
 * and the like are its. */
int ct_ps_find(struct ct_worker *worker, bool *ret_found, struct ct_error *err);

/* Begin: worker 0 gives the servers its executor's state, unless they have it; all pull. */
int ct_ps_begin(struct ct_worker *worker, bool found, struct ct_error *err);

/* What the executor pushes with (exec.h); `context` is the worker. */
int ct_ps_push(void *context, size_t at, const void *data, size_t bytes, struct ct_error *err);

/* In the place of ct_exec_step: gradient, pushes, and the parameters of the next step. */
int ct_ps_step(struct ct_worker *worker, const struct ct_exec_step *args,
               const struct ct_sampler_batch *batch, struct ct_exec_result *ret_result,
               struct ct_error *err);

/* Before an evaluation or a checkpoint: all workers have the same parameters, and worker 0 has the
 * whole state, if it `saves`. Collective. */
int ct_ps_complete(struct ct_worker *worker, bool saves, struct ct_error *err);

/* This worker is through with the round. */
int ct_ps_leave(struct ct_worker *worker, enum ct_ps_end reason, struct ct_error *err);

/* The connections of the round; and what the process holds. */
void ct_ps_hang_up(struct ct_worker *worker);
void ct_ps_undo(struct ct_worker *worker);

#endif
