/* See calibrate.h: the reference models, and the times of their ops.
 *
 *     reference -> model -> plan of one rank -> executor with a trace -> a point an op and shape */
#include "collectives/planner/calibrate/calibrate.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "collectives/exec/exec.h"
#include "collectives/plan/measure.h"
#include "graph/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_STEPS = 60,
    LEAST_STEPS = 6,
    WARM_UP = 2,
    MOST_LAYERS = 64,
    CLASSES = 10,
    FEATURES = 64
};

static const double LONG_S = 30e-6; /* the thread's time is read in 0.3 us */

static const struct ct_reference references[] = {
#define PERCEPTRON(count, type, from, to, extra) \
    {.name = "perceptron",                       \
     .rows = (count),                            \
     .compute = CT_##type,                       \
     .least = (from),                            \
     .most = (to),                               \
     .modern = (extra)},
#define GPT(count, type, blocks, head, columns, tokens, words, new) \
    {.name = "gpt",                                                 \
     .rows = (count),                                               \
     .compute = CT_##type,                                          \
     .layers = (blocks),                                            \
     .heads = (head),                                               \
     .width = (columns),                                            \
     .sequence = (tokens),                                          \
     .vocabulary = (words),                                         \
     .modern = (new)},
#define IMAGES(count, side, from, to, norm) \
    {.name = "images",                      \
     .rows = (count),                       \
     .compute = CT_F32,                     \
     .pixels = (side),                      \
     .least = (from),                       \
     .most = (to),                          \
     .modern = (norm)},
#include "collectives/planner/calibrate/references.def"
};

int ct_reference_count(void)
{
    return CT_COUNT(references);
}

const struct ct_reference *ct_reference_at(int number)
{
    CT_ASSERT(number >= 0 && number < ct_reference_count());
    return &references[number];
}

/* ---- models --------------------------------------------------------------------------------- */

/* Widths so that each pair of different or equal ones follows each other once: of a, b, c
 * "a a b a c b b c c". Returns how many. */
static int tour(int64_t least, int64_t most, int64_t widths[MOST_LAYERS])
{
    int count = 0;

    for (int64_t i = least; i <= most; i *= 4) {
        widths[count++] = i;
        for (int64_t j = i * 4; j <= most; j *= 4) {
            CT_ASSERT(count + 2 <= MOST_LAYERS);
            widths[count++] = i;
            widths[count++] = j;
        }
    }
    return count;
}

struct workshop {
    int64_t widths[MOST_LAYERS];
    struct ct_layer_spec layers[3 * MOST_LAYERS];
};

static void add_layer(struct ct_layers_spec *spec, struct workshop *shop,
                      struct ct_layer_spec layer)
{
    shop->layers[spec->count++] = layer;
    spec->layers = shop->layers;
}

/* Convolutions over all pairs of channels, now and then a pool; two linear layers. */
static struct ct_layers_spec images(const struct ct_reference *r, struct workshop *shop)
{
    struct ct_layers_spec spec = {.channels = 1, .height = r->pixels, .width = r->pixels};
    int count = tour(r->least, r->most, shop->widths);
    int act = r->modern ? CT_LAYER_NO_ACT : CT_ACT_RELU;

    for (int i = 0; i < count; i++) {
        add_layer(&spec, shop,
                  (struct ct_layer_spec){.kind = CT_LAYER_CONV2D,
                                         .out = shop->widths[i],
                                         .kernel = 3,
                                         .stride = 1,
                                         .pad = 1,
                                         .act = act});
        if (r->modern)
            add_layer(&spec, shop, (struct ct_layer_spec){.kind = CT_LAYER_BATCH_NORM, .act = act});
        if (r->modern)
            add_layer(&spec, shop, (struct ct_layer_spec){.kind = CT_LAYER_RELU, .act = act});
        if (i % 3 == 1)
            add_layer(
                &spec, shop,
                (struct ct_layer_spec){.kind = i % 2 == 0 ? CT_LAYER_AVGPOOL : CT_LAYER_MAXPOOL,
                                       .kernel = 2,
                                       .stride = i < 4 ? 2 : 1,
                                       .act = CT_LAYER_NO_ACT});
    }
    add_layer(&spec, shop,
              (struct ct_layer_spec){.kind = CT_LAYER_FLATTEN, .act = CT_LAYER_NO_ACT});
    add_layer(
        &spec, shop,
        (struct ct_layer_spec){.kind = CT_LAYER_DROPOUT, .rate = 0.25, .act = CT_LAYER_NO_ACT});
    add_layer(&spec, shop,
              (struct ct_layer_spec){.kind = CT_LAYER_LINEAR, .out = 96, .act = CT_ACT_RELU});
    add_layer(
        &spec, shop,
        (struct ct_layer_spec){.kind = CT_LAYER_LINEAR, .out = CLASSES, .act = CT_LAYER_NO_ACT});
    return spec;
}

static struct ct_model_spec spec_of(const struct ct_reference *r, struct workshop *shop)
{
    struct ct_model_spec spec = {.dtype = CT_F32, .input = FEATURES, .classes = CLASSES};

    if (r->width > 0) {
        spec.type = CT_MODEL_GPT;
        spec.gpt = (struct ct_gpt_spec){.vocabulary = r->vocabulary,
                                        .context = r->sequence,
                                        .layers = r->layers,
                                        .heads = r->heads,
                                        .width = r->width,
                                        .positions =
                                            r->modern ? CT_POSITIONS_ROTARY : CT_POSITIONS_LEARNED,
                                        .norm = r->modern ? CT_NORM_RMS : CT_NORM_LAYER,
                                        .mlp = r->modern ? CT_MLP_SWIGLU : CT_MLP_GELU,
                                        .dropout = r->modern ? 0.1 : 0};
    } else if (r->pixels > 0) {
        spec.type = CT_MODEL_LAYERS;
        spec.layers = images(r, shop);
    } else {
        spec.type = CT_MODEL_MLP;
        spec.hidden_count = tour(r->least, r->most, shop->widths);
        spec.hidden = shop->widths;
        spec.activation = r->modern ? CT_ACT_GELU : CT_ACT_RELU;
    }
    return spec;
}

/* ---- running -------------------------------------------------------------------------------- */

struct bench {
    struct ct_group *group; /* of those that measure at once; NULL: alone */
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_exec *exec;
    void *x;
    int32_t *labels;
    int64_t label_count;
    struct ct_clock clock; /* the trace's; `of_thread`: it reads the time that this thread ran */
    bool of_thread;
    int threads;    /* of the device */
    double touched; /* bytes of the memory of all ranks that measure at once */
    int steps;
    float *times; /* nanoseconds, [ops][MOST_STEPS]: steps of even number by the clock, of odd ones
                     by the thread's time */
    double whole[MOST_STEPS]; /* of a step: seconds that the thread ran */
};

static const struct ct_value *value_of(const struct bench *b, int value)
{
    return &b->plan.step.program.values[value];
}

/* Numbers between 0 and 1, tokens and labels below their bounds. */
static int make_input(struct bench *b, const struct ct_model_spec *spec)
{
    const struct ct_value *x = value_of(b, b->plan.step.io.x);
    int64_t classes = spec->type == CT_MODEL_GPT ? spec->gpt.vocabulary : CLASSES;
    struct ct_rng rng;

    b->label_count = ct_shape_elements(value_of(b, b->plan.step.io.labels)->shape);
    b->x = malloc(x->bytes);
    b->labels = malloc((size_t)b->label_count * sizeof *b->labels);
    b->times = malloc((size_t)b->plan.step.program.op_count * MOST_STEPS * sizeof *b->times);
    if (b->x == NULL || b->labels == NULL || b->times == NULL)
        return CT_ENOMEM;
    ct_rng_init(&rng, 1);
    for (int64_t i = 0; i < ct_shape_elements(x->shape); i++) {
        uint64_t below = ct_rng_below(&rng, spec->type == CT_MODEL_GPT ? (uint64_t)classes : 1024);
        if (spec->type == CT_MODEL_GPT)
            ((int32_t *)b->x)[i] = (int32_t)below;
        else
            ((float *)b->x)[i] = (float)below / 1024;
    }
    for (int64_t i = 0; i < b->label_count; i++)
        b->labels[i] = (int32_t)ct_rng_below(&rng, (uint64_t)classes);
    return 0;
}

static double now_s(void)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9;
}

static uint64_t thread_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t trace_ns(void *context)
{
    const struct bench *b = context;

    return b->of_thread ? thread_ns() : ct_clock_mono_ns(&ct_clock_system);
}

static int open_bench(struct bench *b, const struct ct_reference *r, int threads,
                      struct ct_error *err)
{
    struct workshop *shop = calloc(1, sizeof *shop);
    struct ct_exec_options how = {.trace = true};
    const struct ct_cpu_options how_many = {.threads = threads};

    const struct ct_plan_options options = {
        .world = 1,
        .micro_rows = r->rows,
        .accumulation = 1,
        .bucket_bytes = 1 << 20,
        .first_bucket_bytes = 1 << 20,
        .compute = r->compute,
        .optim = {.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1}};

    if (shop == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    struct ct_model_spec spec = spec_of(r, shop);
    struct ct_measure measure;
    int code = ct_plan_build(&b->plan, &spec, &options, 1, err);
    if (code == 0)
        code = ct_plan_measure(&b->plan, &measure, err);
    for (int kind = 0; kind < CT_MEMORY_KIND_COUNT && code == 0; kind++)
        b->touched +=
            (double)measure.memory[kind] * (b->group != NULL ? ct_group_size(b->group) : 1);
    if (code == 0)
        code = ct_device_cpu_new(&how_many, &b->device, err);
    b->threads = threads;
    b->clock = (struct ct_clock){.mono_ns = trace_ns, .context = b};
    how.device = b->device;
    how.clock = &b->clock;
    if (code == 0)
        code = ct_exec_new(&b->exec, &b->plan, &how, err);
    if (code == 0 && make_input(b, &spec) != 0)
        code = ct_error_set(err, CT_ENOMEM, "out of memory for a step's samples");
    free(shop);
    return code;
}

static void close_bench(struct bench *b)
{
    free(b->x);
    free(b->labels);
    free(b->times);
    ct_exec_free(b->exec);
    ct_device_free(b->device);
    ct_plan_deinit(&b->plan);
}

static int step(struct bench *b, uint64_t update, double *ret_s, double *ret_thread_s,
                struct ct_error *err)
{
    const struct ct_exec_step args = {.x = b->x,
                                      .labels = b->labels,
                                      .valid_count = b->label_count,
                                      .lr = 1e-4,
                                      .update = update};
    struct ct_exec_result result;
    uint64_t from_ns = thread_ns();
    double from_s = now_s();
    int code = ct_exec_step(b->exec, &args, &result, err);

    *ret_s = now_s() - from_s;
    *ret_thread_s = (double)(thread_ns() - from_ns) * 1e-9;
    return code;
}

/* Does any rank go on? All begin the next step together. */
static int agree(struct bench *b, double *goes_on, struct ct_error *err)
{
    const struct ct_options patient = {.timeout_ms = CT_CALIBRATE_WAIT_MS};
    int code = b->group == NULL ? 0
                                : ct_all_reduce(b->group, ct_inplace(goes_on, 1, CT_F64),
                                                CT_REDUCE_MAX, &patient);

    return code == 0 ? 0 : ct_error_set(err, code, "a rank is away: %s", ct_strerror(code));
}

static int run(struct bench *b, double budget_s, struct ct_error *err)
{
    const struct ct_exec_event *trace = ct_exec_trace(b->exec);
    int count = b->plan.step.program.op_count, code = 0;
    double ignored_s, step_s, end_s, goes_on = 1;

    for (int i = 0; i < WARM_UP && code == 0; i++)
        code = step(b, (uint64_t)i + 1, &ignored_s, &ignored_s, err);
    end_s = now_s() + budget_s;
    for (; code == 0 && b->steps < MOST_STEPS; b->steps++) {
        goes_on = b->steps < LEAST_STEPS || now_s() < end_s;
        code = agree(b, &goes_on, err);
        if (code != 0 || goes_on == 0)
            break;
        b->of_thread = b->steps % 2 != 0;
        code = step(b, (uint64_t)b->steps + WARM_UP + 1, &step_s, &b->whole[b->steps], err);
        for (int i = 0; i < count && code == 0; i++)
            b->times[i * MOST_STEPS + b->steps] = (float)(trace[i].end_ns - trace[i].start_ns);
    }
    return code;
}

/* ---- what follows --------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sort them. */
static double *in_order(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values;
}

/* The point of `costs` for this shape, a new one with no time yet, or NULL: no room. Sizes that
 * differ by less than an eighth are one shape, in steps that touch about as much. */
static struct ct_cost_op *point_of(struct ct_costs *costs, const struct ct_program_op *op,
                                   int threads, const struct ct_cost_shape *shape)
{
    bool half = ct_dtype_is_narrow(op->dtype);

    for (int i = 0; i < costs->op_count; i++) {
        struct ct_cost_op *one = &costs->ops[i];
        double apart = 0.25 * fabs(log2(one->shape.touched / shape->touched));
        for (int k = 0; k < CT_COSTS_SIZES; k++)
            apart += fabs(log2(one->shape.size[k] / shape->size[k]));
        if (one->kind == op->kind && one->half == half && one->threads == threads && apart < 0.17)
            return one;
    }
    if (costs->op_count == CT_COSTS_OPS)
        return NULL;
    costs->ops[costs->op_count] = (struct ct_cost_op){op->kind, half, threads, *shape, 0};
    return &costs->ops[costs->op_count++];
}

/* A shape's time is the mean of those that its ops took, by the logarithm of their rates: some find
 * their operands in a cache, some do not. `seen` counts them. */
static void note(struct ct_cost_op *point, double amount, double seconds, int *seen)
{
    double here_s = seconds * point->shape.amount / amount;

    point->seconds =
        *seen == 0 ? here_s : exp((log(point->seconds) * *seen + log(here_s)) / (*seen + 1));
    (*seen)++;
}

/* An op's time: by the clock when it is short, for the thread's time takes long to read; when it is
 * long the thread's, for meanwhile others may have had the processor. */
static double time_of(const struct bench *b, const float *times, double clock_s)
{
    float by_clock[MOST_STEPS / 2] = {0}, of_thread[MOST_STEPS / 2] = {0};
    int half = b->steps / 2;

    for (int i = 0; i < half; i++) {
        by_clock[i] = times[2 * i];
        of_thread[i] = times[2 * i + 1];
    }
    qsort(by_clock, (size_t)half, sizeof *by_clock, by_time);
    qsort(of_thread, (size_t)half, sizeof *of_thread, by_time);
    double clocked_s = (double)by_clock[half / 2] * 1e-9 - clock_s;
    double thread_s = (double)of_thread[half / 2] * 1e-9;
    return fmax(clocked_s > LONG_S && b->threads == 1 ? fmin(clocked_s, thread_s) : clocked_s,
                1e-9);
}

static void note_ops(struct bench *b, struct ct_costs *costs, int seen[CT_COSTS_OPS])
{
    const struct ct_program *program = &b->plan.step.program;

    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        float *times = &b->times[i * MOST_STEPS];
        if (ct_op_is_comm(op->kind))
            continue;
        struct ct_cost_shape shape = ct_cost_shape(program, op, b->touched);
        double seconds = time_of(b, times, costs->value[CT_COST_clock]);
        struct ct_cost_op *point = point_of(costs, op, b->threads, &shape);
        if (point != NULL)
            note(point, shape.amount, seconds, &seen[point - costs->ops]);
    }
}

int ct_reference_measure(const struct ct_reference *reference, int threads, double budget_s,
                         struct ct_group *group, struct ct_costs *costs, double *ret_step_s,
                         struct ct_error *err)
{
    struct bench *b = calloc(1, sizeof *b);
    int *seen = calloc(CT_COSTS_OPS, sizeof *seen);

    if (b == NULL || seen == NULL) {
        free(b);
        free(seen);
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    }
    b->group = group;
    int code = open_bench(b, reference, threads, err);
    if (code == 0)
        code = run(b, budget_s, err);
    if (code == 0 && costs != NULL) {
        for (int i = 0; i < costs->op_count; i++)
            seen[i] = 1;
        note_ops(b, costs, seen);
    }
    if (code == 0)
        *ret_step_s = in_order(b->whole, b->steps)[b->steps / 2];
    close_bench(b);
    free(b);
    free(seen);
    return code;
}

int ct_reference_beside(double clock_s, double *ret_s, struct ct_error *err)
{
    struct bench *b = calloc(1, sizeof *b);
    double beside[MOST_STEPS], traced_s, step_s = 0, ignored_s;

    if (b == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory");
    int code = open_bench(b, &references[0], 1, err);
    for (uint64_t i = 0; i < MOST_STEPS && code == 0; i++) {
        const struct ct_exec_event *trace = ct_exec_trace(b->exec);
        double ops_s = 0;
        ct_exec_set_tracing(b->exec, true);
        code = step(b, 2 * i + 1, &traced_s, &ignored_s, err);
        for (int k = 0; k < b->plan.step.program.op_count && code == 0; k++)
            ops_s += (double)(trace[k].end_ns - trace[k].start_ns) * 1e-9 - clock_s;
        ct_exec_set_tracing(b->exec, false);
        if (code == 0)
            code = step(b, 2 * i + 2, &step_s, &ignored_s, err);
        beside[i] = step_s - ops_s;
    }
    if (code == 0)
        *ret_s = fmax(in_order(beside, MOST_STEPS)[MOST_STEPS / 2], 1e-7);
    close_bench(b);
    free(b);
    return code;
}
