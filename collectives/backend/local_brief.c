/* See local.h: the usual round of a call whose data fit beside the flags, everyone being awake. It
 * is round 0 of `flat` (or of the barrier) without a table, a selection, a stage or a loop of
 * rounds: of what such a call costs, the way of a line from core to core is to be the larger part.
 *
 *     post        signature, factor, data, flag: one cache line
 *     look        for the others' lines, a short while
 *     ask         for the own line of the next round, which nobody reads any more: all have posted
 *                 this round, and rule 1 says that they are done with the one before
 *     sum         whole cells, of which only the first bytes count
 *
 * Who does not find the others goes on the usual way, having posted. */
#include "backend/local_algorithm.h"
#include "reduce.h"

static bool is_brief(const struct ct_local *local, const struct ct_task *task)
{
    const struct ct_call *call = &task->call;

    return (call->kind == CT_CALL_BARRIER && local->domains.count == 1) ||
           (call->kind == CT_CALL_ALL_REDUCE && call->longest_bytes <= CT_CELL_BYTES &&
            local->tuning.local_flat_bytes >= CT_CELL_BYTES);
}

/* A size that the compiler knows is one move; memcpy of any other is a call. */
static inline void copy_few(char *to, const char *from, size_t bytes)
{
    if (bytes == 8)
        memcpy(to, from, 8);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        ct_local_copy(to, from, bytes);
}

static void post(struct ct_local *local, struct ct_task *task)
{
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);

    cell->signature = task->signature;
    cell->scale = task->call.scale;
    copy_few(cell->data, task->call.send, task->call.longest_bytes);
    atomic_store_explicit(&cell->posted, local->round, memory_order_release);
    local->unrung = true;
    task->stage = 1;
}

/* A vector at a time and none cut off: 32 bytes are whole vectors of the portable kernels. */
static void sum(struct ct_local *local, const struct ct_task *task)
{
    _Alignas(64) char result[CT_CELL_BYTES];
    struct ct_reduction how = ct_reduction_of(&task->call);

    if (task->call.longest_bytes == 0)
        return;
    how.divisor = task->call.reduce == CT_REDUCE_AVG ? task->call.members : 1;
    how.factor = local->factors;
    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        local->sources[i] = cell->data;
        local->factors[i] = cell->scale;
    }
    ct_reduce_with(ct_reduce_isa(0), &how, result, local->sources, local->size,
                   CT_CELL_BYTES / ct_dtype_size(task->call.dtype));
    copy_few(task->call.recv, result, task->call.longest_bytes);
}

/* Has everyone posted this round, or does so within a short while? */
static bool find_all(const struct ct_local *local)
{
    int looks = local->looks;

    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        while (atomic_load_explicit(&cell->posted, memory_order_acquire) < local->round)
            if (looks-- <= 0)
                return false;
    }
    return true;
}

int ct_local_brief(struct ct_local *local, struct ct_task *task)
{
    if (!is_brief(local, task) || local->met + 1 < local->round)
        return 0;
    post(local, task);
    if (!find_all(local))
        return 0;
    for (int i = 0; i < local->size; i++)
        if (!ct_signature_equal(ct_local_cell(local, i, local->round)->signature, task->signature))
            return 0;
    __builtin_prefetch(ct_local_cell(local, local->rank, local->round + 1), 1);
    sum(local, task);
    ct_local_notify(local);
    local->unrung = false;
    local->met = local->round++;
    task->moves++;
    return 1;
}
