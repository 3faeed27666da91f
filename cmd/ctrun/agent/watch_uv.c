/* See watch_uv.h. */
#include "watch_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "diagnose/backtrace_uv.h"
#include "diagnose/watch.h"
#include "hang_file_uv.h"
#include "job/round.h"
#include "node_state_uv.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    INQUIRY_MS = 1500, /* how long other nodes may take to say what they see */
};

struct watch {
    struct node *node;
    uv_timer_t timer;
    struct ct_watch core;
    struct ct_watch_rank *ranks; /* of each worker, as the next two */
    struct ct_watch_sample *samples;
    uint32_t (*durations_us)[CT_WATCH_STEPS];
    uint64_t generation; /* of the round that it looks at */

    struct ct_watch_verdict verdict;
    struct ct_error sentence;
    pid_t condemned; /* while the verdict is found and its stacks are gathered; 0: nobody */

    uint64_t straggler_count; /* findings of rank 0 so far */
    uint64_t straggler_reported_ms;
};

/* ---- looking -------------------------------------------------------------------------------- */

static void collect_samples(struct watch *watch)
{
    const struct ct_workers *workers = watch->node->workers;

    for (uint32_t i = 0; i < watch->node->job->slots; i++) {
        const struct ct_worker_record *record = ct_workers_record(workers, i);
        struct ct_watch_sample *sample = &watch->samples[i];

        *sample = (struct ct_watch_sample){.alive = record != NULL,
                                           .pid = (int)ct_workers_pid(workers, i),
                                           .excused = ct_workers_held(workers, i) ||
                                                      watch->node->core.survivors[i].ready,
                                           .durations_us = watch->durations_us[i]};
        if (record == NULL)
            continue;
        ct_worker_record_read(record, &sample->view);
        sample->excused |= script_watch_judges(watch->node->scripts, &sample->view);
        sample->duration_count =
            ct_worker_record_durations(record, watch->durations_us[i], CT_WATCH_STEPS);
    }
}

static const char *host_of(const struct node *node, int32_t rank, char room[32])
{
    int32_t index = ct_node_runs_node_of(node->round->runs, rank);

    return index < 0 ? "" : ct_round_name(node->round, (uint32_t)index, room);
}

/* ---- hangs ---------------------------------------------------------------------------------- */

static void end_it(struct watch *watch)
{
    struct node *node = watch->node;

    if (watch->condemned != 0 && !agent_core_is_ending(&node->core) &&
        node->core.running == watch->generation &&
        ct_workers_pid(node->workers, watch->verdict.worker) == watch->condemned)
        ct_workers_condemn(node->workers, watch->verdict.worker, &watch->sentence);
    watch->condemned = 0;
}

static void on_diagnosed(void *context, const char *failure)
{
    struct watch *watch = context;

    hang_file_report(watch->node, failure);
    end_it(watch);
}

/* Write down where the rank hangs, and for comparison where another one is; then end it. */
static void diagnose(struct watch *watch)
{
    struct node *node = watch->node;
    uint32_t first = watch->core.first_rank, healthy = (uint32_t)watch->verdict.healthy;
    struct hang_file hang = {.rank = first + watch->verdict.worker,
                             .pid = watch->condemned,
                             .generation = watch->generation};

    if (watch->verdict.healthy >= 0) {
        hang.other_rank = first + healthy;
        hang.other_pid = ct_workers_pid(node->workers, healthy);
    }
    if (!hang_file_write(node, &hang, on_diagnosed, watch))
        end_it(watch);
}

/* Whom does the verdict of all nodes name? Of ranks that all wait, that one is ended. */
static void on_judged(void *context, const struct inquiry_answer *answer)
{
    struct watch *watch = context;
    struct node *node = watch->node;
    uint32_t first = watch->core.first_rank;
    bool is_here = answer->rank >= first && answer->rank < first + node->job->slots;

    if (watch->verdict.all_wait && answer->kind != CT_VERDICT_NONE) {
        (void)ct_error_set(&watch->sentence, CT_EHUNG, "%s", answer->text);
        pid_t pid = is_here ? ct_workers_pid(node->workers, answer->rank - first) : 0;
        if (pid != 0) {
            watch->verdict.worker = answer->rank - first;
            watch->condemned = pid;
        }
    }
    diagnose(watch);
}

/* All ranks of this node wait for another node's. When that one hangs its own agent ends it; when
 * it waits, too, or is gone, nobody would. */
static void on_waits_judged(void *context, const struct inquiry_answer *answer)
{
    struct watch *watch = context;
    uint32_t first = watch->core.first_rank;
    bool is_here = answer->rank >= first && answer->rank < first + watch->node->job->slots;

    if (watch->condemned != 0 || answer->kind == CT_VERDICT_NONE ||
        (!is_here && answer->kind != CT_VERDICT_DEAD))
        return;
    if (is_here && ct_workers_pid(watch->node->workers, answer->rank - first) != 0)
        watch->verdict.worker = answer->rank - first;
    watch->condemned = ct_workers_pid(watch->node->workers, watch->verdict.worker);
    watch->core.judged = true;
    (void)ct_error_set(&watch->sentence, CT_EHUNG, "%s", answer->text);
    if (watch->condemned != 0)
        diagnose(watch);
}

static void judge(struct watch *watch)
{
    struct node *node = watch->node;
    const struct ct_watch_verdict *verdict = &watch->verdict;
    const struct ct_watch_sample *sample = &watch->samples[verdict->worker];
    pid_t pid = ct_workers_pid(node->workers, verdict->worker);
    char room[32];
    const struct ct_watch_names names = {
        .rank = watch->core.first_rank + verdict->worker,
        .host = node->job->host,
        .pid = (int)pid,
        .section = sample->view.section,
        .step = sample->view.step,
        .awaited_host = host_of(node, verdict->awaited, room),
    };
    struct ct_buf text;
    char state[128];

    ct_buf_init(&text, 0);
    ct_watch_print(verdict, &names, &text);
    if (verdict->kind == CT_WATCH_WAITS) {
        ct_log_event(&node->log, CT_LOG_INFO, "waits", "%s", ct_buf_str(&text));
        inquiry_start(node->inquiry, INQUIRY_MS, on_waits_judged, watch);
    } else {
        ct_diagnose_state(pid, state, sizeof state);
        (void)ct_buf_printf(&text, "; its process is %s", state);
        (void)ct_error_set(&watch->sentence, CT_EHUNG, "%s", ct_buf_str(&text));
        ct_log_event(&node->log, CT_LOG_WARN, "hang", "%s", watch->sentence.text);
        watch->condemned = pid;
        inquiry_reported(node->inquiry, names.rank);
        inquiry_start(node->inquiry, INQUIRY_MS, on_judged, watch);
    }
    ct_buf_deinit(&text);
}

/* ---- stragglers ----------------------------------------------------------------------------- */

/* Rank 0's record has what the ranks found; its agent tells it, at most once a minute. */
static void report_straggler(struct watch *watch, uint64_t now_ms)
{
    struct node *node = watch->node;
    const struct ct_record_view *view = &watch->samples[0].view;
    uint64_t count = view->straggler_count;
    char room[32];

    if (watch->core.first_rank != 0 || count == watch->straggler_count)
        return;
    watch->straggler_count = count;
    if (count == 0 || view->straggler >= watch->core.world ||
        (watch->straggler_reported_ms != 0 &&
         now_ms - watch->straggler_reported_ms < CT_WATCH_STRAGGLER_MS))
        return;
    watch->straggler_reported_ms = now_ms;
    ct_log_event(&node->log, CT_LOG_WARN, "straggler",
                 "rank %u on %s is slow: last in %u %% of recent steps, costing %u %% of step "
                 "time; look there for other programs, throttled CPUs or GPUs and slow storage%s",
                 view->straggler, host_of(node, (int32_t)view->straggler, room),
                 view->straggler_share, view->straggler_cost,
                 node->round->node_count > 1 ? ", or take the host out by ctrun drain" : "");
}

/* ---- time ----------------------------------------------------------------------------------- */

static void begin(struct watch *watch)
{
    const struct node *node = watch->node;
    const struct ct_round *round = node->round;

    watch->generation = node->core.running;
    watch->straggler_count = 0;
    ct_watch_begin(&watch->core, watch->ranks, node->job->slots, round->own->first_rank,
                   round->world);
}

static void on_poll(uv_timer_t *timer)
{
    struct watch *watch = timer->data;
    struct node *node = watch->node;
    uint64_t now_ms = uv_now(&node->loop);

    if (!agent_core_acts(&node->core))
        return;
    if (node->core.running != watch->generation)
        begin(watch);
    collect_samples(watch);
    report_straggler(watch, now_ms);
    if (watch->condemned == 0 &&
        ct_watch_poll(&watch->core, now_ms, watch->samples, &watch->verdict))
        judge(watch);
}

struct watch *watch_new(struct node *node)
{
    struct watch *watch = calloc(1, sizeof *watch);
    uint64_t floor_ms = (uint64_t)node->job->cfg.launch.hang_timeout_ms;

    if (watch == NULL)
        return NULL;
    watch->node = node;
    watch->core.floor_ms = floor_ms;
    watch->ranks = calloc(node->job->slots, sizeof *watch->ranks);
    watch->samples = calloc(node->job->slots, sizeof *watch->samples);
    watch->durations_us = calloc(node->job->slots, sizeof *watch->durations_us);
    if (watch->ranks == NULL || watch->samples == NULL || watch->durations_us == NULL) {
        watch_free(watch);
        return NULL;
    }
    (void)uv_timer_init(&node->loop, &watch->timer);
    watch->timer.data = watch;
    (void)uv_timer_start(&watch->timer, on_poll, CT_WATCH_POLL_MS, CT_WATCH_POLL_MS);
    return watch;
}

void watch_close(struct watch *watch)
{
    if (watch != NULL)
        uv_close((uv_handle_t *)&watch->timer, NULL);
}

void watch_free(struct watch *watch)
{
    if (watch == NULL)
        return;
    free(watch->ranks);
    free(watch->samples);
    free(watch->durations_us);
    free(watch);
}
