/* `ctrun logs`: what the workers of all nodes of a job write, as one stream. */
#include "e2e.h"
#include "speech.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(logs, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* It says who it is and what all say, waits for the file "go", and says more. */
static const char *talker(const char *more)
{
    static char text[2048];

    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n"
                   "echo \"rank $RANK is here\"\necho same everywhere\n"
                   "while [ ! -e %s ]; do sleep 0.02; done\n%s\n",
                   e2e_in_folder("go"), more);
    return e2e_script("talker", text);
}

static void start_node(struct proc *node, const char *endpoint, const char *script,
                       const char *restarts)
{
    e2e_start(node, "--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint", endpoint,
              "--max_restarts", restarts, script, NULL);
}

static void start_logs(struct proc *logs, const char *endpoint, const char *first,
                       const char *second)
{
    const char *const argv[] = {
        proc_program("ctrun"), "logs", "none", "--rdzv_endpoint", endpoint, first, second, NULL};

    proc_start(logs, argv, NULL);
}

static void assert_logs(const char *endpoint, const char *first, const char *second, int status,
                        const char *words)
{
    struct proc logs;

    start_logs(&logs, endpoint, first, second);
    cr_assert_eq(proc_finish(&logs, 20), status, "%s", ct_buf_str(&logs.text));
    e2e_said(&logs, words);
    if (first != NULL && strcmp(first, "--tail=1") == 0)
        cr_assert_eq(e2e_count(ct_buf_str(&logs.text), "\n"), 1);
    proc_free(&logs);
}

static void end_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    (void)proc_finish(daemon, 10);
    proc_free(daemon);
}

Test(logs, the_lines_of_all_nodes_are_one_stream_with_equal_ones_folded)
{
    struct proc daemon, a, b, logs;
    const char *endpoint = e2e_daemon(&daemon), *script = talker("echo \"bye from $RANK\"");
    char line[64];

    start_node(&a, endpoint, script, "0");
    start_node(&b, endpoint, script, "0");
    cr_assert_not_null(proc_wait_text(&a, "same everywhere", 20));
    cr_assert_not_null(proc_wait_text(&b, "same everywhere", 20));
    start_logs(&logs, endpoint, "--follow", NULL);
    cr_assert_not_null(proc_wait_text(&logs, "[0-3] x4: same everywhere", 20));
    for (int rank = 0; rank < 4; rank++) {
        (void)snprintf(line, sizeof line, "[%d] rank %d is here", rank, rank);
        e2e_said(&logs, line);
    }
    assert_logs(endpoint, "--rank", "2", 0, "[2] rank 2 is here\n[2] same everywhere\n");
    assert_logs(endpoint, "--tail=1", "--node=1", 0, "] same everywhere\n");
    assert_logs(endpoint, "--rank", "4", 66, "ranks 0 to 3: no rank 4");
    assert_logs(endpoint, "--node", "2", 66, "nodes 0 to 1 and ranks 0 to 3: no node 2");
    if (!speech_is_json()) /* which would be read as ctrun's own records */
        assert_logs(endpoint, "--json", NULL, 0,
                    "\"stream\":\"stdout\",\"text\":\"rank 3 is here\"}");
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&a, 20), 0, "%s", ct_buf_str(&a.text));
    cr_assert_eq(proc_finish(&b, 20), 0, "%s", ct_buf_str(&b.text));
    cr_assert_eq(proc_finish(&logs, 20), 0, "%s", ct_buf_str(&logs.text));
    for (int rank = 0; rank < 4; rank++) {
        (void)snprintf(line, sizeof line, "[%d] bye from %d\n", rank, rank);
        e2e_said(&logs, line);
    }
    assert_logs(endpoint, NULL, NULL, 66, "no job is served here");
    end_daemon(&daemon);
    proc_free(&a);
    proc_free(&b);
    proc_free(&logs);
}

/* The embedded rendezvous, which ends with the job, and a round after a failure. */
Test(logs, the_last_words_of_a_killed_rank_are_in_it_and_the_next_round_follows)
{
    struct proc job, logs;
    const char *script = talker("if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then\n"
                                "  echo last words; kill -KILL $$\nfi\n"
                                "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 600\n"
                                "echo \"rank $RANK again\"");
    const char *const argv[] = {proc_program("ctrun"), "logs", "last-words", "-f", NULL};

    e2e_start(&job, "--rdzv_id=last-words", "--nproc_per_node=2", "--max_restarts=1", script, NULL);
    cr_assert_not_null(proc_wait_text(&job, "same everywhere", 20));
    proc_start(&logs, argv, NULL);
    cr_assert_not_null(proc_wait_text(&logs, "[0-1] x2: same everywhere", 20));
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&job, 30), 0, "%s", ct_buf_str(&job.text));
    cr_assert_eq(proc_finish(&logs, 20), 0, "%s", ct_buf_str(&logs.text));
    e2e_said(&logs, "[1] last words\n");
    e2e_said(&logs, "[0] rank 0 again\n");
    e2e_said(&logs, "[1] rank 1 again\n");
    proc_free(&job);
    proc_free(&logs);
}

/* The console of the first node has its own lines as they are, and those of the other one; its end
 * has the last of them. */
Test(logs, the_console_of_the_first_node_shows_the_others_lines)
{
    struct proc daemon, a, b;
    const char *endpoint = e2e_daemon(&daemon),
               *script = talker("echo \"a warning\" >&2\nseq -f \"$RANK: %.0f\" 200\necho over");
    char line[64];

    e2e_start(&a, "--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint", endpoint, "--node_rank=0",
              "--log.console=all", script, NULL);
    e2e_start(&b, "--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint", endpoint, "--node_rank=1",
              "--log.console=all", script, NULL);
    cr_assert_not_null(proc_wait_text(&a, "[1:3] rank 3 is here\n", 20));
    const char *same = speech_is_json() ? "[1:3] same everywhere\n" /* records are not folded */
                                        : "[2-3] x2: same everywhere\n";
    cr_assert_not_null(proc_wait_text(&a, same, 20));
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&a, 20), 0, "%s", ct_buf_str(&a.text));
    cr_assert_eq(proc_finish(&b, 20), 0, "%s", ct_buf_str(&b.text));
    for (int rank = 0; rank < 4; rank++) {
        (void)snprintf(line, sizeof line, "[%d:%d] %d: 200\n", rank / 2, rank, rank);
        cr_assert_eq(e2e_count(ct_buf_str(&a.text), line), 1, "%s in %s", line,
                     ct_buf_str(&a.text));
    }
    e2e_said(&a, speech_is_json() ? "[1:2] a warning\n" : "[2-3] x2: a warning\n");
    e2e_said(&a, speech_is_json() ? "[1:3] over\n" : "[2-3] x2: over\n");
    e2e_not_said(&b, "rank 0 is here");
    end_daemon(&daemon);
    proc_free(&a);
    proc_free(&b);
}

/* A rank writes far more than a node keeps, while the reader is stopped; the job waits for neither.
 */
Test(logs, who_reads_slowly_is_told_what_he_missed_and_slows_nobody)
{
    struct proc job, logs;
    const char *script = talker("seq -f 'line %.0f of the flood' 100000\necho flooded\n"
                                "while [ ! -e end ]; do sleep 0.02; done");
    const char *const argv[] = {proc_program("ctrun"), "logs", "flood", "-f", NULL};

    e2e_start(&job, "--rdzv_id=flood", "--nproc_per_node=1", script, NULL);
    cr_assert_not_null(proc_wait_text(&job, "same everywhere", 20));
    proc_start(&logs, argv, NULL);
    cr_assert_not_null(proc_wait_text(&logs, "same everywhere", 20));
    cr_assert_eq(kill(logs.pid, SIGSTOP), 0);
    (void)e2e_write("go", "");
    cr_assert_not_null(proc_wait_text(&job, "flooded", 20));
    cr_assert_eq(kill(logs.pid, SIGCONT), 0);
    cr_assert_not_null(proc_wait_text(&logs, " lines faster than they were read", 20));
    cr_assert_not_null(proc_wait_text(&logs, "[0] flooded\n", 20));
    (void)e2e_write("end", "");
    cr_assert_eq(proc_finish(&job, 20), 0);
    cr_assert_eq(proc_finish(&logs, 20), 0);
    proc_free(&job);
    proc_free(&logs);
}
