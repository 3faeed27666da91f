/* See passes.h: what is computed while the ranks of a layer communicate.
 *
 *     as differentiated   db1 dW1 dx1 | sum dx1 |        bw | db0 dW0 dx0 | sum dx0 | ..
 *     here                dx1         | sum dx1 | dW1    bw | dx0         | sum dx0 | dW0 ..
 *                                        db1
 *
 * In front of a collective between slices comes only what it depends on. The other ops wait behind
 * it, where they are computed beside it: the oldest ones, about half of their work, and those that
 * one collective has passed already; the rest waits for the next. So there is something
 * to compute beside each, and what an op reads lives one collective longer at the most. Only ops
 * whose order does not matter change places: each computes what it did.
 *
 * Nothing passes a message between stages or goes into another micro-batch. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct overlap {
    struct ct_program *program;
    const struct ct_program_op *from; /* the ops as they were */
    int done;                         /* ops that have their place */
    int *held;                        /* the others so far, in order */
    int held_count;
    int passed;   /* of those the first that a collective has passed already */
    bool *needed; /* by place among those */
};

static void put(struct overlap *o, int op)
{
    o->program->ops[o->done++] = o->from[op];
}

static double work_of(const struct overlap *o, int held)
{
    return ct_program_cost(o->program, &o->from[o->held[held]]).flop;
}

/* The first `count` of those held. */
static void put_held(struct overlap *o, int count)
{
    for (int i = 0; i < count; i++)
        put(o, o->held[i]);
    memmove(o->held, o->held + count, (size_t)(o->held_count - count) * sizeof *o->held);
    o->held_count -= count;
}

/* Of those held what op `op` depends on, which leaves the others. */
static void put_needed(struct overlap *o, int op)
{
    int kept = 0, passed = 0;

    for (int i = o->held_count - 1; i >= 0; i--) {
        const struct ct_program_op *earlier = &o->from[o->held[i]];
        o->needed[i] = ct_plan_depend(o->program, earlier, &o->from[op]);
        for (int j = i + 1; j < o->held_count && !o->needed[i]; j++)
            o->needed[i] =
                o->needed[j] && ct_plan_depend(o->program, earlier, &o->from[o->held[j]]);
    }
    for (int i = 0; i < o->held_count; i++) {
        if (o->needed[i]) {
            put(o, o->held[i]);
            continue;
        }
        passed += i < o->passed;
        o->held[kept++] = o->held[i];
    }
    o->held_count = kept;
    o->passed = passed;
}

/* Behind a collective. */
static void put_beside(struct overlap *o)
{
    double all = 0, done = 0;
    int count = 0;

    for (int i = 0; i < o->held_count; i++)
        all += work_of(o, i);
    while (count < o->held_count && (count < o->passed || done + work_of(o, count) / 2 <= all / 2))
        done += work_of(o, count++);
    put_held(o, count);
    o->passed = o->held_count;
}

/* Whether a layer waits for it: a sum of gradients is for the update alone. */
static bool is_between_slices(const struct ct_program_op *op)
{
    return op->axis == CT_AXIS_TENSOR && op->kind != CT_OP_ALL_REDUCE && ct_plan_calls_group(op);
}

static void reorder(struct overlap *o)
{
    int count = o->program->op_count;

    for (int i = 0; i < count; i++) {
        const struct ct_program_op *op = &o->from[i];
        bool closes = op->kind == CT_OP_EXCHANGE || op->stage == CT_STAGE_INIT ||
                      op->stage == CT_STAGE_UPDATE;
        if (closes || (i > 0 && op->micro != o->from[i - 1].micro)) {
            put_held(o, o->held_count);
            o->passed = 0;
        }
        if (closes) {
            put(o, i);
        } else if (is_between_slices(op)) {
            put_needed(o, i);
            put(o, i);
            put_beside(o);
        } else {
            o->held[o->held_count++] = i;
        }
    }
    put_held(o, o->held_count);
    CT_ASSERT(o->done == count);
}

int ct_plan_overlap(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    struct ct_program *program = &list->program;
    size_t count = (size_t)program->op_count;
    int code = 0;

    if (!plan->options.overlap || plan->mesh.tensor == 1)
        return 0;
    struct ct_program_op *from = malloc(count * sizeof *from);
    struct overlap o = {.program = program,
                        .from = from,
                        .held = malloc(count * sizeof *o.held),
                        .needed = malloc(count * sizeof *o.needed)};
    if (from != NULL && o.held != NULL && o.needed != NULL) {
        memcpy(from, program->ops, count * sizeof *from);
        reorder(&o);
    } else {
        code = ct_error_set(err, CT_ENOMEM, "no memory to reorder %zu ops", count);
    }
    free(from);
    free(o.held);
    free(o.needed);
    return code;
}
