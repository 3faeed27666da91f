/* Parameter servers under ctrun: what a job does when workers and servers are killed. */
#include "e2e.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* How often each step is in the metrics; the highest step. */
static int read_steps(const char *name, int times[STEPS + 1])
{
    char path[PATH_BYTES], line[1024];
    int last = 0;

    memset(times, 0, (STEPS + 1) * sizeof *times);
    (void)snprintf(path, sizeof path, "%s/log/metrics.jsonl", e2e_in_folder(name));
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *step = strstr(line, "\"step\":");
        if (step == NULL || strstr(line, "\"kind\":\"train\"") == NULL)
            continue;
        int at = atoi(step + strlen("\"step\":"));
        cr_assert(at >= 1 && at <= STEPS, "%s", line);
        times[at]++;
        last = at > last ? at : last;
    }
    if (file != NULL)
        (void)fclose(file);
    return last;
}

static int wanted;

static bool has_reached(void *context)
{
    static int times[STEPS + 1];

    return read_steps(context, times) >= wanted;
}

static void wait_step(char *name, int step)
{
    wanted = step;
    proc_until(has_reached, name, 60, "the step");
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
    static int times[STEPS + 1];

    cr_assert_eq(proc_finish(agent, 90), 0, "%s", ct_buf_str(&agent->text));
    cr_assert_eq(read_steps(name, times), STEPS);
    for (int step = 1; step <= STEPS; step++)
        cr_assert_eq(times[step], 1, "step %d is %d times in the metrics", step, times[step]);
}

static void expect_equal_results(const char *a, const char *b)
{
    static const char *const files[] = {"model", "optim"};

    for (int i = 0; i < 2; i++) {
        struct ct_buf one, other;
        char path[PATH_BYTES];
        ct_buf_init(&one, 0);
        ct_buf_init(&other, 0);
        (void)snprintf(path, sizeof path, "%s/ckpt/step_%08d/%s.safetensors", e2e_in_folder(a),
                       STEPS, files[i]);
        cr_assert_eq(ct_fs_read(path, 1 << 24, &one, NULL), 0, "%s", path);
        (void)snprintf(path, sizeof path, "%s/ckpt/step_%08d/%s.safetensors", e2e_in_folder(b),
                       STEPS, files[i]);
        cr_assert_eq(ct_fs_read(path, 1 << 24, &other, NULL), 0, "%s", path);
        cr_assert(one.size > 1000 && one.size == other.size &&
                      memcmp(one.data, other.data, one.size) == 0,
                  "%s differs", files[i]);
        ct_buf_deinit(&one);
        ct_buf_deinit(&other);
    }
}

Test(served, workers_and_the_server_are_lost_and_the_bits_are_those_of_ddp)
{
    static const char *const ddp[] = {"--nproc_per_node=2", "--parallel.strategy=ddp", NULL};
    static const char *const served[] = {"--nproc_per_node=3", NULL};
    static char run[] = "run";
    struct proc agent;

    start(&agent, "whole", ddp);
    finish(&agent, "whole");
    proc_free(&agent);
    start(&agent, run, served);
    wait_step(run, 200);
    lose(&agent, 3, 1);
    wait_step(run, 600);
    lose(&agent, 3, 0);
    wait_step(run, 1000);
    lose(&agent, 3, 2); /* the server */
    finish(&agent, run);
    e2e_said(&agent, "2 of 3 workers go on from step");
    e2e_said(&agent, "(restart 3 of 3)");
    expect_equal_results("whole", run);
    proc_free(&agent);
}

Test(served, a_stale_job_goes_on_from_what_its_servers_hold)
{
    static const char *const stale[] = {"--nproc_per_node=4", "--parallel.servers=2",
                                        "--parallel.staleness=3", NULL};
    static char run[] = "run";
    struct proc agent;

    start(&agent, run, stale);
    wait_step(run, 200);
    lose(&agent, 4, 1);
    finish(&agent, run);
    e2e_said(&agent, "3 of 4 workers go on from step");
    proc_free(&agent);
}
