/* See passes.h: the three programs of a plan, made from the program of one micro-batch.
 *
 * A model's op is copied value by value: its parameters become views of the flat parameters, its
 * inputs the micro-batch's block of the step's inputs, its temporaries new temporaries. What it
 * yields, a gradient for each parameter and two sums, goes to a "yield": the step's gradients and
 * sums themselves, or a leaf of the tree of micro-batches.
 *
 *     in place (fast, reproducible)       tree (invariant), accumulation 4
 *     micro 0   grads  = g0               leaf0 = g0
 *     micro 1   grads += g1               leaf1 = g1,  leaf0 += leaf1
 *     micro 2   grads += g2               leaf2 = g2
 *     micro 3   grads += g3               grads = g3,  grads += leaf2,  grads += leaf0
 *
 * A sum of two is the same whichever comes first, so the last line is (g2 + g3) + (g0 + g1).
 *
 * A model with a batch norm that is synchronised cannot run its micro-batches one after the other:
 * the first needs to know the statistics of all. They go in step instead, from one batch_total to
 * the next, each of which becomes the sum over micro-batches and ranks:
 *
 *     sums0  sums1  sums0 += sums1  all_reduce(sums0)  rest0  rest1 */
#include "collectives/plan/passes/list_builder.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <stdio.h>

enum { UNMAPPED = -2 };

/* Elements of a flat range; frozen parameters lie behind those that learn. */
static int64_t flat_count(const struct ct_plan *plan, enum ct_value_kind kind)
{
    size_t bytes = plan->flat_bytes + (kind == CT_VALUE_PARAM ? plan->frozen_bytes : 0);

    return (int64_t)(bytes / ct_dtype_size(plan->tensors[0].dtype));
}

/* A flat range with the layout of the parameters; its views, named "<prefix><parameter>", go to
 * `view` unless that is NULL: CT_NONE for a frozen one in another range, and for those of another
 * stage. Returns the root. */
static int add_flat(struct ct_list_builder *lb, enum ct_value_kind kind, const char *name,
                    const char *prefix, int *view)
{
    const struct ct_plan *plan = lb->plan;
    char full[128];
    int root = ct_program_value(lb->program, kind, plan->tensors[0].dtype,
                                ct_shape1(flat_count(plan, kind)), name);

    for (int i = 0; i < plan->param_count && view != NULL; i++) {
        const struct ct_plan_tensor *tensor = &plan->tensors[i];
        view[i] = CT_NONE;
        if (tensor->range == CT_PLAN_ELSEWHERE || (kind != CT_VALUE_PARAM && tensor->range < 0))
            continue;
        snprintf(full, sizeof full, "%s%s", prefix, tensor->name);
        view[i] = ct_program_view(lb->program, root, tensor->flat_bytes, tensor->dtype,
                                  tensor->held_shape, full);
    }
    return root;
}

static void *array(struct ct_list_builder *lb, size_t count, size_t size)
{
    void *elements = ct_arena_array(&lb->program->arena, count, size);

    if (elements == NULL && lb->program->error.code == 0)
        ct_error_set(&lb->program->error, CT_ENOMEM, "no memory for a table of %zu values", count);
    return elements;
}

static int *table(struct ct_list_builder *lb, int count)
{
    return array(lb, (size_t)count, sizeof(int));
}

/* The sums of loss and correct rows, what batch norms tell, and `more` numbers, in one value f64 so
 * that one reduction serves all; `*ret_more` gets the place of the latter. Returns the root. */
static int add_sums(struct ct_list_builder *lb, enum ct_value_kind kind, int more, size_t *ret_more,
                    int *view)
{
    const struct ct_model *model = lb->model;
    size_t bytes = 2 * sizeof(double);

    for (int i = 0; i < model->stat_count; i++)
        bytes += model->program.values[model->stats[i].run].bytes;
    int64_t count = (int64_t)(bytes / sizeof(double)) + more;
    int sums = ct_program_value(lb->program, kind, CT_F64, ct_shape1(count), "sums");

    view[0] = ct_program_view(lb->program, sums, 0, CT_F64, ct_shape1(1), "loss");
    view[1] = ct_program_view(lb->program, sums, sizeof(double), CT_F64, ct_shape1(1), "correct");
    *ret_more = bytes;
    bytes = 2 * sizeof(double);
    for (int i = 0; i < model->stat_count; i++) {
        const struct ct_value *run = &model->program.values[model->stats[i].run];
        view[2 + i] = ct_program_view(lb->program, sums, bytes, CT_F64, run->shape, "run");
        bytes += run->bytes;
    }
    return sums;
}

/* The buffers, as views of one value behind the parameters. */
static void add_buffers(struct ct_list_builder *lb)
{
    const struct ct_plan *plan = lb->plan;

    for (int i = 0; i < plan->buffer_count; i++)
        lb->buffers[i] = CT_NONE;
    if (plan->buffer_bytes == 0)
        return;
    enum ct_dtype dtype = plan->tensors[plan->param_count].dtype;
    int root = ct_program_value(lb->program, CT_VALUE_BUFFER, dtype,
                                ct_shape1((int64_t)(plan->buffer_bytes / ct_dtype_size(dtype))),
                                "buffers");
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct ct_plan_tensor *tensor = &plan->tensors[plan->param_count + i];
        if (tensor->range == CT_PLAN_ELSEWHERE)
            continue;
        lb->buffers[i] = ct_program_view(lb->program, root, tensor->flat_bytes, dtype,
                                         tensor->held_shape, tensor->name);
    }
}

struct ct_list_builder ct_list_builder_init(struct ct_plan *plan, const struct ct_model *model,
                                            const struct ct_stage_split *split,
                                            struct ct_plan_list *list)
{
    struct ct_list_builder lb = {.plan = plan,
                                 .model = model,
                                 .split = split,
                                 .list = list,
                                 .program = &list->program,
                                 .part = CT_LIST_BUILDER_ALL_PARTS};

    lb.yields = plan->param_count + 2 + model->stat_count;
    list->io = (struct ct_plan_io){CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE,
                                   CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE};
    lb.map = table(&lb, model->program.value_count);
    lb.once = table(&lb, model->program.value_count);
    for (int i = 0; i < model->program.value_count && lb.once != NULL; i++)
        lb.once[i] = UNMAPPED;
    lb.params = table(&lb, plan->param_count);
    lb.buffers = table(&lb, plan->buffer_count + 1);
    lb.result.view = table(&lb, lb.yields);
    lb.last_writer = table(&lb, lb.yields);
    if (lb.program->error.code == 0) {
        lb.flat = add_flat(&lb, CT_VALUE_PARAM, "params", "", lb.params);
        add_buffers(&lb);
    }
    return lb;
}

int ct_list_builder_finish(struct ct_list_builder *lb, const char *which, struct ct_error *err)
{
    const struct ct_error *error = &lb->program->error;

    return error->code == 0 ? 0 : ct_error_set(err, error->code, "%s: %s", which, error->text);
}

/* ---- copying ops ---------------------------------------------------------------------------- */

/* The list's value for the model's; a temporary is made at its first use. */
static int mapped(struct ct_list_builder *lb, int value)
{
    if (value == CT_NONE)
        return CT_NONE;
    if (lb->map[value] == UNMAPPED && lb->once[value] != UNMAPPED)
        lb->map[value] = lb->once[value];
    if (lb->map[value] == UNMAPPED) {
        const struct ct_value *v = &lb->model->program.values[value];
        CT_ASSERT((v->kind == CT_VALUE_TEMP || v->kind == CT_VALUE_HOST) && v->root == value);
        lb->map[value] = ct_program_value(lb->program, v->kind, v->dtype, v->shape, v->name);
    }
    CT_ASSERT(lb->map[value] != CT_NONE);
    return lb->map[value];
}

int ct_list_builder_value(struct ct_list_builder *lb, int number, int value)
{
    lb->map = lb->micros[number].map;
    lb->program->micro = number;
    return mapped(lb, value);
}

/* Start a micro-batch: parameters, inputs and yields have their place, temporaries none yet. */
static void map_model(struct ct_list_builder *lb, const struct ct_list_yield *yield, int x,
                      int labels)
{
    const struct ct_model *model = lb->model;

    for (int i = 0; i < model->program.value_count; i++)
        lb->map[i] = UNMAPPED;
    for (int i = 0; i < model->param_count; i++) {
        lb->map[model->params[i].value] = lb->params[i];
        if (model->params[i].grad != CT_NONE)
            lb->map[model->params[i].grad] = yield->view[i];
    }
    for (int i = 0; i < model->buffer_count; i++)
        lb->map[model->buffers[i].value] = lb->buffers[i];
    lb->map[model->loss] = yield->view[model->param_count];
    lb->map[model->correct] = yield->view[model->param_count + 1];
    for (int i = 0; i < model->stat_count; i++)
        lb->map[model->stats[i].run] = yield->view[model->param_count + 2 + i];
    lb->map[model->x] = x;
    lb->map[model->labels] = labels;
    lb->map[model->inv_valid] = lb->list->io.inv_valid;
    if (model->draw != CT_NONE)
        lb->map[model->draw] = lb->list->io.draw;
}

/* The tensor that is the model's `value`, a parameter. */
static const struct ct_plan_tensor *tensor_of(const struct ct_list_builder *lb, int value)
{
    int i = 0;

    while (i < lb->model->param_count && lb->model->params[i].value != value)
        i++;
    CT_ASSERT(i < lb->model->param_count);
    return &lb->plan->tensors[i];
}

static struct ct_program_op copied(struct ct_list_builder *lb, const struct ct_program_op *from)
{
    struct ct_program_op op = *from;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        op.in[i] = mapped(lb, op.in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        op.out[i] = mapped(lb, op.out[i]);
    if (op.kind == CT_OP_DROPOUT) { /* draws for this seed and micro-batch */
        op.attr.key ^= ct_mix64(lb->plan->seed);
        op.attr.first +=
            op.attr.unit * (uint64_t)(lb->program->micro * lb->plan->options.micro_rows);
    }
    if (op.kind == CT_OP_NARROW_STOCHASTIC)
        ct_plan_key_rounding(lb->plan, tensor_of(lb, from->in[0]), 0, &op);
    return op;
}

void ct_list_builder_add(struct ct_list_builder *lb, int to, int from)
{
    struct ct_program_op add = ct_program_op(CT_OP_ADD);

    add.in[0] = to;
    add.in[1] = from;
    add.out[0] = to;
    ct_program_emit(lb->program, add);
}

/* The op overwrites a yield that already holds the micro-batches before: let it add. */
static void emit_adding(struct ct_list_builder *lb, struct ct_program_op op)
{
    if (ct_rule_accumulates(op.kind)) {
        op.attr.accumulate = true;
        ct_program_emit(lb->program, op);
        return;
    }
    int to = op.out[0];
    const struct ct_value *v = &lb->program->values[to];
    op.out[0] = ct_program_value(lb->program, CT_VALUE_TEMP, v->dtype, v->shape, v->name);
    ct_program_emit(lb->program, op);
    ct_list_builder_add(lb, to, op.out[0]);
}

static bool is_yield(enum ct_value_kind kind)
{
    return kind == CT_VALUE_GRAD || kind == CT_VALUE_OUTPUT;
}

void ct_list_builder_copy(struct ct_list_builder *lb, int first, int end, int number)
{
    const struct ct_program *from = &lb->model->program;
    const struct ct_list_micro *micro = &lb->micros[number];
    bool adding = number > 0 && micro->merges == NULL;

    lb->map = micro->map;
    lb->program->micro = number;
    for (int i = first; i < end && lb->program->error.code == 0; i++) {
        bool shared = ct_plan_is_shared(lb->plan, from, &from->ops[i]);
        if ((lb->part != CT_LIST_BUILDER_ALL_PARTS && lb->split->part_of[i] != lb->part) ||
            (shared && number > 0))
            continue;
        struct ct_program_op op = copied(lb, &from->ops[i]);
        if (shared)
            lb->once[from->ops[i].out[0]] = op.out[0];
        lb->program->stage = from->ops[i].stage;
        bool yields = is_yield(from->values[from->ops[i].out[0]].kind);
        if (adding && yields && !ct_program_op_updates(&op))
            emit_adding(lb, op);
        else
            ct_program_emit(lb->program, op);
        for (int k = 0; k < lb->yields; k++)
            for (int m = 0; m < micro->merge_count && lb->last_writer[k] == i; m++)
                ct_list_builder_add(lb, micro->merges[m].into->view[k],
                                    micro->merges[m].from->view[k]);
    }
}

/* ---- the tree of micro-batches -------------------------------------------------------------- */

static void find_last_writers(struct ct_list_builder *lb)
{
    const struct ct_program *from = &lb->model->program;

    for (int k = 0; k < lb->yields; k++)
        lb->last_writer[k] = CT_NONE;
    for (int i = 0; i < from->op_count; i++) {
        int out = from->ops[i].out[0];
        for (int k = 0; k < lb->plan->param_count; k++)
            if (lb->model->params[k].grad == out)
                lb->last_writer[k] = i;
        if (out == lb->model->loss)
            lb->last_writer[lb->plan->param_count] = i;
        if (out == lb->model->correct)
            lb->last_writer[lb->plan->param_count + 1] = i;
        for (int k = 0; k < lb->model->stat_count; k++)
            if (lb->model->stats[k].run == out)
                lb->last_writer[lb->plan->param_count + 2 + k] = i;
    }
}

static const struct ct_list_yield *new_leaf(struct ct_list_builder *lb, int number)
{
    struct ct_list_yield *leaf = array(lb, 1, sizeof *leaf);
    char name[32], prefix[32];
    size_t end;

    if (leaf != NULL)
        leaf->view = table(lb, lb->yields);
    if (leaf == NULL || leaf->view == NULL)
        return NULL;
    snprintf(name, sizeof name, "leaf%d", number);
    snprintf(prefix, sizeof prefix, "leaf%d.", number);
    add_flat(lb, CT_VALUE_TEMP, name, prefix, leaf->view);
    (void)add_sums(lb, CT_VALUE_TEMP, 0, &end, leaf->view + lb->plan->param_count);
    return leaf;
}

/* Push leaf number `number`; the merges that its carry causes follow its ops. */
static void push_leaf(struct ct_list_builder *lb, struct ct_list_micro *micro, int number)
{
    CT_ASSERT(lb->depth < CT_LIST_BUILDER_MAX_LEVELS);
    micro->yield = lb->stack[lb->depth++] = new_leaf(lb, number);
    for (int carry = number + 1; carry % 2 == 0; carry /= 2) {
        micro->merges[micro->merge_count++] =
            (struct ct_list_merge){lb->stack[lb->depth - 2], lb->stack[lb->depth - 1]};
        lb->depth--;
    }
}

/* The last micro-batch takes all that waits. */
static void close_tree(struct ct_list_builder *lb, struct ct_list_micro *micro)
{
    for (int i = lb->depth - 1; i >= 0; i--)
        micro->merges[micro->merge_count++] = (struct ct_list_merge){&lb->result, lb->stack[i]};
}

/* ---- the step ------------------------------------------------------------------------------- */

static int scalar_input(struct ct_list_builder *lb, const char *name)
{
    return ct_program_value(lb->program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), name);
}

/* Whether the model's ops, of a stage perhaps, touch `value`. */
static bool touches(const struct ct_model *model, int value)
{
    for (int i = 0; i < model->program.op_count; i++) {
        const struct ct_program_op *op = &model->program.ops[i];
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (op->in[k] == value)
                return true;
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (op->out[k] == value)
                return true;
    }
    return false;
}

/* The input or output that is the model's `like`; CT_NONE where nothing here touches that. */
static int outer_value(struct ct_list_builder *lb, enum ct_value_kind kind, int like, int64_t times,
                       const char *name)
{
    const struct ct_value *v = &lb->model->program.values[like];
    struct ct_shape shape = v->shape;

    shape.dim[0] *= times;
    return touches(lb->model, like) ? ct_program_value(lb->program, kind, v->dtype, shape, name)
                                    : CT_NONE;
}

static void step_inputs(struct ct_list_builder *lb)
{
    struct ct_plan_io *io = &lb->list->io;
    int64_t count = lb->plan->options.accumulation;

    io->x = outer_value(lb, CT_VALUE_INPUT, lb->model->x, count, "x");
    io->labels = outer_value(lb, CT_VALUE_INPUT, lb->model->labels, count, "labels");
    io->inv_valid = scalar_input(lb, "inv_valid");
    io->lr = scalar_input(lb, "lr");
    io->wish = scalar_input(lb, "wish");
    if (lb->plan->options.compute == CT_F16)
        io->unscale = scalar_input(lb, "unscale");
    if (ct_plan_counts_updates(&lb->plan->options.optim))
        io->update = scalar_input(lb, "update");
    if (lb->model->draw != CT_NONE)
        io->draw = ct_program_value(lb->program, CT_VALUE_INPUT, CT_F64, ct_shape1(2), "draw");
}

/* This rank's part of the sum of wishes. */
static void copy_vote(struct ct_list_builder *lb)
{
    struct ct_program_op copy = ct_program_op(CT_OP_COPY);

    copy.in[0] = lb->list->io.wish;
    copy.out[0] = lb->list->io.wishes;
    ct_program_emit(lb->program, copy);
}

/* The block of `of` that micro-batch `micro` reads, shaped as the model's input `like`. */
static int block(struct ct_list_builder *lb, int of, int like, int micro)
{
    const struct ct_value *v = &lb->model->program.values[like];

    if (of == CT_NONE)
        return CT_NONE;
    return ct_program_view(lb->program, of, v->bytes * (size_t)micro, v->dtype, v->shape, v->name);
}

int ct_list_builder_next_total(const struct ct_list_builder *lb, int at)
{
    while (at < lb->model->program.op_count && lb->model->program.ops[at].kind != CT_OP_BATCH_TOTAL)
        at++;
    return at;
}

/* What each micro-batch yields to, and its values: tables of their own where they go in step. */
static void prepare_micros(struct ct_list_builder *lb)
{
    int count = lb->plan->options.accumulation, values = lb->model->program.value_count;
    bool tree = lb->plan->options.reduce == CT_PLAN_INVARIANT;
    bool in_step =
        lb->split != NULL || ct_list_builder_next_total(lb, 0) < lb->model->program.op_count;

    lb->micros = array(lb, (size_t)count, sizeof *lb->micros);
    for (int m = 0; m < count && lb->program->error.code == 0; m++) {
        struct ct_list_micro *micro = &lb->micros[m];
        *micro = (struct ct_list_micro){.yield = &lb->result, .map = lb->map};
        if (tree)
            micro->merges = array(lb, CT_LIST_BUILDER_MAX_LEVELS, sizeof *micro->merges);
        if (in_step)
            micro->map = table(lb, values);
        if (lb->program->error.code == 0 && tree && m < count - 1)
            push_leaf(lb, micro, m);
        else if (lb->program->error.code == 0 && tree)
            close_tree(lb, micro);
    }
}

/* Micro-batches add up as a binary counter carries, then ranks. */
void ct_list_builder_total(struct ct_list_builder *lb, int at)
{
    const struct ct_program_op *op = &lb->model->program.ops[at];
    int count = lb->plan->options.accumulation, stack[CT_LIST_BUILDER_MAX_LEVELS] = {0}, depth = 0;

    lb->program->stage = op->stage;
    for (int m = 0; m < count; m++) {
        lb->map = lb->micros[m].map;
        CT_ASSERT(depth < CT_LIST_BUILDER_MAX_LEVELS);
        stack[depth++] = mapped(lb, op->in[0]);
        for (int carry = m + 1; carry % 2 == 0; carry /= 2, depth--)
            ct_list_builder_add(lb, stack[depth - 2], stack[depth - 1]);
    }
    for (; depth > 1; depth--)
        ct_list_builder_add(lb, stack[depth - 2], stack[depth - 1]);
    if (ct_mesh_size(&lb->plan->mesh, CT_AXIS_DATA) > 1) {
        struct ct_program_op reduce = ct_program_op(CT_OP_ALL_REDUCE);
        reduce.axis = CT_AXIS_DATA;
        reduce.in[0] = reduce.out[0] = stack[0];
        ct_program_emit(lb->program, reduce);
    }
    for (int m = 0; m < count; m++)
        lb->micros[m].map[op->out[0]] = stack[0];
}

void ct_list_builder_begin(struct ct_list_builder *lb, int number)
{
    lb->map = lb->micros[number].map;
    map_model(lb, lb->micros[number].yield, block(lb, lb->list->io.x, lb->model->x, number),
              block(lb, lb->list->io.labels, lb->model->labels, number));
}

static void micro_batches(struct ct_list_builder *lb)
{
    int count = lb->plan->options.accumulation, ops = lb->model->program.op_count;

    for (int first = 0, end; first < ops && lb->program->error.code == 0; first = end + 1) {
        end = ct_list_builder_next_total(lb, first);
        for (int m = 0; m < count && lb->program->error.code == 0; m++) {
            if (first == 0)
                ct_list_builder_begin(lb, m);
            ct_list_builder_copy(lb, first, end, m);
        }
        if (end < ops && lb->program->error.code == 0)
            ct_list_builder_total(lb, end);
    }
}

/* Sums that only another stage adds to are zero here. */
static void fill_others(struct ct_list_builder *lb)
{
    for (int k = lb->plan->param_count; k < lb->yields && lb->program->error.code == 0; k++) {
        if (lb->last_writer[k] != CT_NONE)
            continue;
        struct ct_program_op fill = ct_program_op(CT_OP_FILL);
        fill.out[0] = lb->result.view[k];
        ct_program_emit(lb->program, fill);
    }
}

/* The running statistics follow the sum over the global batch, unless the step is not taken. */
static void update_buffers(struct ct_list_builder *lb, int scale)
{
    lb->program->stage = CT_STAGE_UPDATE;
    for (int i = 0; i < lb->model->stat_count; i++) {
        const struct ct_model_stat *stat = &lb->model->stats[i];
        struct ct_program_op op = ct_program_op(CT_OP_RUNNING_UPDATE);
        if (lb->buffers[stat->mean] == CT_NONE)
            continue;
        op.in[0] = lb->result.view[lb->plan->param_count + 2 + i];
        op.in[1] = scale;
        op.out[0] = lb->buffers[stat->mean];
        op.out[1] = lb->buffers[stat->var];
        op.attr.momentum = stat->momentum;
        ct_program_emit(lb->program, op);
    }
}

int ct_plan_make_step(struct ct_plan *plan, const struct ct_model *model,
                      const struct ct_stage_split *split, struct ct_error *err)
{
    struct ct_list_builder lb = ct_list_builder_init(plan, model, split, &plan->step);
    static const char *const names[CT_PLAN_MAX_MOMENTS] = {"moments0", "moments1", "moments2"};

    CT_ASSERT(plan->moment_count <= CT_PLAN_MAX_MOMENTS);
    if (lb.program->error.code == 0) {
        struct ct_plan_flats flats = {.params = lb.flat};
        for (int i = 0; i < plan->moment_count; i++)
            flats.moments[i] = add_flat(&lb, CT_VALUE_STATE, names[i], "", NULL);
        flats.grads = add_flat(&lb, CT_VALUE_GRAD, "grads", "grad.", lb.result.view);
        size_t end;
        int sums = add_sums(&lb, CT_VALUE_OUTPUT, 1, &end, lb.result.view + plan->param_count);
        lb.list->io.wishes = ct_program_view(lb.program, sums, end, CT_F64, ct_shape1(1), "wishes");
        lb.list->io.loss = lb.result.view[plan->param_count];
        lb.list->io.correct = lb.result.view[plan->param_count + 1];
        lb.list->io.sumsq =
            ct_program_value(lb.program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "sumsq");
        step_inputs(&lb);
        copy_vote(&lb);
        find_last_writers(&lb);
        prepare_micros(&lb);
        if (split == NULL)
            micro_batches(&lb);
        else
            ct_list_builder_pipeline(&lb);
        fill_others(&lb);
        update_buffers(&lb, ct_plan_emit_update(plan, &flats));
    }
    return ct_list_builder_finish(&lb, "step", err);
}

/* ---- evaluation ------------------------------------------------------------------- */

int ct_plan_make_eval(struct ct_plan *plan, const struct ct_model *model,
                      const struct ct_stage_split *split, struct ct_error *err)
{
    struct ct_list_builder lb = ct_list_builder_init(plan, model, split, &plan->eval);
    struct ct_list_micro only = {.yield = &lb.result, .map = lb.map};
    struct ct_plan_io *io = &plan->eval.io;

    lb.micros = &only;
    if (lb.program->error.code == 0) {
        io->x = outer_value(&lb, CT_VALUE_INPUT, model->x, 1, "x");
        io->labels = outer_value(&lb, CT_VALUE_INPUT, model->labels, 1, "labels");
        io->logits = outer_value(&lb, CT_VALUE_OUTPUT, model->logits, 1, "logits");
        for (int i = 0; i < plan->param_count; i++)
            lb.result.view[i] = CT_NONE;
        size_t end;
        (void)add_sums(&lb, CT_VALUE_OUTPUT, 0, &end, lb.result.view + plan->param_count);
        io->loss = lb.result.view[plan->param_count];
        io->correct = lb.result.view[plan->param_count + 1];
        find_last_writers(&lb);
        map_model(&lb, &lb.result, io->x, io->labels);
        lb.map[model->logits] = io->logits;
        if (split == NULL)
            ct_list_builder_copy(&lb, 0, model->forward_count, 0);
        else
            ct_list_builder_pipeline_forward(&lb);
        fill_others(&lb);
    }
    return ct_list_builder_finish(&lb, "eval", err);
}
