/* See sweep.h. */
#include "train/sweep.h"

#include "base/assert.h"
#include "base/str.h"

#include <math.h>
#include <string.h>

int ct_sweep_rungs(int trials)
{
    int rungs = 0;

    while (rungs < CT_SWEEP_RUNGS && trials >> (rungs + 1) > 0)
        rungs++;
    return rungs;
}

/* The step, of `steps` altogether, from which on an evaluation is one of the rung. */
static uint64_t step_of(const struct ct_sweep *sweep, int rung, uint64_t steps)
{
    uint64_t share = UINT64_C(1) << (sweep->rungs - rung);

    return steps / share + (steps % share != 0);
}

void ct_sweep_note(const struct ct_sweep *sweep, struct ct_sweep_trial *trial, uint64_t step,
                   uint64_t steps, double value)
{
    while (trial->passed < sweep->rungs && step >= step_of(sweep, trial->passed, steps))
        trial->value[trial->passed++] = value;
}

static bool has_passed(const struct ct_sweep_trial *trial, int rung)
{
    return trial->passed > rung || trial->finished || trial->failed;
}

/* Is trial `a` before `b` at a rung? Of equal ones the first is. */
static bool is_before(const struct ct_sweep *sweep, const struct ct_sweep_trial *trials, int rung,
                      int a, int b)
{
    double x = trials[a].passed > rung ? trials[a].value[rung] : NAN;
    double y = trials[b].passed > rung ? trials[b].value[rung] : NAN;

    if (isnan(x) != isnan(y))
        return isnan(y);
    if (isnan(x) || x == y)
        return a < b;
    return sweep->higher ? x > y : x < y;
}

/* Sort out the worst half of those that are left at a rung. */
static void halve(const struct ct_sweep *sweep, const struct ct_sweep_trial *trials, int rung,
                  struct ct_sweep_decision *ret)
{
    bool worst[CT_SWEEP_TRIALS] = {false};
    int left = 0;

    for (int i = 0; i < sweep->trials; i++)
        left += ret[i].out < 0;
    for (int i = 0; i < sweep->trials; i++) {
        int before = 0;
        for (int k = 0; k < sweep->trials && ret[i].out < 0; k++)
            before += ret[k].out < 0 && k != i && is_before(sweep, trials, rung, k, i);
        worst[i] = ret[i].out < 0 && before >= (left + 1) / 2;
    }
    for (int i = 0; i < sweep->trials; i++)
        if (worst[i])
            ret[i].out = rung;
}

/* Decide the rungs that can be; returns the first one that cannot be yet. */
static int decide_rungs(const struct ct_sweep *sweep, const struct ct_sweep_trial *trials,
                        struct ct_sweep_decision *ret)
{
    for (int rung = 0; rung < sweep->rungs; rung++) {
        for (int i = 0; i < sweep->trials; i++)
            if (ret[i].out < 0 && !has_passed(&trials[i], rung))
                return rung;
        halve(sweep, trials, rung, ret);
    }
    return sweep->rungs;
}

/* Does it train towards the rung that is to be decided next, or to the end? */
static bool is_wanted(const struct ct_sweep *sweep, const struct ct_sweep_trial *trial, int out,
                      int rung)
{
    return out < 0 && !trial->finished && !trial->failed &&
           (rung == sweep->rungs || !has_passed(trial, rung));
}

int ct_sweep_decide(const struct ct_sweep *sweep, const struct ct_sweep_trial *trials,
                    struct ct_sweep_decision *ret)
{
    int left = 0, seats = sweep->seats, waiting = 0, freed = 0;

    CT_ASSERT(sweep->trials <= CT_SWEEP_TRIALS && sweep->rungs <= CT_SWEEP_RUNGS);
    for (int i = 0; i < sweep->trials; i++)
        ret[i] = (struct ct_sweep_decision){.order = CT_SWEEP_WAIT, .out = -1};
    int rung = decide_rungs(sweep, trials, ret);
    for (int i = 0; i < sweep->trials; i++) {
        bool runs = trials[i].running;

        left += ret[i].out < 0 && !trials[i].finished && !trials[i].failed;
        seats -= runs;
        if (runs && !trials[i].stopping && ret[i].out >= 0)
            ret[i].order = CT_SWEEP_STOP;
        freed += trials[i].stopping || ret[i].order == CT_SWEEP_STOP;
    }
    for (int i = 0; i < sweep->trials; i++) {
        if (trials[i].running || !is_wanted(sweep, &trials[i], ret[i].out, rung))
            continue;
        if (seats-- > 0)
            ret[i].order = CT_SWEEP_START;
        else
            waiting++;
    }
    for (int i = 0; i < sweep->trials && waiting > freed; i++) {
        const struct ct_sweep_trial *trial = &trials[i];
        if (!trial->running || trial->stopping || ret[i].order != CT_SWEEP_WAIT ||
            is_wanted(sweep, trial, ret[i].out, rung))
            continue;
        ret[i].order = CT_SWEEP_PAUSE;
        freed++;
    }
    return left;
}

/* ---- the grid ------------------------------------------------------------------------------- */

const char *ct_sweep_axis_parse(struct ct_sweep_axis *ret, const char *text)
{
    char *at = ret->text, *to;

    *ret = (struct ct_sweep_axis){.count = 0};
    if (!ct_str_copy(ret->text, sizeof ret->text, text))
        return "it is too long";
    char *values = strchr(at, '=');
    if (values == NULL || values == at)
        return "it is KEY=VALUE,VALUE, such as optim.lr=1e-3,3e-4";
    *values++ = '\0';
    ret->key = at;
    for (at = to = values;; at++) { /* a value ends at a comma that stands alone */
        bool comma = at[0] == ',' && at[1] == ',', ends = *at == '\0' || (*at == ',' && !comma);

        if (!ends) {
            *to++ = *at;
            at += comma;
            continue;
        }
        bool last = *at == '\0';
        if (ret->count == CT_SWEEP_VALUES)
            return "it has too many values";
        *to++ = '\0';
        ret->value[ret->count++] = values;
        values = to;
        if (last)
            break;
    }
    for (int i = 0; i < ret->count; i++)
        if (ret->value[i][0] == '\0')
            return "a value is empty";
    return NULL;
}

int ct_sweep_grid_size(const struct ct_sweep_axis *axes, int count)
{
    int size = 1;

    for (int i = 0; i < count && size <= CT_SWEEP_TRIALS; i++)
        size *= axes[i].count;
    return CT_MIN(size, CT_SWEEP_TRIALS + 1);
}

const char *ct_sweep_grid_value(const struct ct_sweep_axis *axes, int count, int trial, int axis)
{
    for (int i = count - 1; i > axis; i--)
        trial /= axes[i].count;
    return axes[axis].value[trial % axes[axis].count];
}
