/* See local.h: collectives on symmetric memory. Each rank finds its peers' buffers by what they
 * offer in their cells, and reads or writes them where they are:
 *
 *   all_reduce       a rank adds up its share of all inputs and writes it to all outputs
 *   reduce_scatter   a rank adds up its part of all inputs
 *   all_gather       a rank copies the others' inputs
 *   broadcast        all copy the root's input
 */
#include "backend/local/local_algorithm.h"

#include "base/assert.h"

#include <stdlib.h>

enum {
    INPUT,
    OUTPUT,
    SLICE_BYTES = 1 << 20, /* moved between two checks of whether the group is broken */
};

/* How many buffers a member has to offer: the input, or both. */
static int offers_of(const struct ct_task *task)
{
    return task->call.kind == CT_CALL_ALL_REDUCE ? 2 : 1;
}

/* Does member i have to offer anything? */
static bool has_offer(const struct ct_task *task, int i)
{
    return task->call.kind != CT_CALL_BROADCAST || i == task->call.peer;
}

bool ct_local_offers(const struct ct_local *local, const struct ct_task *task)
{
    return ct_select(&local->tuning, CT_TOPOLOGY_SYMMETRIC, &task->call) == CT_ALGO_IN_PLACE;
}

/* ---- allocations of the members --------------------------------------------------------------*/

static struct ct_local_allocation *find_allocation(const struct ct_local *local, int rank,
                                                   uint64_t id)
{
    struct ct_local_allocation *allocation = local->reach[rank].allocations;

    while (allocation != NULL && allocation->id != id)
        allocation = allocation->next;
    return allocation;
}

static void free_allocation(struct ct_local *local, struct ct_local_allocation **link)
{
    struct ct_local_allocation *allocation = *link;

    *link = allocation->next;
    if (allocation->mapping != NULL)
        ct_memory_detach(local->memory, allocation->mapping);
    free(allocation);
}

/* An allocation that its owner has freed is never offered again. */
static void free_freed(struct ct_local *local)
{
    for (int i = 0; i < local->size; i++) {
        struct ct_local_allocation **link = &local->reach[i].allocations;

        while (*link != NULL) {
            const struct ct_local_allocation *allocation = *link;
            bool freed = allocation->mapping != NULL && ct_mapping_freed(allocation->mapping);

            if (i == local->rank)
                freed = !ct_memory_lives(local->memory, allocation->id);
            if (freed)
                free_allocation(local, link);
            else
                link = &(*link)->next;
        }
    }
}

void ct_local_unmap(struct ct_local *local)
{
    for (int i = 0; i < local->size; i++)
        while (local->reach[i].allocations != NULL)
            free_allocation(local, &local->reach[i].allocations);
}

/* ---- offer -----------------------------------------------------------------------------------*/

/* Where this rank's buffers lie; of id 0 when it has nothing to offer, or not all that is needed,
 * or what the others cannot reach. */
static void find_offer(struct ct_local *local, const struct ct_task *task,
                       struct ct_memory_place *offer)
{
    const struct ct_call *call = &task->call;
    bool reduces_parts = call->kind == CT_CALL_REDUCE_SCATTER;
    size_t bytes = ct_call_bytes(call) * (size_t)(reduces_parts ? call->size : 1);
    int count = has_offer(task, local->rank) ? offers_of(task) : 0;

    memset(offer, 0, CT_OFFERS * sizeof *offer);
    for (int i = 0; i < count; i++) {
        const struct ct_local_allocation *allocation;

        offer[i] = ct_memory_find(local->memory, i == INPUT ? call->send : call->recv, bytes);
        allocation = find_allocation(local, local->rank, offer[i].id);
        if (offer[i].id == 0 || (allocation != NULL && allocation->state == CT_USELESS)) {
            memset(offer, 0, CT_OFFERS * sizeof *offer);
            return;
        }
    }
}

/* An offer, and how to get there if it is the first of its allocation; or else the first chunk. */
static void offer_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_segment_line *line = ct_local_line(local, local->rank);
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);

    find_offer(local, task, cell->offer);
    if (cell->offer[INPUT].id == 0) {
        ct_local_staged(task)->stage(local, task, k);
        return;
    }
    for (int i = 0; i < offers_of(task); i++)
        if (find_allocation(local, local->rank, cell->offer[i].id) == NULL)
            line->handle[i] = ct_memory_handle(local->memory, cell->offer[i].id);
}

/* Set the addresses here of the buffers that were offered in `round`; all are in the lists. */
static void use_offers(struct ct_local *local, struct ct_task *task, uint64_t round)
{
    for (int rank = 0; rank < local->size; rank++) {
        const struct ct_memory_place *offer = ct_local_cell(local, rank, round)->offer;

        for (int i = 0; i < offers_of(task) && has_offer(task, rank); i++) {
            char *base = find_allocation(local, rank, offer[i].id)->base;

            local->reach[rank].buffer[i] = base != NULL ? base + offer[i].offset : NULL;
        }
    }
}

/* The rounds so far were not those of the staged way. */
static void restart(const struct ct_local *local, struct ct_task *task, enum ct_local_path path)
{
    bool by_domains = task->call.kind == CT_CALL_ALL_REDUCE && ct_local_by_domains(local, task);

    task->path = (int)path;
    if (path == CT_PATH_DIRECT)
        task->algorithm = by_domains ? CT_ALGO_DOMAINS_IN_PLACE : CT_ALGO_IN_PLACE;
    task->skipped = task->at + 1;
}

static void offer_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    int offered = 0, needed = 0, unknown = 0;

    for (int rank = 0; rank < local->size; rank++) {
        const struct ct_memory_place *offer = ct_local_cell(local, rank, local->round)->offer;

        if (!has_offer(task, rank))
            continue;
        needed++;
        offered += offer[INPUT].id != 0;
        for (int i = 0; i < offers_of(task); i++)
            unknown += find_allocation(local, rank, offer[i].id) == NULL;
    }
    if (offered == 0) {
        task->path = CT_PATH_STAGED;
        ct_local_staged(task)->consume(local, task, k);
    } else if (offered < needed) {
        restart(local, task, CT_PATH_STAGED);
    } else if (unknown > 0) {
        restart(local, task, CT_PATH_REGISTER);
    } else {
        use_offers(local, task, local->round);
        restart(local, task, CT_PATH_DIRECT);
    }
}

/* ---- register --------------------------------------------------------------------------------*/

/* Add the allocation that `rank` offers, if it is new, and try to map it. */
static int add_offer(struct ct_local *local, int rank, uint64_t id,
                     const struct ct_memory_handle *handle, struct ct_error *err)
{
    struct ct_local_allocation *allocation;

    if (find_allocation(local, rank, id) != NULL)
        return 1;
    allocation = calloc(1, sizeof *allocation);
    if (allocation == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for an allocation of rank %d", rank);
    allocation->id = id;
    if (rank == local->rank || local->one_process)
        allocation->base = handle->base;
    else
        allocation->mapping = ct_memory_attach(local->memory, handle);
    if (allocation->mapping != NULL)
        allocation->base = ct_mapping_base(allocation->mapping);
    allocation->next = local->reach[rank].allocations;
    local->reach[rank].allocations = allocation;
    return 1;
}

/* Comes before this rank posts, so the offers of the round before are still there. */
static int register_work(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    uint64_t round = local->round - 1;
    int code = 1;

    free_freed(local);
    for (int rank = 0; rank < local->size; rank++) {
        const struct ct_memory_place *offer = ct_local_cell(local, rank, round)->offer;
        const struct ct_memory_handle *handles = ct_local_line(local, rank)->handle;

        for (int i = 0; i < offers_of(task) && has_offer(task, rank) && code == 1; i++)
            code = add_offer(local, rank, offer[i].id, &handles[i], err);
    }
    if (code == 1)
        use_offers(local, task, round);
    return code;
}

/* Are all that are new to be reached from here? */
static void register_stage(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_segment_cell *cell = ct_local_cell(local, local->rank, local->round);

    (void)task;
    (void)k;
    cell->mapped = 1;
    for (int rank = 0; rank < local->size; rank++)
        for (const struct ct_local_allocation *x = local->reach[rank].allocations; x != NULL;
             x = x->next)
            if (x->state == CT_NEW && x->base == NULL)
                cell->mapped = 0;
}

static void register_consume(struct ct_local *local, struct ct_task *task, size_t k)
{
    bool all = true;

    (void)k;
    for (int rank = 0; rank < local->size; rank++)
        all = all && ct_local_cell(local, rank, local->round)->mapped == 1;
    for (int rank = 0; rank < local->size; rank++)
        for (struct ct_local_allocation *x = local->reach[rank].allocations; x != NULL; x = x->next)
            if (x->state == CT_NEW)
                x->state = all ? CT_USABLE : CT_USELESS;
    restart(local, task, all ? CT_PATH_DIRECT : CT_PATH_STAGED);
}

/* ---- direct ----------------------------------------------------------------------------------*/

/* Slice k of this rank's share: read from all inputs, written to all outputs, which may be the
 * same, in one pass. */
static void all_reduce_slice(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span all = {0, ct_call_bytes(&task->call)};
    struct ct_span slice =
        ct_local_chunk(ct_local_part(all, local->size, local->rank), SLICE_BYTES, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = local->reach[i].buffer[INPUT] + slice.at;
    for (int d = 1; d < local->size; d++)
        local->copies[d - 1] =
            local->reach[(local->rank + d) % local->size].buffer[OUTPUT] + slice.at;
    ct_local_reduce(local, task, task->call.recv + slice.at, slice.bytes, local->size - 1);
}

static void reduce_scatter_slice(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span in = ct_local_chunk(ct_call_in(&task->call, local->rank), SLICE_BYTES, k);
    struct ct_span out = ct_local_chunk(ct_call_out(&task->call, local->rank), SLICE_BYTES, k);

    for (int i = 0; i < local->size; i++)
        local->sources[i] = local->reach[i].buffer[INPUT] + in.at;
    ct_local_reduce(local, task, task->call.recv + out.at, in.bytes, 0);
}

/* Each rank begins with its own, then its successor, so that not all read from one. */
static void all_gather_slice(struct ct_local *local, struct ct_task *task, size_t k)
{
    for (int d = 0; d < local->size; d++) {
        int i = (local->rank + d) % local->size;
        struct ct_span whole = ct_call_out(&task->call, i);
        struct ct_span slice = ct_local_chunk(whole, SLICE_BYTES, k);

        ct_local_copy(task->call.recv + slice.at,
                      local->reach[i].buffer[INPUT] + (slice.at - whole.at), slice.bytes);
    }
}

static void broadcast_slice(struct ct_local *local, struct ct_task *task, size_t k)
{
    struct ct_span slice = ct_local_chunk(ct_call_out(&task->call, local->rank), SLICE_BYTES, k);

    ct_local_copy(task->call.recv + slice.at,
                  local->reach[task->call.peer].buffer[INPUT] + slice.at, slice.bytes);
}

/* One slice a call: between two of them the group checks whether it is broken. */
static int direct_work(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    size_t slices = (task->call.longest_bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    size_t k = task->part++;

    (void)err;
    task->moves++;
    switch (task->call.kind) {
    case CT_CALL_ALL_REDUCE:
        all_reduce_slice(local, task, k);
        slices = (slices + (size_t)local->size - 1) / (size_t)local->size;
        break;
    case CT_CALL_REDUCE_SCATTER:
        reduce_scatter_slice(local, task, k);
        break;
    case CT_CALL_ALL_GATHER:
        all_gather_slice(local, task, k);
        break;
    default:
        CT_ASSERT(task->call.kind == CT_CALL_BROADCAST);
        broadcast_slice(local, task, k);
    }
    return task->part >= slices;
}

/* ---- the table -------------------------------------------------------------------------------*/

/* The first waits as the staged path does. No rank leaves while its input is read. */
const struct ct_local_algorithm *ct_local_direct(const struct ct_task *task)
{
    static const struct ct_local_algorithm offer = {ct_local_one_round, offer_stage, offer_consume,
                                                    CT_AWAIT_ALL,       NULL,        NULL};
    static const struct ct_local_algorithm offer_root = {
        ct_local_one_round, offer_stage, offer_consume, CT_AWAIT_ROOT, NULL, NULL};
    static const struct ct_local_algorithm meet_new = {
        ct_local_one_round, register_stage, register_consume, CT_AWAIT_ALL, NULL, register_work};
    static const struct ct_local_algorithm direct = {
        ct_local_one_round, ct_local_no_bytes, ct_local_no_bytes, CT_AWAIT_ALL, NULL, direct_work};
    static const struct ct_local_algorithm direct_root = {
        ct_local_one_round, ct_local_no_bytes, ct_local_no_bytes, CT_AWAIT_ALL_AT_ROOT, NULL,
        direct_work};
    bool rooted = task->call.kind == CT_CALL_BROADCAST;

    if (task->path == CT_PATH_OFFER)
        return rooted && task->algorithm != CT_ALGO_DOMAINS ? &offer_root : &offer;
    if (task->path == CT_PATH_REGISTER)
        return &meet_new;
    if (task->algorithm == CT_ALGO_DOMAINS_IN_PLACE)
        return ct_local_domains(task);
    return rooted ? &direct_root : &direct;
}
