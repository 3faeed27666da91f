/* Plans as text: see plan.h. */
#include "collectives/plan/passes.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const shard_names[] = {
    [CT_PLAN_SHARD_NONE] = "nothing",
    [CT_PLAN_SHARD_OPTIM] = "moments and reduced gradients",
    [CT_PLAN_SHARD_GRAD] = "moments, reduced gradients, parameters between steps",
    [CT_PLAN_SHARD_FULL] = "moments, reduced gradients, parameters",
};

static const char *const reduce_names[] = {
    [CT_PLAN_FAST] = "fast",
    [CT_PLAN_REPRODUCIBLE] = "reproducible",
    [CT_PLAN_INVARIANT] = "invariant",
};

/* `amount` in the largest of the units, each `factor` times the one before, that keeps it above 1.
 */
static const char *scaled(double amount, double factor, const char *const *units, char text[32])
{
    int unit = 0;

    while (amount >= factor && units[unit + 1] != NULL) {
        amount /= factor;
        unit++;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", amount, units[unit]);
    return text;
}

/* "1.50 MB"; powers of 1024, as options are given. */
static const char *bytes_text(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", NULL};

    return scaled(bytes, 1024, units, text);
}

static const char *flop_text(double flop, char text[32])
{
    static const char *const units[] = {"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", NULL};

    return scaled(flop, 1000, units, text);
}

static int64_t parameter_count(const struct ct_plan *plan)
{
    int64_t count = 0;

    for (int i = 0; i < plan->param_count; i++)
        count += ct_shape_elements(plan->tensors[i].shape);
    return count;
}

static double step_flop(const struct ct_plan *plan)
{
    const struct ct_program *program = &plan->step.program;
    double flop = 0;

    for (int i = 0; i < program->op_count; i++)
        flop += ct_program_cost(program, &program->ops[i]).flop;
    return flop;
}

static void print_buckets(const struct ct_plan *plan, struct ct_buf *buf)
{
    char text[32];

    if (plan->options.world == 1)
        return;
    for (int i = 0; i < plan->bucket_count; i++) {
        const struct ct_bucket *bucket = &plan->buckets[i];
        ct_buf_printf(
            buf, "  bucket %d: %s, %s .. %s\n", i, bytes_text((double)bucket->bytes, text),
            plan->tensors[bucket->last_param].name, plan->tensors[bucket->first_param].name);
    }
}

static void print_ops(const struct ct_plan *plan, struct ct_buf *buf)
{
    const struct ct_plan_list *list = &plan->step;
    const struct ct_program *program = &list->program;

    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        const struct ct_plan_slot *slot = &list->slot[i];
        ct_buf_printf(buf, "%5d %-8s m%-3d %-7s ", i, ct_stage_name(op->stage), op->micro,
                      slot->queue == CT_QUEUE_COMM ? "comm" : "compute");
        if (slot->wait > 0)
            ct_buf_printf(buf, "wait(%d) ", slot->wait);
        ct_program_print_op(program, i, buf);
        ct_buf_printf(buf, " @%zu\n", ct_plan_offset(list, op->out[0]));
    }
}

void ct_plan_print(const struct ct_plan *plan, bool ops, struct ct_buf *buf)
{
    const struct ct_plan_options *o = &plan->options;
    char a[32], b[32], c[32];

    ct_buf_printf(buf, "parameters   %" PRId64 " in %d tensors\n", parameter_count(plan),
                  plan->param_count);
    ct_buf_printf(buf, "batch        %d ranks x %d micro-batches x %" PRId64 " rows\n", o->world,
                  o->accumulation, o->micro_rows);
    ct_buf_printf(buf, "sharding     %s, over %d ranks, %d copies\n", shard_names[o->shard],
                  plan->shards, o->world / plan->shards);
    ct_buf_printf(buf, "memory       %s a rank: state %s, gradients %s",
                  bytes_text((double)plan->arena_bytes, a),
                  bytes_text((double)plan->state_bytes, b),
                  bytes_text((double)(plan->grads_bytes - plan->state_bytes), c));
    ct_buf_printf(buf, ", other %s of which %s live\n",
                  bytes_text((double)(plan->arena_bytes - plan->grads_bytes), a),
                  bytes_text((double)plan->step.live_bytes, b));
    ct_buf_printf(buf, "reduction    %s, %s, %d buckets, %s sent a rank and step (ring)\n",
                  reduce_names[o->reduce],
                  o->overlap && plan->bucket_count > 1 ? "beside backward" : "in line",
                  o->world > 1 ? plan->bucket_count : 0, bytes_text(ct_plan_wire_bytes(plan), a));
    print_buckets(plan, buf);
    ct_buf_printf(buf, "work         %s a rank and step\n", flop_text(step_flop(plan), a));
    ct_buf_printf(buf, "hash         %016" PRIx64 "\n", plan->hash);
    if (ops)
        print_ops(plan, buf);
}
