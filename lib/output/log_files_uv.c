/* See log_files_uv.h. */
#include "output/log_files_uv.h"

#include "base/assert.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    POLL_MS = 100,  /* how often to look at the writer while something is awaited */
    SLOW_MS = 3000, /* workers have waited so long that the user should know */
};

struct ct_log_files {
    uv_loop_t *loop;
    uv_async_t wake;
    uv_timer_t timer;
    struct ct_console *console;
    void (*on_room)(void *context);
    void *context;
    struct ct_file_writer *writer; /* NULL before the first file */
    struct ct_output_losses losses;
    bool full; /* and since when; told: a warning has gone out */
    bool reported;
    uint64_t full_since_ms;
    struct ct_flush flush; /* while `flushing` */
    bool flushing;
    bool given_up; /* something that waits will not be written */
    int handles;
};

/* ---- what the user is told ------------------------------------------------------------------ */

static void note(struct ct_output_losses *losses, uint32_t count, const char *path, const char *why)
{
    if (losses->count == 0)
        (void)snprintf(losses->first, sizeof losses->first, "%s: %s", path, why);
    losses->count += count;
}

static void report_lost(struct ct_log_files *files)
{
    struct ct_writer_report lost;
    char owner[32];

    while (ct_file_writer_report(files->writer, &lost)) {
        note(&files->losses, 1, lost.path, lost.why);
        (void)snprintf(owner, sizeof owner, " of local rank %u", lost.owner);
        ct_log_event(ct_console_report_log(files->console), CT_LOG_WARN, "log_file_lost",
                     "the log file %s%s is given up, the job goes on: %s", lost.path,
                     lost.owner != CT_LOG_FILES_NO_RANK ? owner : "", lost.why);
    }
}

static void report_slow(struct ct_log_files *files, uint64_t now_ms)
{
    struct ct_writer_view view;

    if (files->reported || !files->full || now_ms - files->full_since_ms < SLOW_MS)
        return;
    files->reported = true;
    ct_file_writer_view(files->writer, &view);
    ct_log_event(ct_console_report_log(files->console), CT_LOG_WARN, "log_files_slow",
                 "the disk of the log files has not kept up for %.1f s (now at %s): workers wait "
                 "when they print, the job goes on",
                 (double)(now_ms - files->full_since_ms) / 1000, view.path);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void watch(struct ct_log_files *files);

static void end_flush(struct ct_log_files *files)
{
    files->flushing = false;
    report_lost(files);
    files->flush.flushed(files->flush.context);
}

/* Is it over, one way or the other? */
static bool is_flushed(struct ct_log_files *files, uint64_t now_ms)
{
    struct ct_writer_view view;
    char first[512], why[64];

    if (files->writer == NULL || files->given_up || ct_file_writer_await_idle(files->writer))
        return true;
    ct_file_writer_view(files->writer, &view);
    if (view.waits_ms < files->flush.patience_ms && now_ms < files->flush.until_ms)
        return false;
    uint32_t count = ct_file_writer_abandon(files->writer, first);
    (void)snprintf(why, sizeof why, "the disk has not answered for %.1f s",
                   (double)view.waits_ms / 1000);
    if (count > 0)
        note(&files->losses, count, first, why);
    files->given_up = true;
    return true;
}

static void poll(struct ct_log_files *files)
{
    uint64_t now_ms = uv_now(files->loop);

    if (files->writer != NULL)
        report_lost(files);
    if (files->full && !ct_file_writer_full(files->writer)) {
        if (files->reported)
            ct_log_event(ct_console_report_log(files->console), CT_LOG_INFO, "log_files_back",
                         "the log files are written again, after %.1f s",
                         (double)(now_ms - files->full_since_ms) / 1000);
        files->full = files->reported = false;
        files->on_room(files->context);
    }
    report_slow(files, now_ms);
    if (files->flushing && is_flushed(files, now_ms))
        end_flush(files);
    else
        watch(files);
}

static void on_wake(uv_async_t *wake)
{
    poll(wake->data);
}

static void on_timer(uv_timer_t *timer)
{
    poll(timer->data);
}

/* Look again while there is somebody to tell of time that passes. */
static void watch(struct ct_log_files *files)
{
    if (files->flushing || (files->full && !files->reported))
        (void)uv_timer_start(&files->timer, on_timer, POLL_MS, 0);
    else
        (void)uv_timer_stop(&files->timer);
}

/* From the writer's thread. */
static void on_writer(void *context)
{
    struct ct_log_files *files = context;

    (void)uv_async_send(&files->wake);
}

/* ---- what others ask ------------------------------------------------------------------------ */

/* The thread begins with the first file. */
static int need_writer(struct ct_log_files *files, struct ct_error *err)
{
    if (files->writer == NULL)
        files->writer = ct_file_writer_new(on_writer, files);
    return files->writer != NULL
               ? 0
               : ct_error_set(err, CT_EOS,
                              "no thread for the log files: too many processes; raise `ulimit -u` "
                              "or the cgroup's pids.max");
}

int ct_log_files_open(struct ct_log_files *files, const char *path, uint32_t local_rank,
                      struct ct_written **ret_file, struct ct_error *err)
{
    *ret_file = NULL;
    int rc = path != NULL ? need_writer(files, err) : 0;

    return path != NULL && rc == 0
               ? ct_file_writer_open(files->writer, path, local_rank, ret_file, err)
               : rc;
}

int ct_log_files_make_dirs(struct ct_log_files *files, const char *path, struct ct_error *err)
{
    int rc = need_writer(files, err);

    return rc == 0 ? ct_file_writer_make_dirs(files->writer, path, err) : rc;
}

bool ct_log_files_full(struct ct_log_files *files)
{
    if (files->writer == NULL || !ct_file_writer_full(files->writer))
        return false;
    if (!files->full)
        files->full_since_ms = uv_now(files->loop);
    files->full = true;
    watch(files);
    return true;
}

bool ct_log_files_idle(struct ct_log_files *files)
{
    struct ct_writer_view view = {.queued = 0};

    if (files->writer == NULL || files->given_up)
        return true;
    ct_file_writer_view(files->writer, &view);
    report_lost(files); /* the last write may have failed just now */
    return view.queued == 0;
}

void ct_log_files_flush(struct ct_log_files *files, const struct ct_flush *flush)
{
    files->flush = *flush;
    files->flushing = true;
    (void)uv_timer_start(&files->timer, on_timer, 0, 0);
}

const struct ct_output_losses *ct_log_files_losses(const struct ct_log_files *files)
{
    return &files->losses;
}

/* ---- birth and death ------------------------------------------------------------------------ */

struct ct_log_files *ct_log_files_new(uv_loop_t *loop, struct ct_console *console,
                                      void (*on_room)(void *context), void *context)
{
    struct ct_log_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->loop = loop;
    files->console = console;
    files->on_room = on_room;
    files->context = context;
    if (uv_async_init(loop, &files->wake, on_wake) != 0) {
        free(files);
        return NULL;
    }
    (void)uv_timer_init(loop, &files->timer);
    files->wake.data = files->timer.data = files;
    uv_unref((uv_handle_t *)&files->wake);
    return files;
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_log_files *files = handle->data;

    if (--files->handles == 0)
        free(files);
}

void ct_log_files_free(struct ct_log_files *files)
{
    if (files == NULL)
        return;
    ct_file_writer_free(files->writer, files->given_up ? 0 : CT_LOG_FILES_FREE_MS);
    files->writer = NULL;
    files->handles = 2;
    uv_close((uv_handle_t *)&files->wake, on_closed);
    uv_close((uv_handle_t *)&files->timer, on_closed);
}
