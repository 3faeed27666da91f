/* See console_uv.h.
 *
 * write: append to `lines` -> flush: erase the live line, move the lines to `out`, draw the live
 * line again -> write(2) until it would block -> poll for writability -> write(2) -> on_room. */
#include "output/console_uv.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIVE_MAX = 256 };

static const char erase_line[] = "\r\x1b[K";

struct sink {
    uv_poll_t poll;
    struct ct_console *console;
    int fd;         /* written to */
    bool owned;     /* opened here */
    bool is_socket; /* written to with send(2) */
    bool dead;      /* nobody reads any more: all is dropped */
    bool broken;    /* a pipe whose reader has gone */
    bool polled;    /* `poll` is initialised */
    bool waiting;   /* `poll` is active */
    bool terminal;
    bool live; /* and takes a live line */
    bool coloured;
    bool drawn; /* the live line is on the screen */
    struct ct_buf lines;
    struct ct_buf out;
};

struct ct_console {
    uv_loop_t *loop;
    struct sink sinks[CT_CONSOLE_STREAMS];
    struct sink *stream[CT_CONSOLE_STREAMS]; /* both may be the same sink */
    char live[LIVE_MAX];
    void (*on_room)(void *context);
    void *context;
    bool breaks;              /* of ct_console_report: a broken pipe ends who writes, in silence */
    const struct ct_log *log; /* of ct_console_report; NULL: nobody is told of a stream's end */
    bool *output_lost;        /* likewise */
    bool closing;
    int handles; /* being closed */
    void (*closed)(void *context);
    void *closed_context;
};

/* A second, non-blocking description of a terminal or pipe. A regular file needs none; what cannot
 * be opened again is written to as it is. */
static void open_sink(struct sink *sink, struct ct_console *console, int fd)
{
    char path[32];
    struct stat st = {0};

    sink->console = console;
    sink->fd = fd;
    sink->dead = fstat(fd, &st) != 0;
    sink->terminal = sink->live = isatty(fd) == 1;
    sink->is_socket = S_ISSOCK(st.st_mode);
    if (!S_ISFIFO(st.st_mode) && !sink->terminal)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) {
        sink->fd = own;
        sink->owned = true;
    }
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct ct_console *ct_console_new(uv_loop_t *loop, int out, int err, void (*on_room)(void *context),
                                  void *context)
{
    struct ct_console *console = calloc(1, sizeof *console);

    if (console == NULL)
        return NULL;
    console->loop = loop;
    console->on_room = on_room;
    console->context = context;
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++) {
        console->stream[i] = &console->sinks[i];
        console->sinks[i].dead = true;
    }
    open_sink(console->stream[CT_CONSOLE_OUT], console, out);
    if (same_file(out, err))
        console->stream[CT_CONSOLE_ERR] = console->stream[CT_CONSOLE_OUT];
    else
        open_sink(console->stream[CT_CONSOLE_ERR], console, err);
    return console;
}

size_t ct_console_queued(const struct ct_console *console, enum ct_console_stream stream)
{
    return console->stream[stream]->out.size + console->stream[stream]->lines.size;
}

struct ct_buf *ct_console_lines(struct ct_console *console, enum ct_console_stream stream)
{
    return &console->stream[stream]->lines;
}

/* ---- writing out ---------------------------------------------------------------------------- */

/* The reader is gone, or the disk is full: nothing more can be said here. Who closes a terminal
 * knows it, and so does whose program a broken pipe ends; of anything else the other stream tells.
 */
static void give_up(struct sink *sink, int code)
{
    struct ct_console *console = sink->console;

    if (sink->waiting)
        (void)uv_poll_stop(&sink->poll);
    sink->waiting = false;
    sink->dead = true;
    sink->broken = code == -EPIPE;
    ct_buf_clear(&sink->out);
    if (code == -EIO || (code == -EPIPE && console->breaks) || console->log == NULL)
        return;
    bool is_output = sink == console->stream[CT_CONSOLE_OUT];
    *console->output_lost = *console->output_lost || (is_output && !sink->broken);
    ct_log_event(console->log, CT_LOG_WARN, "output_lost",
                 "standard %s cannot be written: %s; lines that come from now on are lost, the "
                 "job goes on (--log_dir keeps them in files)",
                 is_output ? "output" : "error", ct_strerror(code));
}

static void on_writable(uv_poll_t *poll, int status, int events);

static void await_room(struct sink *sink)
{
    if (sink->waiting)
        return;
    if (!sink->polled) {
        int rc = uv_poll_init(sink->console->loop, &sink->poll, sink->fd);

        if (rc != 0) {
            give_up(sink, rc);
            return;
        }
        sink->poll.data = sink;
        sink->polled = true;
    }
    (void)uv_poll_start(&sink->poll, UV_WRITABLE, on_writable);
    sink->waiting = true;
}

static void write_out(struct sink *sink)
{
    while (sink->out.size > 0) {
        ssize_t written = sink->is_socket ? send(sink->fd, sink->out.data, sink->out.size,
                                                 MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : write(sink->fd, sink->out.data, sink->out.size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) {
            await_room(sink);
            return;
        }
        if (written < 0) {
            give_up(sink, -errno);
            return;
        }
        ct_buf_consume(&sink->out, (size_t)written);
    }
    if (sink->waiting)
        (void)uv_poll_stop(&sink->poll);
    sink->waiting = false;
}

static void draw(struct sink *sink, const char *text)
{
    (void)ct_buf_puts(&sink->out, text);
    sink->drawn = true;
}

static void erase(struct sink *sink)
{
    if (sink->drawn)
        (void)ct_buf_puts(&sink->out, erase_line);
    sink->drawn = false;
}

static void flush_sink(struct sink *sink)
{
    const char *live = sink->console->live;

    if (sink->lines.size > 0 && !sink->dead) {
        erase(sink);
        (void)ct_buf_append(&sink->out, sink->lines.data, sink->lines.size);
        if (sink->live && live[0] != '\0')
            draw(sink, live);
    }
    ct_buf_clear(&sink->lines);
    sink->out.failed = false; /* without memory lines are lost, not the job */
    if (!sink->waiting && !sink->dead)
        write_out(sink);
}

void ct_console_flush(struct ct_console *console)
{
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++)
        if (console->stream[i] == &console->sinks[i])
            flush_sink(console->stream[i]);
}

bool ct_console_is_live(const struct ct_console *console)
{
    return console->stream[CT_CONSOLE_OUT]->live;
}

bool ct_console_is_terminal(const struct ct_console *console, enum ct_console_stream stream)
{
    return console->stream[stream]->terminal;
}

bool ct_console_is_coloured(const struct ct_console *console, enum ct_console_stream stream)
{
    return console->stream[stream]->coloured;
}

size_t ct_console_columns(const struct ct_console *console)
{
    struct winsize size;

    return ioctl(console->stream[CT_CONSOLE_OUT]->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : 80;
}

void ct_console_dress(struct ct_console *console, enum ct_console_colour colour, bool dumb)
{
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++) {
        struct sink *sink = &console->sinks[i];

        sink->live = sink->terminal && !dumb;
        sink->coloured = colour == CT_CONSOLE_ALWAYS || (colour == CT_CONSOLE_AUTO && sink->live);
    }
}

void ct_console_live(struct ct_console *console, const char *text)
{
    struct sink *sink = console->stream[CT_CONSOLE_OUT];

    (void)ct_str_copy(console->live, sizeof console->live, text);
    if (!sink->live || sink->dead)
        return;
    erase(sink);
    if (console->live[0] != '\0')
        draw(sink, console->live);
    if (!sink->waiting)
        write_out(sink);
}

static void write_log(void *context, const char *line, unsigned long size)
{
    struct ct_console *console = context;

    (void)ct_buf_append(ct_console_lines(console, CT_CONSOLE_ERR), line, size);
    ct_console_flush(console);
}

void ct_console_log(struct ct_console *console, struct ct_log *ret_log, const char *program)
{
    *ret_log = (struct ct_log){
        .write = write_log,
        .context = console,
        .clock = &ct_clock_system,
        .program = program,
        .level = CT_LOG_INFO,
        .coloured = console->stream[CT_CONSOLE_ERR]->coloured,
        .stamped = !console->stream[CT_CONSOLE_ERR]->terminal,
    };
}

bool ct_console_broken(const struct ct_console *console, enum ct_console_stream stream)
{
    return console->breaks && console->stream[stream]->broken;
}

void ct_console_report(struct ct_console *console, const struct ct_log *log, bool breaks,
                       bool *ret_output_lost)
{
    console->log = log;
    console->breaks = breaks;
    console->output_lost = ret_output_lost;
}

const struct ct_log *ct_console_report_log(const struct ct_console *console)
{
    return console->log;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void handle_closed(struct ct_console *console)
{
    void (*closed)(void *context) = console->closed;
    void *context = console->closed_context;

    if (--console->handles > 0)
        return;
    free(console);
    if (closed != NULL)
        closed(context);
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(((struct sink *)handle->data)->console);
}

/* Free everything once both queues are empty. */
static void try_close(struct ct_console *console)
{
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++)
        if (console->sinks[i].out.size > 0)
            return;
    console->handles = 1; /* so that the last of them is this call */
    for (int i = 0; i < CT_CONSOLE_STREAMS; i++) {
        struct sink *sink = &console->sinks[i];

        ct_buf_deinit(&sink->lines);
        ct_buf_deinit(&sink->out);
        console->handles += sink->polled;
        if (sink->polled)
            uv_close((uv_handle_t *)&sink->poll, on_handle_closed);
        if (sink->owned)
            (void)close(sink->fd);
    }
    handle_closed(console);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct sink *sink = poll->data;
    struct ct_console *console = sink->console;

    (void)events;
    if (status < 0) /* libuv says EBADF for any error, and has stopped: write(2) knows which */
        sink->waiting = false;
    write_out(sink);
    if (status < 0 && sink->waiting)
        give_up(sink, status);
    if (console->closing)
        try_close(console);
    else if (console->on_room != NULL)
        console->on_room(console->context);
}

void ct_console_close(struct ct_console *console, void (*closed)(void *context), void *context)
{
    ct_console_live(console, "");
    ct_console_flush(console);
    console->closing = true;
    console->closed = closed;
    console->closed_context = context;
    try_close(console);
}
