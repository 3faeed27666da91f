/* What operators get wrong when several nodes are to meet: each mistake has its sentence and its
 * exit status, and disturbs nobody else. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(operators, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static const char *show_script(void)
{
    return e2e_script("show",
                      "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE on node $GROUP_RANK\"\n");
}

static const char *nap_script(void)
{
    return e2e_script("nap", "#!/bin/sh\nexec sleep 600\n");
}

static void stop_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

/* ---- who is missing, who is too many --------------------------------------------------------- */

Test(operators, a_join_that_nobody_completes_names_who_is_missing)
{
    struct proc daemon;
    struct proc node;
    const char *endpoint = e2e_daemon(&daemon);

    cr_assert_eq(e2e_run(&node, "--nnodes=3", "--rdzv_endpoint", endpoint, "--node_rank=1",
                         "--join_timeout=1500ms", "/bin/true", NULL),
                 75);
    e2e_said(&node, "1 of 3");
    cr_assert(strstr(ct_buf_str(&node.text), "0 and 2") != NULL ||
                  strstr(ct_buf_str(&node.text), "0, 2") != NULL,
              "who is missing:\n%s", ct_buf_str(&node.text));
    proc_free(&node);
    stop_daemon(&daemon);
}

static bool one_has_ended(void *context)
{
    struct proc **both = context;

    return !proc_alive(both[0]->pid) || !proc_alive(both[1]->pid);
}

Test(operators, two_nodes_with_one_rank_are_refused)
{
    struct proc daemon;
    struct proc first;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *nap = nap_script();

    e2e_start(&first, "--nnodes=2:3", "--rdzv_endpoint", endpoint, "--node_rank=1", nap, NULL);
    e2e_start(&second, "--nnodes=2:3", "--rdzv_endpoint", endpoint, "--node_rank=1", nap, NULL);
    struct proc *both[] = {&first, &second};
    proc_until(one_has_ended, both, 10, "the refusal of a second rank 1");
    struct proc *refused = proc_alive(first.pid) ? &second : &first;
    cr_assert_eq(proc_finish(refused, 5), 2, "%s", ct_buf_str(&refused->text));
    e2e_said(refused, "rank 1");
    proc_free(&first);
    proc_free(&second);
    stop_daemon(&daemon);
}

/* ---- the wrong job --------------------------------------------------------------------------- */

Test(operators, jobs_of_different_names_do_not_meet)
{
    struct proc daemon;
    struct proc a;
    struct proc b;
    const char *endpoint = e2e_daemon(&daemon);
    const char *show = show_script();

    e2e_start(&a, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=a", show, NULL);
    e2e_start(&b, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=b", show, NULL);
    cr_assert_eq(proc_finish(&a, 20), 0, "%s", ct_buf_str(&a.text));
    cr_assert_eq(proc_finish(&b, 20), 0, "%s", ct_buf_str(&b.text));
    e2e_said(&a, "rank 0 of 1");
    e2e_said(&b, "rank 0 of 1");
    proc_free(&a);
    proc_free(&b);
    stop_daemon(&daemon);
}

Test(operators, a_node_that_names_another_job_than_its_host_serves_is_told_both_names)
{
    struct proc host, stranger;
    char endpoint[64];
    int port = e2e_free_port();

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    e2e_start(&host, "--nnodes=2", "--node_rank=0", "--rdzv_endpoint", endpoint, "--rdzv_id=right",
              nap_script(), NULL);
    (void)proc_wait_text(&host, "waiting for 1 more node (1 of 2", 10);
    cr_assert_eq(e2e_run(&stranger, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
                         "--rdzv_id=wrong", "/bin/true", NULL),
                 2, "%s", ct_buf_str(&stranger.text));
    e2e_said(&stranger, "serves job right alone");
    e2e_said(&stranger, "asks for job wrong");
    cr_assert(proc_alive(host.pid), "the host still waits for its own second node");
    proc_free(&stranger);
    proc_free(&host);
}

Test(operators, nodes_with_different_configurations_are_told_so)
{
    struct proc daemon;
    struct proc a;
    struct proc b;
    const char *endpoint = e2e_daemon(&daemon);
    const char *config = e2e_in_root("configs/digits_mlp.yaml");

    e2e_start(&a, "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank=0", "--seed=1",
              "--join_timeout=3s", config, NULL);
    e2e_start(&b, "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank=1", "--seed=2",
              "--join_timeout=3s", config, NULL);
    struct proc *both[] = {&a, &b};
    proc_until(one_has_ended, both, 10, "the refusal of another configuration");
    struct proc *refused = proc_alive(a.pid) ? &b : &a;
    cr_assert_eq(proc_finish(refused, 5), 2, "%s", ct_buf_str(&refused->text));
    e2e_said(refused, "--seed ");
    proc_free(&a);
    proc_free(&b);
    stop_daemon(&daemon);
}

/* ---- the node that hosts the rendezvous leaves ---------------------------------------------- */

static void start_elastic(struct proc *node, int port)
{
    char endpoint[32], folder[32];
    static int count;

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    (void)snprintf(folder, sizeof folder, "log%d", count++);
    e2e_start(node, "--nproc_per_node=1", "--rdzv_endpoint", endpoint, "--grow=100ms",
              "--checkpoint.dir=kept", "--log.dir", folder, "--grace=30s",
              e2e_in_root("configs/elastic.yaml"), NULL);
}

/* Two nodes train; the first hosts the rendezvous unless a daemon does. */
static void start_two(struct proc *host, struct proc *other, int port)
{
    start_elastic(host, port);
    (void)proc_wait_text(host, "step 1/", 10);
    start_elastic(other, port);
    (void)proc_wait_text(host, "2 nodes, 2 ranks", 20);
}

/* Its grace is 30 s: what waits for a boundary in vain takes as long. */
static void end_quickly(struct proc *node)
{
    double since = proc_now_s();

    cr_assert_eq(kill(node->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(node, 25), 128 + SIGTERM, "%s", ct_buf_str(&node->text));
    cr_assert_lt(proc_now_s() - since, 15, "%s", ct_buf_str(&node->text));
}

Test(operators, a_host_of_the_rendezvous_that_leaves_hands_it_over_and_a_newcomer_finds_the_job)
{
    struct proc host, other, newcomer, order;
    char endpoint[32];
    int port = e2e_free_port();

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    start_two(&host, &other, port);
    end_quickly(&host);
    e2e_said(&host, "this node left, the job continues");
    (void)proc_wait_text(&other, "1 node, 1 ranks", 10);
    start_elastic(&newcomer, port);
    (void)proc_wait_text(&other, "2 nodes, 2 ranks", 20);
    cr_assert_eq(e2e_run(&order, "status", "--rdzv_endpoint", endpoint, NULL), 0, "%s",
                 ct_buf_str(&order.text));
    e2e_said(&order, "elastic");
    end_quickly(&newcomer);
    end_quickly(&other);
    proc_free(&order);
    proc_free(&newcomer);
    proc_free(&other);
    proc_free(&host);
}

Test(operators, a_node_whose_rendezvous_is_gone_does_not_wait_for_a_boundary_when_it_is_stopped)
{
    struct proc daemon, a, b;
    const char *endpoint = e2e_daemon(&daemon);
    int port = atoi(strrchr(endpoint, ':') + 1);

    start_two(&a, &b, port);
    cr_assert_eq(kill(daemon.pid, SIGKILL), 0);
    (void)proc_finish(&daemon, 10);
    (void)proc_wait_text(&b, "is gone, the workers go on meanwhile", 10);
    end_quickly(&b);
    proc_free(&daemon);
    proc_free(&a);
    proc_free(&b);
}

/* ---- sockets of the dead -------------------------------------------------------------------- */

/* A socket that nobody listens on, named after a process that lives: number 1. */
static const char *dead_socket(const char *folder)
{
    static struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof address.sun_path, "%.80s/1.407ff98e.sock", folder);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(utimensat(AT_FDCWD, address.sun_path, old, 0), 0);
    (void)close(fd);
    return address.sun_path;
}

Test(operators, a_socket_of_a_dead_ctrun_is_no_job_and_is_removed)
{
    struct proc job, order;
    char folder[128];

    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    (void)snprintf(folder, sizeof folder, "%s/ctrun-%u", e2e_in_folder(""), (unsigned)geteuid());
    e2e_start(&job, "--nproc_per_node=1", e2e_script("up", "#!/bin/sh\necho up\nexec sleep 600\n"),
              NULL);
    (void)proc_wait_text(&job, "up\n", 10);
    const char *dead = dead_socket(folder);
    cr_assert_neq(e2e_run(&order, "drain", "nobody.example", NULL), 0);
    e2e_not_said(&order, dead); /* among several jobs */
    cr_assert_not(e2e_exists(dead));
    cr_assert_eq(kill(job.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&job, 10), 128 + SIGTERM, "%s", ct_buf_str(&job.text));
    proc_free(&order);
    proc_free(&job);
}

/* One stopped launcher takes 3 s: so do three, and what the live ones say is printed. */
Test(operators, stopped_launchers_do_not_hold_up_the_status_of_the_others)
{
    enum { JOBS = 5, STOPPED = 3 };
    struct proc jobs[JOBS], order;
    const char *up = e2e_script("up", "#!/bin/sh\necho up\nexec sleep 600\n");
    char line[100];

    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(line, sizeof line, "--rdzv_id=job%d", i);
        e2e_start(&jobs[i], "--nproc_per_node=1", line, up, NULL);
    }
    for (int i = 0; i < JOBS; i++)
        (void)proc_wait_text(&jobs[i], "up\n", 20);
    for (int i = 0; i < STOPPED; i++)
        cr_assert_eq(kill(jobs[i].pid, SIGSTOP), 0);
    double began = proc_now_s();
    cr_assert_eq(e2e_run(&order, "status", NULL), 0, "%s", ct_buf_str(&order.text));
    double took = proc_now_s() - began;
    cr_assert_lt(took, 5.5, "%.1f s for %d stopped launchers", took, STOPPED);
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(line, sizeof line, "job job%d", i);
        if (i >= STOPPED)
            e2e_said(&order, line);
        (void)snprintf(line, sizeof line,
                       "no answer within 3 s: its ctrun (pid %d) is stopped or busy\n",
                       (int)jobs[i].pid);
        cr_assert_eq(e2e_count(ct_buf_str(&order.text), line), i < STOPPED, "%s",
                     ct_buf_str(&order.text));
    }
    proc_free(&order);
    for (int i = 0; i < JOBS; i++) {
        cr_assert_eq(kill(jobs[i].pid, SIGCONT), 0);
        cr_assert_eq(kill(jobs[i].pid, SIGTERM), 0);
        cr_assert_eq(proc_finish(&jobs[i], 20), 128 + SIGTERM, "%s", ct_buf_str(&jobs[i].text));
        proc_free(&jobs[i]);
    }
}

/* What a look whether somebody listens there does. */
static void look_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0, "%s", path);
    (void)close(fd);
}

Test(operators, who_looks_at_a_jobs_socket_and_goes_again_is_no_warning_on_its_screen)
{
    struct proc job, order;
    char sockets[128];
    glob_t found;

    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    e2e_start(&job, "--nproc_per_node=1", e2e_script("up", "#!/bin/sh\necho up\nexec sleep 600\n"),
              NULL);
    (void)proc_wait_text(&job, "up\n", 10);
    (void)snprintf(sockets, sizeof sockets, "%s/ctrun-%u/*.sock", e2e_in_folder(""),
                   (unsigned)geteuid());
    cr_assert_eq(glob(sockets, 0, NULL, &found), 0, "%s", sockets);
    look_at(found.gl_pathv[0]);
    globfree(&found);
    cr_assert_eq(e2e_run(&order, "status", NULL), 0, "%s", ct_buf_str(&order.text)); /* after it */
    cr_assert_eq(kill(job.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&job, 10), 128 + SIGTERM, "%s", ct_buf_str(&job.text));
    e2e_not_said(&job, "warning");
    proc_free(&order);
    proc_free(&job);
}

/* ---- the wrong place ------------------------------------------------------------------------- */

Test(operators, a_rendezvous_nobody_answers_is_named_with_its_address)
{
    struct proc node;
    char endpoint[64];
    int port,
        probe = e2e_loopback_socket(&port); /* bound and not listening: ours, and it refuses */

    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    int status = e2e_run(&node, "--nnodes=2", "--node_rank=1", "--rdzv_endpoint", endpoint,
                         "--join_timeout=1200ms", "/bin/true", NULL);
    cr_assert(status == 69 || status == 75, "status %d", status);
    e2e_said(&node, endpoint);
    e2e_said(&node, "refused");
    proc_free(&node);
    (void)close(probe);
}

Test(operators, a_port_in_use_is_named)
{
    struct proc daemon;
    struct proc second;
    const char *endpoint = e2e_daemon(&daemon);
    const char *const argv[] = {proc_program("ctrund"), "--listen", endpoint, NULL};

    cr_assert_eq(proc_run(&second, argv, NULL, 10), 76, "%s", ct_buf_str(&second.text));
    e2e_said(&second, endpoint);
    e2e_said(&second, "in use");
    proc_free(&second);
    stop_daemon(&daemon);
}

Test(operators, a_second_daemon_with_the_same_journal_ends_with_76)
{
    struct proc first, second;
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {proc_program("ctrund"),   "--listen",    "127.0.0.1:0", "--journal",
                                e2e_in_folder("journal"), "--port_file", port_file,     NULL};

    proc_start(&first, argv, NULL);
    (void)e2e_wait_file(port_file, 10);
    cr_assert_eq(proc_run(&second, argv, NULL, 10), 76, "%s", ct_buf_str(&second.text));
    e2e_said(&second, "another ctrund works with the journal in");
    proc_free(&second);
    stop_daemon(&first);
}

/* ---- what a prober sees ---------------------------------------------------------------------- */

static void expect_page(const char *path, const char *code, const char *body)
{
    char text[65536];
    double until = proc_now_s() + 20; /* it may be busy for half a second */

    do
        e2e_get("status", path, text, sizeof text);
    while (text[0] == '\0' && proc_now_s() < until);
    cr_assert(strncmp(text, "HTTP/1.1 ", 9) == 0 && strncmp(text + 9, code, 3) == 0, "%s: %s", path,
              text);
    cr_assert_not_null(strstr(text, "\r\n\r\n"));
    const char *got = strstr(text, "\r\n\r\n") + 4;
    if (body != NULL)
        cr_assert_str_eq(got, body, "%s: %s", path, text);
}

Test(operators, a_daemon_says_that_it_is_well_as_long_as_it_answers)
{
    static const char *const pages[] = {"/",        "/page.css",    "/page.js", "/status",
                                        "/metrics", "/status.json", "/healthz"};
    struct proc daemon;
    char status[PATH_MAX], text[4096];
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "127.0.0.1:0",
                                "--port_file",
                                port_file,
                                "--status",
                                status,
                                NULL};

    (void)snprintf(status, sizeof status, "unix:%s", e2e_in_folder("status"));
    proc_start(&daemon, argv, NULL);
    (void)e2e_wait_file(port_file, 10);
    cr_assert_not_null(proc_wait_text(&daemon, "answers HTTP on unix:/", 20));
    expect_page("/healthz", "200", "ok\n");
    expect_page("/status", "200", ""); /* no job is well, too */
    expect_page("/status.json", "200", "{\"jobs\":[]}");
    for (size_t i = 0; i < CT_COUNT(pages); i++)
        expect_page(pages[i], "200", NULL);
    e2e_get("status", "/health", text, sizeof text);
    cr_assert_not_null(strstr(text, " 404 "), "%s", text);
    cr_assert_not_null(strstr(text, "/status.json"), "it says what there is: %s", text);
    stop_daemon(&daemon);
}

/* Until the page has these words. */
static void wait_page(const char *path, const char *words)
{
    static char text[1 << 20];
    double until = proc_now_s() + 30;

    do
        e2e_get("status", path, text, sizeof text);
    while (strstr(text, words) == NULL && proc_now_s() < until);
    cr_assert_not_null(strstr(text, words), "no %s in %s", words, text);
}

/* What the page of a ctrun that hosts its rendezvous, /metrics and `ctrun events` say of a job
 * whose worker was killed. */
Test(operators, a_job_shows_what_happened_to_it_and_where_its_time_went)
{
    struct proc job, events;
    static char text[1 << 20];
    char status[PATH_MAX], log[PATH_MAX];
    double share = 0, value;
    pid_t workers[2];
    const char *const argv[] = {proc_program("ctrun"),
                                "--status",
                                status,
                                "--rdzv_id",
                                "seen",
                                "--nproc_per_node",
                                "2",
                                "--max_restarts",
                                "1",
                                "--train.epochs=4000",
                                "--eval.every=0",
                                log,
                                e2e_in_root("configs/digits_mlp.yaml"),
                                NULL};
    const char *const ask[] = {proc_program("ctrun"), "events", "--job", "seen", "--json", NULL};

    (void)snprintf(status, sizeof status, "unix:%s", e2e_in_folder("status"));
    (void)snprintf(log, sizeof log, "--log.dir=%s", e2e_in_folder("runs"));
    proc_start(&job, argv, NULL);
    cr_assert_not_null(proc_wait_text(&job, "the status page is at ", 20));
    wait_page("/metrics", "ctrun_running{job_id=\"seen\"} 1");
    wait_page("/metrics", "ctrun_checkpoint_bytes{job_id=\"seen\"} 58800"); /* of all its files */
    wait_page("/metrics", "ctrun_rank_memory_bytes{job_id=\"seen\",rank=\"1\"} ");
    cr_assert_eq(e2e_workers(&job, workers, 2), 2);
    cr_assert_eq(kill(workers[1], SIGKILL), 0);
    wait_page("/metrics", "ctrun_events_total{job_id=\"seen\",event=\"worker_failed\"} 1");
    wait_page("/metrics", "ctrun_generation{job_id=\"seen\"} 2");
    e2e_get("status", "/metrics", text, sizeof text);
    for (const char *at = text; (at = strstr(at, "ctrun_time_seconds_total{")) != NULL; at++)
        if (sscanf(at, "ctrun_time_seconds_total{%*[^}]} %lf", &value) == 1)
            share += value;
    cr_assert_gt(share, 0);
    e2e_get("status", "/", text, sizeof text);
    cr_assert_not_null(strstr(text, "<h2>seen</h2>"), "%s", text);
    cr_assert_eq(proc_run(&events, ask, NULL, 20), 0, "%s", ct_buf_str(&events.text));
    e2e_said(&events, " was ended by SIGKILL");
    proc_free(&events);
    cr_assert_eq(kill(job.pid, SIGTERM), 0);
    (void)proc_finish(&job, 30);
    proc_free(&job);
}
