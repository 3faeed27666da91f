/* See passes.h: what turns gradients into new parameters.
 *
 *     grads -> sumsq -> clip_scale -> optimizer -> params, moments
 *
 * Each is one kernel over the flat range: the norm is that of all parameters together. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

/* The optimizers: their op, whether it reads the number of the update, and what their moments are
 * called in a checkpoint. */
static const struct optim {
    int op;
    bool counts_updates;
    const char *moment[CT_PLAN_MAX_MOMENTS];
} optims[] = {
    [CT_OPTIM_SGD] = {CT_OP_SGD, false, {"momentum"}},
    [CT_OPTIM_ADAMW] = {CT_OP_ADAMW, true, {"exp_avg", "exp_avg_sq"}},
    [CT_OPTIM_LION] = {CT_OP_LION, false, {"exp_avg"}},
};
_Static_assert(CT_COUNT(optims) == CT_OPTIM_COUNT, "a row for every optimizer");

int ct_plan_moments(const struct ct_optim_spec *optim)
{
    int count = 0;

    if (optim->type == CT_OPTIM_SGD && optim->momentum == 0)
        return 0;
    while (count < CT_PLAN_MAX_MOMENTS && optims[optim->type].moment[count] != NULL)
        count++;
    return count;
}

const char *ct_plan_moment_name(enum ct_optim type, int moment)
{
    return optims[type].moment[moment];
}

bool ct_plan_counts_updates(enum ct_optim type)
{
    return optims[type].counts_updates;
}

static struct ct_program_op optimizer_op(const struct ct_optim_spec *optim)
{
    struct ct_program_op op = ct_program_op(optims[optim->type].op);

    op.attr.weight_decay = optim->weight_decay;
    if (optim->type == CT_OPTIM_SGD) {
        op.attr.momentum = optim->momentum;
        op.attr.nesterov = optim->nesterov;
        return op;
    }
    op.attr.beta1 = optim->beta1;
    op.attr.beta2 = optim->beta2;
    op.attr.eps = optim->type == CT_OPTIM_ADAMW ? optim->eps : 0;
    return op;
}

/* The scale that shortens the gradient to the limit; CT_NONE when there is none. */
static int emit_clip(struct ct_plan *plan)
{
    struct ct_program_op clip = ct_program_op(CT_OP_CLIP_SCALE);

    if (plan->options.optim.clip == 0)
        return CT_NONE;
    clip.attr.max_norm = plan->options.optim.clip;
    clip.in[0] = plan->step.io.sumsq;
    return ct_program_emit(&plan->step.program, clip);
}

void ct_plan_emit_update(struct ct_plan *plan, const struct ct_plan_flats *flats)
{
    struct ct_program *program = &plan->step.program;
    struct ct_program_op sumsq = ct_program_op(CT_OP_SUMSQ);
    struct ct_program_op op = optimizer_op(&plan->options.optim);
    int operand = 0;

    program->stage = CT_STAGE_UPDATE;
    sumsq.in[0] = flats->grads;
    sumsq.out[0] = plan->step.io.sumsq;
    ct_program_emit(program, sumsq);
    int scale = emit_clip(plan);

    op.in[operand++] = flats->grads;
    op.in[operand++] = plan->step.io.lr;
    if (plan->step.io.update != CT_NONE)
        op.in[operand++] = plan->step.io.update;
    op.in[operand] = scale;
    op.out[0] = flats->params;
    for (int i = 0; i < plan->moment_count; i++)
        op.out[1 + i] = flats->moments[i];
    ct_program_emit(program, op);
}
