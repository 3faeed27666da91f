/* Evidence: what judging a job costs, counted in rows that are looked at. */
#include "diagnose/evidence.h"

#include "base/assert.h"
#include "diagnose/verdict.h"
#include "wire/flight.h"
#include "wire/worker_record.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(evidence, .timeout = 60);

enum { GROUPS = 4, STEPS_A_ROW = 64 };

/* A job of `ranks` ranks, each of which has made `calls` calls in GROUPS groups. */
struct scene {
    struct ct_wire_trace_rank *ranks;
    struct ct_wire_trace_group *groups;
    struct ct_wire_trace_call *calls;
    struct ct_msg_traces all;
};

static struct scene scene_new(uint32_t ranks, uint32_t calls)
{
    struct scene scene = {.ranks = calloc(ranks, sizeof *scene.ranks),
                          .groups = calloc((size_t)ranks * GROUPS, sizeof *scene.groups),
                          .calls = calloc((size_t)ranks * calls, sizeof *scene.calls)};
    uint32_t each = calls / GROUPS;
    uint64_t what = ct_signature_pack(
        &(struct ct_signature_fields){.kind = CT_CALL_ALL_REDUCE, .dtype = CT_F32});

    CT_ASSERT(scene.ranks != NULL && scene.groups != NULL && scene.calls != NULL);
    scene.all.ranks.data = scene.ranks;
    scene.all.groups.data = scene.groups;
    scene.all.calls.data = scene.calls;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        scene.ranks[scene.all.ranks.count++] =
            (struct ct_wire_trace_rank){.rank = rank, .host = "b", .doing = ""};
        for (uint32_t id = 1; id <= GROUPS; id++)
            scene.groups[scene.all.groups.count++] = (struct ct_wire_trace_group){.rank = rank,
                                                                                  .id = id,
                                                                                  .member = rank,
                                                                                  .size = ranks,
                                                                                  .entered = each,
                                                                                  .completed = each,
                                                                                  .awaited = -1,
                                                                                  .name = "g"};
        for (uint32_t i = each * GROUPS; i-- > 0;) /* the newest first, as agents tell them */
            scene.calls[scene.all.calls.count++] =
                (struct ct_wire_trace_call){.rank = rank,
                                            .group = 1 + i % GROUPS,
                                            .number = 1 + i / GROUPS,
                                            .count = 64,
                                            .what = what,
                                            .state = CT_FLIGHT_COMPLETED,
                                            .site = ""};
    }
    return scene;
}

static void scene_free(struct scene *scene)
{
    free(scene->ranks);
    free(scene->groups);
    free(scene->calls);
}

static struct ct_wire_trace_group *group_of(struct scene *scene, uint32_t rank, uint32_t id)
{
    return &scene->groups[rank * GROUPS + id - 1];
}

static void wait_in(struct scene *scene, uint32_t rank, uint32_t id)
{
    struct ct_wire_trace_group *group = group_of(scene, rank, id);

    group->waiting = ++group->entered;
    group->waited_ms = 3000;
}

static uint64_t rows_of(const struct scene *scene)
{
    return scene->all.ranks.count + scene->all.groups.count + scene->all.calls.count;
}

static uint64_t expect(const struct scene *scene, enum ct_verdict_kind kind, uint32_t rank)
{
    struct ct_verdict verdict;

    cr_assert(ct_verdict_find(&scene->all, &verdict));
    cr_assert_eq(verdict.kind, kind, "%s", ct_verdict_name(verdict.kind));
    cr_assert_eq(verdict.culprit->rank, rank);
    cr_assert_leq(verdict.steps, STEPS_A_ROW * rows_of(scene), "%llu steps for %llu rows",
                  (unsigned long long)verdict.steps, (unsigned long long)rows_of(scene));
    return verdict.steps;
}

/* 2,097,152 records: sorting them twice takes at most 42 steps a record. */
Test(evidence, full_recorders_of_512_ranks_are_judged_in_the_steps_of_sorting)
{
    struct scene scene = scene_new(512, CT_FLIGHT_ENTRIES);

    for (uint32_t rank = 0; rank < 512; rank++)
        if (rank != 300)
            wait_in(&scene, rank, 1);
    (void)expect(&scene, CT_VERDICT_MISSING, 300);
    scene_free(&scene);
}

/* Half of the ranks wait, the other half have not come: each of these is asked for. */
Test(evidence, ranks_that_many_wait_for_cost_no_walk_each)
{
    enum { RANKS = 4096 };
    struct scene scene = scene_new(RANKS, 2 * GROUPS);

    for (uint32_t rank = 0; rank < RANKS / 2; rank++)
        wait_in(&scene, rank, 1 + rank % GROUPS);
    group_of(&scene, 3000, 1)->entered--; /* it has come less far */
    (void)expect(&scene, CT_VERDICT_MISSING, RANKS / 2);
    scene_free(&scene);
}

/* Rank i waits for rank i + 1, by name, and the last for nobody. */
Test(evidence, a_chain_of_4096_ranks_is_followed_to_its_end)
{
    enum { RANKS = 4096 };
    struct scene scene = scene_new(RANKS, GROUPS);

    for (uint32_t rank = 0; rank + 1 < RANKS; rank++) {
        group_of(&scene, rank, 1)->waiting = CT_RECORD_TRANSFER;
        group_of(&scene, rank, 1)->awaited = (int32_t)rank + 1;
    }
    (void)expect(&scene, CT_VERDICT_MISSING, RANKS - 1);
    scene_free(&scene);
}

/* Eight times the ranks: eight times the steps, and what the logarithm adds. */
Test(evidence, steps_grow_with_the_ranks_and_not_with_their_square)
{
    uint64_t steps[2];

    for (int i = 0; i < 2; i++) {
        uint32_t ranks = i == 0 ? 64 : 512;
        struct scene scene = scene_new(ranks, 128);

        for (uint32_t rank = 1; rank < ranks; rank++)
            wait_in(&scene, rank, 1 + rank % 2);
        steps[i] = expect(&scene, CT_VERDICT_MISSING, 0);
        scene_free(&scene);
    }
    cr_assert_leq(steps[1], 12 * steps[0], "%llu and %llu steps", (unsigned long long)steps[0],
                  (unsigned long long)steps[1]);
}
