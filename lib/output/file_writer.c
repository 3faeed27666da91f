/* See file_writer.h. */
#include "output/file_writer.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SMALLEST = 4096 }; /* room of a write: small ones that follow each other are one */

enum kind { OP_MAKE_DIRS, OP_OPEN, OP_WRITE, OP_CLOSE };

/* What the thread is to do, in this order. */
struct op {
    struct op *next;
    struct ct_written *file;
    enum kind kind;
    size_t size, room; /* of `bytes` */
    char bytes[];
};

struct ct_written {
    struct ct_file_writer *writer;
    uint32_t owner;
    int fd;       /* the thread's */
    int code;     /* not 0: it takes no more */
    bool awaited; /* somebody waits for its opening, and hears of a failure there */
    bool opened;  /* or tried */
    bool closed;
    bool in_reports;
    struct ct_written *next_report;
    struct ct_error error; /* of the opening */
    char path[];
};

struct ct_file_writer {
    pthread_mutex_t lock;  /* of all that follows */
    pthread_cond_t some;   /* there is something to do, or the end is near */
    pthread_cond_t opened; /* something was opened, or the thread has ended */
    pthread_t thread;
    void (*wake)(void *context); /* NULL: its user has gone */
    void *context;
    struct op *first, *last; /* the first is being done while `busy` */
    bool busy;
    uint64_t busy_since_ms;
    size_t queued;
    struct ct_written *first_report, *last_report;
    bool wants_room, wants_idle;
    bool impatient; /* an opening took too long: no other is waited for before all is done */
    bool abandoned, closing, ended;
};

static void wake(const struct ct_file_writer *writer)
{
    if (writer->wake != NULL)
        writer->wake(writer->context);
}

static void lock(const struct ct_file_writer *writer)
{
    (void)pthread_mutex_lock((pthread_mutex_t *)&writer->lock);
}

static void unlock(const struct ct_file_writer *writer)
{
    (void)pthread_mutex_unlock((pthread_mutex_t *)&writer->lock);
}

/* ---- under the lock ------------------------------------------------------------------------- */

static void free_file(struct ct_written *file)
{
    if (file->closed && !file->in_reports)
        free(file);
}

static void report(struct ct_written *file)
{
    struct ct_file_writer *writer = file->writer;

    file->in_reports = true;
    if (writer->last_report != NULL)
        writer->last_report->next_report = file;
    else
        writer->first_report = file;
    writer->last_report = file;
    wake(writer);
}

/* It takes no more; who waits for its opening hears of it there. */
static void lose(struct ct_written *file, int code)
{
    if (file->code != 0)
        return;
    file->code = code;
    if (!file->awaited)
        report(file);
}

static size_t cost(const struct op *op)
{
    return sizeof *op + op->room;
}

static void push(struct op *op)
{
    struct ct_file_writer *writer = op->file->writer;

    if (writer->last != NULL)
        writer->last->next = op;
    else
        writer->first = op;
    writer->last = op;
    writer->queued += cost(op);
    (void)pthread_cond_signal(&writer->some);
}

static struct op *new_op(struct ct_written *file, enum kind kind, size_t room)
{
    struct op *op = malloc(sizeof *op + room);

    if (op != NULL)
        *op = (struct op){.file = file, .kind = kind, .room = room};
    return op;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int open_file(struct ct_written *file)
{
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd >= 0)
        return 0;
    return ct_error_set(&file->error, CT_ECANTCREAT, "the log file %s cannot be opened: %s",
                        file->path, ct_strerror(-errno));
}

/* As long as it takes, without the lock. */
static int carry_out(const struct op *op)
{
    struct ct_written *file = op->file;

    switch (op->kind) {
    case OP_MAKE_DIRS:
        return ct_fs_make_dirs(file->path, &file->error);
    case OP_OPEN:
        return open_file(file);
    case OP_WRITE:
        return ct_fs_write_all(file->fd, op->bytes, op->size);
    case OP_CLOSE:
        break;
    }
    /* Where a server takes the bytes late, it is close(2) that tells of a disk that is full. */
    int rc = file->fd >= 0 && close(file->fd) != 0 && errno != EINTR ? -errno : 0;
    file->fd = -1;
    return rc;
}

static void complete(struct ct_file_writer *writer, struct op *op, int rc)
{
    struct ct_written *file = op->file;

    writer->busy = false;
    writer->first = op->next;
    if (writer->first == NULL)
        writer->last = NULL;
    writer->queued -= cost(op);
    if (rc != 0)
        lose(file, rc);
    if (op->kind == OP_OPEN || op->kind == OP_MAKE_DIRS) {
        file->opened = true;
        (void)pthread_cond_broadcast(&writer->opened);
    }
    if (op->kind == OP_CLOSE) {
        file->closed = true;
        free_file(file);
    }
    free(op);
    bool idle = writer->first == NULL;
    bool has_room = writer->queued <= CT_WRITER_FULL / 2;
    writer->impatient = writer->impatient && !idle;
    if ((writer->wants_room && has_room) || (writer->wants_idle && idle)) {
        writer->wants_room = writer->wants_room && !has_room;
        writer->wants_idle = writer->wants_idle && !idle;
        wake(writer);
    }
}

static void destroy(struct ct_file_writer *writer)
{
    while (writer->first_report != NULL) { /* nobody asks any more */
        struct ct_written *file = writer->first_report;

        writer->first_report = file->next_report;
        file->in_reports = false;
        free_file(file);
    }
    (void)pthread_mutex_destroy(&writer->lock);
    (void)pthread_cond_destroy(&writer->some);
    (void)pthread_cond_destroy(&writer->opened);
    free(writer);
}

static void *run(void *context)
{
    struct ct_file_writer *writer = context;

    lock(writer);
    while (writer->first != NULL || !writer->closing) {
        struct op *op = writer->first;
        if (op == NULL) {
            (void)pthread_cond_wait(&writer->some, &writer->lock);
            continue;
        }
        bool skip = op->kind != OP_CLOSE && op->file->code != 0;
        writer->busy = true;
        writer->busy_since_ms = ct_clock_mono_ms(&ct_clock_system);
        unlock(writer);
        int rc = skip ? 0 : carry_out(op);
        lock(writer);
        complete(writer, op, rc);
    }
    writer->ended = true;
    (void)pthread_cond_broadcast(&writer->opened);
    bool alone = writer->abandoned;
    unlock(writer);
    if (alone) /* its user has gone */
        destroy(writer);
    return NULL;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* Signals are for the threads that were there before. */
static int start_thread(struct ct_file_writer *writer)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&writer->thread, NULL, run, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

struct ct_file_writer *ct_file_writer_new(void (*wake_user)(void *context), void *context)
{
    struct ct_file_writer *writer = calloc(1, sizeof *writer);
    pthread_condattr_t monotonic;

    if (writer == NULL)
        return NULL;
    writer->wake = wake_user;
    writer->context = context;
    (void)pthread_mutex_init(&writer->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&writer->some, NULL);
    (void)pthread_cond_init(&writer->opened, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (start_thread(writer) == 0)
        return writer;
    destroy(writer);
    return NULL;
}

static struct timespec time_in(uint64_t ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

void ct_file_writer_free(struct ct_file_writer *writer, uint64_t patience_ms)
{
    if (writer == NULL)
        return;
    const struct timespec until = time_in(patience_ms);
    int rc = 0;
    lock(writer);
    writer->wake = NULL;
    writer->closing = true;
    (void)pthread_cond_signal(&writer->some);
    while (!writer->ended && rc == 0)
        rc = pthread_cond_timedwait(&writer->opened, &writer->lock, &until);
    bool ended = writer->ended;
    writer->abandoned = !ended;
    if (!ended)
        (void)pthread_detach(writer->thread); /* it waits in a call, and its memory with it */
    unlock(writer);
    if (!ended)
        return;
    (void)pthread_join(writer->thread, NULL);
    destroy(writer);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Wait for an opening, unless others have shown that this takes long. 0 when it is under way. */
static int await_opening(struct ct_written *file, struct ct_error *err)
{
    struct ct_file_writer *writer = file->writer;
    const struct timespec until = time_in(CT_WRITER_OPEN_MS);
    int rc = writer->impatient ? ETIMEDOUT : 0;

    while (!file->opened && rc == 0)
        rc = pthread_cond_timedwait(&writer->opened, &writer->lock, &until);
    writer->impatient = writer->impatient || !file->opened;
    file->awaited = false;
    if (file->opened && file->code != 0 && err != NULL)
        *err = file->error;
    return file->opened ? file->code : 0;
}

static int begin(struct ct_file_writer *writer, const char *path, uint32_t owner, enum kind kind,
                 struct ct_written **ret_file, struct ct_error *err)
{
    size_t size = strlen(path) + 1;
    struct ct_written *file = calloc(1, sizeof *file + size);
    struct op *op = file != NULL ? new_op(file, kind, 0) : NULL;

    if (op == NULL) {
        free(file);
        return ct_error_set(err, CT_ENOMEM, "out of memory for the log file %s", path);
    }
    file->writer = writer;
    file->owner = owner;
    file->fd = -1;
    file->awaited = true;
    (void)memcpy(file->path, path, size);
    lock(writer);
    push(op);
    int rc = await_opening(file, err);
    unlock(writer);
    if (rc != 0)
        ct_written_close(file);
    else
        *ret_file = file;
    return rc;
}

int ct_file_writer_open(struct ct_file_writer *writer, const char *path, uint32_t owner,
                        struct ct_written **ret_file, struct ct_error *err)
{
    return begin(writer, path, owner, OP_OPEN, ret_file, err);
}

int ct_file_writer_make_dirs(struct ct_file_writer *writer, const char *path, struct ct_error *err)
{
    struct ct_written *file = NULL;
    int rc = begin(writer, path, 0, OP_MAKE_DIRS, &file, err);

    ct_written_close(file);
    return rc;
}

/* Into the last write of the queue, which the thread has not begun? */
static bool joins(const struct ct_written *file, size_t size)
{
    const struct op *last = file->writer->last;

    return last != NULL && last->file == file && last->kind == OP_WRITE &&
           size <= last->room - last->size && !(file->writer->busy && last == file->writer->first);
}

void ct_written_append(struct ct_written *file, const void *data, size_t size)
{
    struct ct_file_writer *writer = file->writer;
    struct op *op;

    lock(writer);
    if (joins(file, size)) {
        op = writer->last;
    } else if (file->code != 0 || writer->queued + size > CT_WRITER_MOST ||
               (op = new_op(file, OP_WRITE, CT_MAX(size, (size_t)SMALLEST))) == NULL) {
        lose(file, CT_ELIMIT);
        unlock(writer);
        return;
    } else {
        push(op);
    }
    (void)memcpy(op->bytes + op->size, data, size);
    op->size += size;
    unlock(writer);
}

bool ct_written_lost(const struct ct_written *file)
{
    lock(file->writer);
    bool lost = file->code != 0;
    unlock(file->writer);
    return lost;
}

void ct_written_close(struct ct_written *file)
{
    if (file == NULL)
        return;
    struct op *op = new_op(file, OP_CLOSE, 0);
    if (op == NULL)
        return; /* the process ends before long */
    struct ct_file_writer *writer = file->writer;
    lock(writer);
    push(op);
    unlock(writer);
}

/* ---- what its user asks --------------------------------------------------------------------- */

bool ct_file_writer_full(struct ct_file_writer *writer)
{
    lock(writer);
    bool full = writer->queued >= CT_WRITER_FULL;
    writer->wants_room = writer->wants_room || full;
    unlock(writer);
    return full;
}

bool ct_file_writer_await_idle(struct ct_file_writer *writer)
{
    lock(writer);
    bool idle = writer->first == NULL;
    writer->wants_idle = !idle;
    unlock(writer);
    return idle;
}

void ct_file_writer_view(const struct ct_file_writer *writer, struct ct_writer_view *ret_view)
{
    lock(writer);
    *ret_view = (struct ct_writer_view){.queued = writer->queued};
    if (writer->busy) {
        ret_view->waits_ms = ct_clock_mono_ms(&ct_clock_system) - writer->busy_since_ms;
        (void)ct_str_copy(ret_view->path, sizeof ret_view->path, writer->first->file->path);
    }
    unlock(writer);
}

static const char *why_of(const struct ct_written *file)
{
    if (file->code == CT_ELIMIT)
        return "more was printed than waits for a disk that does not answer";
    return file->error.code != 0 ? file->error.text : ct_strerror(file->code);
}

bool ct_file_writer_report(struct ct_file_writer *writer, struct ct_writer_report *ret_report)
{
    lock(writer);
    struct ct_written *file = writer->first_report;
    if (file != NULL) {
        writer->first_report = file->next_report;
        if (writer->first_report == NULL)
            writer->last_report = NULL;
        ret_report->owner = file->owner;
        (void)ct_str_copy(ret_report->path, sizeof ret_report->path, file->path);
        (void)ct_str_copy(ret_report->why, sizeof ret_report->why, why_of(file));
        file->in_reports = false;
        free_file(file);
    }
    unlock(writer);
    return file != NULL;
}

uint32_t ct_file_writer_abandon(struct ct_file_writer *writer, char first[512])
{
    uint32_t count = 0;

    lock(writer);
    for (const struct op *op = writer->first; op != NULL; op = op->next) {
        if (op->file->code != 0 || op->kind == OP_CLOSE)
            continue;
        op->file->code = CT_ETIMEOUT;
        if (count++ == 0)
            (void)ct_str_copy(first, 512, op->file->path);
    }
    unlock(writer);
    return count;
}
