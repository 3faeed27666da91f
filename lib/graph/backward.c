/* Autodiff at build time: the program is walked from its last op to its first, and each op that the
 * loss depends on emits the ops of its inputs' gradients (rule.def names the function).
 *
 *     forward    x -> linear -> h -> relu -> y -> linear -> z -> cross_entropy -> loss
 *     backward   dW,db <- linear_dw <- dh <- relu_bw <- dy <- linear_dx <- dz <- cross_entropy_bw
 *
 * grad_of[v] is the value that holds the gradient of v so far. A value that is used several times
 * receives several contributions: the first is stored, the others are added. */
#include "graph/program.h"

#include "base/assert.h"

#include <stdlib.h>

struct backward {
    struct ct_program *program;
    int *grad_of; /* by value: CT_NONE until a contribution came */
    int *home;    /* by value: where the gradient of a parameter must end; CT_NONE for others */
    bool *needed; /* by value: whether a parameter lies behind it */
};

typedef void (*backward_rule)(struct backward *b, const struct ct_program_op *op);

static void emit_axpy(struct backward *b, int from, int to)
{
    struct ct_program_op op = ct_program_op(CT_OP_AXPY);

    op.attr.alpha = 1;
    op.in[0] = from;
    op.out[0] = to;
    ct_program_emit(b->program, op);
}

/* `op` computes a contribution to the gradient of `value`; its output is chosen here. */
static void contribute(struct backward *b, int value, struct ct_program_op op)
{
    if (value == CT_NONE || !b->needed[value])
        return;
    bool first = b->grad_of[value] == CT_NONE;
    int home = b->home[value];

    if (home != CT_NONE && (first || ct_rule_accumulates(op.kind))) {
        op.out[0] = home;
        op.attr.accumulate = !first;
        ct_program_emit(b->program, op);
        b->grad_of[value] = home;
        return;
    }
    int part = ct_program_emit(b->program, op);
    if (home != CT_NONE) {
        emit_axpy(b, part, home);
    } else if (first) {
        b->grad_of[value] = part;
    } else {
        struct ct_program_op add = ct_program_op(CT_OP_ADD);
        add.in[0] = b->grad_of[value];
        add.in[1] = part;
        b->grad_of[value] = ct_program_emit(b->program, add);
    }
}

/* The gradient of `value` grows by `dy` itself. */
static void contribute_value(struct backward *b, int value, int dy)
{
    if (b->needed[value] && b->grad_of[value] == CT_NONE && b->home[value] == CT_NONE) {
        b->grad_of[value] = dy;
        return;
    }
    struct ct_program_op copy = ct_program_op(CT_OP_COPY);
    copy.in[0] = dy;
    contribute(b, value, copy);
}

/* An op of `kind` that reads a, c and d (CT_NONE for fewer). */
static struct ct_program_op reads(int kind, int a, int c, int d, int e)
{
    struct ct_program_op op = ct_program_op(kind);

    op.in[0] = a;
    op.in[1] = c;
    op.in[2] = d;
    op.in[3] = e;
    return op;
}

/* y = x W^T + b. The bias comes first, as it does when parameters are walked from the last. */
static void backward_linear(struct backward *b, const struct ct_program_op *op)
{
    int dy = b->grad_of[op->out[0]];

    contribute(b, op->in[2], reads(CT_OP_LINEAR_DB, dy, CT_NONE, CT_NONE, CT_NONE));
    contribute(b, op->in[1], reads(CT_OP_LINEAR_DW, dy, op->in[0], CT_NONE, CT_NONE));
    contribute(b, op->in[0], reads(CT_OP_LINEAR_DX, dy, op->in[1], CT_NONE, CT_NONE));
}

/* y = f(x): the backward op reads dy and `saved`, which is x or y. */
static void backward_unary(struct backward *b, const struct ct_program_op *op, int kind, int saved)
{
    contribute(b, op->in[0], reads(kind, b->grad_of[op->out[0]], saved, CT_NONE, CT_NONE));
}

static void backward_relu(struct backward *b, const struct ct_program_op *op)
{
    backward_unary(b, op, CT_OP_RELU_BW, op->out[0]);
}

static void backward_gelu(struct backward *b, const struct ct_program_op *op)
{
    backward_unary(b, op, CT_OP_GELU_BW, op->in[0]);
}

static void backward_gelu_tanh(struct backward *b, const struct ct_program_op *op)
{
    backward_unary(b, op, CT_OP_GELU_TANH_BW, op->in[0]);
}

static void backward_tanh(struct backward *b, const struct ct_program_op *op)
{
    backward_unary(b, op, CT_OP_TANH_BW, op->out[0]);
}

/* An op with the attributes of `op`. */
static struct ct_program_op alike(const struct ct_program_op *op, struct ct_program_op with)
{
    with.attr = op->attr;
    return with;
}

static void backward_swiglu(struct backward *b, const struct ct_program_op *op)
{
    struct ct_program_op both =
        reads(CT_OP_SWIGLU_BW, b->grad_of[op->out[0]], op->in[0], op->in[1], CT_NONE);
    int gate = ct_program_emit(b->program, both);

    if (gate == CT_NONE)
        return;
    int up = b->program->ops[b->program->op_count - 1].out[1];
    contribute_value(b, op->in[0], gate);
    contribute_value(b, op->in[1], up);
}

/* The same op on the gradient draws the same mask. */
static void backward_dropout(struct backward *b, const struct ct_program_op *op)
{
    contribute(
        b, op->in[0],
        alike(op, reads(CT_OP_DROPOUT, b->grad_of[op->out[0]], op->in[1], CT_NONE, CT_NONE)));
}

static void backward_embedding(struct backward *b, const struct ct_program_op *op)
{
    int dy = b->grad_of[op->out[0]];

    contribute(b, op->in[2], alike(op, reads(CT_OP_EMBEDDING_DP, dy, CT_NONE, CT_NONE, CT_NONE)));
    contribute(b, op->in[1], alike(op, reads(CT_OP_EMBEDDING_DW, op->in[0], dy, CT_NONE, CT_NONE)));
}

/* y = x + P[place]: a bias has one place. */
static void backward_add_rows(struct backward *b, const struct ct_program_op *op)
{
    int dy = b->grad_of[op->out[0]];

    contribute(b, op->in[1],
               op->attr.sequence == 1
                   ? reads(CT_OP_LINEAR_DB, dy, CT_NONE, CT_NONE, CT_NONE)
                   : alike(op, reads(CT_OP_EMBEDDING_DP, dy, CT_NONE, CT_NONE, CT_NONE)));
    contribute_value(b, op->in[0], dy);
}

/* Turned by the opposite angles. */
static void backward_rope(struct backward *b, const struct ct_program_op *op)
{
    struct ct_program_op back =
        alike(op, reads(CT_OP_ROPE, b->grad_of[op->out[0]], op->in[1], CT_NONE, CT_NONE));

    back.attr.inverse = !op->attr.inverse;
    contribute(b, op->in[0], back);
}

static void backward_attention(struct backward *b, const struct ct_program_op *op)
{
    contribute(b, op->in[0],
               alike(op, reads(CT_OP_ATTENTION_BW, b->grad_of[op->out[0]], op->in[0], op->out[0],
                               op->out[1])));
}

static void backward_norm(struct backward *b, const struct ct_program_op *op, int kind)
{
    int dy = b->grad_of[op->out[0]];

    contribute(b, op->in[2], reads(CT_OP_LINEAR_DB, dy, CT_NONE, CT_NONE, CT_NONE));
    contribute(b, op->in[1], reads(CT_OP_NORM_DG, dy, op->in[0], op->out[1], CT_NONE));
    contribute(b, op->in[0], reads(kind, dy, op->in[0], op->in[1], op->out[1]));
}

static void backward_layernorm(struct backward *b, const struct ct_program_op *op)
{
    backward_norm(b, op, CT_OP_LAYERNORM_DX);
}

static void backward_rmsnorm(struct backward *b, const struct ct_program_op *op)
{
    backward_norm(b, op, CT_OP_RMSNORM_DX);
}

/* A new temporary like `value`, for an op whose result's shape follows from no operand. */
static int temp_like(struct backward *b, int value)
{
    const struct ct_value *v = &b->program->values[value];

    return ct_program_value(b->program, CT_VALUE_TEMP, v->dtype, v->shape, v->name);
}

/* The op's gradient for `value`, with its attributes, into a value of that shape. */
static void contribute_like(struct backward *b, const struct ct_program_op *op, int value,
                            struct ct_program_op with)
{
    if (value == CT_NONE || !b->needed[value])
        return;
    with.out[0] = temp_like(b, value);
    contribute(b, value, alike(op, with));
}

/* The op that wrote `value`; NULL for what no op wrote. */
static const struct ct_program_op *writer_of(const struct backward *b, int value)
{
    for (int i = 0; i < b->program->op_count && value != CT_NONE; i++)
        if (b->program->ops[i].out[0] == value)
            return &b->program->ops[i];
    return NULL;
}

/* The statistics depend on x: their gradient is part of dx. Where they are those of the whole
 * global batch, so are the sums of the gradient. */
static void backward_batch_norm(struct backward *b, const struct ct_program_op *op)
{
    const struct ct_program_op *stats = writer_of(b, op->in[1]), *total = NULL, *sums = NULL;
    int dy = b->grad_of[op->out[0]], labels = CT_NONE, of = CT_NONE;

    if (stats != NULL && stats->kind == CT_OP_BATCH_STATS) {
        of = stats->in[0];
        total = writer_of(b, of);
        sums =
            total != NULL && total->kind == CT_OP_BATCH_TOTAL ? writer_of(b, total->in[0]) : total;
    }
    if (sums == NULL || sums->kind != CT_OP_BATCH_SUMS) {
        ct_error_set(&b->program->error, CT_EUNSUPPORTED,
                     "batch_norm has a gradient with the statistics of its batch only");
        return;
    }
    bool sync = total != sums;
    labels = sums->in[1];
    int grads =
        ct_program_emit(b->program, reads(CT_OP_BATCH_GRADS, dy, op->in[0], op->in[1], CT_NONE));
    contribute_like(b, op, op->in[3], reads(CT_OP_BATCH_DB, grads, CT_NONE, CT_NONE, CT_NONE));
    contribute_like(b, op, op->in[2], reads(CT_OP_BATCH_DG, grads, CT_NONE, CT_NONE, CT_NONE));
    if (!b->needed[op->in[0]])
        return;
    if (sync)
        grads =
            ct_program_emit(b->program, reads(CT_OP_BATCH_TOTAL, grads, CT_NONE, CT_NONE, CT_NONE));
    int coef =
        ct_program_emit(b->program, reads(CT_OP_BATCH_COEF, op->in[2], op->in[1], of, grads));
    contribute_like(b, op, op->in[0], reads(CT_OP_BATCH_DX, dy, op->in[0], coef, labels));
}

static void backward_conv2d(struct backward *b, const struct ct_program_op *op)
{
    int dy = b->grad_of[op->out[0]];

    contribute(b, op->in[2], reads(CT_OP_LINEAR_DB, dy, CT_NONE, CT_NONE, CT_NONE));
    contribute_like(b, op, op->in[1], reads(CT_OP_CONV2D_DW, dy, op->in[0], CT_NONE, CT_NONE));
    contribute_like(b, op, op->in[0], reads(CT_OP_CONV2D_DX, dy, op->in[1], CT_NONE, CT_NONE));
}

static void backward_maxpool(struct backward *b, const struct ct_program_op *op)
{
    contribute_like(
        b, op, op->in[0],
        reads(CT_OP_MAXPOOL_BW, b->grad_of[op->out[0]], op->in[0], op->out[0], CT_NONE));
}

static void backward_avgpool(struct backward *b, const struct ct_program_op *op)
{
    contribute_like(b, op, op->in[0],
                    reads(CT_OP_AVGPOOL_BW, b->grad_of[op->out[0]], CT_NONE, CT_NONE, CT_NONE));
}

static void backward_swap(struct backward *b, const struct ct_program_op *op)
{
    struct ct_program_op back =
        reads(CT_OP_SWAP, b->grad_of[op->out[0]], CT_NONE, CT_NONE, CT_NONE);
    struct ct_program_op turned = *op;

    turned.attr.rows = op->attr.columns;
    turned.attr.columns = op->attr.rows;
    contribute_like(b, &turned, op->in[0], back);
}

static void backward_add(struct backward *b, const struct ct_program_op *op)
{
    contribute_value(b, op->in[0], b->grad_of[op->out[0]]);
    contribute_value(b, op->in[1], b->grad_of[op->out[0]]);
}

static void backward_scale(struct backward *b, const struct ct_program_op *op)
{
    struct ct_program_op scale =
        reads(CT_OP_SCALE, b->grad_of[op->out[0]], CT_NONE, CT_NONE, CT_NONE);

    scale.attr.alpha = op->attr.alpha;
    contribute(b, op->in[0], scale);
}

static void backward_copy(struct backward *b, const struct ct_program_op *op)
{
    contribute_value(b, op->in[0], b->grad_of[op->out[0]]);
}

static void backward_cross_entropy(struct backward *b, const struct ct_program_op *op)
{
    contribute(
        b, op->in[0],
        reads(CT_OP_CROSS_ENTROPY_BW, op->in[0], op->in[1], op->out[1], b->grad_of[op->out[0]]));
}

static void backward_vocab_loss(struct backward *b, const struct ct_program_op *op)
{
    contribute(b, op->in[3],
               alike(op, reads(CT_OP_CROSS_ENTROPY_BW, op->in[3], op->in[1], op->out[1],
                               b->grad_of[op->out[0]])));
}

/* Communication on the same ranks, into a value of the shape of `like`. */
static int emit_communication(struct backward *b, const struct ct_program_op *op, int kind,
                              int like)
{
    struct ct_program_op back = reads(kind, b->grad_of[op->out[0]], CT_NONE, CT_NONE, CT_NONE);

    back.axis = op->axis;
    back.out[0] = temp_like(b, like);
    return ct_program_emit(b->program, back);
}

/* Each rank has the gradient of the sum, and of what it gave. */
static void backward_rank_sum(struct backward *b, const struct ct_program_op *op)
{
    contribute_value(b, op->in[0], b->grad_of[op->out[0]]);
}

static void backward_rank_copy(struct backward *b, const struct ct_program_op *op)
{
    if (b->needed[op->in[0]])
        contribute_value(b, op->in[0], emit_communication(b, op, CT_OP_RANK_SUM, op->in[0]));
}

static void backward_all_gather(struct backward *b, const struct ct_program_op *op)
{
    if (b->needed[op->in[0]])
        contribute_value(b, op->in[0], emit_communication(b, op, CT_OP_REDUCE_SCATTER, op->in[0]));
}

static void backward_reduce_scatter(struct backward *b, const struct ct_program_op *op)
{
    if (b->needed[op->in[0]])
        contribute_value(b, op->in[0], emit_communication(b, op, CT_OP_ALL_GATHER, op->in[0]));
}

static void backward_mse(struct backward *b, const struct ct_program_op *op)
{
    contribute(b, op->in[0],
               reads(CT_OP_MSE_BW, op->in[0], op->in[1], b->grad_of[op->out[0]], op->in[2]));
}

#define backward_none NULL
static const backward_rule rules[CT_RULE_COUNT] = {
#define RULE(name, flop, symbols, backward) [CT_OP_##name] = backward_##backward,
#include "graph/rule.def"
#undef RULE
};
#undef backward_none

/* Mark what depends on a parameter, forward. */
static void mark_needed(struct backward *b, int op_count)
{
    for (int i = 0; i < op_count; i++) {
        const struct ct_program_op *op = &b->program->ops[i];
        bool any = false;
        if (rules[op->kind] == NULL)
            continue;
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            any = any || (op->in[k] != CT_NONE && b->needed[op->in[k]]);
        if (any)
            b->needed[op->out[0]] = true;
    }
}

static void walk(struct backward *b, int op_count)
{
    for (int i = op_count - 1; i >= 0; i--) {
        struct ct_program_op op = b->program->ops[i]; /* a copy: emitting moves the array */
        if (rules[op.kind] != NULL && b->needed[op.out[0]] && b->grad_of[op.out[0]] != CT_NONE)
            rules[op.kind](b, &op);
    }
}

static bool prepare(struct backward *b, const struct ct_grad_pair *pairs, int pair_count)
{
    size_t count = (size_t)b->program->value_count;

    b->grad_of = calloc(count, sizeof *b->grad_of);
    b->home = calloc(count, sizeof *b->home);
    b->needed = calloc(count, sizeof *b->needed);
    if (b->grad_of == NULL || b->home == NULL || b->needed == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        b->grad_of[i] = b->home[i] = CT_NONE;
    for (int i = 0; i < pair_count; i++) {
        b->needed[pairs[i].param] = true;
        b->home[pairs[i].param] = pairs[i].grad;
    }
    return true;
}

void ct_program_backward(struct ct_program *program, int loss, int scale,
                         const struct ct_grad_pair *pairs, int pair_count)
{
    struct backward b = {.program = program};
    int op_count = program->op_count;

    if (program->error.code != 0)
        return;
    CT_ASSERT(loss >= 0 && loss < program->value_count);
    if (!prepare(&b, pairs, pair_count)) {
        ct_error_set(&program->error, CT_ENOMEM, "no memory to differentiate %d ops", op_count);
        goto out;
    }
    mark_needed(&b, op_count);
    b.grad_of[loss] = scale;
    walk(&b, op_count);
    for (int i = 0; i < pair_count; i++) {
        if (b.grad_of[pairs[i].param] != CT_NONE)
            continue;
        struct ct_program_op zero = ct_program_op(CT_OP_FILL);
        zero.out[0] = pairs[i].grad;
        ct_program_emit(program, zero);
    }
out:
    free(b.grad_of);
    free(b.home);
    free(b.needed);
}
