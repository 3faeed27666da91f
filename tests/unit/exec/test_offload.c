/* E7 and E20 for activations in the host's memory: no bit changes, the arena is smaller, both kinds
 * of memory are used to the last byte that the plan says and no further. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(offload, .timeout = 60);

static struct run gpt_run(void)
{
    struct run run = run_gpt(3, 16);

    run.options.accumulation = 4;
    run.options.micro_rows = 8;
    run.options.offload = true;
    return run;
}

static const struct ct_layer_spec normed[] = {
    {.kind = CT_LAYER_CONV2D, .out = 8, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_CONV2D, .out = 8, .kernel = 3, .pad = 1, .unbiased = true, .act = -1},
    {.kind = CT_LAYER_BATCH_NORM, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = -1},
};

static struct run cnn_run(void)
{
    struct run run = run_default();

    run_see(&run, 4, 4, normed, CT_COUNT(normed));
    run.options.micro_rows = 8;
    run.options.offload = true;
    return run;
}

static void assert_same(struct run (*make)(void), int world, enum ct_plan_shard shard,
                        enum ct_dtype compute, enum ct_plan_recompute recompute)
{
    struct run run = make(), plain = make();

    plain.options.world = world;
    plain.options.accumulation /= world;
    plain.options.shard = shard;
    plain.options.compute = compute;
    plain.options.recompute = recompute;
    run.options = plain.options;
    plain.options.offload = false;
    run_train(&plain);
    run_train(&run);
    assert_same_bits(&run, &plain, "offloaded");
    run_deinit(&run);
    run_deinit(&plain);
}

Test(offload, no_bit_changes)
{
    assert_same(gpt_run, 1, CT_PLAN_SHARD_NONE, CT_F32, CT_PLAN_RECOMPUTE_NONE);
    assert_same(gpt_run, 2, CT_PLAN_SHARD_NONE, CT_BF16, CT_PLAN_RECOMPUTE_GELU);
    assert_same(gpt_run, 4, CT_PLAN_SHARD_FULL, CT_F32, CT_PLAN_RECOMPUTE_BLOCK);
    assert_same(gpt_run, 2, CT_PLAN_SHARD_GRAD, CT_BF16, CT_PLAN_RECOMPUTE_NONE);
    assert_same(cnn_run, 1, CT_PLAN_SHARD_NONE, CT_F32, CT_PLAN_RECOMPUTE_NONE);
    assert_same(cnn_run, 2, CT_PLAN_SHARD_OPTIM, CT_BF16, CT_PLAN_RECOMPUTE_NONE);
}

/* What one stage gives another waits in the host's memory as well. */
Test(offload, no_bit_changes_in_stages)
{
    for (int order = CT_PLAN_GPIPE; order <= CT_PLAN_INTERLEAVED; order++)
        for (int recompute = CT_PLAN_RECOMPUTE_NONE; recompute <= CT_PLAN_RECOMPUTE_BLOCK;
             recompute += CT_PLAN_RECOMPUTE_BLOCK) {
            struct run run = gpt_run();
            run.options.world = 2;
            run.options.stages = 2;
            run.options.order = (enum ct_plan_order)order;
            run.options.chunks = order == CT_PLAN_INTERLEAVED ? 2 : 1;
            run.options.recompute = (enum ct_plan_recompute)recompute;
            struct run plain = run;
            plain.options.offload = false;
            run_train(&plain);
            run_train(&run);
            assert_same_bits(&run, &plain, "offloaded stages");
            run_deinit(&run);
            run_deinit(&plain);
        }
}

Test(offload, a_file_holds_what_memory_holds)
{
    struct run memory = gpt_run(), file = gpt_run();

    file.exec.offload_dir = "/tmp";
    run_train(&memory);
    run_train(&file);
    assert_same_bits(&file, &memory, "in a file");
    run_deinit(&memory);
    run_deinit(&file);
}

Test(offload, a_folder_that_takes_no_file_is_named)
{
    struct run run = gpt_run();
    struct ct_exec_options options = {.offload_dir = "/proc/self"};
    struct ct_exec *exec = NULL;
    struct ct_error err = {0};
    struct rig rig;

    rig_init(&rig, &run, NULL);
    options.device = rig.device;
    cr_assert_neq(ct_exec_new(&exec, &rig.plan, &options, &err), 0);
    cr_assert_not_null(strstr(err.text, "memory.offload_dir: no file can be made in /proc/self: "),
                       "%s", err.text);
    rig_deinit(&rig);
}

static void build(struct ct_plan *plan, const struct run *run)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
}

Test(offload, the_arena_is_smaller_by_what_waits)
{
    struct run run = gpt_run(), plain = gpt_run();
    struct ct_plan less, more;

    run.options.micro_rows = plain.options.micro_rows = 64;
    run.spec.gpt.layers = plain.spec.gpt.layers = 8;
    plain.options.offload = false;
    build(&less, &run);
    build(&more, &plain);
    cr_assert_eq(more.host_bytes, 0);
    cr_assert_lt(less.step.live_bytes, more.step.live_bytes / 2, "%zu of %zu", less.step.live_bytes,
                 more.step.live_bytes);
    cr_assert_lt(less.arena_bytes, more.arena_bytes);
    cr_assert_geq(less.host_bytes + less.step.live_bytes, more.step.live_bytes);
    ct_plan_deinit(&less);
    ct_plan_deinit(&more);
}

/* Of gpipe a stage keeps all micro-batches. */
Test(offload, a_stage_is_smaller_by_what_waits)
{
    for (int rank = 0; rank < 2; rank++) {
        struct run run = gpt_run(), plain = gpt_run();
        struct ct_plan less, more;
        run.options.micro_rows = 64;
        run.spec.gpt.layers = plain.spec.gpt.layers = 8;
        run.options.world = run.options.stages = 2;
        run.options.order = CT_PLAN_GPIPE;
        run.options.rank = rank;
        plain.options = run.options;
        plain.options.offload = false;
        build(&less, &run);
        build(&more, &plain);
        cr_assert_lt(less.step.live_bytes, more.step.live_bytes / 2, "stage %d: %zu of %zu", rank,
                     less.step.live_bytes, more.step.live_bytes);
        cr_assert_geq(less.host_bytes + less.step.live_bytes, more.step.live_bytes);
        ct_plan_deinit(&less);
        ct_plan_deinit(&more);
    }
}

/* E20: from two poisons, the highest byte of the arena that a step changes. */
Test(offload, the_arena_is_used_to_the_last_byte_that_the_plan_says)
{
    static const unsigned char poison[] = {0x5a, 0xa7};
    struct run run = gpt_run();
    static int32_t x[32 * 8], labels[32 * 8];
    size_t high = 0;
    struct rig rig;

    run.options.eval_rows = 1;
    rig_init(&rig, &run, NULL);
    unsigned char *arena = ct_exec_arena(rig.exec);
    fill_rows(&run.spec, 0, 32, x, labels);
    for (size_t p = 0; p < CT_COUNT(poison); p++) {
        const struct ct_exec_step args = {
            .x = x, .labels = labels, .valid_count = 32 * 8, .lr = 0.1, .update = 1};
        struct ct_exec_result result;

        memset(arena + rig.plan.grads_bytes, poison[p],
               rig.plan.arena_bytes - rig.plan.grads_bytes);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
        for (size_t i = rig.plan.arena_bytes; i > high; i--)
            if (arena[i - 1] != poison[p])
                high = i;
    }
    cr_assert_eq(high, rig.plan.step.peak_bytes);
    cr_assert_eq(rig.plan.arena_bytes, rig.plan.step.peak_bytes);
    rig_deinit(&rig);
}
