/* Hangs and stragglers on real processes: rows 3, 4 and 16 of the fault table. A rank hangs because
 * it is stopped while it is in a collective, or because a file that it writes is a FIFO that nobody
 * reads; it is slow because it is stopped and continued all the time. */
#include "drill.h"
#include "e2e.h"
#include "fleet.h"
#include "speech.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(watch, .init = drill_enter, .fini = drill_leave, .timeout = 360);

enum { HANG_S = 3 };

/* ---- row 3: two nodes, a daemon, a rank stopped inside a collective ------------------------- */

enum { STEPS = 600, BATCH = 32 };

static const char *const large[] = {"--model.hidden=[512,512]", NULL};
static const struct fleet alone = {.name = "alone", .steps = STEPS, .batch = BATCH, .words = large};

/* What `ctrun flight` shows of the worker with this pid: its calls, the newest last. Static. */
static const char *calls_of(pid_t pid)
{
    static char text[1 << 20];
    const char *const argv[] = {proc_program("ctrun"), "flight", NULL};
    char head[32];
    struct proc flight;

    (void)proc_run(&flight, argv, NULL, 10);
    (void)snprintf(head, sizeof head, ", pid %d,", (int)pid);
    const char *from = strstr(ct_buf_str(&flight.text), head);
    const char *end = from != NULL ? strstr(from, "\nrank ") : NULL;
    (void)snprintf(text, sizeof text, "%.*s",
                   from == NULL  ? 0
                   : end != NULL ? (int)(end - from)
                                 : (int)strlen(from),
                   from != NULL ? from : "");
    proc_free(&flight);
    return text;
}

/* Has its newest call begun, and not ended, for so long that it waits in it? */
static bool waits_in_call(pid_t pid)
{
    static const char ago[] = " s ago  ", started[] = "started ";
    const char *text = calls_of(pid), *newest = NULL;

    for (const char *at = strstr(text, ago); at != NULL; at = strstr(at + 1, ago))
        newest = at;
    if (newest == NULL || strncmp(newest + strlen(ago), started, strlen(started)) != 0)
        return false;
    while (newest > text && newest[-1] != '\n')
        newest--;
    return strtod(newest, NULL) > 0.5;
}

/* Stop `victim` while it is in a collective: where it waits for `other`, who is stopped meanwhile.
 * Its own recorder says that it is there, before and after. */
static bool is_stopped_inside(void *context)
{
    pid_t victim = *(const pid_t *)context;

    if (!waits_in_call(victim))
        return false;
    cr_assert_eq(kill(victim, SIGSTOP), 0);
    if (waits_in_call(victim))
        return true;
    cr_assert_eq(kill(victim, SIGCONT), 0);
    return false;
}

static void stop_in_collective(pid_t victim, pid_t other)
{
    cr_assert_eq(kill(other, SIGSTOP), 0);
    proc_until(is_stopped_inside, &victim, 10, "a rank that waits");
    cr_assert_eq(kill(other, SIGCONT), 0);
}

struct successor {
    int index;
    pid_t before;
};

static bool has_successor(void *context)
{
    const struct successor *successor = context;
    pid_t now = fleet_worker_now(successor->index);

    return now != 0 && now != successor->before;
}

Test(watch, row_3_a_rank_that_hangs_in_a_collective_is_named_examined_and_replaced)
{
    static const char *words[] = {"--model.hidden=[512,512]", "--hang_timeout=3s", NULL, NULL};
    static const struct fleet run = {.name = "run", .steps = STEPS, .batch = BATCH, .words = words};
    struct drill_job job = {.nodes = "2", .lease = "2s", .restarts = 1};
    char folder[PATH_MAX], stacks[PATH_MAX];

    fleet_run_alone(&alone);
    (void)snprintf(folder, sizeof folder, "--log_dir=%s", e2e_in_folder("logs"));
    words[2] = folder;
    struct proc *daemon = drill_daemon(DRILL_HERE);
    fleet_job(&run, &job);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    fleet_wait_step(&run, 20, 30);
    pid_t healthy = fleet_worker(0, 5);
    struct successor successor = {1, fleet_worker(1, 5)};
    stop_in_collective(successor.before, healthy);
    double since = proc_now_s();

    (void)proc_wait_text(drill_proc(1), "hangs in all_reduce of ", HANG_S + 10);
    drill_figure(3, "verdict after", drill_ms(since) / 1e3, HANG_S + 2, "s");
    (void)proc_wait_text(drill_proc(1), "hung and was killed by ctrun", 15);
    proc_until(has_successor, &successor, 15, "a new worker");
    drill_figure(3, "replaced after", drill_ms(since) / 1e3, HANG_S + 15, "s");
    e2e_said(drill_proc(1), "rank 1 (host ");
    e2e_said(drill_proc(1), "its process is stopped by a signal");
    (void)proc_wait_text(daemon, "rank 1 of node ", 5);
    e2e_said(daemon, "hangs in all_reduce of ");
    (void)snprintf(stacks, sizeof stacks, "%s/none_*/hang-rank-0001.g1.txt", e2e_in_folder("logs"));
    cr_assert_not_null(strstr(e2e_read(e2e_glob(stacks)), "rank 1, which hangs"));
    cr_assert_not_null(strstr(e2e_read(e2e_glob(stacks)), "T (stopped)"));
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fleet_finish(i, 60), 0, "%s", ct_buf_str(&drill_proc(i)->text));
    cr_assert_eq(e2e_count(ct_buf_str(&drill_proc(0)->text), " hangs"), 0, "rank 0 is well");
    e2e_said(drill_proc(0), "1 of 1 workers of this node continue from step");
    fleet_expect_samples(&run);
    cr_assert(fleet_same_result(&run, &alone), "parameters or moments differ");
    drill_fact(3, "same bits as the undisturbed run");
}

/* The others wait for it at the boundary where a node wants to leave: no promise ends that wait. */
Test(watch, a_rank_that_hangs_on_the_way_to_a_boundary_is_named_and_replaced)
{
    static const char *const words[] = {"--model.hidden=[512,512]", "--hang_timeout=3s", NULL};
    static const struct fleet run = {.name = "run", .steps = STEPS, .words = words};
    struct drill_job job = {.nodes = "2:3", .lease = "2s", .restarts = 1};

    (void)drill_daemon(DRILL_HERE);
    fleet_job(&run, &job);
    for (int i = 0; i < 3; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    fleet_wait_step(&run, 20, 30);
    struct successor successor = {2, fleet_worker(2, 5)};
    cr_assert_eq(kill(successor.before, SIGSTOP), 0);
    cr_assert_eq(kill(drill_proc(1)->pid, SIGTERM), 0);
    (void)proc_wait_text(drill_proc(2), "hung and was killed by ctrun", HANG_S + 12);
    proc_until(has_successor, &successor, 15, "a new worker");
    cr_assert_eq(fleet_finish(0, 60), 0, "%s", ct_buf_str(&drill_proc(0)->text));
    cr_assert_eq(fleet_finish(2, 60), 0, "%s", ct_buf_str(&drill_proc(2)->text));
    (void)fleet_finish(1, 10);
    fleet_expect_samples(&run);
}

/* ---- row 4: a program of a user's own, a rank that never comes back from open(2) ------------ */

enum { RANKS = 3 };

struct goal {
    int rank;
    unsigned long long step;
    pid_t not_pid;
    pid_t found;
};

/* What the rank of tests/e2e/programs/line wrote last, its pid and step; the file is empty for a
 * moment at each step. */
static bool is_reached(void *context)
{
    struct goal *goal = context;
    char name[32];
    int pid = 0;
    unsigned long long step = 0;

    (void)snprintf(name, sizeof name, "rank_%d", goal->rank);
    (void)sscanf(e2e_read(e2e_in_folder(name)), "%d %llu", &pid, &step);
    goal->found = pid;
    return pid != 0 && pid != goal->not_pid && step >= goal->step;
}

/* Wait for a step of a rank, by another process than `not_pid`; its pid. */
static pid_t wait_rank(int rank, unsigned long long step, pid_t not_pid)
{
    struct goal goal = {.rank = rank, .step = step, .not_pid = not_pid};

    proc_until(is_reached, &goal, 30, "a step of a rank");
    return goal.found;
}

Test(watch, row_4_a_rank_that_hangs_outside_of_collectives_is_named_and_replaced)
{
    const char *const argv[] = {proc_program("ctrun"),
                                "--nproc_per_node=3",
                                "--max_restarts=1",
                                "--hang_timeout=3s",
                                proc_program("../tests/programs/line"),
                                e2e_in_folder(""),
                                NULL};
    struct proc agent;
    pid_t before[RANKS];

    proc_start(&agent, argv, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        before[rank] = wait_rank(rank, 20, 0);
    const char *file = e2e_in_folder("rank_1");
    const char *fifo = e2e_in_folder("fifo");
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    cr_assert_eq(rename(fifo, file), 0); /* its next fopen waits for a reader */
    double since = proc_now_s();
    (void)proc_wait_text(&agent, "hangs: it has not entered ", HANG_S + 10);
    drill_figure(4, "verdict after", drill_ms(since) / 1e3, HANG_S + 2, "s");
    cr_assert_eq(unlink(file), 0);
    (void)proc_wait_text(&agent, "hung and was killed by ctrun", 15);
    (void)wait_rank(1, 21, before[1]);
    drill_figure(4, "replaced after", drill_ms(since) / 1e3, HANG_S + 15, "s");
    for (int rank = 0; rank < RANKS; rank += 2)
        cr_assert_eq(wait_rank(rank, 21, 0), before[rank], "rank %d was started again", rank);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "rank 1 (host ");
    e2e_said(&agent, "where 2 ranks of this node wait for it; no sign of life for ");
    e2e_said(&agent, "2 of 3 workers continue from step");
    e2e_said(&agent, "y = 2.00 x + 1.00 after 300 steps on 3 ranks");
    proc_free(&agent);
}

Test(watch, a_hang_without_restarts_ends_the_job_with_its_sentence)
{
    struct proc agent;

    e2e_start(&agent, "--nproc_per_node=3", "--hang_timeout=1s",
              proc_program("../tests/programs/line"), e2e_in_folder(""), NULL);
    cr_assert_eq(kill(wait_rank(2, 20, 0), SIGSTOP), 0);
    cr_assert_eq(proc_finish(&agent, 30), 75, "as error.def says, not 128 + ctrun's own SIGKILL");
    e2e_said(&agent, "rank 2 (node 0, host ");
    e2e_said(&agent, "hung and was killed by ctrun");
    e2e_said(&agent, " hangs");
    if (!speech_is_json()) { /* where the failure's record has its text */
        cr_assert_eq(e2e_count(ct_buf_str(&agent.text), " hangs"), 1);
        cr_assert_eq(e2e_count(ct_buf_str(&agent.text), "its process is stopped"), 1, "%s",
                     ct_buf_str(&agent.text));
    }
    e2e_wrote(&agent, "by ctrun (see above)\n");
    e2e_said(&agent, "hint: launch.hang_timeout");
    proc_free(&agent);
}

/* ---- programs without a record -------------------------------------------------------------- */

Test(watch, a_program_without_a_record_is_watched_only_where_a_hang_timeout_is_asked_for)
{
    static const char show[] = "echo \"[$CTRUN_HEARTBEAT_FILE$PYTHONFAULTHANDLER]\"";
    struct proc agent;

    cr_assert_eq(e2e_run(&agent, "--no_python", "/bin/sh", "-c", show, NULL), 0);
    e2e_said(&agent, "[]");
    proc_free(&agent);
    cr_assert_eq(e2e_run(&agent, "--hang_timeout=9s", "--no_python", "/bin/sh", "-c", show, NULL),
                 0);
    e2e_said(&agent, "[/proc/");
    e2e_said(&agent, "1]");
    proc_free(&agent);
    /* Two that sleep, and one that sleeps between its heartbeats. */
    cr_assert_eq(e2e_run(&agent, "--hang_timeout=1s", "--nproc_per_node=2", "--no_python",
                         "/bin/sh", "-c",
                         "for i in 1 2 3 4 5; do timeout 0.7 tail -f /dev/null; "
                         "[ $RANK = 1 ] || echo >$CTRUN_HEARTBEAT_FILE; done; "
                         "exec tail -f /dev/null",
                         NULL),
                 75);
    e2e_said(&agent, "rank 0 (host ");
    e2e_said(&agent, " hangs; no sign of life for ");
    e2e_said(&agent, "hung and was killed by ctrun");
    proc_free(&agent);
}

/* What py-spy prints of a rank: rank 1 loads, the others are in a collective. */
static const char spy[] = "#!/bin/sh\n"
                          "for pid; do :; done\n"
                          "rank=$(tr '\\0' '\\n' </proc/$pid/environ | sed -n s/^RANK=//p)\n"
                          "echo \"Process $pid: python3 t.py\"\n"
                          "echo \"Thread $pid (idle): \\\"MainThread\\\"\"\n"
                          "p=/x/site-packages/torch/distributed/distributed_c10d.py\n"
                          "[ $rank = 1 ] && echo '    load (/h/t.py:12)' && exit\n"
                          "echo \"    all_reduce ($p:9)\"\n"
                          "echo '    step (/h/t.py:31)'\n";

Test(watch, stacks_by_py_spy_name_the_one_outside_of_the_collective_and_are_kept)
{
    struct proc agent;
    char path[PATH_MAX];

    (void)e2e_script("py-spy", spy);
    (void)snprintf(path, sizeof path, "%s:%s", e2e_in_folder(""), getenv("PATH"));
    cr_assert_eq(setenv("PATH", path, 1), 0);
    cr_assert_eq(e2e_run(&agent, "--hang_timeout=1s", "--nproc_per_node=3", "--log_dir=logs",
                         "--no_python", "/bin/sleep", "600", NULL),
                 75, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "hangs at /h/t.py:12 (load), outside of any collective; 2 ranks wait in "
                     "all_reduce at /h/t.py:31 (step)");
    e2e_said(&agent, "rank 1 (node 0, host ");
    const char *kept = e2e_read(e2e_glob("logs/none_*/hang-rank-0001.g1.txt"));
    cr_assert(strstr(kept, "==== rank 2 (pid ") != NULL, "%s", kept);
    cr_assert(strstr(kept, "    load (/h/t.py:12)\n") != NULL, "%s", kept);
    cr_assert(strstr(kept, "rank 1, which hangs") != NULL, "%s", kept);
    proc_free(&agent);
}

/* Two nodes: rank 0 prints for longer than the hang timeout, then waits for ever in a collective
 * for rank 1, which has been silent all the time. */
Test(watch, of_two_nodes_that_confer_the_one_with_a_rank_outside_of_the_collective_names_it)
{
    static const char worker[] = "#!/bin/sh\n"
                                 "[ $RANK = 0 ] && for i in 1 2 3 4 5 6 7 8; do\n"
                                 "    echo at work; timeout 0.4 tail -f /dev/null\n"
                                 "done\n"
                                 "exec tail -f /dev/null\n";
    struct proc daemon, agents[2];
    char path[PATH_MAX], endpoint[64];

    (void)e2e_script("py-spy", spy);
    (void)snprintf(path, sizeof path, "%s:%s", e2e_in_folder(""), getenv("PATH"));
    cr_assert_eq(setenv("PATH", path, 1), 0);
    (void)snprintf(endpoint, sizeof endpoint, "--rdzv_endpoint=%s", e2e_daemon(&daemon));
    const char *program = e2e_script("worker", worker);
    for (int i = 0; i < 2; i++)
        e2e_start(&agents[i], "--nnodes=2", endpoint, i == 0 ? "--node_rank=0" : "--node_rank=1",
                  "--hang_timeout=1s", "--no_python", program, NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&agents[i], 60), 75, "%s", ct_buf_str(&agents[i].text));
        e2e_said(&agents[i], "rank 1 (node 1, host ");
        cr_assert_gt(agents[i].seconds, 3.2, "nobody was ended while rank 0 printed");
    }
    e2e_not_said(&agents[0], "in all_reduce");
    e2e_said(&agents[1], "hangs at /h/t.py:12 (load); no sign of life for ");
    for (int i = 0; i < 2; i++)
        proc_free(&agents[i]);
    (void)kill(daemon.pid, SIGKILL);
    (void)proc_finish(&daemon, 10);
    proc_free(&daemon);
}

/* Without py-spy: Python prints its stacks itself. */
Test(watch, a_plain_python_program_is_named_by_what_faulthandler_prints)
{
    struct proc agent;
    const char *name = e2e_write("plain.py", "import os, threading\n"
                                             "def wait():\n"
                                             "    threading.Event().wait()\n"
                                             "def read():\n"
                                             "    open('fifo').read()\n"
                                             "read() if os.environ['RANK'] == '1' else wait()\n");

    cr_assert_eq(mkfifo("fifo", 0600), 0);
    cr_assert_eq(e2e_run(&agent, "--hang_timeout=1s", "--nproc_per_node=3", name, NULL), 75, "%s",
                 ct_buf_str(&agent.text));
    e2e_said(&agent, "/plain.py:5 (read); 2 ranks are at ");
    e2e_said(&agent, "/plain.py:3 (wait); no sign of life for ");
    e2e_said(&agent, "rank 1 (node 0, host ");
    proc_free(&agent);
}

/* ---- row 16: a rank at half its speed ------------------------------------------------------- */

Test(watch, row_16_a_rank_at_half_its_speed_is_named_within_50_steps_and_stays)
{
    /* Steps of 60 ms and more: each of them meets the brake, few pass before the agent looks. */
    static const char *const words[] = {"--model.hidden=[1024,1024]", NULL};
    static const struct fleet slow = {.name = "slow", .steps = 4000, .batch = 1536, .words = words};
    struct drill_job job = {.nodes = "2", .lease = "5s"};
    pid_t workers[2];
    struct proc brake;
    char script[256];

    (void)drill_daemon(DRILL_HERE);
    fleet_job(&slow, &job);
    for (int i = 0; i < 2; i++)
        (void)drill_node(i, DRILL_HERE, &job);
    fleet_wait_step(&slow, 1, 240);
    double began = fleet_last_time(&slow);
    for (int step = 2; fleet_last_time(&slow) - began < 6; step++) /* the warm-up */
        fleet_wait_step(&slow, step, 240);
    for (int i = 0; i < 2; i++)
        workers[i] = fleet_worker(i, 5);
    (void)snprintf(script, sizeof script,
                   "while kill -STOP %d && sleep 0.03 && kill -CONT %d && sleep 0.03; do :; done",
                   (int)workers[1], (int)workers[1]);
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    int step = fleet_step(&slow);
    proc_start(&brake, argv, NULL);
    (void)proc_wait_text(drill_proc(0), "rank 1 on ", 240);
    int steps = fleet_step(&slow) - step;
    (void)proc_wait_text(drill_proc(0), "ctrun drain", 5);
    e2e_said(drill_proc(0), " is slow: last in ");
    drill_figure(16, "steps until it is named", steps, 50, "");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fleet_worker_now(i), workers[i], "worker %d was restarted", i);
    cr_assert_eq(drill_metric("ctrun_generation"), 1);
    cr_assert_eq(e2e_count(ct_buf_str(&drill_proc(0)->text), " is slow: last in "), 1);
    (void)kill(brake.pid, SIGKILL);
    proc_free(&brake);
}
