/* Sharding: the rows E2, E7, E10, E11, E12 and E20 of the equivalence table, with ranks as threads.
 */
#include "base/assert.h"
#include "job/thread_world.h"
#include "tests/unit/exec/exchange.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(shard, .timeout = 60);

static const struct ct_layer_spec cnn[] = {
    {.kind = CT_LAYER_CONV2D, .out = 5, .kernel = 3, .pad = 1, .act = CT_ACT_RELU},
    {.kind = CT_LAYER_MAXPOOL, .kernel = 2, .stride = 1},
    {.kind = CT_LAYER_FLATTEN},
    {.kind = CT_LAYER_LINEAR, .out = 7, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = CT_LAYER_NO_ACT},
};

enum { MLP, CNN, GPT, MODELS };

static const enum ct_plan_shard shards[] = {CT_PLAN_SHARD_OPTIM, CT_PLAN_SHARD_GRAD,
                                            CT_PLAN_SHARD_FULL};

static const struct ct_optim_spec adamw = {
    .type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};

/* Eight samples a step on `world` ranks, in micro-batches of one. */
static struct run split(int which, int world, enum ct_plan_shard shard)
{
    struct run run = run_default();

    run.options.world = world;
    run.options.micro_rows = 1;
    run.options.accumulation = 8 / world;
    run.options.shard = shard;
    run.options.prefetch = 1;
    if (which == CNN)
        run_see(&run, 4, 3, cnn, CT_COUNT(cnn));
    if (which == GPT) {
        run.spec.type = CT_MODEL_GPT;
        run.spec.gpt = (struct ct_gpt_spec){.vocabulary = 11,
                                            .context = 9,
                                            .sequence = 7,
                                            .layers = 2,
                                            .heads = 2,
                                            .width = 12,
                                            .dropout = 0.1};
    }
    return run;
}

/* ---- E2: what is shared out does not change a bit -------------------------------------------- */

static void assert_sharded_equals_whole(int which, int world, enum ct_plan_reduce reduce)
{
    struct run whole = split(which, world, CT_PLAN_SHARD_NONE);

    whole.options.reduce = reduce;
    if (which == GPT)
        whole.options.optim = adamw;
    run_train(&whole);
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = split(which, world, shards[i]);
        run.options.reduce = reduce;
        run.options.optim = whole.options.optim;
        run_train(&run);
        for (int step = 0; step < run.steps; step++) {
            /* The norm is added up part by part: other roundings of a double. */
            cr_assert_lt(fabs(run.norms[step] - whole.norms[step]), 1e-12 * whole.norms[step]);
            run.norms[step] = whole.norms[step];
        }
        assert_same_bits(&run, &whole, "sharded against whole");
        run_deinit(&run);
    }
    run_deinit(&whole);
}

Test(shard, every_way_of_sharding_has_the_bits_of_ddp)
{
    for (int which = 0; which < MODELS; which++)
        for (int world = 2; world <= 4; world *= 2)
            for (int reduce = CT_PLAN_REPRODUCIBLE; reduce <= CT_PLAN_INVARIANT; reduce++)
                assert_sharded_equals_whole(which, world, (enum ct_plan_reduce)reduce);
}

Test(shard, three_ranks_share_what_does_not_divide_by_three)
{
    struct run whole = split(MLP, 3, CT_PLAN_SHARD_NONE);

    whole.options.reduce = CT_PLAN_REPRODUCIBLE;
    run_train(&whole);
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = split(MLP, 3, shards[i]);
        run.options.reduce = CT_PLAN_REPRODUCIBLE;
        run_train(&run);
        memcpy(run.norms, whole.norms, sizeof run.norms);
        assert_same_bits(&run, &whole, "three ranks");
        run_deinit(&run);
    }
    run_deinit(&whole);
}

Test(shard, a_single_rank_shares_nothing_out)
{
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run whole = split(MLP, 1, CT_PLAN_SHARD_NONE), run = split(MLP, 1, shards[i]);
        run_train(&whole);
        run_train(&run);
        assert_same_bits(&run, &whole, "one rank");
        run_deinit(&whole);
        run_deinit(&run);
    }
}

Test(shard, copies_of_shards_have_the_bits_of_ddp)
{
    for (int which = 0; which < MODELS; which++) {
        struct run whole = split(which, 4, CT_PLAN_SHARD_NONE);
        run_train(&whole);
        for (size_t i = 0; i < CT_COUNT(shards); i++) {
            struct run run = split(which, 4, shards[i]);
            run.options.replicas = 2;
            run_train(&run);
            memcpy(run.norms, whole.norms, sizeof run.norms);
            assert_same_bits(&run, &whole, "two copies over two ranks each");
            run_deinit(&run);
        }
        run_deinit(&whole);
    }
}

Test(shard, the_fast_mode_agrees_within_2e_6)
{
    struct run whole = split(MLP, 4, CT_PLAN_SHARD_NONE);

    whole.options.reduce = CT_PLAN_FAST;
    run_train(&whole);
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = split(MLP, 4, shards[i]);
        run.options.reduce = CT_PLAN_FAST;
        run_train(&run);
        double l2 = relative_l2(run.state, whole.state, run.state_count);
        cr_assert_lt(l2, 2e-6, "state differs by %g", l2);
        run_deinit(&run);
    }
    run_deinit(&whole);
}

/* ---- E7: neither does when it is gathered ---------------------------------------------------- */

Test(shard, prefetching_overlap_and_memory_do_not_change_a_bit)
{
    for (int which = 0; which < MODELS; which++)
        for (size_t i = 1; i < CT_COUNT(shards); i++) {
            struct run base = split(which, 2, shards[i]);
            base.options.prefetch = 0;
            base.options.overlap = false;
            run_train(&base);
            for (int prefetch = 0; prefetch <= 2; prefetch++) {
                struct run run = split(which, 2, shards[i]);
                run.options.prefetch = prefetch;
                run.symmetric = prefetch == 2;
                run_train(&run);
                assert_same_bits(&run, &base, "prefetch");
                run_deinit(&run);
            }
            run_deinit(&base);
        }
}

/* ---- E12: the norm over all parts ------------------------------------------------------------ */

Test(shard, gradients_are_clipped_by_the_norm_over_all_parts)
{
    struct run one = split(MLP, 1, CT_PLAN_SHARD_NONE);

    one.options.optim.clip = 0.01;
    run_train(&one);
    for (size_t i = 0; i < CT_COUNT(shards); i++)
        for (int replicas = 1; replicas <= 2; replicas++) {
            struct run run = split(MLP, 4, shards[i]);
            run.options.optim.clip = 0.01;
            run.options.replicas = replicas;
            run_train(&run);
            for (int step = 0; step < run.steps; step++) {
                cr_assert_gt(one.norms[step], 0.01, "nothing is clipped");
                cr_assert_lt(fabs(run.norms[step] - one.norms[step]), 1e-6 * one.norms[step]);
            }
            double l2 = relative_l2(run.state, one.state, run.state_count);
            cr_assert_lt(l2, 1e-6, "state differs by %g", l2);
            run_deinit(&run);
        }
    run_deinit(&one);
}

/* ---- E10, E11: tensors come and go whole ----------------------------------------------------- */

Test(shard, every_layout_begins_with_the_same_values_and_takes_over_any_others)
{
    for (int which = 0; which < MODELS; which++) {
        struct run one = split(which, 1, CT_PLAN_SHARD_NONE);
        struct originals originals;
        one.options.optim = adamw;
        originals_init(&originals, &one);
        double loss = loss_of(&originals.rig, &one);
        for (size_t i = 0; i < CT_COUNT(shards); i++)
            for (int replicas = 1; replicas <= 2; replicas++) {
                struct run run = split(which, 4, shards[i]);
                run.options.optim = adamw;
                run.options.replicas = replicas;
                assert_takes_over(&originals, &run, &loss);
            }
        originals_deinit(&originals);
    }
}

/* ---- E20: memory ----------------------------------------------------------------------------- */

enum { DEEP = 8, WIDE = 64, EACH = WIDE * WIDE + WIDE };

static const int64_t deep[DEEP] = {WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE};

static struct run deep_run(int world, enum ct_plan_shard shard, int prefetch)
{
    struct run run = split(MLP, world, shard);

    run.spec.input = WIDE;
    run.spec.hidden = deep;
    run.spec.hidden_count = DEEP;
    run.spec.classes = WIDE;
    run.options.accumulation = 1;
    run.options.optim = adamw;
    run.options.prefetch = prefetch;
    return run;
}

static size_t arena_of(const struct run *run)
{
    struct ct_plan plan;
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(&plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
    size_t bytes = plan.arena_bytes;
    ct_plan_deinit(&plan);
    return bytes;
}

/* What lives besides parameters, moments and gradients. */
static size_t activations_of(const struct run *run)
{
    struct run whole = *run;
    struct ct_plan plan;

    whole.options.shard = CT_PLAN_SHARD_NONE;
    cr_assert_eq(ct_plan_build(&plan, &whole.spec, &whole.options, 1, NULL), 0);
    size_t bytes = plan.arena_bytes - plan.grads_bytes;
    ct_plan_deinit(&plan);
    return bytes;
}

/* 3(b): (4 + K) P / N + 2 units of parameters + 1 of gradients + activations; K is 8 for the
 * moments and 4 for the reduced gradients, all in f32. */
Test(shard, the_peak_of_full_sharding_keeps_to_its_formula)
{
    for (int world = 2; world <= 8; world *= 2) {
        struct run run = deep_run(world, CT_PLAN_SHARD_FULL, 1);
        size_t unit = EACH * sizeof(float) + 64 * (size_t)world, all = (DEEP + 1) * unit;
        size_t limit = 4 * all / (size_t)world + 3 * unit + activations_of(&run);
        cr_assert_leq(arena_of(&run), limit, "%zu above %zu", arena_of(&run), limit);
        struct run late = deep_run(world, CT_PLAN_SHARD_FULL, 0);
        cr_assert_leq(arena_of(&late), limit - unit, "without prefetching one unit less");
    }
}

Test(shard, each_way_takes_less_memory_than_the_one_before)
{
    struct run none = deep_run(4, CT_PLAN_SHARD_NONE, 1), optim = deep_run(4, shards[0], 1);
    struct run grad = deep_run(4, shards[1], 1), full = deep_run(4, shards[2], 1);

    cr_assert_lt(arena_of(&optim), arena_of(&none));
    cr_assert_lt(arena_of(&full), arena_of(&grad));
    cr_assert_lt(arena_of(&full), arena_of(&optim));
}

/* The highest byte that a step changes, from two poisons. */
static int poison_body(struct ct_job *job, void *context)
{
    struct run run = *(struct run *)context;
    struct ct_group *group = NULL;
    struct rig rig;
    size_t high = 0;
    float x[WIDE] = {0};
    int32_t label = 0;
    struct ct_exec_step args = {
        .x = x, .labels = &label, .valid_count = run.options.world, .lr = 0.1, .update = 1};
    struct ct_exec_result result;

    cr_assert_eq(ct_group_new(job, NULL, &group, NULL), 0);
    run.options.rank = ct_group_rank(group);
    rig_init(&rig, &run, group);
    unsigned char *arena = ct_exec_arena(rig.exec);
    for (int poison = 0x5a; poison <= 0xa7; poison += 0xa7 - 0x5a) {
        memset(arena + rig.plan.grads_bytes, poison, rig.plan.arena_bytes - rig.plan.grads_bytes);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
        for (size_t i = rig.plan.arena_bytes; i > high; i--)
            if (arena[i - 1] != poison)
                high = i;
    }
    cr_assert_eq(high, rig.plan.arena_bytes);
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

Test(shard, the_arena_is_used_to_the_last_byte_that_the_plan_says)
{
    for (size_t i = 0; i < CT_COUNT(shards); i++) {
        struct run run = deep_run(2, shards[i], 1);
        struct ct_thread_world *world;
        cr_assert_eq(ct_thread_world_new(2, &world), 0);
        cr_assert_eq(thread_ranks_run(world, poison_body, &run), 0);
        ct_thread_world_free(world);
    }
}
