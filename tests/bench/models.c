/* Training steps of a model on one rank: how long, and which ops take the time.
 *
 *     models MODEL [--threads N] [--steps N] [--rows N] [--sequence N] [--vocabulary N]
 *            [--device cpu|cuda] [--precision f32|bf16|f16]
 *
 * MODEL is mlp (784-1024-1024-10, 64 rows), cnn (MNIST: two convolutions, 64 rows), gpt (4 layers,
 * width 128, 4 heads, 12 sequences of 64 characters) or a preset of GPT-2 (4 sequences of 64
 * tokens), with AdamW. The first two steps are not counted; a step's time is the smallest of
 * the others, and their median. Ops are timed in steps of their own, each op by itself. Data are
 * made up. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "base/str.h"
#include "collectives/exec/exec.h"
#include "tensor/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, TRACED = 3, MOST_STEPS = 1000 };

struct bench {
    struct ct_model_spec spec;
    int64_t rows;
    int threads, steps;
    enum ct_device_kind kind;
    enum ct_dtype precision;
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_exec *exec;
    uint64_t step_ns[MOST_STEPS];
    double kind_ns[CT_RULE_COUNT]; /* of the best traced step */
    double best_ns;
};

static const int64_t wide[] = {1024, 1024};

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 16, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2},
    {.kind = CT_LAYER_CONV2D, .out = 32, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 128, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_LINEAR, .out = 10, .act = CT_LAYER_NO_ACT},
};

static bool choose_model(struct bench *b, const char *name)
{
    struct ct_gpt_spec *gpt = &b->spec.gpt;

    b->spec.dtype = CT_F32;
    if (strcmp(name, "mlp") == 0) {
        b->spec.input = 784;
        b->spec.hidden = wide;
        b->spec.hidden_count = CT_COUNT(wide);
        b->spec.classes = 10;
        b->rows = 64;
        return true;
    }
    if (strcmp(name, "cnn") == 0) {
        b->spec.type = CT_MODEL_LAYERS;
        b->spec.layers = (struct ct_layers_spec){
            .channels = 1, .height = 28, .width = 28, .layers = cnn, .count = CT_COUNT(cnn)};
        b->spec.classes = 10;
        b->rows = 64;
        return true;
    }
    b->spec.type = CT_MODEL_GPT;
    b->rows = 4;
    gpt->sequence = 64;
    if (strcmp(name, "gpt") != 0)
        return ct_gpt_preset(name, gpt);
    b->rows = 12;
    gpt->vocabulary = 65;
    gpt->context = 64;
    gpt->layers = gpt->heads = 4;
    gpt->width = 128;
    return true;
}

static int start(struct bench *b, struct ct_error *err)
{
    struct ct_plan_options options = {
        .world = 1,
        .micro_rows = b->rows,
        .compute = b->precision,
        .accumulation = 1,
        .bucket_bytes = 25 << 20,
        .first_bucket_bytes = 1 << 20,
        .optim = {.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1}};
    const struct ct_device_request request = {.kind = b->kind, .threads = b->threads};
    struct ct_error why = {0};
    int code = ct_device_open(&request, &b->device, &why, err);

    if (code != 0)
        return code;
    options.fuses = b->device->table->fuses;
    code = ct_plan_build(&b->plan, &b->spec, &options, 1, err);
    if (code == 0)
        code = ct_exec_new(&b->exec, &b->plan,
                           &(struct ct_exec_options){.device = b->device, .trace = true}, err);
    return code;
}

static const struct ct_value *input(const struct bench *b, int value)
{
    return &b->plan.step.program.values[value];
}

/* Words that are tokens, labels, or features, as the model wants. */
static void *made_up(const struct bench *b, int value, uint32_t below)
{
    const struct ct_value *v = input(b, value);
    int64_t count = ct_shape_elements(v->shape);
    int32_t *words = calloc((size_t)count, sizeof *words);

    CT_ASSERT(words != NULL);
    for (int64_t i = 0; i < count; i++) {
        uint32_t word[4];

        ct_philox(7, (uint32_t[4]){(uint32_t)i, (uint32_t)value, 0, 0}, word);
        if (v->dtype == CT_I32)
            words[i] = (int32_t)(word[0] % below);
        else
            ((float *)words)[i] = ct_uniform_f32(word[0]);
    }
    return words;
}

static void note_step(struct bench *b)
{
    const struct ct_exec_event *trace = ct_exec_trace(b->exec);
    int count = b->plan.step.program.op_count;
    double ns = (double)(trace[count - 1].end_ns - trace[0].start_ns);

    if (b->best_ns > 0 && ns >= b->best_ns)
        return;
    b->best_ns = ns;
    memset(b->kind_ns, 0, sizeof b->kind_ns);
    for (int i = 0; i < count; i++)
        b->kind_ns[b->plan.step.program.ops[i].kind] +=
            (double)(trace[i].end_ns - trace[i].start_ns);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int train(struct bench *b, struct ct_error *err)
{
    uint32_t classes =
        (uint32_t)(b->spec.type == CT_MODEL_GPT ? b->spec.gpt.vocabulary : b->spec.classes);
    int32_t *labels = made_up(b, b->plan.step.io.labels, classes);
    void *x = made_up(b, b->plan.step.io.x, classes);
    int64_t count = ct_shape_elements(input(b, b->plan.step.io.labels)->shape);
    int code = 0;

    ct_exec_set_tracing(b->exec, false);
    for (int step = 0; step < WARM + b->steps + TRACED && code == 0; step++) {
        struct ct_exec_step args = {.x = x,
                                    .labels = labels,
                                    .valid_count = count,
                                    .lr = 1e-4,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;

        if (step == WARM + b->steps)
            ct_exec_set_tracing(b->exec, true);
        uint64_t start = ct_clock_mono_ns(&ct_clock_system);
        code = ct_exec_step(b->exec, &args, &result, err);
        if (step >= WARM + b->steps)
            note_step(b);
        else if (step >= WARM)
            b->step_ns[step - WARM] = ct_clock_mono_ns(&ct_clock_system) - start;
    }
    qsort(b->step_ns, (size_t)b->steps, sizeof *b->step_ns, compare);
    free(labels);
    free(x);
    return code;
}

static void report(const struct bench *b, const char *name)
{
    const struct ct_program *program = &b->plan.step.program;
    double flop[CT_RULE_COUNT] = {0}, total = 0;

    for (int i = 0; i < program->op_count; i++) {
        double f = ct_program_cost(program, &program->ops[i]).flop;

        flop[program->ops[i].kind] += f;
        total += f;
    }
    double best = (double)b->step_ns[0], median = (double)b->step_ns[b->steps / 2];
    double labels =
        (double)ct_shape_elements(b->plan.step.program.values[b->plan.step.io.labels].shape);

    printf(
        "%s: %.3f ms a step, median %.3f ms: %.0f labels/s, %.1f GFLOP/s; %s, %s, arena %.1f MB\n",
        name, best / 1e6, median / 1e6, labels * 1e9 / median, total / median,
        b->device->table->name, ct_dtype_name(b->precision), (double)b->plan.arena_bytes / 1e6);
    for (int kind = 0; kind < CT_RULE_COUNT; kind++)
        if (b->kind_ns[kind] > 0.002 * b->best_ns)
            printf("  %-18s %9.3f ms %5.1f %% %8.1f GFLOP/s\n", ct_rule_info(kind)->name,
                   b->kind_ns[kind] / 1e6, 100 * b->kind_ns[kind] / b->best_ns,
                   flop[kind] / b->kind_ns[kind]);
}

static bool choose(struct bench *b, const char *option, const char *word)
{
    static const char *const kinds[] = {"auto", "cpu", "cuda"};
    int64_t number = 0;

    if (strcmp(option, "--precision") == 0) {
        int dtype = ct_dtype_find(word);
        b->precision = dtype < 0 ? CT_F32 : (enum ct_dtype)dtype;
        return dtype == CT_F32 || dtype == CT_BF16 || dtype == CT_F16;
    }
    if (strcmp(option, "--device") == 0) {
        for (size_t i = 0; i < CT_COUNT(kinds); i++)
            if (strcmp(word, kinds[i]) == 0) {
                b->kind = (enum ct_device_kind)i;
                return true;
            }
        return false;
    }
    if (ct_parse_i64(word, &number) != 0 || number < 1 || number > MOST_STEPS * 100)
        return false;
    if (strcmp(option, "--threads") == 0)
        b->threads = (int)number;
    else if (strcmp(option, "--steps") == 0)
        b->steps = (int)CT_MIN(number, MOST_STEPS);
    else if (strcmp(option, "--rows") == 0)
        b->rows = number;
    else if (strcmp(option, "--sequence") == 0)
        b->spec.gpt.sequence = number;
    else if (strcmp(option, "--vocabulary") == 0)
        b->spec.gpt.vocabulary = number;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    struct ct_error err = {0};

    if (b == NULL)
        return 1;
    b->threads = 1;
    b->steps = 5;
    b->kind = CT_DEVICE_CPU;
    b->precision = CT_F32;
    int code = argc > 1 && argc % 2 == 0 && choose_model(b, argv[1]) ? 0 : 2;
    for (int i = 2; i + 1 < argc && code == 0; i += 2)
        code = choose(b, argv[i], argv[i + 1]) ? 0 : 2;
    if (code != 0) {
        (void)fprintf(stderr, "usage: models MODEL [--threads N] [--steps N] [--rows N] "
                              "[--sequence N] [--vocabulary N] [--device cpu|cuda] "
                              "[--precision f32|bf16|f16]\n");
        free(b);
        return code;
    }
    code = start(b, &err);
    if (code == 0)
        code = train(b, &err);
    if (code == 0)
        report(b, argv[1]);
    else
        (void)fprintf(stderr, "models: %s\n", err.text);
    ct_exec_free(b->exec);
    ct_device_free(b->device);
    ct_plan_deinit(&b->plan);
    free(b);
    return code == 0 ? 0 : 1;
}
