/* metrics.jsonl and the event file: what a record looks like, and that no step appears twice. */
#include "train/metrics.h"

#include "base/fs.h"
#include "folder.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(metrics, .init = folder_make, .fini = folder_remove, .timeout = 30);

static uint64_t fixed_ns(void *context)
{
    (void)context;
    return 1700000000250000000u;
}

static const struct ct_clock fixed_clock = {.mono_ns = fixed_ns, .wall_ns = fixed_ns};

static struct ct_metrics *open_metrics(uint64_t resumed_step, bool tensorboard)
{
    struct ct_metrics *metrics = NULL;
    struct ct_error err = {0};
    struct ct_metrics_options options = {.dir = folder_path("run"),
                                         .jsonl = true,
                                         .tensorboard = tensorboard,
                                         .resumed_step = resumed_step,
                                         .clock = &fixed_clock};

    cr_assert_eq(ct_metrics_new(&metrics, &options, &err), 0, "%s", err.text);
    return metrics;
}

static void write_step(struct ct_metrics *metrics, const char *kind, uint64_t step)
{
    struct ct_metric_record record = {.kind = kind, .step = step, .epoch = 1};
    struct ct_error err = {0};

    ct_metric_put(&record, CT_METRIC_LOSS, 0.25);
    cr_assert_eq(ct_metrics_write(metrics, &record, &err), 0, "%s", err.text);
}

static void expect_lines(const char *want)
{
    struct ct_buf text = folder_read(folder_path("run/metrics.jsonl"));

    cr_assert_str_eq(ct_buf_str(&text), want);
    ct_buf_deinit(&text);
}

#define LINE(kind, step)                             \
    "{\"v\":1,\"kind\":\"" kind "\",\"step\":" #step \
    ",\"epoch\":1,\"time\":1700000000.25,\"loss\":0.25}\n"

Test(metrics, a_record_is_one_line_with_its_values)
{
    struct ct_metrics *metrics = open_metrics(0, false);
    struct ct_metric_record record = {.kind = "eval", .step = 45, .epoch = 2};
    struct ct_error err = {0};

    ct_metric_put(&record, CT_METRIC_ACCURACY, 0.1);
    ct_metric_put(&record, CT_METRIC_LOSS, NAN);
    ct_metric_put(&record, CT_METRIC_ROWS, 360);
    cr_assert_eq(ct_metrics_write(metrics, &record, &err), 0, "%s", err.text);
    cr_assert_str_eq(ct_metrics_path(metrics), folder_path("run/metrics.jsonl"));
    ct_metrics_free(metrics);
    expect_lines("{\"v\":1,\"kind\":\"eval\",\"step\":45,\"epoch\":2,\"time\":1700000000.25,"
                 "\"loss\":null,\"accuracy\":0.1,\"rows\":360}\n");
}

Test(metrics, a_resumed_run_repeats_no_step)
{
    struct ct_metrics *metrics = open_metrics(0, false);

    for (uint64_t step = 10; step <= 40; step += 10) {
        write_step(metrics, "train", step);
        if (step % 20 == 0)
            write_step(metrics, "eval", step);
    }
    ct_metrics_free(metrics);
    metrics = open_metrics(25, false);
    write_step(metrics, "train", 30);
    ct_metrics_free(metrics);
    expect_lines(LINE("train", 10) LINE("train", 20) LINE("eval", 20) LINE("train", 30));
}

Test(metrics, a_writer_whose_file_another_has_taken_over_adds_nothing)
{
    struct ct_metrics *cut_off = open_metrics(0, false);
    struct ct_metric_record late = {.kind = "train", .step = 20, .epoch = 1};
    struct ct_error err = {0};

    write_step(cut_off, "train", 10);
    struct ct_metrics *heir = open_metrics(10, false);
    write_step(heir, "train", 20);
    cr_assert_eq(ct_metrics_write(cut_off, &late, &err), CT_EFENCED);
    cr_assert_not_null(strstr(err.text, "metrics.jsonl: another process writes it now"));
    write_step(heir, "train", 30);
    expect_lines(LINE("train", 10) LINE("train", 20) LINE("train", 30));
    ct_metrics_free(cut_off);
    ct_metrics_free(heir);
}

Test(metrics, a_line_torn_by_a_crash_is_cut)
{
    struct ct_metrics *metrics = open_metrics(0, false);
    static const char torn[] = LINE("train", 10) LINE("eval", 10) "{\"v\":1,\"kind\":\"tra";

    ct_metrics_free(metrics);
    folder_write(folder_path("run/metrics.jsonl"), torn, sizeof torn - 1);
    metrics = open_metrics(10, false);
    write_step(metrics, "train", 20);
    ct_metrics_free(metrics);
    expect_lines(LINE("train", 10) LINE("eval", 10) LINE("train", 20));
}

Test(metrics, a_new_run_starts_a_new_file)
{
    struct ct_metrics *metrics = open_metrics(0, false);

    write_step(metrics, "train", 10);
    ct_metrics_free(metrics);
    metrics = open_metrics(0, false);
    ct_metrics_free(metrics);
    expect_lines("");
}

Test(metrics, tensorboard_gets_version_session_and_a_record_each)
{
    struct ct_metrics *metrics = open_metrics(0, true);
    char path[PATH_MAX];

    write_step(metrics, "train", 10);
    (void)snprintf(path, sizeof path, "%s", ct_metrics_events_path(metrics));
    ct_metrics_free(metrics);
    cr_assert_eq(folder_count(folder_path("run"), "events.out.tfevents.1700000000."), 1);
    cr_assert_eq(folder_count(folder_path("run"), ""), 2);
    cr_assert_not_null(strstr(path, "/run/events.out.tfevents.1700000000."));
}

Test(metrics, counts_of_rows_are_no_charts)
{
    struct ct_metrics *metrics = open_metrics(0, true);
    struct ct_metric_record record = {.kind = "eval", .step = 45, .epoch = 2};
    struct ct_buf events;
    struct ct_error err = {0};

    ct_metric_put(&record, CT_METRIC_LOSS, 0.5);
    ct_metric_put(&record, CT_METRIC_CORRECT, 349);
    ct_metric_put(&record, CT_METRIC_ROWS, 360);
    cr_assert_eq(ct_metrics_write(metrics, &record, &err), 0, "%s", err.text);
    ct_buf_init(&events, 0);
    cr_assert_eq(ct_fs_read(ct_metrics_events_path(metrics), 1u << 16, &events, &err), 0);
    cr_assert_not_null(memmem(events.data, events.size, "eval/loss", 9));
    cr_assert_null(memmem(events.data, events.size, "eval/correct", 12));
    cr_assert_null(memmem(events.data, events.size, "eval/rows", 9));
    ct_buf_deinit(&events);
    ct_metrics_free(metrics);
}

Test(metrics, a_folder_that_cannot_be_made_is_named)
{
    struct ct_metrics *metrics = NULL;
    struct ct_error err = {0};
    struct ct_metrics_options options = {.jsonl = true, .clock = &fixed_clock};

    folder_write(folder_path("file"), "", 0);
    options.dir = folder_path("file/run");
    cr_assert_eq(ct_metrics_new(&metrics, &options, &err), CT_ECANTCREAT);
    cr_assert_not_null(strstr(err.text, "/file"), "%s", err.text);
}
