/* Jobs on machines with GPUs, for machines without: /proc/driver/nvidia and what the kernel says
 * about buses and NUMA nodes are files of the test, mounted in a namespace of its own. */
#include "e2e.h"

#include "base/bytes.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(gpus, .timeout = 120, .init = e2e_enter, .fini = e2e_leave);

/* Two cards on two NUMA nodes of a CPU each; the first card is on the second node. */
static const char machine[] =
    "#!/bin/sh -e\n"
    "mount -t tmpfs none /proc/driver\n"
    "mount -t tmpfs none /sys/bus/pci/devices\n"
    "mount -t tmpfs none /sys/devices/system/node\n"
    "nodes=/sys/devices/system/node\n"
    "mkdir $nodes/node0 $nodes/node1\n"
    "echo 0-1 >$nodes/online\n"
    "echo 0 >$nodes/node0/cpulist\n"
    "echo 1 >$nodes/node1/cpulist\n"
    "card() {\n"
    "    mkdir -p /proc/driver/nvidia/gpus/$1 /sys/bus/pci/devices/$1\n"
    "    echo $4 >/sys/bus/pci/devices/$1/numa_node\n"
    "    printf 'Model: \\t\\t %s\\nGPU UUID: \\t %s\\nDevice Minor: \\t %s\\n' 'NVIDIA X' $2 $3"
    " >/proc/driver/nvidia/gpus/$1/information\n"
    "}\n"
    "card 0000:1a:00.0 GPU-a 0 1\n"
    "card 0000:2a:00.0 GPU-b 1 0\n"
    "exec \"$@\"\n";

static const char *show(void)
{
    return e2e_script("show", "#!/bin/sh\necho \"$RANK: local $LOCAL_RANK of $LOCAL_WORLD_SIZE, "
                              "sees ${CUDA_VISIBLE_DEVICES-all}, runs on $(sed -n "
                              "'s/Cpus_allowed_list:.//p' /proc/self/status), $OMP_NUM_THREADS "
                              "thread\"\n");
}

/* Start ctrun on that machine; skips where no namespace can be made. `env` and `words` end with
 * NULL. */
static void start_on_machine(struct proc *run, const char *const env[], const char *const words[])
{
    const char *argv[32] = {"unshare", "-m", "true", NULL};
    int count = 0;
    struct proc trial;

    bool possible =
        proc_run(&trial, argv, NULL, 30) == 0 && access("/sys/devices/system/node", F_OK) == 0 &&
        access("/sys/bus/pci/devices", F_OK) == 0 && access("/dev/nvidiactl", F_OK) != 0;
    proc_free(&trial);
    if (!possible)
        cr_skip_test("skipped: needs root for a namespace of mounts, and no real GPU");
    argv[2] = e2e_script("machine", machine);
    argv[3] = proc_program("ctrun");
    for (count = 4; words[count - 4] != NULL; count++)
        argv[count] = words[count - 4];
    argv[count] = NULL;
    proc_start(run, argv, env);
}

static void run_on_machine(struct proc *run, const char *const env[], const char *const words[])
{
    start_on_machine(run, env, words);
    cr_assert_eq(proc_finish(run, 60), 0, "%s", ct_buf_str(&run->text));
}

static bool has_two_cpus(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_ISSET(0, &cpus) &&
           CPU_ISSET(1, &cpus);
}

/* ---- what workers get ----------------------------------------------------------------------- */

Test(gpus, one_worker_a_gpu_runs_on_the_node_of_its_gpu)
{
    struct proc run;

    if (!has_two_cpus())
        cr_skip_test("skipped: needs CPUs 0 and 1");
    run_on_machine(&run, NULL, (const char *const[]){"--nproc_per_node=gpu", show(), NULL});
    e2e_said(&run, "] 0: local 0 of 2, sees all, runs on 1, 1 thread\n");
    e2e_said(&run, "] 1: local 1 of 2, sees all, runs on 0, 1 thread\n");
    e2e_not_said(&run, "not bound");
    proc_free(&run);
}

Test(gpus, named_cards_are_counted_and_their_order_is_the_workers)
{
    static const char *const env[] = {"CUDA_VISIBLE_DEVICES=GPU-b,GPU-a,GPU-c", NULL};
    struct proc run;

    if (!has_two_cpus())
        cr_skip_test("skipped: needs CPUs 0 and 1");
    run_on_machine(&run, env, (const char *const[]){"--nproc_per_node=gpu", show(), NULL});
    e2e_said(&run, "] 0: local 0 of 2, sees GPU-b,GPU-a,GPU-c, runs on 0, ");
    e2e_said(&run, "] 1: local 1 of 2, sees GPU-b,GPU-a,GPU-c, runs on 1, ");
    proc_free(&run);
}

Test(gpus, a_users_own_binding_holds_and_is_told_where_it_keeps_workers_from_their_gpus)
{
    struct proc run;

    if (!has_two_cpus())
        cr_skip_test("skipped: needs CPUs 0 and 1");
    cpu_set_t own, all;
    (void)sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&own);
    CPU_SET(1, &own);
    (void)sched_setaffinity(0, sizeof own, &own);
    run_on_machine(&run, NULL, (const char *const[]){"--nproc_per_node=gpu", show(), NULL});
    (void)sched_setaffinity(0, sizeof all, &all);
    e2e_said(&run, "GPU 0000:2a:00.0, of local rank 1, is on NUMA node 0, of which this process "
                   "may use no CPU");
    e2e_said(&run, "] 0: local 0 of 2, sees all, runs on 1, ");
    e2e_said(&run, "] 1: local 1 of 2, sees all, runs on 1, ");
    proc_free(&run);
}

Test(gpus, what_the_user_says_of_cpus_wins)
{
    struct proc run;

    if (!has_two_cpus())
        cr_skip_test("skipped: needs CPUs 0 and 1");
    run_on_machine(
        &run, NULL,
        (const char *const[]){"--nproc_per_node=gpu", "--numa_binding=none", show(), NULL});
    e2e_said(&run, "] 0: local 0 of 2, sees all, runs on 0, ");
    e2e_said(&run, "] 1: local 1 of 2, sees all, runs on 1, ");
    proc_free(&run);
    run_on_machine(
        &run, NULL,
        (const char *const[]){"--nproc_per_node=gpu", "--cpu_affinity=none", show(), NULL});
    e2e_said(&run, "] 0: local 0 of 2, sees all, runs on 0");
    e2e_not_said(&run, "runs on 1");
    proc_free(&run);
}

Test(gpus, each_worker_sees_one_of_the_mig_devices_that_are_named)
{
    static const char *const env[] = {"CUDA_VISIBLE_DEVICES=MIG-7,MIG-8,MIG-9", NULL};
    struct proc run;

    run_on_machine(&run, env, (const char *const[]){"--nproc_per_node=gpu", show(), NULL});
    e2e_said(&run, "] 0: local 0 of 3, sees MIG-7, ");
    e2e_said(&run, "] 1: local 0 of 3, sees MIG-8, ");
    e2e_said(&run, "] 2: local 0 of 3, sees MIG-9, ");
    e2e_said(&run, "CUDA opens one MIG device a process: each worker sees the one of its place");
    proc_free(&run);
    run_on_machine(
        &run, env,
        (const char *const[]){"--nproc_per_node=gpu", "--virtual_local_rank=no", show(), NULL});
    e2e_said(&run, "] 2: local 2 of 3, sees MIG-7,MIG-8,MIG-9, ");
    proc_free(&run);
}

/* Variables of this process of that prefix that are not in `env`. */
static int others(const char *prefix, const char *const env[])
{
    int count = 0;

    for (char **at = environ; *at != NULL; at++) {
        bool own = strncmp(*at, prefix, strlen(prefix)) != 0;

        for (int i = 0; env[i] != NULL; i++)
            own |= strncmp(*at, env[i], strcspn(env[i], "=") + 1) == 0;
        count += !own;
    }
    return count;
}

Test(gpus, what_the_user_says_to_cuda_and_nccl_reaches_the_workers)
{
    static const char *const env[] = {"NCCL_DEBUG=INFO",
                                      "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
                                      "NCCL_SOCKET_IFNAME=^lo,docker",
                                      "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                                      "CUDA_LAUNCH_BLOCKING=1",
                                      "CUDA_VISIBLE_DEVICES=1,0",
                                      "TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
                                      "NVIDIA_VISIBLE_DEVICES=all",
                                      "OMP_NUM_THREADS=5",
                                      NULL};
    const char *words = e2e_script("words", "#!/bin/sh\nenv\n");
    char line[160];
    struct proc run;

    run_on_machine(&run, env, (const char *const[]){"--nproc_per_node=gpu", words, NULL});
    for (int i = 0; env[i] != NULL; i++)
        for (int rank = 0; rank < 2; rank++) {
            (void)snprintf(line, sizeof line, "[0:%d] %s\n", rank, env[i]);
            cr_assert_eq(e2e_count(ct_buf_str(&run.text), line), 1, "%s%s", line,
                         ct_buf_str(&run.text));
        }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), i == 0 ? "] NCCL_" : "] CUDA_"),
                     2 * (3 + others(i == 0 ? "NCCL_" : "CUDA_", env)), "and nothing else: %s",
                     ct_buf_str(&run.text));
    proc_free(&run);
}

/* ---- how GPUs are --------------------------------------------------------------------------- */

/* Words for the environment: the fake NVML, beside this program, with these faults. */
static const char *const *with_nvml(const char *folder, const char *faults)
{
    static char path[600], words[128];
    static const char *env[] = {path, words, NULL};
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    cr_assert_gt(length, 0);
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    (void)snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/%s", self, folder);
    (void)snprintf(words, sizeof words, "FAKENVML=%s", faults);
    return env;
}

/* Until ctrun has said `words`, its worker waits. */
static void run_until_said(struct proc *run, const char *const env[], const char *const more[],
                           const char *words)
{
    const char *wait = e2e_script("wait", "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n");
    const char *args[8] = {"--nproc_per_node=gpu"};
    int count = 1;

    for (; more != NULL && more[count - 1] != NULL; count++)
        args[count] = more[count - 1];
    args[count] = wait;
    (void)unlink(e2e_in_folder("go")); /* of a run before */
    start_on_machine(run, env, args);
    (void)proc_wait_text(run, words, 60);
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(run, 60), 0, "%s", ct_buf_str(&run->text));
}

Test(gpus, healthy_ones_are_one_line_at_the_start)
{
    struct proc run;

    run_until_said(&run, with_nvml("fakenvml", ""), NULL, "driver 580.95.05\n");
    e2e_said(&run, "GPUs: 2 x NVIDIA X, 79.0 of 80.0 GiB free or more, at most 41 C, driver ");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "GPU"), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(gpus, what_is_wrong_with_one_is_told_with_the_remedy)
{
    static const char *const json[] = {"--log.format=json", NULL};
    struct proc run;

    run_until_said(&run, with_nvml("fakenvml", "ecc=1:2,lost=0"), NULL, "come again\n");
    e2e_said(&run, "GPUs: 1 x NVIDIA X, ");
    e2e_said(&run, "GPU 0 cannot be used: the GPU is lost (NVML 15); reset it");
    e2e_said(&run, "GPU 1 (NVIDIA X, 0000:2a:00.0) has had 2 memory errors");
    proc_free(&run);
    run_until_said(&run, with_nvml("fakenvml", "gone=0"), json, "\"event\":\"gpu_fault\"");
    e2e_said(&run, "the GPU at 0000:1a:00.0 (NVIDIA X) is not among those that NVML knows");
    proc_free(&run);
}

Test(gpus, older_and_absent_libraries_are_lived_with)
{
    struct proc run;

    run_until_said(&run, with_nvml("fakenvml/old", "remap=0"), NULL, "driver 580.95.05\n");
    e2e_not_said(&run, "fallen");
    proc_free(&run);
    run_until_said(&run, NULL, NULL, "how the GPUs are is not known: libnvidia-ml.so.1 cannot be");
    proc_free(&run);
}

Test(gpus, a_hanging_nvml_is_given_up_and_named)
{
    /* long enough for NVML to begin on a busy machine */
    static const char *const soon[] = {"--gpu_check=1500ms", NULL};
    struct proc run;

    run_until_said(&run, with_nvml("fakenvml", "hang=1"), soon, "within 1.5 s about GPU 1:");
    e2e_said(&run, "GPUs: 1 x NVIDIA X, ");
    proc_free(&run);
}

Test(gpus, a_hanging_nvml_delays_neither_workers_nor_the_end)
{
    const char *quick = e2e_script("quick", "#!/bin/sh\necho here\n");
    struct proc run;

    run_on_machine(&run, with_nvml("fakenvml", "hang_init=1"),
                   (const char *const[]){"--nproc_per_node=gpu", quick, NULL});
    e2e_said(&run, "[0:1] here\n");
    e2e_not_said(&run, "NVML");
    cr_assert_lt(run.seconds, 10, "a third of what NVML may take: %g s", run.seconds);
    proc_free(&run);
}

/* Eight looks, of which the report on the GPUs takes one, then it is free; or is held for longer
 * than anybody waits. */
Test(gpus, a_restart_waits_until_the_memory_of_the_workers_that_ended_is_free)
{
    static const char *const limits[] = {"--gpu_memory_timeout=50s", "--gpu_memory_timeout=700ms"};
    static const char *const expected[] = {
        "waiting for GPU 1 (NVIDIA X, 0000:2a:00.0) to give back the memory of processes that have "
        "ended, 40.0 GiB",
        "GPU 1 (NVIDIA X, 0000:2a:00.0) still holds memory of processes that have ended, 40.0 GiB"};
    static const char worker[] = "#!/bin/sh\n"
                                 "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0\n"
                                 "while [ ! -e fail ]; do sleep 0.05; done\n"
                                 "exit 3\n";
    struct proc run;

    for (int i = 0; i < 2; i++) {
        const char *const words[] = {"--nproc_per_node=gpu", "--max_restarts=1", limits[i],
                                     e2e_script("worker", worker), NULL};

        (void)unlink(e2e_in_folder("fail"));
        (void)unlink(e2e_in_folder("held"));
        start_on_machine(&run, with_nvml("fakenvml", "held=held"), words);
        (void)proc_wait_text(&run, "GPUs: 2 x NVIDIA X", 60);
        (void)e2e_write("held", "12345678");
        (void)e2e_write("fail", "x");
        cr_assert_eq(proc_finish(&run, 60), 0, "%s", ct_buf_str(&run.text));
        e2e_said(&run, expected[i]);
        proc_free(&run);
    }
}

Test(gpus, a_fault_that_comes_with_a_failed_round_is_told_and_an_old_one_is_not_again)
{
    const char *worker = e2e_script("worker", "#!/bin/sh\n"
                                              "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || {\n"
                                              "    while [ ! -e go ]; do sleep 0.05; done\n"
                                              "    exit 0\n"
                                              "}\n"
                                              "while [ ! -e fail ]; do sleep 0.05; done\n"
                                              "exit 3\n");
    const char *const words[] = {"--nproc_per_node=gpu", "--max_restarts=1", worker, NULL};
    struct proc run;

    start_on_machine(&run, with_nvml("fakenvml", "remap=0,late_ecc=fail"), words);
    (void)proc_wait_text(&run, "at its next reset", 60);
    (void)e2e_write("fail", "x");
    (void)proc_wait_text(&run, "GPU 1 (NVIDIA X, 0000:2a:00.0) has had 1 memory error ", 60);
    (void)e2e_write("go", "");
    cr_assert_eq(proc_finish(&run, 60), 0, "%s", ct_buf_str(&run.text));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "at its next reset"), 1);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "GPUs: "), 1);
    proc_free(&run);
}

Test(gpus, those_that_workers_do_not_see_are_not_spoken_of)
{
    const char *const *nvml = with_nvml("fakenvml", "ecc=1:2");
    const char *const env[] = {nvml[0], nvml[1], "CUDA_VISIBLE_DEVICES=0", NULL};
    struct proc run;

    run_until_said(&run, env, NULL, "driver 580.95.05\n");
    e2e_said(&run, "GPUs: 1 x NVIDIA X, 79.0 of 80.0 GiB free, 40 C, driver");
    e2e_not_said(&run, "ECC");
    proc_free(&run);
}

/* ---- Xids ----------------------------------------------------------------------------------- */

/* The fake driver reports what is written to the pipe "xids"; a writer waits for a reader. In the
 * round of restart N worker 1 fails once there is a file "failN". */
static void start_with_xids(struct proc *run, const char *faults, const char *const more[])
{
    const char *worker = e2e_script("worker", "#!/bin/sh\n"
                                              "while [ ! -e fail$TORCHELASTIC_RESTART_COUNT ]; do\n"
                                              "    sleep 0.05\n"
                                              "done\n"
                                              "[ $RANK = 1 ] || exec sleep 60\n"
                                              "echo it fails >&2\n"
                                              "exit 3\n");
    const char *args[8] = {"--nproc_per_node=gpu"};
    char words[128];
    int count = 1;

    for (; more != NULL && more[count - 1] != NULL; count++)
        args[count] = more[count - 1];
    args[count] = worker;
    cr_assert_eq(mkfifo(e2e_in_folder("xids"), 0600), 0);
    (void)snprintf(words, sizeof words, "xid=xids,%s", faults);
    start_on_machine(run, with_nvml("fakenvml", words), args);
}

/* Waits for somebody who listens. */
static void report(const char *lines)
{
    int pipe = open(e2e_in_folder("xids"), O_WRONLY | O_CLOEXEC);

    cr_assert_geq(pipe, 0);
    cr_assert_eq(write(pipe, lines, strlen(lines)), (ssize_t)strlen(lines));
    (void)close(pipe);
}

Test(gpus, an_xid_is_told_when_it_comes_and_names_what_a_worker_on_that_gpu_failed_of)
{
    static const char *const more[] = {"--log_dir=logs", NULL};
    struct proc run;

    start_with_xids(&run, "", more);
    report("1:31\n0:63\n1:43\n1:31\n");
    (void)proc_wait_text(&run, "reported Xid 43: ", 60);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "GPU 1 (NVIDIA X, 0000:2a:00.0) reported Xid "
                                                  "31: the program used an address"),
                 1, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "GPU 0 (NVIDIA X, 0000:1a:00.0) reported Xid 63: ");
    (void)e2e_write("fail0", "x");
    cr_assert_eq(proc_finish(&run, 60), 3, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "rank 1 (node 0, host ");
    e2e_said(&run, "  | it fails\n  | GPU 1 (NVIDIA X, 0000:2a:00.0) reported Xid 31: ");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), " Xid 63"), 1, "not its GPU: %s",
                 ct_buf_str(&run.text));
    const char *argv[] = {"grep", "-rlE", "then Xid 43.*error_?[cC]ode", "logs", NULL};
    struct proc found;
    cr_assert_eq(proc_run(&found, argv, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&found, "/1/error.json");
    e2e_not_said(&found, "/0/error.json");
    proc_free(&found);
    proc_free(&run);
}

Test(gpus, a_worker_that_fails_by_itself_is_not_said_to_fail_of_another_gpus_xid)
{
    struct proc run;

    start_with_xids(&run, "", NULL);
    report("0:79\n");
    (void)proc_wait_text(&run, "GPU 0 (NVIDIA X, 0000:1a:00.0) reported Xid 79: ", 60);
    (void)e2e_write("fail0", "x");
    cr_assert_eq(proc_finish(&run, 60), 3, "%s", ct_buf_str(&run.text));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "Xid"), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

Test(gpus, a_watch_for_xids_that_ends_is_told_and_begun_again_with_the_next_round)
{
    static const char *const more[] = {"--max_restarts=1", NULL};
    struct proc run;

    start_with_xids(&run, "", more);
    report("=15\n");
    (void)proc_wait_text(&run, "until the next round nobody waits for Xids: NVML cannot", 60);
    (void)e2e_write("fail0", "x");
    (void)proc_wait_text(&run, "restart 1 of 1 follows", 60);
    report("1:79\n");
    (void)proc_wait_text(&run, "GPU 1 (NVIDIA X, 0000:2a:00.0) reported Xid 79: ", 60);
    (void)e2e_write("fail1", "x");
    cr_assert_eq(proc_finish(&run, 60), 3, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* ---- ctrun gpus ----------------------------------------------------------------------------- */

Test(gpus, the_subcommand_lists_them_and_its_status_tells_whether_all_is_well)
{
    struct proc run;

    run_on_machine(&run, with_nvml("fakenvml", ""), (const char *const[]){"gpus", NULL});
    e2e_said(&run, "GPU 0  0000:1a:00.0  NVIDIA X  79.0 of 80.0 GiB free  40 C  NUMA node 1\n");
    e2e_said(&run, "GPU 1  0000:2a:00.0  NVIDIA X  79.0 of 80.0 GiB free  41 C  NUMA node 0\n");
    proc_free(&run);
    start_on_machine(&run, with_nvml("fakenvml", "failed=1"),
                     (const char *const[]){"gpus", "--json", NULL});
    cr_assert_eq(proc_finish(&run, 60), 1);
    e2e_said(&run, "{\"driver\":\"580.95.05\",\"gpus\":2}\n{\"index\":0,");
    e2e_said(&run, "\"remap_failed\":true");
    e2e_said(&run, "could not remap a faulty row");
    proc_free(&run);
    start_on_machine(&run, with_nvml("fakenvml", "hang=0"),
                     (const char *const[]){"gpus", "--limit=0.3", NULL});
    cr_assert_eq(proc_finish(&run, 60), 1);
    e2e_said(&run, "NVML has not answered within 0.3 s about GPU 0");
    proc_free(&run);
    start_on_machine(&run, NULL, (const char *const[]){"gpus", NULL});
    cr_assert_eq(proc_finish(&run, 60), 69);
    e2e_said(&run, "libnvidia-ml.so.1 cannot be loaded");
    proc_free(&run);
}

Test(gpus, the_subcommand_says_when_there_is_none_and_what_it_takes)
{
    struct proc run;

    if (e2e_exists("/dev/nvidia0"))
        cr_skip_test("skipped: this machine has a GPU");
    cr_assert_eq(e2e_run(&run, "gpus", NULL), 69);
    e2e_said(&run, "ctrun gpus: error: no NVIDIA GPU in ");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "gpus", "--json", NULL), 69);
    e2e_said(&run, "{\"error\":\"no NVIDIA GPU in ");
    e2e_said(&run, "\",\"status\":69}\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "gpus", "--limit=0", NULL), 2);
    e2e_said(&run, "--limit is 0; it takes seconds");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "gpus", "--jsn", NULL), 2);
    e2e_said(&run, "did you mean --json?");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "gpus", "--help", NULL), 0);
    e2e_said(&run, "nothing,\n1: something, 69: not known.");
    proc_free(&run);
}
