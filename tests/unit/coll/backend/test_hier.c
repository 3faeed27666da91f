/* Backend hier when something goes wrong on one of its levels, and encrypted; that it computes what
 * others compute is in test_conformance.c. Four ranks on two nodes. */
#include "backend/hier/hier.h"
#include "base/assert.h"
#include "base/clock.h"
#include "rig.h"
#include "thread_ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

TestSuite(hier, .timeout = 60);

enum { WORLD = 4, NODES = 2, COUNT = 3000 };

struct scene {
    int op;
    _Atomic int entered;
    pthread_barrier_t left;
    int codes[WORLD];
    uint64_t elapsed_ms[WORLD];
};

static struct rig rig_of(struct scene *scene, int op)
{
    *scene = (struct scene){.op = op};
    cr_assert_eq(pthread_barrier_init(&scene->left, NULL, WORLD), 0);
    return (struct rig){
        .backend = "hier", .world = WORLD, .nodes = NODES, .tuning = tiny, .shared = scene};
}

enum { OPS = 7 };

static int call(struct ct_group *group, int op)
{
    float data[WORLD * COUNT] = {0};

    switch (op) {
    case 0:
        return ct_all_reduce(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_SUM, NULL);
    case 1:
        return ct_broadcast(group, ct_inplace(data, COUNT, CT_F32), WORLD - 1, NULL);
    case 2:
        return ct_all_gather(group, ct_inplace(data, COUNT, CT_F32), NULL);
    case 3:
        return ct_reduce_scatter(group, ct_inplace(data, COUNT, CT_F32), CT_REDUCE_AVG, NULL);
    case 4:
        return ct_barrier(group, NULL);
    case 5:
        return ct_recv(group, ct_inplace(data, COUNT, CT_F32), WORLD - 1, NULL);
    default:
        return ct_all_to_all(group, ct_from_to(data, NULL, 0, CT_F32), NULL);
    }
}

static void make_call(struct ct_group *group, struct scene *scene)
{
    int rank = ct_group_rank(group);
    uint64_t start_ms = ct_clock_mono_ms(&ct_clock_system);

    atomic_fetch_add(&scene->entered, 1);
    scene->codes[rank] = call(group, scene->op);
    scene->elapsed_ms[rank] = ct_clock_mono_ms(&ct_clock_system) - start_ms;
}

/* The last rank does not call: its round is revoked when the others are in. */
static int revoke_the_round(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;

    if (ct_group_rank(group) < WORLD - 1) {
        make_call(group, scene);
    } else {
        while (atomic_load(&scene->entered) < WORLD - 1)
            (void)sched_yield();
        ct_thread_world_revoke(rig->threads);
    }
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

Test(hier, a_revoked_round_ends_every_operation)
{
    for (int op = 0; op < OPS; op++) {
        struct scene scene;
        struct rig rig = rig_of(&scene, op);

        cr_assert_eq(rig_run(&rig, revoke_the_round), 0);
        for (int rank = 0; rank < WORLD - 1; rank++)
            cr_assert_eq(scene.codes[rank], CT_EREVOKED, "op %d rank %d: %d", op, rank,
                         scene.codes[rank]);
    }
}

static int stay_away(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;

    if (ct_group_rank(group) < WORLD - 1)
        make_call(group, scene);
    (void)pthread_barrier_wait(&scene->left);
    return 0;
}

Test(hier, a_missing_rank_is_a_timeout_on_all_levels)
{
    for (int op = 0; op < OPS; op++) {
        struct scene scene;
        struct rig rig = rig_of(&scene, op);

        rig.timeout_ms = 200;
        cr_assert_eq(rig_run(&rig, stay_away), 0);
        for (int rank = 0; rank < WORLD - 1; rank++) {
            cr_assert_eq(scene.codes[rank], CT_ETIMEOUT, "op %d rank %d: %d", op, rank,
                         scene.codes[rank]);
            cr_assert_lt(scene.elapsed_ms[rank], 5000);
        }
    }
}

/* Rank 3 calls something else: nobody gets a result, nobody hangs. */
static int disagree(struct ct_group *group, struct rig *rig)
{
    struct scene *scene = rig->shared;
    int rank = ct_group_rank(group);

    scene->codes[rank] = call(group, rank == WORLD - 1 ? 2 : 0);
    return 0;
}

Test(hier, ranks_that_call_different_operations_learn_it)
{
    struct scene scene;
    struct rig rig = rig_of(&scene, 0);
    int mismatches = 0;

    rig.timeout_ms = 2000;
    cr_assert_eq(rig_run(&rig, disagree), 0);
    for (int rank = 0; rank < WORLD; rank++) {
        cr_assert_lt(scene.codes[rank], 0);
        mismatches += scene.codes[rank] == CT_EMISMATCH;
    }
    cr_assert_gt(mismatches, 0);
}

/* 256 + 1 + 1 + 1 is 260 in bf16 when it is rounded once, and 258 or 256 when each node's sum is.
 */
static int add_halves(struct ct_group *group, struct rig *rig)
{
    uint16_t data[COUNT];
    float mine = ct_group_rank(group) == 0 ? 256.0f : 1.0f;

    (void)rig;
    for (int i = 0; i < COUNT; i++)
        data[i] = ct_bf16_from_f32(mine);
    if (ct_all_reduce(group, ct_inplace(data, COUNT, CT_BF16), CT_REDUCE_SUM, NULL) != 0)
        return __LINE__;
    for (int i = 0; i < COUNT; i++)
        if (data[i] != ct_bf16_from_f32(259.0f))
            return __LINE__;
    struct ct_hier *hier = group->state;
    struct ct_call call = {.kind = CT_CALL_ALL_REDUCE, .dtype = CT_BF16, .reduce = CT_REDUCE_SUM};
    return ct_hier_is_flat(hier, &call) ? __LINE__ : 0;
}

Test(hier, halves_are_added_on_the_levels_and_rounded_once)
{
    struct scene scene;
    struct rig rig = rig_of(&scene, 0);

    cr_assert_eq(rig_run(&rig, add_halves), 0);
}

/* ---- who answers members that connect --------------------------------------------------------*/

static _Thread_local int flat_tends, across_tends;

static int count_flat(void *state, struct ct_error *err)
{
    flat_tends++;
    return ct_backend_tcp.tend(state, err);
}

static int count_across(void *state, struct ct_error *err)
{
    across_tends++;
    return ct_backend_tcp.tend(state, err);
}

static int check_tends(struct ct_group *group)
{
    int32_t part = 1, all[WORLD];

    flat_tends = across_tends = 0;
    if (ct_gather(group, ct_from_to(&part, all, 1, CT_I32), 0, NULL) != 0)
        return __LINE__;
    if (flat_tends != 0 || across_tends == 0)
        return __LINE__;
    across_tends = 0;
    if (ct_barrier(group, NULL) != 0)
        return __LINE__;
    return flat_tends > 0 ? 0 : __LINE__;
}

/* With the groups across nodes on backends that count. */
static int count_tends(struct ct_group *group, struct rig *rig)
{
    struct ct_backend flat = ct_backend_tcp, across = ct_backend_tcp;
    struct ct_hier *hier = group->state;
    struct ct_group *levels = hier->levels[CT_LEVEL_ACROSS].group;

    (void)rig;
    flat.tend = count_flat;
    across.tend = count_across;
    hier->flat->backend = &flat;
    levels->backend = &across;
    int line = check_tends(group);
    hier->flat->backend = levels->backend = &ct_backend_tcp;
    return line;
}

Test(hier, only_groups_that_make_no_progress_are_tended_beside_a_call)
{
    struct scene scene;
    struct rig rig = rig_of(&scene, 0);

    cr_assert_eq(rig_run(&rig, count_tends), 0);
}

/* ---- several calls ---------------------------------------------------------------------------*/

/* Two groups of the same ranks, each with calls under way, finished in turns. */
static int both(struct ct_job *job, void *context)
{
    struct ct_group *groups[2];
    struct ct_request *requests[2][3];
    float data[2][3][COUNT] = {0};
    struct ct_error err;
    int code = 0;

    (void)context;
    for (int g = 0; g < 2; g++) {
        struct ct_group_options options = {.name = g == 0 ? "a" : "b", .backend = "hier"};

        if (ct_group_new_tuned(job, &options, &tiny, &groups[g], &err) != 0)
            return __LINE__;
    }
    for (int i = 0; i < 3; i++)
        for (int g = 0; g < 2; g++) {
            for (int k = 0; k < COUNT; k++)
                data[g][i][k] = (float)(g + 1);
            code |= ct_all_reduce_start(groups[g], ct_inplace(data[g][i], COUNT, CT_F32),
                                        CT_REDUCE_SUM, NULL, &requests[g][i]);
        }
    for (int open = 6; open > 0 && code == 0;)
        for (int g = 0; g < 2; g++)
            for (int i = 0; i < 3; i++) {
                int over = requests[g][i] != NULL ? ct_test(requests[g][i]) : 0;

                if (over < 0)
                    return __LINE__;
                if (over == 1) {
                    requests[g][i] = NULL;
                    open--;
                }
            }
    for (int g = 0; g < 2 && code == 0; g++)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < COUNT; k++)
                code |= data[g][i][k] != (float)(WORLD * (g + 1));
    for (int g = 0; g < 2; g++)
        ct_group_free(groups[g]);
    return code == 0 ? 0 : __LINE__;
}

Test(hier, two_groups_are_under_way_together)
{
    struct ct_thread_world *world;

    cr_assert_eq(ct_thread_world_new_nodes(WORLD, NODES, &world), 0);
    cr_assert_eq(thread_ranks_run(world, both, NULL), 0);
    ct_thread_world_free(world);
}
