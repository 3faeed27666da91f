/* See local.h: the collectives, as a table of what a rank writes and reads in each round. */
#include "backend/local.h"

#include "base/assert.h"
#include "reduce.h"

#include <string.h>

/* One collective. Round k of an operation is round number `n` of the group. */
struct algorithm {
    size_t (*rounds)(const struct ct_local *local, const struct ct_task *task);
    /* Write this rank's part of round k. */
    void (*stage)(struct ct_local *local, struct ct_task *task, size_t k);
    /* Read the others'; they have posted the round, or the root alone has. */
    void (*consume)(struct ct_local *local, struct ct_task *task, size_t k);
    bool root_alone;
};

/* A run of elements, in bytes from the start of something. */
struct span {
    size_t at, bytes;
};

static size_t element(const struct ct_task *task)
{
    return ct_dtype_size(task->call.dtype);
}

static size_t chunks_of(size_t bytes, size_t chunk)
{
    return bytes == 0 ? 1 : (bytes + chunk - 1) / chunk;
}

static struct span chunk_at(size_t bytes, size_t chunk, size_t k)
{
    size_t at = CT_MIN(k * chunk, bytes);

    return (struct span){at, CT_MIN(chunk, bytes - at)};
}

/* Rank i's share of a chunk: whole cache lines, the last ones may be short or empty. */
static struct span share_of(const struct ct_local *local, struct span chunk, int i)
{
    size_t lines = (chunk.bytes + 63) / 64;
    size_t share = (lines + (size_t)local->size - 1) / (size_t)local->size * 64;
    size_t at = CT_MIN((size_t)i * share, chunk.bytes);

    return (struct span){at, CT_MIN(share, chunk.bytes - at)};
}

static void copy(char *to, const char *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, bytes);
}

static void reduce(struct ct_local *local, const struct ct_task *task, char *to, size_t bytes)
{
    struct ct_reduction how = ct_reduction_of(&task->call);

    how.divisor = task->call.reduce == CT_REDUCE_AVG ? local->size : 1;
    how.factor = local->factors;
    if (bytes > 0)
        ct_reduce_buffers(&how, to, local->sources, local->size, bytes / element(task));
}

/* The group's number of the operation's round k, while it is in round `now`. */
static uint64_t number(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    return local->round + k - task->at;
}

/* ---- barrier ---------------------------------------------------------------------------------*/

static size_t one_round(const struct ct_local *local, const struct ct_task *task)
{
    (void)local;
    (void)task;
    return 1;
}

static void no_bytes(struct ct_local *local, struct ct_task *task, size_t k)
{
    (void)local;
    (void)task;
    (void)k;
}

/* ---- broadcast -------------------------------------------------------------------------------*/

static size_t broadcast_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(ct_call_bytes(&task->call), local->chunk_bytes);
}

static void broadcast_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    if (local->rank != task->call.peer)
        return;
    copy(ct_local_stage(local, local->rank, number(local, task, k)), task->call.send + chunk.at,
         chunk.bytes);
    copy(task->call.recv + chunk.at, task->call.send + chunk.at, chunk.bytes);
}

static void broadcast_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    if (local->rank != task->call.peer)
        copy(task->call.recv + chunk.at,
             ct_local_stage(local, task->call.peer, number(local, task, k)), chunk.bytes);
}

/* ---- all_gather ------------------------------------------------------------------------------*/

static void gather_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t bytes = ct_call_bytes(&task->call);
    struct span chunk = chunk_at(bytes, local->chunk_bytes, k);
    char *own = task->call.recv + (size_t)local->rank * bytes;

    copy(ct_local_stage(local, local->rank, number(local, task, k)), task->call.send + chunk.at,
         chunk.bytes);
    copy(own + chunk.at, task->call.send + chunk.at, chunk.bytes);
}

/* Each rank begins with its successor, so that not all read from one. */
static void gather_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t bytes = ct_call_bytes(&task->call);
    struct span chunk = chunk_at(bytes, local->chunk_bytes, k);

    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;

        copy(task->call.recv + (size_t)i * bytes + chunk.at,
             ct_local_stage(local, i, number(local, task, k)), chunk.bytes);
    }
}

/* ---- reduce_scatter: a chunk holds a piece for each rank -------------------------------------*/

static size_t scatter_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(ct_call_bytes(&task->call), local->result_bytes);
}

static void scatter_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t bytes = ct_call_bytes(&task->call);
    struct span piece = chunk_at(bytes, local->result_bytes, k);
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));

    for (int i = 0; i < local->size; i++)
        if (i != local->rank)
            copy(stage + (size_t)i * local->result_bytes,
                 task->call.send + (size_t)i * bytes + piece.at, piece.bytes);
}

static void scatter_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t bytes = ct_call_bytes(&task->call);
    struct span piece = chunk_at(bytes, local->result_bytes, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = ct_local_stage(local, i, number(local, task, k)) +
                            (size_t)local->rank * local->result_bytes;
    local->sources[local->rank] = task->call.send + (size_t)local->rank * bytes + piece.at;
    reduce(local, task, task->call.recv + piece.at, piece.bytes);
}

/* ---- all_reduce, small: everyone adds up everything ------------------------------------------*/

static void flat_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    copy(ct_local_stage(local, local->rank, number(local, task, k)), task->call.send + chunk.at,
         chunk.bytes);
}

static void flat_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = ct_local_stage(local, i, number(local, task, k));
    local->sources[local->rank] = task->call.send + chunk.at;
    reduce(local, task, task->call.recv + chunk.at, chunk.bytes);
}

/* ---- all_reduce, large: the pipeline ---------------------------------------------------------*/

static size_t pipeline_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return broadcast_rounds(local, task) + 1;
}

static void pipeline_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);
    struct span own = share_of(local, chunk, local->rank);
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));
    const char *from = task->call.send + chunk.at;
    size_t behind = own.at + own.bytes;

    copy(stage, from, own.at);
    copy(stage + behind, from + behind, chunk.bytes - behind);
}

static void pipeline_collect(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct span share = share_of(local, chunk, i);

        copy(task->call.recv + chunk.at + share.at,
             ct_local_result(local, i, number(local, task, k)), share.bytes);
    }
}

static void pipeline_reduce(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);
    struct span own = share_of(local, chunk, local->rank);
    char *to = task->call.recv + chunk.at + own.at;

    for (int i = 0; i < local->size; i++)
        local->sources[i] = ct_local_stage(local, i, number(local, task, k)) + own.at;
    local->sources[local->rank] = task->call.send + chunk.at + own.at;
    reduce(local, task, to, own.bytes);
    copy(ct_local_result(local, local->rank, number(local, task, k)), to, own.bytes);
}

static void pipeline_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (k > 0)
        pipeline_collect(local, task, k - 1);
    pipeline_reduce(local, task, k);
}

/* ---- the engine ------------------------------------------------------------------------------*/

static const struct algorithm barrier = {one_round, no_bytes, no_bytes, false};
static const struct algorithm broadcast = {broadcast_rounds, broadcast_stage, broadcast_consume,
                                           true};
static const struct algorithm all_gather = {broadcast_rounds, gather_stage, gather_consume, false};
static const struct algorithm reduce_scatter = {scatter_rounds, scatter_stage, scatter_consume,
                                                false};
static const struct algorithm flat = {broadcast_rounds, flat_stage, flat_consume, false};
static const struct algorithm pipeline = {pipeline_rounds, pipeline_stage, pipeline_consume, false};

static const struct algorithm *choose(const struct ct_local *local, const struct ct_task *task)
{
    switch (task->call.kind) {
    case CT_CALL_BROADCAST:
        return &broadcast;
    case CT_CALL_ALL_GATHER:
        return &all_gather;
    case CT_CALL_REDUCE_SCATTER:
        return &reduce_scatter;
    case CT_CALL_ALL_REDUCE:
        return ct_call_bytes(&task->call) <= local->flat_bytes ? &flat : &pipeline;
    default:
        CT_ASSERT(task->call.kind == CT_CALL_BARRIER);
        return &barrier;
    }
}

/* Has everyone else posted `round`? As ct_local_arrived. */
static int all_arrived(struct ct_local *local, uint64_t round, struct ct_error *err)
{
    for (int i = 0; i < local->size; i++) {
        int arrived = i == local->rank ? 1 : ct_local_arrived(local, i, round, err);

        if (arrived != 1)
            return arrived;
    }
    return 1;
}

/* Do all whose flags this rank waited for take part in the same call? */
static int compare(struct ct_local *local, const struct ct_task *task, bool root_alone,
                   struct ct_error *err)
{
    for (int i = 0; i < local->size; i++) {
        if (root_alone && i != task->call.peer)
            continue;
        struct ct_signature theirs = ct_local_line(local, i)->signature[local->round & 1];

        if (!ct_signature_equal(theirs, task->signature))
            return ct_signature_mismatch(task->signature, local->rank, theirs, i, err);
    }
    return 1;
}

/* Lines are written anew by the next call, so what all rounds of this one need is kept. */
static void keep_factors(struct ct_local *local, const struct ct_task *task)
{
    if (task->call.reduce == CT_REDUCE_PREMUL_SUM)
        for (int i = 0; i < local->size; i++)
            local->factors[i] = ct_local_line(local, i)->scale[local->round & 1];
}

/* Rule 2, the write, the post. 1 when posted. */
static int begin_round(struct ct_local *local, struct ct_task *task,
                       const struct algorithm *algorithm, struct ct_error *err)
{
    struct ct_segment_line *line = ct_local_line(local, local->rank);
    int arrived = all_arrived(local, local->round - 1, err);

    if (arrived != 1)
        return arrived;
    if (task->at == 0) {
        line->signature[local->round & 1] = task->signature;
        line->scale[local->round & 1] = task->call.scale;
    }
    algorithm->stage(local, task, task->at);
    atomic_store(&line->posted, local->round);
    ct_local_notify(local);
    task->stage = 1;
    return 1;
}

/* The wait, the read. 1 when the round is over. */
static int end_round(struct ct_local *local, struct ct_task *task,
                     const struct algorithm *algorithm, struct ct_error *err)
{
    bool alone = algorithm->root_alone;
    int arrived = !alone ? all_arrived(local, local->round, err)
                  : local->rank == task->call.peer
                      ? 1
                      : ct_local_arrived(local, task->call.peer, local->round, err);

    if (arrived == 1 && task->at == 0)
        arrived = compare(local, task, alone, err);
    if (arrived != 1)
        return arrived;
    if (task->at == 0)
        keep_factors(local, task);
    algorithm->consume(local, task, task->at);
    task->stage = 0;
    task->at++;
    task->moves++;
    local->round++;
    return 1;
}

int ct_local_collective(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    const struct algorithm *algorithm = choose(local, task);
    size_t rounds = algorithm->rounds(local, task);

    while (task->at < rounds) {
        int code = task->stage == 0 ? begin_round(local, task, algorithm, err) : 1;

        if (code == 1)
            code = end_round(local, task, algorithm, err);
        if (code != 1)
            return code;
    }
    return 1;
}
