/* See costs.h: what a figure that was not measured follows from. */
#include "collectives/planner/costs.h"

#include "base/assert.h"

#include <math.h>

static const double LEAST_TOUCHED = 1 << 20, MOST_TOUCHED = 1 << 26; /* bytes */

/* ---- ops ------------------------------------------------------------------------------------ */

static double elements(const struct ct_program *program, int value)
{
    return (double)ct_shape_elements(program->values[value].shape);
}

static double columns(const struct ct_program *program, int value)
{
    return (double)ct_shape_columns(program->values[value].shape);
}

/* Rows, columns and depth of the product whose result is `rows` x `width`. */
static struct ct_cost_shape product(double rows, double width, double depth)
{
    return (struct ct_cost_shape){{rows, width, depth}, 2 * rows * width * depth, 0};
}

/* The three products of a layer have the sizes of the layer: of y = x W^T. */
static struct ct_cost_shape linear(const struct ct_program *program, const struct ct_program_op *op)
{
    bool forward = op->kind == CT_OP_LINEAR || op->kind == CT_OP_LINEAR_GELU;
    bool weights = op->kind == CT_OP_LINEAR_DW;
    int y = forward ? op->out[0] : op->in[0];
    double width = columns(program, y), rows = elements(program, y) / width;

    return product(rows, width,
                   weights ? columns(program, op->in[1]) : elements(program, op->in[1]) / width);
}

/* A window of an image is a row of a product. */
static struct ct_cost_shape convolution(const struct ct_program *program,
                                        const struct ct_program_op *op)
{
    int y = op->kind == CT_OP_CONV2D ? op->out[0] : op->in[0];
    int weights = op->kind == CT_OP_CONV2D_DW ? op->out[0] : op->in[1];
    double width = columns(program, y);

    return product(elements(program, y) / width, width, elements(program, weights) / width);
}

static struct ct_cost_shape attention(const struct ct_program *program,
                                      const struct ct_program_op *op)
{
    int y = op->kind == CT_OP_ATTENTION ? op->out[0] : op->in[0];
    double width = columns(program, y);

    return (struct ct_cost_shape){
        {elements(program, y) / width, (double)op->attr.sequence, width / (double)op->attr.heads},
        ct_program_cost(program, op).flop,
        0};
}

static struct ct_cost_shape shape_of(const struct ct_program *program,
                                     const struct ct_program_op *op)
{
    switch (op->kind) {
    case CT_OP_LINEAR:
    case CT_OP_LINEAR_GELU:
    case CT_OP_LINEAR_DX:
    case CT_OP_LINEAR_DX_GELU:
    case CT_OP_LINEAR_DW:
        return linear(program, op);
    case CT_OP_CONV2D:
    case CT_OP_CONV2D_DX:
    case CT_OP_CONV2D_DW:
        return convolution(program, op);
    case CT_OP_ATTENTION:
    case CT_OP_ATTENTION_BW:
        return attention(program, op);
    default:
        break;
    }
    /* of the table it reads the rows that the tokens name */
    double bytes = op->kind == CT_OP_EMBEDDING ? 2 * (double)program->values[op->out[0]].bytes
                                               : ct_program_cost(program, op).bytes;
    struct ct_operands operands;
    ct_op_operands((enum ct_op_kind)op->kind, &operands);
    bool has_rows = operands.in_count > 0 && operands.in[0].dims == 2 && op->in[0] != CT_NONE;
    return (struct ct_cost_shape){{bytes, has_rows ? columns(program, op->in[0]) : 1, 1}, bytes, 0};
}

struct ct_cost_shape ct_cost_shape(const struct ct_program *program, const struct ct_program_op *op,
                                   double touched)
{
    struct ct_cost_shape shape = shape_of(program, op);

    shape.touched = touched;
    return shape;
}

/* What a step touches, in powers of two: below and above there is no difference any more, as the
 * caches of a processor hold all of it, or next to nothing. */
static double touched2(const struct ct_cost_shape *shape)
{
    return log2(fmin(fmax(shape->touched, LEAST_TOUCHED), MOST_TOUCHED));
}

/* The square of the distance of two shapes, in powers of two; rows, or bytes, count half, what
 * a step touches more than all else. */
static double distance2(const struct ct_cost_shape *a, const struct ct_cost_shape *b)
{
    double reuse = (touched2(a) - touched2(b)) * 1.5, sum = reuse * reuse;

    for (int i = 0; i < CT_COSTS_SIZES; i++) {
        double apart = log2(a->size[i] / b->size[i]) * (i == 0 ? 0.5 : 1);
        sum += apart * apart;
    }
    return sum;
}

int ct_costs_threads(const struct ct_costs *costs, int workers)
{
    double share = costs->value[CT_COST_cores] / workers;

    return share < 1 ? 1 : (int)fmin(share, CT_COSTS_THREADS);
}

/* No op is faster than the fastest of its kind with less to do. */
double ct_costs_op_s(const struct ct_costs *costs, int kind, bool half, int threads,
                     const struct ct_cost_shape *shape)
{
    enum { SAME = 100 }; /* of shapes that differ by less than a hundredth */
    double weights = 0, sum = 0, least = INFINITY;

    for (int i = 0; i < costs->op_count; i++) {
        const struct ct_cost_op *op = &costs->ops[i];
        if (op->kind != kind || op->half != half)
            continue;
        double apart = 2 * log2((double)threads / op->threads);
        double near2 = distance2(shape, &op->shape) + apart * apart + 1.0 / SAME / SAME;
        double weight = 1 / (near2 * near2 * near2);
        weights += weight;
        sum += log(op->seconds / op->shape.amount) * weight;
        if (op->threads == threads && op->shape.amount <= shape->amount)
            least = fmin(least, op->seconds);
    }
    if (weights == 0 && half)
        return ct_costs_op_s(costs, kind, false, threads, shape);
    if (weights == 0)
        return shape->amount / costs->value[CT_COST_stream];
    return fmax(shape->amount * exp(sum / weights), isinf(least) ? 0 : least);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

/* What `y0` at x0 and `y1` at x1 say of x, along a straight line in the logarithms. */
static double along(double x0, double y0, double x1, double y1, double x)
{
    if (x1 <= x0 || y0 <= 0 || y1 <= 0)
        return y0;
    return exp(log(y0) + (log(y1) - log(y0)) * log(x / x0) / log(x1 / x0));
}

double ct_costs_slowdown(const struct ct_costs *costs, int ranks)
{
    int cores = (int)costs->value[CT_COST_cores];
    struct ct_cost_crowd below = {cores, 1}, above = {0};

    if (ranks <= cores)
        return 1;
    for (int i = 0; i < costs->crowd_count; i++) {
        const struct ct_cost_crowd *crowd = &costs->crowds[i];
        if (crowd->ranks <= ranks && crowd->ranks > below.ranks)
            below = *crowd;
        if (crowd->ranks >= ranks && (above.ranks == 0 || crowd->ranks < above.ranks))
            above = *crowd;
    }
    if (above.ranks > 0)
        return along(below.ranks, below.slowdown, above.ranks, above.slowdown, ranks);
    /* more ranks than were measured share the processors */
    return below.slowdown * ranks / below.ranks;
}

/* Along the sizes that were measured with so many ranks. */
static double call_with(const struct ct_costs *costs, const struct ct_cost_between *like,
                        double bytes)
{
    const struct ct_cost_between *below = NULL, *above = NULL;

    for (int i = 0; i < costs->call_count; i++) {
        const struct ct_cost_between *one = &costs->calls[i];
        if (one->across != like->across || one->call != like->call || one->ranks != like->ranks)
            continue;
        if (one->bytes <= bytes && (below == NULL || one->bytes > below->bytes))
            below = one;
        if (one->bytes >= bytes && (above == NULL || one->bytes < above->bytes))
            above = one;
    }
    if (below == NULL)
        return above != NULL ? above->seconds : 0;
    if (above == NULL)
        return below->seconds * bytes / below->bytes;
    return along(below->bytes, below->seconds, above->bytes, above->seconds, bytes);
}

static double rounds_of(int ranks)
{
    return ceil(log2(fmax(ranks, 2)));
}

/* More ranks than were measured, as the algorithms for many have it (collectives/schedule): a round
 * more each time that the ranks double, and a rank sends (N - 1) / N of the data. */
static double extrapolate(const struct ct_costs *costs, const struct ct_cost_between *like,
                          double bytes, int ranks)
{
    double all_s = call_with(costs, like, bytes), start_s = call_with(costs, like, 1);
    double share = ((ranks - 1.0) / ranks) / ((like->ranks - 1.0) / like->ranks);

    start_s = fmin(start_s, all_s);
    return start_s * rounds_of(ranks) / rounds_of(like->ranks) + (all_s - start_s) * share;
}

double ct_costs_call_s(const struct ct_costs *costs, bool across, enum ct_cost_call call, int ranks,
                       double bytes)
{
    struct ct_cost_between below = {.across = across, .call = call}, above = below;

    for (int i = 0; i < costs->call_count; i++) {
        const struct ct_cost_between *one = &costs->calls[i];
        if (one->across != across || one->call != call)
            continue;
        if (one->ranks <= ranks)
            below.ranks = CT_MAX(below.ranks, one->ranks);
        if (one->ranks >= ranks && (above.ranks == 0 || one->ranks < above.ranks))
            above.ranks = one->ranks;
    }
    if (ranks < 2 || (below.ranks == 0 && above.ranks == 0))
        return 0;
    if (below.ranks == 0)
        return call_with(costs, &above, bytes);
    if (above.ranks == 0)
        return extrapolate(costs, &below, bytes, ranks);
    double fewer_s = call_with(costs, &below, bytes);
    return along(below.ranks, fewer_s, above.ranks, call_with(costs, &above, bytes), ranks);
}
