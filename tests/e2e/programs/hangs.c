/* Steps of collectives in which one rank goes wrong, in the way that it is told:
 *
 *     ctrun --nproc_per_node 8 hangs CASE VICTIM STEP [TIMEOUT_MS]
 *
 * Each step: an all_reduce and a broadcast over the world, an all_gather in the half of the world
 * that the rank belongs to. With case "jitter" nothing goes wrong: STEP steps, in each of which the
 * ranks take what time a die says. */
#include <ctrun.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 64, LARGE = 1 << 20, STEP_MS = 2 };

static float large[LARGE];

struct run {
    struct ct_job *job;
    struct ct_group *world, *half, *twin; /* twin: the world once more */
    const char *what;
    int rank, size, victim;
    unsigned long long step, at;
    float data[64 * WIDTH];
};

static int is(const struct run *run, const char *what)
{
    return run->step == run->at && strcmp(run->what, what) == 0;
}

static int fails(const struct run *run, const char *what)
{
    return run->rank == run->victim && is(run, what);
}

static void sleep_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

static void on_alarm(int signal)
{
    (void)signal;
    (void)raise(SIGSTOP);
}

/* What the victim does instead of computing. */
static void go_wrong(const struct run *run)
{
    volatile unsigned long long turns = 0;

    if (fails(run, "sleep"))
        for (;;)
            sleep_ms(1000);
    if (fails(run, "spin"))
        for (;;)
            turns++;
    if (fails(run, "stop"))
        (void)raise(SIGSTOP);
    if (fails(run, "kill"))
        (void)raise(SIGKILL);
    if (fails(run, "abort"))
        abort();
    if (fails(run, "exit"))
        _exit(0);
    if (run->rank == run->victim && strcmp(run->what, "slow") == 0)
        sleep_ms(run->step == run->at ? 1500 : 700);
    if (fails(run, "stop_inside")) { /* it waits for the next rank by then */
        (void)signal(SIGALRM, on_alarm);
        (void)ualarm(200000, 0);
    }
    if (is(run, "stop_inside") && run->rank == (run->victim + 1) % run->size)
        sleep_ms(500);
}

/* A function of its own, so that the recorder's call sites name it. */
static int __attribute__((noinline)) first_call(struct run *run)
{
    struct ct_data data = ct_inplace(run->data, WIDTH, CT_F32);
    struct ct_request *request;

    if (fails(run, "skip"))
        return 0;
    if (fails(run, "op"))
        return ct_barrier(run->world, NULL);
    if (fails(run, "count"))
        data.count--;
    if (fails(run, "dtype"))
        data.dtype = CT_I32;
    if (is(run, "enter")) /* more than a start can be done with */
        data = ct_inplace(large, LARGE, CT_F32);
    if (fails(run, "enter")) { /* and never go on with it */
        (void)ct_all_reduce_start(run->world, data, CT_REDUCE_MAX, NULL, &request);
        for (;;)
            sleep_ms(1000);
    }
    if (is(run, "order"))
        return run->rank == run->victim ? ct_barrier(run->twin, NULL)
                                        : ct_barrier(run->world, NULL);
    return ct_all_reduce(run->world, data, CT_REDUCE_MAX, NULL);
}

static int second_call(struct run *run)
{
    int root = fails(run, "root") ? 1 : 0;

    if (is(run, "order"))
        return run->rank == run->victim ? ct_barrier(run->world, NULL)
                                        : ct_barrier(run->twin, NULL);
    return ct_broadcast(run->world, ct_inplace(run->data, WIDTH, CT_F32), root, NULL);
}

static int third_call(struct run *run)
{
    struct ct_data data = ct_inplace(run->data, WIDTH, CT_F32);
    int peer = run->rank ^ 1;

    if (fails(run, "half"))
        for (;;)
            sleep_ms(1000);
    if (strcmp(run->what, "message") == 0 && run->size % 2 == 0) {
        if (fails(run, "message"))
            data.count--;
        return run->rank < peer ? ct_send(run->world, data, peer, NULL)
                                : ct_recv(run->world, data, peer, NULL);
    }
    return ct_all_gather(run->half, data, NULL);
}

static int steps(struct run *run, unsigned long long count)
{
    unsigned dice = 17u + (unsigned)run->rank;
    int jitter = strcmp(run->what, "jitter") == 0, code = 0;

    for (run->step = 1; code == 0 && run->step <= count; run->step++) {
        ct_job_at(run->job, CT_AT_STEP, run->step - 1);
        dice = dice * 1103515245u + 12345u;
        if (jitter && (dice >> 16) % 8 == 0)
            sleep_ms((int)(dice >> 20) % 7);
        else if (!jitter)
            sleep_ms(STEP_MS);
        go_wrong(run);
        code = first_call(run);
        if (code == 0)
            code = second_call(run);
        if (code == 0)
            code = third_call(run);
    }
    return code;
}

static int make_groups(struct run *run, uint64_t timeout_ms, struct ct_error *err)
{
    struct ct_group_options world = {.timeout_ms = timeout_ms,
                                     .no_thread = strcmp(run->what, "enter") == 0};
    struct ct_group_options twin = {.name = "twin", .timeout_ms = timeout_ms};
    int code = ct_group_new(run->job, &world, &run->world, err);

    if (code == 0)
        code = ct_group_new(run->job, &twin, &run->twin, err);
    if (code == 0)
        code = ct_group_split(run->world, run->rank < run->size / 2 ? 0 : 1, run->rank, &run->half,
                              err);
    return code;
}

int main(int argc, char **argv)
{
    static struct run run;
    struct ct_error err = {0};

    if (argc < 4)
        return 2;
    run.what = argv[1];
    run.victim = atoi(argv[2]);
    run.at = strtoull(argv[3], NULL, 10);
    int code = ct_job_open(&run.job, &err);
    if (code == 0) {
        run.rank = ct_job_assignment(run.job)->rank;
        run.size = ct_job_assignment(run.job)->world;
        code = make_groups(&run, argc > 4 ? strtoull(argv[4], NULL, 10) : 0, &err);
    }
    if (code == 0) {
        code = steps(&run, strcmp(run.what, "jitter") == 0 ? run.at : run.at + 20);
        if (code != 0)
            err = *ct_group_failure(ct_group_failure(run.world)->code != 0  ? run.world
                                    : ct_group_failure(run.half)->code != 0 ? run.half
                                                                            : run.twin);
    }
    if (code != 0) {
        (void)fprintf(stderr, "hangs: %s\n", err.text);
        (void)ct_job_failure(run.job, &err);
    } else if (run.rank == 0) {
        (void)printf("done after %llu steps\n", run.step - 1);
    }
    ct_group_free(run.half);
    ct_group_free(run.twin);
    ct_group_free(run.world);
    ct_job_close(run.job);
    return ct_exit_status(code);
}
