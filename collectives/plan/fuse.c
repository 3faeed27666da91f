/* See passes.h: ops that read the same become one op that reads it once.
 *
 *     apart   cross_entropy logits, labels -> loss, stats
 *             correct logits, labels -> count
 *             ...
 *             cross_entropy_bw logits, labels, stats, scale -> dlogits
 *
 *     fused   cross_entropy_grad logits, labels, scale -> dlogits, rows
 *             sum_rows -> loss
 *             sum_rows -> count
 *
 * No bit changes. Where slices share the classes out, or an evaluation wants no gradient, there is
 * nothing to fuse. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* A loss and what belongs to it: numbers of ops. */
struct match {
    int loss, count, back;
    bool spoilt; /* something else reads its statistics, or writes its logits in between */
};

struct fuser {
    struct ct_program *program;
    struct ct_program_op *ops; /* as they were */
    int op_count;
    struct match *matches; /* of the losses, in their order */
    int match_count;
    int *of_logits; /* by root: the match whose logits lie in it; CT_NONE */
    int *of_stats;  /* by value: the match whose statistics it is; CT_NONE */
    int *of_op;     /* by op: the match that it is part of; CT_NONE */
};

static bool is_input(const struct fuser *f, int value)
{
    const struct ct_value *values = f->program->values;

    return values[values[value].root].kind == CT_VALUE_INPUT;
}

/* ---- finding -------------------------------------------------------------------------------- */

static void begin_match(struct fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];

    f->of_logits[f->program->values[op->in[0]].root] = f->match_count;
    f->of_stats[op->out[1]] = f->match_count;
    f->matches[f->match_count++] = (struct match){
        .loss = i, .count = CT_NONE, .back = CT_NONE, .spoilt = !is_input(f, op->in[1])};
}

/* Whether op `i` has the logits and labels of `match`. */
static bool reads_same(const struct fuser *f, const struct match *match, int i)
{
    const struct ct_program_op *loss = &f->ops[match->loss], *op = &f->ops[i];

    return op->in[0] == loss->in[0] && op->in[1] == loss->in[1] && op->dtype == loss->dtype &&
           match->back == CT_NONE;
}

/* Op `i` may be the rest of a match; it may spoil one. */
static void follow(struct fuser *f, int i)
{
    const struct ct_program_op *op = &f->ops[i];

    for (int k = 0; k < CT_OP_MAX_IN; k++) {
        int at = op->in[k] == CT_NONE ? CT_NONE : f->of_stats[op->in[k]];
        struct match *match = at == CT_NONE ? NULL : &f->matches[at];
        if (match == NULL)
            continue;
        if (op->kind == CT_OP_CROSS_ENTROPY_BW && k == 2 && reads_same(f, match, i) &&
            !op->attr.part && is_input(f, op->in[3]))
            match->back = i;
        else
            match->spoilt = true;
    }
    int at = op->in[0] == CT_NONE ? CT_NONE : f->of_logits[f->program->values[op->in[0]].root];
    if (op->kind == CT_OP_CORRECT && at != CT_NONE && f->matches[at].count == CT_NONE &&
        reads_same(f, &f->matches[at], i))
        f->matches[at].count = i;
    for (int k = 0; k < CT_OP_MAX_OUT; k++) {
        at = op->out[k] == CT_NONE ? CT_NONE : f->of_logits[f->program->values[op->out[k]].root];
        if (at != CT_NONE && f->matches[at].back == CT_NONE)
            f->matches[at].spoilt = true;
    }
}

static bool fits(const struct match *match)
{
    return match->count != CT_NONE && match->back != CT_NONE && !match->spoilt;
}

static void find(struct fuser *f)
{
    for (int i = 0; i < f->program->value_count; i++)
        f->of_logits[i] = f->of_stats[i] = CT_NONE;
    for (int i = 0; i < f->op_count; i++) {
        f->of_op[i] = CT_NONE;
        follow(f, i);
        if (f->ops[i].kind == CT_OP_CROSS_ENTROPY)
            begin_match(f, i);
    }
    for (int m = 0; m < f->match_count; m++) {
        const struct match *match = &f->matches[m];
        if (fits(match))
            f->of_op[match->loss] = f->of_op[match->count] = f->of_op[match->back] = m;
    }
}

/* ---- rewriting ------------------------------------------------------------------------------ */

static int rows_value(struct fuser *f, int labels, const char *name)
{
    int64_t rows = ct_shape_elements(f->program->values[labels].shape);

    return ct_program_value(f->program, CT_VALUE_TEMP, CT_F64, ct_shape1(rows), name);
}

/* The sum of `rows` takes the place of `op`, which gave it as its first result. */
static void emit_sum(struct fuser *f, const struct ct_program_op *op, int rows)
{
    struct ct_program_op sum = ct_program_op(CT_OP_SUM_ROWS);

    sum.in[0] = rows;
    sum.out[0] = op->out[0];
    sum.attr.accumulate = op->attr.accumulate;
    ct_program_emit(f->program, sum);
}

/* All of `match`, where its loss stood; the count too, which stands behind it. */
static void emit_match(struct fuser *f, const struct match *match)
{
    const struct ct_program_op *loss = &f->ops[match->loss], *back = &f->ops[match->back];
    struct ct_program_op fused = ct_program_op(CT_OP_CROSS_ENTROPY_GRAD);
    int losses = rows_value(f, loss->in[1], "losses"), right = rows_value(f, loss->in[1], "right");

    f->program->stage = loss->stage;
    f->program->micro = loss->micro;
    fused.in[0] = loss->in[0];
    fused.in[1] = loss->in[1];
    fused.in[2] = back->in[3];
    fused.out[0] = back->out[0];
    fused.out[1] = losses;
    fused.out[2] = right;
    ct_program_emit(f->program, fused);
    emit_sum(f, loss, losses);
    emit_sum(f, &f->ops[match->count], right);
}

/* Three ops become three: there is room for all. */
static void rewrite(struct fuser *f)
{
    f->program->op_count = 0;
    for (int i = 0; i < f->op_count; i++) {
        if (f->of_op[i] == CT_NONE)
            f->program->ops[f->program->op_count++] = f->ops[i];
        else if (f->matches[f->of_op[i]].loss == i)
            emit_match(f, &f->matches[f->of_op[i]]);
    }
    CT_ASSERT(f->program->op_count == f->op_count || f->program->error.code != 0);
}

int ct_plan_fuse(struct ct_plan_list *list, struct ct_error *err)
{
    struct ct_program *program = &list->program;
    size_t values = (size_t)program->value_count, count = (size_t)program->op_count;
    struct fuser f = {.program = program,
                      .op_count = program->op_count,
                      .ops = malloc(count * sizeof *f.ops),
                      .matches = calloc(count, sizeof *f.matches),
                      .of_logits = malloc(values * sizeof *f.of_logits),
                      .of_stats = malloc(values * sizeof *f.of_stats),
                      .of_op = malloc(count * sizeof *f.of_op)};
    int code = CT_ENOMEM;

    if (f.ops != NULL && f.matches != NULL && f.of_logits != NULL && f.of_stats != NULL &&
        f.of_op != NULL) {
        memcpy(f.ops, program->ops, count * sizeof *f.ops);
        find(&f);
        rewrite(&f);
        code = program->error.code;
    }
    free(f.ops);
    free(f.matches);
    free(f.of_logits);
    free(f.of_stats);
    free(f.of_op);
    return code == 0 ? 0
                     : ct_error_set(err, code, "fuse: %s",
                                    program->error.code != 0 ? program->error.text : "no memory");
}
