/* See passes.h: what runs beside what, and who waits for whom.
 *
 *     compute   F0  B0  F1  B1.. dx  dW2  dW1  dW0 | sumsq  sgd
 *     comm                            r0(2)  r1(4)   `waits for the second reduction
 *     model                      sum(2)  `waits for the fourth compute op
 *
 * An op waits, on each other queue, for the last op among those before it in the list whose order
 * with it matters: that touches the same bytes (one of the two writing), or is a call of the same
 * group. Ops of a queue run in order, so one number a queue is enough, and a wait that an earlier
 * one implies is left out.
 *
 * Calls between slices and stages have a queue of their own: the next layer waits for them, and
 * would wait for gradients in front of them in one queue as well. Such a call stays among the
 * compute ops where nothing could be computed beside it: handing it over would only cost time. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

/* Whether something is computed between op `i` and the next op, in direction `step`, that touches
 * the same bytes. */
static bool computes_between(const struct ct_plan_list *list, int i, int step)
{
    const struct ct_program *program = &list->program;

    for (int j = i + step; j >= 0 && j < program->op_count; j += step) {
        if (ct_plan_conflict(list, &program->ops[i], &program->ops[j]))
            return false;
        if (!ct_op_is_comm(program->ops[j].kind))
            return true;
    }
    return false;
}

static enum ct_queue queue_of(const struct ct_plan *plan, const struct ct_plan_list *list, int i)
{
    const struct ct_program_op *op = &list->program.ops[i];

    if (!plan->options.overlap || !ct_op_is_comm(op->kind))
        return CT_QUEUE_COMPUTE;
    if (ct_plan_is_model_comm(op))
        return computes_between(list, i, -1) || computes_between(list, i, 1) ? CT_QUEUE_MODEL
                                                                             : CT_QUEUE_COMPUTE;
    bool inside = op->axis == CT_AXIS_TENSOR || op->axis == CT_AXIS_STAGE; /* a copy of one's own */
    return plan->bucket_count > 1 && !inside ? CT_QUEUE_COMM : CT_QUEUE_COMPUTE;
}

/* The ops of each queue so far, and how many of the others the ops of each wait for already. */
struct queued {
    int count[CT_QUEUE_COUNT];
    int known[CT_QUEUE_COUNT][CT_QUEUE_COUNT];
};

/* How many ops of queue `other` op `i` has to wait for: 0 when an earlier wait implies it. */
static int wait_of(const struct ct_plan *plan, const struct ct_plan_list *list, int i, int other,
                   struct queued *queued)
{
    const struct ct_program_op *ops = list->program.ops;
    int *known = &queued->known[list->slot[i].queue][other];

    for (int j = i - 1, position = queued->count[other]; j >= 0 && position > *known; j--) {
        if (list->slot[j].queue != other)
            continue;
        if (ct_plan_ordered(plan, list, &ops[i], &ops[j])) {
            *known = position;
            return position;
        }
        position--;
    }
    return 0;
}

int ct_plan_queue(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    int count = list->program.op_count;
    struct queued queued = {0};

    list->slot = ct_arena_array(&list->program.arena, (size_t)count, sizeof *list->slot);
    if (list->slot == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to queue %d ops", count);
    for (int i = 0; i < count; i++) {
        struct ct_plan_slot *slot = &list->slot[i];
        *slot = (struct ct_plan_slot){.queue = (uint8_t)queue_of(plan, list, i)};
        for (int other = 0; other < CT_QUEUE_COUNT; other++)
            if (other != slot->queue)
                slot->wait[other] = wait_of(plan, list, i, other, &queued);
        queued.count[slot->queue]++;
    }
    return 0;
}
