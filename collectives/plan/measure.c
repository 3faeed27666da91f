/* See measure.h. */
#include "collectives/plan/measure.h"

#include "base/assert.h"
#include "collectives/plan/access.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
    [CT_MEMORY_PARAMS] = "parameters",       [CT_MEMORY_MOMENTS] = "moments",
    [CT_MEMORY_GRADS] = "gradients",         [CT_MEMORY_COPIES] = "parameter copies",
    [CT_MEMORY_ACTIVATIONS] = "activations", [CT_MEMORY_TEMPS] = "temporaries",
    [CT_MEMORY_STAGING] = "staging",         [CT_MEMORY_UNUSED] = "unused",
};
_Static_assert(CT_COUNT(kind_names) == CT_MEMORY_KIND_COUNT, "a name for every kind");

const char *ct_memory_kind_name(enum ct_memory_kind kind)
{
    CT_ASSERT((unsigned)kind < CT_MEMORY_KIND_COUNT);
    return kind_names[kind];
}

/* What is known of a root: when it lives, and what for. */
struct life {
    int first, last; /* ops; first > last: never */
    enum ct_memory_kind kind;
};

struct gauge {
    const struct ct_plan_list *list;
    const struct ct_program *program;
    struct life *lives; /* by value; roots only */
    ptrdiff_t *change;  /* by op and kind: bytes that begin or end to live in front of it */
};

/* Whether it lies where the layout says. */
static bool is_fixed(enum ct_value_kind kind)
{
    return kind == CT_VALUE_PARAM || kind == CT_VALUE_STATE || kind == CT_VALUE_BUFFER ||
           kind == CT_VALUE_GRAD;
}

static struct life *life_of(const struct gauge *g, int value)
{
    return &g->lives[g->program->values[value].root];
}

static enum ct_value_kind root_kind(const struct gauge *g, int value)
{
    return g->program->values[g->program->values[value].root].kind;
}

static void touch(const struct gauge *g, int value, int op)
{
    if (value == CT_NONE)
        return;
    struct life *life = life_of(g, value);
    life->first = CT_MIN(life->first, op);
    life->last = CT_MAX(life->last, op);
}

static void find_lives(struct gauge *g)
{
    int count = g->program->op_count;

    for (int i = 0; i < g->program->value_count; i++) {
        enum ct_value_kind kind = g->program->values[i].kind;
        bool staged = kind == CT_VALUE_INPUT || kind == CT_VALUE_OUTPUT;
        g->lives[i] = (struct life){count, -1, staged ? CT_MEMORY_STAGING : CT_MEMORY_TEMPS};
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            touch(g, g->program->ops[i].in[k], i);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            touch(g, g->program->ops[i].out[k], i);
    }
    for (int i = 0; i < g->program->value_count; i++) {
        if (g->program->values[i].kind == CT_VALUE_INPUT)
            touch(g, i, 0);
        if (g->program->values[i].kind == CT_VALUE_OUTPUT)
            touch(g, i, count - 1);
    }
}

/* Where an op writes over its input, the two are one block: the input ends just before. */
static void join_in_place(const struct gauge *g)
{
    for (int i = 0; i < g->program->op_count; i++) {
        const struct ct_program_op *op = &g->program->ops[i];
        int which = ct_rule_info(op->kind)->in_place;
        int from = which < 0 ? CT_NONE : op->in[which], to = op->out[0];
        if (from == CT_NONE || to == CT_NONE || life_of(g, from) == life_of(g, to) ||
            ct_plan_offset(g->list, from) != ct_plan_offset(g->list, to))
            continue;
        life_of(g, from)->last = i - 1;
    }
}

/* What is communicated lives beside the ops that are computed meanwhile. */
static void extend_flights(const struct gauge *g, const struct ct_plan *plan)
{
    for (int i = 0; i < g->program->op_count; i++) {
        const struct ct_program_op *op = &g->program->ops[i];
        struct ct_plan_flight flight = ct_plan_flight(plan, g->program, i);
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            touch(g, flight.last > i ? op->in[k] : CT_NONE, flight.last);
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            touch(g, flight.first < i ? op->out[k] : CT_NONE, flight.first);
    }
}

/* Whether `op` adds what it reads to gradients, or scatters it to them. */
static bool feeds_gradients(const struct gauge *g, const struct ct_program_op *op)
{
    if (op->out[0] == CT_NONE || (op->kind != CT_OP_ADD && op->kind != CT_OP_REDUCE_SCATTER))
        return false;
    return root_kind(g, op->out[0]) == CT_VALUE_GRAD ||
           life_of(g, op->out[0])->kind == CT_MEMORY_GRADS;
}

/* Whether `op` puts parameters together, or narrows them. */
static bool copies_parameters(const struct gauge *g, const struct ct_program_op *op)
{
    if ((op->kind != CT_OP_ALL_GATHER && !ct_plan_is_narrowing(op->kind)) ||
        root_kind(g, op->out[0]) != CT_VALUE_TEMP)
        return false;
    return root_kind(g, op->in[0]) == CT_VALUE_PARAM ||
           life_of(g, op->in[0])->kind == CT_MEMORY_COPIES;
}

/* Copies of copies follow their first; gradients from the last op to the first, so that what feeds
 * a gradient's leaf is known as one, too. */
static void find_kinds(struct gauge *g)
{
    const struct ct_program *program = g->program;

    for (int i = 0; i < program->value_count; i++) {
        struct life *life = &g->lives[i];
        if (life->kind == CT_MEMORY_TEMPS && life->first <= life->last &&
            program->ops[life->first].stage == CT_STAGE_FORWARD &&
            program->ops[life->last].stage == CT_STAGE_BACKWARD)
            life->kind = CT_MEMORY_ACTIVATIONS;
    }
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == CT_OP_SCATTER)
            life_of(g, program->ops[i].out[0])->kind = CT_MEMORY_STAGING;
    for (int i = 0; i < program->op_count; i++)
        if (copies_parameters(g, &program->ops[i]))
            life_of(g, program->ops[i].out[0])->kind = CT_MEMORY_COPIES;
    for (int i = program->op_count - 1; i >= 0; i--) {
        const struct ct_program_op *op = &program->ops[i];
        bool feeds = feeds_gradients(g, op);
        for (int k = 0; k < CT_OP_MAX_IN && feeds; k++)
            if (op->in[k] != CT_NONE && root_kind(g, op->in[k]) == CT_VALUE_TEMP)
                life_of(g, op->in[k])->kind = CT_MEMORY_GRADS;
    }
}

static ptrdiff_t *change_at(const struct gauge *g, int op)
{
    return &g->change[(size_t)op * CT_MEMORY_KIND_COUNT];
}

/* What lives at the fullest moment, by kind. */
static void find_peak(struct gauge *g, size_t ret[CT_MEMORY_KIND_COUNT])
{
    ptrdiff_t now[CT_MEMORY_KIND_COUNT] = {0}, most = 0;

    for (int i = 0; i < g->program->value_count; i++) {
        const struct ct_value *value = &g->program->values[i];
        const struct life *life = &g->lives[i];
        if (value->root != i || is_fixed(value->kind) || value->kind == CT_VALUE_HOST ||
            life->first > life->last)
            continue;
        change_at(g, life->first)[life->kind] += (ptrdiff_t)value->bytes;
        change_at(g, life->last + 1)[life->kind] -= (ptrdiff_t)value->bytes;
    }
    for (int i = 0; i < g->program->op_count; i++) {
        ptrdiff_t sum = 0;
        for (int k = 0; k < CT_MEMORY_KIND_COUNT; k++) {
            now[k] += change_at(g, i)[k];
            sum += now[k];
        }
        if (sum <= most)
            continue;
        most = sum;
        for (int k = 0; k < CT_MEMORY_KIND_COUNT; k++)
            ret[k] = (size_t)now[k];
    }
}

static int measure_memory(const struct ct_plan *plan, struct ct_measure *ret)
{
    bool in_eval = plan->eval.peak_bytes > plan->step.peak_bytes;
    const struct ct_plan_list *list = in_eval ? &plan->eval : &plan->step;
    struct gauge g = {.list = list, .program = &list->program};
    size_t ops = (size_t)list->program.op_count + 1, known = 0;
    size_t params = ct_plan_range_offset(plan, 1);
    int code = CT_ENOMEM;

    g.lives = calloc((size_t)list->program.value_count, sizeof *g.lives);
    g.change = calloc(ops * CT_MEMORY_KIND_COUNT, sizeof *g.change);
    if (g.lives != NULL && g.change != NULL) {
        code = 0;
        find_lives(&g);
        join_in_place(&g);
        find_kinds(&g);
        extend_flights(&g, plan);
        find_peak(&g, ret->memory);
    }
    free(g.lives);
    free(g.change);
    ret->in_eval = in_eval;
    ret->memory[CT_MEMORY_PARAMS] += params;
    ret->memory[CT_MEMORY_MOMENTS] += plan->state_bytes - params;
    ret->memory[CT_MEMORY_GRADS] += plan->grads_bytes - plan->state_bytes;
    for (int k = 0; k < CT_MEMORY_KIND_COUNT; k++)
        known += ret->memory[k];
    ret->memory[CT_MEMORY_UNUSED] = plan->arena_bytes - CT_MIN(known, plan->arena_bytes);
    return code;
}

/* Of the values that are given. */
static double bytes_of(const struct ct_plan *plan, const int *values, int count)
{
    double bytes = 0;

    for (int i = 0; i < count; i++)
        if (values[i] != CT_NONE)
            bytes += (double)plan->step.program.values[values[i]].bytes;
    return bytes;
}

double ct_plan_comm_bytes(const struct ct_plan *plan, const struct ct_program_op *op)
{
    double in = bytes_of(plan, op->in, CT_OP_MAX_IN), out = bytes_of(plan, op->out, CT_OP_MAX_OUT);

    return CT_MAX(in, out);
}

/* By one rank, when collectives are rings. */
static double sent(const struct ct_plan *plan, const struct ct_program_op *op)
{
    double ranks = ct_mesh_size(&plan->mesh, op->axis), bytes = ct_plan_comm_bytes(plan, op);

    if (op->kind == CT_OP_EXCHANGE || op->kind == CT_OP_PUSH)
        return bytes_of(plan, op->in, CT_OP_MAX_IN);
    if (op->kind == CT_OP_RANK_COPY)
        return 0;
    bool sums =
        op->kind == CT_OP_ALL_REDUCE || op->kind == CT_OP_RANK_SUM || op->kind == CT_OP_RANK_MAX;
    return (sums ? 2 : 1) * (ranks - 1) / ranks * bytes;
}

double ct_plan_wire_bytes(const struct ct_plan *plan)
{
    const struct ct_program *program = &plan->step.program;
    double bytes = 0;

    for (int i = 0; i < program->op_count; i++)
        if (ct_op_is_comm(program->ops[i].kind))
            bytes += sent(plan, &program->ops[i]);
    return bytes;
}

static void count_traffic(const struct ct_plan *plan, const struct ct_program_op *op,
                          struct ct_measure *ret)
{
    struct ct_axis_traffic *traffic = &ret->traffic[op->axis];

    traffic->calls++;
    traffic->bytes += ct_plan_comm_bytes(plan, op);
    traffic->sent += sent(plan, op);
}

int ct_plan_measure(const struct ct_plan *plan, struct ct_measure *ret, struct ct_error *err)
{
    const struct ct_program *program = &plan->step.program;

    *ret = (struct ct_measure){.ops = program->op_count};
    for (int i = 0; i < plan->param_count; i++)
        ret->parameters += ct_shape_elements(plan->tensors[i].shape);
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        ret->flop += ct_program_cost(program, op).flop;
        if (ct_op_is_comm(op->kind) && op->kind != CT_OP_RANK_COPY)
            count_traffic(plan, op, ret);
    }
    int code = measure_memory(plan, ret);
    return code == 0 ? 0 : ct_error_set(err, code, "no memory to measure %d ops", ret->ops);
}
