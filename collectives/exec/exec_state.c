/* See exec.h: what survives steps, as the tensors that people know.
 *
 *     collect   pieces of rank 1, of rank 2, ...  --packets-->  tensors at rank 0
 *     spread    tensors at rank 0  --broadcast-->  each rank keeps what it holds
 *
 * Both go in chunks of CT_EXEC_CHUNK_BYTES, and by the plan's pieces alone: no layout is known
 * here. */
#include "collectives/exec/executor.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <math.h>
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
    ct_device_copy_out(exec->device, data, exec->arena + t->offset_bytes, t->held_bytes);
}

void ct_exec_write(struct ct_exec *exec, int tensor, const void *data)
{
    const struct ct_plan_tensor *t = tensor_at(exec, tensor, exec->plan->tensor_count);

    CT_ASSERT(!ct_plan_is_sharded(exec->plan, t->range));
    ct_device_copy_in(exec->device, exec->arena + t->offset_bytes, data, t->held_bytes);
}

void ct_exec_read_grad(struct ct_exec *exec, int tensor, void *data)
{
    const struct ct_plan_tensor *t = tensor_at(exec, tensor, exec->plan->param_count);

    CT_ASSERT(exec->plan->shards == 1 && t->range >= 0);
    ct_device_copy_out(exec->device, data, exec->arena + exec->plan->state_bytes + t->flat_bytes,
                       t->held_bytes);
}

void ct_exec_take(struct ct_exec *exec, const struct ct_plan_piece *piece, void *data)
{
    CT_ASSERT(piece->arena + piece->bytes <= exec->plan->state_bytes);
    ct_device_copy_out(exec->device, data, exec->arena + piece->arena, piece->bytes);
}

void ct_exec_put(struct ct_exec *exec, const struct ct_plan_piece *piece, const void *data)
{
    CT_ASSERT(piece->arena + piece->bytes <= exec->plan->state_bytes);
    ct_device_copy_in(exec->device, exec->arena + piece->arena, data, piece->bytes);
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
        return is_finite_at(exec, t->dtype, t->flat_bytes, t->held_bytes);
    for (int k = 0; k < plan->bucket_count && finite; k++) {
        struct ct_plan_part own = ct_plan_part(plan, k, plan->place.part);
        size_t low = CT_MAX(t->flat_bytes, own.flat_bytes);
        size_t high = CT_MIN(t->flat_bytes + t->held_bytes, own.flat_bytes + own.bytes);
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
        if (t->range < 0 || gradient_is_finite(exec, t))
            continue;
        first = i;
        count++;
    }
    *ret_count = count;
    return first;
}

/* ---- the average ---------------------------------------------------------------------------- */

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

int ct_exec_share_state(struct ct_exec *exec, int base, struct ct_error *err)
{
    struct ct_group *group = exec->options.group;
    bool on_host = exec->device->table->on_host;
    size_t bytes = exec->plan->state_bytes, most = on_host ? bytes : CT_EXEC_CHUNK_BYTES;
    int code = 0;

    if (group == NULL)
        return 0;
    for (size_t at = 0; at < bytes && code == 0; at += most) {
        size_t size = CT_MIN(bytes - at, most);
        void *data = on_host ? exec->arena : exec->chunk;
        if (!on_host && ct_group_rank(group) == base)
            ct_device_copy_out(exec->device, data, exec->arena + at, size);
        code = ct_broadcast(group, ct_inplace(data, size, CT_U8), base, NULL);
        if (code == 0 && !on_host)
            ct_device_copy_in(exec->device, exec->arena + at, data, size);
    }
    return ct_group_explain(group, code, err);
}

static uint64_t digest_of(struct ct_exec *exec, size_t at, size_t bytes, uint64_t digest)
{
    for (size_t done = 0; done < bytes; done += CT_EXEC_CHUNK_BYTES) {
        size_t size = CT_MIN(bytes - done, (size_t)CT_EXEC_CHUNK_BYTES);
        ct_device_copy_out(exec->device, exec->chunk, exec->arena + at + done, size);
        digest = ct_hash64(exec->chunk, size, digest);
    }
    return digest;
}

uint64_t ct_exec_digest(struct ct_exec *exec)
{
    uint64_t digest = 0;

    CT_ASSERT(ct_plan_holds_all(exec->plan));
    for (int i = 0; i < exec->plan->tensor_count; i++)
        digest = digest_of(exec, exec->plan->tensors[i].offset_bytes, exec->plan->tensors[i].bytes,
                           digest);
    return digest;
}

/* ---- in common with others ------------------------------------------------------------------- */

/* Who holds the same of tensor `t`: where they stand, as far as that makes a difference. */
static uint64_t holders_of(const struct ct_plan *plan, const struct ct_plan_tensor *t, int stage)
{
    const struct ct_mesh *mesh = &plan->mesh;
    uint64_t part = ct_plan_is_sharded(plan, t->range) ? (uint64_t)plan->place.part : 0;
    uint64_t slice = t->split.size != 0 ? (uint64_t)plan->place.slice : 0;

    return 1 + ((uint64_t)stage * (uint64_t)mesh->shards + part) * (uint64_t)mesh->tensor + slice;
}

static void add_common(struct ct_exec *exec, struct ct_exec_common *ret, int kind, uint64_t holders,
                       const struct ct_plan_piece *piece)
{
    if (ret->holders[kind] == 0)
        ret->holders[kind] = holders;
    if (ret->holders[kind] == holders)
        ret->digest[kind] = digest_of(exec, piece->arena, piece->bytes, ret->digest[kind]);
}

void ct_exec_common(struct ct_exec *exec, struct ct_exec_common *ret)
{
    const struct ct_plan *plan = exec->plan;
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;

    *ret = (struct ct_exec_common){.holders = {0}};
    for (ct_plan_walk_init(&walk, plan); ct_plan_walk_next(&walk, &piece);) {
        const struct ct_plan_tensor *t = &plan->tensors[piece.tensor];
        bool part = ct_plan_is_sharded(plan, t->range), slice = t->split.size != 0;
        int kind = (part ? CT_EXEC_PART : CT_EXEC_WHOLE) + (slice ? CT_EXEC_SLICE : 0);
        add_common(exec, ret, kind, holders_of(plan, t, plan->place.stage), &piece);
        if (t->twin != CT_PLAN_NO_STAGE && !part)
            add_common(exec, ret, CT_EXEC_TIED,
                       holders_of(plan, t, t->stage * plan->mesh.stages + t->twin), &piece);
    }
}

/* ---- together -------------------------------------------------------------------------------- */

/* A message of a collection: items one behind the other, each followed by its bytes. */
struct packet {
    uint64_t used; /* bytes of the items */
    uint64_t last; /* 1: this rank has no more */
};

struct item {
    uint64_t tensor, at, bytes;
};

/* The next piece that this rank gives: it is the first of those that hold it. */
static bool next_sent(struct ct_plan_walk *walk, struct ct_plan_piece *piece)
{
    while (ct_plan_walk_next(walk, piece))
        if (piece->copy == 0 && piece->bytes > 0)
            return true;
    return false;
}

/* Fill exec->chunk with what is left of `piece` and with those behind it; whether any is left. */
static bool fill(struct ct_exec *exec, struct ct_plan_walk *walk, struct ct_plan_piece *piece,
                 bool more)
{
    struct packet packet = {0};
    char *at = exec->chunk + sizeof packet, *end = exec->chunk + CT_EXEC_CHUNK_BYTES;

    while (more && at + sizeof(struct item) < end) {
        size_t size = CT_MIN(piece->bytes, (size_t)(end - at) - sizeof(struct item));
        const struct item item = {(uint64_t)piece->tensor, piece->at, size};
        memcpy(at, &item, sizeof item);
        ct_device_copy_out(exec->device, at + sizeof item, exec->arena + piece->arena, size);
        at += sizeof item + size;
        piece->at += size;
        piece->arena += size;
        piece->bytes -= size;
        more = piece->bytes > 0 || next_sent(walk, piece);
    }
    packet.used = (uint64_t)(at - exec->chunk) - sizeof packet;
    packet.last = !more;
    memcpy(exec->chunk, &packet, sizeof packet);
    return more;
}

/* Send to rank 0 what it does not hold itself and this rank is to give. */
static int send_held(struct ct_exec *exec)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece = {0};
    int code = 0;

    ct_plan_walk_init(&walk, exec->plan);
    bool more = next_sent(&walk, &piece), sent = false;
    for (; code == 0 && (more || !sent); sent = true) {
        more = fill(exec, &walk, &piece, more);
        code = ct_send(exec->options.group, ct_inplace(exec->chunk, CT_EXEC_CHUNK_BYTES, CT_U8), 0,
                       NULL);
    }
    return code;
}

/* Put the items of the packet in exec->chunk where they belong; whether it is its sender's last. */
static bool store_packet(const struct ct_exec *exec, void *const *data)
{
    struct packet packet;
    struct item item;
    const char *at = exec->chunk + sizeof packet;

    memcpy(&packet, exec->chunk, sizeof packet);
    CT_ASSERT(packet.used <= CT_EXEC_CHUNK_BYTES - sizeof packet);
    for (const char *end = at + packet.used; at < end; at += item.bytes) {
        memcpy(&item, at, sizeof item);
        at += sizeof item;
        CT_ASSERT(item.tensor < (uint64_t)exec->plan->tensor_count &&
                  item.at + item.bytes <= exec->plan->tensors[item.tensor].bytes &&
                  item.bytes <= (uint64_t)(end - at));
        memcpy((char *)data[item.tensor] + item.at, at, item.bytes);
    }
    return packet.last != 0;
}

static int receive_all(struct ct_exec *exec, void *const *data)
{
    struct ct_group *group = exec->options.group;
    int code = 0;

    for (int rank = 1; rank < exec->plan->options.world && code == 0; rank++)
        for (bool last = false; code == 0 && !last;) {
            code = ct_recv(group, ct_inplace(exec->chunk, CT_EXEC_CHUNK_BYTES, CT_U8), rank, NULL);
            last = code == 0 && store_packet(exec, data);
        }
    return code;
}

int ct_exec_collect(struct ct_exec *exec, void *const *data, struct ct_error *err)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;
    int code = 0;

    if (data != NULL)
        for (ct_plan_walk_init(&walk, exec->plan); ct_plan_walk_next(&walk, &piece);)
            ct_exec_take(exec, &piece, (char *)data[piece.tensor] + piece.at);
    if (!ct_plan_holds_all(exec->plan))
        code = data != NULL ? receive_all(exec, data) : send_held(exec);
    return ct_group_explain(exec->options.group, code, err);
}

/* exec->chunk holds `size` bytes of a tensor from `at` on: keep those that this rank holds. */
static void keep(struct ct_exec *exec, int tensor, size_t at, size_t size)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;

    for (ct_plan_walk_tensor(&walk, exec->plan, tensor); ct_plan_walk_next(&walk, &piece);) {
        size_t low = CT_MAX(at, piece.at), high = CT_MIN(at + size, piece.at + piece.bytes);
        if (low < high)
            ct_device_copy_in(exec->device, exec->arena + piece.arena + (low - piece.at),
                              exec->chunk + (low - at), high - low);
    }
}

int ct_exec_spread(struct ct_exec *exec, void *const *data, struct ct_error *err)
{
    const struct ct_plan *plan = exec->plan;
    struct ct_group *group = exec->options.group;
    int code = 0;

    for (int i = 0; i < plan->tensor_count; i++) {
        size_t bytes = plan->tensors[i].bytes;
        for (size_t at = 0; at < bytes && code == 0; at += CT_EXEC_CHUNK_BYTES) {
            size_t size = CT_MIN(bytes - at, (size_t)CT_EXEC_CHUNK_BYTES);
            if (data != NULL)
                memcpy(exec->chunk, (const char *)data[i] + at, size);
            if (group != NULL)
                code = ct_broadcast(group, ct_inplace(exec->chunk, size, CT_U8), 0, NULL);
            if (code == 0)
                keep(exec, i, at, size);
        }
    }
    return ct_group_explain(group, code, err);
}
