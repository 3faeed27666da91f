/* Training on a GPU: near the CPU's within rounding, and bit for bit like itself, however a step is
 * run. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>

TestSuite(gpu_training, .timeout = 300);

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 8, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};

enum { MLP, GPT, LLAMA, WIDE, CNN, MODELS };

static struct run run_of(int model, enum ct_dtype compute)
{
    struct run run = model == MLP || model == CNN ? run_default() : run_gpt(2, 16);

    if (model == CNN)
        run_see(&run, 4, 4, cnn, CT_COUNT(cnn));
    if (model == LLAMA) {
        run.spec.gpt.norm = CT_NORM_RMS;
        run.spec.gpt.mlp = CT_MLP_SWIGLU;
        run.spec.gpt.positions = CT_POSITIONS_ROTARY;
        run.spec.gpt.untied = true;
    }
    if (model == WIDE) { /* heads of 64 columns, several blocks of places */
        run.spec.gpt.width = 128;
        run.spec.gpt.context = run.spec.gpt.sequence = 200;
    }
    run.options.compute = compute;
    run.options.accumulation = 2;
    run.steps = 6;
    run.lr = 0.05;
    return run;
}

static void near_cpu(int model, enum ct_dtype compute, double losses, double gradients)
{
    struct run gpu = run_of(model, compute), cpu = run_of(model, compute);

    gpu.device = RUN_CUDA;
    cpu.device = RUN_CPU;
    run_train(&gpu);
    run_train(&cpu);
    for (int i = 0; i < cpu.steps; i++)
        cr_assert(fabs(gpu.losses[i] - cpu.losses[i]) <= losses * fabs(cpu.losses[i]),
                  "model %d, %s: loss of step %d is %.9g, the CPU's %.9g", model,
                  ct_dtype_name(compute), i, gpu.losses[i], cpu.losses[i]);
    double apart = relative_l2(gpu.grads, cpu.grads, cpu.grad_count);
    (void)printf("model %d %-5s gradients after %d steps: %.2g\n", model, ct_dtype_name(compute),
                 cpu.steps, apart);
    cr_assert(apart <= gradients, "model %d, %s: gradients are %.3g apart", model,
              ct_dtype_name(compute), apart);
    run_deinit(&gpu);
    run_deinit(&cpu);
}

Test(gpu_training, is_the_cpus_within_rounding)
{
    for (int model = MLP; model < MODELS; model++) {
        near_cpu(model, CT_F32, 2e-5, 2e-4);
        near_cpu(model, CT_BF16, 2e-2, 5e-2);
        near_cpu(model, CT_F16, 5e-3, 2e-2);
    }
}

static void same_bits(const struct run *a, const struct run *b, const char *what)
{
    struct run one = *a, other = *b;

    one.device = other.device = RUN_CUDA;
    run_train(&one);
    run_train(&other);
    assert_same_bits(&one, &other, what);
    run_deinit(&one);
    run_deinit(&other);
}

Test(gpu_training, has_the_same_bits_each_time_and_however_it_is_run)
{
    for (int model = MLP; model < MODELS; model++) {
        struct run plain = run_of(model, CT_BF16), other = plain;

        same_bits(&plain, &plain, "once more");
        other.exec.check_ops = true; /* op by op, nothing recorded */
        same_bits(&plain, &other, "op by op");
        other = plain;
        other.options.recompute = CT_PLAN_RECOMPUTE_BLOCK;
        same_bits(&plain, &other, "recomputed");
        other = plain;
        other.options.offload = true;
        same_bits(&plain, &other, "offloaded");
    }
}
