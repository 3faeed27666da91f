/* The soak's command line and its loop. See soak.h. */
#include "soak.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"

#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Faults for WORK_S, then quiet until everybody is back and CALM_S long; that must come in REST_S.
 * Without a step for HOLD_S no further fault is done; STUCK_S after the last fault it is an alarm.
 */
enum { WORK_S = 30, CALM_S = 2, REST_S = 60, HOLD_S = 5, STUCK_S = 45, TELL_S = 30, TURN_MS = 20 };

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

double soak_now_s(const struct soak *soak)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9 - soak->began_s;
}

double soak_wall_s(void)
{
    return (double)ct_clock_wall_ns(&ct_clock_system) * 1e-9;
}

double soak_draw(struct soak *soak, double low, double high)
{
    return low + (high - low) * (double)ct_rng_below(&soak->rng, 1000001) / 1e6;
}

void soak_pass(int milliseconds)
{
    (void)poll(NULL, 0, milliseconds);
}

/* ---- options -------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: soak [--leaders] [--seconds N] [--seed N] [--lease SECONDS] [--programs DIR]\n"
    "            [--config FILE]\n"
    "  --leaders      no daemon: agents hold the record, and only who leads is killed (root)\n"
    "  --seconds N    how long faults are done [300]\n"
    "  --seed N       faults and their times follow from it [the time]\n"
    "  --lease S      of the job [3]\n"
    "  --programs DIR where ctrun, ctrund and ctworker are [build/release/bin]\n"
    "  --config FILE  the training [tests/soak/soak.yaml]\n";

static bool parse(struct soak *soak, int argc, char **argv)
{
    int i = 1;

    soak->leaders = i < argc && strcmp(argv[i], "--leaders") == 0;
    for (i += soak->leaders; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        int rc = 0;

        if (strcmp(name, "--seconds") == 0)
            rc = ct_parse_f64(value, &soak->seconds);
        else if (strcmp(name, "--seed") == 0)
            rc = ct_parse_u64(value, &soak->seed);
        else if (strcmp(name, "--lease") == 0)
            rc = ct_parse_f64(value, &soak->lease_s);
        else if (strcmp(name, "--programs") == 0)
            soak->programs = value;
        else if (strcmp(name, "--config") == 0)
            soak->config = value;
        else
            return false;
        if (rc != 0)
            return false;
    }
    return i == argc;
}

/* ---- one turn ------------------------------------------------------------------------------- */

static void watch(struct soak *soak)
{
    cast_watch(soak);
    steps_watch(soak);
    soak->over = soak->over || interrupted != 0;
}

/* What each agent said last, when nothing moves any more. */
static void tell_last_words(struct soak *soak)
{
    for (int i = 0; i < SOAK_HOSTS; i++)
        if (process_runs(soak->cast.nodes[i].agent))
            report_event(soak, "%s (pid %d): %s", soak->cast.nodes[i].agent->name,
                         (int)soak->cast.nodes[i].agent->pid, soak->cast.nodes[i].agent->last);
    if (!soak->leaders)
        report_event(soak, "%s: %s", cast_daemon(soak)->name, cast_daemon(soak)->last);
}

/* Steps must follow once nothing is done to the job any more. */
static void watch_stall(struct soak *soak, double *idle_since_s)
{
    double now_s = soak_now_s(soak);

    if (!faults_idle(soak))
        *idle_since_s = now_s;
    double since_s = soak->steps.seen_s > *idle_since_s ? soak->steps.seen_s : *idle_since_s;
    if (now_s - since_s < STUCK_S)
        return;
    tell_last_words(soak);
    census_stacks(soak);
    report_alarm(soak, "no step for %d s, the last one was %" PRIu64, STUCK_S, soak->steps.last);
    soak->over = true;
}

/* How many ranks there should be: no more than MAX nodes, and a number that divides SOAK_LEAVES. */
static int usable_world(const struct soak *soak)
{
    int nodes = CT_MIN(cast_up(soak), SOAK_MAX);

    while (nodes > 0 && SOAK_LEAVES % (nodes * SOAK_SLOTS) != 0)
        nodes--;
    return nodes * SOAK_SLOTS;
}

static bool is_calm(const struct soak *soak)
{
    const struct cast *cast = &soak->cast;

    return faults_idle(soak) && cast->running == 1 && !process_runs(&cast->desk) &&
           cast->world == usable_world(soak) && cast_is_complete(soak) &&
           soak_now_s(soak) - soak->steps.seen_s < 1;
}

static void tell_state(const struct soak *soak)
{
    uint32_t faults = 0;

    for (int i = 0; i < FAULT_COUNT; i++)
        faults += soak->steps.pauses[i].faults;
    (void)printf("[%9.3f] -- step %" PRIu64 ", round %.0f, %d nodes up, %u faults, %u censuses, "
                 "%u alarms\n",
                 soak_now_s(soak), soak->steps.last, soak->cast.generation, cast_up(soak), faults,
                 soak->census.taken, soak->report.alarms);
}

/* ---- phases --------------------------------------------------------------------------------- */

static void disturb(struct soak *soak, double until_s)
{
    double idle_since_s = soak_now_s(soak);

    while (!soak->over && soak_now_s(soak) < until_s) {
        watch(soak);
        watch_stall(soak, &idle_since_s);
        faults_advance(soak, soak_now_s(soak) - soak->steps.seen_s < HOLD_S);
        soak_pass(TURN_MS);
    }
}

/* Let everything settle; true once it has. */
static bool rest(struct soak *soak)
{
    double began_s = soak_now_s(soak), calm_since_s = began_s, idle_since_s = began_s;

    while (!soak->over) {
        double now_s = soak_now_s(soak);
        watch(soak);
        watch_stall(soak, &idle_since_s);
        faults_advance(soak, false);
        if (!is_calm(soak))
            calm_since_s = now_s;
        if (now_s - calm_since_s > CALM_S)
            return true;
        if (now_s - idle_since_s > REST_S) {
            tell_last_words(soak);
            census_stacks(soak);
            report_alarm(soak,
                         "not everybody is at work %d s after the last fault: %d nodes, world %.0f",
                         REST_S, cast_up(soak), soak->cast.world);
            return false;
        }
        soak_pass(TURN_MS);
    }
    return false;
}

static void run(struct soak *soak)
{
    double told_s = 0;

    if (!rest(soak))
        return;
    while (!soak->over && soak_now_s(soak) < soak->seconds) {
        disturb(soak, soak_now_s(soak) + WORK_S);
        if (rest(soak)) {
            census_take(soak);
            if (!soak->leaders)
                (void)cast_order(soak, "status", -1);
        }
        steps_flush(soak);
        soak->faults.last_wall_s = 0;
        if (soak_now_s(soak) - told_s > TELL_S) {
            tell_state(soak);
            told_s = soak_now_s(soak);
        }
    }
}

static bool set_up(struct soak *soak)
{
    char tmp[SOAK_PATH], metrics[SOAK_PATH + 32];
    struct ct_error err = {0};

    (void)snprintf(soak->folder, sizeof soak->folder, "/tmp/ctrun-soak-XXXXXX");
    if (mkdtemp(soak->folder) == NULL)
        return false;
    (void)snprintf(soak->run, sizeof soak->run, "%s/run", soak->folder);
    (void)snprintf(tmp, sizeof tmp, "%s/tmp", soak->folder);
    if (ct_fs_make_dirs(soak->run, &err) != 0 || ct_fs_make_dirs(tmp, &err) != 0)
        return false;
    (void)snprintf(metrics, sizeof metrics, "%s/log/metrics.jsonl", soak->run);
    step_tail_init(&soak->steps.tail, metrics);
    (void)setenv("TMPDIR", tmp, 1);
    (void)setenv("XDG_RUNTIME_DIR", tmp, 1);
    return cast_open(soak);
}

static void tear_down(struct soak *soak)
{
    cast_destroy(soak);
    step_tail_deinit(&soak->steps.tail);
    for (int i = 0; i < FAULT_COUNT; i++)
        free(soak->steps.pauses[i].seconds);
    if (soak->report.alarms == 0)
        (void)ct_fs_remove_tree(soak->folder);
    else
        (void)printf("all logs are in %s\n", soak->folder);
}

int main(int argc, char **argv)
{
    static struct soak soak = {.seconds = 300, .lease_s = 3, .programs = "build/release/bin"};
    static char programs[PATH_MAX], config[PATH_MAX];

    soak.config = "tests/soak/soak.yaml";
    soak.seed = ct_clock_wall_ns(&ct_clock_system) / 1000000000u;
    if (!parse(&soak, argc, argv)) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (realpath(soak.programs, programs) == NULL || realpath(soak.config, config) == NULL) {
        (void)fprintf(stderr, "soak: %s or %s is not there\n", soak.programs, soak.config);
        return 2;
    }
    soak.programs = programs;
    soak.config = config;
    soak.began_s = (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9;
    ct_rng_init(&soak.rng, soak.seed);
    for (int i = 0; i < 2; i++)
        (void)sigaction(i == 0 ? SIGINT : SIGTERM, &(struct sigaction){.sa_handler = on_signal},
                        NULL);
    (void)printf("soak: %.0f s, seed %" PRIu64 "%s\n", soak.seconds, soak.seed,
                 soak.leaders ? ", only leaders are killed" : "");
    if (!set_up(&soak)) {
        report_alarm(&soak, "the job cannot be started");
    } else {
        run(&soak);
        if (interrupted == 0) {
            cast_close(&soak);
            census_leftovers(&soak);
        }
        steps_flush(&soak);
        report_table(&soak);
        if (interrupted == 0 && soak.steps.last > 0)
            verify_run(&soak);
    }
    tear_down(&soak);
    return interrupted != 0 ? 128 + interrupted : soak.report.alarms > 0;
}
