/* See passes.h: which gradients are reduced together, and when.
 *
 * Walking the parameters from the last to the first, as backward does, a bucket takes tensors while
 * it stays within its cap; a tensor larger than the cap is a bucket of its own. The first cap is
 * small, so that communication starts early. Since gradients lie in the same order, a bucket is one
 * slice and is reduced in place. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

#include <stdio.h>

static int cut(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_bucket *bucket = NULL;

    plan->buckets = ct_arena_array(&plan->memory, (size_t)plan->param_count, sizeof *plan->buckets);
    if (plan->buckets == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a table of buckets");
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct ct_plan_tensor *tensor = &plan->tensors[i];
        size_t bytes = ct_plan_align(tensor->bytes);
        size_t cap =
            plan->bucket_count <= 1 ? plan->options.first_bucket_bytes : plan->options.bucket_bytes;
        if (bucket == NULL || bucket->bytes + bytes > cap) {
            bucket = &plan->buckets[plan->bucket_count++];
            *bucket = (struct ct_bucket){.offset_bytes = tensor->offset_bytes, .last_param = i};
        }
        bucket->bytes += bytes;
        bucket->first_param = i;
    }
    return 0;
}

/* The last op that writes into bytes [begin, end) of root `root`. */
static int last_writer(const struct ct_program *program, int root, struct ct_range range)
{
    int last = CT_NONE;

    for (int i = 0; i < program->op_count; i++) {
        for (int k = 0; k < CT_OP_MAX_OUT; k++) {
            int out = program->ops[i].out[k];
            if (out == CT_NONE || program->values[out].root != root)
                continue;
            const struct ct_value *v = &program->values[out];
            struct ct_range written = {v->offset_bytes, v->offset_bytes + v->bytes};
            if (ct_range_meet(written, range))
                last = i;
        }
    }
    return last;
}

/* Reduce `value` in place, as soon as it is complete. */
static void insert_reduce(struct ct_program *program, int value)
{
    struct ct_program_op op = ct_program_op(CT_OP_ALL_REDUCE);

    if (program->error.code != 0)
        return;
    const struct ct_value *v = &program->values[value];
    int last = last_writer(program, v->root,
                           (struct ct_range){v->offset_bytes, v->offset_bytes + v->bytes});
    CT_ASSERT(last != CT_NONE);
    op.in[0] = op.out[0] = value;
    program->stage = CT_STAGE_REDUCE;
    program->micro = program->ops[last].micro;
    ct_program_emit(program, op);
    ct_program_move_last(program, last + 1);
}

static int root_of_kind(const struct ct_program *program, enum ct_value_kind kind)
{
    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].kind == kind)
            return i;
    return CT_NONE;
}

int ct_plan_make_buckets(struct ct_plan *plan, struct ct_error *err)
{
    struct ct_program *program = &plan->step.program;
    char name[32];
    int code = cut(plan, err);

    if (code != 0 || plan->options.world == 1)
        return code;
    int grads = root_of_kind(program, CT_VALUE_GRAD);
    enum ct_dtype dtype = plan->tensors[0].dtype;
    insert_reduce(program, program->values[plan->step.io.loss].root);
    for (int i = 0; i < plan->bucket_count; i++) {
        const struct ct_bucket *bucket = &plan->buckets[i];
        snprintf(name, sizeof name, "bucket%d", i);
        insert_reduce(program,
                      ct_program_view(program, grads, bucket->offset_bytes, dtype,
                                      ct_shape1((int64_t)(bucket->bytes / ct_dtype_size(dtype))),
                                      name));
    }
    if (program->error.code != 0)
        return ct_error_set(err, program->error.code, "buckets: %s", program->error.text);
    return 0;
}
