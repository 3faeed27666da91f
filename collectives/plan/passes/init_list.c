/* See passes.h: the first values of what this rank holds, drawn by the names. */
#include "collectives/plan/passes/list_builder.h"

int ct_plan_make_init(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    struct ct_list_builder lb = ct_list_builder_init(plan, model, NULL, &plan->init);

    lb.program->stage = CT_STAGE_INIT;
    for (int i = 0; i < plan->param_count && lb.program->error.code == 0; i++) {
        const struct ct_plan_param_init first = {
            .tensor = &plan->tensors[i],
            .init = model->params[i].init,
            .key = ct_model_key(plan->seed, plan->tensors[i].name),
            .view = lb.params[i],
        };
        if (lb.params[i] != CT_NONE)
            ct_plan_emit_param_init(plan, lb.program, &first);
    }
    for (int i = 0; i < plan->buffer_count && lb.program->error.code == 0; i++) {
        struct ct_program_op fill = ct_program_op(CT_OP_FILL);
        fill.attr.alpha = model->buffers[i].first;
        fill.out[0] = lb.buffers[i];
        if (lb.buffers[i] != CT_NONE)
            ct_program_emit(lb.program, fill);
    }
    return ct_list_builder_finish(&lb, "init", err);
}
