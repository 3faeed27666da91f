/* See local.h: the usual round of a call whose data fit beside the flags, everyone being awake. It
 * is round 0 of `flat` (or of the barrier) without a task, a table, a selection, a stage or a loop
 * of rounds: of what such a call costs, the way of a line from core to core is to be the larger
 * part.
 *
 *     post        signature, data, flag: one cache line
 *     wake        sleepers. The fence that this takes waits until the line is out, and so does the
 *                 first poll: an earlier one would take the others' lines from them
 *                 while they write, and costs each of them a way more
 *     poll        the others' lines, for a short while
 *     prefetch    the own line of the next round, which no rank reads any more: all have posted
 *                 this round, and rule 1 says that they are done with the one before
 *     sum         vectors, of which only the first bytes count
 *
 * A rank that does not find the others' lines in time makes a request, having posted. */
#include "backend/local/local_algorithm.h"
#include "base/processor.h"
#include "reduce/reduce.h"

_Static_assert((int)CT_SMALL_MESSAGE_BYTES == (int)CT_CELL_BYTES, "beside the flag");

/* Few moves of a size that the compiler knows; of four bytes, for who has just written two numbers
 * of four would wait for one move of eight. */
static inline void copy_small(char *to, const char *from, size_t bytes)
{
    if (bytes == 8) {
        memcpy(to, from, 4);
        memcpy(to + 4, from + 4, 4);
    } else if (bytes == 4) {
        memcpy(to, from, 4);
    } else {
        ct_local_copy(to, from, bytes);
    }
}

bool ct_local_post(void *state, const struct ct_small_message *message)
{
    struct ct_local *local = state;
    bool beside_flags = message->bytes == 0 ? local->domains.count == 1
                                            : local->tuning.local_flat_bytes >= CT_CELL_BYTES;

    if (!beside_flags || local->arrived + 1 < local->round ||
        atomic_load_explicit(&local->head->failure, memory_order_relaxed) != 0)
        return false;
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);
    cell->signature = message->signature;
    copy_small(cell->data, message->send, message->bytes);
    atomic_store_explicit(&cell->posted, local->round, memory_order_release);
    return true;
}

/* Whether all have posted this round, or do so within a short while. */
static inline bool all_posted(const struct ct_local *local)
{
    int polls = local->polls;

    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        while (atomic_load_explicit(&cell->posted, memory_order_acquire) < local->round) {
            if (polls-- <= 0)
                return false;
            ct_relax();
            ct_relax();
        }
    }
    return true;
}

static inline bool is_same(const struct ct_local *local, struct ct_signature signature)
{
    for (int i = 0; i < local->size; i++)
        if (!ct_signature_equal(ct_local_cell(local, i, local->round)->signature, signature))
            return false;
    return true;
}

static inline const void *data_of(const struct ct_local *local, int i)
{
    return ct_local_cell(local, i, local->round)->data;
}

typedef float floats __attribute__((vector_size(16), may_alias));
typedef double doubles __attribute__((vector_size(16), may_alias));

/* The most usual sums, in rank order, which of two is every order. False: none of them. */
static inline bool sum_common(const struct ct_local *local, const struct ct_small_message *message)
{
    bool in_order = message->mode != CT_MODE_INVARIANT || local->size == 2;

    if (message->reduce != CT_REDUCE_SUM || !in_order || message->bytes > sizeof(floats))
        return false;
    if (message->dtype == CT_F32) {
        floats sum = *(const floats *)data_of(local, 0);

        for (int i = 1; i < local->size; i++)
            sum += *(const floats *)data_of(local, i);
        copy_small(message->recv, (const char *)&sum, message->bytes);
        return true;
    }
    if (message->dtype == CT_F64) {
        doubles sum = *(const doubles *)data_of(local, 0);

        for (int i = 1; i < local->size; i++)
            sum += *(const doubles *)data_of(local, i);
        copy_small(message->recv, (const char *)&sum, message->bytes);
        return true;
    }
    return false;
}

/* A vector at a time and none cut off: 32 bytes are whole vectors of the portable kernels. */
static void sum_any(struct ct_local *local, const struct ct_small_message *message)
{
    _Alignas(64) char result[CT_CELL_BYTES];
    struct ct_reduction how = {.dtype = message->dtype,
                               .reduce = message->reduce,
                               .order = message->mode == CT_MODE_INVARIANT ? CT_ORDER_TREE
                                                                           : CT_ORDER_RANK,
                               .divisor = message->reduce == CT_REDUCE_AVG ? local->size : 1};

    for (int i = 0; i < local->size; i++)
        local->sources[i] = data_of(local, i);
    ct_reduce_with(ct_reduce_isa(0), &how, result, local->sources, local->size,
                   CT_CELL_BYTES / ct_dtype_size(message->dtype));
    ct_local_copy(message->recv, result, message->bytes);
}

bool ct_local_collect(void *state, const struct ct_small_message *message)
{
    struct ct_local *local = state;

    ct_local_notify(local);
    local->small_posted = !all_posted(local) || !is_same(local, message->signature);
    if (local->small_posted)
        return false;
    __builtin_prefetch(ct_local_cell(local, local->rank, local->round + 1), 1);
    if (message->bytes > 0 && !sum_common(local, message))
        sum_any(local, message);
    local->arrived = local->round++;
    return true;
}
