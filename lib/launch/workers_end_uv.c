/* See workers_state_uv.h.
 *
 *   SIGCHLD -> reap all -> likeliest cause first: read its last words, EXIT -> actions
 *                       -> groups that are empty: GONE -> actions
 *
 * Blame: the first bad exit stops the round, yet the first exit need not be the first failure: a
 * Python worker writes its error file, and then takes its time to end, while its peers have lost
 * their connections to it and end before it. So the error files of those that still run are looked
 * at, too. */
#include "launch/workers_state_uv.h"

#include "base/assert.h"
#include "base/clock.h"
#include "launch/failure/error_note.h"
#include "launch/failure/failure_report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DYING_MS = 5000, /* who wrote an error file longer ago and still runs has got over it */
    NOTES_BYTES = 16 << 20,
};

int64_t ct_workers_now_ms(void)
{
    return (int64_t)(ct_clock_wall_ns(&ct_clock_system) / 1000000);
}

/* ---- blame ---------------------------------------------------------------------------------- */

/* A bad end as far as it is known, or the end that an error file of a running worker announces. */
struct verdict {
    struct worker *worker;
    struct ct_error_note note; /* when `noted` */
    struct ct_exit end;
    int64_t time_ms;
    bool noted;
};

static struct verdict examine(struct worker *worker, struct ct_arena *arena)
{
    struct verdict verdict = {.worker = worker, .end = worker->end, .time_ms = worker->ended_ms};
    struct ct_error why;

    verdict.noted = worker->error_file != NULL &&
                    ct_error_note_read(worker->error_file, arena, &verdict.note, &why);
    if (!verdict.noted)
        return verdict;
    if (!worker->ended)
        verdict.time_ms = ct_workers_now_ms();
    verdict.time_ms = CT_MIN(verdict.time_ms, verdict.note.time_ms);
    if (!worker->ended) /* an exception that nobody catches ends Python with 1 */
        verdict.end.status = verdict.note.file.error_code > 0 && verdict.note.file.error_code < 256
                                 ? (int32_t)verdict.note.file.error_code
                                 : 1;
    return verdict;
}

/* The first failure of the node; `worker` has ended badly. */
static struct verdict find_first(struct ct_workers *workers, struct worker *worker,
                                 struct ct_arena *arena)
{
    struct verdict first = examine(worker, arena);
    int64_t now = ct_workers_now_ms();

    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *other = &workers->all[i];
        struct verdict verdict;

        if (other == worker || other->reported || other->dismissed || other->pid == 0 ||
            (other->ended && ct_exit_ok(other->end)))
            continue;
        verdict = examine(other, arena);
        if (!other->ended && (!verdict.noted || verdict.time_ms < now - DYING_MS))
            continue;
        if (ct_failure_precedes(verdict.time_ms, verdict.end, first.time_ms, first.end))
            first = verdict;
    }
    return first;
}

/* Is the sentence that a worker announced among the last lines of one of them on the console? Of an
 * error that all ranks have, rank 0 alone prints it. */
static bool is_printed(struct ct_workers *workers, const char *sentence)
{
    bool found = false;
    struct ct_buf tail;

    ct_buf_init(&tail, 0);
    for (uint32_t i = 0; i < workers->count && !found; i++) {
        ct_outputs_drain(workers->outputs, i);
        ct_buf_clear(&tail);
        ct_outputs_tail(workers->outputs, i, CT_WORKER_LINES, &tail);
        found =
            ct_outputs_shown(workers->outputs, i) && strstr(ct_buf_str(&tail), sentence) != NULL;
    }
    ct_buf_deinit(&tail);
    return found;
}

static void report(struct ct_workers *workers, const struct verdict *verdict,
                   void (*callback)(void *context, const struct ct_worker_failure *failure))
{
    const struct worker *worker = verdict->worker;
    uint32_t local_rank = (uint32_t)(worker - workers->all);
    int64_t time_ms = verdict->time_ms > 0 ? verdict->time_ms : ct_workers_now_ms();
    struct ct_worker_failure failure = {
        .record = {.rank = (int32_t)worker->rank,
                   .local_rank = (int32_t)local_rank,
                   .pid = worker->pid,
                   .status = verdict->end.signal != 0 ? -1 : verdict->end.status,
                   .signal = verdict->end.signal,
                   .code = worker->fault_code,
                   .host = "",
                   .text = worker->fault,
                   .time_ms = (uint64_t)time_ms,
                   .error_file = verdict->noted ? worker->error_file : ""},
        .stopped = worker->stopped && (!verdict->noted || verdict->time_ms > workers->stopped_ms),
        .killed = worker->killed && verdict->end.signal == SIGKILL,
        .sentence = verdict->noted ? verdict->note.file.message : "",
        .own_path = worker->error_file != NULL ? worker->error_file : "",
    };
    struct ct_buf tail;

    ct_buf_init(&tail, 0);
    if (worker->fault == NULL) {
        ct_outputs_tail(workers->outputs, local_rank, CT_WORKER_LINES, &tail);
        failure.record.text = ct_buf_str(&tail);
        failure.shown = ct_outputs_shown(workers->outputs, local_rank);
    } else { /* a hang's finding is a warning of ctrun's */
        failure.shown = worker->fault_code == CT_EHUNG || is_printed(workers, worker->fault);
    }
    if (verdict->noted) /* where it happened says most, then what it was */
        failure.record.text = verdict->note.file.callstack[0] != '\0' ? verdict->note.file.callstack
                                                                      : failure.sentence;
    callback(workers->callbacks.context, &failure);
    ct_buf_deinit(&tail);
}

void ct_workers_blame(struct ct_workers *workers, struct worker *worker)
{
    struct ct_arena arena;

    if (worker->blamed)
        return;
    ct_arena_init(&arena, NOTES_BYTES);
    struct verdict first = find_first(workers, worker, &arena);
    first.worker->blamed = true;
    if (!first.worker->ended) { /* its last words so far */
        ct_outputs_drain(workers->outputs, (uint32_t)(first.worker - workers->all));
        ct_worker_link_drain(first.worker->link);
    }
    report(workers, &first, workers->callbacks.on_failure);
    ct_arena_deinit(&arena);
}

/* A bad end that is not the first. */
static void report_casualty(struct ct_workers *workers, struct worker *worker)
{
    struct ct_arena arena;

    ct_arena_init(&arena, NOTES_BYTES);
    const struct verdict verdict = examine(worker, &arena);
    report(workers, &verdict, workers->callbacks.on_casualty);
    ct_arena_deinit(&arena);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static struct worker *find(struct ct_workers *workers, pid_t pid)
{
    for (uint32_t i = 0; i < workers->count; i++)
        if (workers->all[i].pid == pid)
            return &workers->all[i];
    return NULL;
}

/* Wait for every child that has ended, ours and those left behind by ours. */
static void collect(struct ct_workers *workers)
{
    int64_t now = ct_workers_now_ms();
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct worker *worker = find(workers, pid);

        if (worker == NULL || worker->ended) {
            workers->callbacks.on_other(workers->callbacks.context, pid, status);
            continue;
        }
        worker->ended = true;
        worker->ended_ms = now;
        worker->end = ct_exit_of(status);
    }
}

/* An ended worker whose end was not yet told, the likeliest cause first; NULL when none is left. */
static struct worker *next_ended(struct ct_workers *workers)
{
    struct worker *best = NULL;

    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];

        if (worker->ended && !worker->reported && !worker->examined &&
            (best == NULL || ct_exit_blame(worker->end) > ct_exit_blame(best->end)))
            best = worker;
    }
    return best;
}

/* After SIGKILL nothing of the group can act any more; else it must be empty. */
static bool is_gone(const struct ct_workers *workers, const struct worker *worker)
{
    return workers->sup.state == CT_SUP_KILLING || (kill(-worker->pid, 0) != 0 && errno == ESRCH);
}

/* What a worker's end is to the others. */
static enum ct_sup_event end_event(const struct ct_workers *workers, const struct worker *worker)
{
    if (ct_exit_ok(worker->end) || worker->dismissed)
        return CT_SUP_EXIT_OK;
    for (uint32_t i = 0; i < workers->count; i++)
        if (workers->all[i].kept && !workers->all[i].ended)
            return CT_SUP_EXIT_LOST;
    return CT_SUP_EXIT_BAD;
}

static void finish(struct ct_workers *workers, struct worker *worker)
{
    uint32_t local_rank = (uint32_t)(worker - workers->all);
    bool swept = workers->sup.state == CT_SUP_RUNNING;

    worker->reported = true;
    ct_outputs_drain(workers->outputs, local_rank);
    ct_worker_link_drain(worker->link);
    if (!ct_exit_ok(worker->end))
        workers->well = false;
    ct_workers_step(workers, end_event(workers, worker), worker);
    if (swept)
        ct_workers_set_gone(workers, worker);
    if (!ct_exit_ok(worker->end) && !worker->dismissed && !worker->blamed)
        report_casualty(workers, worker);
    workers->callbacks.on_left(workers->callbacks.context, local_rank);
}

void ct_workers_count_gone(struct ct_workers *workers)
{
    uint32_t alive = 0;

    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];

        if (worker->reported && !worker->gone && is_gone(workers, worker))
            ct_workers_set_gone(workers, worker);
        alive += worker->pid > 0 && !worker->gone;
    }
    for (uint32_t left = workers->sup.live; left > alive; left--)
        ct_workers_step(workers, CT_SUP_GONE, NULL);
}

void ct_workers_reap(struct ct_workers *workers)
{
    struct worker *worker;

    collect(workers);
    while ((worker = next_ended(workers)) != NULL)
        finish(workers, worker);
    ct_workers_count_gone(workers);
}

/* ---- examination ---------------------------------------------------------------------------- */

enum { LAST_WORDS_BYTES = 256 << 10 };

void ct_workers_examine(struct ct_workers *workers, uint32_t local_rank)
{
    struct worker *worker = &workers->all[local_rank];
    const struct rlimit none = {0, 0};

    if (!ct_workers_alive(workers, local_rank) || worker->ended || worker->examined)
        return;
    worker->examined = true;
    ct_buf_init(&worker->last_words, LAST_WORDS_BYTES);
    ct_outputs_copy(workers->outputs, local_rank, &worker->last_words);
    (void)prlimit(worker->pid, RLIMIT_CORE, &none, NULL);
    /* To its main thread, whose stack then is the current one. */
    (void)syscall(SYS_tgkill, worker->pid, worker->pid, SIGABRT);
    (void)kill(worker->pid, SIGCONT);
}

bool ct_workers_examined(const struct ct_workers *workers, uint32_t local_rank)
{
    return !ct_workers_alive(workers, local_rank) || workers->all[local_rank].ended;
}

const char *ct_workers_last_words(const struct ct_workers *workers, uint32_t local_rank)
{
    if (local_rank >= workers->count || !workers->all[local_rank].examined)
        return "";
    ct_outputs_drain(workers->outputs, local_rank);
    return ct_buf_str(&workers->all[local_rank].last_words);
}

void ct_workers_judge(struct ct_workers *workers, uint32_t culprit, const struct ct_error *error)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];

        if (!worker->examined)
            continue;
        ct_outputs_drain(workers->outputs, i);
        ct_outputs_copy(workers->outputs, i, NULL);
        worker->examined = false;
        if (i == culprit) {
            free(worker->fault);
            worker->fault_code = error->code;
            worker->fault = strdup(error->text);
        } else {
            worker->dismissed = true;
        }
        if (!worker->ended)
            (void)kill(-worker->pid, SIGKILL);
    }
    ct_workers_reap(workers);
}
