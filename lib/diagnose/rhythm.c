/* See rhythm.h. */
#include "diagnose/rhythm.h"

#include "base/assert.h"
#include "base/number/percentile.h"

/* ---- patience ------------------------------------------------------------------------------- */

static void remember(struct ct_rhythm_pauses *pauses, uint64_t pause_ms)
{
    pauses->at_ms[pauses->next] = (uint32_t)CT_MIN(pause_ms, (uint64_t)UINT32_MAX);
    pauses->next = (pauses->next + 1) % CT_RHYTHM_PAUSES;
    pauses->count = CT_MIN(pauses->count + 1, (uint32_t)CT_RHYTHM_PAUSES);
}

/* The pause that 99 of 100 do not exceed; 0 without any. */
static uint64_t percentile_99_ms(const struct ct_rhythm_pauses *pauses)
{
    return ct_percentile_99(pauses->at_ms, pauses->count);
}

uint64_t ct_rhythm_silent_ms(const struct ct_rhythm *rhythm)
{
    return CT_MAX(rhythm->floor_ms, CT_RHYTHM_FACTOR * percentile_99_ms(&rhythm->silences));
}

static uint64_t busy_floor_ms(const struct ct_rhythm *rhythm)
{
    return CT_RHYTHM_BUSY_FACTOR * rhythm->floor_ms;
}

/* How long all may work without a sign; UINT64_MAX: for ever. */
static uint64_t patience_busy_ms(const struct ct_rhythm *rhythm)
{
    if (!rhythm->has_heartbeats && rhythm->printing_ms < busy_floor_ms(rhythm))
        return UINT64_MAX;
    return CT_MAX(busy_floor_ms(rhythm), CT_RHYTHM_FACTOR * percentile_99_ms(&rhythm->busy));
}

/* ---- looking -------------------------------------------------------------------------------- */

void ct_rhythm_begin(struct ct_rhythm *rhythm, struct ct_rhythm_rank *ranks, uint32_t count)
{
    CT_ASSERT(count > 0);
    rhythm->ranks = ranks;
    rhythm->count = count;
    rhythm->checked_ms = 0;
    rhythm->judged = rhythm->has_output = false;
    rhythm->printing_ms = rhythm->since_printed_ms = 0;
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = (struct ct_rhythm_rank){.last = {.alive = false}};
}

/* Output shows a rhythm only where it goes on: what is printed at the start shows none. */
static void note_output(struct ct_rhythm *rhythm, bool printed, uint64_t passed_ms)
{
    rhythm->since_printed_ms += passed_ms;
    if (!printed)
        return;
    if (rhythm->has_output)
        rhythm->printing_ms += rhythm->since_printed_ms;
    rhythm->has_output = true;
    rhythm->since_printed_ms = 0;
}

/* Has it used the processor? Its last descendants may have taken theirs with them. */
static bool has_worked(const struct ct_rhythm_sample *last, const struct ct_rhythm_sample *now,
                       uint64_t passed_ms)
{
    return now->waiting || now->family != last->family || now->cpu_ms < last->cpu_ms ||
           (now->cpu_ms - last->cpu_ms) * 100 > passed_ms * CT_RHYTHM_WORK_PERCENT;
}

/* Count how long this worker has given no sign, and has done nothing. */
static void count_silence(struct ct_rhythm *rhythm, struct ct_rhythm_rank *rank,
                          const struct ct_rhythm_sample *now, uint64_t passed_ms)
{
    const struct ct_rhythm_sample *last = &rank->last;
    bool is_new = !now->alive || now->excused || !last->alive || last->pid != now->pid;
    bool beats = !is_new && now->heartbeats != last->heartbeats;
    bool sign = is_new || beats || now->output != last->output || now->io != last->io;
    bool works = sign || has_worked(last, now, passed_ms);

    rhythm->has_heartbeats |= beats;
    rank->signless_ms = sign ? 0 : rank->signless_ms + passed_ms;
    rank->silent_ms = works ? 0 : rank->silent_ms + passed_ms;
    rank->stopped_ms = is_new || !now->stopped ? 0 : rank->stopped_ms + passed_ms;
    rank->last = *now;
}

/* For how long has no living rank given a sign, or done anything? */
struct quiet {
    uint32_t alive;
    uint64_t signless_ms, silent_ms;
};

static struct quiet find_quiet(const struct ct_rhythm *rhythm)
{
    struct quiet quiet = {.signless_ms = UINT64_MAX, .silent_ms = UINT64_MAX};

    for (uint32_t i = 0; i < rhythm->count; i++) {
        const struct ct_rhythm_rank *rank = &rhythm->ranks[i];

        if (!rank->last.alive)
            continue;
        quiet.alive++;
        quiet.signless_ms = CT_MIN(quiet.signless_ms, rank->signless_ms);
        quiet.silent_ms = CT_MIN(quiet.silent_ms, rank->silent_ms);
    }
    return quiet.alive > 0 ? quiet : (struct quiet){.alive = 0};
}

/* A pause has ended: short ones cannot raise the patience, and would only hide the long ones. */
static void learn(struct ct_rhythm *rhythm, const struct quiet *before, const struct quiet *now)
{
    if (now->alive != before->alive)
        return;
    if (now->silent_ms == 0 && before->silent_ms * CT_RHYTHM_FACTOR > rhythm->floor_ms)
        remember(&rhythm->silences, before->silent_ms);
    if (now->signless_ms == 0 && before->signless_ms * CT_RHYTHM_FACTOR > busy_floor_ms(rhythm))
        remember(&rhythm->busy, before->signless_ms);
}

static void look(struct ct_rhythm *rhythm, uint64_t now_ms, const struct ct_rhythm_sample *samples)
{
    uint64_t passed_ms = rhythm->checked_ms == 0 ? 0 : now_ms - rhythm->checked_ms;
    struct quiet before = find_quiet(rhythm), now;
    bool printed = false;

    passed_ms = CT_MIN(passed_ms, 2u * CT_RHYTHM_POLL_MS);
    rhythm->checked_ms = now_ms;
    for (uint32_t i = 0; i < rhythm->count; i++) {
        printed |= samples[i].alive && samples[i].output != rhythm->ranks[i].last.output;
        count_silence(rhythm, &rhythm->ranks[i], &samples[i], passed_ms);
    }
    note_output(rhythm, printed, passed_ms);
    now = find_quiet(rhythm);
    learn(rhythm, &before, &now);
}

bool ct_rhythm_is_quiet(const struct ct_rhythm *rhythm, uint32_t worker)
{
    CT_ASSERT(worker < rhythm->count);
    return rhythm->ranks[worker].last.alive && rhythm->ranks[worker].silent_ms > 0;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* The living rank that did nothing for longest. */
static uint32_t find_longest(const struct ct_rhythm *rhythm)
{
    uint32_t found = UINT32_MAX;

    for (uint32_t i = 0; i < rhythm->count; i++)
        if (rhythm->ranks[i].last.alive &&
            (found == UINT32_MAX || rhythm->ranks[i].silent_ms > rhythm->ranks[found].silent_ms))
            found = i;
    CT_ASSERT(found != UINT32_MAX);
    return found;
}

/* The first rank that was stopped for too long; -1: none. */
static int64_t find_stopped(const struct ct_rhythm *rhythm)
{
    for (uint32_t i = 0; i < rhythm->count; i++)
        if (rhythm->ranks[i].last.alive && rhythm->ranks[i].stopped_ms > rhythm->floor_ms)
            return i;
    return -1;
}

bool ct_rhythm_poll(struct ct_rhythm *rhythm, uint64_t now_ms,
                    const struct ct_rhythm_sample *samples, struct ct_rhythm_verdict *ret_verdict)
{
    if (rhythm->floor_ms == 0)
        return false;
    look(rhythm, now_ms, samples);
    const struct quiet quiet = find_quiet(rhythm);
    uint64_t silent_ms = ct_rhythm_silent_ms(rhythm), busy_ms = patience_busy_ms(rhythm);
    int64_t stopped = find_stopped(rhythm);

    if (rhythm->judged || quiet.alive == 0)
        return false;
    if (stopped >= 0)
        *ret_verdict =
            (struct ct_rhythm_verdict){CT_RHYTHM_STOPPED, (uint32_t)stopped,
                                       rhythm->ranks[stopped].stopped_ms, rhythm->floor_ms};
    else if (quiet.silent_ms > silent_ms)
        *ret_verdict = (struct ct_rhythm_verdict){CT_RHYTHM_SILENT, find_longest(rhythm),
                                                  quiet.silent_ms, silent_ms};
    else if (quiet.signless_ms > busy_ms)
        *ret_verdict = (struct ct_rhythm_verdict){CT_RHYTHM_BUSY, find_longest(rhythm),
                                                  quiet.signless_ms, busy_ms};
    else
        return false;
    rhythm->judged = true;
    return true;
}

bool ct_rhythm_stands(struct ct_rhythm *rhythm, struct ct_rhythm_verdict *verdict)
{
    const struct quiet quiet = find_quiet(rhythm);
    uint64_t now_ms = quiet.signless_ms;

    if (verdict->kind == CT_RHYTHM_STOPPED)
        now_ms = rhythm->ranks[verdict->worker].stopped_ms;
    else if (verdict->kind == CT_RHYTHM_SILENT)
        now_ms = quiet.silent_ms;
    rhythm->judged = now_ms >= verdict->silent_ms;
    if (rhythm->judged)
        verdict->silent_ms = now_ms;
    return rhythm->judged;
}
