/* ctrun runs: the trainings that were run here, how far they came and how they ended; of two, what
 * is different. Reads what they left (run.json, metrics.jsonl, config.yaml) and starts nothing. */
#include "cli/commands.h"

#include "agent/job/run_text.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log/record.h"
#include "base/number/scale.h"
#include "base/str.h"
#include "cli/cli_options.h"
#include "train/run_values.h"
#include "train/runs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One run as it is shown. */
struct row {
    char folder[PATH_MAX];
    bool known; /* it has a record */
    struct ct_run_record record;
    struct ct_run_values values;
    const char *how; /* "running", "finished", "interrupted", "failed", "lost" */
    double seconds;
    uint64_t step;
};

/* ---- facts ---------------------------------------------------------------------------------- */

/* A run whose ctrun is gone without a word was lost. From another host nobody can tell. */
static bool is_alive(const struct ct_run_record *record)
{
    char host[256] = "";

    (void)gethostname(host, sizeof host - 1);
    return strcmp(host, record->host) != 0 ||
           (record->pid > 0 && (kill((pid_t)record->pid, 0) == 0 || errno == EPERM));
}

static void read_row(const char *folder, struct row *row)
{
    struct ct_run_record *record = &row->record;

    *row = (struct row){.how = "unknown"};
    (void)ct_str_copy(row->folder, sizeof row->folder, folder);
    ct_run_values_read(folder, &row->values);
    row->step = row->values.step;
    row->known = ct_run_record_read(folder, record, NULL) == 0;
    if (!row->known)
        return;
    bool lost = record->how == CT_RUN_RUNNING && !is_alive(record);
    double until = lost ? row->values.time : (double)ct_clock_wall_ns(&ct_clock_system) * 1e-9;
    row->how = lost ? "lost" : ct_run_how_text(record->how);
    row->seconds = (double)record->seconds;
    if (record->how == CT_RUN_RUNNING)
        row->seconds += fmax(until - (double)record->began, 0);
    row->step = CT_MAX(row->step, record->step);
}

static void put_loss(char to[16], const struct ct_run_values *values, double loss)
{
    (void)snprintf(to, 16, values->any ? "%.4g" : "-", loss);
}

/* ---- a list --------------------------------------------------------------------------------- */

/* What some worker said last; it does not drive the terminal. */
static void print_failure_cause(const char *cause)
{
    struct ct_buf clean;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, cause, "");
    (void)printf("  %.75s%s\n", ct_buf_str(&clean), clean.size > 75 ? "..." : "");
    ct_buf_deinit(&clean);
}

static void print_row(const struct row *row)
{
    char time[CT_SCALE_SIZE], best[16], last[16], status[24] = "";
    const char *title = ct_run_title(row->folder);
    size_t length = strlen(title);

    put_loss(best, &row->values, row->values.best_loss);
    put_loss(last, &row->values, row->values.last_loss);
    if (strcmp(row->how, "failed") == 0)
        (void)snprintf(status, sizeof status, " (%" PRIu64 ")", row->record.status);
    (void)printf("%-34s %8" PRIu64 " %8s %8s %8s %s%s\n", title + (length > 34 ? length - 34 : 0),
                 row->step, best, last, ct_scale_clock(row->seconds, time), row->how, status);
    if (strcmp(row->how, "failed") == 0 && row->record.cause[0] != '\0')
        print_failure_cause(row->record.cause);
}

static void put_json(const struct row *row, struct ct_buf *to)
{
    const struct ct_run_values *values = &row->values;

    (void)ct_buf_puts(to, "{\"run\":");
    ct_json_string(to, ct_run_title(row->folder));
    ct_record_string(to, "folder", row->folder);
    ct_record_string(to, "how", row->how);
    ct_record_string(to, "command", row->record.command);
    ct_record_string(to, "version", row->record.version);
    ct_record_string(to, "commit", row->record.commit);
    ct_record_string(to, "cause", row->record.cause);
    ct_record_number(to, "started", (double)row->record.started);
    ct_record_number(to, "starts", (double)row->record.starts);
    ct_record_number(to, "seconds", row->seconds);
    ct_record_number(to, "step", (double)row->step);
    ct_record_number(to, "steps", (double)row->record.steps);
    ct_record_number(to, "status", (double)row->record.status);
    ct_record_number(to, "best_step", (double)values->best_step);
    ct_record_number(to, "best_loss", values->any ? values->best_loss : NAN);
    ct_record_number(to, "last_loss", values->any ? values->last_loss : NAN);
    ct_record_number(to, "best_accuracy", values->any ? values->best_accuracy : NAN);
    ct_record_number(to, "last_accuracy", values->any ? values->last_accuracy : NAN);
    (void)ct_buf_puts(to, "}");
}

static void print_json(const struct row *rows, size_t count)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_puts(&text, "[");
    for (size_t i = 0; i < count; i++) {
        (void)ct_buf_puts(&text, i > 0 ? ",\n " : "");
        put_json(&rows[i], &text);
    }
    (void)ct_buf_puts(&text, "]\n");
    (void)fputs(ct_buf_str(&text), stdout);
    ct_buf_deinit(&text);
}

static int compare_starts(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int names = ct_natural_compare(x->folder, y->folder);

    return x->record.started != y->record.started
               ? (x->record.started > y->record.started) - (x->record.started < y->record.started)
               : names;
}

static int list(const char *name, bool json, struct ct_error *err)
{
    char base[PATH_MAX], (*folders)[PATH_MAX] = NULL;
    size_t count = 0;

    (void)snprintf(base, sizeof base, "%s%s",
                   name != NULL && !ct_starts_with(name, CT_RUNS_FOLDER "/") ? CT_RUNS_FOLDER "/"
                                                                             : "",
                   name != NULL ? name : "");
    if (ct_runs_list(name != NULL ? base : NULL, &folders, &count) != 0)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the list of runs");
    struct row *rows = calloc(count + 1, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < count; i++)
        read_row(folders[i], &rows[i]);
    free(folders);
    if (rows == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %zu runs", count);
    qsort(rows, count, sizeof *rows, compare_starts);
    if (json) {
        print_json(rows, count);
    } else if (count == 0) {
        (void)printf("no runs in %s/\n", name != NULL ? base : CT_RUNS_FOLDER);
    } else {
        (void)printf("%-34s %8s %8s %8s %8s %s\n", "RUN", "STEP", "BEST", "LAST", "TIME", "ENDED");
        for (size_t i = 0; i < count; i++)
            print_row(&rows[i]);
        (void)puts("BEST and LAST are losses: of evaluations, or of training where there are none");
    }
    free(rows);
    return 0;
}

/* ---- two of them ---------------------------------------------------------------------------- */

struct comparison {
    bool json;
    int count;
    struct ct_buf text;
};

static void put_difference(void *context, const char *key, const char *const *values)
{
    struct comparison *to = context;
    const char *a = values[0], *b = values[1];

    if (run_is_place(key))
        return;
    if (to->json) {
        (void)ct_buf_puts(&to->text, to->count > 0 ? ",\"" : "\"");
        (void)ct_buf_printf(&to->text, "%s\":[", key);
        ct_json_string(&to->text, a);
        (void)ct_buf_puts(&to->text, ",");
        ct_json_string(&to->text, b);
        (void)ct_buf_puts(&to->text, "]");
    } else {
        (void)ct_buf_printf(&to->text, "%-22.22s %-28.28s %.28s\n", key, a, b);
    }
    to->count++;
}

static int compare_configs(const struct row *rows, struct comparison *to, struct ct_error *err)
{
    struct ct_config *cfgs = calloc(2, sizeof *cfgs);
    char path[PATH_MAX];
    int code = 0;

    if (cfgs == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for two configurations");
    for (int i = 0; i < 2 && code == 0; i++) {
        if (snprintf(path, sizeof path, "%s/config.yaml", rows[i].folder) >= (int)sizeof path)
            code = ct_error_set(err, CT_ENOINPUT, "%.64s...: the path is too long", path);
        else
            code = run_config(&cfgs[i], path, err);
    }
    if (code == 0)
        ct_config_differences((const struct ct_config *const[]){&cfgs[0], &cfgs[1]}, 2,
                              put_difference, to);
    for (int i = 0; i < 2; i++)
        ct_config_deinit(&cfgs[i]);
    free(cfgs);
    return code;
}

static void print_pair(const char *what, const char *a, const char *b)
{
    (void)printf("%-22s %-28.28s %.28s\n", what, a, b);
}

static void print_results(const struct row *rows)
{
    char accuracies[2][64], times[2][CT_SCALE_SIZE], steps[2][48], losses[2][48], lasts[2][48];

    for (int i = 0; i < 2; i++) {
        const struct ct_run_values *values = &rows[i].values;
        bool accurate = values->any && !isnan(values->best_accuracy);

        (void)ct_scale_clock(rows[i].seconds, times[i]);
        (void)snprintf(steps[i], sizeof steps[i], "%" PRIu64 " of %" PRIu64, rows[i].step,
                       rows[i].record.steps);
        (void)snprintf(losses[i], sizeof losses[i], values->any ? "%.4g at step %" PRIu64 : "-",
                       values->best_loss, values->best_step);
        (void)snprintf(lasts[i], sizeof lasts[i], values->any ? "%.4g" : "-", values->last_loss);
        (void)snprintf(accuracies[i], sizeof accuracies[i], accurate ? "%.2f %%" : "-",
                       100 * values->best_accuracy);
    }
    print_pair("ended", rows[0].how, rows[1].how);
    print_pair("steps", steps[0], steps[1]);
    print_pair("best loss", losses[0], losses[1]);
    print_pair("last loss", lasts[0], lasts[1]);
    print_pair("best accuracy", accuracies[0], accuracies[1]);
    print_pair("time", times[0], times[1]);
    if (rows[0].record.commit[0] != '\0' || rows[1].record.commit[0] != '\0')
        print_pair("commit", rows[0].record.commit, rows[1].record.commit);
}

/* Of "digits_mlp/2026-11-23_20-15-04" the last part, and the name in a row of its own where two
 * differ in it. */
static void print_titles(const struct row *rows)
{
    const char *titles[2] = {ct_run_title(rows[0].folder), ct_run_title(rows[1].folder)};
    const char *runs[2];
    char names[2][32];

    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(titles[i], '/');

        runs[i] = slash != NULL ? slash + 1 : titles[i];
        (void)snprintf(names[i], sizeof names[i], "%.*s",
                       slash != NULL ? (int)CT_MIN(slash - titles[i], 31) : 0, titles[i]);
    }
    print_pair("run", runs[0], runs[1]);
    if (strcmp(names[0], names[1]) != 0)
        print_pair("name", names[0], names[1]);
}

static int compare(const char *const *names, bool json, struct ct_error *err)
{
    struct comparison to = {.json = json};
    struct row *rows = calloc(2, sizeof *rows);
    char folder[PATH_MAX];
    int code = 0;

    if (rows == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for two runs");
    ct_buf_init(&to.text, 0);
    for (int i = 0; i < 2 && code == 0; i++) {
        code = ct_runs_find(names[i], folder, err);
        if (code == 0)
            read_row(folder, &rows[i]);
    }
    if (code == 0)
        code = compare_configs(rows, &to, err);
    if (code == 0 && json) {
        (void)printf("{\"differences\":{%s},\n\"runs\":", ct_buf_str(&to.text));
        print_json(rows, 2);
        (void)puts("}");
    } else if (code == 0) {
        print_titles(rows);
        (void)fputs(to.count > 0 ? ct_buf_str(&to.text) : "(equal configurations)\n", stdout);
        print_results(rows);
    }
    ct_buf_deinit(&to.text);
    free(rows);
    return code;
}

int ct_cmd_runs(int argc, char **argv)
{
    bool json = false;
    const struct ct_option options[] = {{"json", CT_OPTION_FLAG, &json}};
    const char *names[2] = {NULL, NULL};
    struct ct_cli_options cli = {.command = "runs",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .places = names,
                                 .room = 2};
    struct ct_error err = {0};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, &err);

    if (code == 0)
        code = cli.count == 2 ? compare(names, json, &err) : list(names[0], json, &err);
    return code == 0 ? 0 : ct_command_fail("ctrun runs", code, err.text);
}
