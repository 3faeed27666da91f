/* Two groups at work at once on one wire: how they share it. A worker for scripts/bench/wire.
 *
 *     ctrun ... share SECONDS BYTES BYTES
 *
 * Each group has a thread, which makes all_reduces of so many bytes for so long; rank 0's first
 * element tells the others when to stop. Rank 0 prints for each group: share BYTES, bytes a second.
 * BENCH_BACKEND as in peer.c. */
#include "base/clock.h"
#include "ctrun.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUPS = 2 };

struct part {
    struct ct_group *group;
    float *data;
    size_t count;
    uint64_t until_ns, took_ns, calls;
};

static void must(int code, const struct ct_error *err)
{
    if (code == 0)
        return;
    (void)fprintf(stderr, "share: %s\n", err->text);
    exit(ct_exit_status(code));
}

static void *work(void *argument)
{
    struct part *part = argument;
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    do {
        uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);

        part->data[0] = ct_group_rank(part->group) == 0 && now_ns >= part->until_ns ? 1.0f : 0.0f;
        must(ct_all_reduce(part->group, ct_inplace(part->data, part->count, CT_F32), CT_REDUCE_SUM,
                           NULL),
             ct_group_failure(part->group));
        part->calls++;
    } while (part->data[0] == 0.0f);
    part->took_ns = ct_clock_mono_ns(&ct_clock_system) - start_ns;
    return NULL;
}

int main(int argc, char **argv)
{
    struct part parts[GROUPS] = {0};
    pthread_t threads[GROUPS];
    struct ct_job *job;
    struct ct_error err = {0};

    if (argc != 2 + GROUPS)
        return 2;
    must(ct_job_open(&job, &err), &err);
    for (int i = 0; i < GROUPS; i++) {
        struct ct_group_options options = {.name = i == 0 ? "a" : "b",
                                           .backend = getenv("BENCH_BACKEND")};

        parts[i].count = strtoull(argv[2 + i], NULL, 10) / sizeof(float);
        parts[i].data = calloc(parts[i].count + 1, sizeof(float));
        must(parts[i].data != NULL ? ct_group_new(job, &options, &parts[i].group, &err) : CT_ENOMEM,
             &err);
    }
    must(ct_barrier(parts[0].group, NULL), ct_group_failure(parts[0].group));
    for (int i = 0; i < GROUPS; i++) {
        parts[i].until_ns =
            ct_clock_mono_ns(&ct_clock_system) + strtoull(argv[1], NULL, 10) * 1000000000u;
        must(pthread_create(&threads[i], NULL, work, &parts[i]) == 0 ? 0 : CT_ENOMEM, &err);
    }
    for (int i = 0; i < GROUPS; i++)
        (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < GROUPS && ct_group_rank(parts[i].group) == 0; i++)
        (void)printf("share %zu %.0f\n", parts[i].count * sizeof(float),
                     (double)(parts[i].calls * parts[i].count * sizeof(float)) /
                         ((double)parts[i].took_ns / 1e9));
    for (int i = 0; i < GROUPS; i++) {
        ct_group_free(parts[i].group);
        free(parts[i].data);
    }
    ct_job_close(job);
    return 0;
}
