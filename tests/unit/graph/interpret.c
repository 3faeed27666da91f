/* See interpret.h. */
#include "tests/unit/graph/interpret.h"

#include <criterion/criterion.h>

#include <stdlib.h>

void interpreter_init(struct interpreter *in, const struct ct_program *program)
{
    struct ct_cpu_options options = {.threads = 1};
    struct ct_error err = {0};

    cr_assert_eq(program->error.code, 0, "%s", program->error.text);
    in->program = program;
    cr_assert_eq(ct_device_cpu_new(&options, &in->device, &err), 0, "%s", err.text);
    in->memory = calloc((size_t)program->value_count, sizeof(char *));
    cr_assert_not_null(in->memory);
    for (int i = 0; i < program->value_count; i++) {
        if (program->values[i].root != i)
            continue;
        in->memory[i] = calloc(1, program->values[i].bytes);
        cr_assert_not_null(in->memory[i]);
    }
}

void interpreter_deinit(struct interpreter *in)
{
    for (int i = 0; i < in->program->value_count; i++)
        free(in->memory[i]);
    free(in->memory);
    ct_device_free(in->device);
}

void *interpreter_at(const struct interpreter *in, int value)
{
    const struct ct_value *v = &in->program->values[value];

    return in->memory[v->root] + v->offset_bytes;
}

static struct ct_tensor tensor(const struct interpreter *in, int value)
{
    if (value == CT_NONE)
        return (struct ct_tensor){0};
    const struct ct_value *v = &in->program->values[value];
    return (struct ct_tensor){v->dtype, v->shape, interpreter_at(in, value)};
}

void interpreter_run(struct interpreter *in, int first, int last)
{
    for (int i = first; i < last; i++) {
        const struct ct_program_op *op = &in->program->ops[i];
        struct ct_kernel_args args = {.attr = op->attr};
        struct ct_error err = {0};
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            args.in[k] = tensor(in, op->in[k]);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            args.out[k] = tensor(in, op->out[k]);
        cr_assert_eq(ct_op_check((enum ct_op_kind)op->kind, op->dtype, &args, &err), 0, "%s",
                     err.text);
        ct_device_run(in->device, (enum ct_op_kind)op->kind, op->dtype, &args);
    }
}
