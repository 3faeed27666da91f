/* What the node agent does in the stories that every user lives through, line by line: an event and
 * what the core has decided (agent_core.h), from the log at debug level. The stories were first
 * recorded from the agent before it had a core; the order of what it does has not changed since. */
#include "base/str.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(transcripts, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

#define DEBUG "--log.level=debug", "--log.format=json"

/* Publications come as often as there is time for. */
static bool is_timely(const char *line)
{
    return !ct_starts_with(line, "publish") && !ct_starts_with(line, "tick: REPORT_WAITS");
}

/* The agent's lines of what ctrun said, one after the other. */
static void extract(const struct proc *run, struct ct_buf *to)
{
    static const char mark[] = "\"event\":\"agent\",\"message\":\"";

    ct_buf_clear(to);
    for (const char *at = ct_buf_str(&run->text); (at = strstr(at, mark)) != NULL;) {
        at += sizeof mark - 1;
        if (is_timely(at))
            (void)ct_buf_printf(to, "%.*s\n", (int)strcspn(at, "\""), at);
    }
}

/* That is the whole story. */
static void expect(const struct proc *run, const char *story)
{
    struct ct_buf lines;

    ct_buf_init(&lines, 0);
    extract(run, &lines);
    cr_assert_str_eq(ct_buf_str(&lines), story, "\n%s", ct_buf_str(&lines));
    ct_buf_deinit(&lines);
}

/* As expect, of a story's beginning, in which steps have any number but 0. */
static void expect_part(const struct proc *run, const char *story)
{
    struct ct_buf lines, told;

    ct_buf_init(&lines, 0);
    ct_buf_init(&told, 0);
    extract(run, &lines);
    for (const char *at = ct_buf_str(&lines); *at != '\0';) {
        const char *step = strstr(at, "with step ");
        size_t length = step != NULL ? (size_t)(step - at) + strlen("with step ") : strlen(at);

        (void)ct_buf_append(&told, at, length);
        at += length;
        if (step == NULL || *at == '0')
            continue;
        (void)ct_buf_puts(&told, "N");
        at += strspn(at, "0123456789");
    }
    cr_assert(ct_starts_with(ct_buf_str(&told), story), "\n%s", ct_buf_str(&told));
    ct_buf_deinit(&told);
    ct_buf_deinit(&lines);
}

#define BEGINS                                    \
    "linked\n"                                    \
    "prepare g1: OFFER, PROMISE g1 with step 0\n" \
    "round g1: BEGIN g1, 0 live on\n"

Test(transcripts, a_job_that_ends_well)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, DEBUG, "--no_python", "/bin/true", NULL), 0);
    expect(&run, BEGINS "left 0\n"
                        "finished well: SEND_DONE\n"
                        "over, status 0: NOTE_END, REVOKE all, STOP by 15, CLOSE_LINK\n"
                        "unlinked: FLUSH\n"
                        "flushed: REPORT, status 0, STOP_SERVER\n"
                        "server stopped: CLOSE\n");
    proc_free(&run);
}

Test(transcripts, a_worker_fails_is_restarted_and_fails_again)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, DEBUG, "--max_restarts=1", "--no_python", "/bin/false", NULL), 1);
    expect(&run, BEGINS "failure 0, status 1: NOTE_FAILURE, NOTE_CASUALTY, SEND_FAILURE\n"
                        "left 0\n"
                        "finished badly\n"
                        "prepare g2: OFFER, PROMISE g2 with step 0\n"
                        "round g2: BEGIN g2, 0 live on\n"
                        "failure 0, status 1: NOTE_FAILURE, NOTE_CASUALTY, SEND_FAILURE\n"
                        "left 0\n"
                        "finished badly\n"
                        "over, status 1: NOTE_END, REVOKE all, STOP by 15, CLOSE_LINK\n"
                        "unlinked: FLUSH\n"
                        "flushed: REPORT, status 1, STOP_SERVER\n"
                        "server stopped: CLOSE\n");
    proc_free(&run);
}

/* A script that listens to INT and TERM; after that it ends when the file "go" is there. */
static const char *slow_to_stop(void)
{
    return e2e_script("slow", "#!/bin/sh\n"
                              "trap 'until [ -e go ]; do sleep 0.02; done; exit 0' INT TERM\n"
                              "echo ready > ready\n"
                              "while :; do sleep 0.02; done\n");
}

Test(transcripts, ctrl_c_stops_the_job_and_waits_for_its_worker)
{
    struct proc run;

    e2e_start(&run, DEBUG, "--grace=60s", slow_to_stop(), NULL);
    (void)e2e_wait_file("ready", 20);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    (void)proc_wait_text(&run, "\"unlinked\"", 20);
    (void)e2e_write("go", "go");
    cr_assert_eq(proc_finish(&run, 20), 128 + SIGINT);
    expect(&run, BEGINS "signal 2: LEAVE, STOP by 2\n"
                        "over, status 130: NOTE_END, STOP by 2, CLOSE_LINK\n"
                        "unlinked\n"
                        "left 0\n"
                        "finished badly: FLUSH\n"
                        "flushed: REPORT, status 130, STOP_SERVER\n"
                        "server stopped: CLOSE\n");
    proc_free(&run);
}

Test(transcripts, a_second_signal_kills_a_worker_that_does_not_stop)
{
    struct proc run;

    e2e_start(&run, DEBUG, "--grace=60s", slow_to_stop(), NULL);
    (void)e2e_wait_file("ready", 20);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    (void)proc_wait_text(&run, "\"unlinked\"", 20);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 20), 128 + SIGINT);
    expect(&run, BEGINS "signal 2: LEAVE, STOP by 2\n"
                        "over, status 130: NOTE_END, STOP by 2, CLOSE_LINK\n"
                        "unlinked\n"
                        "signal 2: KILL\n"
                        "casualty 0, status 137: NOTE_CASUALTY\n"
                        "left 0\n"
                        "finished badly: FLUSH\n"
                        "flushed: REPORT, status 130, STOP_SERVER\n"
                        "server stopped: CLOSE\n");
    proc_free(&run);
}

/* A node of two leaves at a step boundary, and the other one's worker lives on without it. */
Test(transcripts, a_node_that_is_told_to_leave_does_so_at_a_step_boundary)
{
    struct proc daemon, leaves, stays;
    const char *endpoint = e2e_daemon(&daemon), *config = e2e_in_root("configs/elastic.yaml");

    e2e_start(&leaves, DEBUG, "--rdzv_endpoint", endpoint, "--nnodes=1:2", "--nproc_per_node=1",
              "--log.dir=a", "--checkpoint.dir=kept", "--grow=100ms", "--grace=60s", config, NULL);
    (void)proc_wait_text(&leaves, "SEND_RECOVERED", 60);
    e2e_start(&stays, DEBUG, "--rdzv_endpoint", endpoint, "--nnodes=1:2", "--nproc_per_node=1",
              "--log.dir=b", "--checkpoint.dir=kept", "--grow=100ms", "--grace=60s", config, NULL);
    (void)proc_wait_text(&leaves, "recovered 0 g2: SEND_RECOVERED", 60);
    (void)proc_wait_text(&stays, "recovered 0 g2: SEND_RECOVERED", 60);
    cr_assert_eq(kill(leaves.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&leaves, 60), 128 + SIGTERM);
    (void)proc_wait_text(&stays, "recovered 0 g3: SEND_RECOVERED", 60);
    cr_assert_eq(kill(stays.pid, SIGINT), 0);
    (void)proc_finish(&stays, 60);
    expect_part(&leaves, BEGINS "ready 0 g0\n"
                                "recovered 0 g1: SEND_RECOVERED\n"
                                "prepare g2 at a step boundary: SET_BOUNDARY g2\n"
                                "ready 0 g1: OFFER, PROMISE g2 with step N\n"
                                "round g2: BEGIN g2, 1 live on\n"
                                "recovered 0 g2: SEND_RECOVERED\n"
                                "signal 15: LEAVE\n"
                                "prepare g3 at a step boundary: SET_BOUNDARY g3\n"
                                "ready 0 g2: OFFER, PROMISE g3 with step N\n"
                                "released: NOTE_END, SEND_STOP, STOP by 15, CLOSE_LINK\n");
    expect_part(&stays, "linked\n"
                        "prepare g2 at a step boundary: OFFER, PROMISE g2 with step 0\n"
                        "round g2: BEGIN g2, 0 live on\n"
                        "ready 0 g0\n"
                        "recovered 0 g2: SEND_RECOVERED\n"
                        "prepare g3 at a step boundary: SET_BOUNDARY g3\n"
                        "ready 0 g2: OFFER, PROMISE g3 with step N\n"
                        "round g3: BEGIN g3, 1 live on\n"
                        "recovered 0 g3: SEND_RECOVERED\n");
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 20);
    proc_free(&leaves);
    proc_free(&stays);
    proc_free(&daemon);
}
