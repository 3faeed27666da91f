/* Healing: whose state a round starts from, and that all ranks hold it afterwards. */
#include "cmd/ctworker/trainer/recover_state.h"

#include "collectives/job/job.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(recover_state, .init = harness_enter, .fini = harness_leave, .timeout = 60);

enum { LINEAGE = 7, RANKS = 3 };

static struct ct_holding held(uint64_t lineage, uint64_t step, uint64_t digest)
{
    return (struct ct_holding){lineage, step, digest, {step, CT_HELD_WRITES | CT_HELD_TRAINED}};
}

Test(recover_state, what_follows_a_step_is_done_again_when_somebody_missed_it_or_its_writer_is_gone)
{
    struct ct_holding all[] = {held(LINEAGE, 5, 2), held(LINEAGE, 5, 2), held(0, 0, 0)};

    cr_assert_not(ct_state_recovery_redo(all, RANKS, 0));
    all[1].own[CT_HELD_COMPLETED] = 4;
    cr_assert(ct_state_recovery_redo(all, RANKS, 0));
    all[1].own[CT_HELD_COMPLETED] = 5;
    all[0].own[CT_HELD_MARKS] = CT_HELD_TRAINED;
    cr_assert(ct_state_recovery_redo(all, RANKS, 0));
    all[0].own[CT_HELD_MARKS] = 0;
    cr_assert_not(ct_state_recovery_redo(all, RANKS, 0), "the base itself begins here");
}

/* Change the state of a rank, so that nobody else has it. */
static void set_state(struct ct_worker *worker, uint64_t step)
{
    unsigned char *state = ct_exec_state(worker->exec);

    memset(state, 1 + worker->me->rank, worker->plan.state_bytes / 2);
    worker->step = step;
    worker->position = step * 8;
    worker->digest = ct_exec_digest(worker->exec);
    worker->last = (struct ct_step_report){.loss = (double)step};
    worker->has_last = true;
}

/* Rank 1 is a step ahead, rank 2 has just been started. */
static int meet_again(struct ct_worker *worker, struct ct_error *err)
{
    bool found;

    worker->job->assignment.lineage = worker->lineage;
    set_state(worker, worker->me->rank == 1 ? 12 : 11);
    if (worker->me->rank == 2)
        worker->lineage = worker->step = worker->digest = 0;
    int code = ct_state_recovery(worker, &found, err);
    cr_assert(code != 0 || (found && worker->last.loss == 12 && worker->has_last));
    return code;
}

Test(recover_state, all_ranks_get_the_state_of_the_most_advanced_survivor)
{
    struct training training = {
        .world = RANKS, .options = {"--batch.global=12"}, .instead = meet_again};

    (void)harness_train(&training);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(training.step[rank], 12);
        cr_assert_eq(training.position[rank], 12 * 8);
    }
}

static int meet_diverged(struct ct_worker *worker, struct ct_error *err)
{
    bool found;

    worker->job->assignment.lineage = worker->lineage;
    set_state(worker, 11);
    return ct_state_recovery(worker, &found, err);
}

Test(recover_state, different_states_of_one_step_end_the_job_and_name_a_rank)
{
    struct training training = {.world = 2, .instead = meet_diverged};

    harness_run(&training);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(training.code[rank], CT_EDIVERGED);
        cr_assert_not_null(strstr(training.error[rank].text, "ranks 0 and 1"), "%s",
                           training.error[rank].text);
    }
}
