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
#include "collectives/plan/passes/step_builder.h"

#include "base/assert.h"

/* What `task` gives to the next one; CT_NONE where nothing behind it learns. */
static int carried(const struct ct_maker *mk, struct ct_pipe_task task)
{
    return task.backward ? mk->cut->carried_back[task.part] : mk->cut->carried[task.part + 1];
}

static struct ct_program_op exchange_op(void)
{
    struct ct_program_op op = ct_program_op(CT_OP_EXCHANGE);

    op.axis = CT_AXIS_STAGE;
    return op;
}

static void emit_exchange(struct ct_maker *mk, const struct ct_pipe_turn *turn)
{
    struct ct_program_op op = exchange_op();
    int sends = 0;

    for (int i = 0; i < turn->send_count; i++) {
        const struct ct_pipe_message *message = &turn->send[i];
        int value = carried(mk, message->task);
        if (value == CT_NONE)
            continue;
        op.in[sends] = ct_maker_value(mk, message->task.micro, value);
        op.to[sends++] = message->peer;
        mk->program->stage = message->task.backward ? CT_STAGE_BACKWARD : CT_STAGE_FORWARD;
    }
    int value = turn->receives ? carried(mk, turn->receive.task) : CT_NONE;
    if (value != CT_NONE) {
        op.out[0] = ct_maker_value(mk, turn->receive.task.micro, value);
        op.from[0] = turn->receive.peer;
        mk->program->stage = turn->receive.task.backward ? CT_STAGE_BACKWARD : CT_STAGE_FORWARD;
    }
    if (sends > 0 || value != CT_NONE)
        ct_program_emit(mk->program, op);
}

/* The message that `task` waits for, or that goes on from it, alone. */
static void exchange_one(struct ct_maker *mk, struct ct_pipe_task task, bool receives)
{
    int stages = mk->plan->mesh.stages, behind = task.backward ? -1 : 1;
    struct ct_pipe_turn turn = {.runs = false};

    task.part -= receives ? behind : 0;
    if (task.part < 0 || task.part >= mk->cut->parts ||
        (!receives && (task.part + behind < 0 || task.part + behind >= mk->cut->parts)))
        return;
    int peer = (task.part + (receives ? 0 : behind)) % stages;
    turn.receives = receives;
    turn.receive = turn.send[0] = (struct ct_pipe_message){task, peer};
    turn.send_count = !receives;
    emit_exchange(mk, &turn);
}

static void run_task(struct ct_maker *mk, struct ct_pipe_task task)
{
    int forward = mk->model->forward_count;

    mk->part = task.part;
    ct_maker_copy(mk, task.backward ? forward : 0,
                  task.backward ? mk->model->program.op_count : forward, task.micro);
}

/* Model ops [first, end) of all micro-batches, in step. */
static void run_in_step(struct ct_maker *mk, int first, int end, bool backward)
{
    int micros = mk->plan->options.accumulation, part = mk->plan->place.stage;

    mk->part = part;
    for (int at = first, next; at <= end && mk->program->error.code == 0; at = next + 1) {
        next = CT_MIN(ct_maker_next_total(mk, at), end);
        for (int m = 0; m < micros && mk->program->error.code == 0; m++) {
            if (at == first)
                exchange_one(mk, (struct ct_pipe_task){backward, part, m}, true);
            ct_maker_copy(mk, at, next, m);
            if (next == end)
                exchange_one(mk, (struct ct_pipe_task){backward, part, m}, false);
        }
        if (next < end && mk->program->error.code == 0)
            ct_maker_share(mk, next);
    }
}

/* The other stage's gradient of parameter `i` is added to this one's. */
static void add_twin(struct ct_maker *mk, int i)
{
    const struct ct_plan_tensor *tensor = &mk->plan->tensors[i];
    int own = mk->result.view[i], stage = mk->plan->place.stage;
    struct ct_program_op op = exchange_op();

    if (mk->program->error.code != 0)
        return;
    const struct ct_value *v = &mk->program->values[own];
    op.in[0] = own;
    op.out[0] = ct_program_value(mk->program, CT_VALUE_TEMP, v->dtype, v->shape, "twin");
    op.to[0] = op.from[0] = stage == tensor->stage ? tensor->twin : tensor->stage;
    mk->program->stage = CT_STAGE_BACKWARD;
    ct_program_emit(mk->program, op);
    ct_maker_add(mk, own, op.out[0]);
}

void ct_maker_pipeline(struct ct_maker *mk)
{
    const struct ct_plan *plan = mk->plan;
    const struct ct_pipe pipe = {plan->options.order, plan->mesh.stages, plan->options.chunks,
                                 plan->options.accumulation};
    struct ct_pipe_turns turns = {.count = 0};

    if (mk->program->error.code != 0 || ct_pipe_turns(&pipe, plan->place.stage, &mk->plan->memory,
                                                      &turns, &mk->program->error) != 0)
        return;
    for (int m = 0; m < pipe.micros && mk->program->error.code == 0; m++)
        ct_maker_begin(mk, m);
    int forward = mk->model->forward_count, ops = mk->model->program.op_count;
    bool in_step = ct_maker_next_total(mk, 0) < ops;
    if (in_step) {
        run_in_step(mk, 0, forward, false);
        run_in_step(mk, forward, ops, true);
    }
    for (int i = 0; i < turns.count && !in_step && mk->program->error.code == 0; i++) {
        if (turns.turn[i].runs)
            run_task(mk, turns.turn[i].task);
        else
            emit_exchange(mk, &turns.turn[i]);
    }
    for (int i = 0; i < plan->param_count; i++)
        if (plan->tensors[i].range >= 0 && plan->tensors[i].twin != CT_PLAN_NO_STAGE)
            add_twin(mk, i);
}

void ct_maker_pipeline_forward(struct ct_maker *mk)
{
    int stages = mk->plan->mesh.stages, stage = mk->plan->place.stage;

    for (int part = stage; part < mk->cut->parts; part += stages) {
        const struct ct_pipe_task task = {.part = part};
        exchange_one(mk, task, true);
        run_task(mk, task);
        exchange_one(mk, task, false);
    }
}
