/* What a set and a get of the job's store take, over and over: a worker of one rank.
 *
 * usage: ctrun --no_python store_times FILE
 *
 * A line in FILE for each turn: when it began (s of CLOCK_MONOTONIC), us of the set, us of the get;
 * 50 turns a second, until the job is stopped. scripts/bench/strangers runs it beside strangers. */
#include "collectives/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { TURNS_PER_S = 50, PATIENCE_MS = 10000, BYTES = 64 };

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* 0, or the code of what failed. */
static int turn(const struct ct_kv *kv, unsigned number, FILE *out)
{
    char key[32], data[BYTES] = "";
    struct ct_kv_value value = {.data = data, .size = sizeof data};

    (void)snprintf(key, sizeof key, "key%u", number % 1000);
    double begin = now_us();
    int code = kv->set(kv->context, key, data, sizeof data);
    double set = now_us();
    if (code == 0)
        code = kv->wait(kv->context, key, &value, PATIENCE_MS);
    (void)fprintf(out, "%.6f %.1f %.1f\n", begin / 1e6, set - begin, now_us() - set);
    return code;
}

int main(int argc, char **argv)
{
    struct ct_job *job;
    struct ct_error err = {.code = 0};
    uint64_t deadline_ms;
    const struct timespec turn_time = {.tv_nsec = 1000000000 / TURNS_PER_S};
    const struct itimerspec pace = {.it_interval = turn_time, .it_value = turn_time};
    int clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    uint64_t missed;
    FILE *out = argc == 2 ? fopen(argv[1], "we") : NULL;
    int code = 0;

    if (out == NULL || ct_job_open(&job, &err) != 0) {
        (void)fprintf(stderr, "store_times: %s\n", out != NULL ? err.text : "needs a FILE");
        return 1;
    }
    (void)timerfd_settime(clock, 0, &pace, NULL);
    (void)setvbuf(out, NULL, _IOLBF, 0);
    for (unsigned i = 0; code == 0 && !ct_job_stop_requested(job, &deadline_ms); i++) {
        code = turn(&job->kv, i, out);
        if (read(clock, &missed, sizeof missed) != (ssize_t)sizeof missed)
            break;
    }
    ct_job_close(job);
    return code == 0 ? 0 : 1;
}
