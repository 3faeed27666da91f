/* See advice.h. */
#include "collectives/planner/advice.h"

#include "base/assert.h"

/* What is quicker by less is a matter of the estimate. */
#define NOTABLY 0.95

static bool fits(const struct ct_project *project, const struct ct_estimate *estimate)
{
    return ct_estimate_memory(estimate) <= project->machine.device.memory_bytes;
}

/* Whether `estimate` is better than what the rung has. */
static bool betters(const struct ct_rung *rung, const struct ct_estimate *estimate, bool fitting)
{
    if (rung->tried == 0 || fitting != rung->fits)
        return rung->tried == 0 || fitting;
    return fitting ? estimate->step_s < rung->estimate.step_s
                   : ct_estimate_memory(estimate) < ct_estimate_memory(&rung->estimate);
}

static int consider(const struct ct_project *project, const struct ct_layout *layout,
                    struct ct_rung *rung, struct ct_error *err)
{
    struct ct_estimate estimate;
    struct ct_error why = {0};
    char words[256];
    int code = ct_estimate(project, layout, CT_ESTIMATE_SEARCH_OPS, &estimate, &why);

    if (code == CT_ENOMEM || code == CT_EBUG)
        return ct_error_set(err, code, "%s: %s", ct_layout_words(layout, words, sizeof words),
                            why.text);
    if (code != 0)
        return 0; /* a layout that cannot be */
    bool fitting = fits(project, &estimate);
    if (betters(rung, &estimate, fitting)) {
        rung->layout = *layout;
        rung->estimate = estimate;
        rung->fits = fitting;
    }
    rung->tried++;
    return 0;
}

/* Whether a micro-batch of so many rows can be built: a divisor of the share, in a list and a model
 * of possible length. */
static bool is_possible(const struct ct_project *project, int64_t share, int64_t micro)
{
    return share % micro == 0 && share / micro <= CT_PLAN_MAX_ACCUMULATION &&
           micro * project->labels_per_row <= CT_GPT_MAX_TOKENS;
}

/* All of them: fewer rows at a time need less for activations, but sharded gradients stay whole
 * while several micro-batches add up. */
static int try_micros(const struct ct_project *project, struct ct_layout layout,
                      struct ct_rung *rung, struct ct_error *err)
{
    int64_t share = ct_project_samples(project, &layout);
    int code = 0;

    for (layout.micro = 1; layout.micro <= share && code == 0; layout.micro++)
        if (is_possible(project, share, layout.micro))
            code = consider(project, &layout, rung, err);
    return code;
}

static int try_recompute(const struct ct_project *project, struct ct_layout layout,
                         struct ct_rung *rung, struct ct_error *err)
{
    bool cut = layout.tensor > 1 || layout.stages > 1;
    int code = 0;

    for (int r = 0; r <= CT_PLAN_RECOMPUTE_BLOCK && code == 0;
         r += cut ? CT_PLAN_RECOMPUTE_BLOCK : 1) {
        layout.recompute = (enum ct_plan_recompute)r;
        code = try_micros(project, layout, rung, err);
    }
    return code;
}

/* One copy over all, one a node, and as many as the configuration wants. */
static int try_copies(const struct ct_project *project, struct ct_layout layout,
                      struct ct_rung *rung, struct ct_error *err)
{
    int copies[] = {1, project->machine.nodes, project->options.replicas}, code = 0;
    int sharers = project->world / layout.tensor / layout.stages;

    for (size_t i = 0; i < CT_COUNT(copies) && code == 0; i++) {
        bool again = copies[i] == copies[0] || (i > 1 && copies[i] == copies[1]);
        bool whole = layout.shard == CT_PLAN_SHARD_NONE || sharers / copies[i] < 2;
        if (i > 0 && (again || whole))
            continue;
        layout.replicas = copies[i];
        code = try_recompute(project, layout, rung, err);
    }
    return code;
}

/* ---- the tree ------------------------------------------------------------------------------- */

/* A rung: how far what is held is shared out, and whether layers and the model are cut. */
static const struct step {
    const char *name;
    enum ct_plan_shard least, most;
    bool slices, stages;
} tree[CT_ADVICE_RUNGS] = {
    {"ddp", CT_PLAN_SHARD_NONE, CT_PLAN_SHARD_NONE, false, false},
    {"zero1", CT_PLAN_SHARD_OPTIM, CT_PLAN_SHARD_OPTIM, false, false},
    {"fsdp grad", CT_PLAN_SHARD_GRAD, CT_PLAN_SHARD_GRAD, false, false},
    {"fsdp full", CT_PLAN_SHARD_FULL, CT_PLAN_SHARD_FULL, false, false},
    {"tensor", CT_PLAN_SHARD_NONE, CT_PLAN_SHARD_FULL, true, false},
    {"pipeline", CT_PLAN_SHARD_NONE, CT_PLAN_SHARD_OPTIM, true, true},
};

/* Whether workers that are cut so far can share out so much. */
static bool is_sensible(const struct ct_project *project, const struct ct_layout *layout)
{
    int sharers = project->world / layout->tensor / layout->stages;

    return layout->shard == CT_PLAN_SHARD_NONE || sharers > 1;
}

static int try_rung(const struct ct_project *project, const struct step *step, struct ct_rung *rung,
                    struct ct_error *err)
{
    const struct ct_machine *machine = &project->machine;
    struct ct_layout layout = {.tensor = 1, .stages = 1, .replicas = 1};
    int slices = step->slices ? machine->per_node : 1, stages = step->stages ? machine->nodes : 1;
    int code = 0;

    rung->name = step->name;
    if (step->stages && stages == 1)
        return 0;
    for (int t = step->slices && !step->stages ? 2 : 1; t <= slices && code == 0;
         t *= step->stages ? CT_MAX(slices, 2) : 2)
        for (int s = (int)step->least; s <= (int)step->most && code == 0; s++) {
            layout.stages = stages;
            layout.tensor = t;
            layout.shard = (enum ct_plan_shard)s;
            if (project->world % (t * stages) == 0 && machine->per_node % t == 0 &&
                is_sensible(project, &layout))
                code = try_copies(project, layout, rung, err);
        }
    return code;
}

/* The whole plan of a rung's best, where it can be built. */
static int estimate_whole(const struct ct_project *project, struct ct_rung *rung,
                          struct ct_error *err)
{
    int code = ct_estimate(project, &rung->layout, CT_ESTIMATE_WHOLE_OPS, &rung->estimate, err);

    if (code == 0)
        rung->fits = fits(project, &rung->estimate);
    return code;
}

int ct_advise(const struct ct_project *project, struct ct_advice *ret, struct ct_error *err)
{
    int code = 0;

    *ret = (struct ct_advice){.simplest = -1, .quickest = -1};
    for (int i = 0; i < CT_ADVICE_RUNGS && code == 0; i++) {
        struct ct_rung *rung = &ret->rungs[i];
        code = try_rung(project, &tree[i], rung, err);
        if (code == 0 && rung->tried > 0)
            code = estimate_whole(project, rung, err);
        if (code != 0 || !rung->fits)
            continue;
        if (ret->simplest < 0)
            ret->simplest = i;
        if (ret->quickest < 0 ||
            rung->estimate.step_s < NOTABLY * ret->rungs[ret->quickest].estimate.step_s)
            ret->quickest = i;
    }
    return code;
}
