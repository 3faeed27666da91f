/* Plans as text: see plan.h. */
#include "collectives/plan/access.h"

#include "base/number/scale.h"
#include "collectives/plan/measure.h"

#include <inttypes.h>

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

static const char *const queue_names[] = {
    [CT_QUEUE_COMPUTE] = "compute", [CT_QUEUE_COMM] = "comm", [CT_QUEUE_MODEL] = "model"};

static void print_buckets(const struct ct_plan *plan, struct ct_buf *buf)
{
    char text[CT_SCALE_SIZE];

    if (plan->options.world == 1)
        return;
    for (int i = 0; i < plan->bucket_count; i++) {
        const struct ct_bucket *bucket = &plan->buckets[i];
        ct_buf_printf(
            buf, "  bucket %d: %s, %s .. %s\n", i, ct_scale_bytes((double)bucket->bytes, text),
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
        int at = op->out[0] != CT_NONE ? op->out[0] : op->in[0];
        ct_buf_printf(buf, "%5d %-8s m%-3d %-7s ", i, ct_stage_name(op->stage), op->micro,
                      queue_names[slot->queue]);
        for (int other = 0; other < CT_QUEUE_COUNT; other++)
            if (slot->wait[other] > 0)
                ct_buf_printf(buf, "wait(%s %d) ", queue_names[other], slot->wait[other]);
        ct_program_print_op(program, i, buf);
        ct_buf_printf(buf, " @%zu\n", ct_plan_offset(list, at));
    }
}

static void print_memory(const struct ct_plan *plan, const struct ct_measure *measure,
                         struct ct_buf *buf)
{
    char text[CT_SCALE_SIZE];

    ct_buf_printf(buf, "memory       %s a rank%s\n",
                  ct_scale_bytes((double)plan->arena_bytes, text),
                  measure->in_eval ? ", when evaluating" : "");
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        if (measure->memory[kind] > 0)
            ct_buf_printf(buf, "  %-20s %s\n", ct_memory_kind_name((enum ct_memory_kind)kind),
                          ct_scale_bytes((double)measure->memory[kind], text));
    if (plan->host_bytes > 0)
        ct_buf_printf(buf, "host memory  %s a rank\n",
                      ct_scale_bytes((double)plan->host_bytes, text));
}

static void print_traffic(const struct ct_plan *plan, const struct ct_measure *measure,
                          struct ct_buf *buf)
{
    const struct ct_plan_options *o = &plan->options;
    char a[CT_SCALE_SIZE], b[CT_SCALE_SIZE];

    ct_buf_printf(buf, "reduction    %s, %s, %d buckets, %s sent a rank and step (ring)\n",
                  reduce_names[o->reduce],
                  o->overlap && plan->bucket_count > 1 ? "beside backward" : "in line",
                  o->world > 1 ? plan->bucket_count : 0,
                  ct_scale_bytes(ct_plan_wire_bytes(plan), a));
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++)
        if (measure->traffic[axis].calls > 0)
            ct_buf_printf(
                buf, "  %-20s %d ranks, %" PRId64 " calls, %s, %s sent\n",
                ct_axis_name((enum ct_axis)axis), ct_mesh_size(&plan->mesh, (enum ct_axis)axis),
                measure->traffic[axis].calls, ct_scale_bytes(measure->traffic[axis].bytes, a),
                ct_scale_bytes(measure->traffic[axis].sent, b));
}

int ct_plan_print(const struct ct_plan *plan, bool ops, struct ct_buf *buf, struct ct_error *err)
{
    const struct ct_plan_options *o = &plan->options;
    struct ct_measure measure;
    char text[CT_SCALE_SIZE];
    int code = ct_plan_measure(plan, &measure, err);

    if (code != 0)
        return code;
    ct_buf_printf(buf, "parameters   %" PRId64 " in %d tensors\n", measure.parameters,
                  plan->param_count);
    ct_buf_printf(buf, "batch        %d ranks x %d micro-batches x %" PRId64 " rows\n",
                  ct_mesh_size(&plan->mesh, CT_AXIS_DATA), o->accumulation, o->micro_rows);
    ct_buf_printf(buf, "mesh         %d stages x %d replicas x %d shards x %d slices\n",
                  plan->mesh.stages, plan->mesh.replicas, plan->mesh.shards, plan->mesh.tensor);
    ct_buf_printf(buf, "sharding     %s, over %d ranks, %d copies\n", shard_names[o->shard],
                  plan->shards, plan->mesh.replicas);
    print_memory(plan, &measure, buf);
    print_traffic(plan, &measure, buf);
    print_buckets(plan, buf);
    ct_buf_printf(buf, "work         %s a rank and step, in %d ops\n",
                  ct_scale_unit(measure.flop, "FLOP", text), measure.ops);
    ct_buf_printf(buf, "hash         %016" PRIx64 "\n", plan->hash);
    if (ops)
        print_ops(plan, buf);
    return 0;
}
