/* Jobs of many real ranks on this machine, as a table over their number, and how what they cost
 * grows with it. See tests/lib/many/many.h for one job, README.md for the table.
 *
 *      a row      one shape, run so often; its network namespaces
 *      a series   one node of more and more ranks; more and more nodes of 1, of 4 ranks
 *      fits       connections over log2 N, time over N, of a series */
#include "fit.h"

#include "base/assert.h"
#include "base/str.h"
#include "many/many.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MOST = 100, ROWS_MOST = 32 };

static const char usage[] =
    "usage: many [--ranks LIST] [--nodes LIST] [--each LIST] [--times N] [--backend NAME]\n"
    "            [--across NAME] [--lease TIME] [--seconds S] [--keep yes] [--programs DIR]\n"
    "  --ranks LIST    of one node, or none [17,24,32,64,128,256]\n"
    "  --nodes LIST    how many, or none [24,32,64]\n"
    "  --each LIST     ranks of a node where there are several [1,4]\n"
    "  --times N       jobs of each shape [20]\n"
    "  --backend NAME  of one node [tcp]\n"
    "  --across NAME   of several nodes [auto]\n"
    "  --lease TIME    of a job: how long a node may be silent, where N ranks share few cores "
    "[60s]\n"
    "  --seconds S     a job may take [300]\n"
    "  --keep yes      the folders of all jobs, not only of those in which something is wrong\n"
    "  --programs DIR  where ctrun and ctworker are [build/release/bin]\n"
    "Run it as root, in the root of the sources.\n";

struct wishes {
    const char *ranks, *nodes, *each, *backend, *across;
    uint64_t times, seconds;
    struct many_setting setting;
};

/* The medians of a row's good jobs; of the figures of ranks those of its worst job. */
struct row {
    double world, connections, step1_s;
};

struct series {
    struct row rows[ROWS_MOST];
    size_t count;
};

static bool parse(struct wishes *wishes, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } texts[] = {{"--ranks", &wishes->ranks},
                 {"--nodes", &wishes->nodes},
                 {"--each", &wishes->each},
                 {"--backend", &wishes->backend},
                 {"--across", &wishes->across},
                 {"--lease", &wishes->setting.lease},
                 {"--programs", &wishes->setting.programs}};

    for (int i = 1; i + 1 < argc; i += 2) {
        size_t k = 0;

        while (k < CT_COUNT(texts) && strcmp(argv[i], texts[k].name) != 0)
            k++;
        if (k < CT_COUNT(texts))
            *texts[k].value = argv[i + 1];
        else if (strcmp(argv[i], "--keep") == 0)
            wishes->setting.keep = strcmp(argv[i + 1], "yes") == 0;
        else if (strcmp(argv[i], "--times") == 0 && ct_parse_u64(argv[i + 1], &wishes->times) == 0)
            continue;
        else if (strcmp(argv[i], "--seconds") != 0 ||
                 ct_parse_u64(argv[i + 1], &wishes->seconds) != 0)
            return false;
    }
    return argc % 2 == 1 && wishes->times > 0 && wishes->times <= TIMES_MOST && wishes->seconds > 0;
}

/* The next number of "17,24,32"; 0 at its end, and for a word. */
static int next_of(const char **list)
{
    char *end;
    long number = strtol(*list, &end, 10);

    *list = end + (*end == ',');
    return number > 0 && number <= MANY_RANKS ? (int)number : 0;
}

/* ---- a row ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void keep_most(struct many_figure *sum, const struct many_figure *one)
{
    sum->mean = fmax(sum->mean, one->mean);
    sum->most = fmax(sum->most, one->most);
}

static double load_now(void)
{
    double load = 0;

    return getloadavg(&load, 1) == 1 ? load : 0;
}

static void print_row(const struct many_shape *shape, int well, uint64_t times,
                      const struct many_result *sum, const double *step1_s, double whole_s,
                      const double *load)
{
    (void)printf("| %d | %d | %s | %d of %d | %.2f | %.1f (%.0f) | %.1f (%.0f) | %.0f (%.0f) "
                 "| %.2f (%.2f to %.2f) | %.1f | %.1f to %.1f |\n",
                 shape->nodes, shape->ranks, shape->backend, well, (int)times, 100 * sum->accuracy,
                 sum->connections.mean, sum->connections.most, sum->descriptors.mean,
                 sum->descriptors.most, sum->kib.mean, sum->kib.most, step1_s[0], step1_s[1],
                 step1_s[2], whole_s, load[0], load[1]);
    (void)fflush(stdout);
}

/* Run one shape so often; how many jobs were not well. */
static int run_row(const struct wishes *wishes, const struct many_shape *shape,
                   struct series *series)
{
    static double step1_s[TIMES_MOST], whole_s[TIMES_MOST];
    struct many_result sum = {.accuracy = 1}, one;
    double load[2] = {load_now(), 0}, step1[3] = {0}, whole;
    int well = 0;

    for (uint64_t i = 0; i < wishes->times; i++) {
        if (!many_run(&wishes->setting, shape, &one)) {
            (void)fprintf(stderr, "many: %d nodes of %d ranks, %s, job %d: %s\n    logs: %s\n",
                          shape->nodes, shape->ranks, shape->backend, (int)i + 1, one.trouble,
                          one.folder);
            continue;
        }
        step1_s[well] = one.step1_s;
        whole_s[well++] = one.whole_s;
        sum.accuracy = fmin(sum.accuracy, one.accuracy);
        keep_most(&sum.connections, &one.connections);
        keep_most(&sum.descriptors, &one.descriptors);
        keep_most(&sum.kib, &one.kib);
    }
    load[1] = load_now();
    whole = median(whole_s, well);
    if (well > 0) {
        step1[0] = median(step1_s, well);
        step1[1] = step1_s[0];
        step1[2] = step1_s[well - 1];
        CT_ASSERT(series->count < ROWS_MOST);
        series->rows[series->count++] =
            (struct row){shape->nodes * shape->ranks, sum.connections.mean, step1[0]};
    }
    sum.accuracy = well > 0 ? sum.accuracy : 0;
    print_row(shape, well, wishes->times, &sum, step1, whole, load);
    return (int)wishes->times - well;
}

/* ---- series --------------------------------------------------------------------------------- */

static void print_fits(const char *what, const struct series *series)
{
    double world[ROWS_MOST], log_world[ROWS_MOST], connections[ROWS_MOST], ms[ROWS_MOST];
    bool connected = true;

    if (series->count < 2) {
        (void)printf("%s: too few rows for a fit\n", what);
        return;
    }
    for (size_t i = 0; i < series->count; i++) {
        world[i] = series->rows[i].world;
        log_world[i] = log2(world[i]);
        connections[i] = series->rows[i].connections;
        ms[i] = 1e3 * series->rows[i].step1_s;
        connected = connected && connections[i] > 0;
    }
    const struct fit held = fit_line(log_world, connections, series->count);
    const struct fit time = fit_line(world, ms, series->count);
    (void)printf("%s, N ranks:\n"
                 "  connections a rank = %.1f + %.2f log2 N, at most %.1f off",
                 what, held.at_zero, held.slope, held.worst);
    if (connected)
        (void)printf("; as N^%.2f", fit_power(world, connections, series->count));
    (void)printf(
        "\n  first spawn to step 1 = %.0f ms + %.2f ms N, at most %.0f ms off; as N^%.2f\n",
        time.at_zero, time.slope, time.worst, fit_power(world, ms, series->count));
}

/* All shapes of one number of nodes or of ranks. */
static int run_series(struct wishes *wishes, const char *list, int each, struct series *series)
{
    static struct hosts hosts;
    int bad = 0;

    wishes->setting.hosts = &hosts;
    for (int number; (number = next_of(&list)) > 0;) {
        const struct many_shape shape = {each > 0 ? number : 1, each > 0 ? each : number,
                                         each > 0 ? wishes->across : wishes->backend};
        if (shape.nodes > HOSTS_MAX || shape.nodes * shape.ranks > MANY_RANKS) {
            (void)fprintf(stderr, "many: at most %d nodes and %d ranks\n", HOSTS_MAX, MANY_RANKS);
            return bad + 1;
        }
        if (!hosts_up(&hosts, "many", shape.nodes, false) || !hosts_introduce(&hosts)) {
            (void)fprintf(stderr, "many: namespaces cannot be made (root?)\n");
            return bad + 1;
        }
        bad += run_row(wishes, &shape, series);
        hosts_down(&hosts);
    }
    return bad;
}

int main(int argc, char **argv)
{
    static char programs[PATH_MAX], config[PATH_MAX], names[MANY_RANKS][48];
    static struct series series[MANY_RANKS];
    struct wishes wishes = {.ranks = "17,24,32,64,128,256",
                            .nodes = "24,32,64",
                            .each = "1,4",
                            .backend = "tcp",
                            .across = "auto",
                            .times = 20,
                            .seconds = 300,
                            .setting = {.programs = "build/release/bin", .lease = "60s"}};
    size_t count = 0;
    int bad, each;

    if (!parse(&wishes, argc, argv)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (realpath(wishes.setting.programs, programs) == NULL ||
        realpath("configs/digits_mlp.yaml", config) == NULL) {
        (void)fprintf(stderr, "many: %s or configs is not there\n", wishes.setting.programs);
        return 2;
    }
    wishes.setting.programs = programs;
    wishes.setting.config = config;
    wishes.setting.seconds = (double)wishes.seconds;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)printf("| nodes | ranks each | backend | well | accuracy, %% | connections a rank: mean "
                 "(most) | descriptors | KiB | first spawn to step 1, s | whole, s | load |\n"
                 "|---|---|---|---|---|---|---|---|---|---|---|\n");
    (void)fflush(stdout);
    (void)snprintf(names[count], sizeof names[count], "one node, %s", wishes.backend);
    bad = run_series(&wishes, wishes.ranks, 0, &series[count++]);
    for (const char *list = wishes.each; (each = next_of(&list)) > 0 && count < MANY_RANKS;) {
        (void)snprintf(names[count], sizeof names[count], "nodes of %d, %s", each, wishes.across);
        bad += run_series(&wishes, wishes.nodes, each, &series[count++]);
    }
    (void)printf("\n");
    for (size_t i = 0; i < count; i++)
        if (series[i].count > 0)
            print_fits(names[i], &series[i]);
    return bad > 0;
}
