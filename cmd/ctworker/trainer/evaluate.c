/* See evaluate.h. */
#include "evaluate.h"

#include "base/assert.h"

enum { LOSS, CORRECT, SUMS };

/* This rank's share of the held-out samples. */
static int add_up(struct ct_worker *worker, double sums[SUMS], struct ct_error *err)
{
    const struct ct_batch_buffer *buffer = &worker->eval_buffer;
    const struct ct_exec_eval args = {.x = buffer->x, .labels = buffer->labels};
    int code = 0;

    for (uint64_t at = 0; code == 0 && at < worker->eval.rows;) {
        struct ct_exec_sums part = {0};
        ct_job_at(worker->job, CT_AT_EVALUATE, worker->step);
        const struct ct_sampler_batch batch =
            ct_sampler_fill(&worker->eval_sampler, &worker->eval, &worker->eval_share, at, buffer);
        ct_report_evaluating(worker, at, worker->eval.rows);
        at = batch.next;
        code = batch.bad != 0 ? ct_dataset_explain(&worker->eval, batch.bad - 1, err)
                              : ct_exec_eval(worker->exec, &args, &part, err);
        sums[LOSS] += part.loss;
        sums[CORRECT] += (double)part.correct;
    }
    return code;
}

int ct_evaluate(struct ct_worker *worker, struct ct_evaluation *ret, struct ct_error *err)
{
    bool average = worker->cfg->eval.ema;
    double sums[SUMS] = {0};

    CT_ASSERT(worker->eval.rows > 0);
    if (average)
        ct_exec_swap_average(worker->exec);
    int code = add_up(worker, sums, err);
    if (average)
        ct_exec_swap_average(worker->exec);
    if (code == 0 && worker->group != NULL) {
        const struct ct_options options = {.mode = CT_MODE_REPRODUCIBLE};
        code =
            ct_all_reduce(worker->group, ct_inplace(sums, SUMS, CT_F64), CT_REDUCE_SUM, &options);
        code = ct_group_explain(worker->group, code, err);
    }
    if (code != 0)
        return code;
    uint64_t labels = worker->eval.rows * worker->eval.labels_per_row;
    *ret = (struct ct_evaluation){.step = worker->step,
                                  .rows = labels,
                                  .correct = (uint64_t)sums[CORRECT],
                                  .loss = sums[LOSS] / (double)labels};
    return 0;
}
