/* See history.h. */
#include "rendezvous/history/history.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *level;
} kinds[CT_ANNOUNCEMENTS] = {
#define CT_ANNOUNCEMENT(name, text, level) {text, level},
#include "rendezvous/core/announcement.def"
#undef CT_ANNOUNCEMENT
};

const double ct_history_bounds[CT_HISTORY_BUCKETS] = {.001, .003, .01, .03, .1,  .3,
                                                      1,    3,    10,  30,  100, INFINITY};

const char *ct_announcement_name(enum ct_announcement kind)
{
    return kinds[kind].name;
}

const char *ct_announcement_level(enum ct_announcement kind)
{
    return kinds[kind].level;
}

int ct_announcement_find(const char *name)
{
    for (int kind = 0; kind < CT_ANNOUNCEMENTS; kind++)
        if (strcmp(kinds[kind].name, name) == 0)
            return kind;
    return -1;
}

static const char *name_at(const void *context, size_t index)
{
    (void)context;
    return kinds[index].name;
}

int ct_announcements_read(const char *const *names, size_t count, const char *key,
                          uint64_t *ret_set, struct ct_error *err)
{
    uint64_t set = 0;

    _Static_assert(CT_ANNOUNCEMENTS < 64, "a bit each");
    for (size_t i = 0; i < count; i++) {
        int kind = ct_announcement_find(names[i]);
        const char *near = ct_nearest(names[i], CT_ANNOUNCEMENTS, name_at, NULL);

        if (kind < 0)
            return ct_error_set(err, CT_EUSAGE, "%s: there are no events %.60s%s%s%s", key,
                                names[i], near != NULL ? ": did you mean " : "",
                                near != NULL ? near : "; node_lost, ended_badly are some",
                                near != NULL ? "?" : "");
        set |= 1ull << kind;
    }
    *ret_set = count > 0 ? set : UINT64_MAX;
    return 0;
}

struct ct_history *ct_history_new(uint64_t now_ms)
{
    struct ct_history *history = calloc(1, sizeof *history);

    if (history == NULL)
        return NULL;
    history->events = calloc(CT_HISTORY_EVENTS, sizeof *history->events);
    history->points = calloc(CT_HISTORY_POINTS, sizeof *history->points);
    if (history->events == NULL || history->points == NULL) {
        ct_history_free(history);
        return NULL;
    }
    history->begun_ms = now_ms;
    history->stride = 1;
    ct_goodput_begin(&history->goodput, now_ms);
    return history;
}

void ct_history_free(struct ct_history *history)
{
    if (history == NULL)
        return;
    free(history->events);
    free(history->points);
    free(history);
}

void ct_history_reports(struct ct_history *history)
{
    history->goodput.reports = true;
}

/* ---- events --------------------------------------------------------------------------------- */

void ct_history_note(struct ct_history *history, uint64_t now_ms, uint64_t *number,
                     const struct ct_history_event *event)
{
    uint64_t count = history->event_count;
    bool again = count > 0 && event->kind == CT_ANNOUNCE_CHECKPOINT &&
                 history->events[(count - 1) % CT_HISTORY_EVENTS].kind == event->kind;
    struct ct_history_event *to = &history->events[(again ? count - 1 : count) % CT_HISTORY_EVENTS];

    CT_ASSERT(event->kind < CT_ANNOUNCEMENTS);
    history->event_count += !again;
    *to = *event;
    to->number = ++*number;
    to->ms = now_ms;
    history->counts[event->kind]++;
}

const struct ct_history_event *ct_history_next(const struct ct_history *history, uint64_t after)
{
    uint64_t end = history->event_count;
    uint64_t first = end - CT_MIN(end, (uint64_t)CT_HISTORY_EVENTS);

    for (uint64_t last = end; first < last;) { /* their numbers grow */
        uint64_t middle = first + (last - first) / 2;

        if (history->events[middle % CT_HISTORY_EVENTS].number > after)
            last = middle;
        else
            first = middle + 1;
    }
    return first < end ? &history->events[first % CT_HISTORY_EVENTS] : NULL;
}

/* ---- phases --------------------------------------------------------------------------------- */

static enum ct_goodput_state state_of(enum ct_rdzv_phase phase, int code)
{
    switch (phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_PAUSED:
        return CT_GOODPUT_IDLE;
    case CT_RDZV_RUNNING:
        return CT_GOODPUT_RUNS;
    case CT_RDZV_CLOSING:
    case CT_RDZV_CLOSED:
        return code == 0 ? CT_GOODPUT_FINISHED : CT_GOODPUT_OVER;
    default:
        return CT_GOODPUT_FORMS;
    }
}

void ct_history_phase(struct ct_history *history, uint64_t now_ms, enum ct_rdzv_phase phase,
                      int code)
{
    enum ct_goodput_state state = state_of(phase, code);

    if (state == history->goodput.state)
        return;
    ct_goodput_state(&history->goodput, now_ms, state);
    history->progress_ms = state == CT_GOODPUT_RUNS ? now_ms : 0;
    history->stalled = false;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* When there is no room every second point goes, and as many fewer are taken from now on. */
static void add_point(struct ct_history *history, const struct ct_history_point *point)
{
    if (history->skipped++ % history->stride != 0)
        return;
    if (history->point_count == CT_HISTORY_POINTS) {
        history->point_count /= 2;
        for (size_t i = 0; i < history->point_count; i++)
            history->points[i] = history->points[2 * i];
        history->stride *= 2;
        history->skipped = 1;
    }
    history->points[history->point_count++] = *point;
}

/* The steps since the last report, each as long as their mean. */
static void count_steps(struct ct_history *history, uint64_t now_ms,
                        const struct ct_goodput_progress *times)
{
    const struct ct_goodput_progress *last = &history->times;
    size_t bucket = 0;

    if (history->progress_ms == 0 || last->step == 0 || times->step <= last->step)
        return;
    uint64_t steps = times->step - last->step;
    double seconds = times->trained_s > last->trained_s
                         ? times->trained_s - last->trained_s
                         : (double)(now_ms - history->progress_ms) / 1e3;
    while (bucket + 1 < CT_HISTORY_BUCKETS && seconds / (double)steps > ct_history_bounds[bucket])
        bucket++;
    history->step_times[bucket] += steps;
    history->step_seconds += seconds;
}

static void put_event(struct ct_history_event *event, enum ct_announcement kind)
{
    event->kind = kind;
    event->number = 1;
}

void ct_history_progress(struct ct_history *history, uint64_t now_ms,
                         const struct ct_msg_progress *progress, struct ct_history_event *ret_event)
{
    bool is_finite = isfinite(progress->loss) || (isnan(progress->loss) && !history->has_loss);
    const struct ct_goodput_progress times = {.step = progress->step,
                                              .trained_s = progress->trained_s,
                                              .saving_s = progress->saving_s,
                                              .straggler_s = progress->straggler_s};
    const struct ct_history_point point = {.ms = now_ms,
                                           .step = progress->step,
                                           .loss = progress->loss,
                                           .learning_rate = progress->learning_rate,
                                           .samples_per_s = progress->samples_per_s};

    ret_event->number = 0;
    count_steps(history, now_ms, &times);
    ct_goodput_progress(&history->goodput, now_ms, &times);
    add_point(history, &point);
    if (history->stalled) {
        put_event(ret_event, CT_ANNOUNCE_STEPS_AGAIN);
        (void)snprintf(ret_event->text, sizeof ret_event->text,
                       "step %" PRIu64 " is done, %.0f s after the one before", progress->step,
                       (double)(now_ms - history->progress_ms) / 1e3);
    } else if (!is_finite && !history->not_finite) {
        put_event(ret_event, CT_ANNOUNCE_LOSS_NOT_FINITE);
        (void)snprintf(ret_event->text, sizeof ret_event->text,
                       "the loss of step %" PRIu64 " is %f", progress->step, progress->loss);
    }
    if (history->progress_ms != 0 && history->times.step != 0 && !history->stalled) {
        double pause_ms = (double)(now_ms - history->progress_ms);

        history->pause_ms += history->pause_ms > 0 ? (pause_ms - history->pause_ms) / 8 : pause_ms;
    }
    history->not_finite = !is_finite;
    history->has_loss |= isfinite(progress->loss) && progress->loss != 0;
    history->stalled = false;
    history->progress_ms = now_ms;
    history->times = times;
}

void ct_history_published(struct ct_history *history, uint64_t step, uint64_t bytes)
{
    if (step != history->published_step)
        history->all_bytes += bytes;
    history->published_step = step;
    history->published_bytes = bytes;
}

uint64_t ct_history_deadline(const struct ct_history *history)
{
    if (history->goodput.state != CT_GOODPUT_RUNS || history->stalled || history->times.step == 0)
        return UINT64_MAX;
    return history->progress_ms +
           (uint64_t)fmax(CT_HISTORY_NO_STEP_MS, CT_HISTORY_NO_STEP_TIMES * history->pause_ms);
}

void ct_history_tick(struct ct_history *history, uint64_t now_ms,
                     struct ct_history_event *ret_event)
{
    ret_event->number = 0;
    if (now_ms < ct_history_deadline(history))
        return;
    history->stalled = true;
    put_event(ret_event, CT_ANNOUNCE_NO_STEP);
    (void)snprintf(ret_event->text, sizeof ret_event->text,
                   "no step for %.0f s, after step %" PRIu64,
                   (double)(now_ms - history->progress_ms) / 1e3, history->times.step);
}
