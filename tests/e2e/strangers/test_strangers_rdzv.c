/* Strangers at the rendezvous: what somebody without the key can do to a job that runs. */
#include "base/assert.h"
#include "e2e.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(strangers_rdzv, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

enum { NODES = 2 };

struct scene {
    struct proc daemon;
    struct proc nodes[NODES];
    char key[512];
    char journal[512];
    char port_file[512];
    int port;
};

static void start_daemon(struct scene *s)
{
    char listen[32];
    const char *const argv[] = {
        proc_program("ctrund"), "--listen",   listen, "--key_file", s->key, "--journal", s->journal,
        "--port_file",          s->port_file, NULL};
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%d", s->port);
    (void)unlink(s->port_file);
    proc_start(&s->daemon, argv, NULL);
    s->port = atoi(e2e_wait_file(s->port_file, 10));
}

static void kill_daemon(struct scene *s)
{
    cr_assert_eq(kill(s->daemon.pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(&s->daemon, 10), 128 + SIGKILL);
    proc_free(&s->daemon);
}

/* Each worker writes its pid, and ends well once there is a file `go`. */
static void start_nodes(struct scene *s)
{
    char endpoint[32];
    const char *program = e2e_script("wait.sh", "#!/bin/sh\n"
                                                "echo $$ > pid.$TORCHELASTIC_RESTART_COUNT.$RANK\n"
                                                "while [ ! -e go ]; do sleep 0.05; done\n");
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", s->port);
    for (int i = 0; i < NODES; i++)
        e2e_start(&s->nodes[i], "--rdzv_endpoint", endpoint, "--nnodes", "2", "--max_restarts", "3",
                  "--lease", "1s", "--key_file", s->key, program, NULL);
    (void)e2e_wait_file("pid.0.0", 10);
    (void)e2e_wait_file("pid.0.1", 10);
}

static void make_key(const char *path)
{
    struct proc run;
    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void enter(struct scene *s)
{
    *s = (struct scene){.port = 0};
    (void)snprintf(s->key, sizeof s->key, "%s", e2e_in_folder("key"));
    (void)snprintf(s->journal, sizeof s->journal, "%s", e2e_in_folder("journal"));
    (void)snprintf(s->port_file, sizeof s->port_file, "%s", e2e_in_folder("port"));
    make_key(s->key);
    start_daemon(s);
    start_nodes(s);
}

/* The job ends well, with its first workers. */
static void end_well(struct scene *s)
{
    (void)e2e_write("go", "1");
    for (int i = 0; i < NODES; i++) {
        int status = proc_finish(&s->nodes[i], 20);
        cr_assert_eq(status, 0, "%s", ct_buf_str(&s->nodes[i].text));
        e2e_said(&s->nodes[i], "the rendezvous is back");
        cr_assert_eq(e2e_count(ct_buf_str(&s->nodes[i].text), "another key"), 1, "told once: %s",
                     ct_buf_str(&s->nodes[i].text));
        proc_free(&s->nodes[i]);
    }
    cr_assert_not(e2e_exists("pid.1.0"), "a worker was started again");
    cr_assert_eq(kill(s->daemon.pid, SIGTERM), 0);
    (void)proc_finish(&s->daemon, 10);
    proc_free(&s->daemon);
}

/* Take the daemon's port and answer `times` callers with a TLS alert, which proves nothing. */
static void answer_as_stranger(int port, int times)
{
    static const unsigned char alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28};
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1;
    int at = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(at, 0);
    cr_assert_eq(setsockopt(at, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    cr_assert_eq(bind(at, (const struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(at, 16), 0);
    for (int i = 0; i < times; i++) {
        struct pollfd ready = {.fd = at, .events = POLLIN};
        char heard[4096];
        cr_assert_eq(poll(&ready, 1, 15000), 1, "nobody called for the %d. time", i + 1);
        int caller = accept(at, NULL, NULL);
        cr_assert_geq(caller, 0);
        (void)recv(caller, heard, sizeof heard, 0);
        (void)send(caller, alert, sizeof alert, MSG_NOSIGNAL);
        while (recv(caller, heard, sizeof heard, 0) > 0) { /* until he hangs up */
        }
        (void)close(caller);
    }
    (void)close(at);
}

Test(strangers_rdzv, seven_bytes_in_the_daemons_place_end_no_job)
{
    struct scene s;
    enter(&s);
    kill_daemon(&s);
    answer_as_stranger(s.port, 6);
    start_daemon(&s);
    for (int i = 0; i < NODES; i++)
        (void)proc_wait_text(&s.nodes[i], "the rendezvous is back", 20);
    end_well(&s);
}

Test(strangers_rdzv, a_daemon_that_starts_with_another_key_file_ends_no_job)
{
    struct scene s;
    char right[512];
    enter(&s);
    (void)snprintf(right, sizeof right, "%s", s.key);
    (void)snprintf(s.key, sizeof s.key, "%s", e2e_in_folder("other"));
    make_key(s.key);
    kill_daemon(&s);
    start_daemon(&s);
    for (int i = 0; i < NODES; i++)
        (void)proc_wait_text(&s.nodes[i], "another key", 20);
    kill_daemon(&s);
    (void)snprintf(s.key, sizeof s.key, "%s", right);
    start_daemon(&s);
    for (int i = 0; i < NODES; i++)
        (void)proc_wait_text(&s.nodes[i], "the rendezvous is back", 20);
    end_well(&s);
}
