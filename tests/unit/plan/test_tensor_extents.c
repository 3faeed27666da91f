/* Pieces: those of all ranks are every tensor, in every layout. */
#include "collectives/plan/tensor_extents.h"

#include "base/assert.h"
#include "tests/unit/plan/fixture.h"

#include <criterion/criterion.h>

#include <stdlib.h>

TestSuite(tensor_extents, .timeout = 30);

/* Layouts of a small GPT: how it is sharded, ranks, copies. */
static const struct layout {
    enum ct_plan_shard shard;
    int world, replicas;
} layouts[] = {
    {CT_PLAN_SHARD_NONE, 1, 1},  {CT_PLAN_SHARD_NONE, 3, 1}, {CT_PLAN_SHARD_OPTIM, 2, 1},
    {CT_PLAN_SHARD_GRAD, 4, 1},  {CT_PLAN_SHARD_FULL, 3, 1}, {CT_PLAN_SHARD_FULL, 4, 2},
    {CT_PLAN_SHARD_OPTIM, 8, 4},
};

static void build(struct ct_plan *plan, const struct layout *layout, int rank)
{
    static const struct ct_gpt_spec gpt = {
        .vocabulary = 515, .context = 8, .sequence = 4, .layers = 2, .heads = 2, .width = 24};
    const struct ct_model_spec spec = {.type = CT_MODEL_GPT, .dtype = CT_F32, .gpt = gpt};
    struct ct_plan_options options = plan_options;
    struct ct_error err = {0};

    options.shard = layout->shard;
    options.world = layout->world;
    options.replicas = layout->replicas;
    options.rank = rank;
    options.optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    cr_assert_eq(ct_plan_build(plan, &spec, &options, 1, &err), 0, "%s", err.text);
}

/* How often each byte of each tensor was seen. */
struct count {
    size_t bytes, *first; /* of all tensors; where each begins */
    unsigned char *held, *owned;
};

static void count_init(struct count *count, const struct ct_plan *plan)
{
    *count = (struct count){.first = calloc((size_t)plan->tensor_count, sizeof *count->first)};
    cr_assert_not_null(count->first);
    for (int i = 0; i < plan->tensor_count; i++) {
        count->first[i] = count->bytes;
        count->bytes += plan->tensors[i].bytes;
    }
    count->held = calloc(count->bytes, 1);
    count->owned = calloc(count->bytes, 1);
    cr_assert(count->held != NULL && count->owned != NULL);
}

static void count_rank(struct count *count, const struct ct_plan *plan)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;
    int last = 0;

    for (ct_plan_walk_init(&walk, plan); ct_plan_walk_next(&walk, &piece);) {
        cr_assert(piece.tensor >= last && piece.tensor < plan->tensor_count);
        cr_assert(piece.bytes > 0 && piece.copy >= 0 && piece.copy < piece.copies);
        cr_assert(piece.at + piece.bytes <= plan->tensors[piece.tensor].bytes);
        cr_assert(piece.arena + piece.bytes <= plan->state_bytes);
        last = piece.tensor;
        for (size_t i = 0; i < piece.bytes; i++)
            count->held[count->first[piece.tensor] + piece.at + i]++;
        if (!ct_plan_own(&piece))
            continue;
        for (size_t i = 0; i < piece.bytes; i++)
            count->owned[count->first[piece.tensor] + piece.at + i]++;
    }
}

Test(tensor_extents, those_of_all_ranks_are_every_byte_and_each_is_one_ranks_to_write)
{
    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct count count = {0};
        int copies = 0;
        for (int rank = 0; rank < layouts[i].world; rank++) {
            struct ct_plan plan;
            build(&plan, &layouts[i], rank);
            if (rank == 0)
                count_init(&count, &plan);
            count_rank(&count, &plan);
            copies = layouts[i].world / plan.shards;
            ct_plan_deinit(&plan);
        }
        for (size_t at = 0; at < count.bytes; at++) {
            cr_assert(count.held[at] >= copies, "layout %zu, byte %zu", i, at);
            cr_assert_eq(count.owned[at], 1, "layout %zu, byte %zu", i, at);
        }
        free(count.first);
        free(count.held);
        free(count.owned);
    }
}

Test(tensor_extents, of_one_tensor_are_those_of_the_walk_over_all)
{
    struct ct_plan plan;
    struct ct_plan_walk all, one;
    struct ct_plan_piece piece, same;

    build(&plan, &layouts[3], 2);
    ct_plan_walk_init(&all, &plan);
    for (int i = 0; i < plan.tensor_count; i++)
        for (ct_plan_walk_tensor(&one, &plan, i); ct_plan_walk_next(&one, &same);) {
            cr_assert(ct_plan_walk_next(&all, &piece));
            cr_assert(piece.tensor == i && same.tensor == i && piece.at == same.at);
            cr_assert(piece.arena == same.arena && piece.bytes == same.bytes);
        }
    cr_assert_not(ct_plan_walk_next(&all, &piece));
    ct_plan_deinit(&plan);
}
