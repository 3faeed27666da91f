/* Parameter servers under ctrun: what a job does when workers and servers are killed. */
#include "e2e.h"
#include "written.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

TestSuite(served, .init = e2e_enter, .fini = e2e_leave, .timeout = 180);

enum { WORKERS_MAX = 8, STEPS = 4000, PATH_BYTES = 256 };

/* Start a training of STEPS steps whose outputs lie in `name`. */
static void start(struct proc *agent, const char *name, const char *const extra[])
{
    const char *argv[32] = {proc_program("ctrun"), "--max_restarts=3",
                            "--batch.micro=4",     "--parallel.reduce=invariant",
                            "--log.every=1",       "--checkpoint.every=1 epoch"};
    char dirs[2][PATH_BYTES], steps[32];
    int argc = 6;

    (void)snprintf(steps, sizeof steps, "--train.steps=%d", STEPS);
    (void)snprintf(dirs[0], PATH_BYTES, "--log.dir=%s/log", e2e_in_folder(name));
    (void)snprintf(dirs[1], PATH_BYTES, "--checkpoint.dir=%s/ckpt", e2e_in_folder(name));
    for (int i = 0; extra[i] != NULL; i++)
        argv[argc++] = extra[i];
    argv[argc++] = e2e_in_root("configs/digits_ps.yaml");
    argv[argc++] = steps;
    argv[argc++] = dirs[0];
    argv[argc] = dirs[1];
    proc_start(agent, argv, NULL);
}

static void wait_step(const char *name, int step)
{
    written_wait(name, STEPS, step);
}

/* The pid of a worker that is gone, and where the others are looked for. */
struct group {
    const struct proc *agent;
    pid_t lost;
    int size;
};

static bool is_complete(void *context)
{
    const struct group *group = context;
    pid_t now[WORKERS_MAX];

    if (e2e_workers(group->agent, now, WORKERS_MAX) != group->size)
        return false;
    for (int i = 0; i < group->size; i++)
        if (now[i] == group->lost)
            return false;
    return true;
}

/* SIGKILL one of `size` workers and wait for its replacement. */
static void lose(const struct proc *agent, int size, int victim)
{
    struct group group = {.agent = agent, .size = size};
    pid_t pids[WORKERS_MAX];

    cr_assert_eq(e2e_workers(agent, pids, WORKERS_MAX), size);
    group.lost = pids[victim];
    cr_assert_eq(kill(group.lost, SIGKILL), 0);
    proc_until(is_complete, &group, 30, "a new worker");
}

static void finish(struct proc *agent, const char *name)
{
    cr_assert_eq(proc_finish(agent, 90), 0, "%s", ct_buf_str(&agent->text));
    written_each_once(name, STEPS);
}

Test(served, workers_and_the_server_are_lost_and_the_bits_are_those_of_ddp)
{
    static const char *const ddp[] = {"--nproc_per_node=2", "--parallel.strategy=ddp", NULL};
    static const char *const served[] = {"--nproc_per_node=3", NULL};
    struct proc agent;

    start(&agent, "whole", ddp);
    finish(&agent, "whole");
    proc_free(&agent);
    start(&agent, "run", served);
    wait_step("run", 200);
    lose(&agent, 3, 1);
    wait_step("run", 600);
    lose(&agent, 3, 0);
    wait_step("run", 1000);
    lose(&agent, 3, 2); /* the server */
    finish(&agent, "run");
    e2e_said(&agent, "2 of 3 workers continue from step");
    e2e_said(&agent, "(restart 3 of 3)");
    written_equal("whole", "run", STEPS);
    proc_free(&agent);
}

Test(served, a_stale_job_goes_on_from_what_its_servers_hold)
{
    static const char *const stale[] = {"--nproc_per_node=4", "--parallel.servers=2",
                                        "--parallel.staleness=3", NULL};
    struct proc agent;

    start(&agent, "run", stale);
    wait_step("run", 200);
    lose(&agent, 4, 1);
    finish(&agent, "run");
    e2e_said(&agent, "3 of 4 workers continue from step");
    proc_free(&agent);
}
