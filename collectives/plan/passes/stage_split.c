/* See stage_split.h: units, and which of them make a part. assign.c has the backward pass. */
#include "collectives/plan/passes/stage_split.h"

#include "base/assert.h"
#include "collectives/plan/passes/passes.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- units ---------------------------------------------------------------------------------- */

/* Where the forward pass can be cut: behind op `op`, where `value` goes on. */
struct border {
    int op, value;
    double cost; /* of the unit in front of it */
};

struct borders {
    struct border *at;
    int count;
    double rest; /* cost of the last unit */
};

/* The only temporary that forward ops behind op `i` read of those before; CT_NONE when there are
 * more. `writer` and `last` are by value. */
static int only_one_across(const struct ct_model *model, const int *writer, const int *last, int i)
{
    int across = CT_NONE;

    for (int v = 0; v < model->program.value_count; v++) {
        if (writer[v] == CT_NONE || writer[v] > i || last[v] <= i)
            continue;
        if (across != CT_NONE)
            return CT_NONE;
        across = v;
    }
    return across;
}

static void find_uses(const struct ct_model *model, int *writer, int *last)
{
    for (int v = 0; v < model->program.value_count; v++)
        writer[v] = last[v] = CT_NONE;
    for (int i = 0; i < model->forward_count; i++) {
        const struct ct_program_op *op = &model->program.ops[i];
        for (int k = 0; k < CT_OP_MAX_IN; k++)
            if (op->in[k] != CT_NONE)
                last[op->in[k]] = i;
        for (int k = 0; k < CT_OP_MAX_OUT; k++)
            if (op->out[k] != CT_NONE && writer[op->out[k]] == CT_NONE)
                writer[op->out[k]] = i;
    }
}

/* The name of a parameter that `op` reads, or NULL. */
static const char *parameter_of(const struct ct_program *program, const struct ct_program_op *op)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (op->in[k] != CT_NONE && program->values[op->in[k]].kind == CT_VALUE_PARAM)
            return program->values[op->in[k]].name;
    return NULL;
}

static void walk(const struct ct_model *model, const int *writer, const int *last,
                 struct borders *borders)
{
    const struct ct_program *program = &model->program;
    struct border next = {.op = CT_NONE}; /* the last one seen */
    const char *unit = NULL;
    double cost = 0; /* since the last one that was taken */

    for (int i = 0; i < model->forward_count; i++) {
        const char *name = parameter_of(program, &program->ops[i]);
        bool opens = name != NULL && unit != NULL && !ct_plan_same_unit(unit, name);
        if (opens && next.op != CT_NONE) {
            borders->at[borders->count++] = next;
            cost -= next.cost;
            next.op = CT_NONE;
        }
        unit = name != NULL ? name : unit;
        cost += ct_program_cost(program, &program->ops[i]).flop;
        int value = only_one_across(model, writer, last, i);
        if (value != CT_NONE && unit != NULL)
            next = (struct border){i, value, cost};
    }
    borders->rest = cost;
}

/* All borders of the model; the caller frees borders->at. */
static int find_borders(const struct ct_model *model, struct borders *borders)
{
    size_t values = (size_t)model->program.value_count;
    int *writer = malloc(values * sizeof *writer), *last = malloc(values * sizeof *last);

    *borders = (struct borders){.at = calloc((size_t)model->forward_count, sizeof *borders->at)};
    bool enough = writer != NULL && last != NULL && borders->at != NULL;
    if (enough) {
        find_uses(model, writer, last);
        walk(model, writer, last, borders);
    }
    free(writer);
    free(last);
    return enough ? 0 : CT_ENOMEM;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* Units into parts: sum[u] is the cost of the units in front of u. best[p * (units + 1) + u]: the
 * least that the first u units in p parts can cost; from: where the last of these parts begins. */
struct chooser {
    int units, parts;
    double *sum, *best;
    int *from;
};

/* What `parts` parts cost: the most expensive one, or, where none may cost more than `cap`, the sum
 * of squares. */
static double joined(double before, double part, double cap)
{
    if (cap == 0)
        return CT_MAX(before, part);
    return part > cap ? DBL_MAX : before + part * part;
}

static double solve(struct chooser *c, double cap)
{
    int row = c->units + 1;

    for (int i = 0; i < row * (c->parts + 1); i++)
        c->best[i] = DBL_MAX;
    c->best[0] = 0;
    for (int p = 1; p <= c->parts; p++)
        for (int u = p; u <= c->units; u++)
            for (int begin = p - 1; begin < u; begin++) {
                double before = c->best[(p - 1) * row + begin];
                double cost =
                    before == DBL_MAX ? DBL_MAX : joined(before, c->sum[u] - c->sum[begin], cap);
                if (cost >= c->best[p * row + u])
                    continue;
                c->best[p * row + u] = cost;
                c->from[p * row + u] = begin;
            }
    return c->best[c->parts * row + c->units];
}

/* The cheapest most expensive part; among those ways the most even one. */
static void choose(struct chooser *c, int *places)
{
    double most = solve(c, 0);

    (void)solve(c, most * (1 + 1e-9));
    for (int p = c->parts, u = c->units; p > 1; p--) {
        u = c->from[p * (c->units + 1) + u];
        places[p - 2] = u - 1;
    }
}

static int choose_places(const struct borders *borders, int parts, int *places)
{
    size_t units = (size_t)borders->count + 1, cells = (units + 1) * ((size_t)parts + 1);
    struct chooser c = {.units = borders->count + 1, .parts = parts};

    c.sum = calloc(units + 1, sizeof *c.sum);
    c.best = malloc(cells * sizeof *c.best);
    c.from = calloc(cells, sizeof *c.from);
    bool enough = c.sum != NULL && c.best != NULL && c.from != NULL;
    if (enough) {
        for (size_t u = 0; u < units; u++)
            c.sum[u + 1] = c.sum[u] + 1 + (u + 1 < units ? borders->at[u].cost : borders->rest);
        choose(&c, places);
    }
    free(c.sum);
    free(c.best);
    free(c.from);
    return enough ? 0 : CT_ENOMEM;
}

static int allocate(struct ct_stage_split *split, int parts, struct ct_arena *arena)
{
    size_t count = (size_t)parts;

    *split = (struct ct_stage_split){.parts = parts};
    split->places = ct_arena_array(arena, count, sizeof *split->places);
    split->borders = ct_arena_array(arena, count, sizeof *split->borders);
    split->carried = ct_arena_array(arena, count, sizeof *split->carried);
    split->carried_back = ct_arena_array(arena, count, sizeof *split->carried_back);
    return split->places != NULL && split->borders != NULL && split->carried != NULL &&
                   split->carried_back != NULL
               ? 0
               : CT_ENOMEM;
}

static void set_borders(struct ct_stage_split *split, const struct ct_model *model,
                        const struct borders *borders)
{
    split->carried[0] = CT_NONE;
    for (int c = 1; c < split->parts; c++) {
        split->borders[c - 1] = borders->at[split->places[c - 1]].op;
        split->carried[c] = borders->at[split->places[c - 1]].value;
    }
    split->borders[split->parts - 1] = model->forward_count - 1;
}

int ct_stage_split_choose(struct ct_stage_split *split, const struct ct_model *model, int parts,
                          struct ct_arena *arena, struct ct_error *err)
{
    struct borders borders;
    int code = find_borders(model, &borders);

    if (code == 0 && parts > borders.count + 1)
        code =
            ct_error_set(err, CT_ECONFIG,
                         "the pipeline wants %d parts of the model (parallel.pipeline times "
                         "parallel.chunks), which can be cut into %d at most, between its layers "
                         "or blocks",
                         parts, borders.count + 1);
    if (code == 0)
        code = allocate(split, parts, arena);
    if (code == 0)
        code = choose_places(&borders, parts, split->places);
    if (code == 0)
        set_borders(split, model, &borders);
    free(borders.at);
    return code == CT_ENOMEM ? ct_error_set(err, code, "no memory to cut a model") : code;
}

int ct_stage_split_like(struct ct_stage_split *split, const struct ct_model *model,
                        const struct ct_stage_split *like, struct ct_arena *arena,
                        struct ct_error *err)
{
    struct borders borders;
    int code = find_borders(model, &borders);

    if (code == 0)
        code = allocate(split, like->parts, arena);
    if (code == 0) {
        CT_ASSERT(like->parts == 1 || like->places[like->parts - 2] < borders.count);
        memcpy(split->places, like->places, (size_t)(like->parts - 1) * sizeof *split->places);
        set_borders(split, model, &borders);
    }
    free(borders.at);
    return code == 0 ? 0 : ct_error_set(err, code, "no memory to cut a model");
}
