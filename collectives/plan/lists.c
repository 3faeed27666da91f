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
 * A sum of two is the same whichever comes first, so the last line is (g2 + g3) + (g0 + g1). */
#include "collectives/plan/passes.h"

#include "base/assert.h"
#include "base/rng.h"

#include <stdio.h>

enum { MAX_LEVELS = 32 };

/* What a micro-batch yields: views, a gradient for each parameter, then loss, then correct. */
struct yield {
    int *view;
};

/* One addition of the tree: into += from. */
struct merge {
    const struct yield *into, *from;
};

struct maker {
    struct ct_plan *plan;
    const struct ct_model *model;
    struct ct_plan_list *list;
    struct ct_program *program; /* of the list */

    int *map;         /* by value of the model: the list's value; UNMAPPED until it is needed */
    int *last_writer; /* by index in a yield: the model's op that writes it last */
    int *params;      /* by parameter: its view of the flat parameters */

    struct yield result;            /* the step's own gradients and sums */
    struct yield stack[MAX_LEVELS]; /* subtrees that wait for their sibling, smallest on top */
    int depth;
    struct merge merges[MAX_LEVELS]; /* what follows the present micro-batch */
    int merge_count;
};

enum { UNMAPPED = -2 };

/* Elements of a flat range; frozen parameters lie behind those that learn. */
static int64_t flat_count(const struct ct_plan *plan, enum ct_value_kind kind)
{
    size_t bytes = plan->flat_bytes + (kind == CT_VALUE_PARAM ? plan->frozen_bytes : 0);

    return (int64_t)(bytes / ct_dtype_size(plan->tensors[0].dtype));
}

/* A flat range with the layout of the parameters; its views, named "<prefix><parameter>", go to
 * `view` unless that is NULL: CT_NONE for a frozen one in another range. Returns the root. */
static int add_flat(struct maker *mk, enum ct_value_kind kind, const char *name, const char *prefix,
                    int *view)
{
    const struct ct_plan *plan = mk->plan;
    char full[128];
    int root = ct_program_value(mk->program, kind, plan->tensors[0].dtype,
                                ct_shape1(flat_count(plan, kind)), name);

    for (int i = 0; i < plan->param_count && view != NULL; i++) {
        const struct ct_plan_tensor *tensor = &plan->tensors[i];
        view[i] = CT_NONE;
        if (kind != CT_VALUE_PARAM && tensor->range == CT_PLAN_WHOLE)
            continue;
        snprintf(full, sizeof full, "%s%s", prefix, tensor->name);
        view[i] = ct_program_view(mk->program, root, tensor->flat_bytes, tensor->dtype,
                                  tensor->shape, full);
    }
    return root;
}

static void *table(struct maker *mk, size_t count)
{
    int *ints = ct_arena_array(&mk->program->arena, count, sizeof *ints);

    if (ints == NULL && mk->program->error.code == 0)
        ct_error_set(&mk->program->error, CT_ENOMEM, "no memory for a table of %zu values", count);
    return ints;
}

/* The sums of loss and correct rows, and of what else there is, one f64 [count] so that one
 * reduction serves all. Returns the root. */
static int add_sums(struct maker *mk, enum ct_value_kind kind, int count, int *view)
{
    int sums = ct_program_value(mk->program, kind, CT_F64, ct_shape1(count), "sums");

    view[0] = ct_program_view(mk->program, sums, 0, CT_F64, ct_shape1(1), "loss");
    view[1] = ct_program_view(mk->program, sums, sizeof(double), CT_F64, ct_shape1(1), "correct");
    return sums;
}

static struct maker maker_of(struct ct_plan *plan, const struct ct_model *model,
                             struct ct_plan_list *list)
{
    struct maker mk = {.plan = plan, .model = model, .list = list, .program = &list->program};
    size_t values = (size_t)model->program.value_count;

    list->io = (struct ct_plan_io){CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE,
                                   CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE, CT_NONE};
    mk.map = table(&mk, values);
    mk.params = table(&mk, (size_t)plan->param_count);
    mk.result.view = table(&mk, (size_t)plan->param_count + 2);
    mk.last_writer = table(&mk, (size_t)plan->param_count + 2);
    if (mk.program->error.code == 0)
        add_flat(&mk, CT_VALUE_PARAM, "params", "", mk.params);
    return mk;
}

static int finish(struct maker *mk, const char *which, struct ct_error *err)
{
    const struct ct_error *error = &mk->program->error;

    return error->code == 0 ? 0 : ct_error_set(err, error->code, "%s: %s", which, error->text);
}

/* ---- copying ops ---------------------------------------------------------------------------- */

/* The list's value for the model's; a temporary is made at its first use. */
static int mapped(struct maker *mk, int value)
{
    if (value == CT_NONE)
        return CT_NONE;
    if (mk->map[value] == UNMAPPED) {
        const struct ct_value *v = &mk->model->program.values[value];
        CT_ASSERT(v->kind == CT_VALUE_TEMP && v->root == value);
        mk->map[value] = ct_program_value(mk->program, v->kind, v->dtype, v->shape, v->name);
    }
    return mk->map[value];
}

/* Start a micro-batch: parameters, inputs and yields have their place, temporaries none yet. */
static void map_model(struct maker *mk, const struct yield *yield, int x, int labels)
{
    const struct ct_model *model = mk->model;

    for (int i = 0; i < model->program.value_count; i++)
        mk->map[i] = UNMAPPED;
    for (int i = 0; i < model->param_count; i++) {
        mk->map[model->params[i].value] = mk->params[i];
        if (model->params[i].grad != CT_NONE)
            mk->map[model->params[i].grad] = yield->view[i];
    }
    mk->map[model->loss] = yield->view[model->param_count];
    mk->map[model->correct] = yield->view[model->param_count + 1];
    mk->map[model->x] = x;
    mk->map[model->labels] = labels;
    mk->map[model->inv_valid] = mk->list->io.inv_valid;
    if (model->draw != CT_NONE)
        mk->map[model->draw] = mk->list->io.draw;
}

static struct ct_program_op copied(struct maker *mk, const struct ct_program_op *from)
{
    struct ct_program_op op = *from;

    for (int i = 0; i < CT_OP_MAX_IN; i++)
        op.in[i] = mapped(mk, op.in[i]);
    for (int i = 0; i < CT_OP_MAX_OUT; i++)
        op.out[i] = mapped(mk, op.out[i]);
    if (op.kind == CT_OP_DROPOUT) { /* draws for this seed and micro-batch */
        op.attr.key ^= ct_mix64(mk->plan->seed);
        op.attr.first =
            op.attr.unit * (uint64_t)(mk->program->micro * mk->plan->options.micro_rows);
    }
    return op;
}

/* to += from */
static void emit_add_to(struct maker *mk, int to, int from)
{
    struct ct_program_op add = ct_program_op(CT_OP_ADD);

    add.in[0] = to;
    add.in[1] = from;
    add.out[0] = to;
    ct_program_emit(mk->program, add);
}

/* The op overwrites a yield that already holds the micro-batches before: let it add. */
static void emit_adding(struct maker *mk, struct ct_program_op op)
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
    emit_add_to(mk, to, op.out[0]);
}

static bool is_yield(enum ct_value_kind kind)
{
    return kind == CT_VALUE_GRAD || kind == CT_VALUE_OUTPUT;
}

/* Copy the model's ops [0, count) as micro-batch `micro`. */
static void copy_ops(struct maker *mk, int count, int micro, bool adding)
{
    const struct ct_program *from = &mk->model->program;

    mk->program->micro = micro;
    for (int i = 0; i < count && mk->program->error.code == 0; i++) {
        struct ct_program_op op = copied(mk, &from->ops[i]);
        mk->program->stage = from->ops[i].stage;
        bool yields = is_yield(from->values[from->ops[i].out[0]].kind);
        if (adding && yields && !ct_program_op_updates(&op))
            emit_adding(mk, op);
        else
            ct_program_emit(mk->program, op);
        for (int k = 0; k < mk->plan->param_count + 2; k++)
            for (int m = 0; m < mk->merge_count && mk->last_writer[k] == i; m++)
                emit_add_to(mk, mk->merges[m].into->view[k], mk->merges[m].from->view[k]);
    }
}

/* ---- the tree of micro-batches -------------------------------------------------------------- */

static void find_last_writers(struct maker *mk)
{
    const struct ct_program *from = &mk->model->program;

    for (int k = 0; k < mk->plan->param_count + 2; k++)
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
    }
}

static struct yield new_leaf(struct maker *mk, int micro)
{
    struct yield leaf = {.view = table(mk, (size_t)mk->plan->param_count + 2)};
    char name[32], prefix[32];

    if (leaf.view == NULL)
        return leaf;
    snprintf(name, sizeof name, "leaf%d", micro);
    snprintf(prefix, sizeof prefix, "leaf%d.", micro);
    add_flat(mk, CT_VALUE_TEMP, name, prefix, leaf.view);
    (void)add_sums(mk, CT_VALUE_TEMP, 2, leaf.view + mk->plan->param_count);
    return leaf;
}

/* Push leaf number `micro`; the merges that its carry causes follow its ops. */
static const struct yield *push_leaf(struct maker *mk, int micro)
{
    const struct yield *leaf = &mk->stack[mk->depth];

    CT_ASSERT(mk->depth < MAX_LEVELS);
    mk->stack[mk->depth++] = new_leaf(mk, micro);
    mk->merge_count = 0;
    for (int carry = micro + 1; carry % 2 == 0; carry /= 2) {
        mk->merges[mk->merge_count++] =
            (struct merge){&mk->stack[mk->depth - 2], &mk->stack[mk->depth - 1]};
        mk->depth--;
    }
    return leaf;
}

/* The last micro-batch takes all that waits. */
static const struct yield *close_tree(struct maker *mk)
{
    mk->merge_count = 0;
    for (int i = mk->depth - 1; i >= 0; i--)
        mk->merges[mk->merge_count++] = (struct merge){&mk->result, &mk->stack[i]};
    return &mk->result;
}

/* ---- the step ------------------------------------------------------------------------------- */

static int scalar_input(struct maker *mk, const char *name)
{
    return ct_program_value(mk->program, CT_VALUE_INPUT, CT_F64, ct_shape1(1), name);
}

static void step_inputs(struct maker *mk)
{
    const struct ct_program *from = &mk->model->program;
    struct ct_plan_io *io = &mk->list->io;
    int64_t count = mk->plan->options.accumulation;
    const struct ct_value *x = &from->values[mk->model->x];
    struct ct_shape labels = from->values[mk->model->labels].shape, all = x->shape;

    all.dim[0] *= count;
    labels.dim[0] *= count;
    io->x = ct_program_value(mk->program, CT_VALUE_INPUT, x->dtype, all, "x");
    io->labels = ct_program_value(mk->program, CT_VALUE_INPUT, CT_I32, labels, "labels");
    io->inv_valid = scalar_input(mk, "inv_valid");
    io->lr = scalar_input(mk, "lr");
    io->wish = scalar_input(mk, "wish");
    if (ct_plan_counts_updates(&mk->plan->options.optim))
        io->update = scalar_input(mk, "update");
    if (mk->model->draw != CT_NONE)
        io->draw = ct_program_value(mk->program, CT_VALUE_INPUT, CT_F64, ct_shape1(2), "draw");
}

/* This rank's part of the sum of wishes. */
static void pass_wish(struct maker *mk)
{
    struct ct_program_op copy = ct_program_op(CT_OP_COPY);

    copy.in[0] = mk->list->io.wish;
    copy.out[0] = mk->list->io.wishes;
    ct_program_emit(mk->program, copy);
}

/* The block of `of` that micro-batch `micro` reads, shaped as the model's input `like`. */
static int block(struct maker *mk, int of, int like, int micro)
{
    const struct ct_value *v = &mk->model->program.values[like];

    return ct_program_view(mk->program, of, v->bytes * (size_t)micro, v->dtype, v->shape, v->name);
}

static void micro_batches(struct maker *mk)
{
    int count = mk->plan->options.accumulation;
    bool tree = mk->plan->options.reduce == CT_PLAN_INVARIANT;

    find_last_writers(mk);
    for (int m = 0; m < count && mk->program->error.code == 0; m++) {
        const struct yield *yield = &mk->result;
        if (tree)
            yield = m == count - 1 ? close_tree(mk) : push_leaf(mk, m);
        if (mk->program->error.code != 0)
            return;
        map_model(mk, yield, block(mk, mk->list->io.x, mk->model->x, m),
                  block(mk, mk->list->io.labels, mk->model->labels, m));
        copy_ops(mk, mk->model->program.op_count, m, !tree && m > 0);
    }
}

int ct_plan_make_step(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    struct maker mk = maker_of(plan, model, &plan->step);
    static const char *const names[CT_PLAN_MAX_MOMENTS] = {"moments0", "moments1", "moments2"};

    CT_ASSERT(plan->moment_count <= CT_PLAN_MAX_MOMENTS);
    if (mk.program->error.code == 0) {
        struct ct_plan_flats flats = {.params = mk.program->values[mk.params[0]].root};
        for (int i = 0; i < plan->moment_count; i++)
            flats.moments[i] = add_flat(&mk, CT_VALUE_STATE, names[i], "", NULL);
        flats.grads = add_flat(&mk, CT_VALUE_GRAD, "grads", "grad.", mk.result.view);
        int sums = add_sums(&mk, CT_VALUE_OUTPUT, 3, mk.result.view + plan->param_count);
        mk.list->io.wishes =
            ct_program_view(mk.program, sums, 2 * sizeof(double), CT_F64, ct_shape1(1), "wishes");
        mk.list->io.loss = mk.result.view[plan->param_count];
        mk.list->io.correct = mk.result.view[plan->param_count + 1];
        mk.list->io.sumsq =
            ct_program_value(mk.program, CT_VALUE_OUTPUT, CT_F64, ct_shape1(1), "sumsq");
        step_inputs(&mk);
        pass_wish(&mk);
        micro_batches(&mk);
        ct_plan_emit_update(plan, &flats);
    }
    return finish(&mk, "step", err);
}

/* ---- evaluation and start ------------------------------------------------------------------- */

int ct_plan_make_eval(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    struct maker mk = maker_of(plan, model, &plan->eval);
    const struct ct_program *from = &model->program;
    struct ct_plan_io *io = &plan->eval.io;

    if (mk.program->error.code == 0) {
        const struct ct_value *x = &from->values[model->x], *labels = &from->values[model->labels];
        const struct ct_value *logits = &from->values[model->logits];
        io->x = ct_program_value(mk.program, CT_VALUE_INPUT, x->dtype, x->shape, "x");
        io->labels =
            ct_program_value(mk.program, CT_VALUE_INPUT, labels->dtype, labels->shape, "labels");
        io->logits =
            ct_program_value(mk.program, CT_VALUE_OUTPUT, logits->dtype, logits->shape, "logits");
        for (int i = 0; i < plan->param_count; i++)
            mk.result.view[i] = CT_NONE;
        (void)add_sums(&mk, CT_VALUE_OUTPUT, 2, mk.result.view + plan->param_count);
        io->loss = mk.result.view[plan->param_count];
        io->correct = mk.result.view[plan->param_count + 1];
        map_model(&mk, &mk.result, io->x, io->labels);
        mk.map[model->logits] = io->logits;
        copy_ops(&mk, model->forward_count, 0, false);
    }
    return finish(&mk, "eval", err);
}

/* The op that gives `param` its first values. */
static struct ct_program_op first_values(const struct ct_model_param *param, uint64_t key)
{
    static const int kinds[] = {[CT_INIT_UNIFORM] = CT_OP_UNIFORM,
                                [CT_INIT_NORMAL] = CT_OP_NORMAL,
                                [CT_INIT_CONSTANT] = CT_OP_FILL};
    struct ct_program_op op = ct_program_op(kinds[param->init.kind]);
    double amount = param->init.amount;

    if (param->init.kind == CT_INIT_UNIFORM) {
        op.attr.low = -amount;
        op.attr.high = amount;
    } else if (param->init.kind == CT_INIT_NORMAL) {
        op.attr.std = amount;
    } else {
        op.attr.alpha = amount;
        return op;
    }
    op.attr.key = key;
    return op;
}

int ct_plan_make_init(struct ct_plan *plan, const struct ct_model *model, struct ct_error *err)
{
    struct maker mk = maker_of(plan, model, &plan->init);

    mk.program->stage = CT_STAGE_INIT;
    for (int i = 0; i < plan->param_count && mk.program->error.code == 0; i++) {
        struct ct_program_op op =
            first_values(&model->params[i], ct_model_key(plan->seed, plan->tensors[i].name));
        op.out[0] = mk.params[i];
        ct_program_emit(mk.program, op);
    }
    return finish(&mk, "init", err);
}
