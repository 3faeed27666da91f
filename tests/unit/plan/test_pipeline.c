/* Pipelines: what the ranks' lists say to each other, and what each of them holds. */
#include "base/assert.h"
#include "deadlock_check.h"
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

TestSuite(pipeline, .timeout = 20);

static const int64_t hidden[] = {9, 8, 7, 9, 8};

/* The plans of all ranks. */
static struct ct_plan *plans_of(const struct ct_model_spec *spec,
                                const struct ct_plan_options *options)
{
    struct ct_plan *plans = calloc((size_t)options->world, sizeof *plans);
    struct ct_plan_options own = *options;
    struct ct_error err = {0};

    cr_assert_not_null(plans);
    for (own.rank = 0; own.rank < own.world; own.rank++)
        cr_assert_eq(ct_plan_build(&plans[own.rank], spec, &own, 1, &err), 0, "rank %d: %s",
                     own.rank, err.text);
    return plans;
}

static void drop(struct ct_plan *plans, int world)
{
    for (int rank = 0; rank < world; rank++)
        ct_plan_deinit(&plans[rank]);
    free(plans);
}

static struct ct_model_spec deep_mlp(void)
{
    struct ct_model_spec spec = plan_spec;

    spec.hidden = hidden;
    spec.hidden_count = CT_COUNT(hidden);
    return spec;
}

static const struct ct_layer_spec synced[] = {
    {.kind = CT_LAYER_LINEAR, .out = 8, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_LINEAR, .out = 7, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_LINEAR, .out = 6, .act = CT_ACT_TANH},
    {.kind = CT_LAYER_BATCH_NORM, .sync = true},
    {.kind = CT_LAYER_LINEAR, .out = 4, .act = CT_LAYER_NO_ACT},
};

static struct ct_model_spec normed_mlp(void)
{
    return (struct ct_model_spec){
        .type = CT_MODEL_LAYERS,
        .dtype = CT_F32,
        .input = 6,
        .layers = {.channels = 6, .layers = synced, .count = CT_COUNT(synced)}};
}

static struct ct_model_spec tied_gpt(void)
{
    return (struct ct_model_spec){
        .type = CT_MODEL_GPT,
        .dtype = CT_F32,
        .gpt = {.vocabulary = 11, .context = 8, .layers = 4, .heads = 2, .width = 12}};
}

static struct ct_plan_options staged(int world, int stages, enum ct_plan_order order, int chunks)
{
    struct ct_plan_options options = plan_options;

    options.world = world;
    options.stages = stages;
    options.order = order;
    options.chunks = chunks;
    options.accumulation = 4;
    return options;
}

static void assert_nobody_waits(const struct ct_model_spec *spec,
                                const struct ct_plan_options *options)
{
    struct ct_plan *plans = plans_of(spec, options);
    struct ct_error err = {0};

    for (int evaluation = 0; evaluation <= 1; evaluation++)
        cr_assert_eq(deadlock_check(plans, options->world, evaluation == 1, &err), 0,
                     "world %d, stages %d, order %d, overlap %d, shard %d: %s", options->world,
                     options->stages, options->order, options->overlap, options->shard, err.text);
    drop(plans, options->world);
}

Test(pipeline, no_rank_waits_for_ever)
{
    const struct ct_model_spec specs[] = {deep_mlp(), tied_gpt()};

    for (size_t which = 0; which < CT_COUNT(specs); which++)
        for (int overlap = 0; overlap <= 1; overlap++)
            for (int order = CT_PLAN_GPIPE; order <= CT_PLAN_EAGER; order++)
                for (int stages = 2; stages <= (order == CT_PLAN_INTERLEAVED ? 2 : 4); stages++) {
                    int chunks = order == CT_PLAN_INTERLEAVED ? 2 : 1;
                    struct ct_plan_options options =
                        staged(stages, stages, (enum ct_plan_order)order, chunks);
                    options.overlap = overlap == 1;
                    assert_nobody_waits(&specs[which], &options);
                    options.world = 2 * stages;
                    assert_nobody_waits(&specs[which], &options);
                    options.shard = CT_PLAN_SHARD_OPTIM;
                    assert_nobody_waits(&specs[which], &options);
                }
}

/* Each stage runs all micro-batches in step from one sum over them to the next. */
Test(pipeline, no_rank_waits_for_ever_with_norms_over_the_global_batch)
{
    const struct ct_model_spec spec = normed_mlp();

    for (int overlap = 0; overlap <= 1; overlap++)
        for (int stages = 2; stages <= 4; stages++)
            for (int ranks = 1; ranks <= 2; ranks++) {
                struct ct_plan_options options = staged(stages * ranks, stages, CT_PLAN_GPIPE, 1);
                options.overlap = overlap == 1;
                assert_nobody_waits(&spec, &options);
                options.shard = CT_PLAN_SHARD_FULL;
                assert_nobody_waits(&spec, &options);
            }
}

Test(pipeline, norms_over_the_global_batch_want_all_micro_batches_at_once)
{
    const struct ct_model_spec spec = normed_mlp();
    struct ct_plan_options options = staged(2, 2, CT_PLAN_1F1B, 1);
    struct ct_error err = {0};
    struct ct_plan plan;

    cr_assert_eq(ct_plan_build(&plan, &spec, &options, 1, &err), CT_ECONFIG);
    cr_assert_str_eq(err.text,
                     "a batch norm with sync wants all 4 micro-batches of a step at once: "
                     "set parallel.schedule to gpipe, or raise batch.micro");
    ct_plan_deinit(&plan);
    options.accumulation = 1;
    cr_assert_eq(ct_plan_build(&plan, &spec, &options, 1, &err), 0, "%s", err.text);
    ct_plan_deinit(&plan);
}
