/* ctrun k8s, and its manifests run by pods.py as Kubernetes would: each pod in namespaces of its
 * own, with the variables that Kubernetes sets. */
#include "e2e.h"

#include "base/assert.h"
#include "cluster/hosts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(kubernetes, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

#define K8S "k8s", "--image", "registry.example/ctrun:1"

static void needs_pods(void)
{
    const char *const argv[] = {"/usr/bin/python3", "-c", "import yaml", NULL};
    struct proc proc;
    int status;

    if (!hosts_can_be_made())
        cr_skip_test("pods are namespaces, which need root");
    status = proc_run(&proc, argv, NULL, 20);
    proc_free(&proc);
    if (status != 0)
        cr_skip_test("pods.py needs python3-yaml: scripts/deps --test");
}

/* The manifest on standard output goes to a file of that name. */
static const char *keep(struct proc *manifest)
{
    const char *path = e2e_write("job.yaml", ct_buf_str(&manifest->text));

    proc_free(manifest);
    return path;
}

/* `folder` is /run/image in the pods. */
static void run_pods(struct proc *pods, const char *manifest, const char *scenario,
                     const char *folder)
{
    struct proc key;
    const char *const argv[] = {"/usr/bin/python3",
                                e2e_in_root("tests/e2e/kubernetes/pods.py"),
                                proc_program("."),
                                manifest,
                                e2e_in_folder("job.key"),
                                scenario,
                                folder,
                                NULL};

    cr_assert_eq(chmod(e2e_in_folder(""), 0755), 0); /* pods are another user's */
    cr_assert_eq(e2e_run(&key, "key", "new", e2e_in_folder("job.key"), NULL), 0);
    proc_free(&key);
    cr_assert_eq(proc_run(pods, argv, NULL, 90), 0, "%s", ct_buf_str(&pods->text));
}

Test(kubernetes, a_training_of_two_pods_meets_by_name_and_trains)
{
    struct proc manifest, pods;

    needs_pods();
    cr_assert_eq(e2e_run(&manifest, K8S, "--nnodes", "2", "--nproc_per_node", "1", "--folder",
                         "/run/image", "--train.epochs", "2",
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&manifest.text));
    run_pods(&pods, keep(&manifest), "run", e2e_in_root("configs"));
    e2e_said(&pods, "as node 0 of 2 (2 ranks)");
    e2e_said(&pods, "digits-mlp-0 ended with 0: Success");
    e2e_said(&pods, "digits-mlp-1 ended with 0: Success");
    e2e_said(&pods, "Job complete");
    proc_free(&pods);
}

/* SIGTERM drains the node of an elastic job; its status has Kubernetes start another pod, which
 * joins. */
Test(kubernetes, an_evicted_pod_leaves_the_job_and_its_replacement_joins)
{
    struct proc manifest, pods;

    needs_pods();
    (void)e2e_script("nap", "#!/bin/sh\n"
                            "echo \"world $WORLD_SIZE\"\n"
                            "until test -e /work/enough; do sleep 0.05; done\n");
    cr_assert_eq(e2e_run(&manifest, K8S, "--nnodes", "2:3", "--nproc_per_node", "1", "--grow",
                         "100ms", "--no-python", "/run/image/nap", NULL),
                 0, "%s", ct_buf_str(&manifest.text));
    run_pods(&pods, keep(&manifest), "evict", e2e_in_folder(""));
    e2e_said(&pods, "stopped by SIGTERM; 1 worker ended");
    e2e_said(&pods, "nap-1 ended with 143: Ignore");
    e2e_said(&pods, "world 2\n");
    e2e_said(&pods, "pod 1 is another one");
    e2e_said(&pods, "Job complete");
    proc_free(&pods);
}

Test(kubernetes, every_pod_of_a_failed_job_says_the_root_cause_in_its_termination_message)
{
    struct proc manifest, pods;

    needs_pods();
    (void)e2e_script("fails", "#!/bin/sh\n"
                              "test \"$RANK\" = 0 || { echo the disk is on fire >&2; exit 7; }\n"
                              "sleep 60\n");
    cr_assert_eq(e2e_run(&manifest, K8S, "--nnodes", "2", "--nproc_per_node", "1", "--no-python",
                         "/run/image/fails", NULL),
                 0, "%s", ct_buf_str(&manifest.text));
    run_pods(&pods, keep(&manifest), "run", e2e_in_folder(""));
    e2e_said(&pods, "fails-0 ended with 7: FailJob");
    e2e_said(&pods, "fails-1 ended with 7: FailJob");
    e2e_said(&pods,
             "message of fails-0: ctrun: job \"fails\" failed: rank 1 (node 1, host fails-1");
    e2e_said(&pods,
             "message of fails-1: ctrun: job \"fails\" failed: rank 1 (node 1, host fails-1");
    e2e_said(&pods, "message of fails-0:   | the disk is on fire");
    e2e_said(&pods, "Job failed");
    proc_free(&pods);
}

Test(kubernetes, what_kubernetes_would_refuse_is_refused_with_the_remedy)
{
    static const struct {
        const char *words[7];
        const char *said;
    } rows[] = {
        {{"k8s", "train.py"}, "ctrun k8s wants --image IMAGE"},
        {{K8S, "--name", "My_Job", "train.py"}, "--name My_Job is no name in Kubernetes"},
        {{K8S, "--name=9to5", "train.py"}, "--name 9to5 is no name"},
        {{K8S, "--memory", "lots", "train.py"}, "--memory lots is no amount such as"},
        {{K8S, "--folder", "configs", "train.py"}, "--folder configs is no absolute path"},
        {{K8S, "--cpu"}, "--cpu wants a value"},
        {{K8S, "--claims", "x", "train.py"}, "did you mean --claim?"},
        {{K8S, "--nnodes", "0", "train.py"}, "nnodes"},
        {{K8S}, "nothing to run"},
    };
    struct proc proc;

    (void)e2e_write("train.py", "");
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        const char *const *words = rows[i].words;
        cr_assert_eq(e2e_run(&proc, words[0], words[1], words[2], words[3], words[4], words[5],
                             words[6], NULL),
                     2, "row %zu: %s", i, ct_buf_str(&proc.text));
        e2e_said(&proc, rows[i].said);
        proc_free(&proc);
    }
}

Test(kubernetes, an_index_that_is_no_node_of_the_job_is_refused)
{
    const char *const env[] = {"KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=2", NULL};
    const char *const argv[] = {proc_program("ctrun"), "--nnodes",    "2",
                                "--rdzv_endpoint",     "127.0.0.1:1", "--no-python",
                                "/bin/true",           NULL};
    const char *const alone[] = {proc_program("ctrun"), "--no-python", "/bin/true", NULL};
    struct proc proc;

    cr_assert_eq(proc_run(&proc, argv, env, 20), 2, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "JOB_COMPLETION_INDEX=2 is no node of a job of 2");
    proc_free(&proc);
    cr_assert_eq(proc_run(&proc, alone, env, 20), 0, "a job of one node has no use for it: %s",
                 ct_buf_str(&proc.text));
    proc_free(&proc);
}
