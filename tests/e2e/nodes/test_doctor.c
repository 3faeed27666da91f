/* `ctrun doctor` on this machine, and between hosts with one thing broken each. */
#include "cluster.h"
#include "cluster/job.h"
#include "e2e.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(doctor, .init = e2e_enter, .fini = leave, .timeout = 60);

/* Run it, expect the status and words; NULL for none. */
static void expect(int status, const char *words, const char *first, const char *second,
                   const char *third)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "doctor", first, second, third, NULL), status, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, words);
    proc_free(&run);
}

static void stop(struct proc *proc)
{
    cr_assert_eq(kill(proc->pid, SIGTERM), 0);
    (void)proc_finish(proc, 10);
    proc_free(proc);
}

Test(doctor, a_rendezvous_on_loopback_answers)
{
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    expect(0, "a rendezvous answers at port", endpoint, NULL, NULL);
    stop(&daemon);
}

Test(doctor, each_line_of_json_is_an_object_with_a_level)
{
    struct proc run;
    int count = 0;

    cr_assert_eq(e2e_run(&run, "doctor", "--json", NULL), 0, "%s", ct_buf_str(&run.text));
    for (const char *line = ct_buf_str(&run.text), *end; (end = strchr(line, '\n')) != NULL;
         line = end + 1, count++) {
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        const char *level = json_string_value(json_object_get(object, "level"));

        cr_assert(level != NULL && (strcmp(level, "ok") == 0 || strcmp(level, "warning") == 0));
        cr_assert_not_null(json_string_value(json_object_get(object, "check")));
        cr_assert(json_is_integer(json_object_get(object, "status")));
        json_decref(object);
    }
    cr_assert_geq(count, 10);
    proc_free(&run);
}

Test(doctor, what_is_wrong_here_has_its_remedy_and_the_status_of_a_job)
{
    struct proc run;
    const char *key = e2e_write("job.key", "0123456789abcdef0123456789abcdef");
    char few[512];

    cr_assert_eq(chmod(key, 0644), 0);
    expect(77, "chmod 600", "--key_file", key, NULL);
    (void)snprintf(few, sizeof few, "ulimit -n 40; exec %s doctor --nproc_per_node 4",
                   proc_program("ctrun"));
    const char *const argv[] = {"/bin/sh", "-c", few, NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 20), 71, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "40 open files are allowed");
    e2e_said(&run, "ulimit -n 1024");
    proc_free(&run);
    expect(2, "is no host", "unix:/tmp/x", NULL, NULL);
    expect(2, "nproc_per_node", "--nproc_per_node", "many", NULL);
}

Test(doctor, a_listener_that_says_nothing_takes_at_most_5_s)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char endpoint[32];

    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", ntohs(address.sin_port));
    expect(0, "nothing listens at port", endpoint, NULL, NULL); /* bound, but not listening */
    cr_assert_eq(listen(fd, 8), 0);
    double start = proc_now_s();
    expect(75, "accepts connections, but does not answer", endpoint, NULL, NULL);
    cr_assert_lt(proc_now_s() - start, 5.0);
    (void)close(fd);
}

/* On host 1, of what is on host 0. */
static void ask(int status, const char *words, const char *host, const char *key)
{
    struct proc run;
    const char *const argv[] = {
        proc_program("ctrun"), "doctor", host, key != NULL ? "--key_file" : NULL, key, NULL};

    cluster_start(&run, 1, argv);
    cr_assert_eq(proc_finish(&run, 20), status, "%s", ct_buf_str(&run.text));
    e2e_said(&run, words);
    proc_free(&run);
}

static const char *new_key(const char *name)
{
    struct proc run;
    const char *path = e2e_in_folder(name);

    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    return path;
}

Test(doctor, between_hosts_each_broken_thing_is_named)
{
    struct proc daemon;
    const char *const good = new_key("good"), *const wrong = new_key("wrong");
    const char *port_file = e2e_in_folder("port");

    cluster_up(2);
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "10.78.0.1:29400",
                                "--key_file",
                                good,
                                "--port_file",
                                port_file,
                                NULL};
    cluster_start(&daemon, 0, argv);
    cr_assert_eq(job_await_port(port_file, 20), 29400);
    cr_assert(hosts_hide(cluster_hosts(), 0, "10.79.0.1", HOSTS_BLACKHOLE));
    cr_assert(hosts_hide(cluster_hosts(), 0, "10.79.0.2", HOSTS_FIREWALL));
    ask(0, "the key is accepted", "10.78.0.1", good);
    ask(77, "the same key file", "10.78.0.1", wrong);
    ask(77, "--key_file FILE", "10.78.0.1", NULL);
    ask(0, "nothing listens at port 29401", "10.78.0.1:29401", good);
    ask(69, "there is no route to 10.79.0.1", "10.79.0.1", good);
    ask(75, "does not answer at port 29400 within 3 s", "10.79.0.2", good);
    stop(&daemon);
}
