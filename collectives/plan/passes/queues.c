/* See passes.h: what runs beside what, and who waits for whom.
 *
 *     compute   F0  B0  F1  B1.. dW2  dW1  dW0 | sumsq  sgd
 *     comm                           r0(2)  r1(4)   `waits for the second reduction
 *                                    `waits for the fourth compute op
 *
 * An op waits for the last op of the other queue, among those before it in the list, that touches
 * the same bytes (one of the two writing). Ops of a queue run in order, so one number is enough,
 * and a wait that an earlier one implies is left out. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

/* Slices and stages wait for each other between the layers. */
static bool overlaps_compute(const struct ct_program_op *op)
{
    return ct_op_is_comm(op->kind) && op->axis != CT_AXIS_TENSOR && op->axis != CT_AXIS_STAGE;
}

int ct_plan_queue(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    const struct ct_program *program = &list->program;
    int count = program->op_count;
    bool beside = plan->options.overlap && plan->bucket_count > 1;
    int queued[CT_QUEUE_COUNT] = {0}; /* ops so far */
    int known[CT_QUEUE_COUNT] = {0};  /* ops of the other queue that are waited for already */

    list->slot = ct_arena_array(&list->program.arena, (size_t)count, sizeof *list->slot);
    if (list->slot == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory to queue %d ops", count);
    for (int i = 0; i < count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        bool comm = beside && overlaps_compute(op);
        int queue = comm ? CT_QUEUE_COMM : CT_QUEUE_COMPUTE;
        int other = comm ? CT_QUEUE_COMPUTE : CT_QUEUE_COMM;
        int position = queued[other];

        list->slot[i].queue = (uint8_t)queue;
        /* Backwards over the other queue, as far as it is not waited for yet. */
        for (int j = i - 1; j >= 0 && position > known[queue]; j--) {
            if (list->slot[j].queue != other)
                continue;
            if (ct_plan_conflict(list, op, &program->ops[j])) {
                list->slot[i].wait = position;
                known[queue] = position;
                break;
            }
            position--;
        }
        queued[queue]++;
    }
    return 0;
}
