/* See pace.h. */
#include "pace.h"

#include "ps.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often the kernel is asked, at most. */
enum { ASK_MS = 250 };

static struct ct_straggler_sample *own_sample(struct ct_worker *worker)
{
    return &worker->pace.samples[worker->me->rank];
}

/* Until they are filled, entries say that the step is not known. */
static void reset_batch(struct ct_worker *worker)
{
    for (int i = 0; i < CT_STRAGGLER_BATCH; i++)
        own_sample(worker)->waited_us[i] = -1;
}

/* How long this thread was ready to run while others had the cores, in ns; 0 where the kernel does
 * not count it. The other threads' does not belong here: they sleep while this one computes. */
static uint64_t read_starved_ns(void)
{
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    unsigned long long starved_ns = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &starved_ns) != 1)
        starved_ns = 0;
    (void)fclose(file);
    return starved_ns;
}

/* What part of the time since the last look this thread waited for a core. */
static void measure_starvation(struct ct_worker *worker)
{
    struct ct_pace *pace = &worker->pace;
    uint64_t now_ns = ct_clock_mono_ns(worker->clock);

    if (now_ns - pace->read_ns < ASK_MS * UINT64_C(1000000))
        return;
    uint64_t starved_ns = read_starved_ns();
    own_sample(worker)->starved =
        (float)(starved_ns - pace->starved_ns) / (float)(now_ns - pace->read_ns);
    pace->starved_ns = starved_ns;
    pace->read_ns = now_ns;
}

int ct_pace_open(struct ct_worker *worker, struct ct_error *err)
{
    size_t world = (size_t)worker->me->world;
    struct ct_pace *pace = &worker->pace;

    memset(pace, 0, sizeof *pace);
    pace->ended_ns = ct_clock_mono_ns(worker->clock);
    if (worker->group == NULL || ct_ps_used(worker)) /* servers are who one waits for */
        return 0;
    pace->samples = calloc(world, sizeof *pace->samples);
    pace->room = calloc(world, sizeof *pace->room);
    if (pace->samples == NULL || pace->room == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the pace of %zu ranks", world);
    reset_batch(worker);
    own_sample(worker)->node = (float)worker->me->node_rank;
    pace->starved_ns = read_starved_ns();
    pace->read_ns = pace->ended_ns;
    return 0;
}

void ct_pace_close(struct ct_worker *worker)
{
    free(worker->pace.samples);
    free(worker->pace.room);
    worker->pace.samples = NULL;
    worker->pace.room = NULL;
}

void ct_pace_begin(struct ct_worker *worker)
{
    if (worker->group != NULL)
        worker->pace.waited_ns = ct_group_waited_ns(ct_worker_step_group(worker));
}

/* Everybody gets the whole table; rank 0 reads it. */
static int compare(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_pace *pace = &worker->pace;
    struct ct_straggler_finding found;

    measure_starvation(worker);
    int code = ct_all_gather(
        worker->group, ct_inplace(pace->samples, sizeof *pace->samples / sizeof(float), CT_F32),
        NULL);

    if (code != 0)
        return ct_error_set(err, code, "comparing the pace of ranks: %s",
                            ct_group_failure(worker->group)->text);
    if (worker->me->rank == 0) {
        ct_straggler_add(&pace->straggler, worker->me->world, pace->samples, pace->took_us,
                         pace->room);
        if (ct_straggler_find(&pace->straggler, &found))
            ct_job_straggler(worker->job, found.rank, found.share, found.cost);
    }
    reset_batch(worker);
    return 0;
}

int ct_pace_end(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_pace *pace = &worker->pace;

    if (pace->samples == NULL)
        return 0;
    size_t at = (worker->step - 1) % CT_STRAGGLER_BATCH;
    uint64_t waited_ns = ct_group_waited_ns(ct_worker_step_group(worker)) - pace->waited_ns;
    uint64_t now_ns = ct_clock_mono_ns(worker->clock);
    pace->took_us[at] = (float)(now_ns - pace->ended_ns) / 1000;
    pace->ended_ns = now_ns;
    own_sample(worker)->waited_us[at] = (float)waited_ns / 1000;
    return worker->step % CT_STRAGGLER_BATCH == 0 ? compare(worker, err) : 0;
}
