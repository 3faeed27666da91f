/* Native workers live on: when one of them, or a whole node, is lost or comes, the others keep
 * their process and memory, and the training ends with the bits of the run that nothing happened
 * to. */
#include "drill.h"
#include "e2e.h"
#include "preload/interpose.h"
#include "training/written.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(survivors, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

enum { WORKERS_MAX = 8, STEPS = 900, STEP_MS = 8, PATH_BYTES = 256 };

/* Until `let_run` a step of "run" waits for a slow disk: the training is still at work when a
 * worker has been replaced, and computes little. */
static struct interpose_page *disk;
static const char *const *slow_disk; /* the words of an environment that has it */

static void let_run(void)
{
    disk->metrics_ms = 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Start the agent of a training of STEPS steps whose outputs lie in `name`. */
static void start(struct proc *agent, const char *name, const char *const extra[])
{
    const char *argv[40] = {proc_program("ctrun"), "--max_restarts=3", "--batch.micro=4",
                            "--parallel.reduce=invariant", "--log.every=1"};
    char dirs[2][PATH_BYTES], steps[32];
    int argc = 5;

    if (disk == NULL && strcmp(name, "run") == 0) {
        disk = drill_page(&slow_disk);
        disk->metrics_ms = STEP_MS;
    }

    (void)snprintf(steps, sizeof steps, "--train.steps=%d", STEPS);
    (void)snprintf(dirs[0], PATH_BYTES, "--log.dir=%s/log", e2e_in_folder(name));
    (void)snprintf(dirs[1], PATH_BYTES, "--checkpoint.dir=%s/ckpt", e2e_in_folder(name));
    for (int i = 0; extra[i] != NULL; i++)
        argv[argc++] = extra[i];
    argv[argc++] = e2e_in_root("configs/digits_mlp.yaml");
    argv[argc++] = steps;
    argv[argc++] = dirs[0];
    argv[argc] = dirs[1];
    proc_start(agent, argv, slow_disk);
}

static bool is_among(pid_t pid, const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static void wait_step(const char *name, int step)
{
    written_wait(name, STEPS, step);
}

/* ---- a scene on one node --------------------------------------------------------------------- */

static const char *const two[] = {"--nproc_per_node=2", NULL};
static const char *const three[] = {"--nproc_per_node=3", "--batch.global=36", NULL};

/* The run that nothing happens to, in "whole". */
static void run_whole(const char *const extra[])
{
    struct proc agent;

    start(&agent, "whole", extra);
    cr_assert_eq(proc_finish(&agent, 90), 0, "%s", ct_buf_str(&agent.text));
    proc_free(&agent);
}

struct group {
    const struct proc *agent;
    pid_t lost;
    int size;
    pid_t now[WORKERS_MAX];
};

static bool is_complete(void *context)
{
    struct group *group = context;

    return e2e_workers(group->agent, group->now, WORKERS_MAX) == group->size &&
           !is_among(group->lost, group->now, group->size);
}

/* SIGKILL one of `size` workers and wait for its replacement; the others must be the same. */
static void lose(const struct proc *agent, int size, int victim)
{
    struct group group = {.agent = agent, .size = size};
    pid_t before[WORKERS_MAX];

    cr_assert_eq(e2e_workers(agent, before, WORKERS_MAX), size);
    group.lost = before[victim];
    cr_assert_eq(kill(group.lost, SIGKILL), 0);
    proc_until(is_complete, &group, 30, "a new worker");
    for (int i = 0; i < size; i++)
        cr_assert(i == victim || is_among(before[i], group.now, size), "worker %d was restarted",
                  i);
}

static void finish(struct proc *agent)
{
    let_run();
    cr_assert_eq(proc_finish(agent, 90), 0, "%s", ct_buf_str(&agent->text));
    written_each_once("run", STEPS);
}

/* ---- workers --------------------------------------------------------------------------------- */

Test(survivors, a_killed_worker_is_replaced_and_the_other_keeps_its_process)
{
    struct proc agent;

    run_whole(two);
    start(&agent, "run", two);
    wait_step("run", 40);
    lose(&agent, 2, 1);
    finish(&agent);
    e2e_said(&agent, "SIGKILL");
    e2e_said(&agent, "1 of 2 workers continue from step");
    e2e_said(&agent, "(restart 1 of 3)");
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, a_lost_rank_0_is_replaced_and_the_new_one_writes_on)
{
    struct proc agent;

    run_whole(two);
    start(&agent, "run", two);
    wait_step("run", 40);
    lose(&agent, 2, 0);
    finish(&agent);
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, a_part_that_is_lost_with_its_worker_comes_from_the_checkpoint)
{
    static const char *const parts[] = {"--nproc_per_node=2", "--parallel.strategy=fsdp",
                                        "--checkpoint.async=true", "--checkpoint.every=7", NULL};
    struct proc agent;

    run_whole(two);
    start(&agent, "run", parts);
    wait_step("run", 40);
    lose(&agent, 2, 0);
    finish(&agent);
    e2e_said(&agent, "parallel.strategy fsdp keeps one state over all workers");
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, three_workers_lose_one_after_the_other)
{
    struct proc agent;

    run_whole(three);
    start(&agent, "run", three);
    wait_step("run", 40);
    for (int i = 0; i < 3; i++) {
        lose(&agent, 3, i);
        wait_step("run", 60 * (i + 2));
    }
    finish(&agent);
    e2e_said(&agent, "2 of 3 workers continue from step");
    e2e_said(&agent, "(restart 3 of 3)");
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, a_replacement_may_be_lost_before_it_is_healed)
{
    struct proc agent;
    pid_t pids[WORKERS_MAX];

    run_whole(two);
    start(&agent, "run", two);
    wait_step("run", 40);
    cr_assert_eq(e2e_workers(&agent, pids, WORKERS_MAX), 2);
    lose(&agent, 2, 1);
    lose(&agent, 2, 1); /* the new one, within a few milliseconds of its birth */
    lose(&agent, 2, 1);
    cr_assert(proc_alive(pids[0]));
    finish(&agent);
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, when_all_are_lost_the_job_goes_on_from_its_checkpoint)
{
    static const char *const writing[] = {"--nproc_per_node=2", "--checkpoint.async=true", NULL};
    struct proc agent;
    pid_t pids[WORKERS_MAX];

    run_whole(two);
    start(&agent, "run", writing);
    wait_step("run", 300);
    cr_assert_eq(e2e_workers(&agent, pids, WORKERS_MAX), 2);
    for (int i = 0; i < 2; i++)
        (void)kill(pids[i], SIGKILL);
    finish(&agent);
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(survivors, the_budget_of_restarts_ends_the_job_with_the_cause)
{
    static const char *const tight[] = {"--nproc_per_node=2", "--max_restarts=1", NULL};
    struct proc agent;
    pid_t pids[WORKERS_MAX];

    start(&agent, "run", tight);
    wait_step("run", 40);
    lose(&agent, 2, 1);
    wait_step("run", 200);
    cr_assert_eq(e2e_workers(&agent, pids, WORKERS_MAX), 2);
    (void)kill(pids[0], SIGKILL);
    cr_assert_eq(proc_finish(&agent, 30), 128 + SIGKILL, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "SIGKILL");
    for (int i = 0; i < 2; i++)
        e2e_wait_gone(pids[i], 5);
    proc_free(&agent);
}

/* A trainer that needs as long for its start as the test says: it waits for a file "go", but for
 * the first two of them. */
static const char *slow_trainer(void)
{
    static char text[1024];

    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n"
                   "n=$(ls -d %s/born_* 2>/dev/null | wc -l)\n"
                   "mkdir %s/born_$$\n"
                   "while [ $n -ge 2 ] && [ ! -e %s/go ]; do sleep 0.02; done\n"
                   "exec %s \"$@\"\n",
                   e2e_in_folder(""), e2e_in_folder(""), e2e_in_folder(""),
                   proc_program("ctworker"));
    return e2e_script("trainer", text);
}

/* The worker in place `index`, whatever its name is; before all of them ctrun has its guard. */
static pid_t child_of(const struct proc *agent, int index)
{
    char path[PATH_BYTES];
    int pid = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)agent->pid,
                   (int)agent->pid);
    FILE *file = fopen(path, "re");
    for (int i = 0; file != NULL && i <= index + 1; i++)
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
    if (file != NULL)
        (void)fclose(file);
    return pid;
}

struct birth {
    const struct proc *agent;
    pid_t before; /* the youngest child so far */
    pid_t now;
};

static bool is_born(void *context)
{
    struct birth *birth = context;

    birth->now = child_of(birth->agent, 1);
    return birth->now != 0 && birth->now != birth->before;
}

Test(survivors, a_worker_that_still_loads_is_not_restarted_when_another_is_lost)
{
    char worker[PATH_BYTES];
    struct proc agent;
    pid_t pids[WORKERS_MAX];

    (void)snprintf(worker, sizeof worker, "--worker=%s", slow_trainer());
    const char *const slow[] = {"--nproc_per_node=2", worker, NULL};
    run_whole(two);
    start(&agent, "run", slow);
    wait_step("run", 40);
    cr_assert_eq(e2e_workers(&agent, pids, WORKERS_MAX), 2);
    struct birth third = {&agent, pids[1], 0};
    cr_assert_eq(kill(pids[1], SIGKILL), 0);
    proc_until(is_born, &third, 30, "a third worker, which loads");
    struct birth fourth = {&agent, third.now, 0};
    cr_assert_eq(kill(pids[0], SIGKILL), 0);
    proc_until(is_born, &fourth, 30, "a fourth worker");
    proc_wait_text(&agent, "restart 2 of 3", 30);
    cr_assert_eq(child_of(&agent, 0), third.now, "it was started again: %d is %d, %d; %s",
                 (int)third.now, (int)child_of(&agent, 0), (int)child_of(&agent, 1),
                 ct_buf_str(&agent.text));
    e2e_write("go", "");
    finish(&agent);
    e2e_said(&agent, "restart 2 of 3 follows");
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void start_node_with(struct proc *agent, const char *endpoint, const char *nodes,
                            const char *option)
{
    const char *const extra[] = {"--nnodes",
                                 nodes,
                                 "--nproc_per_node=1",
                                 "--rdzv_endpoint",
                                 endpoint,
                                 "--rdzv_id=survivors",
                                 option,
                                 "--join_timeout=60s",
                                 NULL};

    start(agent, "run", extra);
}

static void start_node(struct proc *agent, const char *endpoint, const char *nodes)
{
    start_node_with(agent, endpoint, nodes, "--model.hidden=[64]");
}

static void stop_daemon(struct proc *daemon)
{
    cr_assert_eq(kill(daemon->pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(daemon, 10), 0, "%s", ct_buf_str(&daemon->text));
    proc_free(daemon);
}

static void lose_node(struct proc *agent)
{
    cr_assert_eq(kill(agent->pid, SIGKILL), 0);
    cr_assert_eq(proc_finish(agent, 10), 128 + SIGKILL);
    proc_free(agent);
}

/* The one worker of a node. */
static pid_t worker_of(const struct proc *agent)
{
    pid_t pids[WORKERS_MAX];

    cr_assert_eq(e2e_workers(agent, pids, WORKERS_MAX), 1);
    return pids[0];
}

struct life {
    const struct proc *agent;
    pid_t worker;
};

/* The worker has ended, and no other one took its place meanwhile. */
static bool has_ended(void *context)
{
    const struct life *life = context;
    pid_t pids[WORKERS_MAX];

    if (e2e_workers(life->agent, pids, WORKERS_MAX) == 0)
        return true;
    cr_assert_eq(pids[0], life->worker, "the worker was restarted");
    return false;
}

static void finish_node(struct proc *agent, pid_t worker)
{
    struct life life = {agent, worker};

    let_run();
    proc_until(has_ended, &life, 90, "the worker's end");
    finish(agent);
}

Test(survivors, a_lost_node_is_replaced_and_the_other_keeps_its_process)
{
    struct proc daemon, nodes[3];
    const char *endpoint = e2e_daemon(&daemon);

    run_whole(two);
    for (int i = 0; i < 2; i++)
        start_node(&nodes[i], endpoint, "2");
    wait_step("run", 40);
    pid_t worker = worker_of(&nodes[0]);
    lose_node(&nodes[1]);
    start_node(&nodes[2], endpoint, "2");
    finish_node(&nodes[0], worker);
    written_equal("whole", "run", STEPS);
    cr_assert_eq(proc_finish(&nodes[2], 10), 0, "%s", ct_buf_str(&nodes[2].text));
    proc_free(&nodes[0]);
    proc_free(&nodes[2]);
    stop_daemon(&daemon);
}

Test(survivors, without_a_lost_node_the_others_go_on_with_the_same_global_batch)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);

    run_whole(two);
    for (int i = 0; i < 2; i++)
        start_node_with(&nodes[i], endpoint, "1:2", "--last_call=20s");
    wait_step("run", 40);
    pid_t worker = worker_of(&nodes[0]);
    lose_node(&nodes[1]);
    finish_node(&nodes[0], worker);
    e2e_said(&nodes[0], "another node was lost; 1 of 1 workers continue from step");
    written_equal("whole", "run", STEPS);
    proc_free(&nodes[0]);
    stop_daemon(&daemon);
}

/* Newcomers wait until ten seconds of a round have passed: the disk is slow enough for that. */
Test(survivors, a_node_that_joins_is_taken_in_at_a_step_boundary_and_nobody_is_restarted)
{
    static int times[STEPS + 1];
    struct proc daemon, nodes[2];
    pid_t newcomer[WORKERS_MAX];
    const char *endpoint = e2e_daemon(&daemon);

    start_node(&nodes[0], endpoint, "1:2");
    disk->metrics_ms = 40;
    wait_step("run", 10);
    pid_t worker = worker_of(&nodes[0]);
    start_node(&nodes[1], endpoint, "1:2");
    proc_wait_text(&nodes[0], "2 nodes, 2 ranks from now on; 1 worker of this node", 60);
    int joined = written_steps("run", STEPS, times);
    wait_step("run", joined + 20);
    cr_assert_eq(worker_of(&nodes[0]), worker);
    cr_assert_eq(e2e_workers(&nodes[1], newcomer, WORKERS_MAX), 1);
    cr_assert_eq(kill(nodes[0].pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&nodes[0], 20), 128 + SIGINT, "%s", ct_buf_str(&nodes[0].text));
    (void)proc_finish(&nodes[1], 20);
    int last = written_steps("run", STEPS, times);
    for (int step = 1; step <= last; step++)
        cr_assert_eq(times[step], 1, "step %d is %d times in the metrics", step, times[step]);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}

/* Two nodes, of which the second is terminated at about step 40 and the first trains on. */
static void terminate_second(struct proc nodes[2], const char *strategy)
{
    struct proc daemon;
    const char *endpoint = e2e_daemon(&daemon);

    run_whole(two);
    cr_assert_eq(setenv("CTRUN_PARALLEL_STRATEGY", strategy, 1), 0);
    for (int i = 0; i < 2; i++)
        start_node_with(&nodes[i], endpoint, "1:2", "--last_call=20s");
    wait_step("run", 40);
    pid_t worker = worker_of(&nodes[0]);
    cr_assert_eq(kill(nodes[1].pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&nodes[1], 20), 128 + SIGTERM, "%s", ct_buf_str(&nodes[1].text));
    finish_node(&nodes[0], worker);
    e2e_not_said(&nodes[0], "restart 1");
    written_equal("whole", "run", STEPS);
    stop_daemon(&daemon);
}

Test(survivors, a_node_that_is_terminated_leaves_at_a_step_boundary_and_no_step_is_lost)
{
    struct proc nodes[2];

    terminate_second(nodes, "ddp");
    e2e_said(&nodes[1], "this node left, the job continues");
    e2e_said(&nodes[0], "1 node, 1 ranks from now on; 1 worker continues from step");
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
}

Test(survivors, parts_are_published_before_a_node_that_is_terminated_leaves)
{
    struct proc nodes[2];

    terminate_second(nodes, "zero1");
    const char *at = strstr(ct_buf_str(&nodes[0].text), "checkpoint of step ");
    cr_assert(at != NULL && atoi(at + 19) >= 40, "%s", ct_buf_str(&nodes[0].text));
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
}

/* The step that ckpt/latest of "run" names. */
static int published(void)
{
    char path[PATH_BYTES];
    int step = 0;

    (void)snprintf(path, sizeof path, "%s/ckpt/latest", e2e_in_folder("run"));
    (void)sscanf(e2e_read(path), "step_%d", &step);
    return step;
}

static bool is_published(void *context)
{
    return published() >= *(const int *)context;
}

/* Whatever the folder says by then: an old writer, or a user, may have turned `latest` back. */
Test(survivors, when_all_nodes_are_lost_the_job_goes_on_from_the_step_that_the_daemon_has_on_record)
{
    struct proc daemon, nodes[2];
    const char *endpoint = e2e_daemon(&daemon);
    char words[64];
    int enough = 90;

    run_whole(two);
    for (int i = 0; i < 2; i++)
        start_node(&nodes[i], endpoint, "2");
    proc_until(is_published, &enough, 60, "two checkpoints");
    for (int i = 0; i < 2; i++)
        lose_node(&nodes[i]);
    int last = published();
    e2e_write("run/ckpt/latest", "step_00000045\n");
    for (int i = 0; i < 2; i++)
        start_node(&nodes[i], endpoint, "2");
    let_run();
    for (int i = 0; i < 2; i++)
        cr_assert_eq(proc_finish(&nodes[i], 90), 0, "%s", ct_buf_str(&nodes[i].text));
    (void)snprintf(words, sizeof words, "step_%08d, step %d of", last, last);
    e2e_said(&nodes[strstr(ct_buf_str(&nodes[0].text), "going on from") != NULL ? 0 : 1], words);
    written_each_once("run", STEPS);
    written_equal("whole", "run", STEPS);
    for (int i = 0; i < 2; i++)
        proc_free(&nodes[i]);
    stop_daemon(&daemon);
}
