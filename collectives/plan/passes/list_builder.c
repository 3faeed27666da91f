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
#include "collectives/plan/passes/step_builder.h"

#include "base/assert.h"
#include "base/rng.h"

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
static int add_flat(struct ct_maker *mk, enum ct_value_kind kind, const char *name,
                    const char *prefix, int *view)
{
    const struct ct_plan *plan = mk->plan;
    char full[128];
    int root = ct_program_value(mk->program, kind, plan->tensors[0].dtype,
                                ct_shape1(flat_count(plan, kind)), name);

    for (int i = 0; i < plan->param_count && view != NULL; i++) {
        const struct ct_plan_tensor *tensor = &plan->tensors[i];
        view[i] = CT_NONE;
        if (tensor->range == CT_PLAN_ELSEWHERE || (kind != CT_VALUE_PARAM && tensor->range < 0))
            continue;
        snprintf(full, sizeof full, "%s%s", prefix, tensor->name);
        view[i] = ct_program_view(mk->program, root, tensor->flat_bytes, tensor->dtype,
                                  tensor->held_shape, full);
    }
    return root;
}

static void *array(struct ct_maker *mk, size_t count, size_t size)
{
    void *elements = ct_arena_array(&mk->program->arena, count, size);

    if (elements == NULL && mk->program->error.code == 0)
        ct_error_set(&mk->program->error, CT_ENOMEM, "no memory for a table of %zu values", count);
    return elements;
}

static int *table(struct ct_maker *mk, int count)
{
    return array(mk, (size_t)count, sizeof(int));
}

/* The sums of loss and correct rows, what batch norms tell, and `more` numbers, in one value f64 so
 * that one reduction serves all; `*ret_more` gets the place of the latter. Returns the root. */
static int add_sums(struct ct_maker *mk, enum ct_value_kind kind, int more, size_t *ret_more,
                    int *view)
{
    const struct ct_model *model = mk->model;
    size_t bytes = 2 * sizeof(double);

    for (int i = 0; i < model->stat_count; i++)
        bytes += model->program.values[model->stats[i].run].bytes;
    int64_t count = (int64_t)(bytes / sizeof(double)) + more;
    int sums = ct_program_value(mk->program, kind, CT_F64, ct_shape1(count), "sums");

    view[0] = ct_program_view(mk->program, sums, 0, CT_F64, ct_shape1(1), "loss");
    view[1] = ct_program_view(mk->program, sums, sizeof(double), CT_F64, ct_shape1(1), "correct");
    *ret_more = bytes;
    bytes = 2 * sizeof(double);
    for (int i = 0; i < model->stat_count; i++) {
        const struct ct_value *run = &model->program.values[model->stats[i].run];
        view[2 + i] = ct_program_view(mk->program, sums, bytes, CT_F64, run->shape, "run");
        bytes += run->bytes;
    }
    return sums;
}

/* The buffers, as views of one value behind the parameters. */
static void add_buffers(struct ct_maker *mk)
{
    const struct ct_plan *plan = mk->plan;

    for (int i = 0; i < plan->buffer_count; i++)
        mk->buffers[i] = CT_NONE;
    if (plan->buffer_bytes == 0)
        return;
    enum ct_dtype dtype = plan->tensors[plan->param_count].dtype;
    int root = ct_program_value(mk->program, CT_VALUE_BUFFER, dtype,
                                ct_shape1((int64_t)(plan->buffer_bytes / ct_dtype_size(dtype))),
                                "buffers");
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct ct_plan_tensor *tensor = &plan->tensors[plan->param_count + i];
        if (tensor->range == CT_PLAN_ELSEWHERE)
            continue;
        mk->buffers[i] = ct_program_view(mk->program, root, tensor->flat_bytes, dtype,
                                         tensor->held_shape, tensor->name);
    }
}

struct ct_maker ct_maker_of(struct ct_plan *plan, const struct ct_model *model,
                            const struct ct_cut *cut, struct ct_plan_list *list)
{
    struct ct_maker mk = {.plan = plan,
                          .model = model,
                          .cut = cut,
                          .list = list,
                          .program = &list->program,
                          .part = CT_MAKER_ALL_PARTS};

    mk.yields = plan->param_count + 2 + model->stat_count;
    list->io = (struct ct_plan_io){CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE,
                                   CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE};
    mk.map = table(&mk, model->program.value_count);
    mk.once = table(&mk, model->program.value_count);
    for (int i = 0; i < model->program.value_count && mk.once != NULL; i++)
        mk.once[i] = UNMAPPED;
    mk.params = table(&mk, plan->param_count);
    mk.buffers = table(&mk, plan->buffer_count + 1);
    mk.result.view = table(&mk, mk.yields);
    mk.last_writer = table(&mk, mk.yields);
    if (mk.program->error.code == 0) {
        mk.flat = add_flat(&mk, CT_VALUE_PARAM, "params", "", mk.params);
        add_buffers(&mk);
    }
    return mk;
}

int ct_maker_finish(struct ct_maker *mk, const char *which, struct ct_error *err)
{
    const struct ct_error *error = &mk->program->error;

    return error->code == 0 ? 0 : ct_error_set(err, error->code, "%s: %s", which, error->text);
}

/* ---- copying ops ---------------------------------------------------------------------------- */

/* The list's value for the model's; a temporary is made at its first use. */
static int mapped(struct ct_maker *mk, int value)
{
    if (value == CT_NONE)
        return CT_NONE;
    if (mk->map[value] == UNMAPPED && mk->once[value] != UNMAPPED)
        mk->map[value] = mk->once[value];
    if (mk->map[value] == UNMAPPED) {
        const struct ct_value *v = &mk->model->program.values[value];
        CT_ASSERT((v->kind == CT_VALUE_TEMP || v->kind == CT_VALUE_HOST) && v->root == value);
        mk->map[value] = ct_program_value(mk->program, v->kind, v->dtype, v->shape, v->name);
    }
    CT_ASSERT(mk->map[value] != CT_NONE);
    return mk->map[value];
}

int ct_maker_value(struct ct_maker *mk, int number, int value)
{
    mk->map = mk->micros[number].map;
    mk->program->micro = number;
    return mapped(mk, value);
}

/* Start a micro-batch: parameters, inputs and yields have their place, temporaries none yet. */
static void map_model(struct ct_maker *mk, const struct ct_maker_yield *yield, int x, int labels)
{
    const struct ct_model *model = mk->model;

    for (int i = 0; i < model->program.value_count; i++)
        mk->map[i] = UNMAPPED;
    for (int i = 0; i < model->param_count; i++) {
        mk->map[model->params[i].value] = mk->params[i];
        if (model->params[i].grad != CT_NONE)
            mk->map[model->params[i].grad] = yield->view[i];
    }
    for (int i = 0; i < model->buffer_count; i++)
        mk->map[model->buffers[i].value] = mk->buffers[i];
    mk->map[model->loss] = yield->view[model->param_count];
    mk->map[model->correct] = yield->view[model->param_count + 1];
    for (int i = 0; i < model->stat_count; i++)
        mk->map[model->stats[i].run] = yield->view[model->param_count + 2 + i];
    mk->map[model->x] = x;
    mk->map[model->labels] = labels;
    mk->map[model->inv_valid] = mk->list->io.inv_valid;
    if (model->draw != CT_NONE)
        mk->map[model->draw] = mk->list->io.draw;
}

/* The tensor that is the model's `value`, a parameter. */
static const struct ct_plan_tensor *tensor_of(const struct ct_maker *mk, int value)
{
    int i = 0;

    while (i < mk->model->param_count && mk->model->params[i].value != value)
        i++;
    CT_ASSERT(i < mk->model->param_count);
    return &mk->plan->tensors[i];
}

static struct ct_program_op copied(struct ct_maker *mk, const struct ct_program_op *from)
{
    struct ct_program_op op = *from;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        op.in[i] = mapped(mk, op.in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        op.out[i] = mapped(mk, op.out[i]);
    if (op.kind == CT_OP_DROPOUT) { /* draws for this seed and micro-batch */
        op.attr.key ^= ct_mix64(mk->plan->seed);
        op.attr.first +=
            op.attr.unit * (uint64_t)(mk->program->micro * mk->plan->options.micro_rows);
    }
    if (op.kind == CT_OP_NARROW_STOCHASTIC)
        ct_plan_key_rounding(mk->plan, tensor_of(mk, from->in[0]), 0, &op);
    return op;
}

void ct_maker_add(struct ct_maker *mk, int to, int from)
{
    struct ct_program_op add = ct_program_op(CT_OP_ADD);

    add.in[0] = to;
    add.in[1] = from;
    add.out[0] = to;
    ct_program_emit(mk->program, add);
}

/* The op overwrites a yield that already holds the micro-batches before: let it add. */
static void emit_adding(struct ct_maker *mk, struct ct_program_op op)
{
    if (ct_rule_accumulates(op.kind)) {
        op.attr.accumulate = true;
        ct_program_emit(mk->program, op);
        return;
    }
    int to = op.out[0];
    const struct ct_value *v = &mk->program->values[to];
    op.out[0] = ct_program_value(mk->program, CT_VALUE_TEMP, v->dtype, v->shape, v->name);
    ct_program_emit(mk->program, op);
    ct_maker_add(mk, to, op.out[0]);
}

static bool is_yield(enum ct_value_kind kind)
{
    return kind == CT_VALUE_GRAD || kind == CT_VALUE_OUTPUT;
}

void ct_maker_copy(struct ct_maker *mk, int first, int end, int number)
{
    const struct ct_program *from = &mk->model->program;
    const struct ct_maker_micro *micro = &mk->micros[number];
    bool adding = number > 0 && micro->merges == NULL;

    mk->map = micro->map;
    mk->program->micro = number;
    for (int i = first; i < end && mk->program->error.code == 0; i++) {
        bool shared = ct_plan_is_shared(mk->plan, from, &from->ops[i]);
        if ((mk->part != CT_MAKER_ALL_PARTS && mk->cut->part_of[i] != mk->part) ||
            (shared && number > 0))
            continue;
        struct ct_program_op op = copied(mk, &from->ops[i]);
        if (shared)
            mk->once[from->ops[i].out[0]] = op.out[0];
        mk->program->stage = from->ops[i].stage;
        bool yields = is_yield(from->values[from->ops[i].out[0]].kind);
        if (adding && yields && !ct_program_op_updates(&op))
            emit_adding(mk, op);
        else
            ct_program_emit(mk->program, op);
        for (int k = 0; k < mk->yields; k++)
            for (int m = 0; m < micro->merge_count && mk->last_writer[k] == i; m++)
                ct_maker_add(mk, micro->merges[m].into->view[k], micro->merges[m].from->view[k]);
    }
}

/* ---- the tree of micro-batches -------------------------------------------------------------- */

static void find_last_writers(struct ct_maker *mk)
{
    const struct ct_program *from = &mk->model->program;

    for (int k = 0; k < mk->yields; k++)
        mk->last_writer[k] = CT_NONE;
    for (int i = 0; i < from->op_count; i++) {
        int out = from->ops[i].out[0];
        for (int k = 0; k < mk->plan->param_count; k++)
            if (mk->model->params[k].grad == out)
                mk->last_writer[k] = i;
        if (out == mk->model->loss)
            mk->last_writer[mk->plan->param_count] = i;
        if (out == mk->model->correct)
            mk->last_writer[mk->plan->param_count + 1] = i;
        for (int k = 0; k < mk->model->stat_count; k++)
            if (mk->model->stats[k].run == out)
                mk->last_writer[mk->plan->param_count + 2 + k] = i;
    }
}

static const struct ct_maker_yield *new_leaf(struct ct_maker *mk, int number)
{
    struct ct_maker_yield *leaf = array(mk, 1, sizeof *leaf);
    char name[32], prefix[32];
    size_t end;

    if (leaf != NULL)
        leaf->view = table(mk, mk->yields);
    if (leaf == NULL || leaf->view == NULL)
        return NULL;
    snprintf(name, sizeof name, "leaf%d", number);
    snprintf(prefix, sizeof prefix, "leaf%d.", number);
    add_flat(mk, CT_VALUE_TEMP, name, prefix, leaf->view);
    (void)add_sums(mk, CT_VALUE_TEMP, 0, &end, leaf->view + mk->plan->param_count);
    return leaf;
}

/* Push leaf number `number`; the merges that its carry causes follow its ops. */
static void push_leaf(struct ct_maker *mk, struct ct_maker_micro *micro, int number)
{
    CT_ASSERT(mk->depth < CT_MAKER_MAX_LEVELS);
    micro->yield = mk->stack[mk->depth++] = new_leaf(mk, number);
    for (int carry = number + 1; carry % 2 == 0; carry /= 2) {
        micro->merges[micro->merge_count++] =
            (struct ct_maker_merge){mk->stack[mk->depth - 2], mk->stack[mk->depth - 1]};
        mk->depth--;
    }
}

/* The last micro-batch takes all that waits. */
static void close_tree(struct ct_maker *mk, struct ct_maker_micro *micro)
{
    for (int i = mk->depth - 1; i >= 0; i--)
        micro->merges[micro->merge_count++] = (struct ct_maker_merge){&mk->result, mk->stack[i]};
}

/* ---- the step ------------------------------------------------------------------------------- */

static int scalar_input(struct ct_maker *mk, const char *name)
{
    return ct_program_value(mk->program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), name);
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
static int outer_value(struct ct_maker *mk, enum ct_value_kind kind, int like, int64_t times,
                       const char *name)
{
    const struct ct_value *v = &mk->model->program.values[like];
    struct ct_shape shape = v->shape;

    shape.dim[0] *= times;
    return touches(mk->model, like) ? ct_program_value(mk->program, kind, v->dtype, shape, name)
                                    : CT_NONE;
}

static void step_inputs(struct ct_maker *mk)
{
    struct ct_plan_io *io = &mk->list->io;
    int64_t count = mk->plan->options.accumulation;

    io->x = outer_value(mk, CT_VALUE_INPUT, mk->model->x, count, "x");
    io->labels = outer_value(mk, CT_VALUE_INPUT, mk->model->labels, count, "labels");
    io->inv_valid = scalar_input(mk, "inv_valid");
    io->lr = scalar_input(mk, "lr");
    io->wish = scalar_input(mk, "wish");
    if (mk->plan->options.compute == CT_F16)
        io->unscale = scalar_input(mk, "unscale");
    if (ct_plan_counts_updates(&mk->plan->options.optim))
        io->update = scalar_input(mk, "update");
    if (mk->model->draw != CT_NONE)
        io->draw = ct_program_value(mk->program, CT_VALUE_INPUT, CT_F64, ct_shape1(2), "draw");
}

/* This rank's part of the sum of wishes. */
static void pass_wish(struct ct_maker *mk)
{
    struct ct_program_op copy = ct_program_op(CT_OP_COPY);

    copy.in[0] = mk->list->io.wish;
    copy.out[0] = mk->list->io.wishes;
    ct_program_emit(mk->program, copy);
}

/* The block of `of` that micro-batch `micro` reads, shaped as the model's input `like`. */
static int block(struct ct_maker *mk, int of, int like, int micro)
{
    const struct ct_value *v = &mk->model->program.values[like];

    if (of == CT_NONE)
        return CT_NONE;
    return ct_program_view(mk->program, of, v->bytes * (size_t)micro, v->dtype, v->shape, v->name);
}

int ct_maker_next_total(const struct ct_maker *mk, int at)
{
    while (at < mk->model->program.op_count && mk->model->program.ops[at].kind != CT_OP_BATCH_TOTAL)
        at++;
    return at;
}

/* What each micro-batch yields to, and its values: tables of their own where they go in step. */
static void prepare_micros(struct ct_maker *mk)
{
    int count = mk->plan->options.accumulation, values = mk->model->program.value_count;
    bool tree = mk->plan->options.reduce == CT_PLAN_INVARIANT;
    bool in_step = mk->cut != NULL || ct_maker_next_total(mk, 0) < mk->model->program.op_count;

    mk->micros = array(mk, (size_t)count, sizeof *mk->micros);
    for (int m = 0; m < count && mk->program->error.code == 0; m++) {
        struct ct_maker_micro *micro = &mk->micros[m];
        *micro = (struct ct_maker_micro){.yield = &mk->result, .map = mk->map};
        if (tree)
            micro->merges = array(mk, CT_MAKER_MAX_LEVELS, sizeof *micro->merges);
        if (in_step)
            micro->map = table(mk, values);
        if (mk->program->error.code == 0 && tree && m < count - 1)
            push_leaf(mk, micro, m);
        else if (mk->program->error.code == 0 && tree)
            close_tree(mk, micro);
    }
}

/* Micro-batches add up as a binary counter carries, then ranks. */
void ct_maker_share(struct ct_maker *mk, int at)
{
    const struct ct_program_op *op = &mk->model->program.ops[at];
    int count = mk->plan->options.accumulation, stack[CT_MAKER_MAX_LEVELS] = {0}, depth = 0;

    mk->program->stage = op->stage;
    for (int m = 0; m < count; m++) {
        mk->map = mk->micros[m].map;
        CT_ASSERT(depth < CT_MAKER_MAX_LEVELS);
        stack[depth++] = mapped(mk, op->in[0]);
        for (int carry = m + 1; carry % 2 == 0; carry /= 2, depth--)
            ct_maker_add(mk, stack[depth - 2], stack[depth - 1]);
    }
    for (; depth > 1; depth--)
        ct_maker_add(mk, stack[depth - 2], stack[depth - 1]);
    if (ct_mesh_size(&mk->plan->mesh, CT_AXIS_DATA) > 1) {
        struct ct_program_op reduce = ct_program_op(CT_OP_ALL_REDUCE);
        reduce.axis = CT_AXIS_DATA;
        reduce.in[0] = reduce.out[0] = stack[0];
        ct_program_emit(mk->program, reduce);
    }
    for (int m = 0; m < count; m++)
        mk->micros[m].map[op->out[0]] = stack[0];
}

void ct_maker_begin(struct ct_maker *mk, int number)
{
    mk->map = mk->micros[number].map;
    map_model(mk, mk->micros[number].yield, block(mk, mk->list->io.x, mk->model->x, number),
              block(mk, mk->list->io.labels, mk->model->labels, number));
}

static void micro_batches(struct ct_maker *mk)
{
    int count = mk->plan->options.accumulation, ops = mk->model->program.op_count;

    for (int first = 0, end; first < ops && mk->program->error.code == 0; first = end + 1) {
        end = ct_maker_next_total(mk, first);
        for (int m = 0; m < count && mk->program->error.code == 0; m++) {
            if (first == 0)
                ct_maker_begin(mk, m);
            ct_maker_copy(mk, first, end, m);
        }
        if (end < ops && mk->program->error.code == 0)
            ct_maker_share(mk, end);
    }
}

/* Sums that only another stage adds to are zero here. */
static void fill_others(struct ct_maker *mk)
{
    for (int k = mk->plan->param_count; k < mk->yields && mk->program->error.code == 0; k++) {
        if (mk->last_writer[k] != CT_NONE)
            continue;
        struct ct_program_op fill = ct_program_op(CT_OP_FILL);
        fill.out[0] = mk->result.view[k];
        ct_program_emit(mk->program, fill);
    }
}

/* The running statistics follow the sum over the global batch, unless the step is not taken. */
static void update_buffers(struct ct_maker *mk, int scale)
{
    mk->program->stage = CT_STAGE_UPDATE;
    for (int i = 0; i < mk->model->stat_count; i++) {
        const struct ct_model_stat *stat = &mk->model->stats[i];
        struct ct_program_op op = ct_program_op(CT_OP_RUNNING_UPDATE);
        if (mk->buffers[stat->mean] == CT_NONE)
            continue;
        op.in[0] = mk->result.view[mk->plan->param_count + 2 + i];
        op.in[1] = scale;
        op.out[0] = mk->buffers[stat->mean];
        op.out[1] = mk->buffers[stat->var];
        op.attr.momentum = stat->momentum;
        ct_program_emit(mk->program, op);
    }
}

int ct_plan_make_step(struct ct_plan *plan, const struct ct_model *model, const struct ct_cut *cut,
                      struct ct_error *err)
{
    struct ct_maker mk = ct_maker_of(plan, model, cut, &plan->step);
    static const char *const names[CT_PLAN_MAX_MOMENTS] = {"moments0", "moments1", "moments2"};

    CT_ASSERT(plan->moment_count <= CT_PLAN_MAX_MOMENTS);
    if (mk.program->error.code == 0) {
        struct ct_plan_flats flats = {.params = mk.flat};
        for (int i = 0; i < plan->moment_count; i++)
            flats.moments[i] = add_flat(&mk, CT_VALUE_STATE, names[i], "", NULL);
        flats.grads = add_flat(&mk, CT_VALUE_GRAD, "grads", "grad.", mk.result.view);
        size_t end;
        int sums = add_sums(&mk, CT_VALUE_OUTPUT, 1, &end, mk.result.view + plan->param_count);
        mk.list->io.wishes = ct_program_view(mk.program, sums, end, CT_F64, ct_shape1(1), "wishes");
        mk.list->io.loss = mk.result.view[plan->param_count];
        mk.list->io.correct = mk.result.view[plan->param_count + 1];
        mk.list->io.sumsq =
            ct_program_value(mk.program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "sumsq");
        step_inputs(&mk);
        pass_wish(&mk);
        find_last_writers(&mk);
        prepare_micros(&mk);
        if (cut == NULL)
            micro_batches(&mk);
        else
            ct_maker_pipeline(&mk);
        fill_others(&mk);
        update_buffers(&mk, ct_plan_emit_update(plan, &flats));
    }
    return ct_maker_finish(&mk, "step", err);
}

/* ---- evaluation ------------------------------------------------------------------- */

int ct_plan_make_eval(struct ct_plan *plan, const struct ct_model *model, const struct ct_cut *cut,
                      struct ct_error *err)
{
    struct ct_maker mk = ct_maker_of(plan, model, cut, &plan->eval);
    struct ct_maker_micro only = {.yield = &mk.result, .map = mk.map};
    struct ct_plan_io *io = &plan->eval.io;

    mk.micros = &only;
    if (mk.program->error.code == 0) {
        io->x = outer_value(&mk, CT_VALUE_INPUT, model->x, 1, "x");
        io->labels = outer_value(&mk, CT_VALUE_INPUT, model->labels, 1, "labels");
        io->logits = outer_value(&mk, CT_VALUE_OUTPUT, model->logits, 1, "logits");
        for (int i = 0; i < plan->param_count; i++)
            mk.result.view[i] = CT_NONE;
        size_t end;
        (void)add_sums(&mk, CT_VALUE_OUTPUT, 0, &end, mk.result.view + plan->param_count);
        io->loss = mk.result.view[plan->param_count];
        io->correct = mk.result.view[plan->param_count + 1];
        find_last_writers(&mk);
        map_model(&mk, &mk.result, io->x, io->labels);
        mk.map[model->logits] = io->logits;
        if (cut == NULL)
            ct_maker_copy(&mk, 0, model->forward_count, 0);
        else
            ct_maker_pipeline_forward(&mk);
        fill_others(&mk);
    }
    return ct_maker_finish(&mk, "eval", err);
}
