/* See goodput.h. */
#include "rendezvous/history/goodput.h"

#include "base/assert.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *label, *help;
} texts[CT_TIME_USES] = {
#define CT_TIME_USE(name, label, help) {label, help},
#include "rendezvous/history/time_use.def"
#undef CT_TIME_USE
};

const char *ct_time_use_label(enum ct_time_use use)
{
    return texts[use].label;
}

const char *ct_time_use_help(enum ct_time_use use)
{
    return texts[use].help;
}

void ct_goodput_begin(struct ct_goodput *goodput, uint64_t now_ms)
{
    *goodput = (struct ct_goodput){.counted_ms = now_ms};
}

/* What the time is that no progress has accounted for. */
static enum ct_time_use use_of(const struct ct_goodput *goodput, enum ct_goodput_state next)
{
    bool runs = goodput->state == CT_GOODPUT_RUNS;

    if (goodput->state == CT_GOODPUT_IDLE)
        return CT_TIME_IDLE;
    if (runs && !goodput->reports && goodput->highest == 0)
        return CT_TIME_PRODUCTIVE;
    if (runs && goodput->stepped && (next == CT_GOODPUT_RUNS || next == CT_GOODPUT_FINISHED))
        return CT_TIME_PRODUCTIVE;
    return goodput->highest > 0 ? CT_TIME_RESTART : CT_TIME_START;
}

/* Seconds that are still to be counted at this time; they are counted now. */
static double take(struct ct_goodput *goodput, uint64_t now_ms)
{
    double seconds =
        now_ms > goodput->counted_ms ? (double)(now_ms - goodput->counted_ms) / 1e3 : 0;

    goodput->counted_ms = CT_MAX(goodput->counted_ms, now_ms);
    return seconds;
}

void ct_goodput_state(struct ct_goodput *goodput, uint64_t now_ms, enum ct_goodput_state state)
{
    if (goodput->state >= CT_GOODPUT_OVER)
        return;
    enum ct_time_use use = use_of(goodput, state);
    goodput->seconds[use] += take(goodput, now_ms);
    if (state == CT_GOODPUT_RUNS && goodput->state != CT_GOODPUT_RUNS) {
        goodput->stepped = false;
        goodput->last = (struct ct_goodput_progress){.step = 0};
    }
    goodput->state = state;
}

/* Move as much of `wanted` as `*left` has to a use; returns how much that was. */
static double give(struct ct_goodput *goodput, enum ct_time_use use, double wanted, double *left)
{
    double seconds = fmin(fmax(wanted, 0), *left);

    goodput->seconds[use] += seconds;
    *left -= seconds;
    return seconds;
}

/* The same of what a worker has measured, with what it told before and found no room: it cannot be
 * more than what was taken for steps meanwhile. */
static void give_told(struct ct_goodput *goodput, enum ct_time_use use, double told, double *left)
{
    double wanted = goodput->owed[use] + fmax(told, 0);
    double owed = wanted - give(goodput, use, wanted, left);

    goodput->owed[use] =
        fmin(owed, goodput->seconds[CT_TIME_PRODUCTIVE] + goodput->seconds[CT_TIME_RECOMPUTE]);
}

/* The part of the steps up to `step` that had been made before. */
static double repeated(const struct ct_goodput *goodput, uint64_t step)
{
    uint64_t before = goodput->last.step;

    if (!goodput
             ->stepped) /* where the round began is not told: its first progress is of few steps */
        return step <= goodput->highest ? 1 : 0;
    if (step <= before)
        return 0;
    return (double)(CT_MIN(step, CT_MAX(goodput->highest, before)) - before) /
           (double)(step - before);
}

void ct_goodput_progress(struct ct_goodput *goodput, uint64_t now_ms,
                         const struct ct_goodput_progress *progress)
{
    const struct ct_goodput_progress *last = &goodput->last;

    if (goodput->state != CT_GOODPUT_RUNS)
        return;
    double left = take(goodput, now_ms);
    if (!goodput->stepped) {
        double outside = left - fmin(fmax(progress->trained_s, 0), left);
        (void)give(goodput, use_of(goodput, CT_GOODPUT_FORMS), outside, &left);
    }
    give_told(goodput, CT_TIME_CHECKPOINT, progress->saving_s - last->saving_s, &left);
    give_told(goodput, CT_TIME_STRAGGLER, progress->straggler_s - last->straggler_s, &left);
    (void)give(goodput, CT_TIME_RECOMPUTE, left * repeated(goodput, progress->step), &left);
    (void)give(goodput, CT_TIME_PRODUCTIVE, left, &left);
    goodput->stepped = true;
    goodput->highest = CT_MAX(goodput->highest, progress->step);
    goodput->last = *progress;
}

void ct_goodput_read(const struct ct_goodput *goodput, uint64_t now_ms,
                     double ret_seconds[CT_TIME_USES])
{
    struct ct_goodput now = *goodput;

    ct_goodput_state(&now, now_ms, now.state);
    memcpy(ret_seconds, now.seconds, sizeof now.seconds);
}
