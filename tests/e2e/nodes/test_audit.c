/* The audit log of a real ctrund: orders and refusals, from the wire and from the page. */
#include "e2e.h"

#include "base/assert.h"
#include "base/log/log_limit.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(audit, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static char key[PATH_MAX], other[PATH_MAX], endpoint[64], page[128];
static struct proc daemon_, job;

static void new_key(const char *name, char path[PATH_MAX])
{
    struct proc run;

    (void)snprintf(path, PATH_MAX, "%s", e2e_in_folder(name));
    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* A daemon with a key, an audit log at `path` and a page, and a job of one node at it. */
static void start(const char *path)
{
    const char *port_file = e2e_in_folder("port");
    char address[101];

    new_key("key", key);
    new_key("other", other);
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "127.0.0.1:0",
                                "--port_file",
                                port_file,
                                "--key_file",
                                key,
                                "--status",
                                "127.0.0.1:0",
                                "--audit",
                                path,
                                NULL};
    proc_start(&daemon_, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
    const char *at = proc_wait_text(&daemon_, "answers HTTP on ", 10);
    cr_assert_eq(sscanf(at, "answers HTTP on %100[0-9.:]", address), 1);
    (void)snprintf(page, sizeof page, "http://%s", address);
    e2e_start(&job, "--nnodes=1:2", "--node_rank=0", "--rdzv_id=night", "--rdzv_endpoint", endpoint,
              "--key_file", key, e2e_script("nap", "#!/bin/sh\nexec sleep 600\n"), NULL);
    (void)proc_wait_text(&job, "joined the job at ", 20);
}

static void end(void)
{
    cr_assert_eq(kill(job.pid, SIGTERM), 0);
    (void)proc_finish(&job, 20);
    cr_assert_eq(kill(daemon_.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon_, 20), 0, "%s", ct_buf_str(&daemon_.text));
    proc_free(&job);
    proc_free(&daemon_);
}

static int order(const char *verb, const char *with, const char *host, const char *reason)
{
    struct proc run;
    int status = e2e_run(&run, verb, "--rdzv_endpoint", endpoint, "--rdzv_id=night", "--key_file",
                         with, host, reason, NULL);

    proc_free(&run);
    return status;
}

/* So many times. */
static void order_on_page(const char *with, const char *times)
{
    struct proc run;
    const char *const argv[] = {"/usr/bin/python3",
                                e2e_in_root("tests/e2e/nodes/page_order.py"),
                                page,
                                with,
                                "uncordon",
                                "night",
                                "node7",
                                "bob",
                                "well again",
                                times,
                                NULL};

    cr_assert_eq(proc_run(&run, argv, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* The record of line `number` of the log, once it is there; its deed and verdict are these. */
static json_t *record(const char *name, size_t number, const char *deed, const char *verdict)
{
    double until = proc_now_s() + 10;
    json_t *found = NULL;

    while (found == NULL && proc_now_s() < until) {
        const char *line = e2e_read(e2e_in_folder(name));
        for (size_t i = 0; line != NULL && i < number; i++)
            line = (line = strchr(line, '\n')) != NULL ? line + 1 : NULL;
        if (line != NULL && strchr(line, '\n') != NULL)
            found = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    }
    cr_assert_not_null(found, "no record %zu in %s", number, e2e_read(e2e_in_folder(name)));
    cr_assert_str_eq(json_string_value(json_object_get(found, "kind")), "audit");
    cr_assert_str_eq(json_string_value(json_object_get(found, "deed")), deed);
    cr_assert_str_eq(json_string_value(json_object_get(found, "verdict")), verdict);
    return found;
}

static const char *field(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));

    cr_assert_not_null(text, "no field %s", name);
    return text;
}

Test(audit, who_ordered_what_and_who_was_refused_is_there_and_no_name_can_forge_a_record)
{
    struct stat log;
    json_t *is;

    start(e2e_in_folder("audit"));
    cr_assert_eq(order("cordon", key, "node7", "--reason=x\",\"verdict\":\"done\",\"uid\":0}"), 0);
    is = record("audit", 0, "cordon", "done");
    cr_assert_str_eq(field(is, "job"), "night");
    cr_assert_str_eq(field(is, "host"), "node7");
    cr_assert_str_eq(field(is, "role"), "operator");
    cr_assert_str_eq(field(is, "reason"), "x\",\"verdict\":\"done\",\"uid\":0}");
    cr_assert_not_null(strchr(field(is, "author"), '@'));
    cr_assert(strncmp(field(is, "peer"), "127.0.0.1:", 10) == 0);
    cr_assert_eq(strlen(field(is, "key")), 16, "the key's tag");
    cr_assert_eq(json_integer_value(json_object_get(is, "uid")), (json_int_t)geteuid());
    json_decref(is);

    cr_assert_neq(order("uncordon", key, "node8", "--reason=b"), 0);
    cr_assert_eq(order("cordon", other, "node7", "--reason=b"), 77);
    order_on_page(other, "1");
    order_on_page(key, "1");
    end();
    is = record("audit", 1, "uncordon", "refused");
    cr_assert_str_eq(field(is, "text"), "host node8 is not cordoned in job night");
    json_decref(is);
    is = record("audit", 2, "connect", "refused");
    cr_assert_not_null(strstr(field(is, "text"), "the peer has another key"));
    json_decref(is);
    is = record("audit", 3, "order", "refused");
    cr_assert_str_eq(field(is, "role"), "page");
    cr_assert(strncmp(field(is, "peer"), "127.0.0.1:", 10) == 0);
    json_decref(is);
    is = record("audit", 4, "uncordon", "done");
    cr_assert_str_eq(field(is, "author"), "bob (on the page)");
    json_decref(is);
    cr_assert_eq(stat(e2e_in_folder("audit"), &log), 0);
    cr_assert_eq(log.st_mode & 0777, 0600);
}

Test(audit, a_stranger_with_many_connections_fills_no_log_as_one_with_one)
{
    start(e2e_in_folder("audit"));
    order_on_page(other, "40"); /* each from a port of its own */
    cr_assert_eq(order("cordon", key, "node7", "--reason=a"), 0);
    end();
    json_decref(record("audit", CT_LOG_PER_REASON - 1, "order", "refused"));
    json_decref(record("audit", CT_LOG_PER_REASON, "cordon", "done"));
}

Test(audit, the_file_is_opened_again_at_sighup_and_a_full_disk_stops_nothing)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s", e2e_in_folder("audit"));
    start(path);
    cr_assert_eq(order("cordon", key, "node7", "--reason=a"), 0);
    json_decref(record("audit", 0, "cordon", "done"));
    cr_assert_eq(rename(path, e2e_in_folder("audit.1")), 0);
    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    (void)proc_wait_text(&daemon_, "SIGHUP: new links need the key", 10);
    cr_assert_eq(order("uncordon", key, "node7", "--reason=b"), 0);
    json_decref(record("audit", 0, "uncordon", "done"));

    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    (void)proc_wait_text(&daemon_, "SIGHUP: the file of before is kept: cannot open the audit log",
                         10);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(symlink("/dev/full", path), 0); /* it is not followed */
    cr_assert_eq(order("cordon", key, "node7", "--reason=b"), 0);
    end();
}

Test(audit, a_disk_that_is_full_from_the_start_stops_nothing)
{
    start("/dev/full");
    for (int i = 0; i < 3; i++)
        cr_assert_eq(order("cordon", key, "node7", "--reason=a"), 0);
    end();
}
