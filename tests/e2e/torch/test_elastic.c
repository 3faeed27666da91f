/* Trainings in PyTorch whose processes live on when ranks are lost or join
 * (lib/python/ctrun/torch): tests/e2e/torch/elastic.py, on one node and on two. */
#include "e2e.h"
#include "torch/interpreter.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(torch_elastic, .init = e2e_enter, .fini = e2e_leave, .timeout = 300);

enum { SECONDS = 120 };

/* What a rank has written at its end. */
struct end {
    int pid, step, world, regroups;
    char digest[32];
};

static struct end end_of(int rank)
{
    struct end end = {0};
    char name[32];

    (void)snprintf(name, sizeof name, "end_%d", rank);
    const char *text = e2e_read(e2e_in_folder(name));
    cr_assert_eq(sscanf(text, "%d %d %d %d %31s", &end.pid, &end.step, &end.world, &end.regroups,
                        end.digest),
                 5, "rank %d has not ended: \"%s\"", rank, text);
    return end;
}

/* All ranks ended with the same; that of rank 0. */
static struct end ends_of(int ranks)
{
    struct end first = end_of(0);

    cr_assert_eq(first.world, ranks);
    for (int rank = 1; rank < ranks; rank++) {
        struct end end = end_of(rank);

        cr_assert_eq(end.step, first.step);
        cr_assert_str_eq(end.digest, first.digest, "ranks 0 and %d end with other parameters",
                         rank);
    }
    return first;
}

static int processes(void)
{
    glob_t found;

    cr_assert_eq(glob(e2e_in_folder("pid_*"), 0, NULL, &found), 0);
    int count = (int)found.gl_pathc;
    globfree(&found);
    return count;
}

static void forget(const char *pattern)
{
    glob_t found;

    if (glob(e2e_in_folder(pattern), 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            (void)unlink(found.gl_pathv[i]);
    globfree(&found);
}

struct training {
    const char *backend, *epochs, *fault, *checkpoint;
    const char *nodes; /* MIN:MAX, with `endpoint`; NULL: one node */
    const char *endpoint, *ranks;
};

static void start(struct proc *run, const struct training *training)
{
    static char fault[64], checkpoint[64];
    const char *argv[24] = {proc_program("ctrun"),
                            "--nproc_per_node",
                            training->ranks,
                            "--max_restarts",
                            "5",
                            "--grow",
                            "100ms",
                            "--requeue_signals",
                            "SIGUSR1"};
    const char *env[12];
    int count = 9, words = torch_environment(env, 8);

    (void)snprintf(fault, sizeof fault, "FAULT=%s", training->fault);
    env[words++] = fault;
    if (training->checkpoint != NULL) {
        (void)snprintf(checkpoint, sizeof checkpoint, "CHECKPOINT=%s", training->checkpoint);
        env[words++] = checkpoint;
    }
    env[words] = NULL;
    if (training->nodes != NULL) {
        argv[count++] = "--nnodes";
        argv[count++] = training->nodes;
        argv[count++] = "--rdzv_endpoint";
        argv[count++] = training->endpoint;
    }
    argv[count++] = e2e_in_root("tests/e2e/torch/elastic.py");
    argv[count++] = training->backend;
    argv[count++] = training->epochs;
    argv[count] = NULL;
    proc_start(run, argv, env);
}

/* Run it to its end; its exit status. */
static int train(const struct training *training, const char *says)
{
    struct proc run;

    start(&run, training);
    int status = proc_finish(&run, SECONDS);
    cr_assert(status == 0 || training->fault[0] == 's', "%s", ct_buf_str(&run.text));
    if (says != NULL)
        e2e_said(&run, says);
    proc_free(&run);
    return status;
}

/* Two trainings of `ranks` ranks, one of which loses rank 1: all but that process live on, and the
 * parameters are equal bit for bit. */
static void survive(const char *backend, const char *ranks, const char *says)
{
    struct training training = {.backend = backend, .epochs = "2", .fault = "", .ranks = ranks};
    int count = atoi(ranks), kept = 0;

    train(&training, NULL);
    struct end calm = ends_of(count);
    cr_assert_eq(processes(), count);
    forget("*");
    training.fault = "kill:17:1";
    train(&training, says);
    struct end end = ends_of(count);
    cr_assert_str_eq(end.digest, calm.digest, "not the bits of the training without a fault");
    cr_assert_eq(end.step, calm.step);
    cr_assert_eq(processes(), count + 1);
    for (int rank = 0; rank < count; rank++)
        kept += end_of(rank).regroups == 1;
    cr_assert_eq(kept, count - 1, "%d of the processes have lived on", kept);
}

Test(torch_elastic, survivors_keep_their_processes_and_the_result_is_that_of_a_calm_run)
{
    survive("ctrun", "3", "2 of 3 workers continue from step");
}

/* Of more than two ranks gloo's sums depend on where an element lies in its bucket. */
Test(torch_elastic, so_they_do_over_gloo)
{
    survive("gloo", "2", "1 of 2 workers continue from step");
}

/* Train on from what is saved until rank 1 has sent a signal to its ctrun, in its own step 20 or
 * behind; return the step at which both ended. */
static int stop(struct training *training, const char *fault, int status)
{
    training->fault = fault;
    forget("end_*");
    forget("happened");
    cr_assert_eq(train(training, NULL), status);
    return ends_of(2).step;
}

Test(torch_elastic,
     a_stop_is_agreed_on_at_one_step_and_saved_and_the_rest_gives_the_bits_of_one_run)
{
    struct training training = {.backend = "ctrun", .epochs = "2", .fault = "", .ranks = "2"};

    train(&training, NULL);
    struct end calm = ends_of(2);
    forget("*");
    training.checkpoint = "saved";
    int first = stop(&training, "stop:20:1", 128 + SIGTERM);
    int second = stop(&training, "signal of Slurm:50:1", 75);
    cr_assert(20 < first && first < 50 && 50 < second && second < calm.step, "%d, %d", first,
              second);
    forget("end_*");
    training.fault = "";
    train(&training, NULL);
    struct end end = ends_of(2);
    cr_assert_eq(end.step, calm.step);
    cr_assert_str_eq(end.digest, calm.digest);
    cr_assert_str_eq(e2e_read(e2e_in_folder("saved/latest")), "step_00000089.pt\n");
}

Test(torch_elastic, the_example_trains)
{
    struct proc run;
    const char *const argv[] = {proc_program("ctrun"), "--nproc_per_node", "2",
                                e2e_in_root("lib/python/examples/elastic_ddp.py"), NULL};
    const char *env[12];

    env[torch_environment(env, 11)] = NULL;
    cr_assert_eq(proc_run(&run, argv, env, SECONDS), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "after 256 steps 96.");
    proc_free(&run);
}

static bool has_begun(void *context)
{
    return atoi(e2e_read(e2e_in_folder("step"))) > *(int *)context;
}

Test(torch_elastic, a_node_joins_and_a_node_is_lost_and_the_first_ones_process_trains_on)
{
    struct training training = {
        .backend = "ctrun", .epochs = "2", .fault = "slow", .ranks = "1", .nodes = "1:2"};
    struct proc daemon, first, second;
    int step = 3;

    training.endpoint = e2e_daemon(&daemon);
    start(&first, &training);
    proc_until(has_begun, &step, 60, "the first step");
    start(&second, &training);
    (void)proc_wait_text(&first, "2 ranks from now on", 60);
    step = atoi(e2e_read(e2e_in_folder("step"))) + 3;
    proc_until(has_begun, &step, 60, "steps of both");
    cr_assert_eq(processes(), 2);
    cr_assert_eq(kill(second.pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(&first, SECONDS), 0, "%s", ct_buf_str(&first.text));
    e2e_said(&first, "another node was lost; 1 of 1 workers continue");
    struct end end = ends_of(1);
    cr_assert_eq(end.regroups, 2, "it has lived through %d rounds", end.regroups);
    cr_assert_eq(processes(), 2);
    (void)proc_finish(&second, 10);
    proc_free(&first);
    proc_free(&second);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    proc_free(&daemon);
}
