/* See local.h: the collectives through stages, as a table of what a rank writes and reads in each
 * round. */
#include "backend/local/local_algorithm.h"

#include "base/assert.h"
#include "reduce/reduce.h"

#include <string.h>

static size_t chunks_of(size_t bytes, size_t chunk)
{
    return bytes <= chunk ? 1 : (bytes + chunk - 1) / chunk;
}

/* Chunk k of the whole buffer. */
static struct ct_span chunk_of(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    struct ct_span all = {0, ct_call_bytes(&task->call)};

    return ct_local_chunk(all, local->chunk_bytes, k);
}

/* Rounds before that of piece 0. */
static size_t lead(const struct ct_task *task)
{
    return task->call.kind == CT_CALL_ALL_TO_ALL && task->call.uneven ? 1 : 0;
}

/* The group's number of the round of chunk (or piece) k, in the operation's round `at`. */
static uint64_t number(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    return local->round + lead(task) + k + task->skipped - task->at;
}

/* Where `rank` stages chunk k of its part: beside its flag when all of it fits there. */
static char *stage_of(const struct ct_local *local, const struct ct_task *task, int rank, size_t k)
{
    uint64_t round = number(local, task, k);

    if (task->call.longest_bytes <= CT_CELL_BYTES)
        return ct_local_cell(local, rank, round)->data;
    return ct_local_stage(local, rank, round);
}

/* Pieces lie where a full chunk would have them. A pipeline's chunks take no turns: their lines
 * have no other owner than who wrote them last. */
size_t ct_local_stage_bytes(const struct ct_local *local, const struct ct_task *task)
{
    switch (task->call.kind) {
    case CT_CALL_SCATTER:
    case CT_CALL_ALL_TO_ALL:
    case CT_CALL_REDUCE_SCATTER:
        return local->chunk_bytes;
    default:
        if (task->algorithm == CT_ALGO_PIPELINE || task->algorithm == CT_ALGO_PIPELINE_ROOT ||
            task->algorithm == CT_ALGO_DOMAINS)
            return local->chunk_bytes;
        return task->call.longest_bytes;
    }
}

/* ---- rounds ----------------------------------------------------------------------------------*/

size_t ct_local_one_round(const struct ct_local *local, const struct ct_task *task)
{
    (void)local;
    (void)task;
    return 1;
}

/* A chunk is a run of one part. */
static size_t chunk_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(task->call.longest_bytes, local->chunk_bytes);
}

/* A chunk holds a piece for each rank. */
static size_t piece_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(task->call.longest_bytes, local->piece_bytes);
}

/* What a pipeline moves in a round. Where ranks share cores a round costs turns on the core, which
 * is more than two chunks side by side gain: what fits into two goes as one. */
static size_t pipeline_bytes(const struct ct_local *local, const struct ct_task *task)
{
    size_t twice = 2 * local->chunk_bytes;
    bool one = local->crowded && twice <= local->stage_bytes && ct_call_bytes(&task->call) <= twice;

    return one ? twice : local->chunk_bytes;
}

static struct ct_span pipeline_chunk(const struct ct_local *local, const struct ct_task *task,
                                     size_t k)
{
    struct ct_span all = {0, ct_call_bytes(&task->call)};

    return ct_local_chunk(all, pipeline_bytes(local, task), k);
}

/* A last one to hand out what was reduced in the one before. */
static size_t pipeline_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(task->call.longest_bytes, pipeline_bytes(local, task)) + 1;
}

void ct_local_no_bytes(struct ct_local *local, struct ct_task *task, size_t k)
{
    (void)local;
    (void)task;
    (void)k;
}

/* ---- whole parts: what each rank has goes into its stage as it is ----------------------------*/

static void whole_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span from =
        ct_local_chunk(ct_call_in(&task->call, local->rank), local->chunk_bytes, k);

    ct_local_copy(stage_of(local, task, local->rank, k), task->call.send + from.at, from.bytes);
}

/* Chunk k of this rank's own part, to its own output. */
static void keep_own(const struct ct_task *task, size_t chunk, size_t k)
{
    struct ct_span from = ct_local_chunk(ct_call_in(&task->call, task->call.rank), chunk, k);
    struct ct_span to = ct_local_chunk(ct_call_out(&task->call, task->call.rank), chunk, k);

    ct_local_copy(task->call.recv + to.at, task->call.send + from.at, from.bytes);
}

static void broadcast_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!ct_local_is_root(task))
        return;
    whole_stage(local, task, k);
    keep_own(task, local->chunk_bytes, k);
}

static void broadcast_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span to =
        ct_local_chunk(ct_call_out(&task->call, local->rank), local->chunk_bytes, k);

    if (!ct_local_is_root(task))
        ct_local_copy(task->call.recv + to.at, stage_of(local, task, task->call.peer, k), to.bytes);
}

static void all_gather_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    whole_stage(local, task, k);
    keep_own(task, local->chunk_bytes, k);
}

/* Each rank begins with its successor, so that not all read from one. */
static void all_gather_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct ct_span to = ct_local_chunk(ct_call_out(&task->call, i), local->chunk_bytes, k);

        ct_local_copy(task->call.recv + to.at, stage_of(local, task, i, k), to.bytes);
    }
}

static void gather_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (ct_local_is_root(task))
        keep_own(task, local->chunk_bytes, k);
    else
        whole_stage(local, task, k);
}

static void gather_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (ct_local_is_root(task))
        all_gather_consume(local, task, k);
}

/* ---- pieces: a stage holds one for each other rank -------------------------------------------*/

static const char *piece_of(const struct ct_local *local, const struct ct_task *task, size_t k,
                            int from)
{
    return ct_local_stage(local, from, number(local, task, k)) +
           (size_t)local->rank * local->piece_bytes;
}

static void pieces_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));

    for (int i = 0; i < local->size; i++) {
        struct ct_span piece = ct_local_chunk(ct_call_in(&task->call, i), local->piece_bytes, k);

        if (i != local->rank)
            ct_local_copy(stage + (size_t)i * local->piece_bytes, task->call.send + piece.at,
                          piece.bytes);
    }
}

static void scatter_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!ct_local_is_root(task))
        return;
    pieces_stage(local, task, k);
    keep_own(task, local->piece_bytes, k);
}

static void scatter_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span to =
        ct_local_chunk(ct_call_out(&task->call, local->rank), local->piece_bytes, k);

    if (!ct_local_is_root(task))
        ct_local_copy(task->call.recv + to.at, piece_of(local, task, k, task->call.peer), to.bytes);
}

/* In place, piece k of all parts has been staged before piece k of any part is written. */
static void all_to_all_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    pieces_stage(local, task, k);
    keep_own(task, local->piece_bytes, k);
}

static void all_to_all_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct ct_span to = ct_local_chunk(ct_call_out(&task->call, i), local->piece_bytes, k);

        ct_local_copy(task->call.recv + to.at, piece_of(local, task, k, i), to.bytes);
    }
}

static void reduce_scatter_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span own =
        ct_local_chunk(ct_call_in(&task->call, local->rank), local->piece_bytes, k);
    struct ct_span to =
        ct_local_chunk(ct_call_out(&task->call, local->rank), local->piece_bytes, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = piece_of(local, task, k, i);
    local->sources[local->rank] = task->call.send + own.at;
    ct_local_reduce(local, task, task->call.recv + to.at, to.bytes, 0);
}

/* ---- all_to_all_v: only two ranks know how much goes from one to the other -------------------
 *
 * Round 0 tells it to the receiver, who compares, and tells all how long the longest part of any
 * rank is (kept in task->part), so that all count the same rounds. */

struct notice {
    uint64_t count, longest_bytes;
};

static size_t exchange_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return 1 + chunks_of(task->part, local->piece_bytes);
}

static void exchange_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    char *stage = ct_local_stage(local, local->rank, local->round);

    if (k > 0) {
        all_to_all_stage(local, task, k - 1);
        return;
    }
    for (int i = 0; i < local->size; i++) {
        struct notice notice = {ct_call_signature_with(&task->call, task->signature, i, true).count,
                                task->call.longest_bytes};

        memcpy(stage + (size_t)i * local->piece_bytes, &notice, sizeof notice);
    }
}

static int exchange_check(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    task->part = 0;
    for (int i = 0; i < local->size; i++) {
        struct ct_signature mine = ct_call_signature_with(&task->call, task->signature, i, false);
        struct ct_signature theirs = mine;
        struct notice notice;

        memcpy(&notice,
               ct_local_stage(local, i, local->round) + (size_t)local->rank * local->piece_bytes,
               sizeof notice);
        theirs.count = notice.count;
        if (!ct_signature_equal(mine, theirs))
            return ct_signature_mismatch(mine, local->rank, theirs, i, err);
        task->part = CT_MAX(task->part, (size_t)notice.longest_bytes);
    }
    return 1;
}

static void exchange_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (k > 0)
        all_to_all_consume(local, task, k - 1);
}

/* ---- all_reduce and reduce, small: who wants the result adds up everything -------------------*/

static void flat_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span chunk = chunk_of(local, task, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = stage_of(local, task, i, k);
    local->sources[local->rank] = task->call.send + chunk.at;
    ct_local_reduce(local, task, task->call.recv + chunk.at, chunk.bytes, 0);
}

static void flat_root_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!ct_local_is_root(task))
        whole_stage(local, task, k);
}

static void flat_root_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (ct_local_is_root(task))
        flat_consume(local, task, k);
}

/* ---- all_reduce and reduce, large: the pipeline ----------------------------------------------*/

/* Chunk k without this rank's own share, which nobody else adds up. */
static void pipeline_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span chunk = pipeline_chunk(local, task, k);
    struct ct_span own = ct_local_share(chunk, local->size, local->rank);
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));
    const char *from = task->call.send + chunk.at;
    size_t behind = own.at + own.bytes;

    ct_local_copy(stage, from, own.at);
    ct_local_copy(stage + behind, from + behind, chunk.bytes - behind);
}

/* The shares of chunk k that the others added up: they lie where this rank had staged them. */
static void pipeline_collect(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span chunk = pipeline_chunk(local, task, k);
    struct ct_span own = ct_local_share(chunk, local->size, local->rank);
    const char *stage = ct_local_stage(local, local->rank, number(local, task, k));
    char *to = task->call.recv + chunk.at;
    size_t behind = own.at + own.bytes;

    ct_local_copy(to, stage, own.at);
    ct_local_copy(to + behind, stage + behind, chunk.bytes - behind);
}

/* Rank i's stage of this rank's share of chunk k. */
static char *staged_share(const struct ct_local *local, const struct ct_task *task, size_t k, int i)
{
    struct ct_span own = ct_local_share(pipeline_chunk(local, task, k), local->size, local->rank);

    return ct_local_stage(local, i, number(local, task, k)) + own.at;
}

/* This rank's share of chunk k, added up in `to` and in the first `copies` of local->copies. */
static void pipeline_reduce(struct ct_local *local, struct ct_task *task, size_t k, char *to,
                            int copies)
{
    struct ct_span chunk = pipeline_chunk(local, task, k);
    struct ct_span own = ct_local_share(chunk, local->size, local->rank);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = staged_share(local, task, k, i);
    local->sources[local->rank] = task->call.send + chunk.at + own.at;
    ct_local_reduce(local, task, to, own.bytes, copies);
}

/* Where this rank's share of chunk k goes in its own output. */
static char *own_share(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    struct ct_span chunk = pipeline_chunk(local, task, k);

    return task->call.recv + chunk.at + ct_local_share(chunk, local->size, local->rank).at;
}

static void pipeline_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (k > 0)
        pipeline_collect(local, task, k - 1);
    for (int d = 1; d < local->size; d++)
        local->copies[d - 1] = staged_share(local, task, k, (local->rank + d) % local->size);
    pipeline_reduce(local, task, k, own_share(local, task, k), local->size - 1);
}

static void pipeline_root_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (ct_local_is_root(task)) {
        if (k > 0)
            pipeline_collect(local, task, k - 1);
        pipeline_reduce(local, task, k, own_share(local, task, k), 0);
    } else {
        pipeline_reduce(local, task, k, staged_share(local, task, k, task->call.peer), 0);
    }
}

/* ---- the table -------------------------------------------------------------------------------*/

static const struct ct_local_algorithm barrier = {
    ct_local_one_round, ct_local_no_bytes, ct_local_no_bytes, CT_AWAIT_ALL, NULL, NULL};
static const struct ct_local_algorithm flat = {chunk_rounds, whole_stage, flat_consume,
                                               CT_AWAIT_ALL, NULL,        NULL};
static const struct ct_local_algorithm pipeline = {
    pipeline_rounds, pipeline_stage, pipeline_consume, CT_AWAIT_ALL, NULL, NULL};
static const struct ct_local_algorithm flat_root = {
    chunk_rounds, flat_root_stage, flat_root_consume, CT_AWAIT_ALL_AT_ROOT, NULL, NULL};
static const struct ct_local_algorithm pipeline_root = {
    pipeline_rounds, pipeline_stage, pipeline_root_consume, CT_AWAIT_ALL, NULL, NULL};
static const struct ct_local_algorithm exchange = {
    exchange_rounds, exchange_stage, exchange_consume, CT_AWAIT_ALL, exchange_check, NULL};
static const struct ct_local_algorithm moves[] = {
    [CT_CALL_BROADCAST] = {chunk_rounds, broadcast_stage, broadcast_consume, CT_AWAIT_ROOT, NULL,
                           NULL},
    [CT_CALL_ALL_GATHER] = {chunk_rounds, all_gather_stage, all_gather_consume, CT_AWAIT_ALL, NULL,
                            NULL},
    [CT_CALL_GATHER] = {chunk_rounds, gather_stage, gather_consume, CT_AWAIT_ALL_AT_ROOT, NULL,
                        NULL},
    [CT_CALL_SCATTER] = {piece_rounds, scatter_stage, scatter_consume, CT_AWAIT_ROOT, NULL, NULL},
    [CT_CALL_ALL_TO_ALL] = {piece_rounds, all_to_all_stage, all_to_all_consume, CT_AWAIT_ALL, NULL,
                            NULL},
    [CT_CALL_REDUCE_SCATTER] = {piece_rounds, pieces_stage, reduce_scatter_consume, CT_AWAIT_ALL,
                                NULL, NULL},
};

const struct ct_local_algorithm *ct_local_staged(const struct ct_task *task)
{
    switch (task->algorithm) {
    case CT_ALGO_FLAGS:
        return &barrier;
    case CT_ALGO_FLAT:
        return &flat;
    case CT_ALGO_FLAT_ROOT:
        return &flat_root;
    case CT_ALGO_PIPELINE:
        return &pipeline;
    case CT_ALGO_PIPELINE_ROOT:
        return &pipeline_root;
    case CT_ALGO_DOMAINS:
        return ct_local_domains(task);
    default:
        CT_ASSERT(task->algorithm == CT_ALGO_STAGED && moves[task->call.kind].rounds != NULL);
        return task->call.kind == CT_CALL_ALL_TO_ALL && task->call.uneven ? &exchange
                                                                          : &moves[task->call.kind];
    }
}
