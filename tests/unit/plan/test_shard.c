/* Sharding: units, parts, the place of gathers and scatters, and the verifier's objections. */
#include "tests/unit/plan/fixture.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <string.h>

TestSuite(shard, .timeout = 30);

/* One queue, one micro-batch: only the order of the list counts. */
static void build(struct ct_plan *plan, enum ct_plan_shard shard)
{
    struct ct_plan_options options = plan_options;

    options.shard = shard;
    options.overlap = false;
    options.accumulation = 1;
    plan_init(plan, &options);
}

static int count_ops(const struct ct_plan *plan, int kind)
{
    int count = 0;

    while (find_op(plan, kind, count) >= 0)
        count++;
    return count;
}

Test(shard, a_unit_is_a_layer_or_block)
{
    static const struct ct_gpt_spec gpt = {
        .vocabulary = 11, .context = 8, .sequence = 4, .layers = 2, .heads = 2, .width = 8};
    static const char *const firsts[] = {"ln_f.weight", "h.1.ln_1.weight", "h.0.ln_1.weight",
                                         "wpe.weight", "wte.weight"};
    struct ct_model_spec spec = {.type = CT_MODEL_GPT, .dtype = CT_F32, .gpt = gpt};
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;
    struct ct_error err = {0};

    options.shard = CT_PLAN_SHARD_FULL;
    cr_assert_eq(ct_plan_build(&plan, &spec, &options, 1, &err), 0, "%s", err.text);
    cr_assert_eq(plan.bucket_count, (int)CT_COUNT(firsts));
    for (int k = 0; k < plan.bucket_count; k++)
        cr_assert_str_eq(plan.tensors[plan.buckets[k].first_param].name, firsts[k]);
    ct_plan_deinit(&plan);
}

Test(shard, the_parts_of_all_ranks_make_each_bucket_once)
{
    for (int shard = CT_PLAN_SHARD_OPTIM; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct ct_plan plan;
        size_t end = 0, mine = 0;
        build(&plan, (enum ct_plan_shard)shard);
        for (int k = 0; k < plan.bucket_count; k++) {
            for (int rank = 0; rank < plan.shards; rank++) {
                struct ct_plan_part part = ct_plan_part(&plan, k, rank);
                cr_assert_eq(part.flat_bytes, end);
                cr_assert_eq(part.bytes % CT_PLAN_ALIGN, 0);
                cr_assert_eq(part.shard_bytes, mine);
                end += part.bytes;
            }
            mine += ct_plan_part(&plan, k, 0).bytes;
        }
        cr_assert_eq(end, plan.flat_bytes);
        cr_assert_eq(mine, plan.shard_bytes);
        ct_plan_deinit(&plan);
    }
}

Test(shard, a_rank_holds_what_the_way_of_sharding_says)
{
    for (int shard = CT_PLAN_SHARD_OPTIM; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct ct_plan plan;
        build(&plan, (enum ct_plan_shard)shard);
        size_t params = shard == CT_PLAN_SHARD_OPTIM ? plan.flat_bytes : plan.flat_bytes / 4;
        cr_assert_eq(plan.state_bytes, params + plan.flat_bytes / 4); /* one moment */
        cr_assert_eq(plan.grads_bytes, plan.state_bytes + plan.flat_bytes / 4);
        ct_plan_deinit(&plan);
    }
}

Test(shard, nothing_is_sharded_where_one_rank_would_hold_it_all)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan whole, plan;

    plan_init(&whole, &options);
    options.shard = CT_PLAN_SHARD_FULL;
    options.replicas = 4;
    plan_init(&plan, &options);
    cr_assert_eq(plan.shards, 1);
    cr_assert_eq(plan.hash, whole.hash);
    ct_plan_deinit(&whole);
    ct_plan_deinit(&plan);
}

Test(shard, a_unit_is_gathered_for_each_pass_or_once_and_scattered_once)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan full, grad, optim;

    options.shard = CT_PLAN_SHARD_FULL;
    plan_init(&full, &options);
    options.shard = CT_PLAN_SHARD_GRAD;
    plan_init(&grad, &options);
    options.shard = CT_PLAN_SHARD_OPTIM;
    plan_init(&optim, &options);
    /* Three layers: forward each, backward the second (the third is still there, the first needs
     * its weights no more); the next forward begins with the first. */
    cr_assert_eq(count_ops(&full, CT_OP_ALL_GATHER), options.accumulation * 4);
    cr_assert_eq(count_ops(&grad, CT_OP_ALL_GATHER), 3);
    cr_assert_eq(count_ops(&optim, CT_OP_ALL_GATHER), optim.bucket_count);
    cr_assert_eq(count_ops(&full, CT_OP_REDUCE_SCATTER), 3);
    cr_assert_eq(count_ops(&optim, CT_OP_REDUCE_SCATTER), optim.bucket_count);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(full.step.program.ops[find_op(&full, CT_OP_REDUCE_SCATTER, i)].micro,
                     options.accumulation - 1);
    ct_plan_deinit(&full);
    ct_plan_deinit(&grad);
    ct_plan_deinit(&optim);
}

static bool reads(const struct ct_program *program, int op, int root)
{
    for (int k = 0; k < CT_OP_MAX_IN; k++)
        if (program->ops[op].in[k] != CT_NONE &&
            program->values[program->ops[op].in[k]].root == root)
            return true;
    return false;
}

/* How many ops stand between the n-th gather and its first reader. */
static int distance(const struct ct_plan *plan, int nth)
{
    const struct ct_program *program = &plan->step.program;
    int gather = find_op(plan, CT_OP_ALL_GATHER, nth), reader = gather + 1;

    while (!reads(program, reader, program->ops[gather].out[0]))
        reader++;
    return reader - gather - 1;
}

Test(shard, a_prefetched_unit_is_gathered_in_front_of_the_unit_before)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan late, early;

    options.shard = CT_PLAN_SHARD_FULL;
    plan_init(&late, &options);
    options.prefetch = 1;
    plan_init(&early, &options);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(distance(&late, i), 0);
    cr_assert_gt(distance(&early, 1), 0);
    cr_assert_gt(distance(&early, 2), 0);
    cr_assert_geq(early.arena_bytes, late.arena_bytes);
    ct_plan_deinit(&late);
    ct_plan_deinit(&early);
}

Test(shard, all_ranks_have_one_hash_and_other_ways_have_others)
{
    struct ct_plan_options options = plan_options;
    uint64_t hashes[5];

    for (int way = 0; way < 5; way++) {
        options.shard = way == 0   ? CT_PLAN_SHARD_OPTIM
                        : way == 1 ? CT_PLAN_SHARD_GRAD
                                   : CT_PLAN_SHARD_FULL;
        options.replicas = way == 3 ? 2 : 1;
        options.prefetch = way == 4 ? 1 : 0;
        for (options.rank = 0; options.rank < 4; options.rank++) {
            struct ct_plan plan;
            plan_init(&plan, &options);
            cr_assert(options.rank == 0 || plan.hash == hashes[way], "rank %d", options.rank);
            hashes[way] = plan.hash;
            ct_plan_deinit(&plan);
        }
        for (int other = 0; other < way; other++)
            cr_assert_neq(hashes[way], hashes[other], "%d and %d", way, other);
    }
}

Test(shard, the_verifier_accepts_every_plan)
{
    for (int variant = 0; variant < 2 * 3 * 3 * 3 * 2; variant++) {
        struct ct_plan_options options = plan_options;
        struct ct_plan plan;
        options.shard = (enum ct_plan_shard)(1 + variant % 3);
        options.reduce = (enum ct_plan_reduce)(variant / 3 % 3);
        options.prefetch = variant / 9 % 3;
        options.replicas = 1 + variant / 27 % 2;
        options.overlap = variant / 54 % 2 == 0;
        options.accumulation = 1 + variant % 5;
        options.rank = variant % 4;
        plan_init(&plan, &options);
        ct_plan_deinit(&plan); /* building it verified it */
    }
}

/* ---- planted faults -------------------------------------------------------------------------- */

Test(shard, rejects_parameters_that_are_not_gathered_behind_the_update)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_OPTIM);
    drop_op(&plan, find_op(&plan, CT_OP_ALL_GATHER, 1));
    expect_objection(&plan, "'params' is not gathered");
}

Test(shard, rejects_a_gather_before_the_update)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_OPTIM);
    move_op(&plan, find_op(&plan, CT_OP_ALL_GATHER, 0), find_op(&plan, CT_OP_SUMSQ, 0));
    expect_objection(&plan, "'params' is not gathered");
}

Test(shard, rejects_a_norm_of_this_ranks_part_alone)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_FULL);
    drop_op(&plan, find_op(&plan, CT_OP_ALL_REDUCE, 1)); /* the first one reduces the sums */
    expect_objection(&plan, "(clip_scale) reads 'sumsq' before its reduction");
}

Test(shard, rejects_a_gradient_that_is_scattered_twice)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_FULL);
    int scatter = find_op(&plan, CT_OP_REDUCE_SCATTER, 2);
    plan.step.program.ops[scatter + 1] = plan.step.program.ops[scatter];
    expect_objection(&plan, "reduces 'part' a second time");
}

Test(shard, rejects_a_gradient_that_is_not_scattered)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_FULL);
    drop_op(&plan, find_op(&plan, CT_OP_REDUCE_SCATTER, 0));
    expect_objection(&plan, "(sumsq) reads 'grads', of which byte");
}

Test(shard, rejects_a_scatter_before_the_last_writer)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_FULL);
    int scatter = find_op(&plan, CT_OP_REDUCE_SCATTER, 0);
    move_op(&plan, scatter, scatter - 1);
    expect_objection(&plan, "(reduce_scatter) reads 'whole0'");
}

Test(shard, rejects_a_unit_that_is_read_before_it_is_gathered)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_FULL);
    int gather = find_op(&plan, CT_OP_ALL_GATHER, 0);
    move_op(&plan, gather, gather + 1);
    expect_objection(&plan, "(linear) reads 'layers.0.weight'");
}

Test(shard, rejects_parts_that_are_not_summed_over_the_copies)
{
    struct ct_plan_options options = plan_options;
    struct ct_plan plan;

    options.shard = CT_PLAN_SHARD_FULL;
    options.replicas = 2;
    options.overlap = false;
    plan_init(&plan, &options);
    drop_op(&plan, find_op(&plan, CT_OP_ALL_REDUCE, 1));
    expect_objection(&plan, "before its reduction");
}

Test(shard, rejects_a_unit_placed_over_one_in_use)
{
    struct ct_plan plan;

    build(&plan, CT_PLAN_SHARD_GRAD);
    const struct ct_program *program = &plan.step.program;
    plan.step.offset[program->ops[find_op(&plan, CT_OP_ALL_GATHER, 2)].out[0]] =
        plan.step.offset[program->ops[find_op(&plan, CT_OP_ALL_GATHER, 1)].out[0]];
    expect_objection(&plan, "by then");
}

Test(shard, what_cannot_be_shared_out_is_refused_with_the_key)
{
    struct ct_plan_options rows[] = {plan_options, plan_options, plan_options};
    static const char *const says[] = {"parallel.replicate is 3, must divide the 4 workers",
                                       "parallel.prefetch is -1, must be from 0 to 64",
                                       "rank 4 is not one of 4"};

    rows[0].replicas = 3;
    rows[1].prefetch = -1;
    rows[2].rank = 4;
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_plan plan;
        struct ct_error err = {0};
        rows[i].shard = CT_PLAN_SHARD_FULL;
        cr_assert_eq(ct_plan_build(&plan, &plan_spec, &rows[i], 1, &err), CT_ECONFIG);
        cr_assert_str_eq(err.text, says[i]);
        ct_plan_deinit(&plan);
    }
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

static struct ct_model_spec small_gpt(void)
{
    return (struct ct_model_spec){.type = CT_MODEL_GPT,
                                  .dtype = CT_F32,
                                  .gpt = {.vocabulary = 11,
                                          .context = 8,
                                          .sequence = 4,
                                          .layers = 3,
                                          .heads = 2,
                                          .width = 16,
                                          .untied = true}};
}

static void build_gpt(struct ct_plan *plan, enum ct_plan_shard shard, enum ct_dtype compute)
{
    const struct ct_model_spec spec = small_gpt();
    struct ct_plan_options options = plan_options;
    struct ct_error err = {0};

    options.shard = shard;
    options.compute = compute;
    options.prefetch = 1;
    options.accumulation = 1;
    cr_assert_eq(ct_plan_build(plan, &spec, &options, 1, &err), 0, "%s", err.text);
}

/* Bytes that gathers give in a step, by their type. */
static size_t gathered(const struct ct_plan *plan, enum ct_dtype dtype)
{
    size_t bytes = 0;

    for (int i = 0; i < plan->step.program.op_count; i++) {
        const struct ct_program_op *op = &plan->step.program.ops[i];
        if (op->kind == CT_OP_ALL_GATHER && plan->step.program.values[op->out[0]].dtype == dtype)
            bytes += plan->step.program.values[op->out[0]].bytes;
    }
    return bytes;
}

Test(shard, what_products_read_is_gathered_in_16_bits_and_nothing_else_is)
{
    for (int shard = CT_PLAN_SHARD_GRAD; shard <= CT_PLAN_SHARD_FULL; shard++) {
        struct ct_plan wide, plan;
        build_gpt(&wide, (enum ct_plan_shard)shard, CT_F32);
        build_gpt(&plan, (enum ct_plan_shard)shard, CT_BF16);
        size_t all = gathered(&wide, CT_F32), narrow = gathered(&plan, CT_BF16);
        cr_assert_eq(gathered(&wide, CT_BF16), 0);
        cr_assert_gt(narrow, all / 3, "%zu of %zu bytes are narrow", narrow, all);
        cr_assert_lt(gathered(&plan, CT_F32), all / 4, "embeddings, norms, biases");
        /* No gathered parameter is narrowed behind its gather. */
        for (int i = 0; i < plan.step.program.op_count; i++) {
            const struct ct_program_op *op = &plan.step.program.ops[i];
            const struct ct_value *in =
                op->kind == CT_OP_NARROW ? &plan.step.program.values[op->in[0]] : NULL;
            cr_assert(in == NULL || strncmp(in->name, "full", 4) != 0);
            cr_assert(in == NULL || strstr(in->name, ".weight") == NULL, "%s", in->name);
        }
        cr_assert_eq(plan.state_bytes, 2 * plan.shard_bytes, "masters are f32");
        ct_plan_deinit(&wide);
        ct_plan_deinit(&plan);
    }
}

/* Both parts of a unit are gathered one behind the other, in front of the unit before. */
Test(shard, a_unit_in_two_types_is_prefetched_as_one)
{
    struct ct_plan plan;

    build_gpt(&plan, CT_PLAN_SHARD_FULL, CT_BF16);
    const struct ct_program *program = &plan.step.program;
    int units = 0;
    for (int i = 0; i + 2 < program->op_count; i++)
        units += program->ops[i].kind == CT_OP_ALL_GATHER &&
                 program->ops[i + 1].kind == CT_OP_NARROW &&
                 program->ops[i + 2].kind == CT_OP_ALL_GATHER;
    cr_assert_geq(units, 3, "blocks of the forward pass: norms first, then products");
    for (int i = 0; i < units; i++)
        cr_assert_gt(distance(&plan, i), 0, "gather %d", i);
    ct_plan_deinit(&plan);
}

Test(shard, the_parts_of_all_ranks_make_each_bucket_once_in_16_bits)
{
    struct ct_plan plan;
    size_t end = 0;

    build_gpt(&plan, CT_PLAN_SHARD_FULL, CT_BF16);
    for (int k = 0; k < plan.bucket_count; k++) {
        const struct ct_bucket *bucket = &plan.buckets[k];
        size_t at = end;
        cr_assert_eq(bucket->offset_bytes, end);
        for (int i = bucket->last_param; i >= bucket->first_param; i--) {
            if (!ct_plan_in_bucket(&plan, bucket, i))
                continue;
            cr_assert_eq(plan.tensors[i].flat_bytes, at, "%s", plan.tensors[i].name);
            at += ct_plan_align(plan.tensors[i].held_bytes);
        }
        cr_assert_leq(at, end + bucket->bytes);
        end += bucket->bytes;
    }
    cr_assert_eq(end, plan.flat_bytes);
    ct_plan_deinit(&plan);
}
