/* See fake.h: communicators made from others, and windows: what all ranks of one have to call. */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>

/* What a split or a shrink is about: NCCL shows the new communicator when it is whole, and until
 * then the parent is in progress. */
struct child {
    struct ct_nccl_comm **to;
    struct ct_nccl_comm
        *comm; /* NULL: of a split of which not all have called yet, or none comes */
    int colour, key;
    bool chosen; /* all have; `comm` is there if one comes */
    bool fails;
};

static int begin_child(struct ct_nccl_comm *parent, const struct child *child)
{
    parent->child = calloc(1, sizeof *parent->child);
    if (parent->child == NULL)
        abort();
    *parent->child = *child;
    *child->to = NULL;
    atomic_store(&parent->state, CT_NCCL_IN_PROGRESS);
    return CT_NCCL_IN_PROGRESS;
}

int ncclCommSplit(struct ct_nccl_comm *comm, int colour, int key, struct ct_nccl_comm **to,
                  struct ct_nccl_config *config)
{
    struct child child = {.to = to,
                          .colour = colour,
                          .key = key,
                          .fails = comm->splits > 0 && fake_has_fault("fail_part", comm->rank)};

    if (!fake_is_fine(config) || colour < CT_NCCL_NO_COLOUR || comm->revoked ||
        fake_state_of(comm) != CT_NCCL_SUCCESS || atomic_load(&comm->under_way) > 0)
        return CT_NCCL_INVALID_ARGUMENT;
    if (comm->splits > 0 && fake_has_fault("refuse_part", comm->rank))
        return CT_NCCL_INVALID_USAGE;
    comm->splits++;
    (void)atomic_fetch_add(&fake_count.splits, 1);
    fake_world_note(comm->world, FAKE_SPLIT, (struct fake_note){{colour, key}});
    return begin_child(comm, &child);
}

/* Once all have chosen: who is with this one. */
static void choose(struct ct_nccl_comm *comm)
{
    struct child *child = comm->child;
    struct fake_note notes[FAKE_RANKS_MAX];
    struct ct_nccl_id id = {{0}};
    int rank = 0, size = 0;

    if (child->chosen || !fake_world_notes(comm->world, FAKE_SPLIT, notes))
        return;
    child->chosen = true;
    if (child->colour == CT_NCCL_NO_COLOUR)
        return;
    for (int i = 0; i < comm->size; i++) {
        if (notes[i].values[0] != child->colour)
            continue;
        size++;
        rank +=
            notes[i].values[1] < child->key || (notes[i].values[1] == child->key && i < comm->rank);
    }
    (void)snprintf(id.internal, sizeof id.internal, "%.64s-%d.%d", comm->id.internal, comm->splits,
                   child->colour);
    child->comm = fake_comm_new(&id, rank, size);
}

static int by_rank(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

/* Survivors alone call. After a failure that NCCL has seen itself the parent is not clean, and
 * refuses. */
int ncclCommShrink(struct ct_nccl_comm *comm, int *excluded, int count, struct ct_nccl_comm **child,
                   struct ct_nccl_config *config, int flags)
{
    struct ct_nccl_id id = {{0}};
    int rank = comm->rank;

    if (!fake_is_fine(config) || count < 1 || flags != CT_NCCL_SHRINK_DEFAULT)
        return CT_NCCL_INVALID_ARGUMENT;
    if (fake_state_of(comm) != CT_NCCL_SUCCESS)
        return fake_state_of(comm) == CT_NCCL_IN_PROGRESS ? CT_NCCL_INVALID_ARGUMENT
                                                          : fake_state_of(comm);
    qsort(excluded, (size_t)count, sizeof *excluded, by_rank);
    for (int i = 0; i < count; i++) {
        if (excluded[i] == comm->rank)
            return CT_NCCL_INVALID_ARGUMENT;
        rank -= excluded[i] < comm->rank;
    }
    (void)atomic_fetch_add(&fake_count.shrinks, 1);
    (void)snprintf(id.internal, sizeof id.internal, "%.64s-s%d", comm->id.internal, comm->size);
    return begin_child(comm, &(struct child){.to = child,
                                             .comm = fake_comm_new(&id, rank, comm->size - count),
                                             .chosen = true,
                                             .fails = fake_has_fault("fail_shrink", comm->rank)});
}

/* A child that fails leaves its parent in error, and nothing else. */
void fake_child_advance(struct ct_nccl_comm *comm)
{
    struct child *child = comm->child;

    choose(comm);
    if (!child->chosen || (child->comm != NULL && !fake_world_is_full(child->comm->world)))
        return;
    if (child->fails) {
        if (child->comm != NULL)
            fake_comm_end(child->comm);
        atomic_store(&comm->state, CT_NCCL_SYSTEM_ERROR);
    } else {
        if (child->comm != NULL) {
            child->comm->forming = false;
            atomic_store(&child->comm->state, CT_NCCL_SUCCESS);
        }
        *child->to = child->comm;
        atomic_store(&comm->state, CT_NCCL_SUCCESS);
    }
    free(child);
    comm->child = NULL;
}

void fake_window_advance(struct ct_nccl_comm *comm)
{
    struct fake_note notes[FAKE_RANKS_MAX];
    bool same = true;

    if (!fake_world_notes(comm->world, FAKE_WINDOW, notes))
        return;
    for (int i = 1; i < comm->size; i++)
        same = same && notes[i].values[0] == notes[0].values[0];
    if (same) {
        *comm->ret_window = comm->registering;
        comm->registering->next = comm->windows;
        comm->windows = comm->registering;
        comm->registering = NULL;
    }
    comm->ret_window = NULL;
    atomic_store(&comm->state, same ? CT_NCCL_SUCCESS : CT_NCCL_INVALID_ARGUMENT);
}

void fake_child_end(struct ct_nccl_comm *comm)
{
    if (comm->child != NULL && comm->child->comm != NULL)
        fake_comm_end(comm->child->comm);
    free(comm->child);
}

/* ---- windows ---------------------------------------------------------------------------------*/

/* Collective, of the same size at all; the handle comes when all have called. */
int ncclCommWindowRegister(struct ct_nccl_comm *comm, void *memory, size_t bytes,
                           struct ct_nccl_window **window, int flags)
{
    *window = NULL;
    if ((uintptr_t)memory % CT_NCCL_WIN_ALIGN != 0 || flags != CT_NCCL_WIN_SYMMETRIC || bytes == 0)
        return CT_NCCL_INVALID_ARGUMENT;
    if (fake_has_fault("no_window", comm->rank))
        return CT_NCCL_SUCCESS;
    if (comm->revoked || fake_state_of(comm) != CT_NCCL_SUCCESS)
        return CT_NCCL_INVALID_ARGUMENT;
    if (fake_has_fault("fail_window", comm->rank))
        return CT_NCCL_UNHANDLED_CUDA_ERROR;
    comm->registering = fake_window_new(memory, bytes);
    if (comm->registering == NULL) /* no memory of ncclMemAlloc */
        return CT_NCCL_UNHANDLED_CUDA_ERROR;
    comm->ret_window = window;
    fake_world_note(comm->world, FAKE_WINDOW, (struct fake_note){{(int64_t)bytes, 0}});
    atomic_store(&comm->state, CT_NCCL_IN_PROGRESS);
    return CT_NCCL_IN_PROGRESS;
}

/* Local. A kernel that works in the window would fault on a device. */
int ncclCommWindowDeregister(struct ct_nccl_comm *comm, struct ct_nccl_window *window)
{
    struct ct_nccl_window **link = &comm->windows;

    if (window == NULL)
        return CT_NCCL_SUCCESS;
    if (atomic_load(&comm->under_way) > 0)
        abort();
    while (*link != NULL && *link != window)
        link = &(*link)->next;
    if (*link == NULL)
        abort();
    *link = window->next;
    fake_window_free(window);
    return CT_NCCL_SUCCESS;
}
