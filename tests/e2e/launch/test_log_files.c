/* Log files on a disk that does not answer: a FIFO stands for it, which blocks open(2) while it has
 * no reader, and write(2) while its reader does not read.
 *
 * The folder of a run has a name that nobody knows before; so the first attempt of the worker makes
 * the FIFO where the second will have its log file, and fails. */
#include "base/assert.h"
#include "e2e.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(log_files, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* "fifo" names the FIFO; the second attempt begins when "go" is there, and runs `command`. */
static const char *script(const char *command)
{
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n"
                   "run=$(dirname \"$TORCHELASTIC_ERROR_FILE\")/../..\n"
                   "if [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ]; then\n"
                   "  mkdir -p $run/attempt_1_g2/0 && mkfifo $run/attempt_1_g2/0/stdout.log\n"
                   "  echo $run/attempt_1_g2/0/stdout.log > fifo.new && mv fifo.new fifo\n"
                   "  while [ ! -e go ]; do sleep 0.1; done\n"
                   "  exit 1\n"
                   "fi\n"
                   "echo $$ > pid\n"
                   "%s\n",
                   command);
    return e2e_script("worker.sh", text);
}

static void start(struct proc *agent, const char *endpoint, const char *command)
{
    e2e_start(agent, "--rdzv_endpoint", endpoint, "--rdzv_id=j", "--lease=2s", "--grace=3s",
              "--max_restarts=1", "--log_dir=logs", "--redirects=1", script(command), NULL);
}

/* Let the second attempt begin. The FIFO's reader, or -1 for none. */
static int go(bool has_reader)
{
    char path[4096];
    int reader = -1;

    (void)snprintf(path, sizeof path, "%s", e2e_wait_file("fifo", 20));
    path[strcspn(path, "\n")] = '\0';
    if (has_reader) {
        reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        cr_assert_geq(reader, 0, "%s", path);
    }
    (void)e2e_write("go", "1");
    return reader;
}

/* The worker floods a file that takes nothing for longer than a lease: the node is there, and says
 * so. */
static void drill(bool has_reader)
{
    struct proc daemon, agent, status;
    const char *endpoint = e2e_daemon(&daemon);

    start(&agent, endpoint, "exec seq 100000000");
    int reader = go(has_reader);
    (void)e2e_wait_file("pid", 20);
    pid_t worker = (pid_t)atoi(e2e_read("pid"));
    (void)proc_wait_text(&agent, "the disk of the log files has not kept up", 20);
    cr_assert(proc_alive(worker));
    cr_assert_eq(
        e2e_run(&status, "status", "--rdzv_endpoint", endpoint, "--rdzv_id=j", "--json", NULL), 0);
    e2e_said(&status, "\"generation\":2");
    proc_free(&status);

    double since_s = proc_now_s();
    cr_assert_eq(kill(agent.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&agent, 20), 130, "%s", ct_buf_str(&agent.text));
    cr_assert_lt(proc_now_s() - since_s, 3 + 5, "the grace, and some");
    e2e_said(&agent, "2 log files are incomplete: "); /* and events.jsonl */
    e2e_said(&agent, "attempt_1_g2/0/stdout.log: the disk has not answered for ");
    e2e_not_said(&agent, "is gone");
    e2e_not_said(&agent, "lost");
    e2e_wait_gone(worker, 5);
    if (reader >= 0)
        cr_assert_eq(close(reader), 0);
    proc_free(&agent);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 20);
    e2e_not_said(&daemon, "lost");
    proc_free(&daemon);
}

Test(log_files, a_disk_that_takes_no_bytes_costs_no_node_and_ctrl_c_ends_the_job)
{
    drill(true);
}

Test(log_files, a_disk_that_opens_no_file_costs_no_node_and_ctrl_c_ends_the_job)
{
    drill(false);
}

/* Read to the end; how many bytes were "1\n2\n3\n" and so on, or fail. */
static size_t read_sequence(int reader)
{
    static char bytes[1 << 16];
    size_t total = 0, used = 0;
    unsigned next = 1;

    cr_assert_eq(fcntl(reader, F_SETFL, 0), 0);
    for (ssize_t size; (size = read(reader, bytes + used, sizeof bytes - 1 - used)) > 0;) {
        char *at = bytes, *end;
        used += (size_t)size;
        total += (size_t)size;
        bytes[used] = '\0';
        for (; (end = strchr(at, '\n')) != NULL; at = end + 1, next++)
            cr_assert_eq(strtoul(at, NULL, 10), next, "not line %u: %.20s", next, at);
        used -= (size_t)(at - bytes);
        memmove(bytes, at, used);
    }
    cr_assert_eq(used, 0u);
    return total;
}

Test(log_files, what_waits_for_a_slow_disk_is_written_in_order_to_the_last_byte)
{
    struct proc daemon, agent;

    start(&agent, e2e_daemon(&daemon), "exec seq 1000000"); /* more than the queue holds */
    int reader = go(true);
    (void)proc_wait_text(&agent, "the disk of the log files has not kept up", 20);
    cr_assert_eq(read_sequence(reader), 6888896u);
    cr_assert_eq(proc_finish(&agent, 20), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "the log files are written again, after ");
    e2e_not_said(&agent, "incomplete");
    cr_assert_eq(close(reader), 0);
    proc_free(&agent);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 20);
    proc_free(&daemon);
}
