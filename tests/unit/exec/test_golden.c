/* E18: logits, loss, every gradient and ten losses of four optimizers equal PyTorch's within 1e-5
 * (tests/golden/make_{mlp,gpt,cnn,resnet}.py say what the files hold); in bf16 within its rounding
 * (make_gpt_bf16.py). */
#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(golden, .timeout = 30);

enum { STEPS = 10, MAX_TENSORS = 80 };

struct golden_tensor {
    char name[64];
    int64_t count;
    double *values;
};

struct golden_case {
    char name[64];
    struct ct_model_spec spec;
    int64_t hidden[8];
    struct ct_layer_spec layers[8];
    int64_t rows, inputs, outputs; /* samples of a batch; numbers and labels of a sample */
    double clip, adamw_lr;
    struct golden_tensor tensors[MAX_TENSORS];
    int tensor_count;
};

/* ---- reading the file ----------------------------------------------------------------------- */

static int64_t integer(char **at)
{
    char *word = strtok_r(NULL, " ", at);

    cr_assert_not_null(word);
    return strtoll(word, NULL, 10);
}

static void expect(char **at, const char *word)
{
    cr_assert_str_eq(strtok_r(NULL, " ", at), word);
}

static int64_t named(char **at, const char *word)
{
    expect(at, word);
    return integer(at);
}

static const char *word_of(char **at, const char *word)
{
    expect(at, word);
    return strtok_r(NULL, " ", at);
}

static void read_gpt(struct golden_case *c, char **at)
{
    struct ct_gpt_spec *gpt = &c->spec.gpt;

    c->spec = (struct ct_model_spec){.type = CT_MODEL_GPT, .dtype = CT_F32};
    gpt->vocabulary = named(at, "vocabulary");
    gpt->context = named(at, "context");
    gpt->sequence = named(at, "sequence");
    gpt->layers = named(at, "layers");
    gpt->heads = named(at, "heads");
    gpt->width = named(at, "width");
    gpt->inner = named(at, "inner");
    gpt->positions = (enum ct_positions)ct_positions_find(word_of(at, "positions"));
    gpt->norm = (enum ct_norm)ct_norm_find(word_of(at, "norm"));
    gpt->mlp = (enum ct_mlp)ct_mlp_find(word_of(at, "mlp"));
    gpt->untied = named(at, "untied") != 0;
    gpt->unbiased = named(at, "unbiased") != 0;
    c->inputs = c->outputs = gpt->sequence;
    c->adamw_lr = 0.001;
}

static void read_layers(struct golden_case *c, char **at)
{
    struct ct_layers_spec *list = &c->spec.layers;

    c->spec = (struct ct_model_spec){.type = CT_MODEL_LAYERS, .dtype = CT_F32};
    list->channels = named(at, "channels");
    list->height = named(at, "height");
    list->width = named(at, "width");
    list->count = (int)named(at, "count");
    list->layers = c->layers;
    CT_ASSERT((size_t)list->count <= CT_COUNT(c->layers));
    for (int i = 0; i < list->count; i++) {
        struct ct_layer_spec *layer = &c->layers[i];

        layer->kind = (enum ct_layer_kind)ct_layer_find(strtok_r(NULL, " ", at));
        layer->out = named(at, "out");
        layer->kernel = named(at, "kernel");
        layer->stride = named(at, "stride");
        layer->pad = named(at, "pad");
        layer->act = ct_activation_find(word_of(at, "act")); /* "none" is none */
    }
    c->inputs = list->channels * list->height * list->width;
    c->outputs = 1;
    c->adamw_lr = 0.003;
}

/* The network of make_resnet.py. */
static const struct ct_layer_spec first_body[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
    {.kind = CT_LAYER_RELU},
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
};
static const struct ct_layer_spec second_body[] = {
    {.kind = CT_LAYER_CONV2D,
     .out = 6,
     .kernel = 3,
     .stride = 2,
     .pad = 1,
     .unbiased = true,
     .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .eps = 1e-3},
    {.kind = CT_LAYER_RELU},
    {.kind = CT_LAYER_CONV2D, .out = 6, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .momentum = 0.3},
};
static const struct ct_layer_spec second_shortcut[] = {
    {.kind = CT_LAYER_CONV2D, .out = 6, .kernel = 1, .stride = 2, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
};
static const struct ct_layer_spec resnet[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM},
    {.kind = CT_LAYER_RELU},
    {.kind = CT_LAYER_RESIDUAL, .body = {first_body, CT_COUNT(first_body)}, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_RESIDUAL,
     .body = {second_body, CT_COUNT(second_body)},
     .shortcut = {second_shortcut, CT_COUNT(second_shortcut)},
     .act = CT_ACT_RELU},
    {.kind = CT_LAYER_AVGPOOL, .kernel = 4},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 5, .act = -1},
};
_Static_assert((int)CT_LAYER_NO_ACT == -1, "as written above");

static void set_resnet(struct golden_case *c)
{
    c->spec = (struct ct_model_spec){.type = CT_MODEL_LAYERS, .dtype = CT_F32};
    c->spec.layers = (struct ct_layers_spec){
        .channels = 2, .height = 8, .width = 8, .layers = resnet, .count = CT_COUNT(resnet)};
    c->inputs = 2 * 8 * 8;
    c->outputs = 1;
    c->adamw_lr = 0.003;
}

static void read_mlp(struct golden_case *c, char **at)
{
    expect(at, "input");
    c->spec = (struct ct_model_spec){.input = integer(at), .hidden = c->hidden, .dtype = CT_F32};
    expect(at, "hidden");
    c->spec.hidden_count = (int)integer(at);
    for (int i = 0; i < c->spec.hidden_count; i++)
        c->hidden[i] = integer(at);
    expect(at, "classes");
    c->spec.classes = integer(at);
    expect(at, "activation");
    c->spec.activation = (enum ct_activation)ct_activation_find(strtok_r(NULL, " ", at));
    expect(at, "loss");
    c->spec.loss = (enum ct_loss)ct_loss_find(strtok_r(NULL, " ", at));
    c->inputs = c->spec.input;
    c->outputs = 1;
    c->adamw_lr = 0.01;
}

static void read_case(struct golden_case *c, const char *kind, char **at)
{
    strcpy(c->name, strtok_r(NULL, " ", at));
    if (strcmp(kind, "gpt") == 0)
        read_gpt(c, at);
    else if (strcmp(kind, "layers") == 0)
        read_layers(c, at);
    else if (strcmp(kind, "resnet") == 0)
        set_resnet(c);
    else
        read_mlp(c, at);
    c->rows = named(at, "rows");
    expect(at, "clip");
    c->clip = strtod(strtok_r(NULL, " ", at), NULL);
    c->tensor_count = 0;
}

static void read_tensor(struct golden_case *c, const char *name, char **at)
{
    struct golden_tensor *t = &c->tensors[c->tensor_count++];

    CT_ASSERT(c->tensor_count <= MAX_TENSORS);
    strcpy(t->name, name);
    t->count = integer(at);
    t->values = malloc((size_t)t->count * sizeof *t->values);
    cr_assert_not_null(t->values);
    for (int64_t i = 0; i < t->count; i++)
        t->values[i] = strtod(strtok_r(NULL, " ", at), NULL);
}

static void free_case(struct golden_case *c)
{
    for (int i = 0; i < c->tensor_count; i++)
        free(c->tensors[i].values);
    c->tensor_count = 0;
}

static bool starts_case(const char *word)
{
    return strcmp(word, "case") == 0 || strcmp(word, "gpt") == 0 || strcmp(word, "layers") == 0 ||
           strcmp(word, "resnet") == 0;
}

/* Call `check` for each case of the file; returns their number. */
static int each_case(const char *path, void (*check)(const struct golden_case *c))
{
    struct ct_buf buf;
    struct ct_error err = {0};
    struct golden_case c = {0};
    char *line_at = NULL;
    int cases = 0;

    ct_buf_init(&buf, 0);
    cr_assert_eq(ct_fs_read(path, 1 << 20, &buf, &err), 0, "%s", err.text);
    for (char *line = strtok_r(buf.data, "\n", &line_at); line != NULL;
         line = strtok_r(NULL, "\n", &line_at)) {
        char *at = NULL, *word = strtok_r(line, " ", &at);
        if (word[0] == '#')
            continue;
        if (!starts_case(word)) {
            read_tensor(&c, word, &at);
            continue;
        }
        if (cases++ > 0)
            check(&c);
        free_case(&c);
        read_case(&c, word, &at);
    }
    check(&c);
    free_case(&c);
    ct_buf_deinit(&buf);
    return cases;
}

static const struct golden_tensor *find(const struct golden_case *c, const char *name)
{
    for (int i = 0; i < c->tensor_count; i++)
        if (strcmp(c->tensors[i].name, name) == 0)
            return &c->tensors[i];
    cr_assert(false, "%s has no %s", c->name, name);
    return NULL;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* The largest difference, relative to the tensor's largest value, stays below 1e-5. */
static void assert_close(const struct golden_case *c, const char *name, const float *values)
{
    const struct golden_tensor *t = find(c, name);
    double worst = 0, largest = 0;

    for (int64_t i = 0; i < t->count; i++) {
        worst = fmax(worst, fabs(values[i] - t->values[i]));
        largest = fmax(largest, fabs(t->values[i]));
    }
    cr_assert_leq(worst, 1e-5 * largest, "%s: %s differs by %g of %g", c->name, name, worst,
                  largest);
}

static int32_t *integers(const struct golden_tensor *t)
{
    int32_t *values = malloc((size_t)t->count * sizeof *values);

    cr_assert_not_null(values);
    for (int64_t i = 0; i < t->count; i++)
        values[i] = (int32_t)t->values[i];
    return values;
}

static float *floats(const struct golden_tensor *t)
{
    float *values = malloc((size_t)t->count * sizeof *values);

    cr_assert_not_null(values);
    for (int64_t i = 0; i < t->count; i++)
        values[i] = (float)t->values[i];
    return values;
}

static void load_params(struct rig *rig, const struct golden_case *c)
{
    for (int i = 0; i < rig->plan.param_count; i++) {
        const struct golden_tensor *t = find(c, rig->plan.tensors[i].name);
        float *values = floats(t);
        cr_assert_eq((size_t)t->count * sizeof(float), rig->plan.tensors[i].bytes);
        ct_exec_write(rig->exec, i, values);
        free(values);
    }
}

static int64_t valid_labels(const int32_t *labels, int64_t count)
{
    int64_t valid = 0;

    for (int64_t i = 0; i < count; i++)
        valid += labels[i] >= 0;
    return valid;
}

/* The sums of gradients over the first batch, without any update behind them. */
static void check_first_batch(struct rig *rig, const struct golden_case *c)
{
    float values[2048];

    for (int i = 0; i < rig->plan.param_count; i++) {
        char name[96];
        cr_assert_leq(rig->plan.tensors[i].bytes, sizeof values);
        ct_exec_read_grad(rig->exec, i, values);
        snprintf(name, sizeof name, "grad.%s", rig->plan.tensors[i].name);
        assert_close(c, name, values);
    }
}

static void check_eval(struct rig *rig, const struct golden_case *c, const void *x,
                       const int32_t *labels)
{
    float logits[2048], loss;
    struct ct_exec_eval args = {.x = x, .labels = labels, .logits = logits};
    struct ct_exec_sums sums;

    cr_assert_leq((size_t)find(c, "logits")->count * sizeof(float), sizeof logits);
    cr_assert_eq(ct_exec_eval(rig->exec, &args, &sums, NULL), 0);
    assert_close(c, "logits", logits);
    loss = (float)(sums.loss / (double)valid_labels(labels, c->rows * c->outputs));
    assert_close(c, "loss", &loss);
}

/* The running statistics of batch norms. */
static void check_buffers(struct rig *rig, const struct golden_case *c)
{
    float values[64];

    for (int i = rig->plan.param_count; i < rig->plan.param_count + rig->plan.buffer_count; i++) {
        cr_assert_leq(rig->plan.tensors[i].bytes, sizeof values);
        ct_exec_read(rig->exec, i, values);
        assert_close(c, rig->plan.tensors[i].name, values);
    }
}

/* Ten steps; micro-batches of `rows / accumulation` must give the same. */
static void check_optimizer(const struct golden_case *c, const struct ct_optim_spec *optim,
                            double lr, const char *losses_name)
{
    struct run run = run_default();
    struct rig rig;
    float losses[STEPS], norms[STEPS];
    int32_t *labels = integers(find(c, "labels"));
    const struct golden_tensor *inputs = find(c, "x");
    char *x = c->spec.type == CT_MODEL_GPT ? (char *)integers(inputs) : (char *)floats(inputs);

    run.spec = c->spec;
    run.options.accumulation = 1;
    run.options.micro_rows = c->rows;
    run.options.optim = *optim;
    rig_init(&rig, &run, NULL);
    load_params(&rig, c);
    check_eval(&rig, c, x, labels);
    for (int step = 0; step < STEPS; step++) {
        struct ct_exec_step args = {.x = x + (size_t)(step * c->rows * c->inputs) * 4,
                                    .labels = labels + step * c->rows * c->outputs,
                                    .lr = lr,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;
        args.valid_count = valid_labels(args.labels, c->rows * c->outputs);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
        if (step == 0)
            check_first_batch(&rig, c);
        losses[step] = (float)result.loss;
        norms[step] = (float)result.grad_norm;
    }
    assert_close(c, losses_name, losses);
    if (strcmp(losses_name, "losses.sgd") == 0) {
        assert_close(c, "norms.sgd", norms);
        check_buffers(&rig, c);
    }
    rig_deinit(&rig);
    free(x);
    free(labels);
}

static void check_case(const struct golden_case *c)
{
    struct ct_optim_spec sgd = {
        .type = CT_OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-3, .clip = c->clip};
    struct ct_optim_spec adamw = {.type = CT_OPTIM_ADAMW,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .clip = c->clip};

    struct ct_optim_spec nesterov = {.type = CT_OPTIM_SGD,
                                     .momentum = 0.8,
                                     .nesterov = true,
                                     .weight_decay = 1e-2,
                                     .clip = c->clip};
    struct ct_optim_spec lion = {
        .type = CT_OPTIM_LION, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .clip = c->clip};

    check_optimizer(c, &sgd, 0.1, "losses.sgd");
    check_optimizer(c, &nesterov, 0.05, "losses.nesterov");
    check_optimizer(c, &lion, c->adamw_lr / 4, "losses.lion");
    check_optimizer(c, &adamw, c->adamw_lr, "losses.adamw");
    if (c->clip > 0)
        cr_assert_gt(find(c, "norms.sgd")->values[0], c->clip, "the case does not clip");
}

Test(golden, mlps_give_the_logits_losses_and_gradients_of_torch)
{
    cr_assert_eq(each_case("tests/golden/mlp.txt", check_case), 6);
}

/* Both round every product to bf16, in other orders: gradients differ by 2 % of their length, as
 * they do from those of f32, losses by 0.02 (E17). */
static void check_bf16(const struct golden_case *c)
{
    struct run run = run_default();
    struct rig rig;
    int32_t *labels = integers(find(c, "labels")), *x = integers(find(c, "x"));
    double part[2] = {0, 0};
    float values[2048];

    run.spec = c->spec;
    run.options.accumulation = 1;
    run.options.micro_rows = c->rows;
    run.options.compute = CT_BF16;
    run.options.optim = (struct ct_optim_spec){
        .type = CT_OPTIM_SGD, .momentum = 0.9, .weight_decay = 1e-3, .clip = c->clip};
    rig_init(&rig, &run, NULL);
    load_params(&rig, c);
    for (int step = 0; step < STEPS; step++) {
        struct ct_exec_step args = {.x = x + step * c->rows * c->inputs,
                                    .labels = labels + step * c->rows * c->outputs,
                                    .lr = 0.1,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;
        args.valid_count = valid_labels(args.labels, c->rows * c->outputs);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
        cr_assert_leq(fabs(result.loss - find(c, "losses.sgd")->values[step]), 0.02,
                      "%s: loss %d is %g", c->name, step, result.loss);
        for (int i = 0; i < rig.plan.param_count && step == 0; i++) {
            char name[96];
            snprintf(name, sizeof name, "grad.%s", rig.plan.tensors[i].name);
            const struct golden_tensor *t = find(c, name);
            ct_exec_read_grad(rig.exec, i, values);
            for (int64_t k = 0; k < t->count; k++) {
                part[0] += (values[k] - t->values[k]) * (values[k] - t->values[k]);
                part[1] += t->values[k] * t->values[k];
            }
        }
    }
    cr_assert_leq(sqrt(part[0] / part[1]), 2e-2, "%s: %g", c->name, sqrt(part[0] / part[1]));
    rig_deinit(&rig);
    free(x);
    free(labels);
}

Test(golden, gpts_in_bf16_give_the_losses_and_gradients_of_torch)
{
    cr_assert_eq(each_case("tests/golden/gpt_bf16.txt", check_bf16), 2);
}

Test(golden, cnns_give_the_logits_losses_and_gradients_of_torch)
{
    cr_assert_eq(each_case("tests/golden/cnn.txt", check_case), 2);
}

Test(golden, gpts_give_the_logits_losses_and_gradients_of_torch)
{
    cr_assert_eq(each_case("tests/golden/gpt.txt", check_case), 3);
}

Test(golden, residual_networks_with_batch_norm_give_what_torch_gives)
{
    cr_assert_eq(each_case("tests/golden/resnet.txt", check_case), 1);
}
