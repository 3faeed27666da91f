/* The losses of a GPT-2 on a file's bytes, for who computes them again elsewhere.
 *
 *     curve PRESET FILE WEIGHTS [--device cpu|cuda] [--precision f32|bf16] [--steps N] [--rows N]
 *           [--sequence N]
 *
 * Row r of step s are the bytes from (s * rows + r) * sequence on (round again at the end), and
 * each byte's label is the next one. AdamW with lr 3e-4 after WARMUP steps, betas 0.9 and 0.95,
 * decay 0.1 on all, clipped at norm 1. WEIGHTS gets the parameters as they begin, each "NAME
 * COUNT\n" and as many f32. A line a step: its loss and the norm of its gradient.
 * scripts/bench/gpu_torch.py is the other one. */
#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "base/str.h"
#include "collectives/exec/exec.h"
#include "tensor/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20, WARMUP = 100 };

struct curve {
    struct ct_model_spec spec;
    struct ct_device_request wish;
    enum ct_dtype precision;
    int64_t steps, rows;
    struct ct_buf text;
    struct ct_plan plan;
    struct ct_device *device;
    struct ct_exec *exec;
};

static int start(struct curve *c, struct ct_error *err)
{
    struct ct_plan_options options = {.world = 1,
                                      .micro_rows = c->rows,
                                      .accumulation = 1,
                                      .compute = c->precision,
                                      .bucket_bytes = 25 << 20,
                                      .first_bucket_bytes = 1 << 20,
                                      .optim = {.type = CT_OPTIM_ADAMW,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .weight_decay = 0.1,
                                                .clip = 1}};
    struct ct_error why;
    int code = ct_device_open(&c->wish, &c->device, &why, err);

    if (code != 0)
        return code;
    options.fuses = c->device->table->fuses;
    code = ct_plan_build(&c->plan, &c->spec, &options, 1, err);
    if (code == 0)
        code = ct_exec_new(&c->exec, &c->plan, &(struct ct_exec_options){.device = c->device}, err);
    return code;
}

static int write_weights(struct curve *c, const char *path, struct ct_error *err)
{
    FILE *file = fopen(path, "wb");
    bool written = file != NULL;

    for (int i = 0; i < c->plan.param_count && written; i++) {
        const struct ct_plan_tensor *t = &c->plan.tensors[i];
        void *data = malloc(t->bytes);
        CT_ASSERT(data != NULL);
        ct_exec_read(c->exec, i, data);
        written = fprintf(file, "%s %zu\n", t->name, t->bytes / sizeof(float)) > 0 &&
                  fwrite(data, 1, t->bytes, file) == t->bytes;
        free(data);
    }
    if (file != NULL && fclose(file) != 0)
        written = false;
    return written ? 0 : ct_error_set(err, CT_EIO, "cannot write %s", path);
}

static int train(struct curve *c, struct ct_error *err)
{
    int64_t count = c->rows * c->spec.gpt.sequence;
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    int32_t *labels = calloc((size_t)count, sizeof *labels);
    int code = 0;

    CT_ASSERT(tokens != NULL && labels != NULL);
    for (int64_t step = 0; step < c->steps && code == 0; step++) {
        struct ct_exec_step args = {.x = tokens,
                                    .labels = labels,
                                    .valid_count = count,
                                    .lr = 3e-4 * (double)CT_MIN(step + 1, WARMUP) / WARMUP,
                                    .update = (uint64_t)step + 1};
        struct ct_exec_result result;
        for (int64_t i = 0; i < count; i++) {
            size_t at = (size_t)(step * count + i);
            tokens[i] = (unsigned char)c->text.data[at % c->text.size];
            labels[i] = (unsigned char)c->text.data[(at + 1) % c->text.size];
        }
        code = ct_exec_step(c->exec, &args, &result, err);
        if (code == 0)
            printf("%lld %.6f %.6f\n", (long long)step, result.loss, result.grad_norm);
    }
    free(tokens);
    free(labels);
    return code;
}

static bool choose(struct curve *c, const char *option, const char *word)
{
    int64_t number = 0;

    if (strcmp(option, "--device") == 0) {
        c->wish.kind = strcmp(word, "cuda") == 0 ? CT_DEVICE_CUDA : CT_DEVICE_CPU;
        return true;
    }
    if (strcmp(option, "--precision") == 0) {
        c->precision = strcmp(word, "bf16") == 0 ? CT_BF16 : CT_F32;
        return true;
    }
    if (ct_parse_i64(word, &number) != 0 || number < 1)
        return false;
    if (strcmp(option, "--steps") == 0)
        c->steps = number;
    else if (strcmp(option, "--rows") == 0)
        c->rows = number;
    else if (strcmp(option, "--sequence") == 0)
        c->spec.gpt.sequence = number;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct curve c = {.spec = {.type = CT_MODEL_GPT, .dtype = CT_F32},
                      .wish = {.kind = CT_DEVICE_CPU},
                      .precision = CT_F32,
                      .steps = 200,
                      .rows = 4};
    struct ct_error err = {0};
    bool good = argc > 3 && argc % 2 == 0 && ct_gpt_preset(argv[1], &c.spec.gpt);

    c.spec.gpt.sequence = c.spec.gpt.context;
    for (int i = 4; i + 1 < argc && good; i += 2)
        good = choose(&c, argv[i], argv[i + 1]);
    if (!good) {
        (void)fprintf(stderr, "usage: curve PRESET FILE WEIGHTS [--device cpu|cuda] [--precision "
                              "f32|bf16] [--steps N] [--rows N] [--sequence N]\n");
        return 2;
    }
    ct_buf_init(&c.text, MOST_BYTES);
    int code = ct_fs_read(argv[2], MOST_BYTES, &c.text, &err);
    if (code == 0)
        code = start(&c, &err);
    if (code == 0)
        code = write_weights(&c, argv[3], &err);
    if (code == 0)
        code = train(&c, &err);
    if (code != 0)
        (void)fprintf(stderr, "curve: %s\n", err.text);
    ct_exec_free(c.exec);
    ct_device_free(c.device);
    ct_plan_deinit(&c.plan);
    ct_buf_deinit(&c.text);
    return code == 0 ? 0 : 1;
}
