/* The simulator's command line: seeds, each run twice, the first failure
 * shortened and shown. */
#include "large.h"
#include "sim.h"

#include "base/fs.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    uint64_t first;
    uint64_t seeds;
    bool trace;
    bool once; /* do not run each seed a second time */
    bool coverage;
    enum sim_mode mode;
    bool all;              /* go on after a failure */
    bool write;            /* the transcripts, instead of comparing */
    uint64_t agents;       /* a large job instead */
    const char *list;      /* a file of seeds instead */
    const char *scenarios; /* compare with the transcripts of this folder instead */
};

static const char usage[] =
    "usage: sim [--first N] [--seeds N] [--list FILE] [--once] [--trace] "
    "[--coverage]\n"
    "           [--embedded | --daemons]\n"
    "       sim --scenarios DIR [--write]\n"
    "       sim --agents N [--first N]\n"
    "  --first N        first seed [1]\n"
    "  --seeds N        how many [2000]\n"
    "  --list FILE      the seeds in FILE instead (one a line, # begins a "
    "comment)\n"
    "  --embedded       no daemon in any seed; --daemons: in all [in four of five]\n"
    "  --once           run each seed once; otherwise twice, and the traces "
    "must be equal\n"
    "  --all            name each failing seed, do not stop at the first\n"
    "  --trace          print the transcript\n"
    "  --coverage       print what the runs reached, and what they never did\n"
    "  --scenarios DIR  tell the stories, and compare with DIR/NAME.txt\n"
    "  --write          write DIR/NAME.txt anew instead\n"
    "  --agents N       form rounds of N agents, and print what it costs\n";

/* One run; the failure ("" for none) goes to `failure`. Returns the hash of the
 * trace. */
static uint64_t run(enum sim_mode mode, uint64_t seed, uint64_t skip, bool trace,
                    char failure[2048], struct coverage *sum)
{
    static struct sim sim; /* large */
    memset(&sim, 0, sizeof(sim));
    sim.seed = seed;
    sim.mode = mode;
    sim.voice = trace ? VOICE_ALL : VOICE_NONE;
    sim_run(&sim, skip);
    uint64_t hash = sim.hash;
    ct_str_copy(failure, 2048, sim.failure);
    if (sum != NULL)
        sim_coverage_add(sum, &sim.coverage);
    sim_free(&sim);
    return hash;
}

/* Leave out one fault after the other as long as the run still fails. Returns
 * the set left out. */
static uint64_t shorten(enum sim_mode mode, uint64_t seed)
{
    char failure[2048];
    uint64_t skip = 0;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SIM_FAULTS; i++) {
            (void)run(mode, seed, skip | UINT64_C(1) << i, false, failure, NULL);
            if (failure[0] != '\0')
                skip |= UINT64_C(1) << i;
        }
    }
    return skip;
}

static void report(enum sim_mode mode, uint64_t seed, const char *failure)
{
    static struct sim sim;
    char text[2048];
    uint64_t skip = shorten(mode, seed);
    (void)printf("seed %" PRIu64 ": %s\nthe faults that it takes:\n", seed, failure);
    memset(&sim, 0, sizeof(sim));
    sim.seed = seed;
    sim.mode = mode;
    sim_run(&sim, skip);
    for (size_t i = 0; i < sim.fault_count; i++) {
        if (sim.faults[i].skipped)
            continue;
        sim_fault_print(&sim.faults[i], text, sizeof(text));
        (void)printf("  %s\n", text);
    }
    sim_free(&sim);
    (void)printf("the shortened run fails with: ");
    (void)run(mode, seed, skip, false, text, NULL);
    (void)printf("%s\nsee it all: --first %" PRIu64 " --seeds 1 --trace%s\n", text, seed,
                 sim.embedded ? " --embedded" : "");
}

static bool run_seed(const struct options *options, enum sim_mode mode, uint64_t seed,
                     struct coverage *sum)
{
    char failure[2048];
    char again[2048];
    uint64_t hash = run(mode, seed, 0, options->trace, failure, sum);
    if (failure[0] != '\0') {
        if (options->once || options->all)
            (void)printf("seed %" PRIu64 ": %s\n", seed, failure);
        else
            report(mode, seed, failure);
        return false;
    }
    if (!options->once && run(mode, seed, 0, false, again, NULL) != hash) {
        (void)printf("seed %" PRIu64 ": two runs differ\n", seed);
        return false;
    }
    return true;
}

static uint64_t run_list(const struct options *options, struct coverage *sum, bool *ret_good)
{
    char line[256];
    uint64_t count = 0;
    FILE *file = fopen(options->list, "r");
    *ret_good = file != NULL;
    while (file != NULL && *ret_good && fgets(line, sizeof(line), file) != NULL) {
        uint64_t seed;
        bool embedded = strstr(line, " embedded ") != NULL;
        line[strcspn(line, " #\n")] = '\0';
        if (ct_parse_u64(line, &seed) != 0)
            continue;
        *ret_good = run_seed(options, embedded ? SIM_EMBEDDED : SIM_WITH_DAEMONS, seed, sum);
        count++;
    }
    if (file == NULL)
        (void)printf("cannot read %s\n", options->list);
    else
        (void)fclose(file);
    return count;
}

/* ---- stories ---- */

/* Tell one; compare with what is written, or write it. */
static bool print_scenario(const struct options *options, const struct scenario *scenario)
{
    static struct sim sim;
    char path[1024];
    struct ct_buf text;
    struct ct_buf written;
    struct ct_error err = {0};
    ct_buf_init(&text, 0);
    ct_buf_init(&written, 0);
    memset(&sim, 0, sizeof(sim));
    sim.scenario = scenario;
    sim.voice = VOICE_STORY;
    sim.transcript = &text;
    sim_run(&sim, 0);
    (void)snprintf(path, sizeof(path), "%s/%s.txt", options->scenarios, scenario->name);
    bool good = sim.failure[0] == '\0';
    if (!good)
        (void)printf("%s: %s\n", scenario->name, sim.failure);
    else if (options->write)
        good = ct_fs_replace(path, text.data, text.size, &err) == 0;
    else
        good = ct_fs_read(path, 1 << 20, &written, &err) == 0 && written.size == text.size &&
               memcmp(written.data, text.data, text.size) == 0;
    if (!good)
        (void)printf("%s is not what the code does: %s\n%s", path,
                     err.text[0] != '\0' ? err.text : "now it tells", ct_buf_str(&text));
    ct_buf_deinit(&text);
    ct_buf_deinit(&written);
    sim_free(&sim);
    return good;
}

static int report_all(const struct options *options)
{
    bool good = true;
    for (size_t i = 0; i < sim_scenario_count; i++)
        good = print_scenario(options, &sim_scenarios[i]) && good;
    if (good)
        (void)printf("%zu transcripts: as written\n", sim_scenario_count);
    return good ? 0 : 1;
}

/* ---- the command line ---- */

static bool parse_flag(struct options *options, const char *word)
{
    bool *flag = strcmp(word, "--trace") == 0      ? &options->trace
                 : strcmp(word, "--once") == 0     ? &options->once
                 : strcmp(word, "--coverage") == 0 ? &options->coverage
                 : strcmp(word, "--all") == 0      ? &options->all
                 : strcmp(word, "--write") == 0    ? &options->write
                                                   : NULL;
    enum sim_mode mode = strcmp(word, "--embedded") == 0  ? SIM_EMBEDDED
                         : strcmp(word, "--daemons") == 0 ? SIM_WITH_DAEMONS
                                                          : SIM_DRAWN;
    if (flag != NULL)
        *flag = true;
    else if (mode != SIM_DRAWN)
        options->mode = mode;
    return flag != NULL || mode != SIM_DRAWN;
}

static int parse_value(struct options *options, const char *word, const char *value)
{
    if (strcmp(word, "--list") == 0)
        options->list = value;
    else if (strcmp(word, "--scenarios") == 0)
        options->scenarios = value;
    else if (strcmp(word, "--first") == 0)
        return ct_parse_u64(value, &options->first);
    else if (strcmp(word, "--seeds") == 0)
        return ct_parse_u64(value, &options->seeds);
    else if (strcmp(word, "--agents") == 0)
        return ct_parse_u64(value, &options->agents) == 0 && options->agents >= 4 &&
                       options->agents <= CT_RDZV_NODES_LIMIT
                   ? 0
                   : -1;
    else
        return -1;
    return 0;
}

static int parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.first = 1, .seeds = 2000};
    for (int i = 1; i < argc; i++) {
        if (parse_flag(options, argv[i]))
            continue;
        if (i + 1 == argc)
            return -1;
        if (parse_value(options, argv[i], argv[i + 1]) != 0)
            return -1;
        i++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct coverage sum;
    struct options options;
    bool good = true;
    uint64_t count = 0;
    if (parse(&options, argc, argv) != 0) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (options.agents > 0)
        return sim_large((uint32_t)options.agents, options.first);
    if (options.scenarios != NULL)
        return report_all(&options);
    if (options.list != NULL)
        count = run_list(&options, &sum, &good);
    for (; options.list == NULL && (good || options.all) && count < options.seeds; count++)
        good = run_seed(&options, options.mode, options.first + count, &sum) && good;
    if (options.coverage)
        sim_coverage_print(&sum);
    if (good)
        (void)printf("%" PRIu64 " seeds, %.0f hours, %" PRIu64 " rounds, %" PRIu64
                     " steps, %" PRIu64 " faults: no invariant broken\n",
                     count, (double)sum.virtual_ms / 3600e3, sum.rounds, sum.steps, sum.faults);
    return good ? 0 : 1;
}
