/* Whole trainings: the world changes no bit, resuming changes no bit, failures reach every rank.
 *
 * Rows E1, E8, E9, E10 (data parallel), E14, E15 and E16 of the equivalence table. */
#include "harness.h"

#include "base/str.h"
#include "train/checkpoint/checkpoint.h"
#include "train/runs.h"

#include "base/assert.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(trainer, .init = harness_enter, .fini = harness_leave, .timeout = 60);

Test(trainer, one_two_and_four_ranks_give_the_same_bits_in_invariant_mode)
{
    struct training one = {.world = 1, .options = {"--checkpoint.dir=one"}};
    struct training two = {.world = 2, .options = {"--checkpoint.dir=two"}};
    struct training four = {.world = 4, .options = {"--checkpoint.dir=four"}};
    struct training other = {.world = 1, .options = {"--checkpoint.dir=x", "--seed=6"}};
    uint64_t bits = harness_train(&one);

    cr_assert_eq(one.step[0], 20, "4 epochs of 5 batches, the last one of each with 3 of 8 rows");
    cr_assert_eq(one.position[0], 4 * 35);
    cr_assert_eq(harness_train(&two), bits);
    cr_assert_eq(harness_train(&four), bits);
    cr_assert_eq(two.evaluation[1].correct, one.evaluation[0].correct);
    cr_assert_neq(harness_train(&other), bits, "another seed, other bits");
}

/* The value of `key` in the last record of metrics.jsonl that has it. */
static double last_metric(const char *path, const char *key)
{
    struct ct_buf text = harness_read(path);
    const char *at = NULL;

    for (const char *next = strstr(text.data, key); next != NULL; next = strstr(next + 1, key))
        at = next + strlen(key);
    cr_assert_not_null(at, "no %s in %s", key, path);
    double value = strtod(at, NULL);
    ct_buf_deinit(&text);
    return value;
}

Test(trainer, every_mode_and_world_gives_the_same_loss_within_rounding)
{
    static const struct {
        int world;
        const char *reduce, *global, *micro;
    } layouts[] = {
        {1, "fast", "12", "12"}, {2, "fast", "12", "3"},         {3, "fast", "12", "4"},
        {3, "fast", "12", "2"},  {4, "reproducible", "12", "3"}, {3, "invariant", "12", "4"},
    };
    double want = 0;

    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char reduce[40], global[40], micro[40];
        struct training training = {
            .world = layouts[i].world,
            .options = {reduce, global, micro, "--optim.type=sgd", "--checkpoint.resume=none"}};
        (void)snprintf(reduce, sizeof reduce, "--parallel.reduce=%s", layouts[i].reduce);
        (void)snprintf(global, sizeof global, "--batch.global=%s", layouts[i].global);
        (void)snprintf(micro, sizeof micro, "--batch.micro=%s", layouts[i].micro);
        (void)harness_train(&training);
        double loss = last_metric("run/metrics.jsonl", "\"loss\":");
        if (i == 0)
            want = loss;
        cr_assert_lt(fabs(loss - want) / want, 2e-6, "layout %zu: %.9g, not %.9g", i, loss, want);
    }
    cr_assert_gt(want, 0.1);
}

enum { CHANGES = 6 };

/* A training of `world` ranks is cut at step 10 and continued by `next_world` ranks. */
static void cut_and_continue(int world, int next_world, const char *const changes[CHANGES])
{
    struct training whole = {
        .world = world,
        .options = {"--checkpoint.dir=whole", "--checkpoint.resume=none", "--checkpoint.every=10"}};
    struct training rest = {.world = next_world,
                            .options = {"--checkpoint.dir=rest",
                                        "--checkpoint.resume=whole/step_00000010",
                                        "--checkpoint.every=10"}};

    for (int i = 0; i < CHANGES; i++)
        whole.options[3 + i] = rest.options[3 + i] = changes[i];
    uint64_t bits = harness_train(&whole);

    cr_assert_eq(harness_train(&rest), bits, "%s, %d ranks", changes[0], world);
    cr_assert_eq(rest.step[0], whole.step[0]);
    cr_assert_eq(rest.position[next_world - 1], whole.position[0]);
    cr_assert_eq(ct_fs_remove_tree("whole"), 0);
    cr_assert_eq(ct_fs_remove_tree("rest"), 0);
}

Test(trainer, a_resumed_training_equals_the_uninterrupted_one)
{
    static const char *const optims[][CHANGES] = {
        {"--optim.type=adamw"},
        {"--optim.type=sgd"},
        {"--optim.type=sgd", "--optim.momentum=0.9"},
        {"--optim.type=sgd", "--optim.momentum=0.9", "--optim.nesterov=true"},
        {"--optim.type=lion", "--optim.lr=5e-3"},
    };

    for (size_t i = 0; i < CT_COUNT(optims); i++) {
        cut_and_continue(1, 1, optims[i]);
        cut_and_continue(2, 2, optims[i]);
    }
}

/* Evaluated at steps 5 and 10 and twice behind the cut: only the first one is good enough. */
static const char *const plateau[CHANGES] = {"--schedule.type=plateau",  "--eval.every=5",
                                             "--schedule.patience=1",    "--schedule.factor=0.5",
                                             "--schedule.threshold=0.9", "--schedule.warmup=0"};

Test(trainer, a_plateau_lowers_the_rate_and_its_state_survives_a_resume)
{
    struct training training = {.world = 2, .options = {"--checkpoint.dir=whole"}};

    for (int i = 0; i < CHANGES; i++)
        training.options[1 + i] = plateau[i];
    (void)harness_train(&training);
    cr_assert_float_eq(last_metric("run/metrics.jsonl", "\"lr\":"), 1e-2, 1e-12,
                       "half of it after the evaluation of step 15");
    cr_assert_eq(ct_fs_remove_tree("whole"), 0);
    cut_and_continue(1, 1, plateau);
    cut_and_continue(2, 4, plateau);
}

/* This rank does not evaluate: the next look at a stop ends it, and the evaluation of the others.
 */
static void leave_evaluations_out(struct ct_worker *worker)
{
    worker->eval.rows = 0;
}

Test(trainer, a_stop_that_cuts_an_evaluation_short_does_not_lose_what_a_plateau_would_see)
{
    struct training whole = {.world = 2, .options = {"--checkpoint.dir=whole"}};
    struct training cut = {.world = 2,
                           .options = {"--checkpoint.dir=cut"},
                           .stop_step = 5,
                           .tamper = leave_evaluations_out};
    struct training rest = {.world = 2, .options = {"--checkpoint.dir=cut"}};

    for (int i = 0; i < CHANGES; i++)
        whole.options[1 + i] = cut.options[1 + i] = rest.options[1 + i] = plateau[i];
    uint64_t bits = harness_train(&whole);
    harness_run(&cut);
    cr_assert_eq(cut.code[0], 0, "%s", cut.error[0].text);
    cr_assert(cut.stopped[0]);
    cr_assert_eq(cut.step[0], 5);
    cr_assert_eq(harness_train(&rest), bits);
    cr_assert_eq(rest.first_step[0], 5);
}

Test(trainer, groups_of_parameters_continue_with_the_same_bits)
{
    static const char *const groups[CHANGES] = {"--optim.no_decay=1d", "--optim.weight_decay=0.1",
                                                "--optim.lr_factors=layers.1.*=0.5"};

    static const char *const frozen[CHANGES] = {"--optim.freeze=layers.0.*", "--optim.type=lion",
                                                "--optim.lr=5e-3"};

    cut_and_continue(2, 4, groups);
    cut_and_continue(2, 1, frozen);
}

Test(trainer, what_is_recomputed_trains_to_the_same_bits)
{
    struct training plain = {.world = 1, .options = {"--checkpoint.dir=a"}};
    struct training block = {.world = 2,
                             .options = {"--checkpoint.dir=b", "--memory.recompute=block"}};

    cr_assert_eq(harness_train(&plain), harness_train(&block));
}

static off_t size_of(const char *path)
{
    struct stat info;

    cr_assert_eq(stat(path, &info), 0, "%s", path);
    return info.st_size;
}

Test(trainer, the_average_is_a_model_of_its_own_and_continues_with_the_same_bits)
{
    static const char *const average[CHANGES] = {"--optim.ema=0.9", "--eval.ema=true",
                                                 "--optim.freeze=layers.0.bias"};
    struct training last = {.world = 2, .options = {"--optim.ema=0.9", "--checkpoint.dir=a"}};
    struct training mean = {
        .world = 2, .options = {"--optim.ema=0.9", "--checkpoint.dir=b", "--eval.ema=true"}};

    cr_assert_eq(harness_train(&last), harness_train(&mean), "looking changes nothing");
    cr_assert_neq(last.evaluation[0].loss, mean.evaluation[0].loss);
    cr_assert_eq(size_of("a/step_00000020/ema.safetensors"),
                 size_of("a/step_00000020/model.safetensors"), "the same names and shapes");
    cut_and_continue(2, 4, average);
}

Test(trainer, an_average_begins_at_a_checkpoint_that_has_none)
{
    struct training without = {.world = 1, .options = {"--checkpoint.dir=a", "--train.epochs=2"}};
    struct training with = {.world = 1, .options = {"--checkpoint.dir=a", "--optim.ema=0.5"}};

    (void)harness_train(&without);
    (void)harness_train(&with);
    cr_assert_eq(with.first_step[0], 10);
    (void)size_of("a/step_00000020/ema.safetensors");
}

Test(trainer, another_world_continues_with_the_same_bits)
{
    static const char *const adamw[CHANGES] = {"--optim.type=adamw"};

    cut_and_continue(2, 4, adamw);
    cut_and_continue(4, 1, adamw);
}

Test(trainer, checkpoints_do_not_know_the_world)
{
    struct training one = {.world = 1, .options = {"--checkpoint.dir=one"}};
    struct training four = {.world = 4, .options = {"--checkpoint.dir=four"}};

    (void)harness_train(&one);
    (void)harness_train(&four);
    harness_expect_equal_files("one/step_00000015/model.safetensors",
                               "four/step_00000015/model.safetensors");
    harness_expect_equal_files("one/step_00000020/optim.safetensors",
                               "four/step_00000020/optim.safetensors");
}

Test(trainer, a_stopped_training_is_saved_and_goes_on_with_the_same_bits)
{
    struct training whole = {.world = 1, .options = {"--checkpoint.dir=whole"}};
    struct training stopped = {.world = 1, .stop_step = 7};
    struct training rest = {.world = 2};
    uint64_t bits = harness_train(&whole);

    (void)harness_train(&stopped);
    cr_assert(stopped.stopped[0]);
    cr_assert_eq(stopped.step[0], 7);
    cr_assert_str_eq(stopped.checkpoint, "ckpt/step_00000007");
    cr_assert_eq(harness_train(&rest), bits);
    cr_assert(!rest.stopped[0]);
}

/* How many lines of the metrics hold `part`. */
static int metric_lines(const char *part)
{
    struct ct_buf text = harness_read("run/metrics.jsonl");
    int count = 0;

    for (const char *at = strstr(text.data, part); at != NULL; at = strstr(at + 1, part))
        count++;
    ct_buf_deinit(&text);
    return count;
}

Test(trainer, no_step_appears_twice_in_the_metrics)
{
    struct training first = {.world = 1, .options = {"--checkpoint.every=10"}, .stop_step = 13};
    struct training again = {.world = 1, .options = {"--checkpoint.resume=ckpt/step_00000010"}};

    (void)harness_train(&first);
    cr_assert_eq(metric_lines("\"kind\":\"train\""), 13);
    (void)harness_train(&again);
    cr_assert_eq(metric_lines("\"kind\":\"train\""), 20);
    for (int step = 1; step <= 20; step++) {
        char part[48];
        (void)snprintf(part, sizeof part, "\"kind\":\"train\",\"step\":%d,", step);
        cr_assert_eq(metric_lines(part), 1, "step %d", step);
    }
    cr_assert_eq(metric_lines("\"kind\":\"eval\""), 4, "one an epoch");
}

Test(trainer, a_finished_training_is_evaluated_and_left_alone)
{
    struct training first = {.world = 2};
    struct training again = {.world = 2};
    uint64_t bits = harness_train(&first);

    cr_assert_eq(harness_train(&again), bits);
    cr_assert_eq(again.step[0], 20);
    cr_assert_eq(again.evaluation[0].correct, first.evaluation[0].correct);
    cr_assert_str_eq(again.checkpoint, "ckpt/step_00000020");
}

Test(trainer, a_restart_goes_on_from_its_own_checkpoint_even_with_resume_none)
{
    struct training whole = {.world = 1,
                             .options = {"--checkpoint.dir=whole", "--checkpoint.resume=none"}};
    struct training first = {
        .world = 1, .options = {"--checkpoint.resume=none", "--log.dir=own"}, .stop_step = 8};
    struct training again = {
        .world = 2, .restart_count = 1, .options = {"--checkpoint.resume=none", "--log.dir=own"}};
    uint64_t bits = harness_train(&whole);

    (void)harness_train(&first);
    cr_assert_eq(harness_train(&again), bits);
    cr_assert_eq(again.first_step[0], 8);
    cr_assert_eq(again.first_step[1], 8);
}

Test(trainer, a_restart_takes_no_older_run_for_its_own)
{
    struct training older = {.world = 1, .stop_step = 12};
    struct training again = {
        .world = 1, .restart_count = 1, .options = {"--checkpoint.resume=none", "--log.dir=own"}};

    (void)harness_train(&older);
    (void)harness_train(&again);
    cr_assert_eq(again.first_step[0], 0, "it began anew");
    again.options[0] = "--checkpoint.resume=auto";
    (void)harness_train(&again);
    cr_assert_eq(again.first_step[0], 20, "auto takes any");
}

/* The parameters in a checkpoint's model.safetensors, as bytes behind its header. */
static const float *parameters(const struct ct_buf *file, size_t *ret_count)
{
    size_t head = 8 + ct_get_le64(file->data);

    *ret_count = (file->size - head) / sizeof(float);
    return (const float *)(const void *)(file->data + head);
}

Test(trainer, the_first_adamw_step_moves_weights_by_the_learning_rate)
{
    struct training still = {.world = 1,
                             .options = {"--optim.lr=0", "--schedule.warmup=0", "--train.steps=1",
                                         "--checkpoint.dir=still"}};
    struct training moved = {.world = 1,
                             .options = {"--optim.lr=0.03125", "--schedule.type=constant",
                                         "--schedule.warmup=0", "--train.steps=1",
                                         "--checkpoint.dir=moved"}};
    size_t count = 0;
    float largest = 0;

    (void)harness_train(&still);
    (void)harness_train(&moved);
    struct ct_buf a = harness_read("still/step_00000001/model.safetensors");
    struct ct_buf b = harness_read("moved/step_00000001/model.safetensors");
    const float *x = parameters(&a, &count), *y = parameters(&b, &count);
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(x[i] - y[i]));
    cr_assert_float_eq(largest, 0.03125f, 1e-5f, "%g", (double)largest);
    ct_buf_deinit(&a);
    ct_buf_deinit(&b);
}

Test(trainer, evaluations_of_many_batches_count_every_row_once)
{
    struct training one = {.world = 1,
                           .options = {"--data.eval.path=many.csv", "--data.eval.split=0,1"}};
    struct training three = {
        .world = 3,
        .options = {"--data.eval.path=many.csv", "--data.eval.split=0,1", "--batch.global=12"}};

    harness_write_rows("many.csv", 1300);
    (void)harness_train(&one);
    cr_assert_eq(one.evaluation[0].rows, 1300);
    (void)harness_train(&three); /* finished already: evaluates the same parameters */
    cr_assert_eq(three.step[0], one.step[0]);
    cr_assert_eq(three.evaluation[2].correct, one.evaluation[0].correct);
    cr_assert_float_eq(three.evaluation[2].loss, one.evaluation[0].loss, 1e-9);
    cr_assert_gt(one.evaluation[0].correct, 1000, "%lu", one.evaluation[0].correct);
}

/* Every rank ends with `code` and a sentence that holds `part`. */
static void expect_all(struct training *training, int code, const char *part)
{
    harness_run(training);
    for (int rank = 0; rank < training->world; rank++) {
        cr_assert_eq(training->code[rank], code, "rank %d: %d %s", rank, training->code[rank],
                     training->error[rank].text);
        cr_assert_not_null(strstr(training->error[rank].text, part), "rank %d: %s", rank,
                           training->error[rank].text);
    }
}

Test(trainer, ranks_with_another_configuration_are_refused)
{
    struct training training = {.world = 2, .odd_option = "--optim.lr=3e-2"};

    expect_all(&training, CT_EMISMATCH, "rank 1 has another shared part of the configuration");
}

Test(trainer, ranks_with_other_data_are_refused)
{
    struct training training = {.world = 2, .odd_option = "--data.train.path=odd.csv"};
    struct ct_buf text = harness_read("train.csv");
    struct ct_error err = {0};

    text.data[2] = text.data[2] == '7' ? '8' : '7';
    cr_assert_eq(ct_fs_replace("odd.csv", text.data, text.size, &err), 0);
    ct_buf_deinit(&text);
    expect_all(&training, CT_EMISMATCH, "rank 1 has another training data");
}

Test(trainer, a_checkpoint_that_rank_0_cannot_load_ends_all_ranks_with_its_code)
{
    struct training good = {.world = 1};
    struct training other = {.world = 2, .options = {"--model.hidden=11"}};

    (void)harness_train(&good);
    harness_run(&other);
    cr_assert_eq(other.code[0], CT_EDATA);
    cr_assert_not_null(strstr(other.error[0].text, "of another model"), "%s", other.error[0].text);
    cr_assert_eq(other.code[1], CT_EDATA);
    cr_assert_eq(other.scope[0], CT_SCOPE_JOB);
    cr_assert_eq(other.scope[1], CT_SCOPE_JOB);
}

Test(trainer, bad_batches_and_data_are_told_before_anybody_waits)
{
    struct training batch = {.world = 3};
    struct training input = {.world = 2, .options = {"--model.input=7"}};
    struct training missing = {.world = 2, .options = {"--data.eval.path=none.csv"}};

    expect_all(&batch, CT_ECONFIG, "batch.global 8 does not divide into 3 workers");
    expect_all(&input, CT_EDATA, "model.input is 7, but train.csv has 6 features");
    expect_all(&missing, CT_ENOINPUT, "none.csv: cannot be opened: No such file");
    cr_assert_eq(batch.scope[0], CT_SCOPE_NODE);
}

Test(trainer, a_diverging_training_ends_with_the_step_and_advice)
{
    struct training training = {.world = 2,
                                .options = {"--optim.type=sgd", "--optim.lr=1000", "--optim.clip=0",
                                            "--model.loss=mse", "--schedule.warmup=0",
                                            "--train.epochs=40"}};

    expect_all(&training, CT_EDIVERGED, "the training diverged; lower optim.lr or set optim.clip");
}

Test(trainer, patterns_that_match_no_parameter_are_told_before_anybody_waits)
{
    struct training decay = {.world = 2, .options = {"--optim.no_decay=1d,head.*"}};
    struct training factor = {.world = 2, .options = {"--optim.lr_factors=head.*=2"}};

    expect_all(&decay, CT_ECONFIG, "optim.no_decay: no parameter is called \"head.*\"");
    expect_all(&factor, CT_ECONFIG, "optim.lr_factors: no parameter is called \"head.*\"");
    cr_assert_eq(decay.scope[1], CT_SCOPE_NODE);
}

/* ---- steps that are not finite -------------------------------------------------------------- */

/* One row of the training data has no number any more. */
static void spoil_a_row(struct ct_worker *worker)
{
    worker->train.features[0] = NAN;
}

Test(trainer, a_step_that_is_not_finite_ends_the_training_and_names_the_parameter)
{
    struct training training = {.world = 1, .tamper = spoil_a_row};

    expect_all(&training, CT_EDIVERGED,
               "the loss is nan and the gradient of layers.0.weight (one of 4 such parameters) is "
               "not finite: the training diverged");
    cr_assert_leq(training.step[0], 5, "each row is once in the 5 steps of an epoch");
}

Test(trainer, steps_that_are_not_finite_are_left_out_and_a_resume_knows_their_number)
{
    struct training whole = {.world = 1,
                             .options = {"--train.skip_nonfinite=1", "--checkpoint.dir=whole"},
                             .tamper = spoil_a_row};
    struct training rest = {.world = 1,
                            .options = {"--train.skip_nonfinite=1", "--checkpoint.dir=rest",
                                        "--checkpoint.resume=whole/step_00000010"},
                            .tamper = spoil_a_row};
    uint64_t bits = harness_train(&whole);

    cr_assert_eq(whole.step[0], 20);
    cr_assert(isfinite(whole.evaluation[0].loss));
    struct ct_buf state = harness_read("whole/step_00000010/state.json");
    cr_assert_not_null(strstr(state.data, "\"skipped\": 2"), "%s", state.data);
    ct_buf_deinit(&state);
    cr_assert_eq(harness_train(&rest), bits);
}

Test(trainer, more_such_steps_in_a_row_than_allowed_end_the_training)
{
    struct training training = {
        .world = 2,
        .options = {"--data.train.scale=1e30", "--model.loss=mse", "--train.skip_nonfinite=2"}};

    expect_all(&training, CT_EDIVERGED, "step 3: ");
}

static int lines_of(const char *folder)
{
    char path[PATH_MAX];
    int lines = 0;

    cr_assert(snprintf(path, sizeof path, "%s/metrics.jsonl", folder) < (int)sizeof path);
    struct ct_buf text = harness_read(path);
    for (const char *at = text.data; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    ct_buf_deinit(&text);
    return lines;
}

Test(trainer, each_start_has_a_folder_of_its_own_and_leaves_the_others_alone)
{
    struct training long_one = {.world = 2, .options = {"--log.dir=", "--checkpoint.dir=auto"}};
    struct training short_one = {
        .world = 2, .options = {"--log.dir=", "--checkpoint.dir=auto", "--train.epochs=2"}};
    char(*runs)[PATH_MAX] = NULL, newest[PATH_MAX], path[PATH_MAX];
    size_t count = 0;

    (void)harness_train(&long_one);
    (void)harness_train(&short_one);
    cr_assert_eq(ct_runs_list("runs/test", &runs, &count), 0);
    cr_assert_eq(count, 2);
    cr_assert_eq(lines_of(runs[0]), 24, "20 steps, 4 evaluations");
    cr_assert_eq(lines_of(runs[1]), 12);
    cr_assert(ct_runs_newest("runs/test", newest));
    cr_assert_str_eq(newest, runs[1]);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/checkpoints", runs[i]);
        cr_assert_eq(ct_ckpt_latest(path, path, NULL), 0);
        cr_assert(ct_ends_with(path, i == 0 ? "step_00000020" : "step_00000010"), "%s", path);
    }
    free(runs);
}

Test(trainer, a_job_that_was_queued_again_goes_on_in_its_own_folder)
{
    struct training cut = {
        .world = 1, .options = {"--log.dir=", "--checkpoint.dir=auto"}, .stop_step = 8};
    struct training again = {
        .world = 2,
        .restart_count = 1,
        .options = {"--log.dir=", "--checkpoint.dir=auto", "--checkpoint.resume=none"}};
    struct ct_run_record *record = calloc(1, sizeof *record);
    char newest[PATH_MAX];

    harness_run(&cut);
    (void)harness_train(&again);
    cr_assert_eq(again.first_step[0], 8);
    cr_assert(ct_runs_newest("runs/test", newest));
    cr_assert_eq(lines_of(newest), 24);
    cr_assert_eq(ct_run_record_read(newest, record, NULL), 0);
    cr_assert_eq(record->starts, 2);
    free(record);
}

Test(trainer, a_run_leaves_its_configuration_behind)
{
    struct training training = {.world = 1, .options = {"--optim.lr=0.0125"}};

    (void)harness_train(&training);
    struct ct_buf text = harness_read("run/config.yaml");
    cr_assert_not_null(strstr(text.data, "lr: 0.0125"));
    ct_buf_deinit(&text);
}
