/* Jobs on machines with GPUs, for machines without: /proc/driver/nvidia and what the kernel says
 * about buses and NUMA nodes are files of the test, mounted in a namespace of its own. */
#include "e2e.h"

#include "base/bytes.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* ---- what workers get -------------------------------------------------------------------------
 */

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
