/* See ps_update.h. */
#include "collectives/ps/ps_update.h"

#include "base/assert.h"
#include "graph/rule.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = 64, RANGES_MAX = 4 };

/* The part's share of a run of the plan. */
struct run {
    struct ct_plan_optimizer optimizer;
    double lr_factor;
    size_t at, bytes; /* within the part */
};

struct ct_ps_update {
    struct ct_device *device;
    struct ct_ps_part part;
    enum ct_dtype dtype;
    struct ct_optim_spec optim;
    int ranges;
    void *memory;
    struct run *runs;
    int run_count;
    double lr, update, loss, sumsq, clip, scale; /* operands of ops */
};

struct ct_ps_part ct_ps_part(size_t flat_bytes, int index, int count)
{
    size_t units = flat_bytes / UNIT, first = units * (size_t)index / (size_t)count;
    size_t end = units * ((size_t)index + 1) / (size_t)count;

    CT_ASSERT(flat_bytes % UNIT == 0 && index >= 0 && index < count);
    return (struct ct_ps_part){first * UNIT, (end - first) * UNIT};
}

/* ---- the state ------------------------------------------------------------------------------- */

static int cut_runs(struct ct_ps_update *u, const struct ct_plan *plan, struct ct_error *err)
{
    size_t begin = u->part.at, end = begin + u->part.bytes;
    struct run *runs = calloc((size_t)plan->run_count, sizeof *runs);

    if (runs == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the runs of a parameter server");
    u->runs = runs;
    for (int i = 0; i < plan->run_count; i++) {
        const struct ct_plan_run *run = &plan->runs[i];
        size_t low = CT_MAX(run->offset_bytes, begin);
        size_t high = CT_MIN(run->offset_bytes + run->bytes, end);
        if (low >= high)
            continue;
        runs[u->run_count++] = (struct run){.optimizer = ct_plan_optimizer(plan, run),
                                            .lr_factor = run->lr_factor,
                                            .at = low - begin,
                                            .bytes = high - low};
    }
    return 0;
}

static int check_device(const struct ct_ps_update *u, struct ct_error *err)
{
    if (!u->device->table->on_host)
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "a parameter server computes in the host's memory, and device '%s' "
                            "does not",
                            u->device->table->name);
    for (int i = 0; i < u->run_count; i++) {
        enum ct_op_kind kind = (enum ct_op_kind)u->runs[i].optimizer.op.kind;
        if (!ct_device_has(u->device, kind, u->dtype))
            return ct_error_set(err, CT_EUNSUPPORTED, "the device '%s' has no %s for %s",
                                u->device->table->name, ct_op_info(kind)->name,
                                ct_dtype_name(u->dtype));
    }
    return 0;
}

int ct_ps_update_new(struct ct_ps_update **ret_update, const struct ct_plan *plan,
                     struct ct_ps_part part, struct ct_device *device, struct ct_error *err)
{
    struct ct_ps_update *u = calloc(1, sizeof *u);

    CT_ASSERT(plan->shards == 1 && plan->moment_count < RANGES_MAX);
    if (u == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a parameter server");
    u->device = device;
    u->part = part;
    u->dtype = plan->tensors[0].dtype;
    u->optim = plan->options.optim;
    u->ranges = 1 + plan->moment_count;
    int code = cut_runs(u, plan, err);
    if (code == 0)
        code = check_device(u, err);
    if (code == 0 && part.bytes > 0)
        code = ct_device_alloc(device, part.bytes * (size_t)u->ranges, &u->memory, err);
    if (code != 0) {
        ct_ps_update_free(u);
        return code;
    }
    *ret_update = u;
    return 0;
}

void ct_ps_update_free(struct ct_ps_update *update)
{
    if (update == NULL)
        return;
    ct_device_release(update->device, update->memory, update->part.bytes * (size_t)update->ranges);
    free(update->runs);
    free(update);
}

struct ct_ps_part ct_ps_update_part(const struct ct_ps_update *update)
{
    return update->part;
}

enum ct_dtype ct_ps_update_dtype(const struct ct_ps_update *update)
{
    return update->dtype;
}

int ct_ps_update_ranges(const struct ct_ps_update *update)
{
    return update->ranges;
}

char *ct_ps_update_range(struct ct_ps_update *update, int range)
{
    CT_ASSERT(range >= 0 && range < update->ranges);
    return (char *)update->memory + update->part.bytes * (size_t)range;
}

void ct_ps_update_reset(struct ct_ps_update *update)
{
    if (update->part.bytes > 0)
        memset(update->memory, 0, update->part.bytes * (size_t)update->ranges);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static struct ct_tensor scalar(double *number)
{
    return (struct ct_tensor){CT_F64, ct_shape1(1), number};
}

static struct ct_tensor flat(const struct ct_ps_update *u, void *data, size_t at, size_t bytes)
{
    int64_t count = (int64_t)(bytes / ct_dtype_size(u->dtype));

    return (struct ct_tensor){u->dtype, ct_shape1(count), (char *)data + at};
}

static void run_op(struct ct_ps_update *u, int kind, struct ct_kernel_args *args)
{
    enum ct_dtype dtype;
    int code = ct_rule_complete(kind, args, &dtype, NULL);

    CT_ASSERT(code == 0);
    ct_device_run(u->device, (enum ct_op_kind)kind, dtype, args);
}

double ct_ps_update_sumsq(struct ct_ps_update *update, void *gradient)
{
    struct ct_kernel_args args = {.in = {flat(update, gradient, 0, update->part.bytes)},
                                  .out = {scalar(&update->sumsq)}};

    update->sumsq = 0;
    if (update->part.bytes > 0)
        run_op(update, CT_OP_SUMSQ, &args);
    return update->sumsq;
}

/* The scale that shortens the gradient to the limit, and is NaN when the step must not be taken. */
static void find_scale(struct ct_ps_update *u)
{
    struct ct_kernel_args clip = {.in = {scalar(&u->sumsq)}, .out = {scalar(&u->clip)}};
    struct ct_kernel_args guard = {.in = {scalar(&u->sumsq), scalar(&u->loss)},
                                   .out = {scalar(&u->scale)}};

    clip.attr.max_norm = u->optim.clip;
    if (u->optim.clip > 0) {
        run_op(u, CT_OP_CLIP_SCALE, &clip);
        guard.in[2] = scalar(&u->clip);
    }
    run_op(u, CT_OP_GUARD, &guard);
}

static void update_run(struct ct_ps_update *u, const struct run *run, void *gradient)
{
    const struct ct_plan_optimizer *o = &run->optimizer;
    double lr = u->lr * run->lr_factor;
    struct ct_kernel_args args = {.attr = o->op.attr};
    int operand = 0;

    args.in[operand++] = flat(u, gradient, run->at, run->bytes);
    args.in[operand++] = scalar(&lr);
    if (o->counts_updates)
        args.in[operand++] = scalar(&u->update);
    args.in[operand] = scalar(&u->scale);
    for (int range = 0; range <= o->moments; range++)
        args.out[range] = flat(u, ct_ps_update_range(u, range), run->at, run->bytes);
    run_op(u, o->op.kind, &args);
}

static void update_average(struct ct_ps_update *u)
{
    size_t bytes = u->part.bytes;
    struct ct_kernel_args args = {
        .in = {flat(u, ct_ps_update_range(u, 0), 0, bytes), scalar(&u->update), scalar(&u->scale)},
        .out = {flat(u, ct_ps_update_range(u, u->ranges - 1), 0, bytes)}};

    args.attr.decay = u->optim.ema;
    run_op(u, CT_OP_EMA, &args);
}

void ct_ps_update_run(struct ct_ps_update *update, void *gradient,
                      const struct ct_ps_numbers *numbers)
{
    update->lr = numbers->lr;
    update->update = numbers->update;
    update->loss = numbers->loss;
    update->sumsq = numbers->sumsq;
    if (update->part.bytes == 0)
        return;
    find_scale(update);
    for (int i = 0; i < update->run_count; i++)
        update_run(update, &update->runs[i], gradient);
    if (update->optim.ema > 0)
        update_average(update);
}
