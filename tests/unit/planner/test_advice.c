/* The decision tree, and bad input. */
#include "tests/unit/planner/fixture.h"

#include "collectives/planner/plan_report.h"

#include <criterion/criterion.h>
#include <jansson.h>

#include <string.h>

TestSuite(advice, .timeout = 60);

#define DATA                                            \
    "data: {train: {format: tokens, path: none.bin}}\n" \
    "train: {steps: 1}\n"

static struct ct_advice advise(const struct planned *planned)
{
    struct ct_advice advice;
    struct ct_error err = {0};

    cr_assert_eq(ct_advise(&planned->project, &advice, &err), 0, "%s", err.text);
    return advice;
}

Test(advice, what_fits_whole_needs_no_sharing)
{
    struct planned planned;

    planned_init(&planned, "model: {type: gpt, preset: gpt2-124M}\n" DATA "batch: {global: 64}\n",
                 1, 8, "h100");
    struct ct_advice advice = advise(&planned);
    cr_assert_eq(advice.simplest, 0);
    cr_assert_eq(advice.rungs[0].layout.shard, CT_PLAN_SHARD_NONE);
    planned_deinit(&planned);
}

/* 2.6 billion parameters are 39 GB with two moments and a gradient: a device of 24 GB holds no
 * copy. */
Test(advice, what_does_not_fit_whole_is_shared_out_no_further_than_it_must)
{
    struct planned planned;

    planned_init(&planned,
                 "model: {type: gpt, vocabulary: 50257, context: 1024, layers: 32, heads: 20, "
                 "width: 2560}\n" DATA "batch: {global: 8}\n",
                 1, 8, "a100-80g");
    planned.project.machine.device.memory_bytes = 24.0 * (1 << 30);
    struct ct_advice advice = advise(&planned);
    cr_assert_not(advice.rungs[0].fits);
    cr_assert_gt(advice.simplest, 0);
    for (int i = 0; i < advice.simplest; i++)
        cr_assert_not(advice.rungs[i].fits);
    cr_assert_leq(ct_estimate_memory(&advice.rungs[advice.simplest].estimate),
                  planned.project.machine.device.memory_bytes);
    planned_deinit(&planned);
}

/* The documented example: it answers at once, though its whole plan has thousands of ops a rank. */
Test(advice, a_hundred_billion_parameters_on_eight_nodes)
{
    struct planned planned;

    planned_init(&planned,
                 "model: {type: gpt, vocabulary: 50257, context: 2048, layers: 80, heads: 80, "
                 "width: 10240}\n" DATA "batch: {global: 64}\n",
                 8, 8, "a100-80g");
    struct ct_advice advice = advise(&planned);
    cr_assert_float_eq(advice.rungs[0].estimate.parameters, 101.2e9, 0.1e9);
    cr_assert_not(advice.rungs[0].fits);
    cr_assert_not(advice.rungs[1].fits);
    cr_assert_geq(advice.simplest, 2);
    cr_assert_float_eq(advice.rungs[advice.simplest].estimate.built, 1, 0);
    planned_deinit(&planned);
}

Test(advice, a_worker_alone_has_nothing_to_share_out)
{
    struct planned planned;

    planned_init(&planned,
                 "model: {hidden: [8], classes: 3}\ndata: {train: {path: a.csv}}\n"
                 "batch: {global: 4}\n",
                 1, 1, "cpu");
    struct ct_advice advice = advise(&planned);
    cr_assert_eq(advice.simplest, 0);
    for (int i = 1; i < CT_ADVICE_RUNGS; i++)
        cr_assert_eq(advice.rungs[i].tried, 0);
    cr_assert_not_null(strstr(planned.project.assumed, "64 features are assumed"));
    planned_deinit(&planned);
}

Test(advice, replicas_in_one_process_are_planned_by_their_root)
{
    struct planned planned;
    struct ct_estimate estimate;

    planned_init(&planned,
                 "model: {hidden: [8], classes: 3, input: 6}\ndata: {train: {path: a.csv}}\n"
                 "batch: {global: 8}\nparallel: {strategy: dp, replicate: 4}\n",
                 1, 1, "cpu");
    struct ct_layout layout = ct_project_layout(&planned.project);
    cr_assert_eq(planned.project.world, 4);
    cr_assert_str_eq(ct_layout_strategy(&layout), "dp");
    cr_assert_eq(ct_estimate(&planned.project, &layout, 1000, &estimate, NULL), 0);
    cr_assert_eq(estimate.comm[CT_AXIS_DATA].calls, 4, "broadcast, two scatters, reduce");
    planned_deinit(&planned);
}

Test(advice, a_batch_that_does_not_divide_is_told_with_those_that_do)
{
    struct planned planned;
    struct ct_error err = {0};

    cr_assert_eq(planned_try(&planned,
                             "model: {hidden: [8], classes: 3}\ndata: {train: {path: a.csv}}\n"
                             "batch: {global: 30}\n",
                             2, 4, "cpu", &err),
                 CT_ECONFIG);
    cr_assert_not_null(strstr(err.text, "batch.global 30 does not divide into 8 workers"), "%s",
                       err.text);
    planned_deinit(&planned);
}

Test(advice, text_and_json_say_the_same)
{
    struct planned planned;
    struct ct_estimate estimate;
    struct ct_buf text, json;

    planned_init(&planned,
                 "model: {hidden: [8], classes: 3, input: 6}\ndata: {train: {path: a.csv}}\n"
                 "batch: {global: 8}\n",
                 1, 2, "cpu");
    struct ct_layout layout = ct_project_layout(&planned.project);
    cr_assert_eq(ct_estimate(&planned.project, &layout, 1000, &estimate, NULL), 0);
    struct ct_advice advice = advise(&planned);
    const struct ct_report_of report = {&planned.project, &estimate, &advice};
    ct_buf_init(&text, 0);
    ct_buf_init(&json, 0);
    ct_planner_print(&report, &text);
    ct_planner_json(&report, &json);
    cr_assert_not_null(strstr(ct_buf_str(&text), "batch        8 samples per step: 2 shares x 1 "
                                                 "micro-batch x 4 rows\n"));
    cr_assert_not_null(strstr(ct_buf_str(&text), "advice       --parallel.strategy=ddp "));
    json_t *root = json_loads(ct_buf_str(&json), 0, NULL);
    json_t *own = json_object_get(root, "layout"), *kinds = json_object_get(own, "memory");
    cr_assert_eq(json_integer_value(json_object_get(root, "parameters")), 83);
    cr_assert_str_eq(json_string_value(json_object_get(own, "strategy")), "ddp");
    cr_assert_str_eq(json_string_value(json_object_get(root, "simplest")), "ddp");
    cr_assert_not_null(json_object_get(json_object_get(root, "what_fits"), "fsdp full"));
    double sum = 0;
    const char *kind;
    json_t *bytes;
    json_object_foreach(kinds, kind, bytes) sum += json_number_value(bytes);
    cr_assert_eq(sum, json_number_value(json_object_get(own, "memory_bytes")));
    json_decref(root);
    ct_buf_deinit(&text);
    ct_buf_deinit(&json);
    planned_deinit(&planned);
}
