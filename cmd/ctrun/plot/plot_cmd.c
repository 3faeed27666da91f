/* ctrun plot: metrics of one or several runs as curves, in the terminal and as an SVG file. Reads
 * what runs leave (metrics.jsonl, config.yaml), also while they are running.
 *
 *     ctrun plot                                    the loss of the run that began last
 *     ctrun plot runs/digits_mlp/2026* --log        those of several, told apart by their settings
 *     ctrun plot digits_mlp --metric loss --metric lr -o digits.svg */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/scale.h"
#include "base/str.h"
#include "cmd/ctrun/cli/cli_options.h"
#include "cmd/ctrun/plot/run_labels.h"
#include "train/plot/plot.h"
#include "train/runs.h"
#include "train/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS = 8, COLUMNS = 80, MOST_COLUMNS = 240, ROWS = 16, SMALL_ROWS = 8 };

struct plotting {
    struct ct_option_texts metrics;
    const char *x_name, *file;
    bool log;

    enum ct_series_x x;
    char (*folders)[PATH_MAX];
    char (*labels)[RUN_LABEL_SIZE];
    int runs;
    struct ct_series (*series)[CT_SERIES_KINDS]; /* of each metric, of each run */
    struct ct_plot_curve (*curves)[CT_SERIES_KINDS];
    struct ct_plot plots[METRICS];
    char unit[32]; /* of x */
};

/* ---- which runs ----------------------------------------------------------------------------- */

/* A shell's pattern matches files beside the runs, too. */
static bool is_file(const char *word)
{
    struct stat info;

    return stat(word, &info) == 0 && S_ISREG(info.st_mode);
}

static int find_runs(struct plotting *p, const char *const *words, int count, struct ct_error *err)
{
    int code = 0;

    for (int i = 0; i < count && code == 0; i++) {
        if (count > 1 && is_file(words[i]))
            continue;
        if (p->runs == CT_PLOT_RUNS)
            return ct_error_set(err, CT_EUSAGE, "more than %d runs: name fewer", CT_PLOT_RUNS);
        code = ct_runs_find(words[i], p->folders[p->runs], err);
        p->runs++;
    }
    if (code == 0 && count == 0) {
        code = ct_runs_find("", p->folders[0], err);
        p->runs = 1;
    }
    if (code == 0 && p->runs == 0)
        code = ct_error_set(err, CT_EUSAGE, "none of the %d files is a run", count);
    return code;
}

/* ---- their values --------------------------------------------------------------------------- */

static int refuse_metric(const struct plotting *p, const char *metric, struct ct_error *err)
{
    struct ct_buf names;

    ct_buf_init(&names, 0);
    for (int run = 0; run < p->runs; run++)
        ct_series_names(p->folders[run], &names);
    int code =
        names.size > 0
            ? ct_error_set(err, CT_ENOTFOUND, "no run has the metric \"%.64s\"; there are: %s",
                           metric, ct_buf_str(&names))
            : ct_error_set(err, CT_ENOTFOUND, "%s has no metrics yet: no metrics.jsonl in it",
                           p->folders[0]);
    ct_buf_deinit(&names);
    return code;
}

static int read_metric(struct plotting *p, int index, struct ct_error *err)
{
    const char *metric = p->metrics.at[index];
    struct ct_series(*series)[CT_SERIES_KINDS] = &p->series[index * p->runs];
    struct ct_plot_curve *curves = p->curves[index * p->runs];
    size_t count = 0;
    int code = 0;

    for (int run = 0; run < p->runs && code == 0; run++) {
        code = ct_series_read(p->folders[run], metric, p->x, series[run], err);
        for (int kind = 0; kind < CT_SERIES_KINDS; kind++) {
            const struct ct_series *values = &series[run][kind];
            bool beside = kind == CT_SERIES_EVAL && series[run][CT_SERIES_TRAIN].count > 0;

            if (values->count == 0)
                continue;
            curves[count] = (struct ct_plot_curve){.run = run,
                                                   .marks = beside,
                                                   .x = values->x,
                                                   .y = values->y,
                                                   .count = values->count};
            count++;
        }
    }
    if (code == 0 && count == 0)
        code = refuse_metric(p, metric, err);
    p->plots[index] = (struct ct_plot){
        .title = metric, .x_name = p->unit, .log = p->log, .curves = curves, .count = count};
    return code;
}

/* Seconds become minutes, hours or days, so that round ticks are round. */
static void scale_times(struct plotting *p)
{
    static const struct {
        double seconds;
        const char *text;
    } units[] = {{86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "seconds"}};
    size_t count = (size_t)p->metrics.count * (size_t)p->runs, unit = 0;
    double longest = 0;

    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < CT_SERIES_KINDS; k++)
            for (size_t v = 0; v < p->series[i][k].count; v++)
                longest = fmax(longest, p->series[i][k].x[v]);
    while (units[unit].seconds > 1 && longest < 3 * units[unit].seconds)
        unit++;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < CT_SERIES_KINDS; k++)
            for (size_t v = 0; v < p->series[i][k].count; v++)
                p->series[i][k].x[v] /= units[unit].seconds;
    (void)snprintf(p->unit, sizeof p->unit, "%s", units[unit].text);
}

static int read_values(struct plotting *p, struct ct_error *err)
{
    size_t count = (size_t)p->metrics.count * (size_t)p->runs;
    int code = 0;

    p->series = calloc(count + 1, sizeof *p->series);
    p->curves = calloc(count + 1, sizeof *p->curves);
    if (p->series == NULL || p->curves == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for %zu curves", count);
    (void)snprintf(p->unit, sizeof p->unit, "%s", ct_series_x_text(p->x));
    for (int i = 0; i < p->metrics.count && code == 0; i++)
        code = read_metric(p, i, err);
    if (code == 0 && p->x == CT_SERIES_TIME)
        scale_times(p);
    return code;
}

/* ---- pictures ------------------------------------------------------------------------------- */

static struct ct_plot_style find_style(const struct plotting *p)
{
    struct winsize size = {.ws_col = 0};
    const char *term = getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) == 1;
    bool dumb = term == NULL || strcmp(term, "dumb") == 0;
    bool sized = terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;

    return (struct ct_plot_style){.width = sized ? CT_MIN((int)size.ws_col, MOST_COLUMNS) : COLUMNS,
                                  .rows = p->metrics.count > 2 ? SMALL_ROWS : ROWS,
                                  .unicode = ct_env_is_utf8(environ),
                                  .colours = terminal && !dumb && getenv("NO_COLOR") == NULL};
}

/* What a curve does not show. */
static void put_gaps(const struct plotting *p, const struct ct_plot *plot, struct ct_buf *to)
{
    for (size_t i = 0; i < plot->count; i++) {
        size_t gaps = ct_plot_gaps(&plot->curves[i], plot->log);
        if (gaps > 0)
            (void)ct_buf_printf(to, "  %zu value%s of %s in %.40s %s not finite%s: gaps\n", gaps,
                                gaps > 1 ? "s" : "", plot->title, p->labels[plot->curves[i].run],
                                gaps > 1 ? "are" : "is", plot->log ? ", or not above 0" : "");
    }
}

static int print(const struct plotting *p, const char *const *labels, struct ct_error *err)
{
    const struct ct_plot_style style = find_style(p);
    bool marks = false;
    struct ct_buf text;
    int code = 0;

    ct_buf_init(&text, 0);
    for (int i = 0; i < p->metrics.count && code == 0; i++) {
        const struct ct_plot *plot = &p->plots[i];
        bool last = i + 1 == p->metrics.count;

        for (size_t k = 0; k < plot->count; k++)
            marks = marks || plot->curves[k].marks;
        code = ct_plot_text(plot, last ? labels : NULL, p->runs, &style, &text);
        (void)ct_buf_puts(&text, last ? "" : "\n");
    }
    if (marks)
        (void)ct_buf_printf(&text, "  %s  evaluations\n",
                            style.unicode && (style.colours || p->runs == 1) ? "●" : "A");
    for (int i = 0; i < p->metrics.count && code == 0; i++)
        put_gaps(p, &p->plots[i], &text);
    if (code == 0 && !text.failed)
        (void)fputs(ct_buf_str(&text), stdout);
    else
        code = ct_error_set(err, CT_ENOMEM, "out of memory for the plot");
    ct_buf_deinit(&text);
    return code;
}

static int write_file(const struct plotting *p, const char *const *labels, struct ct_error *err)
{
    char size[CT_SCALE_SIZE];
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = ct_plot_svg(p->plots, (size_t)p->metrics.count, labels, p->runs, &text);
    if (code == CT_ELIMIT)
        code = ct_error_set(err, CT_EUSAGE,
                            "%d metrics of %d runs are too many curves for a file of %d kB: name "
                            "fewer",
                            p->metrics.count, p->runs, CT_PLOT_SVG_BYTES / 1000);
    else if (code != 0)
        code = ct_error_set(err, code, "out of memory for %s", p->file);
    if (code == 0)
        code = ct_fs_replace(p->file, text.data, text.size, err);
    if (code == 0)
        ct_command_note("%s written, %s", p->file, ct_scale_bytes((double)text.size, size));
    ct_buf_deinit(&text);
    return code;
}

static int draw(const struct plotting *p, struct ct_error *err)
{
    const char *labels[CT_PLOT_RUNS];

    for (int i = 0; i < p->runs; i++)
        labels[i] = p->labels[i];
    int code = print(p, labels, err);
    if (code == 0 && p->file[0] != '\0')
        code = write_file(p, labels, err);
    return code;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int check(struct plotting *p, struct ct_error *err)
{
    int x = 0;

    if (p->metrics.count == 0)
        p->metrics = (struct ct_option_texts){.at = {"loss"}, .count = 1};
    if (p->metrics.count > METRICS)
        return ct_error_set(err, CT_EUSAGE, "--metric comes more than %d times", METRICS);
    while (x < CT_SERIES_XS && strcmp(p->x_name, ct_series_x_text((enum ct_series_x)x)) != 0)
        x++;
    if (x == CT_SERIES_XS)
        return ct_error_set(err, CT_EUSAGE, "--x %.64s: it is step, time or samples", p->x_name);
    p->x = (enum ct_series_x)x;
    if (p->file[0] != '\0' && !ct_ends_with(p->file, ".svg"))
        return ct_error_set(err, CT_EUSAGE, "-o %.200s: the file is an SVG: name it FILE.svg",
                            p->file);
    return 0;
}

static void release(struct plotting *p)
{
    for (int i = 0; p->series != NULL && i < p->metrics.count * p->runs; i++)
        ct_series_deinit(p->series[i]);
    free(p->series);
    free(p->curves);
    free(p->folders);
    free(p->labels);
}

int ct_cmd_plot(int argc, char **argv)
{
    struct plotting p = {.x_name = "step", .file = ""};
    const struct ct_option options[] = {
        {.name = "metric", .type = CT_OPTION_TEXTS, .to = &p.metrics},
        {.name = "x", .type = CT_OPTION_TEXT, .to = &p.x_name},
        {.name = "log", .type = CT_OPTION_FLAG, .to = &p.log},
        {.name = "output", .type = CT_OPTION_TEXT, .to = &p.file},
    };
    const char **words = calloc((size_t)argc, sizeof *words);
    struct ct_cli_options cli = {.command = "plot",
                                 .options = options,
                                 .option_count = CT_COUNT(options),
                                 .letters = "o",
                                 .places = words,
                                 .room = argc};
    struct ct_error err = {0};
    int code = words != NULL ? ct_cli_options_read(&cli, argc - 1, argv + 1, &err) : CT_ENOMEM;

    if (code == 0)
        code = check(&p, &err);
    if (code == 0) {
        p.folders = calloc(CT_PLOT_RUNS, sizeof *p.folders);
        p.labels = calloc(CT_PLOT_RUNS, sizeof *p.labels);
        code = p.folders != NULL && p.labels != NULL
                   ? find_runs(&p, words, cli.count, &err)
                   : ct_error_set(&err, CT_ENOMEM, "out of memory for the list of runs");
    }
    if (code == 0)
        code = run_labels(p.folders, (size_t)p.runs, p.labels, &err);
    if (code == 0)
        code = read_values(&p, &err);
    if (code == 0)
        code = draw(&p, &err);
    release(&p);
    free(words);
    return code == 0 ? 0 : ct_command_fail("ctrun plot", code, err.text);
}
