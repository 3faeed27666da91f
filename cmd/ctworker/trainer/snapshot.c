/* See snapshot.h. */
#include "snapshot.h"

#include "base/assert.h"

#include <stdlib.h>

_Static_assert((int)CT_MAX_DIMS <= (int)CT_ST_MAX_DIMS, "every tensor can be saved");

int ct_snapshot_init(struct ct_snapshot *ret, const struct ct_plan *plan, struct ct_error *err)
{
    size_t count = (size_t)plan->tensor_count, params = (size_t)plan->param_count;
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += plan->tensors[i].bytes;
    CT_ASSERT(bytes > 0);
    struct ct_snapshot snapshot = {.tensors = calloc(count, sizeof *snapshot.tensors),
                                   .memory = malloc(bytes)};
    if (snapshot.tensors == NULL || snapshot.memory == NULL) {
        ct_snapshot_deinit(&snapshot);
        return ct_error_set(err, CT_ENOMEM, "out of memory for a checkpoint of %zu bytes", bytes);
    }
    char *at = snapshot.memory;
    for (size_t i = 0; i < count; i++) {
        const struct ct_plan_tensor *from = &plan->tensors[i];
        struct ct_st_tensor *to = &snapshot.tensors[i];
        *to = (struct ct_st_tensor){.name = from->name,
                                    .dtype = from->dtype,
                                    .dims = (uint32_t)from->shape.dims,
                                    .data = at};
        for (int dim = 0; dim < from->shape.dims; dim++)
            to->shape[dim] = (uint64_t)from->shape.dim[dim];
        CT_ASSERT(ct_st_bytes(to) == from->bytes);
        at += from->bytes;
    }
    snapshot.files[0] = (struct ct_ckpt_file){"model.safetensors", snapshot.tensors, params};
    snapshot.files[1] =
        (struct ct_ckpt_file){"optim.safetensors", snapshot.tensors + params, count - params};
    *ret = snapshot;
    return 0;
}

void ct_snapshot_deinit(struct ct_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    free(snapshot->tensors);
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
