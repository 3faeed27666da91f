/* See estimate.h. */
#include "collectives/planner/estimate.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>

/* Blocks and micro-batches of the short plans. The first block and the last differ from those
 * between them, and so do micro-batches. */
enum {
    FEW_BLOCKS = 4,
    MORE_BLOCKS = 6,
    FEW_MICROS = 2,
    MORE_MICROS = 3,
    TREE = 8,
    HIGHER_TREE = 16
};

/* Ops of a block and micro-batch, at the most: forward, backward, recomputed. */
enum { BLOCK_OPS = 64 };

double ct_estimate_memory(const struct ct_estimate *estimate)
{
    double sum = 0;

    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        sum += estimate->memory[kind];
    return sum;
}

/* ---- a plan that is there ------------------------------------------------------------------- */

/* Ranks between two neighbours of an axis. */
static int stride_of(const struct ct_plan *plan, enum ct_axis axis)
{
    int first = ct_mesh_member(&plan->mesh, axis, 0, 0);

    return ct_mesh_size(&plan->mesh, axis) > 1 ? ct_mesh_member(&plan->mesh, axis, 0, 1) - first
                                               : 1;
}

static enum ct_cost_call call_of(int kind)
{
    switch (kind) {
    case CT_OP_EXCHANGE:
    case CT_OP_PUSH:
        return CT_CALL_COST_SEND;
    case CT_OP_ALL_GATHER:
    case CT_OP_SCATTER:
    case CT_OP_BROADCAST:
        return CT_CALL_COST_ALL_GATHER;
    case CT_OP_REDUCE_SCATTER:
    case CT_OP_REDUCE:
        return CT_CALL_COST_REDUCE_SCATTER;
    default:
        return CT_CALL_COST_ALL_REDUCE;
    }
}

static double comm_s(const struct ct_machine *machine, const struct ct_plan *plan,
                     const struct ct_program_op *op)
{
    double bytes = ct_plan_comm_bytes(plan, op);
    int stride = stride_of(plan, op->axis), ranks = ct_mesh_size(&plan->mesh, op->axis);

    if (op->kind == CT_OP_RANK_COPY)
        return 0;
    if (machine->costs != NULL)
        return ct_machine_call_s(machine, call_of(op->kind), ranks, stride, bytes);
    if (op->kind == CT_OP_EXCHANGE || op->kind == CT_OP_PUSH)
        return ct_machine_send_s(machine, stride, bytes);
    double once = ct_machine_gather_s(machine, ranks, stride, bytes);
    return op->kind == CT_OP_ALL_REDUCE ? 2 * once : once;
}

static double op_s(const struct ct_machine *machine, const struct ct_plan *plan, int i,
                   double touched)
{
    const struct ct_program *program = &plan->step.program;
    const struct ct_program_op *op = &program->ops[i];
    bool half = op->dtype == CT_BF16 || op->dtype == CT_F16;

    if (ct_op_is_comm(op->kind))
        return comm_s(machine, plan, op);
    if (machine->costs != NULL) {
        struct ct_cost_shape shape = ct_cost_shape(program, op, touched);
        int threads = ct_costs_threads(machine->costs, machine->per_node);
        return ct_costs_op_s(machine->costs, op->kind, half, threads, &shape) *
               ct_costs_slowdown(machine->costs, machine->per_node);
    }
    struct ct_cost cost = ct_program_cost(program, op);
    return ct_machine_op_s(machine, cost.flop, cost.bytes,
                           half ? machine->device.bf16_flops : machine->device.f32_flops);
}

/* Whether the threads of both queues have processors of their own: a device is one. */
static bool is_parallel(const struct ct_machine *machine)
{
    return machine->costs == NULL || 2 * machine->per_node <= machine->costs->value[CT_COST_cores];
}

/* A worker's loop around a step: the next samples, progress, the record; what digits_mlp takes
 * beyond its ops (scripts/bench/plans --predicted), AMD EPYC, 2026-11-27. */
static const double LOOP_S = 12e-6;

/* What a step takes beside its ops. Its samples are written by who reads the data and copied in:
 * each is read and written twice. */
static double beside_s(const struct ct_costs *costs, const struct ct_plan *plan)
{
    int x = plan->step.io.x;
    double bytes = x != CT_NONE ? (double)plan->step.program.values[x].bytes : 0;

    return LOOP_S + costs->value[CT_COST_step] + 4 * bytes / costs->value[CT_COST_stream];
}

/* Run the list on paper; a step of the ranks of a node touches so many bytes. Queues that share a
 * processor take turns, and each wait of one for the other wakes a thread. */
static int run(const struct ct_machine *machine, const struct ct_plan *plan, double touched,
               struct ct_estimate *ret)
{
    int count = plan->step.program.op_count, done[CT_QUEUE_COUNT] = {0};
    double now[CT_QUEUE_COUNT] = {0}, sum_s = 0;
    double wake_s = machine->costs != NULL ? machine->costs->value[CT_COST_wake] : 0;
    double *ended = calloc((size_t)count * CT_QUEUE_COUNT, sizeof *ended);

    if (ended == NULL)
        return CT_ENOMEM;
    for (int i = 0; i < count; i++) {
        const struct ct_plan_slot *slot = &plan->step.slot[i];
        int queue = slot->queue;
        double takes = op_s(machine, plan, i, touched);
        for (int other = 0; other < CT_QUEUE_COUNT; other++)
            if (slot->wait[other] > 0)
                now[queue] =
                    fmax(now[queue], ended[other * count + slot->wait[other] - 1] + wake_s);
        now[queue] += takes;
        sum_s += takes;
        ended[queue * count + done[queue]++] = now[queue];
        *(ct_op_is_comm(plan->step.program.ops[i].kind) ? &ret->comm_s : &ret->compute_s) += takes;
    }
    free(ended);
    for (int queue = 0; queue < CT_QUEUE_COUNT; queue++)
        ret->step_s = fmax(ret->step_s, now[queue]);
    if (!is_parallel(machine))
        ret->step_s = fmax(ret->step_s, sum_s);
    if (machine->costs != NULL)
        ret->step_s += beside_s(machine->costs, plan);
    return 0;
}

/* Of a finished plan, of the stage that it is for. */
static int estimate_plan(const struct ct_machine *machine, const struct ct_plan *plan,
                         struct ct_estimate *ret, struct ct_error *err)
{
    struct ct_measure measure;
    int code = ct_plan_measure(plan, &measure, err);

    if (code != 0)
        return code;
    *ret = (struct ct_estimate){.parameters = (double)measure.parameters,
                                .flop = measure.flop,
                                .ops = measure.ops,
                                .built = 1};
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT; kind++)
        ret->memory[kind] = (double)measure.memory[kind];
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++) {
        ret->comm[axis].calls = (double)measure.traffic[axis].calls;
        ret->comm[axis].bytes = measure.traffic[axis].bytes;
        ret->comm[axis].sent = measure.traffic[axis].sent;
    }
    code = run(machine, plan, ct_estimate_memory(ret) * machine->per_node, ret);
    return code == 0 ? 0 : ct_error_set(err, code, "no memory to time %d ops", measure.ops);
}

/* ---- plans that are too long ---------------------------------------------------------------- */

/* A model's number of blocks, which is what makes it long; 1 where blocks do not repeat. */
static int64_t blocks_of(const struct ct_project *project)
{
    return project->spec.type == CT_MODEL_GPT ? project->spec.gpt.layers : 1;
}

static int build_rank(const struct ct_project *project, const struct ct_layout *layout, int rank,
                      struct ct_model_spec *spec, int micros, struct ct_estimate *ret,
                      struct ct_error *err)
{
    struct ct_plan_options options = ct_project_options(project, layout, rank);
    struct ct_plan plan;

    options.accumulation = micros;
    int code = ct_plan_build(&plan, spec, &options, (uint64_t)project->cfg->seed, err);
    if (code == 0)
        code = estimate_plan(&project->machine, &plan, ret, err);
    ct_plan_deinit(&plan);
    return code;
}

/* Of two stages the larger memory and the longer time. */
static void join_stages(struct ct_estimate *one, const struct ct_estimate *other)
{
    struct ct_estimate slow = one->step_s >= other->step_s ? *one : *other;
    double parameters = one->parameters;

    if (ct_estimate_memory(other) > ct_estimate_memory(one))
        *one = *other;
    one->parameters = parameters;
    one->compute_s = slow.compute_s;
    one->comm_s = slow.comm_s;
    one->step_s = slow.step_s;
}

/* The first and the last stage, which have the embedding and the head, and those beside them, which
 * stand for all others: of these the earlier keep more micro-batches. */
static int build(const struct ct_project *project, const struct ct_layout *layout, int64_t blocks,
                 int micros, struct ct_estimate *ret, struct ct_error *err)
{
    int stages = layout->stages, each = project->world / stages;
    const int looked_at[] = {1, stages - 2, stages - 1};
    struct ct_model_spec spec = project->spec;
    struct ct_estimate other;

    if (spec.type == CT_MODEL_GPT)
        spec.gpt.layers = blocks;
    int code = build_rank(project, layout, 0, &spec, micros, ret, err);
    for (int i = 0, seen = 0; i < (int)CT_COUNT(looked_at) && code == 0; i++) {
        if (looked_at[i] <= seen || looked_at[i] >= stages)
            continue;
        seen = looked_at[i];
        code = build_rank(project, layout, seen * each, &spec, micros, &other, err);
        if (code == 0)
            join_stages(ret, &other);
    }
    return code;
}

/* What `few` and `more` at x0 and x1 say of x. */
static double along(double few, double more, double x0, double x1, double x)
{
    return few + (more - few) * (x - x0) / (x1 - x0);
}

static struct ct_estimate extend(const struct ct_estimate *few, const struct ct_estimate *more,
                                 double x0, double x1, double x)
{
    enum { FIGURES = sizeof(struct ct_estimate) / sizeof(double) };
    const double *a = (const double *)few, *b = (const double *)more;
    struct ct_estimate result = *few;
    double *to = (double *)&result;

    _Static_assert(sizeof result == FIGURES * sizeof(double), "numbers only");
    for (int i = 0; i < FIGURES; i++)
        to[i] = fmax(along(a[i], b[i], x0, x1, x), 0);
    /* Gaps do not grow with what lies around them. */
    result.memory[CT_MEMORY_UNUSED] =
        fmax(few->memory[CT_MEMORY_UNUSED], more->memory[CT_MEMORY_UNUSED]);
    result.built = 0;
    return result;
}

/* All blocks, so many micro-batches. */
static int over_blocks(const struct ct_project *project, const struct ct_layout *layout, int micros,
                       int most_ops, struct ct_estimate *ret, struct ct_error *err)
{
    int64_t blocks = blocks_of(project), stages = layout->stages;
    int64_t at[2] = {stages > 1 ? 2 * stages : FEW_BLOCKS, stages > 1 ? 3 * stages : MORE_BLOCKS};
    struct ct_estimate few, more;

    if (blocks <= at[1] || blocks / stages * micros * BLOCK_OPS <= most_ops)
        return build(project, layout, blocks, micros, ret, err);
    int code = build(project, layout, at[0], micros, &few, err);
    if (code == 0)
        code = build(project, layout, at[1], micros, &more, err);
    if (code == 0)
        *ret = extend(&few, &more, (double)at[0], (double)at[1], (double)blocks);
    return code;
}

static int over_micros(const struct ct_project *project, const struct ct_layout *layout, int micros,
                       int most_ops, struct ct_estimate *ret, struct ct_error *err)
{
    bool tree = project->options.reduce == CT_PLAN_INVARIANT;
    int few_at = tree ? TREE : CT_MAX((int)FEW_MICROS, layout->stages);
    int more_at = tree ? 2 * TREE : few_at + 1;
    struct ct_estimate few, more;

    if (micros <= more_at || blocks_of(project) / layout->stages * micros * BLOCK_OPS <= most_ops)
        return over_blocks(project, layout, micros, most_ops, ret, err);
    int code = over_blocks(project, layout, few_at, most_ops, &few, err);
    if (code == 0)
        code = over_blocks(project, layout, more_at, most_ops, &more, err);
    if (code != 0)
        return code;
    *ret = extend(&few, &more, few_at, more_at, micros);
    /* A tree holds a leaf a level, not one a micro-batch. */
    struct ct_estimate levels =
        extend(&few, &more, log2(few_at), log2(more_at), ceil(log2(micros)));
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT && tree; kind++)
        ret->memory[kind] = levels.memory[kind];
    return 0;
}

int ct_estimate(const struct ct_project *project, const struct ct_layout *layout, int most_ops,
                struct ct_estimate *ret, struct ct_error *err)
{
    int micros = ct_project_options(project, layout, 0).accumulation, waits = layout->stages - 1;
    int code = over_micros(project, layout, micros, most_ops, ret, err);

    if (code != 0)
        return code;
    ret->bubble = (double)waits / (micros + waits);
    ret->step_s /= 1 - ret->bubble;
    return 0;
}
