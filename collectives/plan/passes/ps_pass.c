/* See passes.h: what a worker of a parameter server runs.
 *
 *     pull -> params | forward, backward -> grads -> sumsq | commit      the servers: sum, update
 *                                           `- push(bucket)
 *
 * Buckets are pushed as they become complete (buckets.c). Pulling is not in the list: it is a whole
 * range, from other processes. What is left of the update is the norm of this rank's own gradient.
 * Moments lie with the servers; rank 0, which writes checkpoints, has room for them to pass
 * through. */
#include "collectives/plan/passes/passes.h"

static void drop_update(struct ct_program *program)
{
    int kept = 0;

    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        if (op->stage != CT_STAGE_UPDATE || op->kind == CT_OP_SUMSQ)
            program->ops[kept++] = *op;
    }
    program->op_count = kept;
}

static void drop_moments(struct ct_plan *plan)
{
    struct ct_program *program = &plan->step.program;

    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == CT_VALUE_STATE)
            program->values[i].kind = CT_VALUE_TEMP; /* which nobody uses */
    plan->tensor_count -= plan->learned_count * plan->moment_count;
    plan->moment_count = 0;
    plan->state_bytes = ct_plan_range_offset(plan, 1);
    plan->grads_bytes = plan->state_bytes + plan->flat_bytes;
}

int ct_plan_param_server(struct ct_plan *plan, struct ct_error *err)
{
    if (!plan->options.served)
        return 0;
    if (plan->buffer_count > 0)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "parallel.strategy ps has parameters on its servers, and no place for "
                            "the running statistics of batch norms: use ddp, or leave the batch "
                            "norms out");
    drop_update(&plan->step.program);
    if (plan->options.rank != 0)
        drop_moments(plan);
    return 0;
}
