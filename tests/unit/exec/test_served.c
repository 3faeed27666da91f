/* A worker of parameter servers: what it pushes, and when. */
#include "tests/unit/exec/fixture.h"

#include "tensor/plugin.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(served_exec, .timeout = 60);

/* Takes what is pushed, and holds the last backward op back until there is something. */
struct taker {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int last_backward; /* op of the plan */
    int pushes, fail_at;
    bool timed_out;
    char *flat; /* what was pushed, in its place */
    size_t bytes;
};

static int take(void *context, size_t at, const void *data, size_t bytes, struct ct_error *err)
{
    struct taker *taker = context;

    pthread_mutex_lock(&taker->mutex);
    int number = ++taker->pushes;
    memcpy(taker->flat + at, data, bytes);
    taker->bytes += bytes;
    pthread_cond_broadcast(&taker->changed);
    pthread_mutex_unlock(&taker->mutex);
    return number == taker->fail_at ? ct_error_set(err, CT_ECLOSED, "the server is gone") : 0;
}

static void before_op(void *context, int op)
{
    struct taker *taker = context;
    struct timespec limit;

    if (op != taker->last_backward)
        return;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    pthread_mutex_lock(&taker->mutex);
    while (taker->pushes == 0 && !taker->timed_out)
        taker->timed_out = pthread_cond_timedwait(&taker->changed, &taker->mutex, &limit) != 0;
    pthread_mutex_unlock(&taker->mutex);
}

static void init(struct rig *rig, struct run *run, struct taker *taker)
{
    *taker = (struct taker){.mutex = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER,
                            .last_backward = -1};
    run->device = RUN_CPU; /* servers are pushed to from the host's memory */
    run->options.served = true;
    run->exec = (struct ct_exec_options){.push = take,
                                         .push_context = taker,
                                         .trace = true,
                                         .before_op = before_op,
                                         .context = taker};
    rig_init(rig, run, NULL);
    taker->flat = calloc(1, rig->plan.flat_bytes);
    cr_assert_not_null(taker->flat);
}

static void deinit(struct rig *rig, struct taker *taker)
{
    rig_deinit(rig);
    free(taker->flat);
}

static int step(struct rig *rig, const struct run *run, struct ct_error *err)
{
    float x[24 * 6];
    int32_t labels[24];
    struct ct_exec_result result;
    const struct ct_exec_step args = {
        .x = x, .labels = labels, .valid_count = 24, .lr = run->lr, .update = 1};

    fill_rows(&run->spec, 0, 24, x, labels);
    return ct_exec_step(rig->exec, &args, &result, err);
}

Test(served_exec, buckets_are_pushed_while_backward_still_runs_and_are_the_gradients)
{
    struct run run = run_default();
    struct taker taker;
    struct rig rig;
    int pushes = 0;

    init(&rig, &run, &taker);
    const struct ct_program *program = &rig.plan.step.program;
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].stage == CT_STAGE_BACKWARD)
            taker.last_backward = i;
    cr_assert_eq(step(&rig, &run, NULL), 0);
    cr_assert(!taker.timed_out, "nothing was pushed before the last backward op");
    const struct ct_exec_event *trace = ct_exec_trace(rig.exec);
    for (int i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != CT_OP_PUSH)
            continue;
        if (pushes++ == 0)
            cr_assert_lt(trace[i].start, trace[taker.last_backward].end);
        cr_assert_eq(rig.plan.step.slot[i].queue, CT_QUEUE_COMM);
    }
    cr_assert_gt(pushes, 1);
    cr_assert_eq(pushes, rig.plan.bucket_count);
    cr_assert_eq(taker.bytes, rig.plan.flat_bytes);
    const char *grads = (const char *)ct_exec_state(rig.exec) + rig.plan.state_bytes;
    cr_assert_eq(memcmp(taker.flat, grads, rig.plan.flat_bytes), 0);
    deinit(&rig, &taker);
}

Test(served_exec, without_overlap_the_same_is_pushed_by_the_thread_that_computes)
{
    struct run run = run_default();
    struct taker taker;
    struct rig rig;

    run.options.overlap = false;
    init(&rig, &run, &taker);
    cr_assert_eq(step(&rig, &run, NULL), 0);
    cr_assert_eq(taker.bytes, rig.plan.flat_bytes);
    const char *grads = (const char *)ct_exec_state(rig.exec) + rig.plan.state_bytes;
    cr_assert_eq(memcmp(taker.flat, grads, rig.plan.flat_bytes), 0);
    deinit(&rig, &taker);
}

Test(served_exec, a_push_that_fails_ends_the_step_with_its_sentence)
{
    struct run run = run_default();
    struct ct_error err = {0};
    struct taker taker;
    struct rig rig;

    init(&rig, &run, &taker);
    taker.fail_at = 2;
    cr_assert_eq(step(&rig, &run, &err), CT_ECLOSED);
    cr_assert_str_eq(err.text, "the server is gone");
    cr_assert_eq(taker.pushes, 2);
    deinit(&rig, &taker);
}

Test(served_exec, a_plan_that_is_served_needs_somebody_to_push_to)
{
    struct run run = run_default();
    const struct ct_device_request wish = {.kind = CT_DEVICE_CPU, .threads = 1};
    struct ct_device *device = NULL;
    struct ct_exec *exec = NULL;
    struct ct_error why, err = {0};
    struct ct_plan plan;

    run.options.served = true;
    cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, run.seed, NULL), 0);
    cr_assert_eq(ct_device_open(&wish, &device, &why, &err), 0);
    const struct ct_exec_options options = {.device = device};
    cr_assert_eq(ct_exec_new(&exec, &plan, &options, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "the plan is served, and nobody takes its gradients");
    ct_device_free(device);
    ct_plan_deinit(&plan);
}
