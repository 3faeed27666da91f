/* Row E20 for every way of sharing the work: a step and an evaluation touch the arena to the last
 * byte that the plan says and none behind it, and no way takes more than its formula. */
#include "tests/unit/exec/fixture.h"

#include "base/assert.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

TestSuite(arena, .timeout = 60);

static const struct layout {
    const char *name;
    int world;
    struct ct_plan_options options; /* of these, what is not zero */
} layouts[] = {
    {"one rank", 1, {.reduce = CT_PLAN_FAST}},
    {"ddp", 4, {.reduce = CT_PLAN_FAST}},
    {"ddp, invariant", 2, {.reduce = CT_PLAN_INVARIANT}},
    {"dp", 4, {.rooted = true}},
    {"zero1", 4, {.shard = CT_PLAN_SHARD_OPTIM}},
    {"fsdp grad", 4, {.shard = CT_PLAN_SHARD_GRAD, .prefetch = 1}},
    {"fsdp full", 4, {.shard = CT_PLAN_SHARD_FULL, .prefetch = 1}},
    {"fsdp full, 8 ranks", 8, {.shard = CT_PLAN_SHARD_FULL}},
    {"hybrid", 4, {.shard = CT_PLAN_SHARD_FULL, .replicas = 2, .prefetch = 2}},
    {"two slices", 2, {.tensor = 2}},
    {"slices by tokens", 2, {.tensor = 2, .sequence = true}},
    {"sharded slices", 4, {.tensor = 2, .shard = CT_PLAN_SHARD_FULL, .prefetch = 1}},
    {"gpipe", 2, {.stages = 2, .order = CT_PLAN_GPIPE}},
    {"1f1b", 4, {.stages = 4, .order = CT_PLAN_1F1B}},
    {"interleaved", 2, {.stages = 2, .chunks = 2, .order = CT_PLAN_INTERLEAVED}},
    {"stages, zero1", 4, {.stages = 2, .order = CT_PLAN_1F1B, .shard = CT_PLAN_SHARD_OPTIM}},
    {"2 x 2 x 2", 8, {.stages = 2, .tensor = 2, .order = CT_PLAN_1F1B}},
    {"recomputed blocks", 2, {.recompute = CT_PLAN_RECOMPUTE_BLOCK}},
    {"recomputed gelu", 2, {.recompute = CT_PLAN_RECOMPUTE_GELU}},
    {"offload", 2, {.offload = true}},
    {"bf16", 2, {.compute = CT_BF16}},
    {"f16, fsdp", 2, {.compute = CT_F16, .shard = CT_PLAN_SHARD_FULL}},
    {"bf16, fsdp grad", 2, {.compute = CT_BF16, .shard = CT_PLAN_SHARD_GRAD}},
    {"bf16, sharded slices", 4, {.compute = CT_BF16, .tensor = 2, .shard = CT_PLAN_SHARD_GRAD}},
    {"sums in bf16", 2, {.reduce_dtype = CT_BF16}},
    {"average", 2, {.optim = {.ema = 0.5}}},
};

enum { TOKENS = 8, MICRO = 4, ACCUMULATION = 4 };

static struct run run_of(const struct layout *layout)
{
    struct run run = run_gpt(4, 16);
    struct ct_plan_options *o = &run.options;
    const struct ct_plan_options *said = &layout->options;
    int copies = CT_MAX(said->tensor, 1) * CT_MAX(said->stages, 1);

    *o = *said;
    o->world = layout->world;
    o->micro_rows = MICRO;
    o->accumulation = ACCUMULATION;
    o->eval_rows = MICRO;
    o->bucket_bytes = 4096;
    o->first_bucket_bytes = 1024;
    o->overlap = true;
    o->optim = (struct ct_optim_spec){.type = CT_OPTIM_ADAMW,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .eps = 1e-8,
                                      .clip = 1,
                                      .weight_decay = 0.1,
                                      .groups = {.vectors_undecayed = true},
                                      .ema = said->optim.ema};
    CT_ASSERT(layout->world % copies == 0);
    return run;
}

/* One step and one evaluation on all ranks, with what lies behind the state poisoned. */
static void touch(struct rig *rig, const struct run *run, struct ct_group *group, int poison)
{
    static _Thread_local int32_t x[8 * MICRO * ACCUMULATION * TOKENS], labels[CT_COUNT(x)];
    const struct ct_plan *plan = &rig->plan;
    unsigned char *arena = ct_exec_arena(rig->exec);
    int64_t mine = run->options.micro_rows * run->options.accumulation;
    int64_t ranks = ct_mesh_size(&plan->mesh, CT_AXIS_DATA);
    struct ct_exec_step step = {
        .x = x, .labels = labels, .valid_count = mine * ranks * TOKENS, .lr = 0.1, .update = 1};
    struct ct_exec_eval eval = {.x = x, .labels = labels};
    struct ct_exec_result result;
    struct ct_exec_sums sums;
    struct ct_error err = {0};

    memset(arena + plan->grads_bytes, poison, plan->arena_bytes - plan->grads_bytes);
    fill_rows(&run->spec, 0, run->options.rooted ? mine * run->options.world : mine, x, labels);
    cr_assert_eq(ct_exec_step(rig->exec, &step, &result, &err), 0, "%s", err.text);
    if (group != NULL)
        cr_assert_eq(ct_barrier(group, NULL), 0);
    cr_assert_eq(ct_exec_eval(rig->exec, &eval, &sums, &err), 0, "%s", err.text);
}

static int body(struct ct_job *job, void *context)
{
    static const unsigned char poisons[] = {0x5a, 0xa7};
    const struct layout *layout = context;
    struct run run = run_of(layout);
    struct ct_group *group = NULL;
    struct rig rig;
    size_t high = 0;

    if (job != NULL)
        cr_assert_eq(ct_group_new(job, NULL, &group, NULL), 0);
    run.options.rank = group != NULL ? ct_group_rank(group) : 0;
    rig_init(&rig, &run, group);
    const unsigned char *arena = ct_exec_arena(rig.exec);
    for (size_t p = 0; p < CT_COUNT(poisons); p++) {
        touch(&rig, &run, group, poisons[p]);
        for (size_t i = rig.plan.arena_bytes; i > high; i--)
            if (arena[i - 1] != poisons[p])
                high = i;
    }
    cr_assert_eq(high, rig.plan.arena_bytes, "%s, rank %d: %zu of %zu bytes", layout->name,
                 run.options.rank, high, rig.plan.arena_bytes);
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

Test(arena, is_used_to_the_last_byte_that_the_plan_says_in_every_layout)
{
    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct layout layout = layouts[i];
        struct ct_thread_world *world;
        if (layout.world == 1) {
            (void)body(NULL, &layout);
            continue;
        }
        cr_assert_eq(ct_thread_world_new(layout.world, &world), 0);
        cr_assert_eq(thread_ranks_run(world, body, &layout), 0, "%s", layout.name);
        ct_thread_world_free(world);
    }
}

/* ---- formulas -------------------------------------------------------------------------------- */

enum { DEEP = 8, WIDE = 64, EACH = WIDE * WIDE + WIDE };

static const int64_t deep[DEEP] = {WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, WIDE};

static struct run deep_run(int world, enum ct_plan_shard shard)
{
    struct run run = run_default();

    run.spec.input = run.spec.classes = WIDE;
    run.spec.hidden = deep;
    run.spec.hidden_count = DEEP;
    run.options.world = world;
    run.options.accumulation = 1;
    run.options.shard = shard;
    run.options.prefetch = 1;
    run.options.optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    return run;
}

/* Arena of rank 0, and of it what is neither state nor gradients. */
static size_t arena_of(const struct run *run, size_t *ret_rest)
{
    struct ct_plan plan;
    struct ct_error err = {0};

    cr_assert_eq(ct_plan_build(&plan, &run->spec, &run->options, 1, &err), 0, "%s", err.text);
    size_t bytes = plan.arena_bytes;
    if (ret_rest != NULL)
        *ret_rest = bytes - plan.grads_bytes;
    ct_plan_deinit(&plan);
    return bytes;
}

/* Rajbhandari et al. 2020 with everything in f32, bytes of P parameters over N ranks: whole are
 * parameters and gradients (none: and the two moments); of the rest, with the sums of gradients
 * that the update reads, each rank has its part. Fully sharded, whole are two layers' parameters
 * (one is asked for while another is used) and one's gradients. */
Test(arena, no_strategy_takes_more_than_its_formula)
{
    static const struct {
        enum ct_plan_shard shard;
        size_t whole, parts, units;
    } rows[] = {
        {CT_PLAN_SHARD_NONE, 4, 0, 0},
        {CT_PLAN_SHARD_OPTIM, 2, 3, 0},
        {CT_PLAN_SHARD_GRAD, 2, 4, 0},
        {CT_PLAN_SHARD_FULL, 0, 4, 3},
    };

    for (size_t world = 2; world <= 8; world *= 2)
        for (size_t i = 0; i < CT_COUNT(rows); i++) {
            struct run run = deep_run((int)world, rows[i].shard);
            struct run none = deep_run((int)world, CT_PLAN_SHARD_NONE);
            size_t unit = EACH * sizeof(float) + 64 * world, all = (DEEP + 1) * unit, rest = 0;
            (void)arena_of(&none, &rest);
            size_t limit =
                rows[i].whole * all + rows[i].parts * all / world + rows[i].units * unit + rest;
            size_t bytes = arena_of(&run, NULL);
            cr_assert_leq(bytes, limit, "sharding %zu over %zu: %zu above %zu", i, world, bytes,
                          limit);
            cr_assert_geq(bytes, limit * 6 / 10, "sharding %zu over %zu: %zu of %zu", i, world,
                          bytes, limit);
        }
}
