/* See skip.h. */
#include "skip.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* "the loss is nan and the gradient of h.0.mlp.weight (one of 3 such parameters) is not finite". A
 * rank that holds a part of the gradients may find all of it finite. */
static void describe_cause(struct ct_worker *worker, const struct ct_exec_result *result,
                           char *text, size_t room)
{
    int count = 0, bad = ct_exec_bad_gradient(worker->exec, &count), length = 0;

    if (!isfinite(result->loss))
        length = snprintf(text, room, "the loss is %f and ", result->loss);
    if (bad >= 0)
        (void)snprintf(text + length, room - (size_t)length,
                       "the gradient of %s (one of %d such parameters) is not finite",
                       worker->plan.tensors[bad].name, count);
    else
        (void)snprintf(text + length, room - (size_t)length, "the gradient's norm is %f",
                       result->grad_norm);
}

/* In f16: what the step says of the scale of the loss. True for a step that is left out because
 * its gradients were too large in it: the loss itself is finite, and the scale can fall. */
static bool note_scale(struct ct_worker *worker, const struct ct_exec_result *result)
{
    double scale = worker->scaler.scale;

    if (worker->plan.options.compute != CT_F16)
        return false;
    ct_scaler_observe(&worker->scaler, (uint64_t)worker->cfg->train.loss_scale_every,
                      result->skipped);
    return result->skipped && isfinite(result->loss) && scale > 1;
}

int ct_skip_step(struct ct_worker *worker, const struct ct_exec_result *result,
                 struct ct_error *err)
{
    char why[400] = "";

    bool overflow = note_scale(worker, result);

    if (!result->skipped) {
        worker->skipped_in_a_row = 0;
        return 0;
    }
    worker->skipped++;
    if (overflow) {
        if (worker->me->rank == 0)
            ct_log_event(worker->log, CT_LOG_INFO, "loss_scale",
                         "step %" PRIu64
                         " is left out: a gradient overflows; the loss is scaled by "
                         "%g from here",
                         worker->step, worker->scaler.scale);
        return 0;
    }
    describe_cause(worker, result, why, sizeof why);
    if (++worker->skipped_in_a_row <= (uint64_t)worker->cfg->train.skip_nonfinite) {
        if (worker->me->rank == 0)
            ct_log_event(worker->log, CT_LOG_WARN, "skipped_step",
                         "step %" PRIu64 " is left out: %s", worker->step, why);
        return 0;
    }
    worker->scope = CT_SCOPE_JOB;
    return ct_error_set(err, CT_EDIVERGED,
                        "step %" PRIu64 ": %s: the training diverged; lower optim.lr or set "
                        "optim.clip, or allow such steps with train.skip_nonfinite",
                        worker->step, why);
}
