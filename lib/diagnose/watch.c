/* See watch.h. */
#include "diagnose/watch.h"

#include "base/assert.h"
#include "base/number/percentile.h"

#include <string.h>

/* ---- patience ------------------------------------------------------------------------------- */

/* The duration that 99 of 100 steps do not exceed. */
static uint64_t percentile_99_us(const struct ct_watch_sample *sample)
{
    return ct_percentile_99(sample->durations_us,
                            CT_MIN(sample->duration_count, (uint32_t)CT_WATCH_STEPS));
}

uint64_t ct_watch_patience_ms(const struct ct_watch *watch, const struct ct_watch_sample *sample)
{
    if (!sample->alive || sample->excused || !sample->view.opened)
        return UINT64_MAX;
    uint64_t usual_ms =
        sample->duration_count == 0 ? watch->start_ms : percentile_99_us(sample) / 1000;
    bool is_known = sample->duration_count > 0 || watch->start_ms > 0;
    if (sample->view.section == CT_RECORD_CHECKPOINT || !is_known)
        return CT_MAX((uint64_t)CT_WATCH_LONG_MS, watch->floor_ms);
    return CT_MAX(watch->floor_ms, CT_WATCH_FACTOR * usual_ms);
}

/* ---- looking -------------------------------------------------------------------------------- */

void ct_watch_begin(struct ct_watch *watch, struct ct_watch_rank *ranks, uint32_t count,
                    uint32_t first_rank, uint32_t world)
{
    CT_ASSERT(count > 0 && first_rank + count <= world);
    watch->ranks = ranks;
    watch->count = count;
    watch->first_rank = first_rank;
    watch->world = world;
    watch->checked_ms = 0;
    watch->judged = watch->reported = false;
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = (struct ct_watch_rank){.pid = ranks[i].pid, .starting_ms = ranks[i].starting_ms};
}

/* How long the processes here take until their first step. */
static void time_start(struct ct_watch *watch, struct ct_watch_rank *rank,
                       const struct ct_watch_sample *sample, uint64_t passed_ms)
{
    if (!sample->alive || rank->pid != sample->pid) {
        rank->pid = sample->alive ? sample->pid : 0;
        rank->starting_ms = 0;
    } else if (sample->duration_count == 0) {
        rank->starting_ms += passed_ms;
    } else {
        watch->start_ms = CT_MAX(watch->start_ms, rank->starting_ms);
        rank->starting_ms = 0;
    }
}

/* Count how long each worker has given no sign, and made no progress. An agent that was away itself
 * does not know what happened meanwhile. */
static void count_silence(struct ct_watch *watch, uint64_t now_ms,
                          const struct ct_watch_sample *samples)
{
    uint64_t passed_ms = watch->checked_ms == 0 ? 0 : now_ms - watch->checked_ms;

    passed_ms = CT_MIN(passed_ms, 2u * CT_WATCH_POLL_MS);
    watch->checked_ms = now_ms;
    for (uint32_t i = 0; i < watch->count; i++) {
        struct ct_watch_rank *rank = &watch->ranks[i];
        const struct ct_record_view *view = &samples[i].view;
        bool excused = ct_watch_patience_ms(watch, &samples[i]) == UINT64_MAX;

        time_start(watch, rank, &samples[i], passed_ms);
        rank->silent_ms = excused || view->signs != rank->signs ? 0 : rank->silent_ms + passed_ms;
        rank->stalled_ms =
            excused || view->progress != rank->progress ? 0 : rank->stalled_ms + passed_ms;
        rank->signs = view->signs;
        rank->progress = view->progress;
    }
}

/* The call of this worker in a group; NULL when it has no such group. */
static const struct ct_record_call *call_in(const struct ct_record_view *view, uint64_t group)
{
    for (uint32_t i = 0; i < view->group_count; i++)
        if (view->groups[i].id == group)
            return &view->groups[i];
    return NULL;
}

/* The call that it waits in; NULL when it waits in none. */
static const struct ct_record_call *waits_in(const struct ct_watch_sample *sample)
{
    for (uint32_t i = 0; sample->alive && i < sample->view.group_count; i++)
        if (sample->view.groups[i].waiting != 0)
            return &sample->view.groups[i];
    return NULL;
}

/* The call that it has begun and not ended, whether it waits or not. */
static const struct ct_record_call *is_in(const struct ct_watch_sample *sample)
{
    const struct ct_record_call *call = waits_in(sample);

    for (uint32_t i = 0; call == NULL && i < sample->view.group_count; i++)
        if (sample->view.groups[i].entered > sample->view.groups[i].completed &&
            sample->view.groups[i].failure == 0)
            call = &sample->view.groups[i];
    return call;
}

/* Does somebody who waits in `call` wait for `worker`? */
static bool waits_for(const struct ct_watch *watch, const struct ct_watch_sample *samples,
                      const struct ct_record_call *call, uint32_t worker)
{
    const struct ct_record_call *own = call_in(&samples[worker].view, call->id);

    if (own != NULL && call->waiting != CT_RECORD_TRANSFER && own->entered < call->waiting)
        return true;
    return call->awaited == (int)(watch->first_rank + worker);
}

/* How many others here wait for `worker`, and what the first of them waits in. */
static uint32_t count_waiting(const struct ct_watch *watch, const struct ct_watch_sample *samples,
                              uint32_t worker, const struct ct_record_call **ret_call)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < watch->count; i++) {
        const struct ct_record_call *call = i == worker ? NULL : waits_in(&samples[i]);

        if (call == NULL || !waits_for(watch, samples, call, worker))
            continue;
        if (count++ == 0)
            *ret_call = call;
    }
    return count;
}

/* ---- who ------------------------------------------------------------------------------------ */

/* Is `a` a likelier culprit than `b`? Who has come less far held up the other. */
static bool is_behind(const struct ct_watch *watch, const struct ct_watch_sample *samples,
                      uint32_t a, uint32_t b)
{
    const struct ct_record_call *call;
    uint32_t for_a = count_waiting(watch, samples, a, &call);
    uint32_t for_b = count_waiting(watch, samples, b, &call);

    if (for_a != for_b)
        return for_a > for_b;
    if (samples[a].view.step != samples[b].view.step)
        return samples[a].view.step < samples[b].view.step;
    return watch->ranks[a].silent_ms > watch->ranks[b].silent_ms;
}

/* The likeliest of those that were silent for too long; -1: nobody was. */
static int64_t find_silent(const struct ct_watch *watch, const struct ct_watch_sample *samples)
{
    int64_t found = -1;

    for (uint32_t i = 0; i < watch->count; i++) {
        uint64_t patience_ms = ct_watch_patience_ms(watch, &samples[i]);

        if (patience_ms != UINT64_MAX && watch->ranks[i].silent_ms > patience_ms &&
            (found < 0 || is_behind(watch, samples, i, (uint32_t)found)))
            found = i;
    }
    return found;
}

/* Has everybody here waited for too long without getting on? Then the one that most wait for; -1:
 * somebody gets on, or is silent: it does not wait, and is found as soon as it was silent for too
 * long. */
static int64_t find_stalled(const struct ct_watch *watch, const struct ct_watch_sample *samples)
{
    int64_t found = -1;

    for (uint32_t i = 0; i < watch->count; i++) {
        uint64_t patience_ms = ct_watch_patience_ms(watch, &samples[i]);

        if (!samples[i].alive)
            continue;
        if (patience_ms == UINT64_MAX || watch->ranks[i].stalled_ms <= patience_ms ||
            watch->ranks[i].silent_ms > CT_WATCH_SILENT_MS || waits_in(&samples[i]) == NULL)
            return -1;
        if (found < 0 || is_behind(watch, samples, i, (uint32_t)found))
            found = i;
    }
    return found;
}

/* Another one that runs, the liveliest; -1: there is none. */
static int64_t find_healthy(const struct ct_watch *watch, const struct ct_watch_sample *samples,
                            uint32_t worker)
{
    int64_t found = -1;

    for (uint32_t i = 0; i < watch->count; i++)
        if (i != worker && samples[i].alive &&
            (found < 0 || watch->ranks[i].silent_ms < watch->ranks[found].silent_ms))
            found = i;
    return found;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static void explain(const struct ct_watch *watch, const struct ct_watch_sample *samples,
                    struct ct_watch_verdict *verdict)
{
    const struct ct_record_call *own = is_in(&samples[verdict->worker]), *others = NULL;

    verdict->healthy = find_healthy(watch, samples, verdict->worker);
    verdict->waiting = count_waiting(watch, samples, verdict->worker, &others);
    if (own == NULL) {
        verdict->kind = others != NULL ? CT_WATCH_MISSING : CT_WATCH_NOT_IN_COLLECTIVE;
        if (others != NULL)
            verdict->call = *others;
        verdict->number = verdict->call.waiting;
        return;
    }
    verdict->kind = CT_WATCH_STUCK;
    verdict->call = *own;
    verdict->number = own->waiting != 0 ? own->waiting : own->entered;
    /* Stopped before it could say which call this is? Who waits in the same one has said so. */
    if (own->text[0] == '\0' && others != NULL && others->id == own->id &&
        others->waiting == verdict->number)
        memcpy(verdict->call.text, others->text, sizeof others->text);
}

bool ct_watch_poll(struct ct_watch *watch, uint64_t now_ms, const struct ct_watch_sample *samples,
                   struct ct_watch_verdict *ret_verdict)
{
    struct ct_watch_verdict verdict = {.healthy = -1, .awaited = -1};

    if (watch->floor_ms == 0 || watch->judged)
        return false;
    count_silence(watch, now_ms, samples);
    int64_t silent = find_silent(watch, samples), stalled = -1;
    if (silent < 0)
        stalled = find_stalled(watch, samples);
    if (silent < 0 && (stalled < 0 || (watch->reported && watch->count < watch->world)))
        return false;
    verdict.worker = (uint32_t)CT_MAX(silent, stalled);
    explain(watch, samples, &verdict);
    verdict.silent_ms =
        silent >= 0 ? watch->ranks[silent].silent_ms : watch->ranks[stalled].stalled_ms;
    verdict.all_wait = silent < 0;
    if (silent < 0 && watch->count < watch->world) {
        verdict.kind = CT_WATCH_WAITS;
        verdict.awaited = verdict.call.awaited;
        watch->reported = true;
    } else {
        watch->judged = true;
    }
    *ret_verdict = verdict;
    return true;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* "all_reduce of 650 F32 (number 7 of group world/1)" */
static void print_call(const struct ct_watch_verdict *verdict, struct ct_buf *to)
{
    const struct ct_record_call *call = &verdict->call;

    (void)ct_buf_puts(to, call->text[0] != '\0' ? call->text : "a collective");
    if (verdict->number == CT_RECORD_TRANSFER)
        (void)ct_buf_printf(to, " (in group %s)", call->name);
    else
        (void)ct_buf_printf(to, " (number %llu of group %s)", (unsigned long long)verdict->number,
                            call->name);
}

static void print_place(const struct ct_watch_names *names, struct ct_buf *to)
{
    static const char *const sections[] = {
        [CT_RECORD_START] = "before its first step of the round",
        [CT_RECORD_STEP] = "in step",
        [CT_RECORD_EVALUATE] = "in the evaluation after step",
        [CT_RECORD_CHECKPOINT] = "in the checkpoint of step",
        [CT_RECORD_PUBLISH] = "waiting for the publication of step",
        [CT_RECORD_AWAY] = "between two rounds",
    };
    uint64_t step = names->step + (names->section == CT_RECORD_STEP);

    (void)ct_buf_printf(to, ", %s", sections[names->section]);
    if (names->section != CT_RECORD_START && names->section != CT_RECORD_AWAY)
        (void)ct_buf_printf(to, " %llu", (unsigned long long)step);
}

static void print_waits(const struct ct_watch_verdict *verdict, const struct ct_watch_names *names,
                        struct ct_buf *to)
{
    (void)ct_buf_puts(to, "all ranks of this node wait in ");
    print_call(verdict, to);
    if (verdict->awaited >= 0)
        (void)ct_buf_printf(to, " for rank %d", verdict->awaited);
    if (verdict->awaited >= 0 && names->awaited_host[0] != '\0')
        (void)ct_buf_printf(to, " (host %s)", names->awaited_host);
    (void)ct_buf_printf(to, ", for %.1f s now", (double)verdict->silent_ms / 1000);
    print_place(names, to);
}

void ct_watch_print(const struct ct_watch_verdict *verdict, const struct ct_watch_names *names,
                    struct ct_buf *to)
{
    double seconds = (double)verdict->silent_ms / 1000;

    if (verdict->kind == CT_WATCH_WAITS) {
        print_waits(verdict, names, to);
        return;
    }
    (void)ct_buf_printf(to, "rank %u (host %s, pid %d) hangs", names->rank, names->host,
                        names->pid);
    if (verdict->kind == CT_WATCH_MISSING) {
        (void)ct_buf_puts(to, ": it has not entered ");
        print_call(verdict, to);
        (void)ct_buf_printf(to, ", where %u rank%s of this node wait%s for it", verdict->waiting,
                            verdict->waiting == 1 ? "" : "s", verdict->waiting == 1 ? "s" : "");
    } else if (verdict->kind == CT_WATCH_STUCK) {
        (void)ct_buf_puts(to, " in ");
        print_call(verdict, to);
    } else {
        (void)ct_buf_puts(to, " outside any collective");
    }
    if (verdict->all_wait)
        (void)ct_buf_printf(to, "; every rank waits in one, and none gets on for %.1f s", seconds);
    else
        (void)ct_buf_printf(to, "; no sign of life for %.1f s", seconds);
    print_place(names, to);
}
