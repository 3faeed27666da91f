/* Orders that are given on the page of a real rendezvous, over HTTP, by who has its key. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(page_orders, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

static void new_key(const char *name, char path[PATH_MAX])
{
    struct proc run;

    (void)snprintf(path, PATH_MAX, "%s", e2e_in_folder(name));
    cr_assert_eq(e2e_run(&run, "key", "new", path, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* A job of one node that hosts its rendezvous, as most people start it, and the page's address. */
static void start_job(struct proc *job, const char *key, char url[128])
{
    char address[101];

    e2e_start(job, "--nnodes=1:2", "--rdzv_id=night", "--rdzv_endpoint=127.0.0.1:0",
              "--node_rank=0", "--status=127.0.0.1:0", key != NULL ? "--key_file" : "--no_python",
              key != NULL ? key : "--nproc_per_node=1",
              e2e_script("nap", "#!/bin/sh\nexec sleep 600\n"), NULL);
    const char *at = proc_wait_text(job, "the status page is at ", 20);
    cr_assert_eq(sscanf(at, "the status page is at %100[0-9.:]", address), 1, "%s", at);
    (void)snprintf(url, 128, "http://%s", address);
    (void)proc_wait_text(job, "joined the job at ", 20);
}

static void end_job(struct proc *job)
{
    cr_assert_eq(kill(job->pid, SIGTERM), 0);
    (void)proc_finish(job, 30);
    proc_free(job);
}

/* Give an order; `said` is how the answer begins, with its status, and `more` is in it. */
static void order(const char *url, const char *key, const char *verb, const char *host,
                  const char *times, const char *said, const char *more)
{
    struct proc run;
    const char *const argv[] = {"/usr/bin/python3",
                                e2e_in_root("tests/e2e/nodes/page_order.py"),
                                url,
                                key,
                                verb,
                                "night",
                                host,
                                "ada",
                                "its fan",
                                times,
                                NULL};

    cr_assert_eq(proc_run(&run, argv, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    cr_assert(strncmp(ct_buf_str(&run.text), said, strlen(said)) == 0, "%s", ct_buf_str(&run.text));
    cr_assert_not_null(strstr(ct_buf_str(&run.text), more), "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void expect_status(const char *words, bool is_there)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "status", "--job", "night", NULL), 0, "%s", ct_buf_str(&run.text));
    cr_assert_eq(strstr(ct_buf_str(&run.text), words) != NULL, is_there, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
}

Test(page_orders, who_has_the_key_orders_on_the_page_of_a_hosting_ctrun)
{
    struct proc job;
    char key[PATH_MAX], other[PATH_MAX], url[128], host[256];

    new_key("key", key);
    new_key("other", other);
    start_job(&job, key, url);
    order(url, other, "cordon", "node7", "1", "403", "is none of this rendezvous");
    expect_status("cordoned", false);
    order(url, key, "cordon", "node7", "2", "200 done\n403", "this order was given before");
    expect_status("cordoned   node7: by ada (on the page): its fan", true);
    order(url, key, "uncordon", "node8", "1", "409", "host node8 is not cordoned in job night");
    order(url, key, "uncordon", "node7", "1", "200 done", "");
    cr_assert_eq(gethostname(host, sizeof host), 0);
    order(url, key, "drain", host, "1", "409", "would have 0 nodes of at least 1");
    order(url, key, "reboot", host, "1", "400", "no order of this version's page");
    end_job(&job);
}

Test(page_orders, without_a_key_the_page_takes_none)
{
    struct proc job;
    char key[PATH_MAX], url[128];

    new_key("key", key);
    start_job(&job, NULL, url);
    order(url, key, "cordon", "node7", "1", "405", "");
    expect_status("cordoned", false);
    end_job(&job);
}
