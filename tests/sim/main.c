/* The simulator's command line: seeds, each run twice, the first failure shortened and shown. */
#include "sim.h"

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
    const char *list; /* a file of seeds instead */
};

static const char usage[] =
    "usage: sim [--first N] [--seeds N] [--list FILE] [--once] [--trace] [--coverage]\n"
    "  --first N     first seed [1]\n"
    "  --seeds N     how many [2000]\n"
    "  --list FILE   the seeds in FILE instead (one a line, # begins a comment)\n"
    "  --once        run each seed once; otherwise twice, and the traces must be equal\n"
    "  --trace       print the transcript\n"
    "  --coverage    print what the runs reached\n";

/* One run; the failure ("" for none) goes to `failure`. Returns the hash of the trace. */
static uint64_t run(uint64_t seed, uint64_t skip, bool trace, char failure[2048],
                    struct coverage *sum)
{
    static struct sim sim; /* large; a run begins by clearing it */
    sim_run(&sim, seed, skip, trace);
    uint64_t hash = sim.hash;
    ct_str_copy(failure, 2048, sim.failure);
    if (sum != NULL) {
        uint64_t *to = (uint64_t *)sum;
        const uint64_t *from = (const uint64_t *)&sim.coverage;
        for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
            to[i] += from[i];
    }
    sim_free(&sim);
    return hash;
}

/* Leave out one fault after the other as long as the run still fails. Returns the set left out. */
static uint64_t shorten(uint64_t seed)
{
    char failure[2048];
    uint64_t skip = 0;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SIM_FAULTS; i++) {
            (void)run(seed, skip | UINT64_C(1) << i, false, failure, NULL);
            if (failure[0] != '\0')
                skip |= UINT64_C(1) << i;
        }
    }
    return skip;
}

static void report(uint64_t seed, const char *failure)
{
    static struct sim sim;
    char text[2048];
    uint64_t skip = shorten(seed);
    (void)printf("seed %" PRIu64 ": %s\nthe faults that it takes:\n", seed, failure);
    sim_run(&sim, seed, skip, false);
    for (size_t i = 0; i < sim.fault_count; i++) {
        if (sim.faults[i].skipped)
            continue;
        sim_fault_print(&sim.faults[i], text, sizeof(text));
        (void)printf("  %s\n", text);
    }
    sim_free(&sim);
    (void)printf("the shortened run fails with: ");
    (void)run(seed, skip, false, text, NULL);
    (void)printf("%s\nsee it all: --first %" PRIu64 " --seeds 1 --trace\n", text, seed);
}

static bool run_seed(const struct options *options, uint64_t seed, struct coverage *sum)
{
    char failure[2048];
    char again[2048];
    uint64_t hash = run(seed, 0, options->trace, failure, sum);
    if (failure[0] != '\0') {
        report(seed, failure);
        return false;
    }
    if (!options->once && run(seed, 0, false, again, NULL) != hash) {
        (void)printf("seed %" PRIu64 ": two runs differ\n", seed);
        return false;
    }
    return true;
}

static void print_coverage(const struct coverage *c)
{
    (void)printf("events %" PRIu64 ", rounds %" PRIu64 ", steps %" PRIu64 ", faults %" PRIu64
                 ", daemon starts %" PRIu64 "\n",
                 c->events, c->rounds, c->steps, c->faults, c->restarts);
    for (unsigned from = 0; from < CT_RDZV_PHASES; from++)
        for (unsigned to = 0; to < CT_RDZV_PHASES; to++)
            if (from != to && c->moves[from][to] > 0)
                (void)printf("  %-9s -> %-9s %" PRIu64 "\n", ct_rdzv_phase_name(from),
                             ct_rdzv_phase_name(to), c->moves[from][to]);
    for (unsigned type = 0; type < 64; type++)
        if (c->messages[type] > 0)
            (void)printf("  %-12s %" PRIu64 "\n", ct_wire_name(type), c->messages[type]);
    (void)printf("  nodes closed %" PRIu64 ", released %" PRIu64 ", failed %" PRIu64 "\n",
                 c->ends[NODE_CLOSED], c->ends[NODE_RELEASED], c->ends[NODE_FAILED]);
}

static int parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.first = 1, .seeds = 2000};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0)
            options->trace = true;
        else if (strcmp(argv[i], "--once") == 0)
            options->once = true;
        else if (strcmp(argv[i], "--coverage") == 0)
            options->coverage = true;
        else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc &&
                 ct_parse_u64(argv[i + 1], &options->first) == 0)
            i++;
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc &&
                 ct_parse_u64(argv[i + 1], &options->seeds) == 0)
            i++;
        else if (strcmp(argv[i], "--list") == 0 && i + 1 < argc)
            options->list = argv[++i];
        else
            return -1;
    }
    return 0;
}

static uint64_t run_list(const struct options *options, struct coverage *sum, bool *ret_good)
{
    char line[256];
    uint64_t count = 0;
    FILE *file = fopen(options->list, "r");
    *ret_good = file != NULL;
    while (file != NULL && *ret_good && fgets(line, sizeof(line), file) != NULL) {
        uint64_t seed;
        line[strcspn(line, " #\n")] = '\0';
        if (ct_parse_u64(line, &seed) != 0)
            continue;
        *ret_good = run_seed(options, seed, sum);
        count++;
    }
    if (file == NULL)
        (void)printf("cannot read %s\n", options->list);
    else
        (void)fclose(file);
    return count;
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
    if (options.list != NULL)
        count = run_list(&options, &sum, &good);
    for (; options.list == NULL && good && count < options.seeds; count++)
        good = run_seed(&options, options.first + count, &sum);
    if (options.coverage)
        print_coverage(&sum);
    if (good)
        (void)printf("%" PRIu64 " seeds, %" PRIu64 " rounds, %" PRIu64 " steps, %" PRIu64
                     " faults: no invariant broken\n",
                     count, sum.rounds, sum.steps, sum.faults);
    return good ? 0 : 1;
}
