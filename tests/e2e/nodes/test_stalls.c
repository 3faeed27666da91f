/* A launcher that stands still (SIGSTOP, a busy machine, a laptop that was shut) loses no healthy
 * job: its agent and its rendezvous are one process, and neither may take the other, or the
 * workers, for dead.
 *
 * TEST_STALL_JOBS=1000 stops the launchers of so many jobs for 4 to 9 s under the default lease of
 * 5 s, as the gate does with few under a lease of 1 s; TEST_STALL_SEED draws other moments. */
#include "base/assert.h"
#include "base/number/rng.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(stalls, .init = e2e_enter, .fini = e2e_leave, .timeout = 3600);

enum { AT_ONCE = 50, FEW = 24 };

struct moment {
    double at_s;
    pid_t pid;
    int signal;
};

struct stalls {
    const char *lease;
    double shortest_s, longest_s, phase_s;
};

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static double drawn(struct ct_rng *rng, double low, double high)
{
    return low + (high - low) * (double)ct_rng_below(rng, 1000000) / 1e6;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct moment *)a)->at_s, y = ((const struct moment *)b)->at_s;
    return (x > y) - (x < y);
}

/* Stop each launcher once, at a moment of its own. */
static void stop_all(const struct proc *jobs, int count, const struct stalls *how,
                     struct ct_rng *rng)
{
    struct moment moments[2 * AT_ONCE];
    for (int i = 0; i < count; i++) {
        double at_s = proc_now_s() + drawn(rng, 0, how->phase_s);
        double lasts_s = drawn(rng, how->shortest_s, how->longest_s);
        moments[2 * i] = (struct moment){at_s, jobs[i].pid, SIGSTOP};
        moments[2 * i + 1] = (struct moment){at_s + lasts_s, jobs[i].pid, SIGCONT};
    }
    qsort(moments, 2 * (size_t)count, sizeof moments[0], by_time);
    for (int i = 0; i < 2 * count; i++) {
        double wait_s = moments[i].at_s - proc_now_s();
        if (wait_s > 0) /* the fault's own moment: nothing is awaited */
            (void)poll(NULL, 0, (int)(wait_s * 1e3));
        cr_assert_eq(kill(moments[i].pid, moments[i].signal), 0);
    }
}

/* How many of the jobs did not end with 0, or were started again. */
static int run_batch(int first, int count, const struct stalls *how, struct ct_rng *rng)
{
    static struct proc jobs[AT_ONCE];
    const char *program = e2e_script("wait.sh", "#!/bin/sh\n"
                                                "echo $$ >> pid.$1\n"
                                                "while [ ! -e go.$2 ]; do sleep 0.2; done\n");
    char name[32], go[32];
    int lost = 0;
    (void)snprintf(go, sizeof go, "%d", first);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "%d", first + i);
        e2e_start(&jobs[i], "--lease", how->lease, "--max_restarts", "3", program, name, go, NULL);
    }
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "pid.%d", first + i);
        (void)e2e_wait_file(name, 60);
    }
    stop_all(jobs, count, how, rng);
    (void)snprintf(go, sizeof go, "go.%d", first);
    (void)e2e_write(go, "1");
    for (int i = 0; i < count; i++) {
        int status = proc_finish(&jobs[i], 60);
        (void)snprintf(name, sizeof name, "pid.%d", first + i);
        bool good = status == 0 && e2e_count(e2e_read(name), "\n") == 1;
        if (!good)
            (void)fprintf(stderr, "job %d ended with %d: %s\n", first + i, status,
                          ct_buf_str(&jobs[i].text));
        lost += !good;
        proc_free(&jobs[i]);
    }
    return lost;
}

Test(stalls, jobs_whose_launcher_stands_still_for_about_a_lease_end_well)
{
    static const struct stalls quick = {"1s", 0.8, 1.5, 1.0}, real = {"5s", 4, 9, 5};
    int jobs = number_of("TEST_STALL_JOBS", FEW), lost = 0;
    struct ct_rng rng;

    /* Nobody else's `ctrun status` is to wait for launchers that are stopped. */
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    ct_rng_init(&rng, (uint64_t)number_of("TEST_STALL_SEED", 1));
    for (int first = 0; first < jobs; first += AT_ONCE)
        lost += run_batch(first, CT_MIN(jobs - first, (int)AT_ONCE),
                          getenv("TEST_STALL_JOBS") != NULL ? &real : &quick, &rng);
    cr_assert_eq(lost, 0, "%d of %d jobs were lost", lost, jobs);
}
