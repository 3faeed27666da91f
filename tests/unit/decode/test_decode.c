/* A text read token by token: the bits of the trainer's evaluation, and Hugging Face's logits. */
#include "decode/decode.h"

#include "base/assert.h"
#include "base/fs.h"
#include "collectives/exec/exec.h"
#include "train/checkpoint/weights.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(decode, .timeout = 60);

enum { MAX_PARAMS = 64 };

static struct ct_device *device_new(void)
{
    struct ct_device *device = NULL;

    cr_assert_eq(ct_device_cpu_new(&(struct ct_cpu_options){.threads = 1}, &device, NULL), 0);
    return device;
}

static struct ct_decoder *decoder_new(const struct ct_model_spec *spec, struct ct_device *device)
{
    struct ct_decoder *decoder = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_decoder_new(&decoder, spec, device, &err), 0, "%s", err.text);
    return decoder;
}

/* Read `count` tokens in stretches of `step`; the logits behind each stretch, at its last token's
 * row of `logits`. */
static void read_in(struct ct_decoder *decoder, const int32_t *ids, size_t count, size_t step,
                    float *logits)
{
    size_t vocabulary = (size_t)ct_decoder_vocabulary(decoder);

    ct_decoder_rewind(decoder);
    for (size_t at = 0; at < count;) {
        size_t some = CT_MIN(step, count - at);
        const void *last = ct_decoder_read(decoder, ids + at, some);

        at += some;
        cr_assert_eq(ct_decoder_place(decoder), (int64_t)at);
        memcpy(logits + (at - 1) * vocabulary, last, vocabulary * sizeof *logits);
    }
}

/* ---- against the trainer --------------------------------------------------------------------- */

static const struct ct_gpt_spec variants[] = {
    {.vocabulary = 37, .context = 75, .layers = 2, .heads = 2, .width = 12},
    {.vocabulary = 19,
     .context = 70,
     .layers = 2,
     .heads = 3,
     .width = 18,
     .inner = 20,
     .positions = CT_POSITIONS_ROTARY,
     .norm = CT_NORM_RMS,
     .mlp = CT_MLP_SWIGLU,
     .untied = true,
     .unbiased = true},
    {.vocabulary = 7, .context = 3, .layers = 1, .heads = 1, .width = 4, .dropout = 0.5},
};

/* The executor's logits for a whole sequence, and its weights in the decoder. */
static void evaluate(const struct ct_model_spec *spec, struct ct_device *device,
                     struct ct_decoder *decoder, const int32_t *ids, float *logits)
{
    const struct ct_plan_options options = {.world = 1,
                                            .micro_rows = 1,
                                            .accumulation = 1,
                                            .bucket_bytes = 1 << 20,
                                            .first_bucket_bytes = 1 << 20};
    const struct ct_exec_options exec_options = {.device = device};
    int32_t *labels = calloc((size_t)spec->gpt.context, sizeof *labels);
    const struct ct_exec_eval eval = {.x = ids, .labels = labels, .logits = logits};
    struct ct_exec_sums sums;
    struct ct_exec *exec;
    struct ct_plan plan;
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(&plan, spec, &options, 3, &err), 0, "%s", err.text);
    cr_assert_eq(ct_exec_new(&exec, &plan, &exec_options, &err), 0, "%s", err.text);
    cr_assert_eq(ct_exec_eval(exec, &eval, &sums, &err), 0, "%s", err.text);
    cr_assert_eq(ct_decoder_params(decoder), plan.param_count);
    for (int i = 0; i < plan.param_count; i++) {
        const char *name;
        struct ct_tensor tensor = ct_decoder_param(decoder, i, &name);

        cr_assert_str_eq(name, plan.tensors[i].name);
        cr_assert_eq(ct_tensor_bytes(&tensor), plan.tensors[i].bytes);
        ct_exec_read(exec, i, tensor.data);
    }
    ct_exec_free(exec);
    ct_plan_deinit(&plan);
    free(labels);
}

static void compare(const struct ct_gpt_spec *gpt)
{
    static const size_t steps[] = {1, 16, 5, 64, 40};
    const struct ct_model_spec spec = {.type = CT_MODEL_GPT, .dtype = CT_F32, .gpt = *gpt};
    size_t count = (size_t)gpt->context, vocabulary = (size_t)gpt->vocabulary;
    struct ct_device *device = device_new();
    struct ct_decoder *decoder = decoder_new(&spec, device);
    float *whole = calloc(count * vocabulary, sizeof *whole);
    float *parts = calloc(count * vocabulary, sizeof *parts);
    int32_t *ids = calloc(count, sizeof *ids);

    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)(i * i % vocabulary);
    cr_assert_eq(ct_decoder_vocabulary(decoder), gpt->vocabulary);
    cr_assert_eq(ct_decoder_context(decoder), gpt->context);
    evaluate(&spec, device, decoder, ids, whole);
    for (size_t i = 0; i < CT_COUNT(steps); i++) {
        read_in(decoder, ids, count, steps[i], parts);
        for (size_t end = CT_MIN(steps[i], count); end <= count;
             end = end == count ? count + 1 : CT_MIN(end + steps[i], count))
            cr_assert_eq(memcmp(parts + (end - 1) * vocabulary, whole + (end - 1) * vocabulary,
                                vocabulary * sizeof *whole),
                         0, "token %zu, by %zu", end - 1, steps[i]);
    }
    free(whole);
    free(parts);
    free(ids);
    ct_decoder_free(decoder);
    ct_device_free(device);
}

Test(decode, token_by_token_gives_the_bits_of_the_trainers_evaluation)
{
    for (size_t i = 0; i < CT_COUNT(variants); i++)
        compare(&variants[i]);
}

/* ---- against the hub ------------------------------------------------------------------------- */

/* Fill the decoder's weights from a file. */
static void load(struct ct_decoder *decoder, const char *path)
{
    struct ct_st_tensor tensors[MAX_PARAMS];
    struct ct_error err = {0};
    int count = ct_decoder_params(decoder);

    cr_assert_leq(count, MAX_PARAMS);
    for (int i = 0; i < count; i++) {
        const char *name;
        struct ct_tensor from = ct_decoder_param(decoder, i, &name);

        tensors[i] = (struct ct_st_tensor){.name = name,
                                           .dtype = from.dtype,
                                           .dims = (uint32_t)from.shape.dims,
                                           .data = from.data};
        for (int k = 0; k < from.shape.dims; k++)
            tensors[i].shape[k] = (uint64_t)from.shape.dim[k];
    }
    cr_assert_eq(ct_weights_load(path, tensors, (size_t)count, &err), 0, "%s", err.text);
}

/* "<name> COUNT v0 v1 ..." behind `at`. */
static size_t read_numbers(const char **at, const char *name, double *to, size_t room)
{
    char *end;
    const char *line = strstr(*at, name);

    cr_assert_not_null(line, "no %s", name);
    size_t count = strtoul(line + strlen(name), &end, 10);
    cr_assert_leq(count, room);
    for (size_t i = 0; i < count; i++)
        to[i] = strtod(end, &end);
    *at = end;
    return count;
}

static void compare_with_hub(const char *text, const char *name, bool untied)
{
    enum { T = 12, V = 17 };
    const struct ct_model_spec spec = {
        .type = CT_MODEL_GPT,
        .dtype = CT_F32,
        .gpt = {
            .vocabulary = V, .context = T, .layers = 2, .heads = 2, .width = 8, .untied = untied}};
    struct ct_device *device = device_new();
    struct ct_decoder *decoder = decoder_new(&spec, device);
    const char *at = strstr(text, name);
    double numbers[T], wanted[T * V];
    float logits[T * V];
    int32_t ids[T];
    char path[128];

    cr_assert_not_null(at);
    cr_assert_eq(read_numbers(&at, "\nids ", numbers, T), T);
    cr_assert_eq(read_numbers(&at, "\nlogits ", wanted, (size_t)T * V), (size_t)T * V);
    for (int i = 0; i < T; i++)
        ids[i] = (int32_t)numbers[i];
    (void)snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    load(decoder, path);
    read_in(decoder, ids, T, 1, logits);
    for (int i = 0; i < T * V; i++) {
        double error = fabs((double)logits[i] - wanted[i]) / fmax(1, fabs(wanted[i]));

        cr_assert_lt(error, 1e-5, "%s, logit %d: %g", name, i, error);
    }
    ct_decoder_free(decoder);
    ct_device_free(device);
}

Test(decode, weights_of_the_hub_give_its_logits)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    cr_assert_eq(ct_fs_read("tests/golden/hub.txt", 1 << 20, &text, NULL), 0);
    compare_with_hub(ct_buf_str(&text), "hub_f32", false);
    compare_with_hub(ct_buf_str(&text), "hub_bf16", false);
    compare_with_hub(ct_buf_str(&text), "hub_f16", true);
    ct_buf_deinit(&text);
}

/* ---- limits --------------------------------------------------------------------------------- */

Test(decode, other_models_are_refused)
{
    const int64_t hidden[] = {3};
    struct ct_model_spec spec = {.type = CT_MODEL_MLP,
                                 .dtype = CT_F32,
                                 .input = 4,
                                 .hidden = hidden,
                                 .hidden_count = 1,
                                 .classes = 2};
    struct ct_device *device = device_new();
    struct ct_decoder *decoder = NULL;
    struct ct_error err = {0};

    cr_assert_eq(ct_decoder_new(&decoder, &spec, device, &err), CT_EUNSUPPORTED);
    cr_assert_str_eq(err.text, "only a gpt is decoded, one sequence at a time");
    spec = (struct ct_model_spec){.type = CT_MODEL_GPT, .dtype = CT_F32, .gpt = variants[0]};
    spec.gpt.heads = 5;
    cr_assert_eq(ct_decoder_new(&decoder, &spec, device, &err), CT_ECONFIG);
    cr_assert_null(decoder);
    ct_device_free(device);
}
