/* See snapshot.h. */
#include "snapshot.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)CT_MAX_DIMS <= (int)CT_ST_MAX_DIMS, "every tensor can be saved");

static struct ct_st_tensor describe(const struct ct_plan_tensor *from)
{
    struct ct_st_tensor to = {
        .name = from->name, .dtype = from->dtype, .dims = (uint32_t)from->shape.dims};

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
    size_t first = (size_t)plan->tensor_count;
    int average = plan->tensor_count - plan->learned_count;

    for (size_t i = 0; i < model_count(plan); i++) {
        bool learns = plan->tensors[i].learns;
        snapshot->tensors[first + i] = snapshot->tensors[i];
        snapshot->number[first + i] = learns ? average++ : (int)i;
    }
    snapshot->files[snapshot->file_count++] =
        (struct ct_ckpt_file){"ema.safetensors", snapshot->tensors + first, model_count(plan)};
}

int ct_snapshot_describe(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err)
{
    size_t count = (size_t)plan->tensor_count, model = model_count(plan);
    bool averages = plan->options.optim.ema > 0;
    size_t moments = count - model - (averages ? (size_t)plan->learned_count : 0);
    struct ct_snapshot snapshot = {.tensors = calloc(count + model, sizeof *snapshot.tensors),
                                   .number = calloc(count + model, sizeof *snapshot.number)};

    if (snapshot.tensors == NULL || snapshot.number == NULL) {
        ct_snapshot_deinit(&snapshot);
        (void)ct_error_set(err, CT_ENOMEM, "out of memory for the files of a checkpoint");
        return CT_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        snapshot.tensors[i] = describe(&plan->tensors[i]);
        snapshot.number[i] = (int)i;
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

int ct_snapshot_hold(struct ct_snapshot *snapshot, const struct ct_plan *plan, struct ct_error *err)
{
    size_t count = (size_t)plan->tensor_count, bytes = 0;
    size_t entries = count + (plan->options.optim.ema > 0 ? model_count(plan) : 0);

    if (snapshot->memory != NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        bytes += plan->tensors[i].bytes;
    CT_ASSERT(bytes > 0);
    snapshot->data = calloc(count, sizeof *snapshot->data);
    snapshot->memory = malloc(bytes);
    if (snapshot->data == NULL || snapshot->memory == NULL) {
        ct_snapshot_release(snapshot);
        return ct_error_set(err, CT_ENOMEM, "out of memory for a checkpoint of %zu bytes", bytes);
    }
    char *at = snapshot->memory;
    for (size_t i = 0; i < count; at += plan->tensors[i++].bytes)
        snapshot->data[i] = at;
    for (size_t i = 0; i < entries; i++)
        snapshot->tensors[i].data = snapshot->data[snapshot->number[i]];
    return 0;
}

void ct_snapshot_release(struct ct_snapshot *snapshot)
{
    free(snapshot->data);
    free(snapshot->memory);
    snapshot->data = NULL;
    snapshot->memory = NULL;
}

int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err)
{
    struct ct_snapshot snapshot = {.tensors = NULL};
    int code = ct_snapshot_describe(&snapshot, plan, err);

    if (code == 0)
        code = ct_snapshot_hold(&snapshot, plan, err);
    if (code != 0)
        ct_snapshot_deinit(&snapshot);
    else
        *ret = snapshot;
    return code;
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
    ct_snapshot_release(snapshot);
    free(snapshot->tensors);
    free(snapshot->number);
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
