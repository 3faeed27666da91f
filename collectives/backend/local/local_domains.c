/* See local.h: ranks in several domains, D of them (domains.h). What a domain has taken over from
 * another is handed on inside, and goes over once.
 *
 *   all_reduce   chunk c in turns; a member's share is that among the members of its domain
 *     round c + d       domain d: stage the chunk, add up the own share: what domain d - 1 has come
 *                       to, then the members' inputs, in rank order
 *     round c + D       fetch the own share of what the last domain has come to
 *     round c + D + 1   collect the other shares from the own domain's members
 *
 * So an element is added up in rank order, as in the pipeline, with the same bits. A domain works
 * on another chunk than the next one does. On symmetric memory it is the same without stages: a
 * partial sum lies in the output of who made it until the sum takes its place, and who fetches a
 * share writes it to all members.
 *
 *   broadcast    round c       the root's domain reads its stage; another's members a share each
 *                round c + 1   and the others' shares from these
 *   all_gather   the same, for the parts of all members of other domains
 *
 * A stage has compartments for what is staged and for what is made of it. As a rank writes the
 * latter when a round's flags are seen, it is in the stage of the next round, in which it is read;
 * else rule 2 would not keep the next call from writing there. */
#include "backend/local/local_algorithm.h"

#include "base/assert.h"
#include "reduce/reduce.h"

enum { INPUT, OUTPUT };
enum compartment { STAGED, PARTIAL, COPIED, COMPARTMENTS };

bool ct_local_by_domains(const struct ct_local *local, const struct ct_task *task)
{
    return local->domains.count > 1 &&
           ct_select(&local->tuning, CT_TOPOLOGY_DOMAINS, &task->call) == CT_ALGO_DOMAINS;
}

/* ---- flags -----------------------------------------------------------------------------------*/

static int first_of(const struct ct_local *local, int domain)
{
    return local->domains.first[domain];
}

static int end_of(const struct ct_local *local, int domain)
{
    return local->domains.first[domain + 1];
}

/* Once a round: others may be reading it. */
static bool gather(struct ct_local *local, const struct ct_task *task, int *polls)
{
    struct ct_segment_gathered *mine =
        &ct_local_line(local, local->rank)->gathered[local->round & 1];

    if (atomic_load_explicit(&mine->posted, memory_order_relaxed) == local->round)
        return true;
    for (int i = local->rank + 1; i < end_of(local, local->domain); i++) {
        const struct ct_segment_cell *cell = ct_local_cell(local, i, local->round);

        while (atomic_load_explicit(&cell->posted, memory_order_acquire) < local->round)
            if ((*polls)-- <= 0)
                return false;
        if (task->at == 0 && !ct_signature_equal(cell->signature, task->signature))
            return false;
    }
    mine->signature = task->signature;
    atomic_store_explicit(&mine->posted, local->round, memory_order_release);
    return true;
}

bool ct_local_gathered(struct ct_local *local, const struct ct_task *task)
{
    bool first = local->rank == first_of(local, local->domain);
    int polls = local->polls;

    if (first && !gather(local, task, &polls))
        return false;
    for (int d = 0; d < local->domains.count; d++) {
        const struct ct_segment_gathered *theirs =
            &ct_local_line(local, first_of(local, d))->gathered[local->round & 1];

        while (atomic_load_explicit(&theirs->posted, memory_order_acquire) < local->round)
            if (polls-- <= 0)
                return false;
        if (!ct_signature_equal(theirs->signature, task->signature))
            return false;
    }
    local->arrived = local->round;
    return true;
}

/* ---- chunks, shares, compartments ------------------------------------------------------------*/

static bool is_direct(const struct ct_task *task)
{
    return task->algorithm == CT_ALGO_DOMAINS_IN_PLACE;
}

static size_t unit_of(const struct ct_local *local, const struct ct_task *task)
{
    if (task->call.kind == CT_CALL_ALL_GATHER)
        return local->block_bytes; /* a compartment a rank */
    return is_direct(task) ? local->chunk_bytes : local->chunk_bytes / COMPARTMENTS / 64 * 64;
}

static size_t chunks_of(const struct ct_local *local, const struct ct_task *task)
{
    size_t unit = unit_of(local, task);

    return (task->call.longest_bytes + unit - 1) / unit;
}

/* Of rank i, among its domain's members; from the chunk's start. */
static struct ct_span share_of(const struct ct_local *local, struct ct_span chunk, int i)
{
    int d = ct_domains_find(&local->domains, i);

    return ct_local_part(chunk, end_of(local, d) - first_of(local, d), i - first_of(local, d));
}

static struct ct_span overlap(struct ct_span a, struct ct_span b)
{
    size_t at = CT_MAX(a.at, b.at), end = CT_MIN(a.at + a.bytes, b.at + b.bytes);

    return (struct ct_span){at, end > at ? end - at : 0};
}

/* Rank i's compartment of what it writes in round k of this call. */
static char *compartment(const struct ct_local *local, const struct ct_task *task, int i, size_t k,
                         size_t which)
{
    return ct_local_stage(local, i, local->round + k + task->skipped - task->at) +
           which * unit_of(local, task);
}

/* ---- all_reduce ------------------------------------------------------------------------------*/

static struct ct_span chunk_of(const struct ct_local *local, const struct ct_task *task, size_t c)
{
    struct ct_span all = {0, ct_call_bytes(&task->call)};

    return ct_local_chunk(all, unit_of(local, task), c);
}

/* Where rank i's input of chunk c is read by its domain. */
static const char *input_of(const struct ct_local *local, const struct ct_task *task, int i,
                            size_t c)
{
    size_t at = chunk_of(local, task, c).at;

    if (i == local->rank)
        return task->call.send + at;
    if (is_direct(task))
        return local->reach[i].buffer[INPUT] + at;
    return compartment(local, task, i, c + (size_t)ct_domains_find(&local->domains, i), STAGED);
}

/* Where rank i leaves what it has added up of chunk c; at the place of its share. */
static char *partial_of(const struct ct_local *local, const struct ct_task *task, int i, size_t c)
{
    size_t at = chunk_of(local, task, c).at;

    if (is_direct(task))
        return i == local->rank ? task->call.recv + at : local->reach[i].buffer[OUTPUT] + at;
    return compartment(local, task, i, c + (size_t)ct_domains_find(&local->domains, i) + 1,
                       PARTIAL);
}

static bool is_last(const struct ct_local *local)
{
    return local->domain == local->domains.count - 1;
}

/* A block of the own share, behind what rank `before` has added up (-1: nobody). */
static void add_block(struct ct_local *local, const struct ct_task *task, size_t c,
                      struct ct_span block, int before)
{
    int sources = 0, copies = 0;

    if (before >= 0)
        local->sources[sources++] = partial_of(local, task, before, c) + block.at;
    for (int i = first_of(local, local->domain); i < end_of(local, local->domain); i++) {
        local->sources[sources++] = input_of(local, task, i, c) + block.at;
        if (is_direct(task) && is_last(local) && i != local->rank)
            local->copies[copies++] = partial_of(local, task, i, c) + block.at;
    }
    struct ct_reduction how = ct_call_reduction(&task->call);
    how.divisor = task->call.reduce == CT_REDUCE_AVG && is_last(local) ? task->call.members : 1;
    how.copy = local->copies;
    how.copies = copies;
    ct_reduce_buffers(&how, partial_of(local, task, local->rank, c) + block.at, local->sources,
                      sources, block.bytes / ct_dtype_size(task->call.dtype));
}

static void add_share(struct ct_local *local, const struct ct_task *task, size_t c)
{
    struct ct_span chunk = chunk_of(local, task, c), own = share_of(local, chunk, local->rank);
    int d = local->domain;

    if (d == 0 && own.bytes > 0)
        add_block(local, task, c, own, -1);
    for (int i = d > 0 ? first_of(local, d - 1) : 0; d > 0 && i < first_of(local, d); i++) {
        struct ct_span block = overlap(own, share_of(local, chunk, i));

        if (block.bytes > 0)
            add_block(local, task, c, block, i);
    }
}

/* A block of the sum, from rank `from`. */
static void fetch_block(struct ct_local *local, const struct ct_task *task, size_t c,
                        struct ct_span block, int from)
{
    const char *sum = partial_of(local, task, from, c) + block.at;
    size_t round = c + (size_t)local->domains.count + 1;

    if (!is_direct(task)) {
        ct_local_copy(compartment(local, task, local->rank, round, COPIED) + block.at, sum,
                      block.bytes);
        return;
    }
    ct_local_copy(partial_of(local, task, local->rank, c) + block.at, sum, block.bytes);
    for (int i = first_of(local, local->domain); i < end_of(local, local->domain); i++)
        if (i != local->rank)
            ct_local_copy(partial_of(local, task, i, c) + block.at,
                          partial_of(local, task, local->rank, c) + block.at, block.bytes);
}

static void fetch_share(struct ct_local *local, const struct ct_task *task, size_t c)
{
    struct ct_span chunk = chunk_of(local, task, c), own = share_of(local, chunk, local->rank);

    for (int i = first_of(local, local->domains.count - 1); i < local->size; i++) {
        struct ct_span block = overlap(own, share_of(local, chunk, i));

        if (block.bytes > 0)
            fetch_block(local, task, c, block, i);
    }
}

/* Chunk c from the domain's members: in the last one from what they have added up. */
static void collect(struct ct_local *local, const struct ct_task *task, size_t c)
{
    struct ct_span chunk = chunk_of(local, task, c);
    size_t round = c + (size_t)local->domains.count + 1;

    for (int i = first_of(local, local->domain); i < end_of(local, local->domain); i++) {
        struct ct_span share = share_of(local, chunk, i);
        const char *from = is_last(local) ? partial_of(local, task, i, c)
                                          : compartment(local, task, i, round, COPIED);

        ct_local_copy(task->call.recv + chunk.at + share.at, from + share.at, share.bytes);
    }
}

static size_t all_reduce_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(local, task) + (size_t)local->domains.count + 1;
}

/* Is it a chunk's turn that began `lag` rounds ago? */
static bool is_due(const struct ct_local *local, const struct ct_task *task, size_t k, size_t lag)
{
    return k >= lag && k - lag < chunks_of(local, task);
}

static void all_reduce_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t lag = (size_t)local->domain;

    if (!is_due(local, task, k, lag))
        return;
    struct ct_span chunk = chunk_of(local, task, k - lag);
    struct ct_span own = share_of(local, chunk, local->rank);
    const char *from = task->call.send + chunk.at;
    char *to = compartment(local, task, local->rank, k, STAGED);
    size_t behind = own.at + own.bytes;
    ct_local_copy(to, from, own.at);
    ct_local_copy(to + behind, from + behind, chunk.bytes - behind);
}

static void all_reduce_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    size_t domains = (size_t)local->domains.count, mine = (size_t)local->domain;
    size_t late = is_last(local) ? domains : domains + 1;

    if (!is_direct(task) && is_due(local, task, k, late))
        collect(local, task, k - late);
    if (!is_last(local) && is_due(local, task, k, domains))
        fetch_share(local, task, k - domains);
    if (is_due(local, task, k, mine))
        add_share(local, task, k - mine);
}

/* ---- broadcast, all_gather -------------------------------------------------------------------*/

/* Which compartment holds what rank `from` has. */
static size_t compartment_of(const struct ct_task *task, int from)
{
    return task->call.kind == CT_CALL_ALL_GATHER ? (size_t)from : STAGED;
}

static struct ct_span part_of(const struct ct_local *local, const struct ct_task *task, int from,
                              size_t c)
{
    return ct_local_chunk(ct_call_out(&task->call, from), unit_of(local, task), c);
}

/* What rank `from` has staged in this round: all of it inside its domain, else the own share. */
static void copy_part(struct ct_local *local, const struct ct_task *task, int from, size_t k)
{
    struct ct_span part = part_of(local, task, from, k);
    size_t which = compartment_of(task, from);
    const char *staged = compartment(local, task, from, k, which);

    if (ct_domains_find(&local->domains, from) == local->domain) {
        ct_local_copy(task->call.recv + part.at, staged, part.bytes);
        return;
    }
    struct ct_span own = share_of(local, part, local->rank);
    ct_local_copy(compartment(local, task, local->rank, k + 1, which) + own.at, staged + own.at,
                  own.bytes);
}

/* What the members have taken of it in the round before. */
static void forward_part(struct ct_local *local, const struct ct_task *task, int from, size_t k)
{
    struct ct_span part = part_of(local, task, from, k - 1);
    size_t which = compartment_of(task, from);

    if (ct_domains_find(&local->domains, from) == local->domain)
        return;
    for (int i = first_of(local, local->domain); i < end_of(local, local->domain); i++) {
        struct ct_span share = share_of(local, part, i);

        ct_local_copy(task->call.recv + part.at + share.at,
                      compartment(local, task, i, k, which) + share.at, share.bytes);
    }
}

static size_t move_rounds(const struct ct_local *local, const struct ct_task *task)
{
    return chunks_of(local, task) + 1;
}

static void move_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span from =
        ct_local_chunk(ct_call_in(&task->call, local->rank), unit_of(local, task), k);
    struct ct_span to = part_of(local, task, local->rank, k);

    if (task->call.kind == CT_CALL_BROADCAST && !ct_local_is_root(task))
        return;
    ct_local_copy(compartment(local, task, local->rank, k, compartment_of(task, local->rank)),
                  task->call.send + from.at, from.bytes);
    ct_local_copy(task->call.recv + to.at, task->call.send + from.at, from.bytes);
}

static void move(struct ct_local *local, const struct ct_task *task, int from, size_t k)
{
    if (from == local->rank)
        return;
    if (k > 0)
        forward_part(local, task, from, k);
    copy_part(local, task, from, k);
}

static void broadcast_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    move(local, task, task->call.peer, k);
}

/* Each rank begins with its successor, so that not all read from one. */
static void all_gather_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    for (int d = 1; d < local->size; d++)
        move(local, task, (local->rank + d) % local->size, k);
}

/* ---- the table -------------------------------------------------------------------------------*/

const struct ct_local_algorithm *ct_local_domains(const struct ct_task *task)
{
    static const struct ct_local_algorithm all_reduce = {
        all_reduce_rounds, all_reduce_stage, all_reduce_consume, CT_AWAIT_ALL, NULL, NULL};
    static const struct ct_local_algorithm all_reduce_in_place = {
        all_reduce_rounds, ct_local_no_bytes, all_reduce_consume, CT_AWAIT_ALL, NULL, NULL};
    static const struct ct_local_algorithm broadcast = {move_rounds,  move_stage, broadcast_consume,
                                                        CT_AWAIT_ALL, NULL,       NULL};
    static const struct ct_local_algorithm all_gather = {
        move_rounds, move_stage, all_gather_consume, CT_AWAIT_ALL, NULL, NULL};

    if (is_direct(task))
        return &all_reduce_in_place;
    if (task->call.kind == CT_CALL_ALL_REDUCE)
        return &all_reduce;
    CT_ASSERT(task->call.kind == CT_CALL_BROADCAST || task->call.kind == CT_CALL_ALL_GATHER);
    return task->call.kind == CT_CALL_BROADCAST ? &broadcast : &all_gather;
}
