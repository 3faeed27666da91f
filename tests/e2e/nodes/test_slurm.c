/* ctrun under a real Slurm: each batch file of scripts/slurm, lost nodes, jobs queued again. What
 * ctrun makes of Slurm's variables is in test_slurm_env.c. */
#include "cluster.h"
#include "e2e.h"
#include "slurm_cluster.h"
#include "speech.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void leave(void)
{
    slurm_down();
    e2e_leave();
}

TestSuite(slurm, .init = e2e_enter, .fini = leave, .timeout = 240);

static const char *digits(void)
{
    return e2e_in_root("configs/digits_mlp.yaml");
}

static const char *script(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof path, "scripts/slurm/%s.sbatch", name);
    return e2e_in_root(path);
}

/* What the job wrote: "ctrun-<job>.out". */
static const char *output_of(int job)
{
    static char names[4][64];
    static unsigned next;
    char *name = names[next++ % 4];

    (void)snprintf(name, 64, "ctrun-%d.out", job);
    return name;
}

static void expect_output(const char *output, const char *words)
{
    const char *text = speech_words(e2e_read(output));

    cr_assert_not_null(strstr(text, words), "\"%s\" is missing in %s:\n%s", words, output, text);
}

struct wanted {
    const char *output, *words;
};

static bool has_words(void *context)
{
    const struct wanted *wanted = context;

    return strstr(speech_words(e2e_read(wanted->output)), wanted->words) != NULL;
}

static void wait_for_words(const char *output, const char *words, double seconds)
{
    struct wanted wanted = {output, words};

    proc_until(has_words, &wanted, seconds, words);
}

Test(slurm, a_script_for_one_node_and_one_for_an_array_run_to_their_ends)
{
    slurm_up(2);
    int one = slurm_submit(script("one_node"), digits(), NULL);
    int array = slurm_submit("--array=0-1", script("array"), digits(), NULL);
    char path[128];

    slurm_wait_completed(one, output_of(one), 90);
    expect_output(output_of(one), "steps on 2 workers");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "ctrun-%d_%d.out", array, i);
        wait_for_words(path, "steps on 2 workers", 90);
        (void)snprintf(path, sizeof path, "runs/array-%d/%d/checkpoints/latest", array, i);
        cr_assert(e2e_exists(path), "%s", path);
    }
}

Test(slurm, nodes_find_each_other_without_any_option)
{
    slurm_up(3);
    const char *show = e2e_script(
        "show",
        "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME, node $GROUP_RANK, "
        "job $TORCHELASTIC_RUN_ID, $OMP_NUM_THREADS threads, master $MASTER_ADDR\"\n");
    int job = slurm_submit("--nodes=3", script("many_nodes"), show, NULL);
    char words[128];

    slurm_wait_completed(job, output_of(job), 60);
    for (int rank = 0; rank < 6; rank++) {
        (void)snprintf(words, sizeof words,
                       "rank %d of 6 on host%d, node %d, job %d.0, 1 threads, master 127.0.0.1",
                       rank, rank / 2 + 1, rank / 2, job);
        expect_output(output_of(job), words);
    }
    cr_assert_not(e2e_exists(".ctrun"), "munge says who the nodes are: no key is made");
}

Test(slurm, a_world_that_contradicts_slurm_is_refused)
{
    slurm_up(2);
    cr_assert_neq(slurm_command("srun", "--nodes=2", "--ntasks=4", "ctrun", "/bin/true", NULL), 0);
    cr_assert_not_null(strstr(slurm_said(), "srun starts 2 ctrun on this node"), "%s",
                       slurm_said());
    cr_assert_neq(slurm_command("srun", "--nodes=2", "--ntasks-per-node=1", "ctrun", "--nnodes=1",
                                "/bin/true", NULL),
                  0);
    cr_assert_not_null(strstr(slurm_said(), "Slurm runs this step on 2"), "%s", slurm_said());
    cr_assert_neq(slurm_command("srun", "--nodes=2", "--ntasks-per-node=1", "ctrun", "--standalone",
                                "/bin/true", NULL),
                  0);
    cr_assert_not_null(strstr(slurm_said(), "leave it out"), "%s", slurm_said());
}

Test(slurm, ctrun_slurm_submits_what_it_writes)
{
    slurm_up(2);
    const char *show = e2e_script("show", "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE: $1\"\n");

    cr_assert_eq(slurm_command("ctrun", "slurm", "--submit", "--requeue", "--time=2",
                               "--output=ctrun-%j.out", "--nnodes=2", "--nproc_per_node=2", show,
                               "it's $HOME", NULL),
                 0, "%s", slurm_said());
    cr_assert_not_null(strstr(slurm_said(), "Submitted batch job 1"), "%s", slurm_said());
    slurm_wait_completed(1, output_of(1), 60);
    expect_output(output_of(1), "rank 3 of 4: it's $HOME\n");
    cr_assert_not(e2e_exists(".ctrun/job-1.key"), "the key of a job that is over is removed");
}

Test(slurm, a_lost_node_of_an_elastic_job_that_is_not_killed_is_survived)
{
    slurm_up(3);
    int job = slurm_submit("--nodes=3", "--cpus-per-task=1", script("elastic_no_kill"), digits(),
                           "--train.epochs=5", "--model.hidden=512,512", NULL);

    wait_for_words(output_of(job), "epoch 1/", 60);
    slurm_lose(2);
    slurm_wait_completed(job, output_of(job), 120);
    expect_output(output_of(job), "node was lost");
    expect_output(output_of(job), "step 225/225");
    cr_assert_str_eq(slurm_field(job, "Restarts"), "0");
}

/* Cut off before it loses power, it is silent: no kernel refuses anything. Slurm finds out. */
Test(slurm, of_two_nodes_the_one_that_is_left_goes_on_when_slurm_reports_the_other_down)
{
    struct proc step;

    slurm_up(2);
    slurm_start(&step, "srun", "--nodes=2", "--ntasks-per-node=1", "--no-kill", "--wait=0",
                "--kill-on-bad-exit=0", "--label", "ctrun", "--nnodes=1:2", "--max_restarts=10",
                "--nproc_per_node=1", "--lease=2s", "--log.level=debug", digits(),
                "--train.epochs=10", "--model.hidden=512,512", NULL);
    (void)proc_wait_text(&step, "is held by 2 hosts", 60);
    (void)proc_wait_text(&step, "epoch 1/", 60);
    cluster_cut(1);
    slurm_lose(1);
    (void)proc_wait_text(&step, "; Slurm does not report node host1 down (", 60);
    (void)proc_wait_text(&step, "alone: Slurm reports the nodes of all others down", 60);
    (void)proc_wait_text(&step, "step 450/450", 60);
    proc_free(&step);
}

struct wanted_count {
    const char *output, *words;
    int count;
};

static bool has_count(void *context)
{
    const struct wanted_count *wanted = context;

    return e2e_count(speech_words(e2e_read(wanted->output)), wanted->words) >= wanted->count;
}

static void wait_for_count(const char *output, const char *words, int count, double seconds)
{
    struct wanted_count wanted = {output, words, count};

    proc_until(has_count, &wanted, seconds, words);
}

static bool is_over(void *context)
{
    return strcmp(slurm_field(*(int *)context, "JobState"), "RUNNING") != 0;
}

/* The signals of a step go to every process in it where Slurm follows processes by their parents.
 */
Test(slurm, each_worker_gets_each_signal_of_slurm_once)
{
    static const char *const names[] = {"USR1", "USR2", "TERM"};
    char step[32], option[32], words[64];
    const char *output;

    slurm_up(2);
    int job = slurm_submit("--nodes=2", script("many_nodes"),
                           proc_program("../tests/programs/signals"), NULL);
    output = output_of(job);
    (void)snprintf(step, sizeof step, "%d.0", job);
    wait_for_count(output, "ready\n", 4, 60);
    for (size_t i = 0; i < CT_COUNT(names); i++) {
        (void)snprintf(option, sizeof option, "--signal=%s", names[i]);
        cr_assert_eq(slurm_command("scancel", option, step, NULL), 0, "%s", slurm_said());
        (void)snprintf(words, sizeof words, "got %s from ", names[i]);
        wait_for_count(output, words, 4, 30);
    }
    proc_until(is_over, &job, 30, "the end of the job");
    for (size_t i = 0; i < CT_COUNT(names); i++) {
        (void)snprintf(words, sizeof words, "got %s from ", names[i]);
        cr_assert_eq(e2e_count(speech_words(e2e_read(output)), words), 4, "%s\n%s", words,
                     speech_words(e2e_read(output)));
    }
}

/* A training of so many steps, as a file: it may be another one when the job starts again. */
static const char *write_training(int steps)
{
    char text[PATH_MAX + 512];

    (void)snprintf(text, sizeof text,
                   "model: {classes: 10}\n"
                   "data: {train: {path: %s, scale: 0.0625}}\n"
                   "batch: {global: 32}\n"
                   "train: {epochs: 0, steps: %d}\n"
                   "checkpoint: {dir: checkpoints, every: 0, resume: none}\n"
                   "log: {every: 1000, dir: run}\n",
                   e2e_in_root("configs/data/digits.csv.gz"), steps);
    return e2e_write("long.yaml", text);
}

/* The number behind `words` in the job's output. */
static int number_after(const char *output, const char *words)
{
    const char *at = strstr(speech_words(e2e_read(output)), words);

    cr_assert_not_null(at, "\"%s\" is missing in:\n%s", words, speech_words(e2e_read(output)));
    return atoi(at + strlen(words));
}

/* Slurm looks every 30 s whose time will be up by its next look: after 10 to 40 s here. */
Test(slurm, a_training_whose_time_is_up_saves_is_queued_again_and_goes_on)
{
    slurm_up(2);
    int job = slurm_submit("--nodes=2", "--time=1", "--signal=B:USR1@20", "--cpus-per-task=1",
                           script("requeue"), write_training(100000000), NULL);
    char words[128];

    slurm_wait_restarted(job, output_of(job), 90);
    int step = number_after(output_of(job), "stopped after step ");
    cr_assert_gt(step, 0);
    (void)write_training(step + 500);
    slurm_wait_completed(job, output_of(job), 90);
    (void)snprintf(words, sizeof words, "step_%08d, step %d of %d\n", step, step, step + 500);
    expect_output(output_of(job), words);
    expect_output(output_of(job), "Exited with exit code 75");
    expect_output(output_of(job), "Slurm has queued this job again 1 time\n");
    (void)snprintf(words, sizeof words, "checkpoints/step_%08d", step + 500);
    cr_assert(e2e_exists(words), "%s", words);
}
