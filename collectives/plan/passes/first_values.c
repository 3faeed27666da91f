/* See passes.h: the first values of what this rank holds, drawn by the names. */
#include "collectives/plan/passes/step_builder.h"

int ct_plan_make_init(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    struct ct_maker mk = ct_maker_of(plan, model, NULL, &plan->init);

    mk.program->stage = CT_STAGE_INIT;
    for (int i = 0; i < plan->param_count && mk.program->error.code == 0; i++) {
        const struct ct_plan_first first = {
            .tensor = &plan->tensors[i],
            .init = model->params[i].init,
            .key = ct_model_key(plan->seed, plan->tensors[i].name),
            .view = mk.params[i],
        };
        if (mk.params[i] != CT_NONE)
            ct_plan_emit_first(plan, mk.program, &first);
    }
    for (int i = 0; i < plan->buffer_count && mk.program->error.code == 0; i++) {
        struct ct_program_op fill = ct_program_op(CT_OP_FILL);
        fill.attr.alpha = model->buffers[i].first;
        fill.out[0] = mk.buffers[i];
        if (mk.buffers[i] != CT_NONE)
            ct_program_emit(mk.program, fill);
    }
    return ct_maker_finish(&mk, "init", err);
}
