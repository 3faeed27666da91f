/* See sweep_results.h. */
#include "cmd/ctrun/sweep/sweep_results.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log/record.h"
#include "base/str.h"
#include "cmd/ctrun/cli/commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *end_of(const struct sweep *sweep, int i)
{
    const struct ct_sweep_trial *trial = &sweep->trials[i];

    return trial->running                 ? "running"
           : trial->finished              ? "finished"
           : trial->failed                ? "failed"
           : sweep->decisions[i].out >= 0 ? "stopped"
                                          : "waiting";
}

int sweep_results_write(const struct sweep *sweep, struct ct_error *err)
{
    char path[PATH_MAX + 16];
    struct ct_buf text;

    ct_buf_init(&text, 0);
    for (int i = 0; i < sweep->rules.trials; i++) {
        const struct sweep_trial *facts = &sweep->facts[i];
        bool any = facts->evaluations > 0;

        (void)ct_buf_printf(&text, "{\"v\":1,\"trial\":%d", i);
        ct_record_string(&text, "run", facts->folder);
        (void)ct_buf_puts(&text, ",\"settings\":{");
        for (int k = 0; k < sweep->axis_count; k++) {
            (void)ct_buf_puts(&text, k > 0 ? "," : "");
            ct_json_string(&text, sweep->axes[k].key);
            (void)ct_buf_puts(&text, ":");
            ct_json_string(&text, ct_sweep_grid_value(sweep->axes, sweep->axis_count, i, k));
        }
        (void)ct_buf_puts(&text, "}");
        ct_record_string(&text, "ended", end_of(sweep, i));
        int out = sweep->decisions[i].out;
        ct_record_number(&text, "worst_half_at",
                         out >= 0 ? 1.0 / (1 << (sweep->rules.rungs - out)) : NAN);
        ct_record_number(&text, "status", facts->status);
        ct_record_number(&text, "step", (double)facts->step);
        ct_record_number(&text, "steps", (double)facts->steps);
        ct_record_string(&text, "metric", sweep->metric);
        ct_record_number(&text, "best", any ? facts->best : NAN);
        ct_record_number(&text, "best_step", (double)facts->best_step);
        ct_record_number(&text, "last", any ? facts->last : NAN);
        (void)ct_buf_puts(&text, "}\n");
    }
    (void)snprintf(path, sizeof path, "%s/results.jsonl", sweep->folder);
    int code = text.failed ? ct_error_set(err, CT_ENOMEM, "out of memory for %s", path)
                           : ct_fs_replace(path, text.data, text.size, err);
    ct_buf_deinit(&text);
    return code;
}

/* ---- the table ------------------------------------------------------------------------------ */

struct rank {
    int trial;
    double key; /* lower is better */
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->trial - y->trial;
}

/* A line of the table; among records, one. */
static void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void print_line(const char *format, ...)
{
    char text[PATH_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (ct_complaints_in_json())
        ct_command_note("%s", text);
    else
        (void)puts(text);
}

void sweep_results_print(const struct sweep *sweep)
{
    struct rank ranks[CT_SWEEP_TRIALS] = {{.trial = 0}};
    int count = sweep->rules.trials;

    for (int i = 0; i < count; i++) {
        const struct sweep_trial *facts = &sweep->facts[i];
        bool known = facts->evaluations > 0 && !isnan(facts->best);
        ranks[i] = (struct rank){.trial = i,
                                 .key = !known                ? INFINITY
                                        : sweep->rules.higher ? -facts->best
                                                              : facts->best};
    }
    qsort(ranks, (size_t)count, sizeof *ranks, compare_ranks);
    print_line("%-9s %8s %9s %8s %-9s %s", "TRIAL", "STEP", "BEST", "AT", "ENDED", "SETTINGS");
    for (int i = 0; i < count; i++) {
        int trial = ranks[i].trial;
        const struct sweep_trial *facts = &sweep->facts[trial];
        char best[24];

        (void)snprintf(best, sizeof best, facts->evaluations > 0 ? "%.4g" : "-", facts->best);
        print_line("%-9s %8" PRIu64 " %9s %8" PRIu64 " %-9s %s", strrchr(facts->folder, '/') + 1,
                   facts->step, best, facts->best_step, end_of(sweep, trial), facts->label);
    }
    print_line("BEST is the %s of an evaluation; the runs are in %s (ctrun plot %s/*)",
               sweep->metric, sweep->folder, sweep->folder);
}
