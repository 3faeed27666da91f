/* Plans that are told from shorter ones: what they say is what the whole plan says. */
#include "tests/unit/planner/fixture.h"

#include "base/assert.h"
#include "collectives/planner/estimate.h"

#include <criterion/criterion.h>

#include <math.h>

TestSuite(estimate, .timeout = 60);

#define GPT                                                                               \
    "model: {type: gpt, vocabulary: 300, context: 32, layers: 13, heads: 4, width: 64}\n" \
    "data: {train: {format: tokens, path: none.bin}}\n"                                   \
    "train: {steps: 1}\n"                                                                 \
    "batch: {global: 96, micro: 2}\n"

static const struct {
    const char *name;
    const char *yaml;
} layouts[] = {
    {"ddp", GPT},
    {"zero1", GPT "parallel: {strategy: zero1}\n"},
    {"fsdp, grad", GPT "parallel: {strategy: fsdp, shard: grad}\n"},
    {"fsdp, full", GPT "parallel: {strategy: fsdp, prefetch: 2}\n"},
    {"fsdp, copies", GPT "parallel: {strategy: fsdp, replicate: 2}\n"},
    {"gelu", GPT "memory: {recompute: gelu}\n"},
    {"block", GPT "parallel: {strategy: fsdp}\nmemory: {recompute: block}\n"},
    {"bf16", "model: {type: gpt, vocabulary: 300, context: 32, layers: 13, heads: 4, width: 64}\n"
             "data: {train: {format: tokens, path: none.bin}}\n"
             "train: {steps: 1, precision: bf16}\n"
             "batch: {global: 96, micro: 2}\n"
             "parallel: {strategy: zero1}\n"},
    {"tensor", GPT "parallel: {tensor: 2}\n"},
    {"tensor, tokens", GPT "parallel: {tensor: 4, sequence: true}\n"},
    {"tensor, fsdp", GPT "parallel: {tensor: 2, strategy: fsdp}\nmemory: {recompute: block}\n"},
    {"one micro-batch", "model: {type: gpt, vocabulary: 300, context: 32, layers: 13, heads: 4, "
                        "width: 64}\n"
                        "data: {train: {format: tokens, path: none.bin}}\n"
                        "train: {steps: 1}\n"
                        "batch: {global: 96}\n"
                        "parallel: {strategy: fsdp}\n"},
};

static void close_to(double told, double whole, double share, const char *layout, const char *what)
{
    cr_assert_leq(fabs(told - whole), share * fabs(whole) + 1, "%s: %s is %.0f, told %.0f", layout,
                  what, whole, told);
}

static void compare(const struct ct_project *project, const char *name)
{
    struct ct_layout layout = ct_project_layout(project);
    struct ct_estimate whole, told;
    struct ct_error err = {0};

    cr_assert_eq(ct_estimate(project, &layout, 1 << 20, &whole, &err), 0, "%s", err.text);
    cr_assert_eq(ct_estimate(project, &layout, 1, &told, &err), 0, "%s", err.text);
    cr_assert_eq(whole.built, 1);
    cr_assert_eq(told.built, 0);
    close_to(told.parameters, whole.parameters, 0, name, "parameters");
    close_to(told.flop, whole.flop, 1e-9, name, "FLOP");
    close_to(ct_estimate_memory(&told), ct_estimate_memory(&whole), 1e-2, name, "memory");
    for (int axis = 0; axis < CT_AXIS_COUNT; axis++)
        close_to(told.comm[axis].sent, whole.comm[axis].sent, 1e-3, name, "what it sends");
    cr_assert_leq(fabs(told.step_s - whole.step_s), 0.05 * whole.step_s, "%s: %g s, told %g s",
                  name, whole.step_s, told.step_s);
}

Test(estimate, short_plans_tell_the_long_one)
{
    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct planned planned;
        planned_init(&planned, layouts[i].yaml, 1, 4, "h100");
        compare(&planned.project, layouts[i].name);
        planned_deinit(&planned);
    }
}

/* Blocks that divide by the stages: what a stage has grows by steps. */
#define TWELVE                                                                            \
    "model: {type: gpt, vocabulary: 300, context: 32, layers: 24, heads: 4, width: 64}\n" \
    "data: {train: {format: tokens, path: none.bin}}\n"                                   \
    "train: {steps: 1}\n"                                                                 \
    "batch: {global: 96, micro: 2}\n"

Test(estimate, short_pipelines_tell_the_long_one)
{
    static const char *const yaml[] = {
        TWELVE "parallel: {pipeline: 2}\n",
        TWELVE "parallel: {pipeline: 4, schedule: gpipe}\n",
        TWELVE "parallel: {pipeline: 2, tensor: 2}\n",
        TWELVE "parallel: {pipeline: 2, strategy: zero1}\nmemory: {recompute: block}\n",
    };

    for (size_t i = 0; i < CT_COUNT(yaml); i++) {
        struct planned planned;
        planned_init(&planned, yaml[i], 1, 4, "h100");
        compare(&planned.project, yaml[i] + sizeof TWELVE - 1);
        planned_deinit(&planned);
    }
}

Test(estimate, a_tree_of_micro_batches_grows_by_its_levels)
{
    struct planned planned;

    planned_init(
        &planned,
        "model: {type: gpt, vocabulary: 300, context: 32, layers: 8, heads: 4, width: 64}\n"
        "data: {train: {format: tokens, path: none.bin}}\n"
        "train: {steps: 1}\n"
        "parallel: {reduce: invariant}\n"
        "batch: {global: 64, micro: 1}\n",
        1, 2, "cpu");
    compare(&planned.project, "invariant");
    planned_deinit(&planned);
}

Test(estimate, what_is_told_is_what_the_executor_will_take)
{
    struct planned planned;
    struct ct_plan plan;
    struct ct_estimate estimate;
    struct ct_error err = {0};

    planned_init(&planned, layouts[3].yaml, 1, 4, "h100");
    struct ct_layout layout = ct_project_layout(&planned.project);
    struct ct_plan_options options = ct_project_options(&planned.project, &layout, 3);
    cr_assert_eq(ct_plan_build(&plan, &planned.project.spec, &options, 1, &err), 0, "%s", err.text);
    cr_assert_eq(ct_estimate(&planned.project, &layout, 1 << 20, &estimate, &err), 0);
    cr_assert_eq((size_t)ct_estimate_memory(&estimate), plan.arena_bytes);
    cr_assert_geq(estimate.step_s, estimate.compute_s);
    cr_assert_leq(estimate.step_s, estimate.compute_s + estimate.comm_s + 1e-12);
    ct_plan_deinit(&plan);
    planned_deinit(&planned);
}

/* On four nodes. */
static double step_of(const char *yaml)
{
    struct planned planned;
    struct ct_estimate estimate;

    planned_init(&planned, yaml, 4, 1, "cpu");
    struct ct_layout layout = ct_project_layout(&planned.project);
    cr_assert_eq(ct_estimate(&planned.project, &layout, 1 << 20, &estimate, NULL), 0);
    planned_deinit(&planned);
    return estimate.step_s;
}

Test(estimate, communicating_beside_the_ops_takes_less_than_between_them)
{
    static const char *const yaml[][2] = {
        {GPT "parallel: {overlap: true, bucket: 64KB}\n",
         GPT "parallel: {overlap: false, bucket: 64KB}\n"},
        {GPT "parallel: {overlap: true, tensor: 2}\n",
         GPT "parallel: {overlap: false, tensor: 2}\n"},
        {GPT "parallel: {overlap: true, pipeline: 2, schedule: gpipe}\n",
         GPT "parallel: {overlap: false, pipeline: 2, schedule: gpipe}\n"},
    };

    for (size_t i = 0; i < CT_COUNT(yaml); i++)
        cr_assert_lt(step_of(yaml[i][0]), step_of(yaml[i][1]), "%s", yaml[i][0]);
}
