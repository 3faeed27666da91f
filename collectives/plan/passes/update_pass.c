/* See passes.h: what turns gradients into new parameters.
 *
 *     grads -> sumsq -> clip_scale -> guard -> optimizer of each run -> params, moments
 *
 *                                                          params -> ema -> average
 *
 * In f16 the loss is scaled, and so are the gradients: `unscale` takes it off the norm, then off
 * the gradients with the scale of the optimizer. The norm is that of all parameters together. Where
 * it or the loss is not finite no optimizer changes anything: as both are reduced over the ranks,
 * all of them leave out the same step. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"
#include "collectives/plan/tensor_extents.h"

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

/* The optimizer's own moments. */
static int own_moments(const struct ct_optim_spec *optim)
{
    int count = 0;

    if (optim->type == CT_OPTIM_SGD && optim->momentum == 0)
        return 0;
    while (count < CT_PLAN_MAX_MOMENTS && optims[optim->type].moment[count] != NULL)
        count++;
    return count;
}

int ct_plan_moments(const struct ct_optim_spec *optim)
{
    return own_moments(optim) + (optim->ema > 0);
}

const char *ct_plan_moment_name(const struct ct_optim_spec *optim, int moment)
{
    return moment < own_moments(optim) ? optims[optim->type].moment[moment] : "ema";
}

bool ct_plan_counts_updates(const struct ct_optim_spec *optim)
{
    return optims[optim->type].counts_updates || optim->ema > 0;
}

static struct ct_program_op optimizer_op(const struct ct_optim_spec *optim,
                                         const struct ct_plan_run *run)
{
    struct ct_program_op op = ct_program_op(optims[optim->type].op);

    op.attr.weight_decay = run->decays ? optim->weight_decay : 0;
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

struct ct_plan_optimizer ct_plan_optimizer(const struct ct_plan *plan,
                                           const struct ct_plan_run *run)
{
    const struct ct_optim_spec *optim = &plan->options.optim;

    return (struct ct_plan_optimizer){.op = optimizer_op(optim, run),
                                      .counts_updates = optims[optim->type].counts_updates,
                                      .moments = own_moments(optim)};
}

/* a b, or a where there is no b. */
static int emit_product(struct ct_program *program, int a, int b)
{
    struct ct_program_op mul = ct_program_op(CT_OP_MUL);

    mul.in[0] = a;
    mul.in[1] = b;
    return b == CT_NONE ? a : ct_program_emit(program, mul);
}

/* The scale that shortens the gradient to the limit and is NaN when the step must not be taken.
 * Gradients of a scaled loss are unscaled with it, and their norm before it is looked at. */
static int emit_scale(struct ct_plan *plan)
{
    struct ct_program *program = &plan->step.program;
    struct ct_program_op clip = ct_program_op(CT_OP_CLIP_SCALE);
    struct ct_program_op guard = ct_program_op(CT_OP_GUARD);
    int unscale = plan->step.io.unscale;
    int sumsq = emit_product(program, emit_product(program, plan->step.io.sumsq, unscale), unscale);

    clip.attr.max_norm = plan->options.optim.clip;
    clip.in[0] = guard.in[0] = sumsq;
    guard.in[1] = plan->step.io.loss;
    if (plan->options.optim.clip > 0)
        guard.in[2] = ct_program_emit(program, clip);
    return emit_product(program, ct_program_emit(program, guard), unscale);
}

/* The learning rate of a run. */
static int emit_lr(struct ct_plan *plan, const struct ct_plan_run *run)
{
    struct ct_program_op scale = ct_program_op(CT_OP_SCALE);

    if (run->lr_factor == 1)
        return plan->step.io.lr;
    scale.attr.alpha = run->lr_factor;
    scale.in[0] = plan->step.io.lr;
    return ct_program_emit(&plan->step.program, scale);
}

/* The part of the flat range `flat` that is the run's. */
static int part_of(struct ct_plan *plan, const struct ct_plan_run *run, int flat)
{
    struct ct_program *program = &plan->step.program;

    if (program->error.code != 0 || run->bytes == program->values[flat].bytes)
        return flat;
    const struct ct_value *v = &program->values[flat];
    int64_t count = (int64_t)(run->bytes / ct_dtype_size(v->dtype));
    return ct_program_view(program, flat, run->offset_bytes, v->dtype, ct_shape1(count), v->name);
}

static void update_run(struct ct_plan *plan, const struct ct_plan_run *run,
                       const struct ct_plan_flats *flats, int scale)
{
    const struct ct_plan_optimizer optimizer = ct_plan_optimizer(plan, run);
    struct ct_program_op op = optimizer.op;
    int operand = 0;

    op.in[operand++] = part_of(plan, run, flats->grads);
    op.in[operand++] = emit_lr(plan, run);
    if (optimizer.counts_updates)
        op.in[operand++] = plan->step.io.update;
    op.in[operand] = scale;
    op.out[0] = part_of(plan, run, flats->params);
    for (int i = 0; i < optimizer.moments; i++)
        op.out[1 + i] = part_of(plan, run, flats->moments[i]);
    ct_program_emit(&plan->step.program, op);
}

/* The average follows the new parameters. */
static void update_average(struct ct_plan *plan, const struct ct_plan_flats *flats, int scale)
{
    const struct ct_plan_run all = {.bytes = plan->flat_bytes};
    struct ct_program_op op = ct_program_op(CT_OP_EMA);

    op.attr.decay = plan->options.optim.ema;
    op.in[0] = part_of(plan, &all, flats->params);
    op.in[1] = plan->step.io.update;
    op.in[2] = scale;
    op.out[0] = flats->moments[plan->moment_count - 1];
    ct_program_emit(&plan->step.program, op);
}

/* Add the squares of gradients to the sum: of those that slices hold in parts, or of those that all
 * hold. They lie in runs; the bytes between them are zero. Of what two stages hold the first one's
 * counts. */
static bool add_squares(struct ct_plan *plan, int grads, bool parts, bool started)
{
    struct ct_program *program = &plan->step.program;
    struct ct_plan_run run = {.bytes = 0};

    for (int i = 0; i <= plan->order_count; i++) {
        const struct ct_plan_tensor *t =
            i < plan->order_count ? &plan->tensors[plan->order[i]] : NULL;
        bool wanted = t != NULL && (t->split.size != 0) == parts && t->twin != plan->place.stage;
        size_t begin = t == NULL ? plan->flat_bytes : t->flat_bytes;
        if (run.bytes > 0 && !wanted) {
            struct ct_program_op sumsq = ct_program_op(CT_OP_SUMSQ);
            run.bytes = begin - run.offset_bytes;
            sumsq.in[0] = part_of(plan, &run, grads);
            sumsq.out[0] = plan->step.io.sumsq;
            sumsq.attr.accumulate = started;
            ct_program_emit(program, sumsq);
            started = true;
            run.bytes = 0;
        }
        if (wanted && run.bytes == 0)
            run = (struct ct_plan_run){.offset_bytes = begin, .bytes = t->held_bytes};
    }
    return started;
}

/* The squared norm of the gradient, over all ranks that hold a part of it; what all slices hold
 * counts once. */
static void emit_norm(struct ct_plan *plan, const struct ct_plan_flats *flats)
{
    struct ct_program_op sum = ct_program_op(CT_OP_ALL_REDUCE), scale = ct_program_op(CT_OP_SCALE);
    struct ct_program_op none = ct_program_op(CT_OP_FILL);
    int sumsq = plan->step.io.sumsq;

    bool shared = add_squares(plan, flats->grads, false, false);
    scale.in[0] = scale.out[0] = sumsq;
    scale.attr.alpha = plan->place.slice == 0 ? 1 : 0;
    if (shared && plan->mesh.tensor > 1)
        ct_program_emit(&plan->step.program, scale);
    if (!add_squares(plan, flats->grads, true, shared)) {
        none.out[0] = sumsq;
        ct_program_emit(&plan->step.program, none);
    }
    sum.in[0] = sum.out[0] = sumsq;
    sum.axis = CT_AXIS_COPY;
    if (!ct_plan_holds_all(plan))
        ct_program_emit(&plan->step.program, sum);
}

int ct_plan_emit_update(struct ct_plan *plan, const struct ct_plan_flats *flats)
{
    plan->step.program.stage = CT_STAGE_UPDATE;
    emit_norm(plan, flats);
    int scale = emit_scale(plan);
    for (int i = 0; i < plan->run_count; i++)
        update_run(plan, &plan->runs[i], flats, scale);
    if (plan->options.optim.ema > 0)
        update_average(plan, flats, scale);
    return scale;
}
