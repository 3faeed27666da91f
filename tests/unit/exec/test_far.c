/* The executor on a device whose memory the host cannot touch, and on one that runs ops later than
 * it is told to (far.h): the same bits as on the CPU, for every kind of plan. */
#include "base/assert.h"
#include "tests/unit/exec/far.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

TestSuite(far, .timeout = 60);

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 4, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};

enum { MLP, GPT, CNN };

static struct run run_of(int model, int world)
{
    struct run run = model == GPT ? run_gpt(2, 12) : run_default();

    if (model == CNN)
        run_see(&run, 4, 4, cnn, CT_COUNT(cnn));
    run.options.world = world;
    run.options.micro_rows = 2;
    run.options.accumulation = 4 / world;
    run.evaluates = true;
    run.options.eval_rows = 3;
    return run;
}

static void assert_as_on_cpu(const struct run *like, enum run_device device, const char *what)
{
    struct run cpu = *like, other = *like;

    other.device = device;
    run_train(&cpu);
    run_train(&other);
    assert_same_bits(&other, &cpu, what);
    cr_assert_eq(other.evaluation.loss, cpu.evaluation.loss, "%s: evaluation", what);
    if (like->options.world == 1)
        cr_assert_eq(other.replayed, like->steps - 1, "%s: %d replays", what, other.replayed);
    run_deinit(&cpu);
    run_deinit(&other);
}

Test(far, one_rank_never_touches_the_device_s_memory)
{
    for (int model = MLP; model <= CNN; model++) {
        struct run run = run_of(model, 1);
        assert_as_on_cpu(&run, RUN_FAR, "far");
    }
}

Test(far, activations_wait_in_memory_that_the_device_reaches)
{
    struct run run = run_of(GPT, 1);

    run.options.offload = true;
    run.options.recompute = CT_PLAN_RECOMPUTE_GELU;
    run.options.compute = CT_BF16;
    assert_as_on_cpu(&run, RUN_FAR, "offloaded");
}

/* Marks order the queues: what waits on the host alone computes with what is there too early. */
Test(far, queues_wait_for_each_other_s_ops)
{
    static const enum ct_plan_shard shards[] = {CT_PLAN_SHARD_NONE, CT_PLAN_SHARD_OPTIM,
                                                CT_PLAN_SHARD_FULL};

    for (size_t i = 0; i < CT_COUNT(shards); i++)
        for (int model = MLP; model <= GPT; model++) {
            struct run run = run_of(model, 2);
            run.options.shard = shards[i];
            run.options.prefetch = 1;
            run.options.bucket_bytes = 256;
            assert_as_on_cpu(&run, RUN_LATE, "two ranks, late");
            assert_as_on_cpu(&run, RUN_FAR, "two ranks, far");
        }
}

Test(far, slices_and_stages_talk_between_ops)
{
    struct run sliced = run_of(GPT, 2), staged = run_of(GPT, 2);

    sliced.options.tensor = 2;
    sliced.options.accumulation = 4;
    sliced.options.sequence = true;
    assert_as_on_cpu(&sliced, RUN_LATE, "slices, late");
    assert_as_on_cpu(&sliced, RUN_FAR, "slices, far");
    staged.options.stages = 2;
    staged.options.accumulation = 4;
    assert_as_on_cpu(&staged, RUN_LATE, "stages, late");
    assert_as_on_cpu(&staged, RUN_FAR, "stages, far");
}

/* ---- failures -------------------------------------------------------------------------------- */

static void step_fails(bool check_ops, const char *sentence)
{
    struct run run = run_of(MLP, 1);
    int64_t rows = run.options.accumulation * run.options.micro_rows;
    float *x = calloc((size_t)(rows * run.spec.input), sizeof *x);
    int32_t *labels = calloc((size_t)rows, sizeof *labels);
    const struct ct_exec_step args = {
        .x = x, .labels = labels, .valid_count = rows, .lr = 0.1, .update = 1};
    struct ct_exec_result result;
    struct ct_error err = {0};
    struct rig rig;

    run.device = RUN_FAR;
    run.exec.check_ops = check_ops;
    cr_assert(x != NULL && labels != NULL);
    rig_init(&rig, &run, NULL);
    far_break_at(rig.device, CT_OP_LINEAR_DW);
    cr_assert_eq(ct_exec_step(rig.exec, &args, &result, &err), CT_EDEVICE);
    cr_assert_not_null(strstr(err.text, sentence), "%s", err.text);
    rig_deinit(&rig);
    free(x);
    free(labels);
}

Test(far, a_device_that_breaks_ends_the_step)
{
    step_fails(false, "linear_dw broke the device");
}

Test(far, with_a_check_after_each_op_the_first_to_fail_is_named_with_its_place)
{
    step_fails(true, ", linear_dw of ");
}
