/* See log_writer.h. */
#include "base/log/log_writer.h"

#include "base/assert.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RING_BYTES = 256 << 10 };

struct ct_log_writer {
    pthread_mutex_t lock;
    pthread_cond_t some; /* there are bytes, or the end is near */
    pthread_cond_t none; /* the thread has ended */
    pthread_t thread;
    struct ct_log direct; /* tells of lost lines: writes where it stands */
    int fd;
    bool closing, ended;
    bool failing;     /* how many are dropped could not be written either */
    bool told;        /* the thread's: they could, the last time ... */
    bool torn;        /* ... and: what was written ends inside of a line */
    uint64_t dropped; /* lines that found no room, or were not written */
    size_t head;      /* of the bytes that wait */
    size_t used;
    char ring[RING_BYTES];
};

/* ---- in: any thread ---- */

static void put(void *context, const char *line, unsigned long size)
{
    struct ct_log_writer *writer = context;

    (void)pthread_mutex_lock(&writer->lock);
    if (writer->dropped > 0 || size > RING_BYTES - writer->used) {
        writer->dropped++; /* lines stay in order: none before it was told how many are missing */
        writer->failing = false; /* perhaps it can be told now */
        (void)pthread_cond_signal(&writer->some);
    } else {
        size_t tail = (writer->head + writer->used) % RING_BYTES;
        size_t first = CT_MIN(size, RING_BYTES - tail);
        memcpy(writer->ring + tail, line, first);
        memcpy(writer->ring, line + first, size - first);
        writer->used += size;
        (void)pthread_cond_signal(&writer->some);
    }
    (void)pthread_mutex_unlock(&writer->lock);
}

/* ---- out: the thread ---- */

/* Blocks as long as it takes. Returns how many of the bytes are written; fewer when the reader is
 * gone, or the disk full. */
static size_t write_out(int fd, const char *bytes, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t written = write(fd, bytes + done, size - done);
        if (written < 0 && errno == EAGAIN) { /* somebody else has made it non-blocking */
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    return done;
}

/* The thread's. Returns whether all is written. */
static bool write_all(struct ct_log_writer *writer, const char *bytes, size_t size)
{
    size_t done = write_out(writer->fd, bytes, size);

    if (done > 0)
        writer->torn = bytes[done - 1] != '\n';
    return done == size;
}

static void write_direct(void *context, const char *line, unsigned long size)
{
    struct ct_log_writer *writer = context;

    writer->told = (!writer->torn || write_all(writer, "\n", 1)) && write_all(writer, line, size);
}

/* The ring is empty: say how many lines it had no room for, or were not written. */
static void report_dropped(struct ct_log_writer *writer)
{
    uint64_t dropped = writer->dropped;

    (void)pthread_mutex_unlock(&writer->lock);
    ct_log_event(&writer->direct, CT_LOG_WARN, "log_lost",
                 "%llu lines of this log are lost here: its reader had stalled, or its disk was "
                 "full",
                 (unsigned long long)dropped);
    (void)pthread_mutex_lock(&writer->lock);
    if (writer->told)
        writer->dropped -= dropped;
    writer->failing = !writer->told;
}

/* A part was not written: it and all that waits is lost, but for the lines of which the end was. */
static void drop_ring(struct ct_log_writer *writer, size_t written)
{
    for (size_t i = written; i < writer->used; i++)
        writer->dropped += writer->ring[(writer->head + i) % RING_BYTES] == '\n';
    writer->head = writer->used = 0;
}

/* Write the first bytes of the ring, `size` of them; unlocked meanwhile. */
static void write_ring(struct ct_log_writer *writer, size_t size)
{
    (void)pthread_mutex_unlock(&writer->lock);
    size_t done = write_out(writer->fd, writer->ring + writer->head, size);
    (void)pthread_mutex_lock(&writer->lock);
    if (done > 0)
        writer->torn = writer->ring[writer->head + done - 1] != '\n';
    if (done < size) {
        drop_ring(writer, done);
        return;
    }
    writer->head = (writer->head + size) % RING_BYTES;
    writer->used -= size;
}

static void *run(void *context)
{
    struct ct_log_writer *writer = context;
    bool last = false; /* the last try to say how many are dropped was made */

    (void)pthread_mutex_lock(&writer->lock);
    for (;;) {
        size_t size = CT_MIN(writer->used, RING_BYTES - writer->head);
        if (size > 0) { /* these bytes are nobody else's until `used` says so */
            write_ring(writer, size);
        } else if (writer->dropped > 0 && (!writer->failing || (writer->closing && !last))) {
            last = writer->closing;
            report_dropped(writer);
        } else if (writer->closing) {
            break;
        } else {
            (void)pthread_cond_wait(&writer->some, &writer->lock);
        }
    }
    writer->ended = true;
    (void)pthread_cond_signal(&writer->none);
    (void)pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* ---- begin and end ---- */

/* Signals are for the threads that were there before. */
static int start_thread(struct ct_log_writer *writer)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&writer->thread, NULL, run, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

struct ct_log_writer *ct_log_writer_new(struct ct_log *log, int fd)
{
    struct ct_log_writer *writer = calloc(1, sizeof *writer);

    if (writer == NULL)
        return NULL;
    writer->fd = fd;
    writer->direct = *log;
    writer->direct.write = write_direct;
    writer->direct.context = writer;
    (void)pthread_mutex_init(&writer->lock, NULL);
    (void)pthread_cond_init(&writer->some, NULL);
    (void)pthread_cond_init(&writer->none, NULL);
    if (start_thread(writer) != 0) {
        free(writer);
        return NULL;
    }
    log->write = put;
    log->context = writer;
    return writer;
}

void ct_log_writer_free(struct ct_log_writer *writer, unsigned patience_ms)
{
    struct timespec until;
    int rc = 0;

    if (writer == NULL)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += patience_ms / 1000;
    until.tv_nsec += (long)(patience_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&writer->lock);
    writer->closing = true;
    (void)pthread_cond_signal(&writer->some);
    while (!writer->ended && rc == 0)
        rc = pthread_cond_timedwait(&writer->none, &writer->lock, &until);
    bool ended = writer->ended;
    (void)pthread_mutex_unlock(&writer->lock);
    if (!ended) {
        (void)pthread_detach(writer->thread); /* it waits in write(2), and its memory with it */
        return;
    }
    (void)pthread_join(writer->thread, NULL);
    (void)pthread_mutex_destroy(&writer->lock);
    (void)pthread_cond_destroy(&writer->some);
    (void)pthread_cond_destroy(&writer->none);
    free(writer);
}
