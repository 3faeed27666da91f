/* Wishes: what one rank wants every rank to know by the end of the same step. */
#include "base/assert.h"
#include "job/thread_world.h"
#include "tests/unit/exec/fixture.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

TestSuite(votes, .timeout = 60);

enum { STEPS = 4, RANKS = 3, MAX_ROWS = 64 };

/* In step s the ranks below s vote. */
static int body(struct ct_job *job, void *context)
{
    const struct run *run = context;
    int64_t rows = run->options.accumulation * run->options.micro_rows;
    float x[MAX_ROWS * 6];
    int32_t labels[MAX_ROWS];
    struct ct_group *group = NULL;
    struct ct_error err = {0};
    struct rig rig;

    CT_ASSERT(rows <= MAX_ROWS);
    int rank = ct_job_assignment(job)->rank;
    if (run->options.world > 1)
        cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    rig_init(&rig, run, group);
    for (int step = 0; step < STEPS; step++) {
        const struct ct_exec_step args = {.x = x,
                                          .labels = labels,
                                          .valid_count = rows * run->options.world,
                                          .lr = 0.1,
                                          .update = (uint64_t)step + 1,
                                          .wish = rank < step};
        struct ct_exec_result result;

        fill_rows(&run->spec, step * rows, rows, x, labels);
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, &err), 0, "%s", err.text);
        cr_assert_eq(result.wishes, CT_MIN(step, run->options.world), "rank %d, step %d", rank,
                     step);
    }
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

Test(votes, every_rank_learns_in_the_same_step_how_many_have_one)
{
    for (int world = 1; world <= RANKS; world++)
        for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
            struct run run = run_default();
            struct ct_thread_world *ranks;

            run.options.world = world;
            run.options.reduce = (enum ct_plan_reduce)reduce;
            cr_assert_eq(ct_thread_world_new(world, &ranks), 0);
            cr_assert_eq(thread_ranks_run(ranks, body, &run), 0);
            ct_thread_world_free(ranks);
        }
}
