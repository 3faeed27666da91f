/* The key ring of a real ctrund, with certificates beside it: who may do what, tried cell by cell
 * as two users, and what becomes of running jobs when keys are rotated and revoked. */
#include "e2e.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cluster/procfs.h"
#include "site_ca.h"
#include "users.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADA = 41001, BOB = 41002, REFUSED = 77, HOUR = 3600 };

static char folder[256], endpoint[64], page[128], ring[PATH_MAX];
static struct proc daemon_;

static void enter(void)
{
    e2e_enter();
    if (geteuid() != 0)
        cr_skip_test("skipped: being two users needs root");
    cr_assert(ct_str_copy(folder, sizeof folder, e2e_in_folder(".")));
    (void)snprintf(ring, sizeof ring, "%s/ring", folder);
    cr_assert_eq(chmod(folder, 0711), 0);
    (void)e2e_script("nap", "#!/bin/sh\nexec sleep 600\n");
    site_ca_new(folder, "ca");
    site_ca_sign(folder, "ca", "daemon", "URI:ctrun://all/*", -HOUR, HOUR);
}

TestSuite(keys, .init = enter, .fini = e2e_leave, .timeout = 120);

/* ---- users ---- */

/* A file of the test's folder, in the user's home. */
static void give(unsigned uid, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct ct_error err;
    struct ct_buf text;

    users_make_home(uid);
    (void)snprintf(from, sizeof from, "%s/%s", folder, name);
    (void)snprintf(to, sizeof to, "%s/%u/%s", folder, uid, name);
    ct_buf_init(&text, 0);
    cr_assert_eq(ct_fs_read(from, 4096, &text, &err), 0, "%s", err.text);
    cr_assert_eq(ct_fs_replace_private(to, text.data, text.size, &err), 0, "%s", err.text);
    cr_assert_eq(chown(to, uid, uid), 0);
    ct_buf_deinit(&text);
}

/* ---- the ring and its daemon ---- */

static void new_key(const char *name, const char *role, const char *jobs, const char *users)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "key", "new", e2e_in_folder(name), "--ring", ring, "--name", name,
                         "--role", role, "--jobs", jobs, "--users", users, NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

static void start_daemon(void)
{
    const char *port_file = e2e_in_folder("port"), *audit = e2e_in_folder("audit");
    const char *certificate = e2e_in_folder("daemon.pem"), *key = e2e_in_folder("daemon.key");
    char address[101];
    const char *const argv[] = {proc_program("ctrund"),
                                "--listen",
                                "127.0.0.1:0",
                                "--port_file",
                                port_file,
                                "--key_ring",
                                ring,
                                "--status",
                                "127.0.0.1:0",
                                "--audit",
                                audit,
                                "--tls_cert",
                                certificate,
                                "--tls_key",
                                key,
                                "--tls_ca",
                                e2e_in_folder("ca.pem"),
                                NULL};

    proc_start(&daemon_, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
    const char *at = proc_wait_text(&daemon_, "answers HTTP on ", 10);
    cr_assert_eq(sscanf(at, "answers HTTP on %100[0-9.:]", address), 1);
    (void)snprintf(page, sizeof page, "http://%s/status.json", address);
}

static void end_daemon(void)
{
    cr_assert_eq(kill(daemon_.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon_, 20), 0, "%s", ct_buf_str(&daemon_.text));
    proc_free(&daemon_);
}

static void start_job(struct proc *job, const char *name, const char *key)
{
    e2e_start(job, "--nnodes=1:3", "--node_rank=0", "--rdzv_id", name, "--rdzv_endpoint", endpoint,
              "--key_file", e2e_in_folder(key), e2e_in_folder("nap"), NULL);
    (void)proc_wait_text(job, "joined the job at ", 20);
}

static void end_job(struct proc *job)
{
    cr_assert_eq(kill(job->pid, SIGTERM), 0);
    (void)proc_finish(job, 20);
    proc_free(job);
}

/* ---- who may do what ---- */

enum deed { JOIN, STATUS, CORDON, DEEDS };

/* By what one proves himself: a key file, or a certificate ("@name"), in his folder. Three words
 * that an option each may have. */
static void prove(unsigned uid, const char *by, char words[3][PATH_MAX])
{
    const char *name = by + (by[0] == '@');

    if (by[0] != '@') {
        (void)snprintf(words[0], PATH_MAX, "--key_file=%s/%u/%s", folder, uid, name);
        (void)snprintf(words[1], PATH_MAX, "--rdzv_endpoint=%s", endpoint);
        (void)snprintf(words[2], PATH_MAX, "--rdzv_endpoint=%s", endpoint);
        return;
    }
    (void)snprintf(words[0], PATH_MAX, "--tls_cert=%s/%u/%s.pem", folder, uid, name);
    (void)snprintf(words[1], PATH_MAX, "--tls_key=%s/%u/%s.key", folder, uid, name);
    (void)snprintf(words[2], PATH_MAX, "--tls_ca=%s/%u/ca.pem", folder, uid);
}

/* Is it done (1) or refused for the key (0)? Anything else fails. */
static int is_done(unsigned uid, const char *by, enum deed deed, const char *job)
{
    static unsigned joins;
    static char proof[3][PATH_MAX];
    char name[64];
    struct proc run;

    prove(uid, by, proof);
    (void)snprintf(name, sizeof name, "%s-%u", job, deed == JOIN ? ++joins + 1 : 1);
    const char *const join[] = {"--nnodes=1",      "--node_rank=0", "--rdzv_id", name,
                                "--rdzv_endpoint", endpoint,        proof[0],    proof[1],
                                proof[2],          "--no-python",   "/bin/true", NULL};
    const char *const status[] = {"status",          "--rdzv_id", name,
                                  "--rdzv_endpoint", endpoint,    proof[0],
                                  proof[1],          proof[2],    NULL};
    const char *const cordon[] = {"cordon",          "node7",  "--rdzv_id", name,
                                  "--rdzv_endpoint", endpoint, proof[0],    "--reason=a cell",
                                  proof[1],          proof[2], NULL};
    const char *const *const rows[DEEDS] = {join, status, cordon};
    int code = users_run(&run, uid, rows[deed]);

    cr_assert(code == 0 || code == REFUSED, "%s: %d: %s", by, code, ct_buf_str(&run.text));
    proc_free(&run);
    return code == 0;
}

/* What the page shows who has the key's token: "ab", of whose jobs; "-": it does not. */
static const char *seen(unsigned uid, const char *key)
{
    static const char script[] =
        "import json, sys, urllib.error, urllib.request\n"
        "request = urllib.request.Request(sys.argv[1])\n"
        "if sys.argv[2]: request.add_header('Authorization', 'Bearer ' + sys.argv[2])\n"
        "try:\n"
        "    jobs = json.load(urllib.request.urlopen(request, timeout=20))['jobs']\n"
        "    print(''.join(sorted(job['job'][0] for job in jobs if job['job'].endswith('-1'))))\n"
        "except urllib.error.HTTPError as error:\n"
        "    print('-' if error.code == 401 else error.code)\n";
    static char said[16];
    char file[PATH_MAX], id[16], token[128] = "";
    struct proc run;

    (void)snprintf(file, sizeof file, "%s/%u/%s", folder, uid, key);
    if (key[0] != '\0') {
        cr_assert_eq(users_run(&run, uid, (const char *const[]){"key", "token", file, NULL}), 0);
        cr_assert_eq(sscanf(ct_buf_str(&run.text), "%127s", token), 1);
        proc_free(&run);
    }
    (void)snprintf(id, sizeof id, "%u", uid);
    const char *const argv[] = {
        "/usr/bin/setpriv", "--reuid", id,     "--regid", id,    "--clear-groups",
        "/usr/bin/python3", "-c",      script, page,      token, NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    said[0] = '\0';
    (void)sscanf(ct_buf_str(&run.text), "%15s", said);
    proc_free(&run);
    return said;
}

/* What one needs for that. */
static void give_proof(unsigned uid, const char *by)
{
    char file[64];

    if (by[0] != '@') {
        give(uid, by);
        return;
    }
    (void)snprintf(file, sizeof file, "%s.pem", by + 1);
    give(uid, file);
    (void)snprintf(file, sizeof file, "%s.key", by + 1);
    give(uid, file);
    give(uid, "ca.pem");
}

Test(keys, five_keys_and_two_certificates_of_two_users_may_do_what_they_say_and_nothing_else)
{
    static const struct {
        const char *by;
        unsigned uid;
        const char *may;  /* join ada's, bob's; status of ada's, bob's; cordon in ada's, bob's */
        const char *sees; /* on the page; "": a certificate has no token */
    } rows[] = {
        {"site", ADA, "111111", "ab"}, {"site", BOB, "111111", "ab"}, {"ada", ADA, "101000", "a"},
        {"ada", BOB, "000000", "-"},   {"ops", ADA, "001111", "ab"},  {"ops", BOB, "001111", "ab"},
        {"look", ADA, "001000", "a"},  {"look", BOB, "001000", "a"},  {"door", ADA, "000000", "-"},
        {"door", BOB, "000000", "-"},  {"@agent", ADA, "101000", ""}, {"@agent", BOB, "101000", ""},
        {"@order", ADA, "001111", ""}, {"@order", BOB, "001111", ""},
    };
    static const char *const jobs[] = {"ada", "bob"};
    struct proc running[2];

    users_begin();
    new_key("site", "all", "*", "*");
    new_key("ada", "agent", "ada-*", "41001");
    new_key("ops", "operator", "*", "*");
    new_key("look", "reader", "ada-*", "*");
    new_key("door", "relay", "*", "*");
    site_ca_sign(folder, "ca", "agent", "URI:ctrun://agent/ada-*", -HOUR, HOUR);
    site_ca_sign(folder, "ca", "order", "URI:ctrun://operator/*", -HOUR, HOUR);
    start_daemon();
    start_job(&running[0], "ada-1", "site");
    start_job(&running[1], "bob-1", "site");
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char may[2 * DEEDS + 1] = "";

        give_proof(rows[i].uid, rows[i].by);
        for (size_t cell = 0; cell < 2 * (size_t)DEEDS; cell++)
            may[cell] =
                is_done(rows[i].uid, rows[i].by, (enum deed)(cell / 2), jobs[cell % 2]) ? '1' : '0';
        cr_assert_str_eq(may, rows[i].may, "%s as user %u", rows[i].by, rows[i].uid);
        if (rows[i].sees[0] != '\0')
            cr_assert_str_eq(seen(rows[i].uid, rows[i].by), rows[i].sees, "%s as user %u",
                             rows[i].by, rows[i].uid);
    }
    cr_assert_str_eq(seen(ADA, ""), "-", "without a token");
    const char *audit = e2e_read(e2e_in_folder("audit"));
    cr_assert_not_null(strstr(audit, "key ada is not for user 41002"));
    cr_assert_not_null(strstr(audit, "\"key_name\":\"look\",\"key_role\":\"reader\""));
    cr_assert_not_null(strstr(audit, "key look has the role reader, which may not give orders"));
    end_job(&running[0]);
    end_job(&running[1]);
    end_daemon();
}

/* ---- rotation ---- */

/* Have the daemon read its ring again, for the so manieth time. */
static void reload(int time)
{
    double until = proc_now_s() + 20;

    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    while (e2e_count(ct_buf_str(&daemon_.text), "SIGHUP: the keys of") < time) {
        cr_assert_lt(proc_now_s(), until, "%s", ct_buf_str(&daemon_.text));
        (void)process_pump(&daemon_, 10);
    }
}

static int ask(const char *job, const char *key, struct proc *run)
{
    return e2e_run(run, "status", "--rdzv_id", job, "--rdzv_endpoint", endpoint, "--key_file",
                   e2e_in_folder(key), NULL);
}

/* A key file is replaced by another in one step. */
static void replace(const char *name, const char *by)
{
    char from[PATH_MAX];

    (void)snprintf(from, sizeof from, "%s", e2e_in_folder(by));
    cr_assert_eq(rename(from, e2e_in_folder(name)), 0);
}

static void take_out(const char *id)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "key", "revoke", ring, id, NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* The id of the first key of a name in the ring. */
static void find_id(const char *name, char id[17])
{
    char word[64];
    const char *text = e2e_read(ring);

    (void)snprintf(word, sizeof word, " %s ", name);
    const char *at = strstr(text, word);
    cr_assert_not_null(at, "%s", text);
    memcpy(id, at - 16, 16);
    id[16] = '\0';
}

struct at_work {
    struct proc proc;
    char name[16];
    pid_t worker;
};

static bool has_worker(void *context)
{
    struct at_work *job = context;
    struct procfs_child worker;
    int count = procfs_children(job->proc.pid, "sleep", &worker, 1, NULL);

    if (count == 1 && job->worker == 0)
        job->worker = worker.pid;
    return count == 1 && worker.pid == job->worker;
}

static bool has_come_back(void *context)
{
    const struct at_work *job = context;
    struct proc run;
    int code = ask(job->name, "site", &run);
    bool is_back = code == 0 && strstr(ct_buf_str(&run.text), "working") != NULL &&
                   strstr(ct_buf_str(&run.text), "not connected") == NULL;

    proc_free(&run);
    return is_back;
}

static void assert_undisturbed(struct at_work *job)
{
    proc_until(has_come_back, job, 30, "a job's node came back");
    process_drain(&job->proc);
    cr_assert(process_runs(&job->proc), "%s", ct_buf_str(&job->proc.text));
    cr_assert(has_worker(job), "%s: its worker is another one", job->name);
}

Test(keys, ten_jobs_go_on_while_keys_are_rotated_and_the_revoked_one_is_refused_within_a_second)
{
    static struct at_work jobs[10], gone;
    char id[17];
    struct proc run;

    new_key("site", "all", "*", "*");
    new_key("day", "agent", "*", "*");
    new_key("gone", "agent", "*", "*");
    start_daemon();
    for (size_t i = 0; i < CT_COUNT(jobs); i++) {
        (void)snprintf(jobs[i].name, sizeof jobs[i].name, "job%zu", i);
        start_job(&jobs[i].proc, jobs[i].name, "day");
    }
    start_job(&gone.proc, "gone", "gone");
    for (size_t i = 0; i < CT_COUNT(jobs); i++)
        proc_until(has_worker, &jobs[i], 10, "its worker");

    find_id("day", id); /* the old one */
    new_key("day.new", "agent", "*", "*");
    reload(1); /* both count */
    replace("day", "day.new");
    for (size_t i = 0; i < CT_COUNT(jobs); i++)
        assert_undisturbed(&jobs[i]);
    take_out(id);
    take_out("gone");
    double begun_s = proc_now_s();
    reload(2);
    int code = ask("gone", "gone", &run);
    cr_assert_eq(code, REFUSED, "%s", ct_buf_str(&run.text));
    cr_assert_lt(proc_now_s() - begun_s, 1);
    proc_free(&run);
    (void)proc_wait_text(&gone.proc, "the workers go on meanwhile", 10); /* for ten minutes */
    (void)proc_wait_text(&gone.proc, "did not accept this side's key", 10);
    for (size_t i = 0; i < CT_COUNT(jobs); i++)
        assert_undisturbed(&jobs[i]);
    for (size_t i = 0; i < CT_COUNT(jobs); i++)
        end_job(&jobs[i].proc);
    end_job(&gone.proc);
    end_daemon();
}

/* ---- ctrun key ---- */

/* One run of `ctrun key`: its status, and what it said. */
static void assert_key(int status, const char *said, const char *const *words)
{
    const char *argv[16] = {proc_program("ctrun"), "key"};
    struct proc run;

    for (size_t i = 0; words[i] != NULL; i++)
        argv[i + 2] = words[i];
    cr_assert_eq(proc_run(&run, argv, NULL, 20), status, "%s", ct_buf_str(&run.text));
    e2e_said(&run, said);
    proc_free(&run);
}

#define KEY(status, said, ...) assert_key(status, said, (const char *const[]){__VA_ARGS__, NULL})

Test(keys, a_ring_is_made_shown_and_changed_and_what_is_wrong_is_named)
{
    char key[PATH_MAX], other[PATH_MAX];

    (void)snprintf(key, sizeof key, "%s", e2e_in_folder("ada.key"));
    (void)snprintf(other, sizeof other, "%s", e2e_in_folder("other.key"));
    KEY(2, "usage: ctrun key new FILE", "new");
    KEY(2, "usage: ctrun key new FILE | derive", "make");
    KEY(2, "a new key has the role that a ring gives it", "new", key, "--role", "agent");
    KEY(2, "needs --name NAME and --role ROLE, one of all, agent", "new", key, "--ring", ring);
    KEY(2, "--role root is none of all, agent, operator, reader, relay", "new", key, "--ring", ring,
        "--name", "ada", "--role", "root");
    KEY(2, "this machine knows no user nobody.here", "new", key, "--ring", ring, "--name", "ada",
        "--role", "agent", "--users", "nobody.here");
    cr_assert(!e2e_exists(key) && !e2e_exists(ring), "nothing is left of a wrong one");
    KEY(0, "ada (agent), jobs ada-*", "new", key, "--ring", ring, "--name", "ada", "--role",
        "agent", "--jobs", "ada-*", "--users", "root,1000");
    KEY(0, "agent     ada-*                     0,1000", "list", ring);
    KEY(0, "users whom munge names are in", "new", "munge:", "--ring", ring, "--name", "staff",
        "--role", "reader", "--jobs", "%u-*");
    KEY(0, "munge             staff             reader    %u-*", "list", ring);
    KEY(2, "munge needs no key", "new", "munge:");
    KEY(0, "holds a key of the role relay", "derive", key, other, "--role", "relay");
    KEY(73, "exists already", "derive", key, other, "--role", "relay");
    KEY(0, "-", "token", key);
    KEY(2, "has no key \"bob\"", "revoke", ring, "bob");
    KEY(0, "key ada is no longer in", "revoke", ring, "ada");
    KEY(0, "munge", "list", ring);
    KEY(66, "cannot open key ring", "list", "nowhere");
    KEY(65, "is no key ring but binary", "list", key);
}

/* ---- keys of roles without a ring ---- */

Test(keys, of_a_job_s_key_come_those_of_roles_for_who_hosts_it_without_a_daemon)
{
    struct proc job, run;
    char key[PATH_MAX], look[PATH_MAX], at[64];

    (void)snprintf(key, sizeof key, "%s", e2e_in_folder("job.key"));
    (void)snprintf(look, sizeof look, "%s", e2e_in_folder("look.key"));
    cr_assert_eq(e2e_run(&run, "key", "new", key, NULL), 0);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "key", "derive", key, look, "--role", "reader", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    proc_free(&run);
    (void)snprintf(at, sizeof at, "127.0.0.1:%d", e2e_free_port());
    e2e_start(&job, "--nnodes=1:2", "--node_rank=0", "--rdzv_id=night", "--rdzv_endpoint", at,
              "--key_file", key, e2e_in_folder("nap"), NULL);
    (void)proc_wait_text(&job, "joined the job at ", 20);
    (void)snprintf(endpoint, sizeof endpoint, "%s", at);
    cr_assert_eq(ask("night", "look.key", &run), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "cordon", "node7", "--reason=x", "--rdzv_endpoint", at, "--rdzv_id",
                         "night", "--key_file", look, NULL),
                 REFUSED);
    e2e_said(&run, "has the role reader, which may not give orders");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nnodes=1:2", "--node_rank=1", "--rdzv_endpoint", at, "--rdzv_id",
                         "night", "--key_file", look, "--no-python", "/bin/true", NULL),
                 REFUSED);
    e2e_said(&run, "has the role reader, which may not join a job with a node");
    proc_free(&run);
    end_job(&job);
}
