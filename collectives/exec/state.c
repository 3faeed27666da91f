/* See exec.h: what survives steps, as the tensors that people know.
 *
 *     collect   part of rank 0 | part of rank 1 | ...  --gather-->  tensors at rank 0
 *     spread    tensors at rank 0  --broadcast-->  each rank keeps what it holds
 *
 * Both go in pieces of CT_EXEC_CHUNK_BYTES. */
#include "collectives/exec/executor.h"

#include "base/assert.h"
#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ct_plan_tensor *tensor_at(const struct ct_exec *exec, int tensor, int count)
{
    CT_ASSERT(tensor >= 0 && tensor < count);
    return &exec->plan->tensors[tensor];
}

/* ---- whole on this rank ---------------------------------------------------------------------- */

void ct_exec_read(struct ct_exec *exec, int tensor, void *data)
{
    const struct ct_plan_tensor *t = tensor_at(exec, tensor, exec->plan->tensor_count);

    CT_ASSERT(!ct_plan_is_sharded(exec->plan, t->range));
    ct_device_copy_out(exec->device, data, exec->arena + t->offset_bytes, t->bytes);
}

void ct_exec_write(struct ct_exec *exec, int tensor, const void *data)
{
    const struct ct_plan_tensor *t = tensor_at(exec, tensor, exec->plan->tensor_count);

    CT_ASSERT(!ct_plan_is_sharded(exec->plan, t->range));
    ct_device_copy_in(exec->device, exec->arena + t->offset_bytes, data, t->bytes);
}

void ct_exec_read_grad(struct ct_exec *exec, int tensor, void *data)
{
    const struct ct_plan_tensor *t = tensor_at(exec, tensor, exec->plan->param_count);

    CT_ASSERT(exec->plan->shards == 1 && t->range != CT_PLAN_WHOLE);
    ct_device_copy_out(exec->device, data, exec->arena + exec->plan->state_bytes + t->flat_bytes,
                       t->bytes);
}

/* ---- what is not finite ---------------------------------------------------------------------- */

static bool all_finite(const void *data, enum ct_dtype dtype, size_t bytes)
{
    bool finite = true;

    if (dtype == CT_F32)
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            finite = finite && isfinite(((const float *)data)[i]);
    else
        for (size_t i = 0; i < bytes / sizeof(double); i++)
            finite = finite && isfinite(((const double *)data)[i]);
    return finite;
}

/* `bytes` of the gradients, `at` from where they begin on this rank. */
static bool is_finite_at(struct ct_exec *exec, enum ct_dtype dtype, size_t at, size_t bytes)
{
    const char *from = exec->arena + exec->plan->state_bytes + at;
    bool finite = true;

    for (size_t done = 0; done < bytes && finite; done += CT_EXEC_CHUNK_BYTES) {
        size_t size = CT_MIN(bytes - done, (size_t)CT_EXEC_CHUNK_BYTES);
        ct_device_copy_out(exec->device, exec->chunk, from + done, size);
        finite = all_finite(exec->chunk, dtype, size);
    }
    return finite;
}

static bool gradient_is_finite(struct ct_exec *exec, const struct ct_plan_tensor *t)
{
    const struct ct_plan *plan = exec->plan;
    bool finite = true;

    if (plan->shards == 1)
        return is_finite_at(exec, t->dtype, t->flat_bytes, t->bytes);
    for (int k = 0; k < plan->bucket_count && finite; k++) {
        struct ct_plan_part own = ct_plan_part(plan, k, plan->options.rank);
        size_t low = CT_MAX(t->flat_bytes, own.flat_bytes);
        size_t high = CT_MIN(t->flat_bytes + t->bytes, own.flat_bytes + own.bytes);
        if (low < high)
            finite =
                is_finite_at(exec, t->dtype, own.shard_bytes + (low - own.flat_bytes), high - low);
    }
    return finite;
}

int ct_exec_bad_gradient(struct ct_exec *exec, int *ret_count)
{
    int first = -1, count = 0;

    for (int i = exec->plan->param_count - 1; i >= 0; i--) {
        const struct ct_plan_tensor *t = &exec->plan->tensors[i];
        if (t->range == CT_PLAN_WHOLE || gradient_is_finite(exec, t))
            continue;
        first = i;
        count++;
    }
    *ret_count = count;
    return first;
}

/* ---- the average ------------------------------------------------------------------------------
 */

void ct_exec_swap_average(struct ct_exec *exec)
{
    enum { HALF = CT_EXEC_CHUNK_BYTES / 2 };
    const struct ct_plan *plan = exec->plan;
    bool sharded = ct_plan_is_sharded(plan, 0);
    size_t bytes = sharded ? plan->shard_bytes : plan->flat_bytes;
    char *params = exec->arena, *other = exec->chunk + HALF;
    char *average = exec->arena + ct_plan_range_offset(plan, plan->moment_count);

    CT_ASSERT(plan->options.optim.ema > 0 &&
              sharded == ct_plan_is_sharded(plan, plan->moment_count));
    for (size_t at = 0; at < bytes; at += HALF) {
        size_t size = CT_MIN(bytes - at, (size_t)HALF);
        ct_device_copy_out(exec->device, exec->chunk, params + at, size);
        ct_device_copy_out(exec->device, other, average + at, size);
        ct_device_copy_in(exec->device, params + at, other, size);
        ct_device_copy_in(exec->device, average + at, exec->chunk, size);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void *ct_exec_state(struct ct_exec *exec)
{
    return exec->arena;
}

uint64_t ct_exec_digest(struct ct_exec *exec)
{
    uint64_t digest = 0;

    CT_ASSERT(exec->plan->shards == 1);
    for (int i = 0; i < exec->plan->tensor_count; i++) {
        const struct ct_plan_tensor *t = &exec->plan->tensors[i];
        for (size_t at = 0; at < t->bytes; at += CT_EXEC_CHUNK_BYTES) {
            size_t size = CT_MIN(t->bytes - at, (size_t)CT_EXEC_CHUNK_BYTES);
            ct_device_copy_out(exec->device, exec->chunk, exec->arena + t->offset_bytes + at, size);
            digest = ct_hash64(exec->chunk, size, digest);
        }
    }
    return digest;
}

uint64_t ct_exec_digest_tensors(const struct ct_plan *plan, void *const *data)
{
    uint64_t digest = 0;

    for (int i = 0; i < plan->tensor_count; i++)
        for (size_t at = 0; at < plan->tensors[i].bytes; at += CT_EXEC_CHUNK_BYTES) {
            size_t size = CT_MIN(plan->tensors[i].bytes - at, (size_t)CT_EXEC_CHUNK_BYTES);
            digest = ct_hash64((const char *)data[i] + at, size, digest);
        }
    return digest;
}

/* ---- together -------------------------------------------------------------------------------- */

static int tell(const struct ct_exec *exec, enum ct_axis axis, int code, struct ct_error *err)
{
    if (code != 0 && err != NULL)
        *err = *ct_group_failure(exec->groups[axis]);
    return code;
}

/* `bytes` of the flat range `range` from `begin` on, which lie in one bucket, go to the tensors. */
static void deal(const struct ct_plan *plan, int range, size_t begin, const char *from,
                 size_t bytes, void *const *data)
{
    for (int i = 0; i < plan->tensor_count; i++) {
        const struct ct_plan_tensor *t = &plan->tensors[i];
        size_t low = CT_MAX(begin, t->flat_bytes);
        size_t high = CT_MIN(begin + bytes, t->flat_bytes + t->bytes);
        if (t->range == range && low < high)
            memcpy((char *)data[i] + (low - t->flat_bytes), from + (low - begin), high - low);
    }
}

/* `all` has room for a chunk of each rank, at rank 0. */
static int collect_bucket(struct ct_exec *exec, int range, int bucket, char *all, void *const *data,
                          struct ct_error *err)
{
    const struct ct_plan *plan = exec->plan;
    struct ct_plan_part own = ct_plan_part(plan, bucket, plan->options.rank);
    const char *from = exec->arena + ct_plan_range_offset(plan, range) + own.shard_bytes;
    int code = 0;

    for (size_t at = 0; at < own.bytes && code == 0; at += CT_EXEC_CHUNK_BYTES) {
        size_t size = CT_MIN(own.bytes - at, (size_t)CT_EXEC_CHUNK_BYTES);
        ct_device_copy_out(exec->device, exec->chunk, from + at, size);
        code = ct_gather(exec->groups[CT_AXIS_SHARD], ct_from_to(exec->chunk, all, size, CT_U8), 0,
                         NULL);
        for (int rank = 0; rank < plan->shards && code == 0 && data != NULL; rank++)
            deal(plan, range, ct_plan_part(plan, bucket, rank).flat_bytes + at,
                 all + (size_t)rank * size, size, data);
    }
    return tell(exec, CT_AXIS_SHARD, code, err);
}

int ct_exec_collect(struct ct_exec *exec, void *const *data, struct ct_error *err)
{
    const struct ct_plan *plan = exec->plan;
    char *all = NULL;
    int code = 0;

    for (int i = 0; i < plan->tensor_count && data != NULL; i++)
        if (!ct_plan_is_sharded(plan, plan->tensors[i].range))
            ct_exec_read(exec, i, data[i]);
    if (plan->shards == 1 || plan->options.rank >= plan->shards) /* rank 0's copy is enough */
        return 0;
    if (data != NULL) {
        all = malloc((size_t)plan->shards * CT_EXEC_CHUNK_BYTES);
        if (all == NULL)
            return ct_error_set(err, CT_ENOMEM, "no memory to collect the parts of %d ranks",
                                plan->shards);
    }
    for (int range = 0; range <= plan->moment_count && code == 0; range++)
        for (int k = 0; k < plan->bucket_count && code == 0; k++)
            if (ct_plan_is_sharded(plan, range))
                code = collect_bucket(exec, range, k, all, data, err);
    free(all);
    return code;
}

/* exec->chunk holds `size` bytes of a tensor from `at` on: keep those that this rank holds. */
static void keep(struct ct_exec *exec, const struct ct_plan_tensor *t, size_t at, size_t size)
{
    const struct ct_plan *plan = exec->plan;
    size_t begin = t->flat_bytes + at;

    if (!ct_plan_is_sharded(plan, t->range)) {
        ct_device_copy_in(exec->device, exec->arena + t->offset_bytes + at, exec->chunk, size);
        return;
    }
    char *to = exec->arena + ct_plan_range_offset(plan, t->range);
    for (int k = 0; k < plan->bucket_count; k++) {
        struct ct_plan_part own = ct_plan_part(plan, k, plan->options.rank);
        size_t low = CT_MAX(begin, own.flat_bytes);
        size_t high = CT_MIN(begin + size, own.flat_bytes + own.bytes);
        if (low < high)
            ct_device_copy_in(exec->device, to + own.shard_bytes + (low - own.flat_bytes),
                              exec->chunk + (low - begin), high - low);
    }
}

int ct_exec_spread(struct ct_exec *exec, void *const *data, struct ct_error *err)
{
    const struct ct_plan *plan = exec->plan;
    struct ct_group *group = exec->groups[CT_AXIS_WORLD];
    int code = 0;

    for (int i = 0; i < plan->tensor_count; i++) {
        const struct ct_plan_tensor *t = &plan->tensors[i];
        for (size_t at = 0; at < t->bytes && code == 0; at += CT_EXEC_CHUNK_BYTES) {
            size_t size = CT_MIN(t->bytes - at, (size_t)CT_EXEC_CHUNK_BYTES);
            if (data != NULL)
                memcpy(exec->chunk, (const char *)data[i] + at, size);
            if (group != NULL)
                code = ct_broadcast(group, ct_inplace(exec->chunk, size, CT_U8), 0, NULL);
            if (code == 0)
                keep(exec, t, at, size);
        }
    }
    return tell(exec, CT_AXIS_WORLD, code, err);
}
