/* See loop.h.
 *
 *   next batch -> step -> report -> [pace] -> [replicas] -> [evaluate] -> [save] -> stop? -> ...
 *
 * A round ends at the same step on all ranks when one of them wishes so (the step's reduction
 * carries the wishes), or in the middle of a step with CT_EREVOKED or CT_ECLOSED.
 *
 * A stop needs no agreement between ranks that hold all: each ends after the step it is in, and a
 * rank that waits for one that has gone gets CT_ECLOSED, with its state still that of the last
 * completed step. All states are equal, so whatever step rank 0 stands at is a checkpoint of the
 * whole job. Ranks that hold parts (parts.h) tell each other with the step's wishes, and save
 * together. */
#include "loop.h"

#include "evaluate.h"
#include "skip.h"
#include "worker/agree.h"
#include "worker/checkpoint_publish.h"
#include "worker/parts.h"
#include "worker/ps.h"

#include <inttypes.h>

/* What is due after a step. */
struct due {
    bool epoch_ends;
    bool last;
};

static bool is_due(struct ct_config_interval every, const struct ct_worker *worker,
                   const struct due *due)
{
    if (every.count <= 0)
        return false;
    if (every.unit == CT_CONFIG_STEPS)
        return worker->step % (uint64_t)every.count == 0;
    return due->epoch_ends && worker->position / worker->train.rows % (uint64_t)every.count == 0;
}

static int run_step(struct ct_worker *worker, const struct ct_prefetch_batch *batch,
                    struct ct_error *err)
{
    struct ct_exec_result result = {0};
    const struct ct_exec_step args = {
        .x = batch->x,
        .labels = batch->labels,
        .valid_count = (int64_t)(batch->batch.valid * worker->train.labels_per_row),
        .lr = ct_schedule_lr(&worker->schedule, worker->step) * worker->plateau.ratio,
        .update = worker->step + 1,
        .skipped = worker->skipped,
        .scale = worker->scaler.scale,
        .wish = ct_job_boundary_requested(worker->job) ||
                (ct_parts_together(worker) && ct_stop_requested(worker->stop, worker->job)),
        .done = ct_saving_is_written(&worker->saving)};
    int code = batch->batch.bad != 0 ? ct_dataset_explain(&worker->train, batch->batch.bad - 1, err)
               : ct_ps_used(worker)  ? ct_ps_step(worker, &args, &batch->batch, &result, err)
               : worker->replicas != NULL
                   ? ct_replicas_step(worker->replicas, worker->exec, &args, &result, err)
                   : ct_exec_step(worker->exec, &args, &result, err);

    if (code != 0)
        return code;
    worker->step++;
    worker->position = batch->batch.next;
    worker->leaving = result.wishes > 0;
    worker->writers = result.done;
    code = ct_skip_step(worker, &result, err);
    if (code != 0)
        return code;
    const struct due due = {.epoch_ends = worker->position % worker->train.rows == 0,
                            .last = worker->step == worker->steps};
    worker->last =
        (struct ct_step_report){.samples = batch->batch.valid,
                                .loss = result.loss,
                                .grad_norm = result.grad_norm,
                                .lr = args.lr,
                                .logged = due.last || is_due(worker->cfg->log.every, worker, &due)};
    worker->has_last = true;
    return ct_report_step(worker, &worker->last, err);
}

/* Every rank has the same loss, so all go on with the same rate. */
static void observe_plateau(struct ct_worker *worker, double loss)
{
    const struct ct_config *cfg = worker->cfg;
    const struct ct_plateau_rule rule = {.factor = cfg->schedule.factor,
                                         .min_ratio = cfg->schedule.min_ratio,
                                         .threshold = cfg->schedule.threshold,
                                         .patience = (uint64_t)cfg->schedule.patience};
    double before = worker->plateau.ratio;

    ct_plateau_observe(&worker->plateau, &rule, worker->step, loss);
    if (worker->plateau.ratio < before && worker->me->rank == 0)
        ct_log_event(worker->log, CT_LOG_INFO, "plateau",
                     "after step %" PRIu64 " the evaluation is no better than %.4f: the learning "
                     "rate falls to %g of the schedule's",
                     worker->step, worker->plateau.best, worker->plateau.ratio);
}

static int evaluate(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_evaluation evaluation;

    int code = ct_evaluate(worker, &evaluation, err);

    if (code == 0 && worker->schedule.type == CT_SCHEDULE_PLATEAU)
        observe_plateau(worker, evaluation.loss);
    if (code == 0)
        (void)ct_best_observe(&worker->best, worker->step,
                              worker->best.metric == CT_BEST_ACCURACY
                                  ? (double)evaluation.correct / (double)evaluation.rows
                                  : evaluation.loss);
    bool told = worker->report.metrics_evaluation == worker->step;
    if (code == 0)
        code = ct_report_evaluation(worker, &evaluation, err);
    return code != 0 || told ? code : ct_text_sample_write(worker, err);
}

/* The steps wait for as long as this takes. */
static int save(struct ct_worker *worker, struct ct_error *err)
{
    uint64_t begun_ns = ct_clock_mono_ns(worker->clock);
    int code = ct_publish_save(worker, err);

    worker->report.saving_ns += ct_clock_mono_ns(worker->clock) - begun_ns;
    return code;
}

/* What follows a completed step. */
static int after_step(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    const struct due due = {.epoch_ends = worker->position % worker->train.rows == 0,
                            .last = worker->step >= worker->steps};
    bool evaluates = worker->eval.rows > 0 && (due.last || is_due(cfg->eval.every, worker, &due));
    bool saves = due.last || is_due(worker->save_every, worker, &due);
    bool may_save = saves || (evaluates && worker->best.metric != CT_BEST_NONE);
    int code = 0;

    if (ct_ps_used(worker) && (evaluates || saves))
        code = ct_ps_complete(worker, may_save, err);
    if (code == 0 && cfg->check.replicas > 0 && worker->step % (uint64_t)cfg->check.replicas == 0)
        code = ct_agree_replicas(worker, err);
    worker->evaluation_due = evaluates;
    if (code == 0 && worker->evaluation_due)
        code = evaluate(worker, err);
    worker->evaluation_due = worker->evaluation_due && code != 0;
    if (code == 0 && (saves || (evaluates && worker->best.step == worker->step)))
        code = save(worker, err);
    if (code == 0)
        worker->post_step_done = worker->step;
    ct_report_resume(worker);
    return code;
}

/* All ranks leave after this step: the round ends, or those that hold parts have agreed to stop. */
static int leave(struct ct_worker *worker, struct ct_error *err)
{
    int code = ct_ps_used(worker) ? ct_ps_complete(worker, true, err) : 0;

    if (code == 0 && ct_parts_together(worker))
        code = ct_parts_leave(worker, err);
    if (code != 0 || worker->stopping)
        return code;
    return ct_error_set(err, CT_EREVOKED, "the round ends after step %" PRIu64, worker->step);
}

static int train(struct ct_worker *worker, struct ct_prefetch *prefetch, struct ct_error *err)
{
    int code = 0;

    while (code == 0 && worker->step < worker->steps &&
           !(ct_parts_may_stop(worker) && ct_stop_requested(worker->stop, worker->job))) {
        ct_job_at(worker->job, CT_AT_STEP, worker->step);
        ct_trace_begin(worker);
        ct_pace_begin(worker);
        struct ct_prefetch_batch batch = ct_prefetch_next(prefetch);
        ct_trace_feed(worker);
        code = run_step(worker, &batch, err);
        if (code == 0)
            ct_trace_add(worker);
        if (code == 0)
            code = ct_pace_end(worker, err);
        if (code == 0)
            code = ct_publish_advance(worker, err);
        if (code == 0)
            code = after_step(worker, err);
        if (code == 0 && worker->leaving)
            code = leave(worker, err);
        if (worker->stopping)
            break;
    }
    return code;
}

/* Steps until the last one, a stop or a failure. */
static int run_steps(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_prefetch_options options = {
        .sampler = worker->sampler, .share = worker->share, .position = worker->position};
    struct ct_prefetch *prefetch = NULL;
    int code = ct_prefetch_new(&prefetch, &worker->train, &options, err);

    if (code == 0)
        code = ct_pace_open(worker, err);
    ct_trace_open(worker);
    if (code == 0)
        code = train(worker, prefetch, err);
    ct_trace_close(worker);
    ct_pace_close(worker);
    ct_prefetch_free(prefetch);
    return code;
}

/* To the servers, when this worker goes in order: `code` is what the loop ends with. */
static int leave_servers(struct ct_worker *worker, int code, bool stopped, struct ct_error *err)
{
    if (code == 0)
        return ct_ps_leave(worker, stopped ? CT_PS_STOPPED : CT_PS_COMPLETE, err);
    if (worker->leaving)
        (void)ct_ps_leave(worker, CT_PS_LEAVING, NULL);
    return code;
}

int ct_loop_run(struct ct_worker *worker, bool *ret_stopped, struct ct_error *err)
{
    bool repeat_post_step = worker->repeat_post_step;
    int code = 0;

    if (ct_ps_serves(worker))
        return ct_ps_serve(worker, ret_stopped, err);
    worker->leaving = worker->repeat_post_step = worker->stopping = false;
    if (repeat_post_step)
        code = after_step(worker, err);
    else if (worker->step >= worker->steps && worker->eval.rows > 0)
        code = evaluate(worker, err);
    if (code == 0 && worker->step < worker->steps)
        code = run_steps(worker, err);
    if (code == 0 && worker->step >= worker->steps)
        code = ct_publish_finish(worker, err);
    bool gone = ct_stop_is_secondary(code) && !worker->survives;
    *ret_stopped = (code == 0 ? worker->step < worker->steps : gone) &&
                   ct_stop_wait(worker->stop, worker->job, gone ? CT_STOP_GRACE_MS : 0);
    if (*ret_stopped)
        code = ct_publish_stop(worker, err);
    return ct_ps_used(worker) ? leave_servers(worker, code, *ret_stopped, err) : code;
}
