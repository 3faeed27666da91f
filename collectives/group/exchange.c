/* See exchange.h. */
#include "group/exchange.h"

#include "base/assert.h"

#include <string.h>

/* The send or receive that a message stands for. */
static struct ct_call transfer_of(const struct ct_call *call, const struct ct_transfer *message)
{
    const struct ct_data *data = &message->data;

    return (struct ct_call){.kind = message->direction == CT_TO ? CT_CALL_SEND : CT_CALL_RECV,
                            .dtype = data->dtype,
                            .rank = call->rank,
                            .size = call->size,
                            .peer = message->peer,
                            .tag = call->tag,
                            .count = data->count,
                            .send = data->send != NULL ? data->send : data->recv,
                            .recv = data->recv,
                            .stream = call->stream};
}

/* From `at` on, the first message of the list in this direction with this peer; `count` when there
 * is none. */
static size_t find(const struct ct_call *call, size_t at, enum ct_direction direction, int peer)
{
    while (at < call->count &&
           (call->transfers[at].direction != direction || call->transfers[at].peer != peer))
        at++;
    return at;
}

/* ---- messages to oneself: the nth message sent is the nth received ---------------------------*/

/* Give the next pair; false at the end. Lists that match end together. */
static bool next_pair(const struct ct_call *call, size_t *out, size_t *in)
{
    *out = find(call, *out, CT_TO, call->rank);
    *in = find(call, *in, CT_FROM, call->rank);
    return *out < call->count && *in < call->count;
}

static bool self_matches(const struct ct_call *call)
{
    size_t out = 0, in = 0;

    for (; next_pair(call, &out, &in); out++, in++) {
        const struct ct_data *from = &call->transfers[out].data, *to = &call->transfers[in].data;

        if (from->count != to->count || from->dtype != to->dtype)
            return false;
    }
    return out >= call->count && in >= call->count;
}

static int copy_self(struct ct_group *group, const struct ct_call *call)
{
    int code = 0;

    for (size_t out = 0, in = 0; code == 0 && next_pair(call, &out, &in); out++, in++) {
        struct ct_call from = transfer_of(call, &call->transfers[out]);
        struct ct_call to = transfer_of(call, &call->transfers[in]);

        if (from.count == 0 || to.recv == from.send)
            continue;
        if (group->backend->copy == NULL)
            memcpy(to.recv, from.send, ct_call_bytes(&from));
        else
            code = group->backend->copy(group->state, to.recv, from.send, ct_call_bytes(&from),
                                        call->stream);
    }
    return code;
}

bool ct_exchange_valid(const struct ct_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        const struct ct_transfer *message = &call->transfers[i];
        struct ct_call transfer = transfer_of(call, message);

        if (message->direction != CT_TO && message->direction != CT_FROM)
            return false;
        if (message->peer == call->rank) /* checked as if it went to another */
            transfer.rank = -1;
        if (!ct_call_complete(&transfer))
            return false;
    }
    return self_matches(call);
}

/* ---- queues ----------------------------------------------------------------------------------*/

static struct ct_transfer_queue *queue_of(const struct ct_group *group, enum ct_direction direction,
                                          int peer)
{
    return &group->transfer_queues[(direction == CT_TO ? 0 : group->size) + peer];
}

/* Begin the queue's next message. False when there is none. */
static bool next_message(struct ct_transfer_queue *queue, const struct ct_call *call,
                         enum ct_direction direction, int peer)
{
    size_t at = find(call, queue->next, direction, peer);

    queue->busy = at < call->count;
    queue->next = at + 1;
    if (!queue->busy)
        return false;
    struct ct_call transfer = transfer_of(call, &call->transfers[at]);
    bool valid = ct_call_complete(&transfer);
    CT_ASSERT(valid); /* ct_exchange_valid saw it, and it belongs to the operation */
    queue->task = (struct ct_task){.call = transfer, .signature = ct_call_signature(&transfer)};
    return true;
}

static int begin(struct ct_group *group, struct ct_task *task)
{
    for (int direction = CT_TO; direction <= CT_FROM; direction++)
        for (int peer = 0; peer < group->size; peer++) {
            struct ct_transfer_queue *queue = queue_of(group, (enum ct_direction)direction, peer);

            *queue = (struct ct_transfer_queue){0};
            if (peer != group->rank)
                (void)next_message(queue, &task->call, (enum ct_direction)direction, peer);
        }
    task->stage = 1;
    return copy_self(group, &task->call);
}

bool ct_exchange_holds(const struct ct_group *group, const struct ct_task *task,
                       enum ct_call_kind kind, int peer)
{
    enum ct_direction direction = kind == CT_CALL_SEND ? CT_TO : CT_FROM;

    if (task->stage == 0)
        return find(&task->call, 0, direction, peer) < task->call.count;
    return queue_of(group, direction, peer)->busy;
}

/* A plain transfer of this queue that was started before the exchange is not complete. */
static bool is_behind_transfer(const struct ct_group *group, const struct ct_task *task,
                               const struct ct_transfer_queue *queue)
{
    for (int i = 0; i < group->queued && &group->queue[i]->task != task; i++) {
        const struct ct_call *earlier = &group->queue[i]->task.call;

        if (earlier->kind == queue->task.call.kind && earlier->peer == queue->task.call.peer)
            return true;
    }
    return false;
}

/* The backend keeps its own order of messages, and there is another one: that is over only when
 * both are. */
static bool is_followed(const struct ct_transfer_queue *queue, const struct ct_call *call,
                        enum ct_direction direction, int peer)
{
    return queue->task.queued && find(call, queue->next, direction, peer) < call->count;
}

/* 1 when the queue is empty. */
static int advance_queue(struct ct_group *group, struct ct_task *task,
                         struct ct_transfer_queue *queue, struct ct_error *err)
{
    if (queue->busy && is_behind_transfer(group, task, queue))
        return 0;
    while (queue->busy) {
        uint64_t moves = queue->task.moves;
        int code = group->backend->progress(group->state, &queue->task, err);

        enum ct_direction direction = queue->task.call.kind == CT_CALL_SEND ? CT_TO : CT_FROM;
        int peer = queue->task.call.peer;

        task->moves += queue->task.moves - moves;
        if (code < 0 || (code == 0 && !is_followed(queue, &task->call, direction, peer)))
            return code;
        (void)next_message(queue, &task->call, direction, peer);
    }
    return 1;
}

int ct_exchange_progress(struct ct_group *group, struct ct_task *task, struct ct_error *err)
{
    const struct ct_backend *backend = group->backend;
    int open = 0;

    if (task->stage == 0 && begin(group, task) != 0)
        return ct_error_set(err, CT_EUNAVAILABLE, "the device failed to copy within its memory");
    for (int i = 0; i < 2 * group->size; i++) {
        int code = advance_queue(group, task, &group->transfer_queues[i], err);

        if (code < 0)
            return code;
        open += code == 0;
    }
    int copied = backend->copied != NULL ? backend->copied(group->state) : 1;
    if (copied < 0)
        return ct_error_set(err, copied, "the device failed to copy within its memory");
    return open == 0 && copied == 1;
}

int ct_exchange_missing(const struct ct_group *group)
{
    for (int i = 2 * group->size - 1; i >= 0; i--)
        if (group->transfer_queues[i].busy)
            return group->transfer_queues[i].task.call.peer;
    return -1;
}
