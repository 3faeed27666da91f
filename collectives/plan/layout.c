/* See passes.h: where parameters, their moments and gradients lie. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

/* Parameters in reverse: the last layer's gradients, which are ready first, come first. */
static void lay_params(struct ct_plan *plan, const struct ct_model *model)
{
    const struct ct_program *program = &model->program;

    for (int i = model->param_count - 1; i >= 0; i--) {
        const struct ct_value *value = &program->values[model->params[i].value];
        plan->tensors[i] = (struct ct_plan_tensor){.name = value->name,
                                                   .is_param = true,
                                                   .dtype = value->dtype,
                                                   .shape = value->shape,
                                                   .offset_bytes = plan->flat_bytes,
                                                   .bytes = value->bytes};
        plan->flat_bytes += ct_plan_align(value->bytes);
    }
}

int ct_plan_layout(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    plan->param_count = model->param_count;
    plan->moment_count = ct_plan_moments(&plan->options.optim);
    plan->tensor_count = plan->param_count * (1 + plan->moment_count);
    plan->tensors =
        ct_arena_array(&plan->memory, (size_t)plan->tensor_count, sizeof *plan->tensors);
    if (plan->tensors == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a table of %d tensors",
                            plan->tensor_count);
    lay_params(plan, model);
    for (int i = 0; i < plan->tensor_count; i++) {
        struct ct_plan_tensor *tensor = &plan->tensors[i];
        const char *name = plan->tensors[i % plan->param_count].name;
        int moment = i / plan->param_count - 1;
        if (moment >= 0) {
            *tensor = plan->tensors[i % plan->param_count];
            tensor->is_param = false;
            tensor->offset_bytes += plan->flat_bytes * (size_t)(moment + 1);
            tensor->name =
                ct_arena_printf(&plan->memory, "%s.%s",
                                ct_plan_moment_name(plan->options.optim.type, moment), name);
        } else {
            tensor->name = ct_arena_strdup(&plan->memory, name);
        }
        if (tensor->name == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for the name of a tensor");
    }
    plan->state_bytes = plan->flat_bytes * (size_t)(1 + plan->moment_count);
    plan->grads_bytes = plan->state_bytes + plan->flat_bytes;
    return 0;
}
