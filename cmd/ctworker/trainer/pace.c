/* See pace.h. */
#include "pace.h"

#include "ps.h"
#include "worker.h"

#include <stdlib.h>
#include <string.h>

/* Until they are filled, entries say that the step is not known. */
static void forget_batch(struct ct_worker *worker)
{
    float *own = worker->pace.waited_us + (size_t)worker->me->rank * CT_STRAGGLER_BATCH;

    for (int i = 0; i < CT_STRAGGLER_BATCH; i++)
        own[i] = -1;
}

int ct_pace_open(struct ct_worker *worker, struct ct_error *err)
{
    size_t world = (size_t)worker->me->world;
    struct ct_pace *pace = &worker->pace;

    memset(pace, 0, sizeof *pace);
    pace->ended_ns = ct_clock_mono_ns(worker->clock);
    if (worker->group == NULL || ct_ps_used(worker)) /* servers are who one waits for */
        return 0;
    pace->waited_us = calloc(world * CT_STRAGGLER_BATCH, sizeof *pace->waited_us);
    pace->room = calloc(world, sizeof *pace->room);
    if (pace->waited_us == NULL || pace->room == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the pace of %zu ranks", world);
    forget_batch(worker);
    return 0;
}

void ct_pace_close(struct ct_worker *worker)
{
    free(worker->pace.waited_us);
    free(worker->pace.room);
    worker->pace.waited_us = worker->pace.room = NULL;
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
    int code =
        ct_all_gather(worker->group, ct_inplace(pace->waited_us, CT_STRAGGLER_BATCH, CT_F32), NULL);

    if (code != 0)
        return ct_error_set(err, code, "comparing the pace of ranks: %s",
                            ct_group_failure(worker->group)->text);
    if (worker->me->rank == 0) {
        ct_straggler_add(&pace->straggler, worker->me->world, pace->waited_us, pace->took_us,
                         pace->room);
        if (ct_straggler_find(&pace->straggler, &found))
            ct_job_straggler(worker->job, found.rank, found.share, found.cost);
    }
    forget_batch(worker);
    return 0;
}

int ct_pace_end(struct ct_worker *worker, struct ct_error *err)
{
    struct ct_pace *pace = &worker->pace;

    if (pace->waited_us == NULL)
        return 0;
    size_t at = (worker->step - 1) % CT_STRAGGLER_BATCH;
    uint64_t waited_ns = ct_group_waited_ns(ct_worker_step_group(worker)) - pace->waited_ns;
    uint64_t now_ns = ct_clock_mono_ns(worker->clock);
    pace->took_us[at] = (float)(now_ns - pace->ended_ns) / 1000;
    pace->ended_ns = now_ns;
    pace->waited_us[(size_t)worker->me->rank * CT_STRAGGLER_BATCH + at] = (float)waited_ns / 1000;
    return worker->step % CT_STRAGGLER_BATCH == 0 ? compare(worker, err) : 0;
}
