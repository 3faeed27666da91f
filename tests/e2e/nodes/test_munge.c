/* Users whom a real munged names, at real programs: what a ring's lines let them do, nodes without
 * a key file, daemons that know each other so. */
#include "e2e.h"
#include "users.h"

#include "munged.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADA = 41001, BOB = 41002, REFUSED = 77 };

static char folder[256], endpoint[64], own[PATH_MAX], of_root[PATH_MAX];
static struct munged munged;
static struct proc daemon_;

static void enter(void)
{
    munged_demand();
    e2e_enter();
    cr_assert(ct_str_copy(folder, sizeof folder, e2e_in_folder("")));
    cr_assert_eq(chmod(folder, 0711), 0);
    munged_start(&munged, folder);
    (void)snprintf(own, sizeof own, "munge::%s", munged.socket);
    (void)snprintf(of_root, sizeof of_root, "munge:root:%s", munged.socket);
}

static void leave(void)
{
    munged_stop(&munged);
    e2e_leave();
}

TestSuite(munge, .init = enter, .fini = leave, .timeout = 120);

/* An endpoint on loopback that no other test has: the address is this process's. */
static void own_endpoint(int index, char text[32])
{
    unsigned pid = (unsigned)getpid();

    (void)snprintf(text, 32, "127.%u.%u.%d:29400", 64 + pid / 256 % 128, pid % 256, index + 1);
}

/* ---- two users of a daemon ---- */

static void write_ring(const char *lines)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_replace_private(e2e_in_folder("ring"), lines, strlen(lines), &err), 0, "%s",
                 err.text);
}

static void start_daemon(void)
{
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {
        proc_program("ctrund"), "--listen", "127.0.0.1:0", "--port_file",         port_file,
        "--key_file",           own,        "--key_ring",  e2e_in_folder("ring"), "--audit",
        e2e_in_folder("audit"), NULL};

    proc_start(&daemon_, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", atoi(e2e_wait_file(port_file, 10)));
}

static void end_daemon(void)
{
    cr_assert_eq(kill(daemon_.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon_, 20), 0, "%s", ct_buf_str(&daemon_.text));
    proc_free(&daemon_);
}

enum deed { JOIN, STATUS, CORDON, DEEDS };

/* Is it done (1) or refused to the user (0)? Anything else fails. */
static int is_done(unsigned uid, enum deed deed, const char *job)
{
    static unsigned joins;
    char name[64];
    struct proc run;

    (void)snprintf(name, sizeof name, "%s-%u", job, deed == JOIN ? ++joins + 1 : 1);
    const char *const join[] = {"--nnodes=1",      "--node_rank=0", "--rdzv_id",  name,
                                "--rdzv_endpoint", endpoint,        "--key_file", of_root,
                                "--no-python",     "/bin/true",     NULL};
    const char *const status[] = {"status", "--rdzv_id",  name,    "--rdzv_endpoint",
                                  endpoint, "--key_file", of_root, NULL};
    const char *const cordon[] = {"cordon",          "node7",  "--rdzv_id",  name,
                                  "--rdzv_endpoint", endpoint, "--key_file", of_root,
                                  "--reason=a cell", NULL};
    const char *const *const rows[DEEDS] = {join, status, cordon};
    int code = users_run(&run, uid, rows[deed]);

    cr_assert(code == 0 || code == REFUSED, "user %u: %d: %s", uid, code, ct_buf_str(&run.text));
    proc_free(&run);
    return code == 0;
}

static void start_job(struct proc *job, const char *name, const char *nap)
{
    e2e_start(job, "--nnodes=1:3", "--node_rank=0", "--rdzv_id", name, "--rdzv_endpoint", endpoint,
              "--key_file", own, nap, NULL);
    (void)proc_wait_text(job, "joined the job at ", 20);
}

static void reload(void)
{
    cr_assert_eq(kill(daemon_.pid, SIGHUP), 0);
    (void)proc_wait_text(&daemon_, "SIGHUP: the keys of", 20);
}

Test(munge, users_of_a_daemon_may_do_what_the_lines_of_its_ring_say_and_nothing_else)
{
    static const struct {
        unsigned uid;
        const char *may; /* join ada's, bob's; status of ada's, bob's; cordon in ada's, bob's */
    } rows[] = {{0, "111111"}, {ADA, "101000"}, {BOB, "001100"}};
    static const char *const jobs[] = {"41001", "41002"};
    struct proc running[2];

    if (geteuid() != 0)
        cr_skip_test("skipped: being two users needs root");
    const char *nap = e2e_script("nap", "#!/bin/sh\nexec sleep 600\n");
    users_begin();
    write_ring("munge ada agent %u-* 41001 -\nmunge others reader * * -\n");
    start_daemon();
    start_job(&running[0], "41001-1", nap);
    start_job(&running[1], "41002-1", nap);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char may[2 * DEEDS + 1] = "";

        for (size_t cell = 0; cell < 2 * (size_t)DEEDS; cell++)
            may[cell] = is_done(rows[i].uid, (enum deed)(cell / 2), jobs[cell % 2]) ? '1' : '0';
        cr_assert_str_eq(may, rows[i].may, "user %u", rows[i].uid);
    }
    const char *audit = e2e_read(e2e_in_folder("audit"));
    cr_assert_not_null(strstr(audit, "\"uid\":41001,\"key\":\"munge\",\"key_name\":\"ada\","
                                     "\"key_role\":\"agent\""),
                       "%s", audit);
    cr_assert_not_null(strstr(audit, "key others has the role reader"), "%s", audit);
    write_ring("munge ada agent %u-* 41001 -\n");
    reload();
    cr_assert_eq(is_done(BOB, STATUS, "41001"), 0, "his line is gone");
    cr_assert_eq(is_done(ADA, STATUS, "41001"), 1);
    (void)proc_wait_text(&daemon_, "the peer is user 41002 (41002), for whom the key ring has no",
                         10);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(kill(running[i].pid, SIGTERM), 0);
        (void)proc_finish(&running[i], 20);
        proc_free(&running[i]);
    }
    end_daemon();
}

static bool is_counted(void *context)
{
    const char *words = context;
    struct proc run;

    (void)e2e_run(&run, "status", "--rdzv_endpoint", endpoint, "--key_file", own, NULL);
    bool is = strstr(ct_buf_str(&run.text), words) != NULL;
    proc_free(&run);
    return is;
}

Test(munge, users_of_one_line_have_quotas_of_their_own)
{
    static const unsigned users[] = {ADA, BOB};
    struct proc jobs[2];
    char names[2][16];

    if (geteuid() != 0)
        cr_skip_test("skipped: being two users needs root");
    users_begin();
    write_ring("munge staff agent %u-* * -\n");
    start_daemon();
    const char *nap = e2e_script("nap", "#!/bin/sh\nexec sleep 600\n");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(names[i], sizeof names[i], "%u-1", users[i]);
        users_start(&jobs[i], users[i],
                    (const char *const[]){"--nnodes=1", "--node_rank=0", "--rdzv_id", names[i],
                                          "--rdzv_endpoint", endpoint, "--key_file", of_root, nap,
                                          NULL});
    }
    for (int i = 0; i < 2; i++) {
        (void)snprintf(names[i], sizeof names[i], "user %u", users[i]);
        proc_until(is_counted, names[i], 20, names[i]);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(kill(jobs[i].pid, SIGTERM), 0);
        (void)proc_finish(&jobs[i], 20);
        proc_free(&jobs[i]);
    }
    end_daemon();
}

/* ---- nodes without a key file ---- */

Test(munge, two_nodes_meet_and_share_a_store_without_a_key_file)
{
    struct proc nodes[2];
    char port[32], rank[32], words[64];
    const char *show = e2e_script("show", "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE\"\n");

    own_endpoint(0, port);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(rank, sizeof rank, "--node_rank=%d", i);
        e2e_start(&nodes[i], "--nnodes=2", rank, "--rdzv_id=night", "--rdzv_endpoint", port,
                  "--local_addr=127.0.0.1", "--torch_store=local", "--key_file", own, "--no_python",
                  show, NULL);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        (void)snprintf(words, sizeof words, "rank %d of 2", i);
        e2e_said(&nodes[i], words);
        proc_free(&nodes[i]);
    }
}

Test(munge, a_rendezvous_here_cannot_be_that_of_another_account)
{
    char key[PATH_MAX], port[32];
    struct proc node;

    (void)snprintf(key, sizeof key, "munge:%u:%s", (unsigned)geteuid() + 1, munged.socket);
    own_endpoint(0, port);
    cr_assert_eq(e2e_run(&node, "--nnodes=2", "--node_rank=0", "--rdzv_endpoint", port,
                         "--key_file", key, "--no_python", "true", NULL),
                 2, "%s", ct_buf_str(&node.text));
    e2e_said(&node, "leave the account out");
    proc_free(&node);
}

Test(munge, what_is_wrong_with_munged_is_said_in_one_sentence)
{
    char key[PATH_MAX];
    struct proc run;

    (void)snprintf(key, sizeof key, "munge::%s/none", folder);
    cr_assert_eq(e2e_run(&run, "doctor", "--key_file", key, NULL), 69, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "munged does not answer on this machine");
    proc_free(&run);
    (void)e2e_run(&run, "doctor", "--key_file", own, NULL);
    e2e_said(&run, "munged answers");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "key", "token", own, NULL), 2);
    e2e_said(&run, "is no key of which another key or a token can be made");
    proc_free(&run);
}

/* ---- daemons ---- */

Test(munge, three_daemons_know_each_other_and_a_job_by_munge)
{
    struct proc three[3], job;
    char listen[3][32], list[128], folders[3][16], journal[PATH_MAX];

    for (int i = 0; i < 3; i++)
        own_endpoint(i, listen[i]);
    (void)snprintf(list, sizeof list, "%s,%s,%s", listen[0], listen[1], listen[2]);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(folders[i], sizeof folders[i], "journal%d", i);
        cr_assert(ct_str_copy(journal, sizeof journal, e2e_in_folder(folders[i])));
        const char *const argv[] = {
            proc_program("ctrund"), "--listen", listen[i], "--peers", list, "--journal", journal,
            "--key_file",           own,        NULL};
        proc_start(&three[i], argv, NULL);
    }
    cr_assert_eq(e2e_run(&job, "--nnodes=1", "--node_rank=0", "--rdzv_id=night", "--rdzv_endpoint",
                         list, "--key_file", own, "--no_python", "true", NULL),
                 0, "%s", ct_buf_str(&job.text));
    proc_free(&job);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(kill(three[i].pid, SIGTERM), 0);
        cr_assert_eq(proc_finish(&three[i], 20), 0, "%s", ct_buf_str(&three[i].text));
        proc_free(&three[i]);
    }
}
