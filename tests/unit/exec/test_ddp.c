/* Data parallelism: the rows E1, E7, E15, E16 and E19 of the equivalence table, with ranks as
 * threads. */
#include "base/assert.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

TestSuite(ddp, .timeout = 60);

static const struct ct_optim_spec adamw = {.type = CT_OPTIM_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .eps = 1e-8,
                                           .weight_decay = 0.01,
                                           .clip = 0.1};

/* A run of `world` ranks over the same 24 rows a step in micro-batches of `rows`. */
static struct run split(int world, int64_t rows, enum ct_plan_reduce reduce)
{
    struct run run = run_default();

    run.options.world = world;
    run.options.micro_rows = rows;
    run.options.accumulation = (int)(24 / rows / world);
    run.options.reduce = reduce;
    return run;
}

static void assert_close_runs(const struct run *a, const struct run *b, const char *what)
{
    double l2 = relative_l2(a->grads, b->grads, a->grad_count);

    cr_assert_lt(l2, 2e-6, "%s: gradients differ by %g", what, l2);
    for (int i = 0; i < a->steps; i++) {
        cr_assert_lt(fabs(a->losses[i] - b->losses[i]), 2e-6 * b->losses[i], "%s: loss %d", what,
                     i);
        cr_assert_lt(fabs(a->norms[i] - b->norms[i]), 2e-6 * b->norms[i], "%s: norm %d", what, i);
        cr_assert_eq(a->correct[i], b->correct[i], "%s: count %d", what, i);
    }
}

static void assert_replicas_equal(const struct run *run)
{
    for (int rank = 1; rank < run->options.world; rank++)
        cr_assert_eq(run->digests[rank], run->digests[0], "rank %d of %d differs", rank,
                     run->options.world);
}

Test(ddp, invariant_runs_of_1_2_4_and_8_ranks_have_equal_bits)
{
    for (int optim = 0; optim < 2; optim++) {
        struct run single = split(1, 3, CT_PLAN_INVARIANT);
        if (optim == 1) {
            single.options.optim = adamw;
            single.lr = 0.01;
        }
        run_train(&single);
        for (int world = 2; world <= 8; world *= 2) {
            struct run run = split(world, 3, CT_PLAN_INVARIANT);
            run.options.optim = single.options.optim;
            run.lr = single.lr;
            run_train(&run);
            assert_same_bits(&run, &single, "world 2, 4 or 8 against 1");
            assert_replicas_equal(&run);
            run_deinit(&run);
        }
        run_deinit(&single);
    }
}

Test(ddp, the_other_modes_and_three_ranks_agree_within_2e_6)
{
    static const struct {
        int world;
        int64_t rows;
        enum ct_plan_reduce reduce;
    } rows[] = {
        {2, 6, CT_PLAN_FAST},         {4, 6, CT_PLAN_FAST},         {2, 6, CT_PLAN_REPRODUCIBLE},
        {4, 6, CT_PLAN_REPRODUCIBLE}, {3, 4, CT_PLAN_INVARIANT},    {3, 4, CT_PLAN_FAST},
        {3, 8, CT_PLAN_REPRODUCIBLE}, {1, 3, CT_PLAN_REPRODUCIBLE},
    };
    struct run single = split(1, 24, CT_PLAN_FAST);

    run_train(&single);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct run run = split(rows[i].world, rows[i].rows, rows[i].reduce);
        run_train(&run);
        assert_close_runs(&run, &single, "against one batch");
        assert_replicas_equal(&run);
        run_deinit(&run);
    }
    run_deinit(&single);
}

Test(ddp, accumulation_equals_the_big_batch_within_2e_6)
{
    struct run single = split(1, 24, CT_PLAN_INVARIANT);

    run_train(&single);
    for (int64_t rows = 3; rows <= 12; rows *= 2)
        for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
            struct run run = split(1, rows, (enum ct_plan_reduce)reduce);
            run_train(&run);
            assert_close_runs(&run, &single, "accumulation");
            run_deinit(&run);
        }
    run_deinit(&single);
}

Test(ddp, the_same_layout_twice_has_the_same_bits)
{
    for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
        struct run a = split(3, 4, (enum ct_plan_reduce)reduce), b = a;
        run_train(&a);
        run_train(&b);
        assert_same_bits(&a, &b, "repeated");
        run_deinit(&a);
        run_deinit(&b);
    }
}

Test(ddp, reducing_in_place_in_the_memory_of_the_job_does_not_change_a_bit)
{
    for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++) {
        struct run copied = split(3, 4, (enum ct_plan_reduce)reduce), in_place = copied;
        in_place.symmetric = true;
        run_train(&copied);
        run_train(&in_place);
        assert_same_bits(&in_place, &copied, "symmetric memory");
        assert_replicas_equal(&in_place);
        run_deinit(&copied);
        run_deinit(&in_place);
    }
}

Test(ddp, buckets_and_overlap_do_not_change_a_bit)
{
    static const struct {
        size_t first, cap;
        bool overlap;
    } rows[] = {{1, 1, true}, {1024, 1024, true}, {25 << 20, 25 << 20, true}, {128, 512, false}};

    for (int reduce = CT_PLAN_REPRODUCIBLE; reduce <= CT_PLAN_INVARIANT; reduce++) {
        struct run base = split(4, 3, (enum ct_plan_reduce)reduce);
        run_train(&base);
        for (size_t i = 0; i < CT_COUNT(rows); i++) {
            struct run run = split(4, 3, (enum ct_plan_reduce)reduce);
            run.options.first_bucket_bytes = rows[i].first;
            run.options.bucket_bytes = rows[i].cap;
            run.options.overlap = rows[i].overlap;
            run_train(&run);
            assert_same_bits(&run, &base, "buckets, overlap");
            run_deinit(&run);
        }
        run_deinit(&base);
    }
}

Test(ddp, a_partial_batch_equals_the_single_process_on_its_rows)
{
    struct run single = split(1, 3, CT_PLAN_INVARIANT), whole = split(1, 24, CT_PLAN_FAST);
    struct run run = split(4, 6, CT_PLAN_INVARIANT), tree = split(8, 3, CT_PLAN_INVARIANT);

    single.masked = whole.masked = run.masked = tree.masked =
        10; /* some ranks have no row at all */
    run_train(&single);
    run_train(&whole);
    run_train(&run);
    run_train(&tree);
    assert_close_runs(&run, &whole, "partial batch");
    assert_same_bits(&tree, &single, "partial batch");
    assert_replicas_equal(&run);
    run_deinit(&single);
    run_deinit(&whole);
    run_deinit(&run);
    run_deinit(&tree);
}

/* ---- E19: overlap is real ------------------------------------------------------------------- */

/* Holds the last backward op of rank 0 back until the first bucket's reduction has started: a
 * serial executor would never get there. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int first_reduce, last_backward; /* ops of the plan */
    bool started, timed_out;
};

static void before_op(void *context, int op)
{
    struct gate *gate = context;
    struct timespec limit;

    if (op != gate->first_reduce && op != gate->last_backward)
        return;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    pthread_mutex_lock(&gate->mutex);
    if (op == gate->first_reduce) {
        gate->started = true;
        pthread_cond_broadcast(&gate->changed);
    }
    while (!gate->started && !gate->timed_out)
        gate->timed_out = pthread_cond_timedwait(&gate->changed, &gate->mutex, &limit) != 0;
    pthread_mutex_unlock(&gate->mutex);
}

/* The first reduction of a bucket, and the last backward op of the list. */
static void find_ops(const struct ct_plan *plan, struct gate *gate)
{
    const struct ct_program *program = &plan->step.program;

    gate->first_reduce = gate->last_backward = -1;
    for (int i = 0; i < program->op_count; i++) {
        const struct ct_program_op *op = &program->ops[i];
        if (op->kind == CT_OP_ALL_REDUCE && gate->first_reduce < 0 &&
            program->values[op->out[0]].kind == CT_VALUE_GRAD)
            gate->first_reduce = i;
        if (op->stage == CT_STAGE_BACKWARD)
            gate->last_backward = i;
    }
}

Test(ddp, the_first_bucket_is_reduced_while_backward_still_runs)
{
    struct run run = split(2, 6, CT_PLAN_INVARIANT);
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct ct_plan plan;
    double reduced = 0;

    cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, run.seed, NULL), 0);
    find_ops(&plan, &gate);
    run.steps = 1;
    run.exec = (struct ct_exec_options){.trace = true, .before_op = before_op, .context = &gate};
    run_train(&run);
    cr_assert(!gate.timed_out, "the reduction did not start before the last backward op");
    cr_assert_lt(run.trace[gate.first_reduce].start, run.trace[gate.last_backward].end);
    cr_assert_lt(run.trace[gate.last_backward - 1].end, run.trace[gate.last_backward].start);

    /* Every op ran once, and the reductions carried exactly the gradients and the two sums. */
    for (int i = 0; i < plan.step.program.op_count; i++) {
        const struct ct_program_op *op = &plan.step.program.ops[i];
        cr_assert_gt(run.trace[i].start, 0, "op %d did not run", i);
        cr_assert_gt(run.trace[i].end, run.trace[i].start);
        if (op->kind == CT_OP_ALL_REDUCE)
            reduced += (double)plan.step.program.values[op->out[0]].bytes;
    }
    cr_assert_eq(reduced, (double)plan.flat_bytes + 3 * sizeof(double));
    cr_assert_eq(ct_plan_wire_bytes(&plan), reduced, "2 (W - 1) / W is 1 for two ranks");
    ct_plan_deinit(&plan);
    run_deinit(&run);
}

Test(ddp, a_wait_for_a_reduction_comes_before_the_update)
{
    struct run run = split(4, 3, CT_PLAN_FAST);
    struct ct_plan plan;

    cr_assert_eq(ct_plan_build(&plan, &run.spec, &run.options, run.seed, NULL), 0);
    run.exec.trace = true;
    run_train(&run);
    uint64_t last_reduce = 0;
    for (int i = 0; i < plan.step.program.op_count; i++) {
        const struct ct_program_op *op = &plan.step.program.ops[i];
        if (op->kind == CT_OP_ALL_REDUCE)
            last_reduce = CT_MAX(last_reduce, run.trace[i].end);
        if (op->stage == CT_STAGE_UPDATE)
            cr_assert_gt(run.trace[i].start, last_reduce);
    }
    ct_plan_deinit(&plan);
    run_deinit(&run);
}
