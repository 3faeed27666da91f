/* Training steps of a model on one rank: how long, and which ops take the time.
 *
 *     models MODEL [--threads N] [--steps N] [--rows N]
 *
 * MODEL is mlp (784-1024-1024-10, 64 rows), cnn (MNIST: two convolutions, 64 rows), gpt (4 layers,
 * width 128, 4 heads, 12 sequences of 64 characters) or a preset of GPT-2 (4 sequences of 64
 * tokens), with AdamW. The first step is not counted; a step's time is the smallest of the others.
 * Data are made up. */
#include "base/assert.h"
#include "base/rng.h"
#include "collectives/exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct ct_model_spec spec;
    int64_t rows;
    int threads, steps;
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_exec *exec;
    double kind_ns[CT_RULE_COUNT]; /* of the best step */
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
    const struct ct_plan_options options = {
        .world = 1,
        .micro_rows = b->rows,
        .accumulation = 1,
        .bucket_bytes = 25 << 20,
        .first_bucket_bytes = 1 << 20,
        .optim = {.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1}};
    int code = ct_plan_build(&b->plan, &b->spec, &options, 1, err);

    if (code == 0)
        code = ct_device_cpu_new(&(struct ct_cpu_options){.threads = b->threads}, &b->device, err);
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

static int train(struct bench *b, struct ct_error *err)
{
    uint32_t classes =
        (uint32_t)(b->spec.type == CT_MODEL_GPT ? b->spec.gpt.vocabulary : b->spec.classes);
    int32_t *labels = made_up(b, b->plan.step.io.labels, classes);
    void *x = made_up(b, b->plan.step.io.x, classes);
    int64_t count = ct_shape_elements(input(b, b->plan.step.io.labels)->shape);
    int code = 0;

    for (int step = 0; step <= b->steps && code == 0; step++) {
        struct ct_exec_step args = {.x = x,
                                    .labels = labels,
                                    .valid_count = count,
                                    .lr = 1e-4,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;

        code = ct_exec_step(b->exec, &args, &result, err);
        if (step > 0 && code == 0)
            note_step(b);
    }
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
    printf("%s: %.3f ms a step, %.1f steps/s, %.1f GFLOP/s, %d thread(s), arena %.1f MB\n", name,
           b->best_ns / 1e6, 1e9 / b->best_ns, total / b->best_ns, b->threads,
           (double)b->plan.arena_bytes / 1e6);
    for (int kind = 0; kind < CT_RULE_COUNT; kind++)
        if (b->kind_ns[kind] > 0.002 * b->best_ns)
            printf("  %-18s %9.3f ms %5.1f %% %8.1f GFLOP/s\n", ct_rule_info(kind)->name,
                   b->kind_ns[kind] / 1e6, 100 * b->kind_ns[kind] / b->best_ns,
                   flop[kind] / b->kind_ns[kind]);
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 1, .steps = 5};
    struct ct_error err = {0};
    int code = argc > 1 && choose_model(&b, argv[1]) ? 0 : 2;

    for (int i = 2; i + 1 < argc; i += 2) {
        int number = (int)strtol(argv[i + 1], NULL, 10);

        if (strcmp(argv[i], "--threads") == 0)
            b.threads = number;
        else if (strcmp(argv[i], "--steps") == 0)
            b.steps = number;
        else if (strcmp(argv[i], "--rows") == 0)
            b.rows = number;
        else
            code = 2;
    }
    if (code != 0) {
        (void)fprintf(stderr, "usage: models MODEL [--threads N] [--steps N] [--rows N]\n");
        return code;
    }
    code = start(&b, &err);
    if (code == 0)
        code = train(&b, &err);
    if (code == 0)
        report(&b, argv[1]);
    else
        (void)fprintf(stderr, "models: %s\n", err.text);
    ct_exec_free(b.exec);
    ct_device_free(b.device);
    ct_plan_deinit(&b.plan);
    return code == 0 ? 0 : 1;
}
