/* Certificates of a site in place of keys, at a real ctrund and where a node hosts: who may do
 * what, what a date that is over ends and what not, and files that are renewed under running
 * jobs. */
#include "e2e.h"

#include "base/assert.h"
#include "site_ca.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { REFUSED = 77, MINUTE = 60, HOUR = 3600, DAY = 86400, WORDS = 24 };

static char folder[256], endpoint[64];
static struct proc daemon_;

static void enter(void)
{
    e2e_enter();
    (void)snprintf(folder, sizeof folder, "%s", e2e_in_folder("site"));
    cr_assert_eq(mkdir(folder, 0700), 0);
    site_ca_new(folder, "ca");
    site_ca_sign(folder, "ca", "daemon", "URI:ctrun://all/*", -HOUR, 30 * DAY);
}

TestSuite(certificates, .init = enter, .fini = e2e_leave, .timeout = 120);

/* ---- programs with a certificate ---- */

static void sign(const char *name, const char *names)
{
    site_ca_sign(folder, "ca", name, names, -HOUR, 30 * DAY);
}

/* The three options of a certificate, behind `count` words. */
static size_t add_files(const char **words, size_t count, const char *name)
{
    static char paths[16][3][PATH_MAX];
    static unsigned next;
    char(*path)[PATH_MAX] = paths[next++ % CT_COUNT(paths)];

    (void)snprintf(path[0], PATH_MAX, "--tls_cert=%s/%s.pem", folder, name);
    (void)snprintf(path[1], PATH_MAX, "--tls_key=%s/%s.key", folder, name);
    (void)snprintf(path[2], PATH_MAX, "--tls_ca=%s/ca.pem", folder);
    for (int i = 0; i < 3; i++)
        words[count++] = path[i];
    return count;
}

/* `ctrun VERB --tls_... WORDS` as the holder of a certificate; VERB may be NULL. */
static void start_as(struct proc *proc, const char *who, const char *verb, const char *const *more)
{
    const char *words[WORDS] = {proc_program("ctrun")};
    size_t count = 1;

    if (verb != NULL)
        words[count++] = verb;
    count = add_files(words, count, who);
    for (; *more != NULL && count < WORDS - 1; more++)
        words[count++] = *more;
    words[count] = NULL;
    proc_start(proc, words, NULL);
}

static int run_as(struct proc *proc, const char *who, const char *verb, const char *const *more)
{
    start_as(proc, who, verb, more);
    return proc_finish(proc, 30);
}

static void start_daemon_at(int port, const char *more, const char *value)
{
    const char *port_file = e2e_in_folder("port");
    char listen[64];
    const char *words[WORDS] = {proc_program("ctrund"), "--listen", listen, "--port_file",
                                port_file};

    (void)unlink(port_file);
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%d", port);
    size_t count = add_files(words, 5, "daemon");
    words[count++] = "--audit";
    words[count++] = e2e_in_folder("audit");
    words[count++] = more;
    words[count++] = value;
    words[count] = NULL;
    proc_start(&daemon_, words, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
}

static void end(struct proc *proc)
{
    cr_assert_eq(kill(proc->pid, SIGTERM), 0);
    (void)proc_finish(proc, 20);
    proc_free(proc);
}

static void end_daemon(void)
{
    cr_assert_eq(kill(daemon_.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon_, 20), 0, "%s", ct_buf_str(&daemon_.text));
    proc_free(&daemon_);
}

/* A job of one node that goes on until the file "over" is there. */
static void start_job(struct proc *job, const char *id, const char *who)
{
    const char *script = e2e_in_folder("until");

    if (!e2e_exists(script)) /* else another job reads it */
        script = e2e_script("until", "#!/bin/sh\nwhile [ ! -e \"$1\" ]; do sleep 0.05; done\n");
    const char *const words[] = {
        "--nnodes=1:2",     "--node_rank=0", "--rdzv_endpoint",     endpoint, "--rdzv_id", id,
        "--last_call=10ms", script,          e2e_in_folder("over"), NULL};

    start_as(job, who, NULL, words);
    (void)proc_wait_text(job, "joined the job at ", 20);
}

static void finish_job(struct proc *job)
{
    cr_assert_eq(proc_finish(job, 30), 0, "%s", ct_buf_str(&job->text));
    proc_free(job);
}

/* ---- who may do what ---- */

enum deed { JOIN, LOOK, ORDER, DEEDS };

static bool is_done(const char *who, enum deed deed, const char *job)
{
    static unsigned number;
    char id[32];
    struct proc run;

    (void)snprintf(id, sizeof id, "%s-x%u", job, number++);
    const char *const join[] = {"--nnodes=1", "--rdzv_endpoint", endpoint,    "--rdzv_id",
                                id,           "--no-python",     "/bin/true", NULL};
    const char *const look[] = {"--rdzv_endpoint", endpoint, "--rdzv_id", job, NULL};
    const char *const order[] = {"node7", "--reason=x", "--rdzv_endpoint", endpoint, "--rdzv_id",
                                 job,     NULL};
    const char *const *const words[DEEDS] = {join, look, order};
    const char *const verbs[DEEDS] = {NULL, "status", "cordon"};
    int code = run_as(&run, who, verbs[deed], words[deed]);

    cr_assert(code == 0 || code == REFUSED, "%s %s %d: %d %s", who, job, deed, code,
              ct_buf_str(&run.text));
    proc_free(&run);
    return code == 0;
}

Test(certificates, each_does_what_its_uris_say_cell_by_cell)
{
    static const struct {
        const char *who, *names;
        const char *may; /* join ada's, bob's; look at ada's, bob's; order in ada's, bob's */
    } rows[] = {
        {"site", "URI:ctrun://all/*", "111111"},
        {"ada", "URI:ctrun://agent/ada*", "101000"},
        {"ops", "URI:ctrun://operator/*", "001111"},
        {"look", "URI:ctrun://reader/ada*", "001000"},
        {"both", "URI:ctrun://agent/ada*,URI:ctrun://operator/bob", "101101"},
        {"door", "URI:ctrun://relay/*", "000000"},
    };
    struct proc running[2];

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        sign(rows[i].who, rows[i].names);
    start_daemon_at(0, NULL, NULL);
    start_job(&running[0], "ada", "site");
    start_job(&running[1], "bob", "site");
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char may[2 * DEEDS + 1] = "";

        for (size_t cell = 0; cell < 2 * (size_t)DEEDS; cell++)
            may[cell] = is_done(rows[i].who, (enum deed)(cell / 2), cell % 2 == 0 ? "ada" : "bob")
                            ? '1'
                            : '0';
        cr_assert_str_eq(may, rows[i].may, "certificate %s", rows[i].who);
    }
    const char *audit = e2e_read(e2e_in_folder("audit"));
    cr_assert_not_null(strstr(audit, "certificate look has the role reader, which may not give "));
    cr_assert_not_null(strstr(audit, "\"key_name\":\"both\",\"key_role\":\"agent,operator\""));
    cr_assert_not_null(strstr(audit, "certificate ada is for the jobs ada*, not for bob"));
    end(&running[0]);
    end(&running[1]);
    end_daemon();
}

Test(certificates, keys_and_certificates_are_let_in_at_one_port_and_nobody_else)
{
    struct proc run;
    char key[PATH_MAX], other[PATH_MAX];

    (void)snprintf(key, sizeof key, "%s", e2e_in_folder("key"));
    (void)snprintf(other, sizeof other, "%s", e2e_in_folder("other"));
    cr_assert_eq(e2e_run(&run, "key", "new", key, NULL), 0);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "key", "new", other, NULL), 0);
    proc_free(&run);
    sign("ada", "URI:ctrun://agent/*");
    site_ca_new(folder, "strange"); /* whose certificates are not ours */
    site_ca_sign(folder, "strange", "eve", "URI:ctrun://all/*", -HOUR, DAY);
    start_daemon_at(0, "--key_file", key);
    const char *const words[] = {"--nnodes=1",  "--rdzv_endpoint", endpoint, "--rdzv_id=j",
                                 "--no-python", "/bin/true",       NULL};
    cr_assert_eq(run_as(&run, "ada", NULL, words), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=k",
                         "--key_file", key, "--no-python", "/bin/true", NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nnodes=1", "--rdzv_endpoint", endpoint, "--rdzv_id=k",
                         "--key_file", other, "--no-python", "/bin/true", NULL),
                 REFUSED);
    e2e_said(&run, "the peer did not accept this side's key (tag ");
    proc_free(&run);
    cr_assert_eq(run_as(&run, "eve", NULL, words), 65, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "is not signed by the CA in");
    proc_free(&run);
    cr_assert_eq(
        e2e_run(&run, "--nnodes=1", "--rdzv_endpoint", endpoint, "--no-python", "/bin/true", NULL),
        REFUSED);
    proc_free(&run);
    end_daemon();
}

/* ---- dates ---- */

static bool is_over(void *context)
{
    return time(NULL) > *(const time_t *)context;
}

Test(certificates, a_date_that_is_over_ends_no_running_job_and_lets_none_begin)
{
    time_t end_s = time(NULL) + 6;
    struct proc job, run;

    site_ca_sign(folder, "ca", "ada", "URI:ctrun://agent/*", -HOUR, 6);
    start_daemon_at(0, "--journal", e2e_in_folder("journal"));
    start_job(&job, "old", "ada");
    proc_until(is_over, &end_s, 20, "the certificate's end");
    int port = atoi(strrchr(endpoint, ':') + 1);
    end_daemon(); /* its link breaks */
    start_daemon_at(port, "--journal", e2e_in_folder("journal"));
    (void)proc_wait_text(&daemon_, "the certificate ada (", 20);
    const char *const words[] = {"--nnodes=1",  "--rdzv_endpoint", endpoint, "--rdzv_id=n",
                                 "--no-python", "/bin/true",       NULL};
    cr_assert_eq(run_as(&run, "ada", NULL, words), REFUSED, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "the certificate ada has expired on ");
    proc_free(&run);
    (void)proc_wait_text(&job, "is back", 20);
    (void)e2e_write("over", "x");
    finish_job(&job);
    end_daemon();
}

Test(certificates, a_week_before_its_end_the_daemon_and_the_node_tell)
{
    struct proc job, run;

    site_ca_sign(folder, "ca", "daemon", "URI:ctrun://all/*", -HOUR, 3 * DAY);
    site_ca_sign(folder, "ca", "ada", "URI:ctrun://agent/*", -HOUR, 2 * DAY);
    start_daemon_at(0, NULL, NULL);
    (void)proc_wait_text(&daemon_, "warning: the certificate daemon expires in 7", 10);
    start_job(&job, "j", "ada");
    e2e_said(&job, "warning: the certificate ada expires in 4");
    const char *const doctor[] = {"--rdzv_endpoint", endpoint, NULL};
    (void)run_as(&run, "ada", "doctor", doctor);
    e2e_said(&run, "the certificate ada expires in 4");
    proc_free(&run);
    end(&job);
    end_daemon();
}

/* ---- renewed files ---- */

Test(certificates, renewed_files_are_taken_under_a_running_job_and_revoked_ones_are_not)
{
    struct proc job, lost, run;

    sign("ada", "URI:ctrun://agent/*");
    sign("eve", "URI:ctrun://agent/*");
    start_daemon_at(0, NULL, NULL);
    start_job(&job, "ada", "ada");
    start_job(&lost, "eve", "eve");
    site_ca_revoke(folder, "ca", "ada");
    site_ca_revoke(folder, "ca", "eve");
    sign("ada", "URI:ctrun://agent/*");  /* its node finds it at its next dial */
    sign("daemon", "URI:ctrun://all/*"); /* and the daemon at SIGHUP */
    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    (void)proc_wait_text(&daemon_, "SIGHUP: the certificates of now count", 10);
    (void)proc_wait_text(&lost, "did not accept this side's certificate (", 20);
    (void)proc_wait_text(&job, "is back", 20);
    const char *const words[] = {"--rdzv_endpoint", endpoint, "--rdzv_id=ada", NULL};
    cr_assert_eq(run_as(&run, "eve", "status", words), 65, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "certificate revoked");
    proc_free(&run);
    (void)e2e_write("over", "x");
    finish_job(&job);
    end(&lost);
    end_daemon();
}

/* ---- without a daemon, and with three ---- */

Test(certificates, two_nodes_meet_at_one_of_them_and_their_store_goes_by_certificates)
{
    char at[64], whole[1024];
    struct proc nodes[2];

    sign("ada", "URI:ctrun://agent/ada-*"); /* serves its own job */
    (void)snprintf(at, sizeof at, "127.0.0.1:%d", e2e_free_port());
    (void)snprintf(whole, sizeof whole,
                   "#!/bin/sh\nexec \"%s\" set of$RANK $RANK get of0 get of1\n",
                   proc_program("../tests/programs/store"));
    const char *script = e2e_script("meet", whole);
    for (int i = 0; i < 2; i++) {
        const char *const words[] = {"--nnodes=2",
                                     i == 0 ? "--node_rank=0" : "--node_rank=1",
                                     "--rdzv_endpoint",
                                     at,
                                     "--rdzv_id=ada-1",
                                     "--local_addr=127.0.0.1",
                                     script,
                                     NULL};
        start_as(&nodes[i], "ada", NULL, words);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 40), 0, "%s", ct_buf_str(&nodes[i].text));
        e2e_not_said(&nodes[i], "PyTorch's store is served in clear");
    }
    e2e_said(&nodes[0], "the key protects the rendezvous and PyTorch's store");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
}

Test(certificates, nodes_hold_their_record_together_and_it_outlives_its_host)
{
    char list[128];
    struct proc nodes[3];
    int port = e2e_free_port();

    sign("ada", "URI:ctrun://agent/ada-*");
    (void)snprintf(list, sizeof list, "127.0.0.1:%d", port);
    for (int i = 0; i < 3; i++) {
        char address[64], rank[32];
        const char *const words[] = {"--nnodes=3",
                                     rank,
                                     "--rdzv_endpoint",
                                     list,
                                     "--rdzv_id=ada-h",
                                     address,
                                     "--log.level=debug",
                                     "--no-python",
                                     "/bin/sleep",
                                     "600",
                                     NULL};
        (void)snprintf(address, sizeof address, "--local_addr=127.0.0.%d", i + 1);
        (void)snprintf(rank, sizeof rank, "--node_rank=%d", i);
        start_as(&nodes[i], "ada", NULL, words);
    }
    for (int i = 0; i < 3; i++)
        (void)proc_wait_text(&nodes[i], "joined the job at ", 20);
    (void)proc_wait_text(&nodes[0], "is held by 3 hosts", 20);
    cr_assert_eq(kill(nodes[0].pid, SIGKILL), 0);
    (void)proc_wait_text(&nodes[1], "the rendezvous is back", 20);
    for (int i = 0; i < 3; i++) {
        (void)kill(nodes[i].pid, SIGTERM);
        (void)proc_finish(&nodes[i], 20);
        proc_free(&nodes[i]);
    }
}

Test(certificates, three_daemons_hold_the_record_together)
{
    char list[128], listen[3][32], journal[3][PATH_MAX];
    struct proc three[3], job;
    int ports[3];

    sign("ada", "URI:ctrun://agent/*");
    for (int i = 0; i < 3; i++) {
        ports[i] = e2e_free_port();
        (void)snprintf(listen[i], sizeof listen[i], "127.0.0.1:%d", ports[i]);
        (void)snprintf(journal[i], sizeof journal[i], "%s.%d", e2e_in_folder("journal"), i);
    }
    (void)snprintf(list, sizeof list, "%s,%s,%s", listen[0], listen[1], listen[2]);
    for (int i = 0; i < 3; i++) {
        const char *words[WORDS] = {proc_program("ctrund"),
                                    "--listen",
                                    listen[i],
                                    "--peers",
                                    list,
                                    "--journal",
                                    journal[i]};
        words[add_files(words, 7, "daemon")] = NULL;
        proc_start(&three[i], words, NULL);
    }
    const char *const words[] = {"--nnodes=1",  "--rdzv_endpoint", list, "--rdzv_id=j",
                                 "--no-python", "/bin/true",       NULL};
    cr_assert_eq(run_as(&job, "ada", NULL, words), 0, "%s", ct_buf_str(&job.text));
    proc_free(&job);
    for (int i = 0; i < 3; i++)
        end(&three[i]);
}

/* ---- what is wrong is found beforehand ---- */

Test(certificates, the_doctor_names_what_is_wrong_with_the_files)
{
    static const struct {
        const char *who, *words;
    } rows[] = {
        {"nobody", "cannot open certificate file"},
        {"web", "certificate web: it has no URI"},
        {"old", "the certificate old has expired on "},
        {"eve", "is not signed by the CA"},
        {"open", "is open to"},
    };
    struct proc run;
    char path[PATH_MAX];
    const char *const none[] = {NULL};

    sign("ada", "URI:ctrun://agent/*");
    sign("web", "DNS:web.example");
    sign("open", "URI:ctrun://agent/*");
    site_ca_sign(folder, "ca", "old", "URI:ctrun://agent/*", -DAY, -MINUTE);
    site_ca_new(folder, "strange");
    site_ca_sign(folder, "strange", "eve", "URI:ctrun://all/*", -HOUR, DAY);
    (void)snprintf(path, sizeof path, "%s/open.key", folder);
    cr_assert_eq(chmod(path, 0644), 0);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert_neq(run_as(&run, rows[i].who, "doctor", none), 0);
        e2e_said(&run, rows[i].words);
        e2e_said(&run, "cmd/ctrund/README.md");
        proc_free(&run);
    }
    cr_assert_eq(run_as(&run, "ada", "doctor", none), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "the certificate is signed by the CA and good for more than a week");
    proc_free(&run);
}
