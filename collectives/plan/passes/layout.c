/* See passes.h: where parameters, their moments and gradients lie.
 *
 *     flat range      [ bucket 0 | bucket 1 | ... ]   last parameter first
 *     a rank's state  [ parameters | buffers | moments 0 | moments 1 ]
 *                       `- those that learn, then the frozen ones
 *
 * Parameters that learn and moments are each whole, or this rank's part; the rest is whole. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"
#include "collectives/plan/passes/stage_split.h"

/* A slice's value as people know it. */
static void unslice(struct ct_plan_tensor *tensor, const struct ct_plan_sliced *sliced)
{
    tensor->shape = sliced->shape;
    tensor->bytes = (size_t)ct_shape_elements(sliced->shape) * ct_dtype_size(tensor->dtype);
    tensor->split = sliced->split;
}

/* Which stages hold the model's `value`, and whether this rank's is one of them. */
static bool set_stages(const struct ct_plan *plan, const struct ct_stage_split *split, int value,
                       struct ct_plan_tensor *tensor)
{
    int stages = plan->mesh.stages, stage = plan->place.stage;

    tensor->stage = split == NULL ? 0 : split->holders[value].first % stages;
    tensor->twin = split == NULL ? 0 : split->holders[value].last % stages;
    bool here = stage == tensor->stage || stage == tensor->twin;
    if (tensor->twin == tensor->stage)
        tensor->twin = CT_PLAN_NO_STAGE;
    if (here)
        return true;
    tensor->range = CT_PLAN_ELSEWHERE;
    tensor->held_bytes = 0;
    return false;
}

/* Whether an op reads parameter `value` as it is, where others read narrow copies. */
static bool is_wide(const struct ct_plan *plan, const struct ct_program *program, int value)
{
    if (plan->options.shard < CT_PLAN_SHARD_GRAD || !ct_dtype_is_narrow(plan->options.compute))
        return false;
    for (int i = 0; i < program->op_count; i++)
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (program->ops[i].in[k] == value && !ct_plan_is_narrowing(program->ops[i].kind))
                return true;
    return false;
}

static void list_params(struct ct_plan *plan, const struct ct_model *model,
                        const struct ct_stage_split *split)
{
    for (int i = 0; i < model->param_count; i++) {
        const struct ct_value *value = &model->program.values[model->params[i].value];
        bool frozen = ct_plan_freezes(&plan->options.optim.groups, value->name);
        plan->learned_count += !frozen;
        plan->tensors[i] =
            (struct ct_plan_tensor){.name = value->name,
                                    .is_param = true,
                                    .learns = !frozen,
                                    .wide = is_wide(plan, &model->program, model->params[i].value),
                                    .range = frozen ? CT_PLAN_WHOLE : 0,
                                    .dtype = value->dtype,
                                    .shape = value->shape,
                                    .bytes = value->bytes,
                                    .held_shape = value->shape,
                                    .held_bytes = value->bytes};
        if (plan->sliced != NULL)
            unslice(&plan->tensors[i], &plan->sliced[i]);
        (void)set_stages(plan, split, model->params[i].value, &plan->tensors[i]);
    }
}

/* Buffers in the model's order, at places within their own range for now. */
static void list_buffers(struct ct_plan *plan, const struct ct_model *model,
                         const struct ct_stage_split *split)
{
    for (int i = 0; i < model->buffer_count; i++) {
        const struct ct_value *value = &model->program.values[model->buffers[i].value];
        plan->tensors[plan->param_count + i] =
            (struct ct_plan_tensor){.name = value->name,
                                    .dtype = value->dtype,
                                    .shape = value->shape,
                                    .range = CT_PLAN_WHOLE,
                                    .flat_bytes = plan->buffer_bytes,
                                    .bytes = value->bytes,
                                    .held_shape = value->shape,
                                    .held_bytes = value->bytes};
        if (set_stages(plan, split, model->buffers[i].value, &plan->tensors[plan->param_count + i]))
            plan->buffer_bytes += ct_plan_align(value->bytes);
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
            if (!ct_plan_in_bucket(plan, bucket, i))
                continue;
            plan->order[plan->order_count++] = i;
            plan->tensors[i].flat_bytes = plan->tensors[i].offset_bytes = plan->flat_bytes;
            plan->flat_bytes += ct_plan_align(plan->tensors[i].held_bytes);
        }
        plan->flat_bytes = bucket->offset_bytes +
                           (plan->flat_bytes - bucket->offset_bytes + unit - 1) / unit * unit;
        bucket->bytes = plan->flat_bytes - bucket->offset_bytes;
    }
    plan->shard_bytes = plan->flat_bytes / (size_t)plan->shards;
}

/* Behind the parameters that learn, of which this rank may hold a part. */
static void lay_frozen(struct ct_plan *plan)
{
    size_t begin = ct_plan_is_sharded(plan, 0) ? plan->shard_bytes : plan->flat_bytes;

    for (int i = plan->param_count - 1; i >= 0; i--) {
        struct ct_plan_tensor *tensor = &plan->tensors[i];
        if (tensor->range != CT_PLAN_WHOLE)
            continue;
        tensor->flat_bytes = plan->flat_bytes + plan->frozen_bytes;
        tensor->offset_bytes = begin + plan->frozen_bytes;
        plan->frozen_bytes += ct_plan_align(tensor->held_bytes);
    }
}

bool ct_plan_is_sharded(const struct ct_plan *plan, int range)
{
    return plan->shards > 1 &&
           (range > 0 || (range == 0 && plan->options.shard >= CT_PLAN_SHARD_GRAD));
}

size_t ct_plan_range_offset(const struct ct_plan *plan, int range)
{
    size_t offset = range > 0 ? plan->frozen_bytes + plan->buffer_bytes : 0;

    for (int i = 0; i < range; i++)
        offset += ct_plan_is_sharded(plan, i) ? plan->shard_bytes : plan->flat_bytes;
    return offset;
}

struct ct_plan_part ct_plan_part(const struct ct_plan *plan, int bucket, int part)
{
    const struct ct_bucket *b = &plan->buckets[bucket];
    size_t shards = (size_t)plan->shards, bytes = b->bytes / shards;

    return (struct ct_plan_part){.flat_bytes = b->offset_bytes + (size_t)part % shards * bytes,
                                 .shard_bytes = b->offset_bytes / shards,
                                 .bytes = bytes};
}

/* Moment number `moment` of every parameter that learns, from tensors[first] on. */
static int list_moments(struct ct_plan *plan, int moment, int first, struct ct_error *err)
{
    const char *prefix = ct_plan_moment_name(&plan->options.optim, moment);

    for (int i = 0; i < plan->param_count; i++) {
        if (!plan->tensors[i].learns)
            continue;
        struct ct_plan_tensor *tensor = &plan->tensors[first++];
        *tensor = plan->tensors[i];
        tensor->is_param = false;
        tensor->range = tensor->range < 0 ? tensor->range : moment + 1;
        tensor->offset_bytes +=
            plan->frozen_bytes + plan->buffer_bytes + plan->flat_bytes * (size_t)(moment + 1);
        tensor->name = ct_arena_printf(&plan->memory, "%s.%s", prefix, tensor->name);
        if (tensor->name == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for the name of a tensor");
    }
    return 0;
}

/* Names that live as long as the plan, and the buffers' places in the arena. */
static int name_tensors(struct ct_plan *plan, struct ct_error *err)
{
    for (int i = 0; i < plan->param_count + plan->buffer_count; i++) {
        plan->tensors[i].name = ct_arena_strdup(&plan->memory, plan->tensors[i].name);
        if (plan->tensors[i].name == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory for the name of a tensor");
    }
    return 0;
}

static void place_buffers(struct ct_plan *plan)
{
    size_t begin = ct_plan_is_sharded(plan, 0) ? plan->shard_bytes : plan->flat_bytes;

    for (int i = plan->param_count; i < plan->param_count + plan->buffer_count; i++)
        plan->tensors[i].offset_bytes = begin + plan->frozen_bytes + plan->tensors[i].flat_bytes;
}

int ct_plan_layout(struct ct_plan *plan, const struct ct_model *model,
                   const struct ct_stage_split *split, struct ct_error *err)
{
    size_t room;
    int code;

    plan->param_count = model->param_count;
    plan->moment_count = ct_plan_moments(&plan->options.optim);
    plan->buffer_count = model->buffer_count;
    room =
        (size_t)plan->param_count * (size_t)(1 + plan->moment_count) + (size_t)plan->buffer_count;
    plan->tensors = ct_arena_array(&plan->memory, room, sizeof *plan->tensors);
    plan->order = ct_arena_array(&plan->memory, (size_t)plan->param_count, sizeof *plan->order);
    if (plan->tensors == NULL || plan->order == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a table of %zu tensors", room);
    list_params(plan, model, split);
    if (plan->learned_count == 0)
        return ct_error_set(err, CT_ECONFIG,
                            "optim.freeze matches all %d parameters: nothing is left to train",
                            plan->param_count);
    list_buffers(plan, model, split);
    int first = plan->param_count + plan->buffer_count;
    plan->tensor_count = first + plan->learned_count * plan->moment_count;
    code = ct_plan_make_buckets(plan, err);
    if (code == 0)
        code = name_tensors(plan, err);
    if (code != 0)
        return code;
    if (plan->bucket_count == 0)
        return ct_error_set(err, CT_ECONFIG,
                            "optim.freeze leaves stage %d of the pipeline nothing to train",
                            plan->place.stage);
    lay_buckets(plan);
    lay_frozen(plan);
    place_buffers(plan);
    for (int i = 0; i < plan->moment_count && code == 0; i++)
        code = list_moments(plan, i, first + i * plan->learned_count, err);
    plan->state_bytes = ct_plan_range_offset(plan, 1 + plan->moment_count);
    plan->grads_bytes =
        plan->state_bytes + (plan->shards > 1 ? plan->shard_bytes : plan->flat_bytes);
    return code;
}
