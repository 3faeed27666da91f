/* See passes.h: where parameters, their moments and gradients lie.
 *
 *     flat range      [ bucket 0 | bucket 1 | ... ]   last parameter first
 *     a rank's state  [ parameters | moments 0 | moments 1 ]   each whole, or this rank's part */
#include "collectives/plan/passes.h"

#include "base/assert.h"

static void list_params(struct ct_plan *plan, const struct ct_model *model)
{
    for (int i = 0; i < model->param_count; i++) {
        const struct ct_value *value = &model->program.values[model->params[i].value];
        plan->tensors[i] = (struct ct_plan_tensor){.name = value->name,
                                                   .is_param = true,
                                                   .dtype = value->dtype,
                                                   .shape = value->shape,
                                                   .bytes = value->bytes};
    }
}

/* Parameters in reverse: the last layer's gradients, which are ready first, come first. The end of
 * a bucket is padded so that every rank's part of it begins like a tensor. */
static void lay_buckets(struct ct_plan *plan)
{
    size_t unit = (size_t)plan->shards * CT_PLAN_ALIGN;

    for (int k = 0; k < plan->bucket_count; k++) {
        struct ct_bucket *bucket = &plan->buckets[k];
        bucket->offset_bytes = plan->flat_bytes;
        for (int i = bucket->last_param; i >= bucket->first_param; i--) {
            plan->tensors[i].flat_bytes = plan->tensors[i].offset_bytes = plan->flat_bytes;
            plan->flat_bytes += ct_plan_align(plan->tensors[i].bytes);
        }
        plan->flat_bytes = bucket->offset_bytes +
                           (plan->flat_bytes - bucket->offset_bytes + unit - 1) / unit * unit;
        bucket->bytes = plan->flat_bytes - bucket->offset_bytes;
    }
    plan->shard_bytes = plan->flat_bytes / (size_t)plan->shards;
}

bool ct_plan_is_sharded(const struct ct_plan *plan, int range)
{
    return plan->shards > 1 && (range > 0 || plan->options.shard >= CT_PLAN_SHARD_GRAD);
}

size_t ct_plan_range_offset(const struct ct_plan *plan, int range)
{
    size_t offset = 0;

    for (int i = 0; i < range; i++)
        offset += ct_plan_is_sharded(plan, i) ? plan->shard_bytes : plan->flat_bytes;
    return offset;
}

struct ct_plan_part ct_plan_part(const struct ct_plan *plan, int bucket, int rank)
{
    const struct ct_bucket *b = &plan->buckets[bucket];
    size_t shards = (size_t)plan->shards, bytes = b->bytes / shards;

    return (struct ct_plan_part){.flat_bytes = b->offset_bytes + (size_t)rank % shards * bytes,
                                 .shard_bytes = b->offset_bytes / shards,
                                 .bytes = bytes};
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
    list_params(plan, model);
    int code = ct_plan_cut(plan, err);
    if (code != 0)
        return code;
    lay_buckets(plan);
    for (int i = 0; i < plan->tensor_count; i++) {
        struct ct_plan_tensor *tensor = &plan->tensors[i];
        const char *name = plan->tensors[i % plan->param_count].name;
        int moment = i / plan->param_count - 1;
        if (moment >= 0) {
            *tensor = plan->tensors[i % plan->param_count];
            tensor->is_param = false;
            tensor->range = moment + 1;
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
    plan->state_bytes = ct_plan_range_offset(plan, 1 + plan->moment_count);
    plan->grads_bytes =
        plan->state_bytes + (plan->shards > 1 ? plan->shard_bytes : plan->flat_bytes);
    return 0;
}
