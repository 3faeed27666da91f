/* Registered state and steps: what happens without any fault. Losing ranks takes processes:
 * tests/e2e/training/test_library.c. */
#include "ctrun.h"
#include "job/thread_world.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

TestSuite(state, .timeout = 30);

enum { RANKS = 3, STEPS = 5 };

struct run {
    uint64_t from;
    int odd;    /* this rank registers other state; -1: none */
    int breaks; /* this rank breaks the group in step 2; -1: none */
    double weight[RANKS];
    uint64_t seen[RANKS]; /* steps that were completed */
    int code[RANKS];
    struct ct_error err[RANKS];
};

/* Each rank begins with another weight and adds its rank in each step. */
static int body(struct ct_job *job, void *context)
{
    struct run *run = context;
    int rank = ct_job_assignment(job)->rank;
    struct ct_error *err = &run->err[rank];
    struct ct_job_step step = {.number = run->from};
    double *weight = &run->weight[rank];

    *weight = 10 * (rank + 1);
    int code = ct_job_register_state(job, rank == run->odd ? "other" : "weight", weight,
                                     sizeof *weight, err);
    cr_assert_eq(code, 0);
    while ((code = ct_job_begin_step(job, &step, err)) == 0 && step.number < run->from + STEPS) {
        double sum = rank;

        cr_assert_eq(step.regrouped, step.number == run->from);
        if (rank == run->breaks && step.number == run->from + 2)
            ct_group_revoke(step.group);
        if (ct_all_reduce(step.group, ct_inplace(&sum, 1, CT_F64), CT_REDUCE_SUM, NULL) != 0)
            continue;
        *weight += sum;
        run->seen[rank]++;
    }
    run->code[rank] = code;
    return code;
}

static void run_ranks(struct run *run)
{
    struct ct_thread_world *world = NULL;

    cr_assert_eq(ct_thread_world_new(RANKS, &world), 0);
    (void)thread_ranks_run(world, body, run);
    ct_thread_world_free(world);
}

Test(state, all_ranks_begin_with_rank_0s_state_and_go_through_the_same_steps)
{
    struct run run = {.odd = -1, .breaks = -1};

    run_ranks(&run);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(run.code[rank], 0, "%s", run.err[rank].text);
        cr_assert_eq(run.seen[rank], STEPS);
        cr_assert_eq(run.weight[rank], 10 + STEPS * 3);
    }
}

Test(state, a_resumed_training_begins_at_its_step)
{
    struct run run = {.from = 40, .odd = -1, .breaks = -1};

    run_ranks(&run);
    for (int rank = 0; rank < RANKS; rank++)
        cr_assert_eq(run.seen[rank], STEPS, "%s", run.err[rank].text);
}

Test(state, a_rank_that_registers_something_else_is_named)
{
    struct run run = {.odd = 2, .breaks = -1};

    run_ranks(&run);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(run.code[rank], CT_EUSAGE);
        cr_assert_not_null(strstr(run.err[rank].text, "rank 2 has registered other state"), "%s",
                           run.err[rank].text);
    }
}

Test(state, without_an_agent_a_broken_group_ends_the_steps_and_the_step_does_not_count)
{
    struct run run = {.odd = -1, .breaks = 1};

    run_ranks(&run);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_neq(run.code[rank], 0);
        cr_assert_eq(run.seen[rank], 2);
        cr_assert_eq(run.weight[rank], 10 + 2 * 3);
        cr_assert_neq(run.err[rank].text[0], '\0');
    }
}

Test(state, what_is_registered_too_late_or_too_long_is_refused)
{
    static char name[100];
    struct ct_job *job;
    struct ct_job_step step = {0};
    struct ct_error err = {0};
    int value = 0;

    memset(name, 'x', sizeof name - 1);
    cr_assert_eq(ct_job_open(&job, &err), 0);
    cr_assert_eq(ct_job_register_state(job, name, &value, sizeof value, &err), CT_ELIMIT);
    cr_assert_eq(ct_job_register_state(job, "value", &value, sizeof value, &err), 0);
    cr_assert_eq(ct_job_begin_step(job, &step, &err), 0, "%s", err.text);
    cr_assert_eq(ct_job_begin_step(job, &step, &err), 0, "%s", err.text);
    cr_assert_eq(step.number, 1);
    cr_assert_eq(ct_job_register_state(job, "more", &value, sizeof value, &err), CT_EUSAGE);
    ct_job_close(job);
}

/* State by functions: each rank's own number becomes the base's. */
struct own {
    uint64_t value;
    int broadcasts;
};

static uint64_t digest_own(void *context)
{
    const struct own *own = context;

    return ct_digest(&own->value, sizeof own->value, 0);
}

static int broadcast_own(void *context, struct ct_group *group, int base)
{
    struct own *own = context;

    own->broadcasts++;
    return ct_broadcast(group, ct_inplace(&own->value, 1, CT_I64), base, NULL);
}

static int body_by_calls(struct ct_job *job, void *context)
{
    struct own *own = &((struct own *)context)[ct_job_assignment(job)->rank];
    const struct ct_state_calls calls = {own, digest_own, broadcast_own};
    struct ct_job_step step = {0};
    struct ct_error err = {0};

    own->value = 10 + (uint64_t)ct_job_assignment(job)->rank;
    cr_assert_eq(ct_job_register_calls(job, &calls, &err), 0);
    cr_assert_eq(ct_job_register_calls(job, &calls, &err), CT_EUSAGE, "once");
    while (ct_job_begin_step(job, &step, &err) == 0 && step.number < STEPS)
        own->value += step.number;
    return step.number == STEPS ? 0 : err.code;
}

Test(state, state_by_functions_is_rank_0s_at_first_and_sent_when_ranks_differ)
{
    struct own own[RANKS] = {{0}};
    struct ct_thread_world *world = NULL;

    cr_assert_eq(ct_thread_world_new(RANKS, &world), 0);
    cr_assert_eq(thread_ranks_run(world, body_by_calls, own), 0);
    ct_thread_world_free(world);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(own[rank].value, 10 + 0 + 1 + 2 + 3 + 4);
        cr_assert_eq(own[rank].broadcasts, 1);
    }
}

Test(state, a_step_that_was_abandoned_does_not_count)
{
    struct own own = {0};
    const struct ct_state_calls calls = {&own, digest_own, broadcast_own};
    struct ct_job *job;
    struct ct_job_step step = {0};
    struct ct_error err = {0};

    cr_assert_eq(ct_job_open(&job, &err), 0);
    cr_assert_eq(ct_job_register_calls(job, &calls, &err), 0);
    cr_assert_eq(ct_job_begin_step(job, &step, &err), 0);
    cr_assert_eq(ct_job_begin_step(job, &step, &err), 0);
    cr_assert_eq(step.number, 1);
    ct_job_abandon_step(job);
    cr_assert_eq(ct_job_begin_step(job, &step, &err), CT_EREVOKED, "no agent makes a round");
    cr_assert_not_null(strstr(err.text, "step 1 was abandoned"), "%s", err.text);
    ct_job_close(job);
}
