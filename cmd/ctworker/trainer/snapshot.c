/* See snapshot.h. */
#include "snapshot.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)CT_MAX_DIMS <= (int)CT_ST_MAX_DIMS, "every tensor can be saved");

static struct ct_st_tensor describe(const struct ct_plan_tensor *from, char *data)
{
    struct ct_st_tensor to = {
        .name = from->name, .dtype = from->dtype, .dims = (uint32_t)from->shape.dims, .data = data};

    for (int dim = 0; dim < from->shape.dims; dim++)
        to.shape[dim] = (uint64_t)from->shape.dim[dim];
    CT_ASSERT(ct_st_bytes(&to) == from->bytes);
    return to;
}

/* Parameters and buffers: what a model is. */
static size_t model_count(const struct ct_plan *plan)
{
    return (size_t)plan->param_count + (size_t)plan->buffer_count;
}

/* The average under the parameters' names; what does not learn is its own average. */
static void describe_average(struct ct_snapshot *snapshot, const struct ct_plan *plan)
{
    struct ct_st_tensor *tensors = snapshot->tensors + plan->tensor_count;
    const struct ct_st_tensor *average = tensors - plan->learned_count;

    for (size_t i = 0; i < model_count(plan); i++) {
        tensors[i] = snapshot->tensors[i];
        if (plan->tensors[i].learns)
            tensors[i].data = (average++)->data;
    }
    snapshot->files[snapshot->file_count++] =
        (struct ct_ckpt_file){"ema.safetensors", tensors, model_count(plan)};
}

int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err)
{
    size_t count = (size_t)plan->tensor_count, model = model_count(plan);
    bool averages = plan->options.optim.ema > 0;
    size_t moments = count - model - (averages ? (size_t)plan->learned_count : 0), bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += plan->tensors[i].bytes;
    CT_ASSERT(bytes > 0);
    struct ct_snapshot snapshot = {.tensors = calloc(count + model, sizeof *snapshot.tensors),
                                   .data = calloc(count, sizeof *snapshot.data),
                                   .memory = malloc(bytes)};
    if (snapshot.tensors == NULL || snapshot.data == NULL || snapshot.memory == NULL) {
        ct_snapshot_deinit(&snapshot);
        return ct_error_set(err, CT_ENOMEM, "out of memory for a checkpoint of %zu bytes", bytes);
    }
    char *at = snapshot.memory;
    for (size_t i = 0; i < count; i++) {
        snapshot.tensors[i] = describe(&plan->tensors[i], at);
        snapshot.data[i] = at;
        at += plan->tensors[i].bytes;
    }
    snapshot.files[snapshot.file_count++] =
        (struct ct_ckpt_file){"model.safetensors", snapshot.tensors, model};
    snapshot.files[snapshot.file_count++] =
        (struct ct_ckpt_file){"optim.safetensors", snapshot.tensors + model, moments};
    if (averages)
        describe_average(&snapshot, plan);
    *ret = snapshot;
    return 0;
}

void ct_snapshot_start_average(struct ct_snapshot *snapshot, const struct ct_plan *plan)
{
    const struct ct_st_tensor *average = snapshot->tensors + plan->tensor_count;

    for (int i = 0; i < plan->param_count; i++)
        if (plan->tensors[i].learns)
            memcpy(average[i].data, snapshot->tensors[i].data, plan->tensors[i].bytes);
}

void ct_snapshot_deinit(struct ct_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    free(snapshot->tensors);
    free(snapshot->data);
    free(snapshot->memory);
    *snapshot = (struct ct_snapshot){.tensors = NULL};
}

void ct_snapshot_take(struct ct_snapshot *snapshot, const struct ct_plan *plan,
                      struct ct_exec *exec)
{
    for (int i = 0; i < plan->tensor_count; i++)
        ct_exec_read(exec, i, snapshot->tensors[i].data);
}

void ct_snapshot_put(const struct ct_snapshot *snapshot, const struct ct_plan *plan,
                     struct ct_exec *exec)
{
    for (int i = 0; i < plan->tensor_count; i++)
        ct_exec_write(exec, i, snapshot->tensors[i].data);
}
