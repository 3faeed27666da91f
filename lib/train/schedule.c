/* See schedule.h. */
#include "train/schedule.h"

#include "base/assert.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* The factor on the way down: 1 at done = 0, 0 at done = 1. */
static double constant(double done)
{
    (void)done;
    return 1;
}

static double linear(double done)
{
    return 1 - done;
}

static double cosine(double done)
{
    return 0.5 * (1 + cos(3.14159265358979323846 * done));
}

static const struct {
    const char *name;
    double (*factor)(double done);
} types[] = {
    [CT_SCHEDULE_CONSTANT] = {"constant", constant},
    [CT_SCHEDULE_LINEAR] = {"linear", linear},
    [CT_SCHEDULE_COSINE] = {"cosine", cosine},
};
_Static_assert(CT_COUNT(types) == CT_SCHEDULE_COUNT, "a row for every type");

int ct_schedule_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return (int)i;
    return -1;
}

double ct_schedule_lr(const struct ct_schedule *schedule, uint64_t step)
{
    uint64_t last = schedule->steps > 0 ? schedule->steps - 1 : 0;
    double done = 1;

    CT_ASSERT(schedule->type < CT_SCHEDULE_COUNT);
    if (step < schedule->warmup)
        return schedule->lr * (double)(step + 1) / (double)schedule->warmup;
    if (step < last)
        done = (double)(step - schedule->warmup) / (double)(last - schedule->warmup);
    double factor = types[schedule->type].factor(done);
    if (schedule->type == CT_SCHEDULE_CONSTANT)
        return schedule->lr;
    return schedule->lr * (schedule->min_ratio + (1 - schedule->min_ratio) * factor);
}
