/* Quotas of a real ctrund: who has had his share is told so, and gets in when there is room. */
#include "e2e.h"

#include "base/error.h"
#include "cluster/job.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(strangers_quotas, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

/* With a share of 50 % of 4 jobs, though all are one user's; returns the endpoint. */
static const char *start(struct proc *daemon)
{
    static char endpoint[64];
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "127.0.0.1:0",
                                "--port_file",
                                port_file,
                                "--jobs",
                                "4",
                                "--config",
                                e2e_write("ctrund.yaml", "share: 50\n"),
                                NULL};

    proc_start(daemon, argv, NULL);
    int port = job_await_port(port_file, 10);
    cr_assert_neq(port, 0, "the daemon does not listen: %s", ct_buf_str(&daemon->text));
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    return endpoint;
}

static void end(struct proc *proc, int status)
{
    cr_assert_eq(proc_finish(proc, 20), status, "%s", ct_buf_str(&proc->text));
    proc_free(proc);
}

Test(strangers_quotas, a_job_beyond_its_users_share_waits_for_one_of_his_and_says_which_quota_it_is)
{
    struct proc daemon, jobs[2], third, late, asker;
    const char *endpoint = start(&daemon);
    const char *names[] = {"a", "b"};

    for (size_t i = 0; i < 2; i++) {
        e2e_start(&jobs[i], "--nnodes", "1", "--rdzv_id", names[i], "--rdzv_endpoint", endpoint,
                  "--no_python", "sh", "-c", "echo it runs; exec sleep 100", NULL);
        (void)proc_wait_text(&jobs[i], "it runs", 20);
    }
    int status = e2e_run(&third, "--nnodes", "1", "--rdzv_id", "c", "--rdzv_endpoint", endpoint,
                         "--join_timeout", "2s", "--no_python", "true", NULL);
    cr_assert_eq(status, ct_exit_status(CT_ELIMIT), "%d: %s", status, ct_buf_str(&third.text));
    e2e_said(&third, " has 2 jobs, its share while others may come: 2 of 4 (quota jobs, set by the "
                     "command line; share 50 %, set by ");
    e2e_said(&third, "ctrund.yaml): try again when one of them has ended");
    proc_free(&third);
    cr_assert_eq(e2e_run(&asker, "status", "--rdzv_endpoint", endpoint, "--rdzv_id", "a", NULL), 0);
    e2e_said(&asker, "jobs 2 of 4 (the command line), links 3 of ");
    e2e_said(&asker, "; refused ");
    proc_free(&asker);
    e2e_start(&late, "--nnodes", "1", "--rdzv_id", "d", "--rdzv_endpoint", endpoint, "--no_python",
              "true", NULL);
    (void)proc_wait_text(&late, "quota jobs", 20); /* while it waits */
    (void)kill(jobs[0].pid, SIGINT);
    end(&late, 0);
    end(&jobs[0], 130);
    (void)kill(jobs[1].pid, SIGINT);
    end(&jobs[1], 130);
    (void)kill(daemon.pid, SIGTERM);
    end(&daemon, 0);
}

Test(strangers_quotas, a_quota_that_is_none_is_refused_with_its_range)
{
    static const char *const rows[][3] = {
        {"--share", "0", "--share is a number from 1 to 100, not \"0\""},
        {"--share", "101", "--share is a number from 1 to 100, not \"101\""},
        {"--jobs", "many", "--jobs is a number from 1 to 1048576, not \"many\""},
        {"--store_bytes", "8 parsecs", "--store_bytes is a number from 1 to 1099511627776, not "},
        {"--links", "1000000000", "--links is a number from 1 to "},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct proc daemon;
        const char *const argv[] = {
            proc_program("ctrund"), "--listen", "127.0.0.1:0", rows[i][0], rows[i][1], NULL};
        cr_assert_eq(proc_run(&daemon, argv, NULL, 10), 2, "%s", ct_buf_str(&daemon.text));
        e2e_said(&daemon, rows[i][2]);
        proc_free(&daemon);
    }
}
