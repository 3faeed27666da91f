/* See local.h: the collectives, as a table of what a rank writes and reads in each round. */
#include "backend/local.h"

#include "base/assert.h"
#include "reduce.h"

#include <string.h>

/* Whose flags a rank waits for before it reads. */
enum awaited { ALL, THE_ROOT, ALL_AT_ROOT };

/* One collective. Round k of an operation is round number `n` of the group. */
struct algorithm {
    size_t (*rounds)(const struct ct_local *local, const struct ct_task *task);
    /* Write this rank's part of round k. */
    void (*stage)(struct ct_local *local, struct ct_task *task, size_t k);
    /* Read the others'; those awaited have posted the round. */
    void (*consume)(struct ct_local *local, struct ct_task *task, size_t k);
    enum awaited awaited;
    /* May be NULL: before round 0 is consumed, does it fit what the others have? 1 or an error. */
    int (*check)(struct ct_local *local, struct ct_task *task, struct ct_error *err);
};

static size_t element(const struct ct_task *task)
{
    return ct_dtype_size(task->call.dtype);
}

static size_t chunks_of(size_t bytes, size_t chunk)
{
    return bytes == 0 ? 1 : (bytes + chunk - 1) / chunk;
}

static struct ct_span chunk_at(size_t bytes, size_t chunk, size_t k)
{
    size_t at = CT_MIN(k * chunk, bytes);

    return (struct ct_span){at, CT_MIN(chunk, bytes - at)};
}

/* Chunk k of a part: from the start of the buffer that the part lies in. */
static struct ct_span chunk_in(struct ct_span part, size_t chunk, size_t k)
{
    struct ct_span span = chunk_at(part.bytes, chunk, k);

    return (struct ct_span){part.at + span.at, span.bytes};
}

/* Rank i's share of a chunk: whole cache lines, the last ones may be short or empty. */
static struct ct_span share_of(const struct ct_local *local, struct ct_span chunk, int i)
{
    size_t lines = (chunk.bytes + 63) / 64;
    size_t share = (lines + (size_t)local->size - 1) / (size_t)local->size * 64;
    size_t at = CT_MIN((size_t)i * share, chunk.bytes);

    return (struct ct_span){at, CT_MIN(share, chunk.bytes - at)};
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

/* Rounds before that of piece 0. */
static size_t lead(const struct ct_task *task)
{
    return task->call.kind == CT_CALL_ALL_TO_ALL && task->call.uneven ? 1 : 0;
}

/* The group's number of the round of chunk (or piece) k, in the operation's round `at`. */
static uint64_t number(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    return local->round + lead(task) + k - task->at;
}

static bool is_root(const struct ct_task *task)
{
    return task->call.rank == task->call.peer;
}

/* ---- rounds ----------------------------------------------------------------------------------*/

static size_t one_round(const struct ct_local *local, const struct ct_task *task)
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
    return chunks_of(task->call.longest_bytes, local->result_bytes);
}

/* A last one to hand out what was reduced in the one before. */
static size_t pipeline_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunk_rounds(local, task) + 1;
}

static void no_bytes(struct ct_local *local, struct ct_task *task, size_t k)
{
    (void)local;
    (void)task;
    (void)k;
}

/* ---- whole parts: what each rank has goes into its stage as it is ----------------------------*/

static void whole_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span from = chunk_in(ct_call_in(&task->call, local->rank), local->chunk_bytes, k);

    copy(ct_local_stage(local, local->rank, number(local, task, k)), task->call.send + from.at,
         from.bytes);
}

/* Chunk k of this rank's own part, to its own output. */
static void keep_own(const struct ct_task *task, size_t chunk, size_t k)
{
    struct ct_span from = chunk_in(ct_call_in(&task->call, task->call.rank), chunk, k);
    struct ct_span to = chunk_in(ct_call_out(&task->call, task->call.rank), chunk, k);

    copy(task->call.recv + to.at, task->call.send + from.at, from.bytes);
}

static void broadcast_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!is_root(task))
        return;
    whole_stage(local, task, k);
    keep_own(task, local->chunk_bytes, k);
}

static void broadcast_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span to = chunk_in(ct_call_out(&task->call, local->rank), local->chunk_bytes, k);

    if (!is_root(task))
        copy(task->call.recv + to.at,
             ct_local_stage(local, task->call.peer, number(local, task, k)), to.bytes);
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
        struct ct_span to = chunk_in(ct_call_out(&task->call, i), local->chunk_bytes, k);

        copy(task->call.recv + to.at, ct_local_stage(local, i, number(local, task, k)), to.bytes);
    }
}

static void gather_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (is_root(task))
        keep_own(task, local->chunk_bytes, k);
    else
        whole_stage(local, task, k);
}

static void gather_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (is_root(task))
        all_gather_consume(local, task, k);
}

/* ---- pieces: a stage holds one for each other rank -------------------------------------------*/

static const char *piece_of(const struct ct_local *local, const struct ct_task *task, size_t k,
                            int from)
{
    return ct_local_stage(local, from, number(local, task, k)) +
           (size_t)local->rank * local->result_bytes;
}

static void pieces_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));

    for (int i = 0; i < local->size; i++) {
        struct ct_span piece = chunk_in(ct_call_in(&task->call, i), local->result_bytes, k);

        if (i != local->rank)
            copy(stage + (size_t)i * local->result_bytes, task->call.send + piece.at, piece.bytes);
    }
}

static void scatter_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!is_root(task))
        return;
    pieces_stage(local, task, k);
    keep_own(task, local->result_bytes, k);
}

static void scatter_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span to = chunk_in(ct_call_out(&task->call, local->rank), local->result_bytes, k);

    if (!is_root(task))
        copy(task->call.recv + to.at, piece_of(local, task, k, task->call.peer), to.bytes);
}

/* In place, piece k of all parts has been staged before piece k of any part is written. */
static void all_to_all_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    pieces_stage(local, task, k);
    keep_own(task, local->result_bytes, k);
}

static void all_to_all_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct ct_span to = chunk_in(ct_call_out(&task->call, i), local->result_bytes, k);

        copy(task->call.recv + to.at, piece_of(local, task, k, i), to.bytes);
    }
}

static void reduce_scatter_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span own = chunk_in(ct_call_in(&task->call, local->rank), local->result_bytes, k);
    struct ct_span to = chunk_in(ct_call_out(&task->call, local->rank), local->result_bytes, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = piece_of(local, task, k, i);
    local->sources[local->rank] = task->call.send + own.at;
    reduce(local, task, task->call.recv + to.at, to.bytes);
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
    return 1 + chunks_of(task->part, local->result_bytes);
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

        memcpy(stage + (size_t)i * local->result_bytes, &notice, sizeof notice);
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
               ct_local_stage(local, i, local->round) + (size_t)local->rank * local->result_bytes,
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
    struct ct_span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = ct_local_stage(local, i, number(local, task, k));
    local->sources[local->rank] = task->call.send + chunk.at;
    reduce(local, task, task->call.recv + chunk.at, chunk.bytes);
}

static void flat_root_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (!is_root(task))
        whole_stage(local, task, k);
}

static void flat_root_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    if (is_root(task))
        flat_consume(local, task, k);
}

/* ---- all_reduce and reduce, large: the pipeline ----------------------------------------------*/

static void pipeline_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);
    struct ct_span own = share_of(local, chunk, local->rank);
    char *stage = ct_local_stage(local, local->rank, number(local, task, k));
    const char *from = task->call.send + chunk.at;
    size_t behind = own.at + own.bytes;

    copy(stage, from, own.at);
    copy(stage + behind, from + behind, chunk.bytes - behind);
}

static void pipeline_collect(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);

    for (int d = 1; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct ct_span share = share_of(local, chunk, i);

        copy(task->call.recv + chunk.at + share.at,
             ct_local_result(local, i, number(local, task, k)), share.bytes);
    }
}

/* This rank's share of chunk k, added up in `to`. */
static void pipeline_reduce(struct ct_local *local, struct ct_task *task, size_t k, char *to)
{
    struct ct_span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);
    struct ct_span own = share_of(local, chunk, local->rank);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = ct_local_stage(local, i, number(local, task, k)) + own.at;
    local->sources[local->rank] = task->call.send + chunk.at + own.at;
    reduce(local, task, to, own.bytes);
}

/* Where this rank's share of chunk k goes in its own output. */
static struct ct_span own_share(const struct ct_local *local, const struct ct_task *task, size_t k)
{
    struct ct_span chunk = chunk_at(ct_call_bytes(&task->call), local->chunk_bytes, k);
    struct ct_span own = share_of(local, chunk, local->rank);

    return (struct ct_span){chunk.at + own.at, own.bytes};
}

static void pipeline_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span own = own_share(local, task, k);
    char *to = task->call.recv + own.at;

    if (k > 0)
        pipeline_collect(local, task, k - 1);
    pipeline_reduce(local, task, k, to);
    copy(ct_local_result(local, local->rank, number(local, task, k)), to, own.bytes);
}

static void pipeline_root_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    char *result = ct_local_result(local, local->rank, number(local, task, k));

    if (is_root(task) && k > 0)
        pipeline_collect(local, task, k - 1);
    if (is_root(task))
        result = task->call.recv + own_share(local, task, k).at;
    pipeline_reduce(local, task, k, result);
}

/* ---- the table -------------------------------------------------------------------------------*/

static const struct algorithm barrier = {one_round, no_bytes, no_bytes, ALL, NULL};
static const struct algorithm flat = {chunk_rounds, whole_stage, flat_consume, ALL, NULL};
static const struct algorithm pipeline = {pipeline_rounds, pipeline_stage, pipeline_consume, ALL,
                                          NULL};
static const struct algorithm flat_root = {chunk_rounds, flat_root_stage, flat_root_consume,
                                           ALL_AT_ROOT, NULL};
static const struct algorithm pipeline_root = {pipeline_rounds, pipeline_stage,
                                               pipeline_root_consume, ALL, NULL};
static const struct algorithm exchange = {exchange_rounds, exchange_stage, exchange_consume, ALL,
                                          exchange_check};
static const struct algorithm moves[] = {
    [CT_CALL_BROADCAST] = {chunk_rounds, broadcast_stage, broadcast_consume, THE_ROOT, NULL},
    [CT_CALL_ALL_GATHER] = {chunk_rounds, all_gather_stage, all_gather_consume, ALL, NULL},
    [CT_CALL_GATHER] = {chunk_rounds, gather_stage, gather_consume, ALL_AT_ROOT, NULL},
    [CT_CALL_SCATTER] = {piece_rounds, scatter_stage, scatter_consume, THE_ROOT, NULL},
    [CT_CALL_ALL_TO_ALL] = {piece_rounds, all_to_all_stage, all_to_all_consume, ALL, NULL},
    [CT_CALL_REDUCE_SCATTER] = {piece_rounds, pieces_stage, reduce_scatter_consume, ALL, NULL},
};

static const struct algorithm *choose(const struct ct_local *local, const struct ct_task *task)
{
    bool small = ct_call_bytes(&task->call) <= local->flat_bytes;

    switch (task->call.kind) {
    case CT_CALL_BARRIER:
        return &barrier;
    case CT_CALL_ALL_REDUCE:
        return small ? &flat : &pipeline;
    case CT_CALL_REDUCE:
        return small ? &flat_root : &pipeline_root;
    case CT_CALL_ALL_TO_ALL:
        return task->call.uneven ? &exchange : &moves[CT_CALL_ALL_TO_ALL];
    default:
        CT_ASSERT(moves[task->call.kind].rounds != NULL);
        return &moves[task->call.kind];
    }
}

/* ---- the engine ------------------------------------------------------------------------------*/

static bool awaits(const struct ct_task *task, enum awaited awaited, int i)
{
    if (i == task->call.rank)
        return false;
    return awaited == ALL || (awaited == THE_ROOT ? i == task->call.peer : is_root(task));
}

/* Have those awaited posted `round`? As ct_local_arrived. */
static int all_arrived(struct ct_local *local, const struct ct_task *task, enum awaited awaited,
                       uint64_t round, struct ct_error *err)
{
    for (int i = 0; i < local->size; i++) {
        int arrived = awaits(task, awaited, i) ? ct_local_arrived(local, i, round, err) : 1;

        if (arrived != 1)
            return arrived;
    }
    return 1;
}

/* Do all whose flags this rank waited for take part in the same call? Their lines are written anew
 * by the next one, so what later rounds need is kept. */
static int meet(struct ct_local *local, const struct ct_task *task, enum awaited awaited,
                struct ct_error *err)
{
    local->factors[local->rank] = task->call.scale;
    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_line *line = ct_local_line(local, i);
        struct ct_signature theirs;

        if (!awaits(task, awaited, i))
            continue;
        theirs = line->signature[local->round & 1];
        if (!ct_signature_equal(theirs, task->signature))
            return ct_signature_mismatch(task->signature, local->rank, theirs, i, err);
        local->factors[i] = line->scale[local->round & 1];
    }
    return 1;
}

/* Rule 2, the write, the post. 1 when posted. */
static int begin_round(struct ct_local *local, struct ct_task *task,
                       const struct algorithm *algorithm, struct ct_error *err)
{
    struct ct_segment_line *line = ct_local_line(local, local->rank);
    int arrived = all_arrived(local, task, ALL, local->round - 1, err);

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
    int arrived = all_arrived(local, task, algorithm->awaited, local->round, err);

    if (arrived == 1 && task->at == 0)
        arrived = meet(local, task, algorithm->awaited, err);
    if (arrived == 1 && task->at == 0 && algorithm->check != NULL)
        arrived = algorithm->check(local, task, err);
    if (arrived != 1)
        return arrived;
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

    while (task->at < algorithm->rounds(local, task)) {
        int code = task->stage == 0 ? begin_round(local, task, algorithm, err) : 1;

        if (code == 1)
            code = end_round(local, task, algorithm, err);
        if (code != 1)
            return code;
    }
    return 1;
}
