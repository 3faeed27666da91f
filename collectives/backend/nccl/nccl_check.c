/* See nccl_check.h. */
#include "backend/nccl/nccl_check.h"

#include "base/assert.h"

#include <stdlib.h>

static int queue_count(const struct ct_nccl_check *check)
{
    return 1 + 2 * check->host->size;
}

static int index_of(const struct ct_nccl_check *check, const struct ct_call *call)
{
    if (!ct_call_is_transfer(call))
        return 0;
    return 1 + (call->kind == CT_CALL_SEND ? 0 : check->host->size) + call->peer;
}

int ct_nccl_check_init(struct ct_nccl_check *check, struct ct_group *host)
{
    *check = (struct ct_nccl_check){.host = host};
    check->queues = calloc((size_t)queue_count(check), sizeof *check->queues);
    return check->queues != NULL ? 0 : CT_ENOMEM;
}

void ct_nccl_check_deinit(struct ct_nccl_check *check)
{
    free(check->queues);
    check->queues = NULL;
}

uint64_t ct_nccl_check_push(struct ct_nccl_check *check, const struct ct_task *task)
{
    struct ct_nccl_queue *queue = &check->queues[index_of(check, &task->call)];

    if (queue->pushed - queue->done >= CT_REQUESTS_MAX)
        return 0;
    queue->own[++queue->pushed % CT_REQUESTS_MAX] = task->signature;
    check->open++;
    return queue->pushed;
}

uint64_t ct_nccl_check_done(const struct ct_nccl_check *check, const struct ct_call *call)
{
    return check->queues[index_of(check, call)].done;
}

/* ---- one queue -------------------------------------------------------------------------------*/

static void begin(struct ct_nccl_check *check, struct ct_nccl_queue *queue, int index)
{
    const struct ct_group *host = check->host;
    struct ct_call call = {.kind = CT_CALL_BARRIER,
                           .dtype = CT_U8,
                           .rank = host->rank,
                           .size = host->size,
                           .scale = 1.0};

    if (index > 0) {
        call.kind = index <= host->size ? CT_CALL_SEND : CT_CALL_RECV;
        call.peer = (index - 1) % host->size;
    }
    bool complete = ct_call_complete(&call);
    CT_ASSERT(complete);
    queue->task = (struct ct_task){.call = call,
                                   .signature = queue->own[(queue->done + 1) % CT_REQUESTS_MAX]};
    queue->busy = true;
}

static int pump(struct ct_nccl_check *check, int index, struct ct_error *err)
{
    const struct ct_group *host = check->host;
    struct ct_nccl_queue *queue = &check->queues[index];
    int steps = 0;

    while (queue->done < queue->pushed) {
        if (!queue->busy)
            begin(check, queue, index);
        uint64_t moves = queue->task.moves;
        int code = host->backend->progress(host->state, &queue->task, err);
        if (code < 0)
            return code;
        steps += code == 1 || queue->task.moves != moves;
        if (code == 0)
            break;
        queue->busy = false;
        queue->done++;
        check->open--;
    }
    return steps;
}

int ct_nccl_check_pump(struct ct_nccl_check *check, struct ct_error *err)
{
    int steps = 0;

    for (int i = 0; i < queue_count(check) && check->open > 0 && steps >= 0; i++) {
        int more = pump(check, i, err);

        steps = more < 0 ? more : steps + more;
    }
    return steps;
}

int ct_nccl_check_missing(const struct ct_nccl_check *check)
{
    const struct ct_group *host = check->host;

    if (!check->queues[0].busy)
        return -1;
    return host->backend->missing(host->state, &check->queues[0].task);
}
