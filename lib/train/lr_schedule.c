/* See lr_schedule.h. */
#include "train/lr_schedule.h"

#include "base/assert.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* How much of the way from step `from` to step `to` is done at `step`: 0 to 1. */
static double done(uint64_t from, uint64_t step, uint64_t to)
{
    if (step >= to)
        return 1;
    return step <= from ? 0 : (double)(step - from) / (double)(to - from);
}

static uint64_t last_step(const struct ct_schedule *s)
{
    return s->steps > 0 ? s->steps - 1 : 0;
}

static uint64_t warmup_steps(const struct ct_schedule *s)
{
    bool chosen = s->warmup > 0 || s->type != CT_SCHEDULE_ONECYCLE;

    return chosen ? s->warmup : CT_MAX(s->steps * 3 / 10, 1);
}

/* From 1 to 0 as half a cosine. */
static double half_cosine(double part)
{
    return 0.5 * (1 + cos(3.14159265358979323846 * part));
}

static double down_to_min(const struct ct_schedule *s, double factor)
{
    return s->min_ratio + (1 - s->min_ratio) * factor;
}

/* ---- the shapes behind the warm-up, as parts of lr ------------------------------------------ */

static double constant(const struct ct_schedule *s, uint64_t step)
{
    (void)s;
    (void)step;
    return 1;
}

static double linear(const struct ct_schedule *s, uint64_t step)
{
    return down_to_min(s, 1 - done(s->warmup, step, last_step(s)));
}

static double cosine(const struct ct_schedule *s, uint64_t step)
{
    return down_to_min(s, half_cosine(done(s->warmup, step, last_step(s))));
}

static double wsd(const struct ct_schedule *s, uint64_t step)
{
    uint64_t decay = s->decay > 0 ? s->decay : s->steps / 5, last = last_step(s);

    return down_to_min(s, 1 - done(last - CT_MIN(decay, last), step, last));
}

static double stairs(const struct ct_schedule *s, uint64_t step)
{
    CT_ASSERT(s->every > 0);
    uint64_t stair = step / s->every;
    return pow(s->factor, (double)stair);
}

static double onecycle(const struct ct_schedule *s, uint64_t step)
{
    return down_to_min(s, half_cosine(done(warmup_steps(s) - 1, step, last_step(s))));
}

typedef double shape_fn(const struct ct_schedule *s, uint64_t step);

static shape_fn *const shapes[] = {
    [CT_SCHEDULE_CONSTANT] = constant, [CT_SCHEDULE_LINEAR] = linear,
    [CT_SCHEDULE_COSINE] = cosine,     [CT_SCHEDULE_WSD] = wsd,
    [CT_SCHEDULE_STEP] = stairs,       [CT_SCHEDULE_ONECYCLE] = onecycle,
    [CT_SCHEDULE_PLATEAU] = constant,
};
_Static_assert(CT_COUNT(shapes) == CT_SCHEDULE_COUNT, "a shape for every type");

double ct_schedule_lr(const struct ct_schedule *schedule, uint64_t step)
{
    uint64_t warmup = warmup_steps(schedule);

    CT_ASSERT(schedule->type < CT_SCHEDULE_COUNT);
    if (step >= warmup)
        return schedule->lr * shapes[schedule->type](schedule, step);
    if (schedule->type != CT_SCHEDULE_ONECYCLE)
        return schedule->lr * (double)(step + 1) / (double)warmup;
    double start = schedule->start_ratio;
    return schedule->lr * (1 - (1 - start) * half_cosine(done(0, step, warmup - 1)));
}
