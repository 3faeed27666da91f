/* Replicas: what several ranks hold is compared, in every layout, and who drifts is named. */
#include "base/assert.h"
#include "cmd/ctworker/trainer/worker/agree.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(agree, .init = harness_enter, .fini = harness_leave, .timeout = 60);

/* The first number that this rank holds, whatever it holds. */
static void change_a_weight(struct ct_worker *worker)
{
    struct ct_plan_walk walk;
    struct ct_plan_piece piece;
    float weight;

    ct_plan_walk_init(&walk, &worker->plan);
    cr_assert(ct_plan_walk_next(&walk, &piece));
    piece.bytes = sizeof weight;
    ct_exec_take(worker->exec, &piece, &weight);
    weight += 1.0f / 4096;
    ct_exec_put(worker->exec, &piece, &weight);
}

Test(agree, a_replica_that_drifts_is_found_and_named)
{
    static const struct {
        int world;
        const char *options[3], *says;
    } layouts[] = {
        {3, {"--batch.global=12"}, "rank 2 are no longer those of rank 0"},
        {4, {"--parallel.tensor=2"}, "rank 3 are no longer those of rank 1"},
        {4, {"--parallel.pipeline=2"}, "rank 3 are no longer those of rank 2"},
        {4,
         {"--parallel.strategy=fsdp", "--parallel.replicate=2"},
         "rank 3 are no longer those of rank 1"},
    };

    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct training training = {.world = layouts[i].world,
                                    .options = {"--check.replicas=2", "--checkpoint.dir="},
                                    .tamper = change_a_weight};
        for (int k = 0; k < 3; k++)
            training.options[2 + k] = layouts[i].options[k];
        harness_run(&training);
        for (int rank = 0; rank < training.world; rank++) {
            cr_assert_eq(training.code[rank], CT_EDIVERGED, "%s", training.error[rank].text);
            cr_assert_not_null(strstr(training.error[rank].text, "after step 2 the parameters of "),
                               "%s", training.error[rank].text);
            cr_assert_not_null(strstr(training.error[rank].text, layouts[i].says), "%zu: %s", i,
                               training.error[rank].text);
            cr_assert_eq(training.scope[rank], CT_SCOPE_JOB);
        }
    }
    cr_assert_eq(ct_exit_status(CT_EDIVERGED), 93);
}

/* Every layout that shares something out agrees with itself, to the end. */
Test(agree, replicas_of_parts_slices_and_stages_agree)
{
    static const char *const layouts[][3] = {
        {"--parallel.tensor=2"},
        {"--parallel.pipeline=2"},
        {"--parallel.tensor=2", "--parallel.pipeline=2"},
        {"--parallel.strategy=zero1"},
        {"--parallel.strategy=fsdp", "--parallel.replicate=2"},
    };

    for (size_t i = 0; i < CT_COUNT(layouts); i++) {
        struct training training = {.world = 4,
                                    .options = {"--check.replicas=3", "--checkpoint.dir="}};
        for (int k = 0; k < 3; k++)
            training.options[2 + k] = layouts[i][k];
        (void)harness_train(&training);
    }
}

Test(agree, the_replica_that_most_others_contradict_is_the_odd_one)
{
    static const struct {
        uint64_t digests[4];
        int odd, common;
    } rows[] = {
        {{5, 5, 5, 5}, -1, 0}, {{5, 5, 7, 5}, 2, 0}, {{9, 5, 5, 5}, 0, 1},
        {{5, 7, 5, 7}, 1, 0},  {{1, 2, 3, 3}, 0, 2},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_exec_common all[4] = {{.holders = {0}}};
        int common = 0;
        bool shared = false;
        for (int rank = 0; rank < 4; rank++) {
            all[rank].holders[CT_EXEC_PART] = 1;
            all[rank].digest[CT_EXEC_PART] = rows[i].digests[rank];
        }
        cr_assert_eq(ct_agree_odd(all, 4, &common, &shared), rows[i].odd, "row %zu", i);
        cr_assert_eq(common, rows[i].common, "row %zu", i);
        cr_assert(shared);
    }
}

Test(agree, replicas_are_those_that_hold_the_same)
{
    struct ct_exec_common all[4] = {{.holders = {0}}};
    int common = -1;
    bool shared = true;

    for (int rank = 0; rank < 4; rank++) { /* four slices */
        all[rank].holders[CT_EXEC_SLICE] = (uint64_t)rank + 1;
        all[rank].digest[CT_EXEC_SLICE] = (uint64_t)rank * 7;
    }
    cr_assert_eq(ct_agree_odd(all, 4, &common, &shared), -1);
    cr_assert(!shared, "nobody holds what another holds");
    for (int rank = 0; rank < 4; rank++) { /* two stages */
        all[rank].holders[CT_EXEC_WHOLE] = rank < 2 ? 1 : 2;
        all[rank].digest[CT_EXEC_WHOLE] = rank < 2 ? 40 : 50;
    }
    cr_assert_eq(ct_agree_odd(all, 4, &common, &shared), -1);
    cr_assert(shared);
    all[3].digest[CT_EXEC_WHOLE] = 40;
    cr_assert_eq(ct_agree_odd(all, 4, &common, &shared), 3);
    cr_assert_eq(common, 2);
}
