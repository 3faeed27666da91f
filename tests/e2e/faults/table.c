/* The fault table of one run, see drill.h.
 *
 * Tests run in processes of their own: each appends lines "row TAB figure" to a file that the
 * runner made before the first of them, and whose name is in the environment. After the last test
 * the runner sorts them into one table. */
#include "drill.h"

#include "base/assert.h"
#include "sanitized.h"

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE "TEST_FAULT_TABLE" /* the variable */

enum { SLACK = SANITIZED ? 5 : 1 }; /* how much slower everything may be */

enum { FIGURES_MAX = 256, LINE_BYTES = 160 };

static const struct row {
    int number;
    const char *fault;
    const char *expected;
} rows[] = {
#define ROW(number, fault, expected) {number, fault, expected},
#include "faults.def"
#undef ROW
};

/* ---- in a test ------------------------------------------------------------------------------ */

void drill_fact(int row, const char *format, ...)
{
    char line[LINE_BYTES];
    const char *path = getenv(TABLE);
    int used = snprintf(line, sizeof line, "%d\t", row);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    cr_log_info("row %s", line);
    FILE *file = path != NULL ? fopen(path, "ae") : NULL;
    cr_assert_not_null(file, "the runner made no table");
    (void)fprintf(file, "%s\n", line);
    cr_assert_eq(fclose(file), 0);
}

void drill_figure(int row, const char *what, double value, double bound, const char *unit)
{
    bool is_time = strcmp(unit, "ms") == 0 || strcmp(unit, "s") == 0;
    double allowed = is_time ? bound * SLACK : bound;

    drill_fact(row, "%s %.*f%s%s (bound %.0f)", what, value < 10 && value != (int)value ? 1 : 0,
               value, unit[0] != '\0' ? " " : "", unit, allowed);
    cr_assert_leq(value, allowed, "row %d: %s is %g %s, the bound is %g", row, what, value, unit,
                  allowed);
}

double drill_lease_bound(const struct drill_job *job)
{
    char *unit;
    double lease = strtod(job->lease, &unit);

    return (strcmp(unit, "ms") == 0 ? lease : lease * 1e3) + 1000;
}

/* ---- in the runner -------------------------------------------------------------------------- */

struct figures {
    char lines[FIGURES_MAX][LINE_BYTES];
    int count;
};

static void read_figures(struct figures *figures, const char *path)
{
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return;
    while (figures->count < FIGURES_MAX &&
           fgets(figures->lines[figures->count], LINE_BYTES, file) != NULL) {
        char *line = figures->lines[figures->count++];
        line[strcspn(line, "\n")] = '\0';
    }
    (void)fclose(file);
}

static void print_row(const struct row *row, const struct figures *figures)
{
    int printed = 0;

    for (int i = 0; i < figures->count; i++) {
        const char *line = figures->lines[i];
        const char *text = strchr(line, '\t');
        if (text == NULL || atoi(line) != row->number)
            continue;
        if (printed++ == 0)
            (void)printf("| %2d | %-34s | %-44s | %s\n", row->number, row->fault, row->expected,
                         text + 1);
        else
            (void)printf("| %2s | %-34s | %-44s | %s\n", "", "", "", text + 1);
    }
    if (printed == 0)
        (void)printf("| %2d | %-34s | %-44s | not measured in this run\n", row->number, row->fault,
                     row->expected);
}

ReportHook(PRE_ALL)(struct criterion_test_set *tests)
{
    static char path[] = "/tmp/ctrun-faults-XXXXXX";
    int fd = mkstemp(path);

    (void)tests;
    if (fd < 0)
        return;
    (void)close(fd);
    (void)setenv(TABLE, path, 1);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    static struct figures figures;
    const char *path = getenv(TABLE);

    (void)stats;
    if (path == NULL)
        return;
    read_figures(&figures, path);
    (void)unlink(path);
    if (figures.count == 0)
        return;
    (void)printf("| %2s | %-34s | %-44s | %s\n", "#", "fault", "what is to happen", "measured");
    for (size_t i = 0; i < CT_COUNT(rows); i++)
        print_row(&rows[i], &figures);
    (void)fflush(stdout);
}
