/* See ps_schedule.h. */
#include "collectives/ps/ps_schedule.h"

#include "base/assert.h"

#include <stddef.h>

void ct_ps_schedule_init(struct ct_ps_schedule *schedule, int workers, uint64_t staleness,
                         uint64_t step)
{
    struct ct_ps_progress *progress = schedule->progress;

    CT_ASSERT(workers > 0 && progress != NULL);
    *schedule =
        (struct ct_ps_schedule){.workers = workers, .staleness = staleness, .progress = progress};
    for (int i = 0; i < workers; i++)
        progress[i] = (struct ct_ps_progress){.pushed = step, .present = true};
}

/* How far the slowest is. */
static uint64_t slowest(const struct ct_ps_schedule *schedule)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < schedule->workers; i++)
        if (schedule->progress[i].present || schedule->staleness == 0)
            least = CT_MIN(least, schedule->progress[i].pushed);
    return least;
}

bool ct_ps_schedule_push(struct ct_ps_schedule *schedule, int worker, uint64_t step,
                         enum ct_ps_due *ret_due)
{
    struct ct_ps_progress *progress = &schedule->progress[worker];
    uint64_t before = slowest(schedule);

    if (!progress->present || progress->pushed != step || progress->granted != step + 1)
        return false;
    progress->pushed++;
    if (schedule->staleness > 0)
        *ret_due = CT_PS_ONE_DUE;
    else
        *ret_due = slowest(schedule) > before ? CT_PS_SUM_DUE : CT_PS_NOT_DUE;
    return true;
}

bool ct_ps_schedule_begin(struct ct_ps_schedule *schedule, int worker, uint64_t step)
{
    struct ct_ps_progress *progress = &schedule->progress[worker];
    uint64_t least = slowest(schedule);

    if (progress->pushed != step || (least < step && step - least > schedule->staleness))
        return false;
    progress->granted = step + 1;
    return true;
}

void ct_ps_schedule_vote_leave(struct ct_ps_schedule *schedule)
{
    uint64_t next = 0;

    if (schedule->leave_at != 0)
        return;
    for (int i = 0; i < schedule->workers; i++) {
        const struct ct_ps_progress *progress = &schedule->progress[i];
        next = CT_MAX(next, CT_MAX(progress->granted, progress->pushed));
    }
    schedule->leave_at = next;
}

void ct_ps_schedule_remove(struct ct_ps_schedule *schedule, int worker)
{
    schedule->progress[worker].present = false;
}

uint64_t ct_ps_schedule_step(const struct ct_ps_schedule *schedule)
{
    return schedule->staleness == 0 ? slowest(schedule) : schedule->progress[0].pushed;
}
