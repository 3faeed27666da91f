/* See passes.h: lifetimes become offsets.
 *
 *     op      0   1   2   3   4   5            offset
 *     h0      [=======]                        0 ..
 *     h1          [===============]            |h0 |
 *     dz                  [===]                |dz||  takes the place of h0
 *
 * Each root lives from the op that first touches it to the op that last does (inputs from before
 * the first op, outputs to behind the last). Where an op may work in place and its input dies with
 * it, both are one block. Where ranks communicate beside compute ops, what they read and write
 * lives beside these, too (ct_plan_flight). Blocks are placed by size, the largest first, each in
 * the smallest gap among the blocks that live at the same time (best fit). Those of the host's
 * memory are placed alike, from CT_PLAN_HOST_BASE on. */
#include "collectives/plan/passes/passes.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct block {
    size_t bytes, offset;
    int first, last; /* ops; first > last: never touched */
    int number;      /* the root that made it; the one that stands for several after merging */
};

struct placer {
    const struct ct_plan *plan;
    struct ct_plan_list *list;
    const struct ct_program *program;
    struct block *blocks; /* by value; roots only */
    int *home;            /* by value: the block that holds a root */
    struct block **order; /* blocks to place, then placed blocks by offset */
};

/* What lies where the layout says, outside of the lifetimes. */
static bool is_fixed(enum ct_value_kind kind)
{
    return kind == CT_VALUE_PARAM || kind == CT_VALUE_STATE || kind == CT_VALUE_BUFFER ||
           kind == CT_VALUE_GRAD;
}

static void touch(struct placer *p, int value, int op)
{
    if (value == CT_NONE)
        return;
    struct block *block = &p->blocks[p->program->values[value].root];
    block->first = CT_MIN(block->first, op);
    block->last = CT_MAX(block->last, op);
}

static void find_lifetimes(struct placer *p)
{
    const struct ct_program *program = p->program;

    for (int i = 0; i < program->value_count; i++) {
        const struct ct_value *v = &program->values[i];
        p->home[i] = i;
        p->blocks[i] = (struct block){
            .bytes = ct_plan_align(v->bytes), .first = program->op_count, .last = -1, .number = i};
    }
    for (int i = 0; i < program->op_count; i++) {
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            touch(p, program->ops[i].in[k], i);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            touch(p, program->ops[i].out[k], i);
    }
    for (int i = 0; i < program->value_count; i++) {
        if (program->values[i].kind == CT_VALUE_INPUT)
            touch(p, i, -1);
        if (program->values[i].kind == CT_VALUE_OUTPUT)
            touch(p, i, program->op_count);
    }
}

static int home_of(const struct placer *p, int root)
{
    while (p->home[root] != root)
        root = p->home[root];
    return root;
}

/* A temporary that is a whole root, or CT_NONE. */
static int whole_temp(const struct ct_program *program, int value)
{
    if (value == CT_NONE || program->values[value].kind != CT_VALUE_TEMP ||
        program->values[value].root != value)
        return CT_NONE;
    return value;
}

/* Let op `i` write over its input, where it may and nobody needs the input any more. */
static void merge_in_place(struct placer *p, int i)
{
    const struct ct_program_op *op = &p->program->ops[i];
    int which = ct_rule_info(op->kind)->in_place;
    int from = which < 0 ? CT_NONE : whole_temp(p->program, op->in[which]);
    int to = whole_temp(p->program, op->out[0]);

    if (from == CT_NONE || to == CT_NONE || from == to)
        return;
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (k != which && op->in[k] != CT_NONE && p->program->values[op->in[k]].root == from)
            return;
    struct block *a = &p->blocks[home_of(p, from)], *b = &p->blocks[to];
    if (a->last != i || b->first != i || a->bytes != b->bytes)
        return;
    a->last = b->last;
    p->home[to] = a->number;
}

/* What is communicated beside other ops lives beside them. */
static void extend_flights(struct placer *p)
{
    for (int i = 0; i < p->program->op_count; i++) {
        const struct ct_program_op *op = &p->program->ops[i];
        struct ct_plan_flight flight = ct_plan_flight(p->plan, p->program, i);
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (op->in[k] != CT_NONE) {
                struct block *block = &p->blocks[home_of(p, p->program->values[op->in[k]].root)];
                block->last = CT_MAX(block->last, flight.last);
            }
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (op->out[k] != CT_NONE) {
                struct block *block = &p->blocks[home_of(p, p->program->values[op->out[k]].root)];
                block->first = CT_MIN(block->first, flight.first);
            }
    }
}

static int by_size(const void *left, const void *right)
{
    const struct block *a = *(struct block *const *)left, *b = *(struct block *const *)right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

/* The offset of the smallest gap that holds `block` between the placed blocks that live with it. */
static size_t best_fit(const struct placer *p, int placed, const struct block *block, size_t base)
{
    size_t end = base, best = 0, best_gap = SIZE_MAX;

    for (int i = 0; i < placed; i++) {
        const struct block *other = p->order[i];
        if (other->first > block->last || block->first > other->last)
            continue;
        if (other->offset > end && other->offset - end >= block->bytes &&
            other->offset - end < best_gap) {
            best = end;
            best_gap = other->offset - end;
        }
        end = CT_MAX(end, other->offset + other->bytes);
    }
    return best_gap == SIZE_MAX ? end : best;
}

static void place(struct placer *p, int count, size_t base)
{
    for (int i = 0; i < count; i++) {
        struct block *block = p->order[i];
        int at = i;
        block->offset = best_fit(p, i, block, base);
        while (at > 0 && p->order[at - 1]->offset > block->offset) {
            p->order[at] = p->order[at - 1];
            at--;
        }
        p->order[at] = block;
    }
}

/* The most that is live at once: a lower bound of what any placement needs. */
static int measure_live(struct placer *p, int count)
{
    int ops = p->program->op_count + 2;
    size_t *change = calloc((size_t)ops + 1, sizeof *change), live = 0;

    if (change == NULL)
        return CT_ENOMEM;
    for (int i = 0; i < count; i++) {
        change[p->order[i]->first + 1] += p->order[i]->bytes;
        change[p->order[i]->last + 2] -= p->order[i]->bytes; /* wraps; the sum does not */
    }
    p->list->live_bytes = 0;
    for (int i = 0; i <= ops; i++) {
        live += change[i];
        p->list->live_bytes = CT_MAX(p->list->live_bytes, live);
    }
    free(change);
    return 0;
}

/* Parameters, states and gradients, one behind the other. */
static void place_fixed(struct placer *p)
{
    size_t end = 0;

    for (int i = 0; i < p->program->value_count; i++) {
        const struct ct_value *v = &p->program->values[i];
        if (v->root != i || !is_fixed(v->kind))
            continue;
        p->list->offset[i] = end;
        end += v->bytes;
        p->list->peak_bytes = end;
    }
}

/* Place the blocks that lie in the host's memory, or those of the arena, from `base` on. Returns
 * how many there are. */
static int place_blocks(struct placer *p, bool on_host, size_t base)
{
    const struct ct_program *program = p->program;
    int count = 0;

    for (int i = 0; i < program->value_count; i++)
        if (program->values[i].root == i && !is_fixed(program->values[i].kind) &&
            (program->values[i].kind == CT_VALUE_HOST) == on_host && p->home[i] == i &&
            p->blocks[i].first <= p->blocks[i].last)
            p->order[count++] = &p->blocks[i];
    qsort(p->order, (size_t)count, sizeof(struct block *), by_size);
    place(p, count, base);
    return count;
}

static int run(struct placer *p, size_t base)
{
    const struct ct_program *program = p->program;

    find_lifetimes(p);
    for (int i = 0; i < program->op_count; i++)
        merge_in_place(p, i);
    extend_flights(p);
    (void)place_blocks(p, true, CT_PLAN_HOST_BASE);
    int count = place_blocks(p, false, base);
    place_fixed(p);
    for (int i = 0; i < program->value_count; i++) {
        const struct ct_value *v = &program->values[i];
        if (v->root != i || is_fixed(v->kind))
            continue;
        p->list->offset[i] = p->blocks[home_of(p, i)].offset;
        if (v->kind != CT_VALUE_HOST)
            p->list->peak_bytes = CT_MAX(p->list->peak_bytes, p->list->offset[i] + v->bytes);
        else if (p->list->offset[i] >= CT_PLAN_HOST_BASE)
            p->list->host_bytes =
                CT_MAX(p->list->host_bytes, p->list->offset[i] + v->bytes - CT_PLAN_HOST_BASE);
    }
    return measure_live(p, count);
}

int ct_plan_place(const struct ct_plan *plan, struct ct_plan_list *list, struct ct_error *err)
{
    size_t values = (size_t)list->program.value_count;
    struct placer p = {.plan = plan, .list = list, .program = &list->program};
    int code = CT_ENOMEM;

    list->offset = ct_arena_array(&list->program.arena, values, sizeof *list->offset);
    p.blocks = calloc(values, sizeof *p.blocks);
    p.home = calloc(values, sizeof *p.home);
    p.order = calloc(values, sizeof(struct block *));
    if (list->offset != NULL && p.blocks != NULL && p.home != NULL && p.order != NULL)
        code = run(&p, plan->grads_bytes);
    free(p.blocks);
    free(p.home);
    free(p.order);
    return code == 0 ? 0 : ct_error_set(err, code, "no memory to place %zu values", values);
}
