/* One rank: initial values (E11), evaluation, tensors, clipping (E12), memory (E20). */
#include "base/assert.h"
#include "base/number/rng.h"
#include "tests/unit/exec/fixture.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(exec, .timeout = 60);

enum { MAX_ROWS = 64 };

struct batch {
    float x[MAX_ROWS * 6];
    int32_t labels[MAX_ROWS];
};

static struct ct_exec_step first_step(const struct run *run, struct batch *batch)
{
    int64_t rows = run->options.accumulation * run->options.micro_rows;

    fill_rows(&run->spec, 0, rows, batch->x, batch->labels);
    return (struct ct_exec_step){.x = batch->x,
                                 .labels = batch->labels,
                                 .valid_count = rows * run->options.world,
                                 .lr = run->lr,
                                 .update = 1};
}

static void step_once(struct rig *rig, const struct run *run, struct ct_exec_result *ret_result)
{
    struct batch batch;
    struct ct_exec_step args = first_step(run, &batch);
    struct ct_error err = {0};

    cr_assert_eq(ct_exec_step(rig->exec, &args, ret_result, &err), 0, "%s", err.text);
}

/* ---- initial values ------------------------------------------------------------------------- */

Test(exec, initial_values_depend_on_seed_and_name_alone)
{
    struct run one = run_default(), four = run_default(), other = run_default();

    one.steps = four.steps = other.steps = 0;
    four.options.world = 4;
    four.options.accumulation = 1;
    four.options.micro_rows = 2;
    four.options.bucket_bytes = 1;
    other.seed = one.seed + 1;
    run_train(&one);
    run_train(&four);
    run_train(&other);
    assert_same_bits(&one, &four, "initial values");
    for (int rank = 0; rank < 4; rank++)
        cr_assert_eq(four.digests[rank], one.digests[0]);
    cr_assert_neq(other.digests[0], one.digests[0]);
    run_deinit(&one);
    run_deinit(&four);
    run_deinit(&other);
}

/* A uniform value in [-bound, bound) has mean 0 and mean square bound^2 / 3. */
Test(exec, initial_values_are_uniform_within_the_bound)
{
    enum { SEEDS = 100 };
    struct run run = run_default();
    double sum[16] = {0}, squares[16] = {0};
    float values[128];

    for (run.seed = 0; run.seed < SEEDS; run.seed++) {
        struct rig rig;
        rig_init(&rig, &run, NULL);
        for (int i = 0; i < rig.plan.param_count; i++) {
            int64_t n = ct_shape_elements(rig.plan.tensors[i].shape);
            int64_t fan_in = rig.plan.tensors[i - i % 2].shape.dim[1]; /* of the layer's weight */
            ct_exec_read(rig.exec, i, values);
            for (int64_t k = 0; k < n; k++) {
                double scaled = values[k] * sqrt((double)fan_in);
                cr_assert_leq(fabs(scaled), 1.0001);
                sum[i] += scaled / (double)(n * SEEDS);
                squares[i] += scaled * scaled / (double)(n * SEEDS);
            }
        }
        rig_deinit(&rig);
    }
    for (int i = 0; i < 6; i++) {
        cr_assert_lt(fabs(sum[i]), 0.1, "tensor %d: mean %g", i, sum[i]);
        cr_assert_lt(fabs(squares[i] - 1.0 / 3), 0.05, "tensor %d: mean square %g", i, squares[i]);
    }
}

/* ---- state ---------------------------------------------------------------------------------- */

Test(exec, tensors_written_back_continue_bit_for_bit)
{
    struct run run = run_default();
    struct rig a, b;
    struct ct_exec_result result_a, result_b;
    char data[1024];

    run.options.optim =
        (struct ct_optim_spec){.type = CT_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    rig_init(&a, &run, NULL);
    rig_init(&b, &run, NULL);
    step_once(&a, &run, &result_a);
    cr_assert_neq(ct_exec_digest(a.exec), ct_exec_digest(b.exec));
    cr_assert_eq(a.plan.tensor_count, 3 * a.plan.param_count);
    for (int i = 0; i < a.plan.tensor_count; i++) {
        cr_assert_leq(a.plan.tensors[i].bytes, sizeof data);
        ct_exec_read(a.exec, i, data);
        ct_exec_write(b.exec, i, data);
    }
    cr_assert_eq(ct_exec_digest(a.exec), ct_exec_digest(b.exec));
    cr_assert_eq(memcmp(ct_exec_state(a.exec), ct_exec_state(b.exec), a.plan.state_bytes), 0);
    step_once(&a, &run, &result_a);
    step_once(&b, &run, &result_b);
    cr_assert_eq(result_a.loss, result_b.loss);
    cr_assert_eq(ct_exec_digest(a.exec), ct_exec_digest(b.exec));
    rig_deinit(&a);
    rig_deinit(&b);
}

Test(exec, the_digest_sees_every_byte_of_every_tensor)
{
    static const int64_t wide[] = {5000, 7}; /* a weight of 140,000 bytes */
    static char data[150000];
    struct run run = run_default();
    struct rig rig;

    run.spec.hidden = wide;
    rig_init(&rig, &run, NULL);
    uint64_t before = ct_exec_digest(rig.exec);
    for (int i = 0; i < rig.plan.tensor_count; i++) {
        size_t bytes = rig.plan.tensors[i].bytes, at[] = {0, bytes / 2, bytes - 1};
        cr_assert_leq(bytes, sizeof data);
        ct_exec_read(rig.exec, i, data);
        for (size_t k = 0; k < CT_COUNT(at); k++) {
            data[at[k]] ^= 1;
            ct_exec_write(rig.exec, i, data);
            cr_assert_neq(ct_exec_digest(rig.exec), before, "%s", rig.plan.tensors[i].name);
            data[at[k]] ^= 1;
        }
        ct_exec_write(rig.exec, i, data);
        cr_assert_eq(ct_exec_digest(rig.exec), before);
    }
    rig_deinit(&rig);
}

/* ---- evaluation ----------------------------------------------------------------------------- */

Test(exec, evaluation_counts_rows_and_leaves_the_state_alone)
{
    struct run run = run_default();
    struct rig rig;
    struct batch batch;
    float logits[MAX_ROWS * 4];
    struct ct_exec_eval args = {.x = batch.x, .labels = batch.labels, .logits = logits};
    struct ct_exec_sums sums, padded;
    int64_t correct = 0;

    run.options.eval_rows = 20;
    rig_init(&rig, &run, NULL);
    uint64_t before = ct_exec_digest(rig.exec);
    fill_rows(&run.spec, 500, 20, batch.x, batch.labels);
    cr_assert_eq(ct_exec_eval(rig.exec, &args, &sums, NULL), 0);
    for (int i = 0; i < 20; i++) {
        int best = 0;
        for (int c = 1; c < 4; c++)
            best = logits[i * 4 + c] > logits[i * 4 + best] ? c : best;
        correct += best == batch.labels[i];
    }
    cr_assert_eq(sums.correct, correct);
    cr_assert(sums.loss > 0 && isfinite(sums.loss));

    double rest = 0;
    for (int half = 0; half < 2; half++) { /* the sum of two padded halves is the whole */
        fill_rows(&run.spec, 500, 20, batch.x, batch.labels);
        for (int i = 0; i < 20; i++)
            if (i / 10 != half)
                batch.labels[i] = -1;
        cr_assert_eq(ct_exec_eval(rig.exec, &args, &padded, NULL), 0);
        rest += padded.loss;
        correct -= padded.correct;
    }
    cr_assert_lt(fabs(rest - sums.loss), 1e-6 * sums.loss);
    cr_assert_eq(correct, 0);
    cr_assert_eq(ct_exec_digest(rig.exec), before);
    rig_deinit(&rig);
}

Test(exec, gradients_stay_readable_behind_an_evaluation)
{
    struct run run = run_default();
    struct rig rig;
    struct batch batch;
    struct ct_exec_result result;
    struct ct_exec_eval args = {.x = batch.x, .labels = batch.labels};
    struct ct_exec_sums sums;
    float before[128], after[128];

    rig_init(&rig, &run, NULL);
    step_once(&rig, &run, &result);
    ct_exec_read_grad(rig.exec, 0, before);
    fill_rows(&run.spec, 0, run.options.micro_rows, batch.x, batch.labels);
    cr_assert_eq(ct_exec_eval(rig.exec, &args, &sums, NULL), 0);
    ct_exec_read_grad(rig.exec, 0, after);
    cr_assert_eq(memcmp(before, after, rig.plan.tensors[0].bytes), 0);
    rig_deinit(&rig);
}

Test(exec, training_lowers_the_loss)
{
    struct run run = run_default();

    run.steps = 32;
    run_train(&run);
    cr_assert_lt(run.losses[31], 0.97 * run.losses[0]);
    run_deinit(&run);
}

/* ---- E12: clipping by the global norm ------------------------------------------------------- */

static double norm_of(const double *values, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

Test(exec, the_reported_norm_is_that_of_the_gradients_in_every_layout)
{
    struct run one = run_default(), split = run_default();

    one.steps = split.steps = 1;
    one.options.optim.clip = split.options.optim.clip = 0.01;
    split.options.world = 2;
    split.options.accumulation = 2;
    split.options.reduce = CT_PLAN_FAST;
    run_train(&one);
    run_train(&split);
    cr_assert_lt(fabs(one.norms[0] - norm_of(one.grads, one.grad_count)), 1e-6 * one.norms[0]);
    cr_assert_lt(fabs(split.norms[0] - one.norms[0]), 1e-6 * one.norms[0]);
    run_deinit(&one);
    run_deinit(&split);
}

Test(exec, clipping_shortens_the_step_to_the_limit)
{
    struct run run = run_default(), start = run_default();
    double moved = 0;

    run.options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD, .clip = 0.01};
    start.options.optim = run.options.optim;
    run.steps = 1;
    start.steps = 0;
    run.lr = 1;
    run_train(&run);
    run_train(&start);
    for (int64_t i = 0; i < run.state_count; i++)
        moved += (run.state[i] - start.state[i]) * (run.state[i] - start.state[i]);
    cr_assert_gt(run.norms[0], 0.01);
    cr_assert_lt(fabs(sqrt(moved) - 0.01), 1e-4 * 0.01);
    run_deinit(&run);
    run_deinit(&start);
}

Test(exec, a_gradient_of_zero_moves_nothing)
{
    struct run run = run_default(), start = run_default();

    run.options.optim = (struct ct_optim_spec){.type = CT_OPTIM_SGD, .clip = 1};
    start.options.optim = run.options.optim;
    run.steps = 1;
    start.steps = 0;
    run.masked = 23; /* of 24 rows one counts ... */
    run.lr = 0;
    run_train(&run);
    run_train(&start);
    cr_assert_gt(run.norms[0], 0);
    cr_assert_eq(run.digests[0], start.digests[0], "... and a rate of zero keeps all");
    run_deinit(&run);
    run_deinit(&start);
}

Test(exec, infinite_and_undefined_inputs_show_in_loss_and_norm)
{
    static const float bad[] = {INFINITY, NAN};

    for (size_t i = 0; i < CT_COUNT(bad); i++) {
        struct run run = run_default();
        struct rig rig;
        struct batch batch;
        struct ct_exec_step args = first_step(&run, &batch);
        struct ct_exec_result result;
        run.options.optim.clip = 1;
        rig_init(&rig, &run, NULL);
        batch.x[3] = bad[i];
        cr_assert_eq(ct_exec_step(rig.exec, &args, &result, NULL), 0);
        cr_assert_not(isfinite(result.grad_norm));
        cr_assert_not(isfinite(result.loss));
        rig_deinit(&rig);
    }
}

/* ---- E20: memory ---------------------------------------------------------------------------- */

/* The highest byte of the arena that a step or an evaluation changes, from two poisons. */
static size_t high_water(struct rig *rig, const struct run *run)
{
    static const unsigned char poison[] = {0x5a, 0xa7};
    unsigned char *arena = ct_exec_arena(rig->exec);
    size_t high = 0;

    for (size_t p = 0; p < 2; p++) {
        struct batch batch;
        struct ct_exec_result result;
        struct ct_exec_eval eval = {.x = batch.x, .labels = batch.labels};
        struct ct_exec_sums sums;
        memset(arena + rig->plan.grads_bytes, poison[p],
               rig->plan.arena_bytes - rig->plan.grads_bytes);
        step_once(rig, run, &result);
        fill_rows(&run->spec, 0, run->options.eval_rows, batch.x, batch.labels);
        cr_assert_eq(ct_exec_eval(rig->exec, &eval, &sums, NULL), 0);
        for (size_t i = rig->plan.arena_bytes; i > high; i--)
            if (arena[i - 1] != poison[p])
                high = i;
    }
    return high;
}

Test(exec, the_arena_is_used_to_the_last_byte_that_the_plan_says)
{
    for (int reduce = CT_PLAN_FAST; reduce <= CT_PLAN_INVARIANT; reduce++)
        for (int64_t eval_rows = 2; eval_rows <= 50; eval_rows += 24) {
            struct run run = run_default();
            struct rig rig;
            run.options.reduce = (enum ct_plan_reduce)reduce;
            run.options.eval_rows = eval_rows;
            rig_init(&rig, &run, NULL);
            cr_assert_eq(high_water(&rig, &run), rig.plan.arena_bytes);
            rig_deinit(&rig);
        }
}

/* ---- refusals ------------------------------------------------------------------------------- */

Test(exec, a_step_without_rows_is_refused)
{
    struct run run = run_default();
    struct rig rig;
    struct batch batch;
    struct ct_exec_step args = first_step(&run, &batch);
    struct ct_exec_result result;
    struct ct_error err = {0};

    rig_init(&rig, &run, NULL);
    args.valid_count = 0;
    cr_assert_eq(ct_exec_step(rig.exec, &args, &result, &err), CT_EUSAGE);
    cr_assert_gt(strlen(err.text), 0);
    rig_deinit(&rig);
}

Test(exec, a_plan_for_two_ranks_needs_a_group)
{
    struct run run = run_default();
    struct rig rig;
    struct ct_exec *exec = NULL;
    struct ct_error err = {0};

    rig_init(&rig, &run, NULL);
    rig.plan.options.world = 2;
    struct ct_exec_options options = {.device = rig.device};
    cr_assert_eq(ct_exec_new(&exec, &rig.plan, &options, &err), CT_EUSAGE);
    cr_assert_str_eq(err.text, "the plan is for 2 ranks, the group has 1");
    cr_assert_null(exec);
    rig.plan.options.world = 1;
    rig_deinit(&rig);
}
