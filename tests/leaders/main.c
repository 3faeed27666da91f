/* Which cells of the table are run, the table, and that of the histories. See leaders.h. */
#include "leaders.h"

#include "base/assert.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MOST = 25, COUNTS = 8, ASKING_MOST = 32 };

static const char usage[] =
    "usage: leaders [--nodes LIST] [--fault LIST] [--program LIST] [--times N] [--lease TIME]\n"
    "               [--programs DIR]\n"
    "  --nodes LIST    of 2 to 64 [2,3,5]\n"
    "  --fault LIST    names in faults.def, or all [all]\n"
    "  --program LIST  ddp, fsdp, script (PyTorch), store (its clients, checked) [ddp]\n"
    "  --times N       of each cell; medians are shown [1]\n"
    "  --lease TIME    of the job [5s]\n"
    "  --keep yes      the logs of all runs, not only of those in which something is wrong\n"
    "  --programs DIR  where ctrun and ctworker are [build/release/bin]\n"
    "       leaders --history DIR     check what the clients of a run recorded once more\n"
    "Run it as root, in the root of the sources.\n";

struct wishes {
    const char *nodes, *faults, *programs;
    uint64_t times;
};

/* Is `word` in the list "a,b,c"? */
static bool has(const char *list, const char *word)
{
    size_t size = strlen(word);

    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, size) == 0 && (at[size] == ',' || at[size] == '\0'))
            return true;
    }
    return strcmp(list, "all") == 0;
}

static bool parse(struct setting *setting, struct wishes *wishes, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];

        if (strcmp(name, "--nodes") == 0)
            wishes->nodes = value;
        else if (strcmp(name, "--fault") == 0)
            wishes->faults = value;
        else if (strcmp(name, "--program") == 0)
            wishes->programs = value;
        else if (strcmp(name, "--lease") == 0)
            setting->lease = value;
        else if (strcmp(name, "--programs") == 0)
            setting->programs = value;
        else if (strcmp(name, "--keep") == 0)
            setting->keep = strcmp(value, "yes") == 0;
        else if (strcmp(name, "--times") != 0 || ct_parse_u64(value, &wishes->times) != 0 ||
                 wishes->times == 0 || wishes->times > TIMES_MOST)
            return false;
    }
    return argc % 2 == 1;
}

/* ---- a row ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* "123", "123 (110 to 140)", "-" of none; sorts them. */
static void print_times(double *times, int count, char text[64])
{
    qsort(times, (size_t)count, sizeof *times, by_value);
    if (count == 0)
        (void)snprintf(text, 64, "-");
    else if (count == 1)
        (void)snprintf(text, 64, "%.0f", times[0]);
    else
        (void)snprintf(text, 64, "%.0f (%.0f to %.0f)",
                       (times[(count - 1) / 2] + times[count / 2]) / 2, times[0], times[count - 1]);
}

/* Add what the clients of the store did in the runs of a cell. */
static void add_histories(struct ct_buf *rows, const struct setting *setting, enum fault fault,
                          const char *well, const struct history_report *sum)
{
    (void)ct_buf_printf(rows, "| %d | %s | %s | %zu | %zu | %zu | %zu | %zu | %zu | %zu |\n",
                        setting->nodes, fault_words(fault), well, sum->answered, sum->open,
                        sum->objects, sum->largest, sum->published, sum->seen, sum->visited);
}

static void sum_histories(struct history_report *sum, const struct history_report *one)
{
    sum->answered += one->answered;
    sum->open += one->open;
    sum->objects += one->objects;
    sum->largest = CT_MAX(sum->largest, one->largest);
    sum->published += one->published;
    sum->seen += one->seen;
    sum->visited += one->visited;
}

/* Run a cell some times and print its row; how many runs were not well. */
static int run_cell(const struct setting *setting, enum fault fault, enum program program,
                    int times, struct ct_buf *histories)
{
    double next[TIMES_MOST], back[TIMES_MOST];
    int steps = 0, backs = 0, bad = 0;
    struct result sum = {0};
    char texts[2][64], well[32];

    for (int i = 0; i < times; i++) {
        const struct result one = trial_run(setting, fault, program);
        bad += one.trouble[0] != '\0';
        if (one.next_ms > 0)
            next[steps++] = one.next_ms;
        if (one.back_ms >= 0)
            back[backs++] = one.back_ms;
        sum.repeated = CT_MAX(sum.repeated, one.repeated);
        sum.kept += one.kept;
        sum.survivors += one.survivors;
        sum.rounds = CT_MAX(sum.rounds, one.rounds);
        sum.restarts = CT_MAX(sum.restarts, one.restarts);
        sum.early += one.early;
        sum.twice += one.twice;
        sum.minority += one.minority;
        sum_histories(&sum.history, &one.history);
    }
    (void)snprintf(well, sizeof well, "%d of %d", times - bad, times);
    if (program == PROGRAM_STORE)
        add_histories(histories, setting, fault, well, &sum.history);
    print_times(next, steps, texts[0]);
    print_times(back, backs, texts[1]);
    (void)printf("| %d | %s | %s | %s | %s | %d | %d of %d | %s | %d | %d | %d | %d | %d |\n",
                 setting->nodes, fault_words(fault), program_option(program), well, texts[0],
                 sum.repeated, sum.kept, sum.survivors, texts[1], sum.rounds, sum.restarts,
                 sum.early, sum.twice, sum.minority);
    (void)fflush(stdout);
    return bad;
}

static int run_nodes(struct setting *setting, const struct wishes *wishes, struct ct_buf *histories)
{
    static struct hosts hosts;
    int bad = 0;

    setting->hosts = &hosts;
    if (!hosts_up(&hosts, "led", setting->nodes, false) ||
        (setting->nodes > ASKING_MOST && !hosts_introduce(&hosts))) {
        (void)fprintf(stderr, "leaders: namespaces cannot be made (root?)\n");
        return 1;
    }
    for (int i = 0; i < FAULT_COUNT; i++)
        for (int k = 0; k < PROGRAM_COUNT; k++)
            if (fault_suits((enum fault)i, setting->nodes) &&
                has(wishes->faults, fault_option((enum fault)i)) &&
                has(wishes->programs, program_option((enum program)k)))
                bad += run_cell(setting, (enum fault)i, (enum program)k, (int)wishes->times,
                                histories);
    hosts_down(&hosts);
    return bad;
}

/* The exit status. */
static int check_again(const char *folder)
{
    struct history history = {0};
    struct history_report report = {0};

    bool good = history_read(&history, folder, report.text) && history_check(&history, &report);
    (void)printf("%zu answered, %zu open, %zu objects: %s\n", report.answered, report.open,
                 report.objects, good ? "linearizable" : report.text);
    history_deinit(&history);
    return !good;
}

int main(int argc, char **argv)
{
    static char programs[PATH_MAX], root[PATH_MAX];
    struct setting setting = {.programs = "build/release/bin", .root = ".", .lease = "5s"};
    struct wishes wishes = {.nodes = "2,3,5", .faults = "all", .programs = "ddp", .times = 1};
    struct ct_buf histories;
    char word[16];
    int bad = 0;

    if (argc == 3 && strcmp(argv[1], "--history") == 0)
        return check_again(argv[2]);
    if (!parse(&setting, &wishes, argc, argv)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (realpath(setting.programs, programs) == NULL || realpath(setting.root, root) == NULL) {
        (void)fprintf(stderr, "leaders: %s is not there\n", setting.programs);
        return 2;
    }
    ct_buf_init(&histories, 0);
    setting.programs = programs;
    setting.root = root;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)printf(
        "| nodes | fault | program | well | next step, ms | repeated | workers kept | back, "
        "ms | rounds | restarts | ended early | twice | minority's |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    (void)fflush(stdout);
    for (setting.nodes = 2; setting.nodes <= TRIAL_NODES; setting.nodes++) {
        (void)snprintf(word, sizeof word, "%d", setting.nodes);
        if (strcmp(wishes.nodes, "all") != 0 && has(wishes.nodes, word))
            bad += run_nodes(&setting, &wishes, &histories);
    }
    if (histories.size > 0)
        (void)printf(
            "\n| nodes | fault | linearizable | answered | open | objects | largest | "
            "published | seen | configurations |\n|---|---|---|---|---|---|---|---|---|---|\n"
            "%s",
            ct_buf_str(&histories));
    ct_buf_deinit(&histories);
    return bad > 0;
}
