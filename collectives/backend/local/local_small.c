/* See local.h: the usual round of a call whose data fit beside the flags, everyone being awake. It
 * is round 0 of `flat` (or of the barrier) without a task, a table, a selection, a stage or a loop
 * of rounds: of what such a call costs, the way of a line from core to core is to be the larger
 * part.
 *
 *     post        signature, data, flag: one cache line
 *     ring        for who sleeps. The fence that this takes waits until the line is out, and so
 *                 does the first look: one that comes earlier takes the others' lines from them
 *                 while they write, and costs each of them a way more
 *     look        for the others' lines, a short while
 *     ask         for the own line of the next round, which nobody reads any more: all have posted
 *                 this round, and rule 1 says that they are done with the one before
 *     sum         vectors, of which only the first bytes count
 *
 * Who does not find the others goes on the usual way, having posted. */
#include "backend/local/local_algorithm.h"
#include "base/relax.h"
#include "reduce/reduce.h"

_Static_assert((int)CT_SMALL_MESSAGE_BYTES == (int)CT_CELL_BYTES, "beside the flag");

/* Few moves of a size that the compiler knows; of four bytes, for who has just written two numbers
 * of four would wait for one move of eight. */
static inline void copy_few(char *to, const char *from, size_t bytes)
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

bool ct_local_post(void *state, const struct ct_small_message *brief)
{
    struct ct_local *local = state;
    bool beside_flags = brief->bytes == 0 ? local->domains.count == 1
                                          : local->tuning.local_flat_bytes >= CT_CELL_BYTES;

    if (!beside_flags || local->met + 1 < local->round ||
        atomic_load_explicit(&local->head->failure, memory_order_relaxed) != 0)
        return false;
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);
    cell->signature = brief->signature;
    copy_few(cell->data, brief->send, brief->bytes);
    atomic_store_explicit(&cell->posted, local->round, memory_order_release);
    return true;
}

/* Has everyone posted this round, or does so within a short while? */
static inline bool find_all(const struct ct_local *local)
{
    int looks = local->looks;

    for (int i = 0; i < local->size; i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        while (atomic_load_explicit(&cell->posted, memory_order_acquire) < local->round) {
            if (looks-- <= 0)
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
static inline bool sum_usual(const struct ct_local *local, const struct ct_small_message *brief)
{
    bool in_order = brief->mode != CT_MODE_INVARIANT || local->size == 2;

    if (brief->reduce != CT_REDUCE_SUM || !in_order || brief->bytes > sizeof(floats))
        return false;
    if (brief->dtype == CT_F32) {
        floats sum = *(const floats *)data_of(local, 0);

        for (int i = 1; i < local->size; i++)
            sum += *(const floats *)data_of(local, i);
        copy_few(brief->recv, (const char *)&sum, brief->bytes);
        return true;
    }
    if (brief->dtype == CT_F64) {
        doubles sum = *(const doubles *)data_of(local, 0);

        for (int i = 1; i < local->size; i++)
            sum += *(const doubles *)data_of(local, i);
        copy_few(brief->recv, (const char *)&sum, brief->bytes);
        return true;
    }
    return false;
}

/* A vector at a time and none cut off: 32 bytes are whole vectors of the portable kernels. */
static void sum_any(struct ct_local *local, const struct ct_small_message *brief)
{
    _Alignas(64) char result[CT_CELL_BYTES];
    struct ct_reduction how = {.dtype = brief->dtype,
                               .reduce = brief->reduce,
                               .order =
                                   brief->mode == CT_MODE_INVARIANT ? CT_ORDER_TREE : CT_ORDER_RANK,
                               .divisor = brief->reduce == CT_REDUCE_AVG ? local->size : 1};

    for (int i = 0; i < local->size; i++)
        local->sources[i] = data_of(local, i);
    ct_reduce_with(ct_reduce_isa(0), &how, result, local->sources, local->size,
                   CT_CELL_BYTES / ct_dtype_size(brief->dtype));
    ct_local_copy(brief->recv, result, brief->bytes);
}

bool ct_local_collect(void *state, const struct ct_small_message *brief)
{
    struct ct_local *local = state;

    ct_local_notify(local);
    local->early = !find_all(local) || !is_same(local, brief->signature);
    if (local->early)
        return false;
    __builtin_prefetch(ct_local_cell(local, local->rank, local->round + 1), 1);
    if (brief->bytes > 0 && !sum_usual(local, brief))
        sum_any(local, brief);
    local->met = local->round++;
    return true;
}
