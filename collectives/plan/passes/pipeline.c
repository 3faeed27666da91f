/* See passes.h and pipeline_schedule.h: a stage's list.
 *
 *     stage 1 of 3   exchange(x0 from 0)              F0
 *                    exchange(x1 from 0, y0 to 2)     F1
 *                    exchange(y1 to 2, dy0 from 2)    B0  ...
 *
 * Every micro-batch has its values at each stage, those that go from part to part at both. A
 * message is the value itself: it is sent from and received to where it is used.
 *
 * A batch norm that is synchronised wants a sum over all micro-batches. A stage with one runs each
 * pass of all of them before the next pass begins, in step from one sum to the next; they come in
 * on their way to the first sum and go on when they are past the last.
 *
 * Tied parameters. Each of two stages has the gradient of its own use. Behind the last micro-batch
 * they give each other theirs and add: a sum of two is the same whichever comes first, so both
 * update to the same bits. */
#include "collectives/plan/passes/list_builder.h"

#include "base/assert.h"

/* What `task` gives to the next one; CT_NONE where nothing behind it learns. */
static int carried(const struct ct_list_builder *lb, struct ct_pipe_task task)
{
    return task.backward ? lb->split->carried_back[task.part] : lb->split->carried[task.part + 1];
}

static struct ct_program_op exchange_op(void)
{
    struct ct_program_op op = ct_program_op(CT_OP_EXCHANGE);

    op.axis = CT_AXIS_STAGE;
    return op;
}

static void emit_exchange(struct ct_list_builder *lb, const struct ct_pipe_turn *turn)
{
    struct ct_program_op op = exchange_op();
    int sends = 0, receives = 0;

    for (int i = 0; i < turn->send_count; i++) {
        const struct ct_pipe_message *message = &turn->send[i];
        int value = carried(lb, message->task);
        if (value == CT_NONE)
            continue;
        op.in[sends] = ct_list_builder_value(lb, message->task.micro, value);
        op.to[sends++] = message->peer;
        lb->program->stage = message->task.backward ? CT_STAGE_BACKWARD : CT_STAGE_FORWARD;
    }
    for (int i = 0; i < turn->receive_count; i++) {
        const struct ct_pipe_message *message = &turn->receive[i];
        int value = carried(lb, message->task);
        if (value == CT_NONE)
            continue;
        op.out[receives] = ct_list_builder_value(lb, message->task.micro, value);
        op.from[receives++] = message->peer;
        lb->program->stage = message->task.backward ? CT_STAGE_BACKWARD : CT_STAGE_FORWARD;
    }
    if (sends + receives > 0)
        ct_program_emit(lb->program, op);
}

/* The message that `task` waits for, or that goes on from it, alone. */
static void exchange_one(struct ct_list_builder *lb, struct ct_pipe_task task, bool receives)
{
    int stages = lb->plan->mesh.stages, behind = task.backward ? -1 : 1;
    struct ct_pipe_turn turn = {.runs = false};

    task.part -= receives ? behind : 0;
    if (task.part < 0 || task.part >= lb->split->parts ||
        (!receives && (task.part + behind < 0 || task.part + behind >= lb->split->parts)))
        return;
    int peer = (task.part + (receives ? 0 : behind)) % stages;
    turn.receive[0] = turn.send[0] = (struct ct_pipe_message){task, peer};
    turn.receive_count = receives;
    turn.send_count = !receives;
    emit_exchange(lb, &turn);
}

static void run_task(struct ct_list_builder *lb, struct ct_pipe_task task)
{
    int forward = lb->model->forward_count;

    lb->part = task.part;
    ct_list_builder_copy(lb, task.backward ? forward : 0,
                         task.backward ? lb->model->program.op_count : forward, task.micro);
}

/* Model ops [first, end) of all micro-batches, in step. */
static void run_in_step(struct ct_list_builder *lb, int first, int end, bool backward)
{
    int micros = lb->plan->options.accumulation, part = lb->plan->place.stage;

    lb->part = part;
    for (int at = first, next; at <= end && lb->program->error.code == 0; at = next + 1) {
        next = CT_MIN(ct_list_builder_next_total(lb, at), end);
        for (int m = 0; m < micros && lb->program->error.code == 0; m++) {
            if (at == first)
                exchange_one(lb, (struct ct_pipe_task){backward, part, m}, true);
            ct_list_builder_copy(lb, at, next, m);
            if (next == end)
                exchange_one(lb, (struct ct_pipe_task){backward, part, m}, false);
        }
        if (next < end && lb->program->error.code == 0)
            ct_list_builder_total(lb, next);
    }
}

/* The other stage's gradient of parameter `i` is added to this one's. */
static void add_tied(struct ct_list_builder *lb, int i)
{
    const struct ct_plan_tensor *tensor = &lb->plan->tensors[i];
    int own = lb->result.view[i], stage = lb->plan->place.stage;
    struct ct_program_op op = exchange_op();

    if (lb->program->error.code != 0)
        return;
    const struct ct_value *v = &lb->program->values[own];
    op.in[0] = own;
    op.out[0] = ct_program_value(lb->program, CT_VALUE_TEMP, v->dtype, v->shape, "twin");
    op.to[0] = op.from[0] = stage == tensor->stage ? tensor->twin : tensor->stage;
    lb->program->stage = CT_STAGE_BACKWARD;
    ct_program_emit(lb->program, op);
    ct_list_builder_add(lb, own, op.out[0]);
}

void ct_list_builder_pipeline(struct ct_list_builder *lb)
{
    const struct ct_plan *plan = lb->plan;
    const struct ct_pipe pipe = {plan->options.order, plan->mesh.stages, plan->options.chunks,
                                 plan->options.accumulation, plan->options.overlap};
    struct ct_pipe_turns turns = {.count = 0};

    if (lb->program->error.code != 0 || ct_pipe_turns(&pipe, plan->place.stage, &lb->plan->memory,
                                                      &turns, &lb->program->error) != 0)
        return;
    for (int m = 0; m < pipe.micros && lb->program->error.code == 0; m++)
        ct_list_builder_begin(lb, m);
    int forward = lb->model->forward_count, ops = lb->model->program.op_count;
    bool in_step = ct_list_builder_next_total(lb, 0) < ops;
    if (in_step) {
        run_in_step(lb, 0, forward, false);
        run_in_step(lb, forward, ops, true);
    }
    for (int i = 0; i < turns.count && !in_step && lb->program->error.code == 0; i++) {
        if (turns.turn[i].runs)
            run_task(lb, turns.turn[i].task);
        else
            emit_exchange(lb, &turns.turn[i]);
    }
    for (int i = 0; i < plan->param_count; i++)
        if (plan->tensors[i].range >= 0 && plan->tensors[i].twin != CT_PLAN_NO_STAGE)
            add_tied(lb, i);
}

void ct_list_builder_pipeline_forward(struct ct_list_builder *lb)
{
    int stages = lb->plan->mesh.stages, stage = lb->plan->place.stage;

    for (int part = stage; part < lb->split->parts; part += stages) {
        const struct ct_pipe_task task = {.part = part};
        exchange_one(lb, task, true);
        run_task(lb, task);
        exchange_one(lb, task, false);
    }
}
