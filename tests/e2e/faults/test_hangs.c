/* Planted hangs: a rank of eight goes wrong in one of the ways of tests/e2e/programs/hangs, and the
 * job says which rank, what is wrong with it and in which call; on one node and on two. And a job
 * in which every rank takes a different time at each step is accused of nothing. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "drill.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(hangs, .init = e2e_enter, .fini = e2e_leave, .timeout = 900);

enum { RANKS = 8, CASES = 20, SEED = 7 };

/* A way to go wrong, and what is to be said of it. */
static const struct way {
    const char *name;
    const char *word;
    const char *call;       /* that the verdict names */
    const char *timeout_ms; /* of calls; NULL: only the agent notices */
} ways[] = {
    {"sleep", "MISSING", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"spin", "MISSING", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"stop", "MISSING", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"half", "MISSING", "all_gather of 64 F32", NULL},
    {"sleep", "MISSING", "all_reduce of 64 F32, MAX, FAST", "1500"},
    {"half", "MISSING", "all_gather of 64 F32", "1500"},
    {"stop_inside", "STUCK", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"enter", "STUCK", "all_reduce of 1048576 F32, MAX, FAST", NULL},
    {"skip", "MISMATCH", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"op", "MISMATCH", "barrier", NULL},
    {"count", "MISMATCH", "all_reduce of 63 F32, MAX, FAST", NULL},
    {"dtype", "MISMATCH", "all_reduce of 64 I32, MAX, FAST", NULL},
    {"root", "MISMATCH", "broadcast of 64 F32, root 1", NULL},
    {"order", "MISMATCH", "group twin/1", NULL},
    {"kill", "DEAD", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"abort", "DEAD", "has ended with status 134", NULL},
    {"exit", "DEAD", "all_reduce of 64 F32, MAX, FAST", NULL},
    {"exit", "DEAD", "all_reduce of 64 F32, MAX, FAST", "1500"},
    {"slow", "SLOW", "all_reduce of 64 F32, MAX, FAST", "1200"},
    {"order", "MISMATCH", "group twin/1", "1500"},
};
_Static_assert(CT_COUNT(ways) == CASES, "each is drawn once");

/* One planted hang. */
struct plant {
    const struct way *way;
    int victim, step, nodes;
    const char *backend;
};

/* Victims, steps and layouts are drawn; each way comes once. Who is slow is so from the start. */
static struct plant draw(int index)
{
    struct ct_rng dice;
    struct plant plant = {.way = &ways[index]};

    ct_rng_init(&dice, SEED * 1000 + (uint64_t)index);
    plant.victim = (int)ct_rng_below(&dice, RANKS);
    plant.step = strcmp(plant.way->name, "slow") == 0 ? 4 : 20 + (int)ct_rng_below(&dice, 30);
    plant.nodes = 1 + (int)ct_rng_below(&dice, 2);
    return plant;
}

static void start(struct proc *agent, const struct plant *plant, const char *endpoint)
{
    const char *argv[16] = {proc_program("ctrun")};
    static char words[4][64];
    int count = 1;

    (void)snprintf(words[0], sizeof words[0], "--nproc_per_node=%d", RANKS / plant->nodes);
    (void)snprintf(words[1], sizeof words[1], "--rdzv_endpoint=%s", endpoint);
    (void)snprintf(words[2], sizeof words[2], "%d", plant->victim);
    (void)snprintf(words[3], sizeof words[3], "%d", plant->step);
    argv[count++] = words[0];
    if (plant->nodes > 1) {
        argv[count++] = "--nnodes=2";
        argv[count++] = words[1];
    }
    argv[count++] = "--hang_timeout=1s";
    argv[count++] = "-v"; /* also a verdict that a warning has said before */
    argv[count++] = "--no_python";
    argv[count++] = proc_program("../tests/programs/hangs");
    argv[count++] = plant->way->name;
    argv[count++] = words[2];
    argv[count++] = words[3];
    argv[count++] = plant->way->timeout_ms;
    proc_start(agent, argv, NULL);
}

/* Is every verdict in this text the right one? *ret_said: one with the call is there. */
static bool check_text(const char *text, const struct plant *plant, bool *ret_said)
{
    static const char *const kinds[] = {"MISSING", "MISMATCH", "STUCK", "SLOW", "DEAD"};
    char words[64], expected[64];
    bool right = true;

    (void)snprintf(expected, sizeof expected, "%s: rank %d (", plant->way->word, plant->victim);
    for (size_t i = 0; i < CT_COUNT(kinds); i++) {
        bool is_kind = strcmp(kinds[i], plant->way->word) == 0;

        (void)snprintf(words, sizeof words, "%s: rank ", kinds[i]);
        right = right && e2e_count(text, words) == (is_kind ? e2e_count(text, expected) : 0);
    }
    const char *line = strstr(text, expected);
    *ret_said = *ret_said || (line != NULL && strstr(line, plant->way->call) != NULL);
    return right;
}

/* Run it; true when the verdict is right on each node that says one, and node 0 does. */
static bool is_named(const struct plant *plant)
{
    struct proc daemon, agents[2];
    const char *endpoint = plant->nodes > 1 ? e2e_daemon(&daemon) : "";
    bool right = true, said = false;

    for (int i = 0; i < plant->nodes; i++)
        start(&agents[i], plant, endpoint);
    for (int i = 0; i < plant->nodes; i++) {
        cr_assert_neq(proc_finish(&agents[i], 60), 0, "%s: %s", plant->way->name,
                      ct_buf_str(&agents[i].text));
        const char *text = ct_buf_str(&agents[i].text);

        right = check_text(text, plant, &said) && right;
        if (!right || (!said && i + 1 == plant->nodes))
            (void)fprintf(stderr, "%s of rank %d at step %d, node %d of %d:\n%s\n",
                          plant->way->name, plant->victim, plant->step, i, plant->nodes, text);
        proc_free(&agents[i]);
    }
    if (plant->nodes > 1) {
        (void)kill(daemon.pid, SIGKILL);
        (void)proc_finish(&daemon, 10);
        proc_free(&daemon);
    }
    return right && said;
}

Test(hangs, twenty_of_twenty_planted_hangs_at_eight_ranks_are_named_with_rank_kind_and_call)
{
    int named = 0;

    for (int i = 0; i < CASES; i++) {
        struct plant plant = draw(i);
        bool is_right = is_named(&plant);

        named += is_right;
        if (!is_right)
            (void)fprintf(stderr, "hang %d is not named: %s\n", i, plant.way->name);
    }
    cr_assert_eq(named, CASES, "%d of %d", named, CASES);
}

/* CI takes 2,000 steps; HANGS_STEPS=10000 is the whole measure. */
Test(hangs, no_step_of_ranks_that_take_their_time_is_taken_for_a_hang)
{
    const char *steps = getenv("HANGS_STEPS");
    struct proc agent;
    char done[64];

    steps = steps != NULL ? steps : "2000";
    (void)snprintf(done, sizeof done, "done after %s steps", steps);
    const char *const argv[] = {proc_program("ctrun"),
                                "--nproc_per_node=8",
                                "--hang_timeout=1s",
                                "--no_python",
                                proc_program("../tests/programs/hangs"),
                                "jitter",
                                "0",
                                steps,
                                "5000",
                                NULL};
    cr_assert_eq(proc_run(&agent, argv, NULL, 800), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, done);
    e2e_not_said(&agent, " hangs");
    e2e_not_said(&agent, ": rank ");
    proc_free(&agent);
}

/* ---- looking at recorders ---------------------------------------------------------------------*/

/* Does `ctrun flight` show a rank that has begun what it waits in? */
static bool is_shown(void *context)
{
    const char *const argv[] = {proc_program("ctrun"), "flight", "--rank=1", NULL};
    struct proc flight;
    bool shown = proc_run(&flight, argv, NULL, 10) == 0 &&
                 strstr(ct_buf_str(&flight.text), "started") != NULL &&
                 strstr(ct_buf_str(&flight.text), "  called from first_call") != NULL &&
                 strstr(ct_buf_str(&flight.text), "(number 50) in world/1\n") != NULL;

    (void)context;
    proc_free(&flight);
    return shown;
}

Test(hangs, ctrun_flight_shows_the_calls_of_ranks_that_run_or_hang)
{
    struct proc agent;

    e2e_start(&agent, "--nproc_per_node=2", "--hang_timeout=60s", "--no_python",
              proc_program("../tests/programs/hangs"), "sleep", "0", "25", NULL);
    proc_until(is_shown, NULL, 30, "rank 1 in number 50");
    cr_assert_eq(kill(agent.pid, SIGTERM), 0);
    (void)proc_finish(&agent, 60);
    proc_free(&agent);
}

/* `ctrun flight` of a job on two nodes. */
struct look {
    const char *endpoint, *option;
    const char *words[3]; /* that it is to say */
    char text[16384];     /* what it said last */
};

static bool is_said(void *context)
{
    struct look *look = context;
    const char *const argv[] = {
        proc_program("ctrun"), "flight",     "--job=none", "--rdzv_endpoint",
        look->endpoint,        look->option, NULL};
    struct proc flight;
    bool said = proc_run(&flight, argv, NULL, 30) == 0;

    (void)snprintf(look->text, sizeof look->text, "%s", ct_buf_str(&flight.text));
    for (size_t i = 0; i < CT_COUNT(look->words); i++)
        said = said && (look->words[i] == NULL || strstr(look->text, look->words[i]) != NULL);
    proc_free(&flight);
    return said;
}

Test(hangs, ctrun_flight_of_a_job_judges_the_ranks_of_all_nodes_at_once)
{
    struct proc daemon, agents[2];
    const char *endpoint = e2e_daemon(&daemon);
    char words[64];

    (void)snprintf(words, sizeof words, "--rdzv_endpoint=%s", endpoint);
    for (int i = 0; i < 2; i++)
        e2e_start(&agents[i], "--nproc_per_node=2", "--nnodes=2", words, "--hang_timeout=300s",
                  "--lease=2m", "--no_python", proc_program("../tests/programs/hangs"), "sleep",
                  "3", "25", NULL);
    struct look look = {.endpoint = endpoint,
                        .option = "--calls=2",
                        .words = {"4 ranks, of which 4 were seen", "MISSING: rank 3 (host ",
                                  "3 ranks have waited for it"}};
    proc_until(is_said, &look, 60, "the verdict on rank 3");
    for (int rank = 0; rank < 4; rank++) {
        (void)snprintf(words, sizeof words, "rank %d of 4, pid ", rank);
        cr_assert_eq(e2e_count(look.text, words), 1, "%s", look.text);
    }
    cr_assert_leq(e2e_count(look.text, " s ago "), 4 * 2, "%s", look.text);
    look = (struct look){.endpoint = endpoint,
                         .option = "--json",
                         .words = {"\"verdict\":{\"kind\":\"MISSING\",\"rank\":3,", "\"seen\":4,"}};
    proc_until(is_said, &look, 30, "the same in JSON");

    cr_assert_eq(kill(agents[0].pid, SIGSTOP), 0);
    look =
        (struct look){.endpoint = endpoint,
                      .option = "--rank=0",
                      .words = {"does not answer: is its ctrun stopped?", "of which 2 were seen"}};
    proc_until(is_said, &look, 30, "that a node does not answer");
    cr_assert_eq(kill(agents[0].pid, SIGCONT), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(kill(agents[i].pid, SIGTERM), 0);
    for (int i = 0; i < 2; i++) {
        (void)proc_finish(&agents[i], 60);
        proc_free(&agents[i]);
    }
    (void)kill(daemon.pid, SIGKILL);
    (void)proc_finish(&daemon, 10);
    proc_free(&daemon);
}

Test(hangs, the_recorders_of_all_ranks_are_left_in_the_log_folder)
{
    struct proc agent;
    char folder[512];

    (void)snprintf(folder, sizeof folder, "--log_dir=%s", e2e_in_folder("logs"));
    cr_assert_neq(e2e_run(&agent, "--nproc_per_node=2", folder, "--no_python",
                          proc_program("../tests/programs/hangs"), "count", "1", "25", NULL),
                  0);
    e2e_said(&agent, "MISMATCH: rank 1 (");
    for (int rank = 0; rank < 2; rank++) {
        char pattern[512];

        (void)snprintf(pattern, sizeof pattern, "%s/none_*/flight_rank_000%d.g1.json",
                       e2e_in_folder("logs"), rank);
        const char *text = e2e_read(e2e_glob(pattern));
        cr_assert_not_null(strstr(text, "\"number\":50"), "%s", text);
        cr_assert_not_null(strstr(text, "\"host\":\""));
        cr_assert_not_null(strstr(text, " in hangs\""), "its functions are named");
        cr_assert_not_null(strstr(text, "\"state\":\"failed\""));
    }
    proc_free(&agent);
}
