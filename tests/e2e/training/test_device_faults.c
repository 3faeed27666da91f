/* What happens to a training on GPUs (device.h) when a worker or its GPU is lost or a node joins,
 * and what is said when there is none to be had. The CPU's run of the same file, which nothing
 * happens to, has the bits that all of them must end with. */
#include "device.h"
#include "e2e.h"
#include "written.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

TestSuite(device_faults, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

enum { STEPS = 150, EARLY = 30, LONG = 400, PATH_BYTES = 256, WORKERS = 2 };

/* ---- running --------------------------------------------------------------------------------- */

static void start_steps(struct proc *agent, const char *name, int count,
                        const char *const options[], const char *const env[])
{
    const char *argv[40] = {device_program("ctrun"),
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

    (void)snprintf(steps, sizeof steps, "--train.steps=%d", count);
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

static void start(struct proc *agent, const char *name, const char *const options[],
                  const char *const env[])
{
    start_steps(agent, name, STEPS, options, env);
}

static void run_whole_steps(int count)
{
    static const char *const on_cpu[] = {"--train.device=cpu", NULL};
    struct proc agent;

    start_steps(&agent, "whole", count, on_cpu, NULL);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    proc_free(&agent);
}

static void run_whole(void)
{
    run_whole_steps(STEPS);
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

/* `more`: another option, or NULL. */
static void lose_one(const char *backend, const char *more, int victim)
{
    const char *const options[] = {"--train.device=cuda", backend, more, NULL};
    struct proc agent;

    run_whole();
    start(&agent, "run", options, NULL);
    pid_t other = lose(&agent, victim);
    (void)proc_wait_text(&agent, "1 of 2 workers continue from step", 60);
    cr_assert(proc_alive(other), "%s", ct_buf_str(&agent.text));
    finish(&agent);
    e2e_said(&agent, "(restart 1 of 3)");
    e2e_not_said(&agent, "restart 2");
    proc_free(&agent);
}

Test(device_faults, a_killed_worker_is_replaced_and_healed_over_a_fresh_communicator_of_nccl)
{
    lose_one("--parallel.backend=nccl", NULL, 1);
}

Test(device_faults, a_lost_rank_0_is_replaced_and_healed_over_nccl, .disabled = DEVICE_FEW)
{
    lose_one("--parallel.backend=nccl", NULL, 0);
}

Test(device_faults, a_killed_worker_is_replaced_and_healed_over_staged, .disabled = DEVICE_FEW)
{
    lose_one("--parallel.backend=staged", NULL, 1);
}

Test(device_faults, a_part_that_is_lost_with_its_gpu_comes_from_the_checkpoint,
     .disabled = DEVICE_FEW)
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
Test(device_faults, a_worker_whose_abort_hangs_is_killed_at_its_deadline_and_the_job_goes_on,
     .disabled = DEVICE_FEW)
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
Test(device_faults, a_gpu_that_fails_costs_its_worker_and_no_bit, .disabled = DEVICE_FEW)
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

/* ---- windows --------------------------------------------------------------------------------- */

static const char *const windows[] = {"--train.device=cuda", "--parallel.backend=nccl",
                                      "--collectives.windows=true", NULL};

Test(device_faults, an_arena_that_nccl_has_registered_changes_no_bit, .disabled = DEVICE_FEW)
{
    struct proc agent;

    run_whole();
    start(&agent, "run", windows, NULL);
    finish(&agent);
    proc_free(&agent);
}

Test(device_faults, a_killed_worker_is_replaced_and_its_arena_registered_anew,
     .disabled = DEVICE_FEW)
{
    lose_one("--parallel.backend=nccl", "--collectives.windows=true", 1);
}

/* Which shows that the executor's arena is registered, and that it is not without the option. */
Test(device_faults, an_arena_that_nccl_does_not_register_is_said_with_the_option_that_does_without,
     .disabled = DEVICE_FEW)
{
    static const char *const env[] = {"FAKENCCL_FAULT=fail_window", NULL};
    static const char *const without[] = {"--train.device=cuda", "--parallel.backend=nccl", NULL};
    const char *const once[] = {windows[0], windows[1], windows[2], "--max_restarts=0", NULL};
    struct proc agent;

    start(&agent, "run", once, env);
    cr_assert_eq(proc_finish(&agent, 60), 69, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "memory cannot be registered (collectives.windows: false does without)");
    proc_free(&agent);
    start(&agent, "run", without, env);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    proc_free(&agent);
}

/* ---- newcomers ------------------------------------------------------------------------------- */

/* A node of one GPU. */
static void start_node(struct proc *agent, const char *endpoint, const char *backend,
                       const char *gpu)
{
    const char *const options[] = {
        "--train.device=cuda", backend,  "--nnodes=1:2",   "--nproc_per_node=1",
        "--rdzv_endpoint",     endpoint, "--rdzv_id=gpus", "--last_call=0",
        "--launch.grow=50ms",  NULL};
    const char *const env[] = {gpu, NULL};

    start_steps(agent, "run", LONG, options, env);
}

static void join(const char *backend, const char *says)
{
    struct proc daemon, nodes[2];
    pid_t before[WORKERS], after[WORKERS];
    const char *endpoint = e2e_daemon(&daemon);

    run_whole_steps(LONG);
    start_node(&nodes[0], endpoint, backend, "CUDA_VISIBLE_DEVICES=0");
    written_wait("run", LONG, 1);
    cr_assert_eq(e2e_workers(&nodes[0], before, WORKERS), 1);
    start_node(&nodes[1], endpoint, backend, "CUDA_VISIBLE_DEVICES=1");
    (void)proc_wait_text(&nodes[0], says, 60);
    cr_assert_eq(e2e_workers(&nodes[0], after, WORKERS), 1);
    cr_assert_eq(after[0], before[0], "the worker was restarted");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 90), 0, "%s", ct_buf_str(&nodes[i].text));
    e2e_said(&nodes[0], "2 nodes, 2 ranks from now on; 1 worker of this node continues from step");
    e2e_not_said(&nodes[0], "restart 1");
    written_each_once("run", LONG);
    written_equal("whole", "run", LONG);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    proc_free(&daemon);
}

Test(device_faults, a_node_that_joins_is_healed_over_nccl_and_nobody_is_restarted,
     .disabled = DEVICE_FEW)
{
    join("--parallel.backend=nccl", "2 ranks talk by nccl, the first on cuda:0");
}

Test(device_faults, a_node_that_joins_is_healed_over_staged_and_nobody_is_restarted,
     .disabled = DEVICE_FEW)
{
    join("--parallel.backend=staged", "2 ranks talk by staged, the first on cuda:0");
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* Three steps on a machine that is as `env` says; with up to two options more. */
static void expect(const char *env, const char *option, const char *more, int status,
                   const char *says)
{
    const char *const options[] = {"--train.device=cuda",
                                   "--train.steps=3",
                                   "--schedule.warmup=0",
                                   "--log.overwrite=yes",
                                   option,
                                   more,
                                   NULL};
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
