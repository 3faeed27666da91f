/* See training_report.h. */
#include "training_report.h"

#include "alone.h"
#include "base/assert.h"
#include "base/str.h"
#include "recipe/recipe.h"
#include "train/checkpoint/checkpoint.h"
#include "train/metrics.h"
#include "train/run_values.h"
#include "worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How often progress is sent to an agent, that of log.every's steps beside it, and shown on a
 * terminal; the windows of the speed. */
enum { SHOWN_BYTES = 160 }; /* of a generated text in the log; all of it is in metrics.jsonl */
enum { AGENT_MS = 100, LOGGED_MS = 500, TERMINAL_MS = 1000, FIRST_WINDOW_MS = 50, WINDOW_MS = 500 };

static void update_best(struct ct_report *report, uint64_t step, double loss)
{
    if (report->has_best && !(loss < report->best_loss))
        return;
    report->has_best = true;
    report->best_step = step;
    report->best_loss = loss;
}

static int open_metrics(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    const struct ct_metrics_options options = {.dir = worker->run_dir.path,
                                               .jsonl = cfg->log.jsonl,
                                               .tensorboard = cfg->log.tensorboard,
                                               .resumed_step = worker->report.metrics_step,
                                               .clock = worker->clock};

    return ct_metrics_new(&worker->report.metrics, &options, err);
}

/* The best evaluation of this run may have been made before it was interrupted. */
static void restore_best(struct ct_worker *worker)
{
    struct ct_report *report = &worker->report;
    struct ct_run_values values;

    ct_run_values_read_evaluations(worker->run_dir.path, &values);
    if (worker->cfg->log.jsonl && values.evaluated && values.any)
        update_best(report, values.best_step, values.best_loss);
}

int ct_report_open(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_report *report = &worker->report;
    bool known = worker->has_last && worker->step > 0;
    int code = 0;

    if (report->started_ns == 0) {
        report->started_ns = report->mark_ns = ct_clock_mono_ns(worker->clock);
        report->shown_ns = report->alone ? report->started_ns : 0;
        report->first_step = known ? worker->step - 1 : worker->step;
        report->left_ns = report->started_ns;
    }
    ct_report_resume(worker);
    report->round_ns = report->left_ns;
    report->saving_ns = 0;
    if (worker->me->rank != 0 || report->metrics_step > worker->step)
        ct_report_close(worker);
    report->active = worker->me->rank == 0;
    if (!report->active)
        return 0;
    if (report->metrics == NULL) {
        report->metrics_step = known ? worker->step - 1 : worker->step;
        code = open_metrics(worker, err);
        restore_best(worker);
    }
    if (code == 0 && known && report->metrics_step < worker->step)
        code = ct_report_step(worker, &worker->last, err);
    return code;
}

void ct_report_close(struct ct_worker *worker)
{
    ct_metrics_free(worker->report.metrics);
    worker->report.metrics = NULL;
    worker->report.active = false;
}

void ct_report_resume(struct ct_worker *worker)
{
    struct ct_report *report = &worker->report;
    uint64_t now_ns = ct_clock_mono_ns(worker->clock);
    uint64_t away_ns = now_ns - report->left_ns;

    report->left_ns = now_ns;
    report->paused_ns += away_ns;
    report->mark_ns += away_ns;
}

static double seconds_since(const struct ct_worker *worker, uint64_t start_ns)
{
    return (double)(ct_clock_mono_ns(worker->clock) - start_ns) * 1e-9;
}

/* In steps alone, up to the last one. */
static double seconds_trained(const struct ct_report *report)
{
    return (double)(report->left_ns - report->started_ns - report->paused_ns) * 1e-9;
}

/* Samples a second: over the last window; after the last step over the whole training; 0 before
 * there is anything to tell. */
static void measure(struct ct_worker *worker)
{
    struct ct_report *report = &worker->report;
    double seconds = seconds_since(worker, report->mark_ns);
    bool first = report->samples_per_s == 0;

    if (worker->step == worker->steps) {
        report->samples_per_s = (double)report->samples / (seconds_trained(report) + 1e-9);
    } else if (seconds >= (first ? FIRST_WINDOW_MS : WINDOW_MS) * 1e-3) {
        report->samples_per_s = (double)(report->samples - report->mark_samples) / seconds;
        report->mark_ns = ct_clock_mono_ns(worker->clock);
        report->mark_samples = report->samples;
    }
}

static uint64_t epoch_count(const struct ct_worker *worker)
{
    uint64_t batches = ct_sampler_batches(&worker->sampler);

    return (worker->steps + batches - 1) / batches;
}

/* The number of the present epoch, from 1. */
static uint64_t epoch_of(const struct ct_worker *worker)
{
    uint64_t last = worker->position > 0 ? worker->position - 1 : 0; /* sample that was consumed */

    return last / worker->sampler.rows + 1;
}

static struct ct_progress progress_of(const struct ct_worker *worker,
                                      const struct ct_step_report *step)
{
    const struct ct_report *report = &worker->report;
    double per_step =
        seconds_since(worker, report->started_ns) / (double)(worker->step - report->first_step);

    return (struct ct_progress){.epoch = epoch_of(worker) - 1,
                                .epochs = epoch_count(worker),
                                .step = worker->step,
                                .steps = worker->steps,
                                .loss = step->loss,
                                .samples_per_s = report->samples_per_s,
                                .learning_rate = step->lr,
                                .eta_s = per_step * (double)(worker->steps - worker->step),
                                .trained_s = seconds_since(worker, report->round_ns),
                                .saving_s = (double)report->saving_ns * 1e-9,
                                .straggler_s = worker->pace.straggler.cost_us * 1e-6};
}

static void show_progress(struct ct_worker *worker, const struct ct_step_report *step)
{
    struct ct_report *report = &worker->report;
    uint64_t now = ct_clock_mono_ns(worker->clock);
    uint64_t pause_ms = report->alone ? TERMINAL_MS : AGENT_MS;

    bool logged = step->logged && !report->alone && now - report->logged_ns >= LOGGED_MS * 1000000u;

    if (worker->step != worker->steps && !logged && now - report->shown_ns < pause_ms * 1000000)
        return;
    report->shown_ns = now;
    if (logged)
        report->logged_ns = now;
    measure(worker);
    struct ct_progress progress = progress_of(worker, step);
    if (report->alone)
        ct_alone_progress(worker, &progress);
    else
        (void)ct_job_progress(worker->job, &progress);
}

/* A rank 0 that was cut off may complete its last step when its peers' words arrive at last. By
 * then a later round writes, and this worker leaves it to that. */
static int close_if_fenced(struct ct_worker *worker, int code, const struct ct_error *why,
                           struct ct_error *err)
{
    if (code == CT_EFENCED) {
        ct_log_event(worker->log, CT_LOG_WARN, "metrics_left", "%s, and this one no more",
                     why->text);
        ct_report_close(worker);
        return 0;
    }
    if (code != 0 && err != NULL)
        *err = *why;
    return code;
}

static int write_record(struct ct_worker *worker, const struct ct_metric_record *record,
                        struct ct_error *err)
{
    struct ct_error why = {0};
    int code = ct_metrics_write(worker->report.metrics, record, &why);

    return close_if_fenced(worker, code, &why, err);
}

int ct_report_sample(struct ct_worker *worker, const char *prompt, const char *text,
                     struct ct_error *err)
{
    const struct ct_metric_record record = {
        .kind = "sample", .step = worker->step, .epoch = epoch_of(worker)};
    struct ct_error why = {0};
    struct ct_buf line;

    if (!worker->report.active)
        return 0;
    ct_buf_init(&line, 0);
    ct_buf_put_clean(&line, prompt, "");
    ct_buf_put_clean(&line, text, "");
    ct_log_event(worker->log, CT_LOG_INFO, "sample", "step %" PRIu64 " writes: %.*s", worker->step,
                 (int)ct_utf8_valid_prefix(ct_buf_str(&line), CT_MIN(line.size, SHOWN_BYTES)),
                 ct_buf_str(&line));
    ct_buf_deinit(&line);
    int code = ct_metrics_write_sample(worker->report.metrics, &record, prompt, text, &why);
    return close_if_fenced(worker, code, &why, err);
}

int ct_report_step(struct ct_worker *worker, const struct ct_step_report *step,
                   struct ct_error *err)
{
    struct ct_report *report = &worker->report;

    report->left_ns = ct_clock_mono_ns(worker->clock);
    report->samples += step->samples;
    report->loss = step->loss;
    ct_curve_add(&report->curve, step->loss);
    if (!report->active)
        return 0;
    report->metrics_step = worker->step;
    show_progress(worker, step);
    if (!step->logged)
        return 0;
    measure(worker);
    struct ct_metric_record record = {
        .kind = "train", .step = worker->step, .epoch = epoch_of(worker)};
    ct_metric_put(&record, CT_METRIC_LOSS, step->loss);
    ct_metric_put(&record, CT_METRIC_LR, step->lr);
    ct_metric_put(&record, CT_METRIC_GRAD_NORM, step->grad_norm);
    if (report->samples_per_s > 0)
        ct_metric_put(&record, CT_METRIC_SAMPLES_PER_S, report->samples_per_s);
    ct_metric_put(&record, CT_METRIC_SAMPLES, (double)worker->position);
    return write_record(worker, &record, err);
}

/* What an evaluation's numbers mean for people. Perplexity is a language model's. */
static struct ct_job_evaluation describe(const struct ct_worker *worker,
                                         const struct ct_evaluation *e)
{
    bool language = ct_recipe_context(worker->cfg) != 0;

    return (struct ct_job_evaluation){.step = e->step,
                                      .done = 1,
                                      .loss = e->loss,
                                      .accuracy = (double)e->correct / (double)e->rows,
                                      .perplexity = language ? exp(e->loss) : -1,
                                      .best = worker->report.best_loss,
                                      .best_step = worker->report.best_step};
}

void ct_report_evaluating(struct ct_worker *worker, uint64_t done, uint64_t rows)
{
    struct ct_report *report = &worker->report;
    const struct ct_job_evaluation evaluation = {.step = worker->step,
                                                 .done = (double)done / (double)rows};
    uint64_t now = ct_clock_mono_ns(worker->clock);

    if (!report->active || report->alone || now - report->shown_ns < AGENT_MS * 1000000u)
        return;
    report->shown_ns = now;
    (void)ct_job_evaluation(worker->job, &evaluation);
}

static void show_evaluation(struct ct_worker *worker, const struct ct_evaluation *evaluation)
{
    const struct ct_job_evaluation e = describe(worker, evaluation);

    if (worker->report.alone)
        ct_alone_evaluation(worker, &e);
    else
        (void)ct_job_evaluation(worker->job, &e);
}

int ct_report_evaluation(struct ct_worker *worker, const struct ct_evaluation *evaluation,
                         struct ct_error *err)
{
    struct ct_report *report = &worker->report;

    bool told = report->metrics_evaluation == evaluation->step;

    report->evaluation = *evaluation;
    update_best(report, evaluation->step, evaluation->loss);
    report->evaluated = true;
    if (!report->active || told)
        return 0;
    report->metrics_evaluation = evaluation->step;
    show_evaluation(worker, evaluation);
    struct ct_metric_record record = {
        .kind = "eval", .step = worker->step, .epoch = epoch_of(worker)};
    ct_metric_put(&record, CT_METRIC_LOSS, evaluation->loss);
    if (ct_recipe_context(worker->cfg) != 0)
        ct_metric_put(&record, CT_METRIC_PERPLEXITY, exp(evaluation->loss));
    ct_metric_put(&record, CT_METRIC_ACCURACY,
                  (double)evaluation->correct / (double)evaluation->rows);
    ct_metric_put(&record, CT_METRIC_CORRECT, (double)evaluation->correct);
    ct_metric_put(&record, CT_METRIC_ROWS, (double)evaluation->rows);
    return write_record(worker, &record, err);
}

/* Losses as blocks, where characters are UTF-8. */
static void print_curve(const struct ct_report *report, struct ct_buf *text)
{
    struct ct_buf curve;

    ct_buf_init(&curve, 0);
    ct_curve_print(&report->curve, &curve);
    if (curve.size > 0 && ct_env_is_utf8(environ))
        (void)ct_buf_printf(text, "losses      %s\n", ct_buf_str(&curve));
    ct_buf_deinit(&curve);
}

static void print_result(const struct ct_worker *worker, bool stopped, struct ct_buf *text)
{
    const struct ct_report *report = &worker->report;
    const struct ct_evaluation *e = &report->evaluation;
    double seconds = seconds_trained(report);
    uint64_t done = worker->step - report->first_step;

    if (stopped)
        (void)ct_buf_printf(text, "stopped after step %" PRIu64 " of %" PRIu64 "\n", worker->step,
                            worker->steps);
    if (report->evaluated)
        (void)ct_buf_printf(text, "accuracy    %.2f %% (%" PRIu64 " of %" PRIu64 "), loss %.4f%s\n",
                            100.0 * (double)e->correct / (double)e->rows, e->correct, e->rows,
                            e->loss, e->step != worker->step ? ", at the last evaluation" : "");
    if (report->has_best && worker->best.metric != CT_BEST_LOSS &&
        (!report->evaluated || report->best_step != e->step))
        (void)ct_buf_printf(text, "best        loss %.4f at step %" PRIu64 "\n", report->best_loss,
                            report->best_step);
    if (!report->evaluated && done > 0)
        (void)ct_buf_printf(text, "loss        %.4f in the last step\n", report->loss);
    print_curve(report, text);
    double rate = (double)report->samples / (seconds + 1e-9);
    if (done > 0)
        (void)ct_buf_printf(text,
                            "throughput  %.*f samples/s: %" PRIu64 " steps on %d worker%s in "
                            "%.2f s\n",
                            ct_alone_decimals(rate), rate, done, worker->me->world,
                            worker->me->world > 1 ? "s" : "", seconds);
    else if (!stopped)
        (void)ct_buf_printf(text,
                            "training    complete already at step %" PRIu64
                            ": raise train.epochs or train.steps, or set checkpoint.resume to "
                            "none\n",
                            worker->step);
}

/* The checkpoint of checkpoint.best; an older one where that of the best could not be written. */
static void print_best(const struct ct_worker *worker, struct ct_buf *text)
{
    const struct ct_report *report = &worker->report;
    const struct ct_best *best = &worker->best;
    char path[PATH_MAX];

    if (report->best_checkpoint[0] == '\0')
        return;
    (void)ct_buf_printf(text, "best        %s", report->best_checkpoint);
    if (ct_ckpt_path(worker->run_dir.checkpoints, best->step, path, NULL) == 0 &&
        strcmp(path, report->best_checkpoint) == 0)
        (void)ct_buf_printf(text,
                            best->metric == CT_BEST_LOSS ? ": loss %.4f" : ": accuracy %.2f %%",
                            best->value * (best->metric == CT_BEST_LOSS ? 1 : 100));
    (void)ct_buf_puts(text, "\n");
}

/* What else this run has written for its user to look at. */
static void print_files(const struct ct_worker *worker, struct ct_buf *text)
{
    const struct ct_config *cfg = worker->cfg;
    const char *events = ct_metrics_events_path(worker->report.metrics);

    if (events[0] != '\0')
        (void)ct_buf_printf(text, "events      %s (tensorboard --logdir %s)\n", events,
                            worker->run_dir.path);
    if (cfg->log.trace > 0 && worker->step > (uint64_t)cfg->log.trace_after)
        (void)ct_buf_printf(text, "trace       %s/trace/rank*.json (open in ui.perfetto.dev)\n",
                            worker->run_dir.path);
}

void ct_report_summary(struct ct_worker *worker, bool stopped)
{
    const struct ct_report *report = &worker->report;
    struct ct_buf text;

    if (!report->active)
        return;
    ct_buf_init(&text, 0);
    print_result(worker, stopped, &text);
    if (report->checkpoint[0] != '\0')
        (void)ct_buf_printf(&text, "checkpoint  %s\n", report->checkpoint);
    print_best(worker, &text);
    const char *metrics = ct_metrics_path(report->metrics);
    if (metrics[0] != '\0')
        (void)ct_buf_printf(&text, "metrics     %s\n", metrics);
    print_files(worker, &text);
    if (report->alone)
        ct_alone_summary(worker, ct_buf_str(&text));
    else
        (void)ct_job_summary(worker->job, ct_buf_str(&text));
    ct_buf_deinit(&text);
}
