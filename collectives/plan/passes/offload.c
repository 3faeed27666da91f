/* See passes.h: activations that wait for the backward pass in the host's memory.
 *
 *     kept       h = gelu a | ...                        | da = gelu_bw dh, a
 *     offloaded  h = gelu a, A = copy a | ...   a' = copy A | da = gelu_bw dh, a'
 *
 * `a` ends behind its last reader of the forward pass, a' begins in front of its first reader of
 * the backward pass; A lies where the host says, beside the arena. Copies change no bit. What is
 * small, or read again within a few ops, stays where it is, and so do the narrow copies of
 * parameters, which all micro-batches share.
 *
 * In a pipeline the pass sees a stage's ops alone. What another stage gives has no writer here, and
 * goes and comes back like the rest; what goes on to the next stage is sent from where it is. */
#include "collectives/plan/passes/passes.h"
#include "collectives/plan/passes/stage_split.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BYTES = 1024, LEAST_OPS = 4 };

/* A value's life in the model: ops by their numbers, CT_NONE for none. */
struct life {
    int writer, writers; /* the last one; how many */
    int last_forward, first_backward;
    int host, back; /* its copies, once they are made */
};

struct offloader {
    struct ct_program *program;
    const struct ct_program_op *ops; /* as they were */
    int op_count, forward_count, value_count;
    struct life *lives; /* by value */
    const int *part_of; /* by op: the part it belongs to; NULL without stages */
    int *new_part_of;   /* likewise, of what is emitted */
};

static void read_by(struct offloader *o, int value, int op)
{
    struct life *life = value == CT_NONE ? NULL : &o->lives[o->program->values[value].root];

    if (life == NULL)
        return;
    if (op < o->forward_count)
        life->last_forward = op;
    else if (life->first_backward == CT_NONE)
        life->first_backward = op;
}

static void find_lives(struct offloader *o)
{
    for (int i = 0; i < o->value_count; i++)
        o->lives[i] = (struct life){CT_NONE, 0, CT_NONE, CT_NONE, CT_NONE, CT_NONE};
    for (int i = 0; i < o->op_count; i++) {
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            read_by(o, o->ops[i].in[k], i);
        for (int k = 0; k < CT_OP_MAX_OUT; k++) {
            int out = o->ops[i].out[k];
            if (out == CT_NONE)
                continue;
            struct life *life = &o->lives[o->program->values[out].root];
            life->writer = i;
            life->writers += 1 + (o->program->values[out].root != out);
            if (i < o->forward_count)
                life->last_forward = i;
        }
    }
}

/* Whether it pays, and can be done. */
static bool is_offloaded(const struct offloader *o, int value)
{
    const struct ct_value *v = &o->program->values[value];
    const struct life *life = &o->lives[value];

    if (v->kind != CT_VALUE_TEMP || v->root != value || v->dtype == CT_F64 ||
        v->bytes < LEAST_BYTES || life->last_forward == CT_NONE ||
        life->first_backward == CT_NONE || life->first_backward - life->last_forward <= LEAST_OPS)
        return false;
    if (life->writers == 0)
        return o->part_of != NULL;
    return life->writers == 1 && life->writer < o->forward_count &&
           !ct_plan_narrows_param(o->program, &o->ops[life->writer]);
}

/* Emit an op that belongs where op `beside` of the old ones does. */
static int emit(struct offloader *o, struct ct_program_op op, int beside)
{
    if (o->part_of != NULL)
        o->new_part_of[o->program->op_count] = o->part_of[beside];
    return ct_program_emit(o->program, op);
}

/* A copy of `from` as a new value of `kind`. */
static int emit_copy(struct offloader *o, int from, int like, enum ct_value_kind kind, int beside)
{
    struct ct_value v = o->program->values[like]; /* adding one moves the array */
    struct ct_program_op copy = ct_program_op(CT_OP_COPY);

    copy.in[0] = from;
    copy.out[0] = ct_program_value(o->program, kind, v.dtype, v.shape, v.name);
    return emit(o, copy, beside);
}

static void fetch(struct offloader *o, int op)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int value = o->ops[op].in[k];
        if (value != CT_NONE && o->lives[value].host != CT_NONE &&
            o->lives[value].first_backward == op && o->lives[value].back == CT_NONE)
            o->lives[value].back = emit_copy(o, o->lives[value].host, value, CT_VALUE_TEMP, op);
    }
}

static void store(struct offloader *o, int op)
{
    for (int i = 0; i < o->value_count; i++)
        if (o->lives[i].last_forward == op && is_offloaded(o, i))
            o->lives[i].host = emit_copy(o, i, i, CT_VALUE_HOST, op);
}

static void rewrite(struct offloader *o, struct ct_model *model)
{
    for (int i = 0; i < o->op_count; i++) {
        struct ct_program_op op = o->ops[i];
        if (i == o->forward_count)
            model->forward_count = o->program->op_count;
        o->program->stage = op.stage;
        fetch(o, i);
        for (int k = 0; k < CT_OP_MAX_IN && i >= o->forward_count; k++)
            if (op.in[k] != CT_NONE && o->lives[op.in[k]].back != CT_NONE)
                op.in[k] = o->lives[op.in[k]].back;
        emit(o, op, i);
        if (i < o->forward_count)
            store(o, i);
    }
}

int ct_plan_offload(struct ct_model *model, struct ct_stage_split *split, struct ct_arena *arena,
                    struct ct_error *err)
{
    struct ct_program *program = &model->program;
    size_t count = (size_t)program->op_count, values = (size_t)program->value_count;
    struct ct_program_op *ops = malloc(count * sizeof *ops);
    struct offloader o = {.program = program,
                          .ops = ops,
                          .op_count = program->op_count,
                          .forward_count = model->forward_count,
                          .value_count = program->value_count,
                          .lives = calloc(values, sizeof *o.lives),
                          .part_of = split != NULL ? split->part_of : NULL};
    int code = CT_ENOMEM;

    if (split != NULL) /* each value is copied there and back once at most */
        o.new_part_of = ct_arena_array(arena, count + 2 * values, sizeof *o.new_part_of);
    if (ops != NULL && o.lives != NULL && (split == NULL || o.new_part_of != NULL)) {
        memcpy(ops, program->ops, count * sizeof *ops);
        find_lives(&o);
        program->op_count = 0;
        rewrite(&o, model);
        if (split != NULL)
            split->part_of = o.new_part_of;
        code = 0;
    }
    free(ops);
    free(o.lives);
    if (code != 0)
        return ct_error_set(err, code, "no memory to offload %zu values", values);
    return program->error.code == 0
               ? 0
               : ct_error_set(err, program->error.code, "offload: %s", program->error.text);
}
