/* A job's events: kept as a file, given to programs, posted to a server, followed to the last. */
#include "e2e.h"

#include "base/str.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(hooks, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* Of each line of JSON the kind, with a blank behind; fails unless their numbers grow. */
static void read_kinds(const char *lines, char *kinds, size_t room)
{
    json_int_t before = 0;
    size_t used = 0;

    kinds[0] = '\0';
    for (const char *line = lines; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        json_t *record = json_loadb(line, size, 0, NULL);
        json_int_t number = json_integer_value(json_object_get(record, "number"));

        cr_assert_not_null(record, "no JSON: %s", lines);
        cr_assert_gt(number, before, "%s", lines);
        cr_assert_not_null(json_object_get(record, "time"));
        cr_assert_not_null(json_object_get(record, "job"));
        cr_assert_not_null(json_object_get(record, "generation"));
        used += (size_t)snprintf(kinds + used, room - used, "%s ",
                                 json_string_value(json_object_get(record, "event")));
        before = number;
        json_decref(record);
        line += size + (line[size] == '\n');
    }
}

static const char well[] = "job_begun node_joined round_begun round_runs ended_well ";

/* ---- a program ------------------------------------------------------------------------------- */

Test(hooks, each_event_is_kept_in_the_log_folder_and_given_to_the_program_in_order)
{
    struct proc job;
    char kinds[1024];
    const char *hook =
        e2e_script("hook", "#!/bin/sh\n"
                           "test -e tried || { touch tried; echo not yet >&2; exit 3; }\n"
                           "cat >> given\n"
                           "echo \"$CTRUN_EVENT $CTRUN_EVENT_JOB $CTRUN_EVENT_LEVEL "
                           "$CTRUN_EVENT_GENERATION\" >> variables\n");

    cr_assert_eq(
        e2e_run(&job, "--rdzv_id=told", "--log_dir=logs", "--on_event", hook, "/bin/true", NULL), 0,
        "%s", ct_buf_str(&job.text));
    e2e_said(&job, "it is tried again: it exited with status 3: not yet");
    e2e_not_said(&job, "given up");
    read_kinds(e2e_read("given"), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, well);
    read_kinds(e2e_read(e2e_glob("logs/told_*/events.jsonl")), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, well);
    cr_assert(ct_starts_with(e2e_read("variables"), "job_begun told note 0\n"), "%s",
              e2e_read("variables"));
    proc_free(&job);
}

Test(hooks, a_failed_and_restarted_job_tells_so_to_a_hook_that_wants_only_that)
{
    struct proc job;
    char kinds[1024];
    const char *hook = e2e_script("hook", "#!/bin/sh\ncat >> given\n");
    const char *fails = e2e_script("fails", "#!/bin/sh\nexit 7\n");

    cr_assert_eq(e2e_run(&job, "--max_restarts=1", "--on_event", hook,
                         "--on_event_kinds=worker_failed,ended_badly", fails, NULL),
                 7, "%s", ct_buf_str(&job.text));
    read_kinds(e2e_read("given"), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, "worker_failed worker_failed ended_badly ");
    proc_free(&job);
}

Test(hooks, a_program_that_hangs_is_ended_and_keeps_neither_the_job_nor_its_end_waiting)
{
    struct proc job;
    const char *hook = e2e_script("hook", "#!/bin/sh\necho $$ >> pids\nexec sleep 600\n");

    double began = proc_now_s();
    cr_assert_eq(e2e_run(&job, "--on_event", hook, "--on_event_timeout=300ms", "/bin/true", NULL),
                 0, "%s", ct_buf_str(&job.text));
    cr_assert_lt(proc_now_s() - began, 10);
    e2e_said(&job, "not taken by");
    for (const char *at = e2e_read("pids"); *at != '\0'; at += strcspn(at, "\n") + 1)
        e2e_wait_gone((pid_t)atoi(at), 10);
    proc_free(&job);
}

Test(hooks, what_cannot_be_a_hook_is_said_before_anything_starts)
{
    struct proc job;

    cr_assert_eq(e2e_run(&job, "--on_event=./nowhere", "/bin/touch", "started", NULL), 66, "%s",
                 ct_buf_str(&job.text));
    e2e_said(&job, "on_event: the program ./nowhere does not exist");
    proc_free(&job);
    cr_assert_eq(e2e_run(&job, "--on_event=/bin/true", "--on_event_kinds=node_last", "/bin/touch",
                         "started", NULL),
                 2, "%s", ct_buf_str(&job.text));
    e2e_said(&job, "did you mean node_lost?");
    cr_assert_not(e2e_exists("started"));
    proc_free(&job);
}

/* ---- a server -------------------------------------------------------------------------------- */

/* Answers 503 twice, then takes what is posted. */
static const char server_script[] =
    "#!/usr/bin/python3\n"
    "import http.server, os\n"
    "tries = 0\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_POST(self):\n"
    "        global tries\n"
    "        tries += 1\n"
    "        body = self.rfile.read(int(self.headers['Content-Length']))\n"
    "        self.send_response(503 if tries <= 2 else 204)\n"
    "        self.end_headers()\n"
    "        if tries > 2 and self.headers['Content-Type'] == 'application/json':\n"
    "            with open('posted', 'ab') as posted:\n"
    "                posted.write(body + b'\\n')\n"
    "    def log_message(self, *rest):\n"
    "        pass\n"
    "server = http.server.HTTPServer(('127.0.0.1', 0), Handler)\n"
    "with open('port.new', 'w') as port:\n"
    "    port.write(str(server.server_port) + '\\n')\n"
    "os.rename('port.new', 'port')\n"
    "server.serve_forever()\n";

Test(hooks, events_are_posted_to_a_server_that_fails_at_first)
{
    struct proc job, server;
    char url[64], kinds[1024];
    const char *const argv[] = {e2e_script("server", server_script), NULL};

    if (access("/usr/bin/python3", X_OK) != 0 || access("/usr/bin/curl", X_OK) != 0)
        cr_skip_test("skipped: there is no Python or no curl (scripts/deps)");
    proc_start(&server, argv, NULL);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/secret", atoi(e2e_wait_file("port", 20)));
    cr_assert_eq(e2e_run(&job, "--on_event", url, "/bin/true", NULL), 0, "%s",
                 ct_buf_str(&job.text));
    read_kinds(e2e_read("posted"), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, well);
    e2e_said(&job, " did not take event 1 (job_begun)");
    e2e_said(&job, "The requested URL returned error: 503");
    e2e_not_said(&job, "given up");
    e2e_not_said(&job, "secret");
    cr_assert_eq(kill(server.pid, SIGKILL), 0);
    (void)proc_finish(&server, 10);
    proc_free(&server);
    proc_free(&job);
}

/* ---- several nodes, a daemon ----------------------------------------------------------------- */

Test(hooks, of_two_nodes_the_first_keeps_the_events_and_the_daemon_has_a_hook_of_its_own)
{
    struct proc daemon, nodes[2];
    char endpoint[64], kinds[1024];
    glob_t none;
    const char *port_file = e2e_in_folder("port");
    const char *hook = e2e_script("hook", "#!/bin/sh\ncat >> given\n");
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "127.0.0.1:0",
                                "--port_file",
                                port_file,
                                "--on_event",
                                hook,
                                "--on_event_kinds",
                                "node_joined,ended_well",
                                NULL};

    proc_start(&daemon, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], "--nnodes=2", i == 0 ? "--node_rank=0" : "--node_rank=1",
                  i == 0 ? "--log_dir=log0" : "--log_dir=log1", "--rdzv_endpoint", endpoint,
                  "/bin/true", NULL);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 20), 0, "%s", ct_buf_str(&nodes[i].text));
    read_kinds(e2e_read(e2e_glob("log0/none_*/events.jsonl")), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, "job_begun node_joined node_joined round_begun round_runs ended_well ");
    cr_assert_eq(glob(e2e_in_folder("log1/none_*/events.jsonl"), 0, NULL, &none), GLOB_NOMATCH);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 0, "%s", ct_buf_str(&daemon.text));
    read_kinds(e2e_read("given"), kinds, sizeof kinds);
    cr_assert_str_eq(kinds, "node_joined node_joined ended_well ");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    proc_free(&daemon);
}

/* ---- followed -------------------------------------------------------------------------------- */

Test(hooks, who_follows_a_job_sees_its_last_event_before_its_ctrun_is_gone)
{
    struct proc job, reader;
    const char *waits =
        e2e_script("waits", "#!/bin/sh\necho up\nwhile ! test -e go; do sleep 0.02; done\n");
    const char *const follow[] = {
        proc_program("ctrun"), "events", "--job", "followed", "--follow", "--json", NULL};

    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    e2e_start(&job, "--rdzv_id=followed", waits, NULL);
    (void)proc_wait_text(&job, "up\n", 10);
    proc_start(&reader, follow, NULL);
    (void)proc_wait_text(&reader, "round 1 runs with", 10);
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&job, 20), 0, "%s", ct_buf_str(&job.text));
    cr_assert_eq(proc_finish(&reader, 20), 0, "%s", ct_buf_str(&reader.text));
    e2e_said(&reader, "the job begins"); /* what was before it, and the very last */
    e2e_said(&reader, "the job ends with status 0");
    proc_free(&reader);
    proc_free(&job);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

Test(hooks, a_full_disk_ends_the_file_of_events_with_a_warning_and_the_job_goes_on)
{
    struct proc job;

    cr_assert_eq(mkdir("small", 0755), 0);
    if (mount("tmpfs", "small", "tmpfs", 0, "size=64k") != 0)
        cr_skip_test("skipped: mounting a small file system needs root");
    (void)system("dd if=/dev/zero of=small/filler bs=4k 2>/dev/null");
    int status = e2e_run(&job, "--log_dir=small", "/bin/true", NULL);
    cr_assert_eq(umount2("small", MNT_DETACH), 0);
    cr_assert_eq(status, 0, "%s", ct_buf_str(&job.text));
    e2e_said(&job, "/events.jsonl is given up, the job goes on: No space left on device");
    proc_free(&job);
}
