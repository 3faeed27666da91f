/* Failures: a collective that fails ends the step with its code and leaves the state of the last
 * completed step; nothing hangs. */
#include "base/assert.h"
#include "collectives/exec/executor.h"
#include "job/thread_world.h"
#include "tests/unit/exec/fixture.h"
#include "thread_ranks.h"

#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

TestSuite(failure, .timeout = 60);

enum { MAX_ROWS = 64 };

/* Both ranks complete a step; then rank 1 fails in its own way while rank 0 is in the next one. */
struct scene {
    struct run run;
    uint64_t timeout_ms;
    void (*fail)(struct scene *scene, struct ct_group *group); /* what rank 1 does */
    struct ct_thread_world *world;
    pthread_barrier_t meet; /* both ranks, outside of the group */

    int code; /* of rank 0's second step */
    struct ct_error err;
    uint64_t before, after; /* digests of rank 0 around it */
    int code_again;         /* of rank 0's third */
};

static int step(struct rig *rig, const struct run *run, int number, struct ct_error *err)
{
    float x[MAX_ROWS * 6];
    int32_t labels[MAX_ROWS];
    int64_t rows = run->options.accumulation * run->options.micro_rows;
    struct ct_exec_step args = {.x = x,
                                .labels = labels,
                                .valid_count = rows * run->options.world,
                                .lr = 0.1,
                                .update = (uint64_t)number};
    struct ct_exec_result result;

    CT_ASSERT(rows * run->options.world <= MAX_ROWS); /* a root has them all */
    fill_rows(&run->spec, number * rows, rows * run->options.world, x, labels);
    return ct_exec_step(rig->exec, &args, &result, err);
}

static void revoke(struct scene *scene, struct ct_group *group)
{
    (void)group;
    ct_thread_world_revoke(scene->world);
}

static void leave(struct scene *scene, struct ct_group *group)
{
    (void)scene;
    ct_group_free(group);
}

static int scene_body(struct ct_job *job, void *context)
{
    struct scene *scene = context;
    struct ct_group *group;
    struct ct_error err = {0};
    struct rig rig;

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    int rank = ct_group_rank(group);
    struct run run = scene->run;
    rig_init(&rig, &run, group);
    cr_assert_eq(step(&rig, &run, 1, &err), 0, "%s", err.text);
    pthread_barrier_wait(&scene->meet);
    if (rank == 0) {
        rig.exec->options.timeout_ms = scene->timeout_ms;
        scene->before = ct_exec_digest(rig.exec);
        scene->code = step(&rig, &run, 2, &scene->err);
        scene->after = ct_exec_digest(rig.exec);
        scene->code_again = step(&rig, &run, 2, &err);
    } else if (scene->fail != NULL) {
        scene->fail(scene, group);
    }
    pthread_barrier_wait(&scene->meet);
    rig_deinit(&rig);
    if (rank == 0 || scene->fail != leave)
        ct_group_free(group);
    return 0;
}

static struct scene play_as(bool rooted, void (*fail)(struct scene *, struct ct_group *),
                            uint64_t timeout_ms, bool overlap)
{
    struct scene scene = {.run = run_default(), .timeout_ms = timeout_ms, .fail = fail};

    scene.run.options.world = 2;
    scene.run.options.overlap = overlap;
    scene.run.options.rooted = rooted;
    cr_assert_eq(pthread_barrier_init(&scene.meet, NULL, 2), 0);
    cr_assert_eq(ct_thread_world_new(2, &scene.world), 0);
    cr_assert_eq(thread_ranks_run(scene.world, scene_body, &scene), 0);
    ct_thread_world_free(scene.world);
    pthread_barrier_destroy(&scene.meet);
    return scene;
}

static struct scene play(void (*fail)(struct scene *, struct ct_group *), uint64_t timeout_ms,
                         bool overlap)
{
    return play_as(false, fail, timeout_ms, overlap);
}

static void expect_intact(const struct scene *scene, int code)
{
    cr_assert_eq(scene->code, code, "code %s: %s", ct_error_name(scene->code), scene->err.text);
    cr_assert_eq(scene->code_again, code, "a broken group stays broken");
    cr_assert_eq(scene->before, scene->after, "the step that failed changed the state");
    cr_assert_not_null(strstr(scene->err.text, "reduction of "), "says '%s'", scene->err.text);
    cr_assert_eq(scene->err.code, code);
}

Test(failure, a_revoked_round_ends_the_step_and_keeps_the_state)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        struct scene scene = play(revoke, 0, overlap == 1);
        expect_intact(&scene, CT_EREVOKED);
    }
}

Test(failure, a_member_that_leaves_ends_the_step_and_keeps_the_state)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        struct scene scene = play(leave, 0, overlap == 1);
        expect_intact(&scene, CT_ECLOSED);
    }
}

Test(failure, a_member_that_never_comes_is_a_timeout)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        struct scene scene = play(NULL, 50, overlap == 1);
        expect_intact(&scene, CT_ETIMEOUT);
    }
}

/* Rank 0 hands out the batch first. */
Test(failure, what_was_not_handed_out_is_called_so)
{
    struct scene scene = play_as(true, leave, 0, false);

    cr_assert_eq(scene.code, CT_ECLOSED, "%s", scene.err.text);
    cr_assert_eq(strncmp(scene.err.text, "scattering of ", 14), 0, "says '%s'", scene.err.text);
}

/* ---- ranks that plan differently ------------------------------------------------------------ */

/* Rank 1 misses a step; both go on in another group, from where they are. */
static int regroup_body(struct ct_job *job, void *context)
{
    const struct ct_group_options again = {.name = "again"};
    struct scene *scene = context;
    int rank = ct_job_assignment(job)->rank;
    struct run run = scene->run;
    struct ct_group *group;
    struct ct_error err = {0};
    struct rig rig;

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    rig_init(&rig, &run, group);
    uint64_t first = ct_exec_digest(rig.exec);
    cr_assert_eq(step(&rig, &run, 1, &err), 0, "%s", err.text);
    if (rank == 0) {
        rig.exec->options.timeout_ms = 50;
        cr_assert_eq(step(&rig, &run, 2, &err), CT_ETIMEOUT);
        rig.exec->options.timeout_ms = 0;
    }
    pthread_barrier_wait(&scene->meet);
    ct_group_free(group);
    cr_assert_eq(ct_group_new(job, &again, &group, &err), 0, "%s", err.text);
    cr_assert_eq(ct_exec_regroup(rig.exec, group, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(step(&rig, &run, 2, &err), 0, "%s", err.text);
    if (rank == 0)
        scene->after = ct_exec_digest(rig.exec);
    cr_assert_eq(ct_exec_reset(rig.exec, &err), 0, "%s", err.text);
    cr_assert_eq(ct_exec_digest(rig.exec), first, "as it was born");
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

static int whole_body(struct ct_job *job, void *context)
{
    struct scene *scene = context;
    struct ct_group *group;
    struct ct_error err = {0};
    struct rig rig;

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    rig_init(&rig, &scene->run, group);
    for (int number = 1; number <= 2; number++)
        cr_assert_eq(step(&rig, &scene->run, number, &err), 0, "%s", err.text);
    if (ct_group_rank(group) == 0)
        scene->before = ct_exec_digest(rig.exec);
    rig_deinit(&rig);
    ct_group_free(group);
    return 0;
}

Test(failure, an_executor_goes_on_in_another_group_from_the_state_that_it_has)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        struct scene scene = {.run = run_default()};

        scene.run.options.world = 2;
        scene.run.options.overlap = overlap == 1;
        cr_assert_eq(pthread_barrier_init(&scene.meet, NULL, 2), 0);
        cr_assert_eq(ct_thread_world_new(2, &scene.world), 0);
        cr_assert_eq(thread_ranks_run(scene.world, regroup_body, &scene), 0);
        ct_thread_world_free(scene.world);
        cr_assert_eq(ct_thread_world_new(2, &scene.world), 0);
        cr_assert_eq(thread_ranks_run(scene.world, whole_body, &scene), 0);
        ct_thread_world_free(scene.world);
        pthread_barrier_destroy(&scene.meet);
        cr_assert_eq(scene.before, scene.after, "the step was repeated, not taken twice");
    }
}

static int mismatch_body(struct ct_job *job, void *context)
{
    struct run run = *(struct run *)context;
    struct ct_exec_options options = {0};
    struct ct_plan plan;
    struct ct_exec *exec = NULL;
    struct ct_group *group;
    struct ct_error err = {0};

    cr_assert_eq(ct_group_new(job, NULL, &group, &err), 0, "%s", err.text);
    if (ct_group_rank(group) == 2)
        run.options.optim.momentum = 0.5;
    cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, run.seed, &err), 0);
    cr_assert_eq(ct_device_cpu_new(NULL, &options.device, &err), 0);
    options.group = group;
    cr_assert_eq(ct_exec_new(&exec, &plan, &options, &err), CT_EMISMATCH);
    cr_assert(strncmp(err.text, "rank 2 has another program (", 28) == 0, "says '%s'", err.text);
    cr_assert_null(exec);
    ct_device_free(options.device);
    ct_plan_deinit(&plan);
    ct_group_free(group);
    return 0;
}

Test(failure, ranks_with_different_plans_are_refused_at_the_start)
{
    struct run run = run_default();
    struct ct_thread_world *world;

    run.options.world = 3;
    cr_assert_eq(ct_thread_world_new(3, &world), 0);
    cr_assert_eq(thread_ranks_run(world, mismatch_body, &run), 0);
    ct_thread_world_free(world);
}
