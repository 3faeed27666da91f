/* See workers_uv.h.
 *
 *   SIGCHLD -> reap all -> likeliest cause first: read its last words, EXIT -> actions
 *                       -> groups that are empty: GONE -> actions
 *   timer   -> TICK -> actions */
#include "launch/workers_uv.h"

#include "base/assert.h"
#include "launch/failure/summary.h"
#include "launch/spawn.h"
#include "launch/worker_env.h"
#include "launch/workers_state_uv.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- signals to process groups -------------------------------------------------------------- */

static void signal_group(const struct worker *worker, int signal)
{
    if (worker->pid > 0 && !worker->gone)
        (void)kill(-worker->pid, signal);
}

void ct_workers_set_gone(const struct ct_workers *workers, struct worker *worker)
{
    worker->gone = true;
    if (workers->guard != NULL)
        ct_guard_set(workers->guard, (uint32_t)(worker - workers->all), 0);
}

/* Who has not ended by now does not end by itself. */
static void mark_stopped(struct ct_workers *workers)
{
    workers->stopped_ms = ct_workers_now_ms();
    for (uint32_t i = 0; i < workers->count; i++)
        workers->all[i].stopped |= !workers->all[i].ended;
}

static void terminate(struct ct_workers *workers)
{
    struct ct_message stop = {.type = CT_MSG_STOP, .stop.deadline_ms = workers->sup.grace_ms};

    mark_stopped(workers);
    for (uint32_t i = 0; i < workers->count; i++) {
        ct_workers_send(workers, i, &stop);
        signal_group(&workers->all[i], workers->stop_signal);
        /* A stopped process takes no signal but SIGKILL. */
        signal_group(&workers->all[i], SIGCONT);
    }
}

static void kill_all(struct ct_workers *workers)
{
    mark_stopped(workers);
    for (uint32_t i = 0; i < workers->count; i++) {
        workers->all[i].killed |= !workers->all[i].ended;
        signal_group(&workers->all[i], SIGKILL);
    }
}

/* ---- actions -------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void arm(struct ct_workers *workers)
{
    uint64_t deadline_ms = ct_supervise_deadline(&workers->sup);
    uint64_t now_ms = uv_now(workers->loop);

    if (workers->finish_late)
        (void)uv_timer_start(&workers->timer, on_timer, 0, 0);
    else if (deadline_ms == UINT64_MAX)
        (void)uv_timer_stop(&workers->timer);
    else
        (void)uv_timer_start(&workers->timer, on_timer,
                             deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

/* "waiting for rank 1 (pid 4711) and 2 others to end after SIGTERM; SIGKILL in 9 s" */
static void report_waiting(struct ct_workers *workers)
{
    const struct ct_supervise *sup = &workers->sup;
    const struct worker *first = NULL;
    struct ct_buf text;
    char name[32];
    uint32_t others = 0;
    int signal = workers->stop_signal;

    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].gone)
            continue;
        others += first != NULL;
        first = first != NULL ? first : &workers->all[i];
    }
    if (first == NULL)
        return;
    ct_buf_init(&text, 0);
    (void)ct_buf_printf(&text, "waiting for rank %u (pid %d)", first->rank, (int)first->pid);
    if (others > 0)
        (void)ct_buf_printf(&text, " and %u other%s", others, others > 1 ? "s" : "");
    if (sup->state == CT_SUP_STOPPING)
        (void)ct_buf_printf(&text, " to end%s%s; SIGKILL in %.1f s", signal != 0 ? " after " : "",
                            signal != 0 ? ct_signal_name(signal, name, sizeof name) : "",
                            (double)(sup->deadline_at_ms - uv_now(workers->loop)) / 1000);
    else
        (void)ct_buf_puts(&text, " to be removed by the kernel after SIGKILL");
    workers->callbacks.on_waiting(workers->callbacks.context, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

static void forget_record(struct worker *worker)
{
    ct_worker_record_unmap(worker->record);
    if (worker->record_fd > 0)
        (void)close(worker->record_fd);
}

/* The round is over: nothing of it stays but what was counted. */
static void finish(struct ct_workers *workers)
{
    bool well = workers->well;

    for (uint32_t i = 0; i < workers->count; i++) {
        ct_outputs_end(workers->outputs, i);
        ct_worker_link_free(workers->all[i].link);
        forget_record(&workers->all[i]);
        free(workers->all[i].fault);
        free(workers->all[i].error_file);
        ct_buf_deinit(&workers->all[i].last_words);
    }
    ct_outputs_free(workers->outputs);
    free(workers->all);
    workers->outputs = NULL;
    workers->all = NULL;
    workers->count = 0;
    workers->finish_late = false;
    arm(workers);
    workers->callbacks.on_finished(workers->callbacks.context, well);
}

static void act(struct ct_workers *workers, unsigned actions, struct worker *worker)
{
    if (actions & (CT_SUP_DO_BLAME | CT_SUP_DO_TERM | CT_SUP_DO_KILL))
        workers->well = false;
    if ((actions & CT_SUP_DO_SWEEP) && worker != NULL)
        signal_group(worker, SIGKILL);
    if ((actions & CT_SUP_DO_BLAME) &&
        worker != NULL) /* NULL: the start failed, its caller knows */
        ct_workers_blame(workers, worker);
    if (actions & CT_SUP_DO_TERM)
        terminate(workers);
    if (actions & CT_SUP_DO_KILL)
        kill_all(workers);
    if (actions & CT_SUP_DO_REPORT)
        report_waiting(workers);
    arm(workers);
    if (actions & CT_SUP_DO_FINISH)
        finish(workers);
}

void ct_workers_step(struct ct_workers *workers, enum ct_sup_event event, struct worker *worker)
{
    act(workers, ct_supervise_step(&workers->sup, uv_now(workers->loop), event, 0), worker);
}

static void on_sigchld(uv_signal_t *handle, int signal)
{
    (void)signal;
    ct_workers_reap(handle->data);
}

void ct_workers_poll(struct ct_workers *workers)
{
    ct_workers_reap(workers);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_workers *workers = timer->data;

    if (workers->finish_late) {
        finish(workers);
        return;
    }
    ct_workers_step(workers, CT_SUP_TICK, NULL);
    ct_workers_count_gone(
        workers); /* those that ended before SIGKILL went to what they left behind */
}

/* ---- starting ------------------------------------------------------------------------------- */

static void on_link_message(void *context, uint32_t local_rank, const struct ct_message *message)
{
    struct ct_workers *workers = context;
    struct worker *worker = &workers->all[local_rank];

    if (message->type != CT_MSG_FAULT) {
        workers->callbacks.on_message(workers->callbacks.context, local_rank, message);
        return;
    }
    if (worker->fault != NULL)
        return; /* the first counts */
    worker->fault_code = message->fault.code;
    worker->fault = strdup(message->fault.text);
}

static void on_link_broken(void *context, uint32_t local_rank, const struct ct_error *error)
{
    struct ct_workers *workers = context;

    ct_log_event(ct_console_report_log(workers->console), CT_LOG_WARN, "worker_link",
                 "the control link of rank %u is closed, the worker goes on without: %s",
                 workers->all[local_rank].rank, error->text);
}

/* Start one worker; what it got is closed here in every case. */
static int start_one(struct ct_workers *workers, const struct ct_workers_round *round,
                     uint32_t local_rank, struct ct_error *err)
{
    const struct ct_worker_spec *spec = &round->specs[local_rank];
    struct worker *worker = &workers->all[local_rank];
    const struct ct_worker_link_callbacks callbacks = {
        .context = workers,
        .worker = local_rank,
        .on_message = on_link_message,
        .on_broken = on_link_broken,
    };
    struct ct_spawn spawn = {
        .path = round->path,
        .argv = spec->argv != NULL ? spec->argv : round->argv,
        .envp = spec->envp,
        .fds = {workers->null_fd, -1, -1, -1, round->page_fd, -1},
        .cpus = spec->cpus,
        .files = round->files,
    };
    bool has_folder = spec->folder != NULL && spec->folder[0] != '\0';
    int rc = has_folder ? ct_log_files_make_dirs(workers->files, spec->folder, err) : 0;

    worker->rank = spec->rank;
    if (rc == 0 && spec->error_file != NULL && spec->error_file[0] != '\0') {
        worker->error_file = strdup(spec->error_file);
        rc = worker->error_file != NULL ? 0 : ct_error_set(err, CT_ENOMEM, "out of memory");
    }
    for (int i = 0; rc == 0 && i < CT_CONSOLE_STREAMS; i++)
        rc = ct_output_open(workers->outputs, local_rank, (enum ct_console_stream)i, &spec->origin,
                            &spec->routes[i], &spawn.fds[STDOUT_FILENO + i], err);
    if (rc == 0)
        rc = ct_worker_link_new(&worker->link, workers->loop, &callbacks, &spawn.fds[CT_CONTROL_FD],
                                err);
    if (rc == 0)
        rc = ct_worker_record_new(&worker->record, &spawn.fds[CT_RECORD_FD], err);
    if (rc == 0)
        worker->record_fd = fcntl(spawn.fds[CT_RECORD_FD], F_DUPFD_CLOEXEC, CT_SPAWN_FDS);
    if (rc == 0 && (round->warm == NULL || !ct_warm_become(round->warm, &spawn, &worker->pid)))
        rc = ct_spawn(&spawn, &worker->pid, err);
    if (rc == 0 && workers->guard != NULL)
        ct_guard_set(workers->guard, local_rank, worker->pid);
    for (int i = STDOUT_FILENO; i < CT_SPAWN_FDS; i++)
        if (spawn.fds[i] >= 0 && i != CT_PAGE_FD)
            (void)close(spawn.fds[i]);
    return rc;
}

/* Start all that do not run. Feeds the supervisor; its FINISH comes late, from the timer. */
static int start_missing(struct ct_workers *workers, const struct ct_workers_round *round,
                         uint32_t *ret_failed, struct ct_error *err)
{
    uint32_t alive = 0;
    int rc = workers->count > 0 ? 0 : CT_ENOMEM;

    if (rc != 0)
        *ret_failed = 0;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].pid == 0 && rc == 0) {
            rc = start_one(workers, round, i, err);
            if (rc != 0)
                *ret_failed = i;
        }
        alive += workers->all[i].pid > 0;
    }
    if (workers->guard != NULL)
        ct_guard_notify(workers->guard);
    unsigned actions = ct_supervise_step(&workers->sup, uv_now(workers->loop),
                                         rc == 0 ? CT_SUP_STARTED : CT_SUP_START_FAILED, alive);
    workers->finish_late = (actions & CT_SUP_DO_FINISH) != 0;
    act(workers, actions & ~(unsigned)CT_SUP_DO_FINISH, NULL);
    return rc;
}

int ct_workers_start(struct ct_workers *workers, const struct ct_workers_round *round,
                     uint32_t *ret_failed, struct ct_error *err)
{
    CT_ASSERT(!ct_workers_running(workers) && round->count > 0);
    const struct ct_output_sinks sinks = {workers->console, workers->files, workers->recent};
    workers->outputs = ct_outputs_new(workers->loop, round->count, &sinks);
    workers->all = calloc(round->count, sizeof *workers->all);
    workers->count = round->count;
    if (workers->outputs == NULL || workers->all == NULL) {
        (void)ct_error_set(err, CT_ENOMEM, "out of memory for %u workers", round->count);
        workers->count = 0;
    }
    workers->well = true;
    workers->stop_signal = SIGTERM;
    unsigned actions = ct_supervise_step(&workers->sup, uv_now(workers->loop), CT_SUP_START, 0);
    CT_ASSERT(actions == CT_SUP_DO_SPAWN);
    return start_missing(workers, round, ret_failed, err);
}

/* The place of a worker that is gone, as new. */
static void clear(struct ct_workers *workers, uint32_t local_rank)
{
    struct worker *worker = &workers->all[local_rank];

    ct_outputs_end(workers->outputs, local_rank);
    ct_worker_link_free(worker->link);
    forget_record(worker);
    free(worker->fault);
    free(worker->error_file);
    ct_buf_deinit(&worker->last_words);
    *worker = (struct worker){.pid = 0};
}

int ct_workers_refill(struct ct_workers *workers, const struct ct_workers_round *round,
                      uint32_t *ret_failed, struct ct_error *err)
{
    CT_ASSERT(workers->sup.state == CT_SUP_RUNNING && round->count == workers->count);
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];

        if (worker->reported) {
            clear(workers, i);
            continue;
        }
        worker->rank = round->specs[i].rank;
        ct_outputs_rename(workers->outputs, i, &round->specs[i].origin);
    }
    workers->well = true;
    unsigned actions = ct_supervise_step(&workers->sup, uv_now(workers->loop), CT_SUP_REFILL, 0);
    CT_ASSERT(actions == CT_SUP_DO_SPAWN);
    return start_missing(workers, round, ret_failed, err);
}

void ct_workers_keep(struct ct_workers *workers, uint32_t local_rank)
{
    if (local_rank < workers->count)
        workers->all[local_rank].kept = true;
}

bool ct_workers_alive(const struct ct_workers *workers, uint32_t local_rank)
{
    return local_rank < workers->count && workers->all[local_rank].pid > 0 &&
           !workers->all[local_rank].reported;
}

void ct_workers_dismiss(struct ct_workers *workers, uint32_t local_rank)
{
    if (!ct_workers_alive(workers, local_rank) || workers->all[local_rank].ended)
        return;
    workers->all[local_rank].dismissed = true;
    signal_group(&workers->all[local_rank], SIGKILL);
}

void ct_workers_condemn(struct ct_workers *workers, uint32_t local_rank,
                        const struct ct_error *error)
{
    struct worker *worker = &workers->all[local_rank];

    if (!ct_workers_alive(workers, local_rank) || worker->ended)
        return;
    free(worker->fault); /* what it said of itself is not why it ends */
    worker->fault_code = error->code;
    worker->fault = strdup(error->text);
    signal_group(worker, SIGKILL);
}

const struct ct_worker_record *ct_workers_record(const struct ct_workers *workers,
                                                 uint32_t local_rank)
{
    return ct_workers_alive(workers, local_rank) ? workers->all[local_rank].record : NULL;
}

bool ct_workers_trace(const struct ct_workers *workers, uint32_t local_rank,
                      struct ct_worker_trace *ret_trace)
{
    if (local_rank >= workers->count || workers->all[local_rank].pid == 0)
        return false;
    const struct worker *worker = &workers->all[local_rank];
    *ret_trace = (struct ct_worker_trace){.record = worker->record,
                                          .pid = worker->pid,
                                          .ended = worker->ended,
                                          .stopped = worker->stopped || worker->dismissed,
                                          .end = worker->end};
    return worker->record != NULL;
}

pid_t ct_workers_pid(const struct ct_workers *workers, uint32_t local_rank)
{
    return ct_workers_alive(workers, local_rank) ? workers->all[local_rank].pid : 0;
}

bool ct_workers_held(const struct ct_workers *workers, uint32_t local_rank)
{
    return ct_workers_alive(workers, local_rank) && ct_outputs_held(workers->outputs, local_rank);
}

uint64_t ct_workers_output_bytes(const struct ct_workers *workers, uint32_t local_rank)
{
    return ct_workers_alive(workers, local_rank) ? ct_outputs_bytes(workers->outputs, local_rank)
                                                 : 0;
}

bool ct_workers_stopping(const struct ct_workers *workers)
{
    return workers->sup.state == CT_SUP_STOPPING || workers->sup.state == CT_SUP_KILLING;
}

bool ct_workers_running(const struct ct_workers *workers)
{
    return workers->sup.state != CT_SUP_DONE || workers->finish_late;
}

void ct_workers_stop(struct ct_workers *workers, int signal)
{
    if (!ct_workers_stopping(workers))
        workers->stop_signal = signal;
    ct_workers_step(workers, CT_SUP_STOP, NULL);
}

uint32_t ct_workers_signal(struct ct_workers *workers, int signal)
{
    uint32_t reached = 0;

    for (uint32_t i = 0; i < workers->count; i++) {
        const struct worker *worker = &workers->all[i];

        if (worker->pid > 0 && !worker->ended)
            reached += kill(worker->pid, signal) == 0;
    }
    return reached;
}

void ct_workers_kill(struct ct_workers *workers)
{
    ct_workers_step(workers, CT_SUP_KILL, NULL);
}

void ct_workers_send(struct ct_workers *workers, uint32_t local_rank,
                     const struct ct_message *message)
{
    if (local_rank < workers->count && workers->all[local_rank].link != NULL)
        ct_worker_link_send(workers->all[local_rank].link, message);
}

void ct_workers_room(struct ct_workers *workers)
{
    if (workers->outputs != NULL)
        ct_outputs_room(workers->outputs);
}

/* ---- birth and death ------------------------------------------------------------------------ */

static void on_file_room(void *context)
{
    const struct ct_workers *workers = context;

    if (workers->outputs != NULL)
        ct_outputs_file_room(workers->outputs);
}

struct ct_workers *ct_workers_new(uv_loop_t *loop, struct ct_console *console, uint64_t grace_ms,
                                  const struct ct_workers_callbacks *callbacks)
{
    struct ct_workers *workers = calloc(1, sizeof *workers);

    if (workers == NULL)
        return NULL;
    workers->files = ct_log_files_new(loop, console, on_file_room, workers);
    workers->recent = ct_recent_new(CT_WORKERS_RECENT_BYTES);
    if (workers->files == NULL || workers->recent == NULL) {
        ct_log_files_free(workers->files);
        ct_recent_free(workers->recent);
        free(workers);
        return NULL;
    }
    workers->loop = loop;
    workers->console = console;
    workers->callbacks = *callbacks;
    workers->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ct_supervise_init(&workers->sup, grace_ms);
    (void)uv_signal_init(loop, &workers->sigchld);
    (void)uv_timer_init(loop, &workers->timer);
    workers->sigchld.data = workers;
    workers->timer.data = workers;
    (void)uv_signal_start(&workers->sigchld, on_sigchld, SIGCHLD);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    return workers;
}

struct ct_log_files *ct_workers_files(const struct ct_workers *workers)
{
    return workers->files;
}

const struct ct_recent *ct_workers_recent(const struct ct_workers *workers)
{
    return workers->recent;
}

void ct_workers_guard(struct ct_workers *workers, const struct ct_guard *guard)
{
    workers->guard = guard;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_workers *workers = handle->data;
    void (*freed)(void *context) = workers->freed;
    void *context = workers->freed_context;

    if (--workers->handles > 0)
        return;
    if (workers->null_fd >= 0)
        (void)close(workers->null_fd);
    free(workers);
    if (freed != NULL)
        freed(context);
}

void ct_workers_free(struct ct_workers *workers, void (*freed)(void *context), void *context)
{
    CT_ASSERT(!ct_workers_running(workers));
    workers->freed = freed;
    workers->freed_context = context;
    workers->handles = 2;
    ct_log_files_free(workers->files);
    ct_recent_free(workers->recent);
    uv_close((uv_handle_t *)&workers->sigchld, on_handle_closed);
    uv_close((uv_handle_t *)&workers->timer, on_handle_closed);
}
