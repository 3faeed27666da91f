/* What ctrun makes of Slurm's variables, made up here: no Slurm is needed. */
#include "e2e.h"

#include "base/assert.h"
#include "cluster.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void leave(void)
{
    cluster_down();
    e2e_leave();
}

TestSuite(slurm_env, .init = e2e_enter, .fini = leave, .timeout = 120);

/* The environment of a task of `srun` on node `node` of two; `job` keeps tests apart. The words are
 * static, a set for each node. */
static const char *const *task_env(int job, int node, const char *nodes, const char *more)
{
    static char texts[2][6][PATH_MAX];
    static const char *lists[2][16];
    size_t count = 0;

    if (more != NULL)
        lists[node][count++] = more; /* the first of two that have one name counts */
    (void)snprintf(texts[node][0], PATH_MAX, "SLURM_JOB_ID=%d", job);
    (void)snprintf(texts[node][1], PATH_MAX, "SLURM_NODEID=%d", node);
    (void)snprintf(texts[node][2], PATH_MAX, "SLURM_PROCID=%d", node);
    (void)snprintf(texts[node][3], PATH_MAX, "SLURM_STEP_NODELIST=%s", nodes);
    (void)snprintf(texts[node][4], PATH_MAX, "SLURMD_NODENAME=n%d", node);
    (void)snprintf(texts[node][5], PATH_MAX, "HOME=%s", e2e_in_folder("home"));
    for (size_t i = 0; i < 6; i++)
        lists[node][count++] = texts[node][i];
    lists[node][count++] = "SLURM_STEP_ID=0";
    lists[node][count++] = "SLURM_CONF=/nonexistent"; /* so that nothing is known of munge */
    lists[node][count++] = "SLURM_STEP_NUM_NODES=2";
    lists[node][count++] = "SLURM_NTASKS=2";
    lists[node][count++] = "SLURM_STEP_TASKS_PER_NODE=1(x2)";
    lists[node][count] = NULL;
    return lists[node];
}

/* A job number that no other test of this machine uses at the time: the port follows from it. */
static int some_job(void)
{
    return 100000 + (int)getpid();
}

static const char *show_script(void)
{
    return e2e_script("show", "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE, job "
                              "$TORCHELASTIC_RUN_ID, threads $OMP_NUM_THREADS\"\n");
}

Test(slurm_env, two_tasks_meet_by_what_slurm_says)
{
    struct proc nodes[2];
    int job = some_job();
    char words[96], key[96];

    cr_assert_eq(mkdir("home", 0700), 0);
    (void)snprintf(key, sizeof key, "home/.ctrun/job-%d.0.key", job);
    for (int i = 1; i >= 0; i--) {
        const char *const argv[] = {proc_program("ctrun"), show_script(), NULL};
        proc_start(&nodes[i], argv, task_env(job, i, "127.0.0.[1-2]", "SLURM_CPUS_ON_NODE=1"));
        if (i == 1)
            (void)proc_wait_text(&nodes[1], "waiting for 127.0.0.1 to make the job's key", 20);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        (void)snprintf(words, sizeof words, "rank %d of 2, job %d.0, threads 1\n", i, job);
        e2e_said(&nodes[i], words);
        proc_free(&nodes[i]);
    }
    cr_assert_not(e2e_exists(key));
}

Test(slurm_env, the_key_that_a_killed_ctrun_left_is_not_taken_when_the_job_is_queued_again)
{
    struct proc nodes[2];
    int job = some_job();
    char left[96], fresh[96];

    cr_assert_eq(mkdir("home", 0700), 0);
    cr_assert_eq(mkdir("home/.ctrun", 0700), 0);
    (void)snprintf(left, sizeof left, "home/.ctrun/job-%d.0.key", job);
    (void)snprintf(fresh, sizeof fresh, "home/.ctrun/job-%d.0-r1.key", job);
    (void)e2e_write(left, "0123456789abcdef0123456789abcdef");
    cr_assert_eq(chmod(left, 0600), 0);
    const char *const argv[] = {proc_program("ctrun"),
                                e2e_script("look", "#!/bin/sh\nls \"$HOME/.ctrun\"\n"), NULL};
    for (int i = 0; i < 2; i++) {
        proc_start(&nodes[i], argv, task_env(job, i, "127.0.0.[1-2]", "SLURM_RESTART_COUNT=1"));
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        if (i == 0) /* it is there while node 0 is */
            e2e_said(&nodes[i], strrchr(fresh, '/') + 1);
        e2e_not_said(&nodes[i], strrchr(left, '/') + 1);
        proc_free(&nodes[i]);
    }
    cr_assert_not(e2e_exists(left));
    cr_assert_not(e2e_exists(fresh));
}

Test(slurm_env, a_key_that_no_other_node_makes_is_waited_for_and_named)
{
    struct proc node;
    const char *const argv[] = {proc_program("ctrun"), "--join_timeout=1s", "/bin/true", NULL};

    cr_assert_eq(proc_run(&node, argv, task_env(some_job(), 1, "127.0.0.[1-2]", NULL), 30), 75,
                 "%s", ct_buf_str(&node.text));
    e2e_said(&node, "127.0.0.1 has not made the job's key");
    e2e_said(&node, "--key_file FILE");
    proc_free(&node);
}

Test(slurm_env, a_home_that_cannot_hold_the_key_is_named)
{
    struct proc node;
    const char *const argv[] = {proc_program("ctrun"), "/bin/true", NULL};

    (void)e2e_write("home", "no directory");
    cr_assert_neq(proc_run(&node, argv, task_env(some_job(), 0, "127.0.0.[1-2]", NULL), 30), 0);
    e2e_said(&node, "no key for the nodes of this job (or give --key_file)");
    proc_free(&node);
    cr_assert_neq(proc_run(&node, argv, task_env(some_job(), 0, "127.0.0.[1-2]", "HOME=rel"), 30),
                  0);
    e2e_said(&node, "HOME names no directory");
    proc_free(&node);
}

Test(slurm_env, what_the_user_wrote_counts_more_but_may_not_contradict)
{
    static const struct {
        const char *words[3];
        const char *said;
    } rows[] = {
        {{"--nnodes=3"}, "nnodes asks for 3 nodes, but Slurm runs this step on 2"},
        {{"--node_rank=1"}, "node_rank is 1, but this is Slurm's node 0"},
        {{"--standalone"}, "standalone would make a job of its own on each of Slurm's 2 nodes"},
        {{"nodes.yaml"}, "nnodes asks for 4 nodes, but Slurm runs this step on 2"},
    };

    (void)e2e_write("nodes.yaml", "launch: {nnodes: 4}\nmodel: {classes: 2}\n"
                                  "data: {train: {path: x.csv}}\n");
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct proc node;
        const char *const argv[] = {proc_program("ctrun"), rows[i].words[0],
                                    i == 3 ? NULL : "/bin/true", NULL};
        cr_assert_eq(proc_run(&node, argv, task_env(some_job(), 0, "127.0.0.[1-2]", NULL), 30), 2,
                     "%s", ct_buf_str(&node.text));
        e2e_said(&node, rows[i].said);
        proc_free(&node);
    }
}

Test(slurm_env, a_variable_that_cannot_be_right_is_named)
{
    struct proc node;
    const char *const argv[] = {proc_program("ctrun"), "/bin/true", NULL};

    cr_assert_eq(proc_run(&node, argv, task_env(some_job(), 0, "n[1-", NULL), 30), 2);
    e2e_said(&node, "ctrun: error: SLURM_STEP_NODELIST: ");
    proc_free(&node);
}

/* As on Debian: a machine's own name means loopback in its /etc/hosts, but not in that of others.
 */
Test(slurm_env, node_0_is_found_though_its_name_means_loopback_there)
{
    struct proc nodes[2];
    int job = some_job();
    char words[64];

    cluster_up(2);
    cr_assert_eq(mkdir("home", 0700), 0);
    const char *show = show_script();
    (void)e2e_write("hosts0", "127.0.1.1 node0\n");
    (void)e2e_write("hosts1", "10.78.0.1 node0\n127.0.1.1 node1\n");
    for (int i = 0; i < 2; i++) {
        const char *argv[32] = {"env"};
        const char *const *env =
            task_env(job, i, "node[0-1]", "SLURM_LAUNCH_NODE_IPADDR=10.78.0.1");
        size_t count = 1;
        while (*env != NULL)
            argv[count++] = *env++;
        const char *const rest[] = {"sh",
                                    "-c",
                                    "mount --bind \"$0\" /etc/hosts && exec \"$@\"",
                                    i == 0 ? "hosts0" : "hosts1",
                                    proc_program("ctrun"),
                                    show};
        for (size_t j = 0; j < CT_COUNT(rest); j++)
            argv[count++] = rest[j];
        argv[count] = NULL;
        cluster_start(&nodes[i], i, argv);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        (void)snprintf(words, sizeof words, "rank %d of 2, job %d.0", i, job);
        e2e_said(&nodes[i], words);
        proc_free(&nodes[i]);
    }
}

/* ---- signals and statuses that Slurm acts on ---- */

static void start_requeue(struct proc *proc, const char *program)
{
    e2e_start(proc, "--requeue_signals=USR1", "--nproc_per_node=2", "--max_restarts=3",
              "--no-python", program, NULL);
}

Test(slurm_env, a_requeue_signal_reaches_scripts_and_ends_with_75)
{
    struct proc proc;

    start_requeue(&proc, e2e_script("save", "#!/bin/sh\ntrap 'echo saved $RANK; exit 0' USR1\n"
                                            "echo ready\nwhile :; do sleep 0.02; done\n"));
    (void)proc_wait_text(&proc, "[0:0] ready", 20);
    (void)proc_wait_text(&proc, "[0:1] ready", 20);
    cr_assert_eq(kill(proc.pid, SIGUSR1), 0);
    cr_assert_eq(proc_finish(&proc, 20), 75, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "saved 0");
    e2e_said(&proc, "saved 1");
    e2e_said(&proc, "stopped by SIGUSR1 to be queued again");
    proc_free(&proc);
}

Test(slurm_env, a_worker_that_dies_of_a_requeue_signal_is_no_failure)
{
    struct proc proc;

    start_requeue(&proc, e2e_script("die", "#!/bin/sh\n[ $RANK = 0 ] && kill -USR1 $$\n"
                                           "exec sleep 600\n"));
    cr_assert_eq(proc_finish(&proc, 20), 75, "%s", ct_buf_str(&proc.text));
    e2e_not_said(&proc, "restart");
    proc_free(&proc);
}

/* What Slurm sends to all processes of a step: slurm/each_worker_gets_each_signal_of_slurm_once. */
Test(slurm_env, a_signal_that_reaches_ctrun_alone_is_passed_on)
{
    struct proc proc;
    const char *const argv[] = {proc_program("ctrun"), "--nproc_per_node=2",
                                proc_program("../tests/programs/signals"), NULL};
    const char *const env[] = {"SLURM_JOB_ID=4711", NULL};

    proc_start(&proc, argv, env);
    (void)proc_wait_text(&proc, "[0:0] ready", 20);
    (void)proc_wait_text(&proc, "[0:1] ready", 20);
    cr_assert_eq(kill(proc.pid, SIGUSR1), 0);
    (void)proc_wait_text(&proc, "[0:0] got USR1", 20);
    (void)proc_wait_text(&proc, "[0:1] got USR1", 20);
    cr_assert_eq(kill(proc.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&proc, 20), 143, "%s", ct_buf_str(&proc.text));
    cr_assert_eq(e2e_count(ct_buf_str(&proc.text), "got USR1"), 2);
    cr_assert_eq(e2e_count(ct_buf_str(&proc.text), "got TERM"), 2);
    proc_free(&proc);
}

/* Outside Slurm the same loss is status 79:
 * nodes/a_lost_node_ends_the_job_when_nothing_replaces_it. */
Test(slurm_env, a_job_whose_node_was_lost_for_good_is_to_be_queued_again)
{
    struct proc nodes[2];
    int job = some_job();
    const char *nap = e2e_script("nap", "#!/bin/sh\necho rank $RANK naps\nexec sleep 600\n");
    const char *const argv[] = {proc_program("ctrun"), nap, NULL};

    cr_assert_eq(mkdir("home", 0700), 0);
    for (int i = 0; i < 2; i++)
        proc_start(&nodes[i], argv, task_env(job, i, "127.0.0.[1-2]", NULL));
    (void)proc_wait_text(&nodes[0], "rank 0 naps", 20);
    cr_assert_eq(kill(nodes[1].pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(&nodes[0], 20), 75, "%s", ct_buf_str(&nodes[0].text));
    e2e_said(&nodes[0], "was lost");
    (void)proc_finish(&nodes[1], 5);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
}

Test(slurm_env, a_native_training_publishes_where_it_stands_when_it_is_to_be_queued_again)
{
    struct proc proc;
    char folder[64];

    e2e_start(&proc, "--requeue_signals=USR1", "--nproc_per_node=2",
              e2e_in_root("configs/digits_mlp.yaml"), "--train.epochs=1000000",
              "--checkpoint.every=0", "--checkpoint.dir=saved", "--log.dir=run", NULL);
    (void)proc_wait_text(&proc, "epoch 1/", 60);
    cr_assert_eq(kill(proc.pid, SIGUSR1), 0);
    cr_assert_eq(proc_finish(&proc, 60), 75, "%s", ct_buf_str(&proc.text));
    (void)snprintf(folder, sizeof folder, "step_%08d",
                   (int)proc_number_after(&proc, "stopped after step"));
    cr_assert_not_null(strstr(e2e_read("saved/latest"), folder), "%s", e2e_read("saved/latest"));
    proc_free(&proc);
}

/* ---- ctrun slurm ---- */

Test(slurm_env, the_written_script_is_one_that_bash_reads)
{
    struct proc proc;
    const char *const check[] = {"bash", "-n", "job.sbatch", NULL};

    cr_assert_eq(e2e_run(&proc, "slurm", "--requeue", "--time", "1:00:00", "--sbatch",
                         "--mail-type=END", "--nnodes=2:4", "--nproc_per_node=8",
                         e2e_in_root("configs/digits_mlp.yaml"), "--optim.lr", "0.05", NULL),
                 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "#SBATCH --job-name=digits_mlp\n#SBATCH --nodes=4\n");
    e2e_said(&proc, "#SBATCH --cpus-per-task=8\n");
    e2e_said(&proc, "#SBATCH --no-kill\n");
    e2e_said(&proc, "#SBATCH --time=1:00:00\n");
    e2e_said(&proc, "#SBATCH --mail-type=END\n");
    e2e_said(&proc, "--nnodes=2:4 --nproc_per_node=8 ");
    (void)e2e_write("job.sbatch", ct_buf_str(&proc.text));
    proc_free(&proc);
    cr_assert_eq(proc_run(&proc, check, NULL, 20), 0, "%s", ct_buf_str(&proc.text));
    proc_free(&proc);
}

Test(slurm_env, a_wrong_configuration_is_found_before_the_job_waits_in_a_queue)
{
    struct proc proc;

    cr_assert_eq(e2e_run(&proc, "slurm", "--nnodes=2", e2e_in_root("configs/digits_mlp.yaml"),
                         "--optim.lrr=1", NULL),
                 2);
    e2e_said(&proc, "--optim.lrr");
    e2e_not_said(&proc, "#SBATCH");
    proc_free(&proc);
    cr_assert_eq(e2e_run(&proc, "slurm", "--sbatch", "mail", "/bin/true", NULL), 2);
    e2e_said(&proc, "--sbatch wants an option of sbatch in one word");
    proc_free(&proc);
}

/* The batch script's key is there for the step and gone after it, however either of them ends. */
Test(slurm_env, the_key_of_a_batch_script_goes_with_it_whoever_is_killed)
{
    static const char *const ends[] = {"exit 0", "kill -KILL $$", "kill -TERM $PPID; sleep 1"};
    static const int statuses[] = {0, 128 + 9, 128 + 15};
    const char *key = "home/.ctrun/job-7.key";
    char path[PATH_MAX + 64], home[PATH_MAX], batch[PATH_MAX], stub[256];
    struct proc run;

    (void)mkdir(e2e_in_folder("home"), 0700);
    (void)mkdir(e2e_in_folder("home/.ctrun"), 0700);
    for (int requeue = 0; requeue < 2; requeue++) {
        cr_assert_eq(e2e_run(&run, "slurm", requeue ? "--requeue" : "--time=1", "--nnodes=2",
                             "--nproc_per_node=1", "/bin/true", NULL),
                     0, "%s", ct_buf_str(&run.text));
        (void)snprintf(batch, sizeof batch, "%s", e2e_write("batch.sh", ct_buf_str(&run.text)));
        proc_free(&run);
        for (size_t i = 0; i < CT_COUNT(ends); i++) {
            (void)snprintf(stub, sizeof stub, "#!/bin/sh\nls \"$HOME/.ctrun\" > seen\n%s\n",
                           ends[i]);
            (void)e2e_script("srun", stub);
            (void)e2e_write(key, "left by a killed one");
            (void)snprintf(path, sizeof path, "PATH=%s:%s", e2e_in_folder(""), getenv("PATH"));
            (void)snprintf(home, sizeof home, "HOME=%s", e2e_in_folder("home"));
            const char *const env[] = {path, home, "SLURM_JOB_ID=7", NULL};
            const char *const argv[] = {"bash", batch, NULL};
            cr_assert_eq(proc_run(&run, argv, env, 20), statuses[i], "%s: %s", ends[i],
                         ct_buf_str(&run.text));
            cr_assert_str_eq(e2e_wait_file("seen", 1), "job-7.key\n");
            cr_assert_not(e2e_exists(key), "%s", ends[i]);
            proc_free(&run);
        }
    }
}
