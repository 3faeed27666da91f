/* What happens to a training on GPUs (device.h) when a worker or its GPU is lost, and what is said
 * when there is none to be had. The CPU's run of the same file, which nothing happens to, has the
 * bits that all of them must end with. */
#include "device.h"
#include "e2e.h"
#include "written.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

TestSuite(device_faults, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

enum { STEPS = 150, EARLY = 30, PATH_BYTES = 256, WORKERS = 2 };

/* ---- running --------------------------------------------------------------------------------- */

static void start(struct proc *agent, const char *name, const char *const options[],
                  const char *const env[])
{
    const char *argv[32] = {device_program("ctrun"),
                            "--nproc_per_node=2",
                            "--max_restarts=3",
                            "--batch.global=8",
                            "--batch.micro=4",
                            "--model.hidden=[16]",
                            "--parallel.reduce=invariant",
                            "--checkpoint.every=20",
                            "--eval.every=0",
                            "--log.every=1"};
    char dirs[2][PATH_BYTES], steps[32];
    int argc = 10;

    (void)snprintf(steps, sizeof steps, "--train.steps=%d", STEPS);
    (void)snprintf(dirs[0], PATH_BYTES, "--log.dir=%s/log", e2e_in_folder(name));
    (void)snprintf(dirs[1], PATH_BYTES, "--checkpoint.dir=%s/ckpt", e2e_in_folder(name));
    argv[argc++] = steps;
    argv[argc++] = dirs[0];
    argv[argc++] = dirs[1];
    for (int i = 0; options[i] != NULL; i++)
        argv[argc++] = options[i];
    argv[argc] = e2e_in_root("configs/digits_mlp.yaml");
    proc_start(agent, argv, device_env(env));
}

static void run_whole(void)
{
    static const char *const on_cpu[] = {"--train.device=cpu", NULL};
    struct proc agent;

    start(&agent, "whole", on_cpu, NULL);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    proc_free(&agent);
}

static void finish(struct proc *agent)
{
    cr_assert_eq(proc_finish(agent, 90), 0, "%s", ct_buf_str(&agent->text));
    written_each_once("run", STEPS);
    written_equal("whole", "run", STEPS);
}

/* SIGKILL worker `victim`, once some steps are done; the pid of the other. */
static pid_t lose(const struct proc *agent, int victim)
{
    pid_t pids[WORKERS];

    written_wait("run", STEPS, EARLY);
    cr_assert_eq(e2e_workers(agent, pids, WORKERS), WORKERS);
    cr_assert_eq(kill(pids[victim], SIGKILL), 0);
    return pids[1 - victim];
}

/* ---- workers --------------------------------------------------------------------------------- */

static void lose_one(const char *backend, int victim)
{
    const char *const options[] = {"--train.device=cuda", backend, NULL};
    struct proc agent;

    run_whole();
    start(&agent, "run", options, NULL);
    pid_t other = lose(&agent, victim);
    (void)proc_wait_text(&agent, "1 of 2 workers go on from step", 60);
    cr_assert(proc_alive(other), "%s", ct_buf_str(&agent.text));
    finish(&agent);
    e2e_said(&agent, "(restart 1 of 3)");
    e2e_not_said(&agent, "restart 2");
    proc_free(&agent);
}

Test(device_faults, a_killed_worker_is_replaced_and_healed_over_a_fresh_communicator_of_nccl)
{
    lose_one("--parallel.backend=nccl", 1);
}

Test(device_faults, a_lost_rank_0_is_replaced_and_healed_over_nccl)
{
    lose_one("--parallel.backend=nccl", 0);
}

Test(device_faults, a_killed_worker_is_replaced_and_healed_over_staged)
{
    lose_one("--parallel.backend=staged", 1);
}

Test(device_faults, a_part_that_is_lost_with_its_gpu_comes_from_the_checkpoint)
{
    static const char *const options[] = {"--train.device=cuda", "--parallel.strategy=fsdp", NULL};
    struct proc agent;

    run_whole();
    start(&agent, "run", options, NULL);
    (void)lose(&agent, 1);
    finish(&agent);
    e2e_said(&agent, "parallel.strategy fsdp keeps one state over all workers");
    proc_free(&agent);
}

/* The survivor cannot give its communicator back: it is ended, and both come back from the
 * checkpoint. */
Test(device_faults, a_worker_whose_abort_hangs_is_killed_at_its_deadline_and_the_job_goes_on)
{
    static const char *const options[] = {"--train.device=cuda", "--parallel.backend=nccl", NULL};
    static const char *const env[] = {"FAKENCCL_FAULT=hang_abort", "FAKENCCL_HANG_MS=600000",
                                      "CTRUN_NCCL_ABORT_MS=500", NULL};
    static int times[STEPS + 1];
    struct proc agent;

    run_whole();
    start(&agent, "run", options, env);
    pid_t other = lose(&agent, 1);
    e2e_wait_gone(other, 30);
    cr_assert_lt(written_steps("run", STEPS, times), STEPS, "it lived to the end");
    finish(&agent);
    e2e_said(&agent, "going on from");
    proc_free(&agent);
}

/* An illegal access in one worker's kernel. */
Test(device_faults, a_gpu_that_fails_costs_its_worker_and_no_bit)
{
    static const char *const options[] = {"--train.device=cuda", "--parallel.backend=nccl", NULL};
    char words[PATH_BYTES];
    const char *env[] = {words, NULL};
    struct proc agent;

    run_whole();
    (void)snprintf(words, sizeof words, "HOSTCUDA_BREAK=%s", e2e_in_folder("break"));
    start(&agent, "run", options, env);
    written_wait("run", STEPS, EARLY);
    e2e_write("break", "");
    finish(&agent);
    e2e_said(&agent, "an illegal memory access was encountered (cudaErrorIllegalAddress)");
    e2e_said(&agent, "(restart 1 of 3)");
    proc_free(&agent);
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* Three steps on a machine that is as `env` says; with up to two options more. */
static void expect(const char *env, const char *option, const char *more, int status,
                   const char *says)
{
    const char *const options[] = {
        "--train.device=cuda", "--train.steps=3", "--schedule.warmup=0", option, more, NULL};
    const char *const words[] = {env, NULL};
    struct proc agent;

    start(&agent, "run", options, words);
    cr_assert_eq(proc_finish(&agent, 60), status, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, says);
    proc_free(&agent);
}

Test(device_faults, what_gpus_there_are_is_said_in_one_sentence)
{
    expect("HOSTCUDA_COUNT=1", NULL, NULL, 0, "2 ranks talk by staged, the first on cuda:0");
    expect("HOSTCUDA_COUNT=2", NULL, NULL, 0, "2 ranks talk by nccl, the first on cuda:0");
    expect("HOSTCUDA_COUNT=0", NULL, NULL, 69, "NVIDIA's driver finds no GPU");
    expect("HOSTCUDA_MEMORY=100000", "--max_restarts=0", NULL, 71, "GPU 0 has no room");
    expect("HOSTCUDA_COUNT=2", "--parallel.strategy=ps", NULL, 2,
           "train.device cuda is not for parallel.strategy ps, which computes on the CPU");
    expect("HOSTCUDA_COUNT=2", "--parallel.strategy=dp", "--nproc_per_node=1", 2,
           "train.device cuda is not for parallel.strategy dp, which computes on the CPU");
}
