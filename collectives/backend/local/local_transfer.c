/* See local.h: send and recv through a ring of slots for each ordered pair of ranks. A message
 * takes one slot or more, each with the message's signature. */
#include "backend/local/local.h"

#include "base/assert.h"

#include <string.h>

static struct ct_segment_slot *slot_at(const struct ct_local *local, struct ct_segment_ring *ring,
                                       uint64_t index)
{
    size_t stride = sizeof(struct ct_segment_slot) + local->slot_bytes;

    return (void *)((char *)(ring + 1) + index % CT_RING_SLOTS * stride);
}

/* 0 while the peer may still come; CT_ECLOSED when it has left. */
static int peer_gone(const struct ct_local *local, const struct ct_task *task, struct ct_error *err)
{
    if (atomic_load(&ct_local_line(local, task->call.peer)->left) == 0)
        return 0;
    return ct_error_set(err, CT_ECLOSED, "rank %d has closed the group", task->call.peer);
}

/* Bytes that are still to be moved; a message of nothing still takes a slot. */
static bool complete(const struct ct_task *task)
{
    return task->part > 0 && task->at == ct_call_bytes(&task->call);
}

static void moved(const struct ct_local *local, struct ct_task *task, size_t bytes)
{
    task->at += bytes;
    task->part++;
    task->moves++;
    ct_local_notify(local);
}

static int send(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    struct ct_segment_ring *ring = ct_local_ring(local, local->rank, task->call.peer);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

    for (; !complete(task); head++) {
        if (head - atomic_load(&ring->tail) == CT_RING_SLOTS)
            return peer_gone(local, task, err);
        struct ct_segment_slot *slot = slot_at(local, ring, head);
        size_t bytes = CT_MIN(local->slot_bytes, ct_call_bytes(&task->call) - task->at);

        slot->signature = task->signature;
        slot->bytes = bytes;
        if (bytes > 0)
            memcpy(slot + 1, task->call.send + task->at, bytes);
        atomic_store(&ring->head, head + 1);
        moved(local, task, bytes);
    }
    return 1;
}

static int recv(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    struct ct_segment_ring *ring = ct_local_ring(local, task->call.peer, local->rank);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

    for (; !complete(task); tail++) {
        if (atomic_load(&ring->head) == tail) {
            int gone = peer_gone(local, task, err);

            if (gone != 0 && atomic_load(&ring->head) == tail)
                return gone;
            if (gone == 0)
                return 0;
        }
        const struct ct_segment_slot *slot = slot_at(local, ring, tail);

        if (!ct_signature_equal(slot->signature, task->signature))
            return ct_signature_mismatch(task->signature, local->rank, slot->signature,
                                         task->call.peer, err);
        if (slot->bytes > ct_call_bytes(&task->call) - task->at)
            return ct_error_set(err, CT_EPROTOCOL, "rank %d sent more than it announced",
                                task->call.peer);
        if (slot->bytes > 0)
            memcpy(task->call.recv + task->at, slot + 1, slot->bytes);
        size_t bytes = slot->bytes;
        atomic_store(&ring->tail, tail + 1);
        moved(local, task, bytes);
    }
    return 1;
}

int ct_local_transfer(struct ct_local *local, struct ct_task *task, struct ct_error *err)
{
    return task->call.kind == CT_CALL_SEND ? send(local, task, err) : recv(local, task, err);
}
