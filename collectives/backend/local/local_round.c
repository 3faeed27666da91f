/* See local.h: the rounds of a collective, whatever its algorithm and way. */
#include "backend/local/local_algorithm.h"

#include "base/assert.h"
#include "reduce/reduce.h"

struct ct_span ct_local_part(struct ct_span chunk, int ranks, int i)
{
    size_t lines = (chunk.bytes + 63) / 64;
    size_t share = (lines + (size_t)ranks - 1) / (size_t)ranks * 64;
    size_t at = CT_MIN((size_t)i * share, chunk.bytes);

    return (struct ct_span){at, CT_MIN(share, chunk.bytes - at)};
}

void ct_local_reduce(struct ct_local *local, const struct ct_task *task, char *to, size_t bytes,
                     int copies)
{
    struct ct_reduction how = ct_call_reduction(&task->call);

    how.divisor = task->call.reduce == CT_REDUCE_AVG ? task->call.members : 1;
    how.factor = local->factors;
    how.copy = local->copies;
    how.copies = copies;
    how.stream = task->algorithm == CT_ALGO_IN_PLACE &&
                 ct_call_bytes(&task->call) >= local->tuning.local_stream_bytes;
    if (bytes > 0)
        ct_reduce_buffers(&how, to, local->sources, local->size,
                          bytes / ct_dtype_size(task->call.dtype));
}

static bool awaits(const struct ct_task *task, enum ct_local_awaited awaited, int i)
{
    if (i == task->call.rank)
        return false;
    if (awaited == CT_AWAIT_ROOT)
        return i == task->call.peer;
    return awaited == CT_AWAIT_ALL || ct_local_is_root(task);
}

static bool has_posted(const struct ct_local *local, int rank, uint64_t round)
{
    const struct ct_segment_cell *cell = ct_local_cell(local, rank, round);

    return atomic_load_explicit(&cell->posted, memory_order_acquire) >= round;
}

/* Have those awaited posted `round`? As ct_local_arrived. With `polls`, not without having looked
 * so often for the first that has not. */
static int all_arrived(struct ct_local *local, const struct ct_task *task,
                       enum ct_local_awaited awaited, uint64_t round, int polls,
                       struct ct_error *err)
{
    if (round <= local->arrived)
        return 1;
    for (int i = 0; i < local->size; i++) {
        if (!awaits(task, awaited, i))
            continue;
        while (!has_posted(local, i, round) && polls > 0)
            polls--;
        if (has_posted(local, i, round))
            continue;
        int arrived = ct_local_arrived(local, i, round, err);
        if (arrived != 1)
            return arrived;
    }
    if (awaited == CT_AWAIT_ALL)
        local->arrived = round;
    return 1;
}

/* Check that all ranks whose flags this one waited for are in the same call. The next call
 * overwrites their cells, so what later rounds need is kept. */
static int check_same_call(struct ct_local *local, const struct ct_task *task,
                           enum ct_local_awaited awaited, struct ct_error *err)
{
    local->factors[local->rank] = task->call.scale;
    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        if (!awaits(task, awaited, i))
            continue;
        if (!ct_signature_equal(cell->signature, task->signature))
            return ct_signature_mismatch(task->signature, local->rank, cell->signature, i, err);
        local->factors[i] = cell->scale;
    }
    if (awaited != CT_AWAIT_ALL) {
        local->unchecked = local->round;
        local->unchecked_call = task->signature;
    }
    return 1;
}

/* Rule 3: all have posted the round before, so what they called there can be seen. */
static int check_call_before(const struct ct_local *local, struct ct_error *err)
{
    if (local->unchecked != local->round - 1)
        return 1;
    for (int i = 0; i < local->size; i++) {
        struct ct_signature theirs = ct_local_cell(local, i, local->unchecked)->signature;

        if (!ct_signature_equal(theirs, local->unchecked_call))
            return ct_signature_mismatch(local->unchecked_call, local->rank, theirs, i, err);
    }
    return 1;
}

/* Rules 2 and 3, the write, the post. 1 when posted. */
static int begin_round(struct ct_local *local, struct ct_task *task,
                       const struct ct_local_algorithm *algorithm, struct ct_error *err)
{
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);
    int code = all_arrived(local, task, CT_AWAIT_ALL, local->round - 1, 0, err);

    if (code == 1)
        code = check_call_before(local, err);
    if (code == 1 && algorithm->work != NULL)
        code = algorithm->work(local, task, err);
    if (code != 1)
        return code;
    if (task->at == 0) {
        cell->signature = task->signature;
        cell->scale = task->call.scale;
    }
    algorithm->stage(local, task, task->at - task->skipped);
    atomic_store_explicit(&cell->posted, local->round, memory_order_release);
    local->wakeup_due = true;
    task->stage = 1;
    return 1;
}

/* Whether the domains report that all have posted the same call. They do not have its factors. */
static bool all_arrived_by_domains(struct ct_local *local, const struct ct_task *task,
                                   const struct ct_local_algorithm *algorithm)
{
    bool wants_factors = task->at == 0 && task->call.reduce == CT_REDUCE_PREMUL_SUM;

    return local->domains.count > 1 && algorithm->awaited == CT_AWAIT_ALL && !wants_factors &&
           ct_local_gathered(local, task);
}

/* The wait, the read. 1 when the round is over. Sleepers are woken only after a short poll of their
 * flags, so that the answer to ranks that are awake takes no fence. */
static int end_round(struct ct_local *local, struct ct_task *task,
                     const struct ct_local_algorithm *algorithm, struct ct_error *err)
{
    bool told = all_arrived_by_domains(local, task, algorithm);
    int code =
        told ? 1 : all_arrived(local, task, algorithm->awaited, local->round, local->polls, err);

    if (local->wakeup_due)
        ct_local_notify(local);
    local->wakeup_due = false;
    if (code == 1 && task->at == 0 && !told)
        code = check_same_call(local, task, algorithm->awaited, err);
    if (code == 1 && task->at == 0 && algorithm->check != NULL)
        code = algorithm->check(local, task, err);
    if (code != 1)
        return code;
    algorithm->consume(local, task, task->at - task->skipped);
    task->stage = 0;
    task->at++;
    task->moves++;
    local->round++;
    return 1;
}

/* A call that begins; its first round may have been posted (local_small.c). */
static void begin(struct ct_local *local, struct ct_task *task)
{
    task->stage = local->small_posted ? 1 : 0;
    local->small_posted = false;
    task->algorithm =
        ct_select(&local->tuning,
                  local->domains.count > 1 ? CT_TOPOLOGY_DOMAINS : CT_TOPOLOGY_SHARED, &task->call);
    task->path = task->stage == 0 && ct_local_offers(local, task) ? CT_PATH_OFFER : CT_PATH_STAGED;
}

int ct_local_collective(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    if (task->path == CT_PATH_NEW)
        begin(local, task);
    ct_local_begin_slots(local, ct_local_stage_bytes(local, task));
    for (;;) {
        const struct ct_local_algorithm *algorithm =
            task->path == CT_PATH_STAGED ? ct_local_staged(task) : ct_local_direct(task);

        if (task->at >= task->skipped + algorithm->rounds(local, task))
            return 1;
        int code = task->stage == 0 ? begin_round(local, task, algorithm, err) : 1;
        if (code == 1)
            code = end_round(local, task, algorithm, err);
        if (code != 1)
            return code;
    }
}
