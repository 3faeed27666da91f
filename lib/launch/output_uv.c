/* See output_uv.h.
 *
 * readable -> ask for a turn -> read once -> lines to the console's queue, bytes to the file.
 * No turn: stop polling and stand in line until ct_outputs_room. */
#include "launch/output_uv.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "launch/fair.h"
#include "launch/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much a drain takes from a stream at most: a pipe holds 64 KiB, and a grandchild may go on. */
enum { DRAIN_READS = 16 };

struct output {
    uv_poll_t *poll; /* on the heap: a stream may be opened again before the loop lets go of it */
    struct ct_outputs *outputs;
    struct ct_lines lines;
    enum ct_console_stream stream;
    uint32_t worker;
    int pipe;     /* -1: closed */
    int file;     /* -1: none */
    int filtered; /* -1: none */
    struct ct_filter filter;
    bool console;
    bool initialised; /* lines are */
};

struct ct_outputs {
    uv_loop_t *loop;
    struct ct_console *console;
    uint32_t workers;
    struct ct_fair fair[CT_CONSOLE_STREAMS]; /* of workers, one line a stream */
    uint32_t *waiting;                       /* memory of both */
    int handles;                             /* not yet closed, and one for the owner */
    char scratch[CT_FAIR_BUDGET];
    struct output all[]; /* worker * CT_CONSOLE_STREAMS + stream */
};

static struct output *output_of(struct ct_outputs *outputs, uint32_t worker, uint32_t stream)
{
    CT_ASSERT(worker < outputs->workers);
    return &outputs->all[worker * CT_CONSOLE_STREAMS + stream];
}

struct ct_outputs *ct_outputs_new(uv_loop_t *loop, struct ct_console *console, uint32_t workers)
{
    size_t count = (size_t)workers * CT_CONSOLE_STREAMS;
    struct ct_outputs *outputs = calloc(1, sizeof *outputs + count * sizeof outputs->all[0]);

    if (outputs == NULL)
        return NULL;
    outputs->waiting = calloc(count, sizeof *outputs->waiting);
    if (outputs->waiting == NULL) {
        free(outputs);
        return NULL;
    }
    outputs->loop = loop;
    outputs->console = console;
    outputs->workers = workers;
    outputs->handles = 1;
    for (uint32_t i = 0; i < CT_CONSOLE_STREAMS; i++)
        ct_fair_init(&outputs->fair[i], outputs->waiting + i * workers, workers);
    for (size_t i = 0; i < count; i++) {
        outputs->all[i].outputs = outputs;
        outputs->all[i].pipe = -1;
        outputs->all[i].file = -1;
        outputs->all[i].filtered = -1;
    }
    return outputs;
}

/* ---- the end of a stream ----------------------------------------------------------------------
 */

static void drop_handle(struct ct_outputs *outputs)
{
    if (--outputs->handles > 0)
        return;
    for (size_t i = 0; i < (size_t)outputs->workers * CT_CONSOLE_STREAMS; i++)
        if (outputs->all[i].initialised)
            ct_lines_deinit(&outputs->all[i].lines);
    free(outputs->waiting);
    free(outputs);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_outputs *outputs = handle->data;

    free(handle);
    drop_handle(outputs);
}

static struct ct_buf *lines_of(struct output *output)
{
    return output->console ? ct_console_lines(output->outputs->console, output->stream) : NULL;
}

static void give_up(struct output *output, int *file, int rc)
{
    char text[512];
    int length =
        snprintf(text, sizeof text, "ctrun: warning: a log file of local rank %u is given up: %s\n",
                 output->worker, ct_strerror(rc));

    (void)close(*file);
    *file = -1;
    (void)ct_buf_append(ct_console_lines(output->outputs->console, CT_CONSOLE_ERR), text,
                        (size_t)length);
}

/* Write down the lines that matched; whole lines at once, as other streams append to this file. */
static void keep_matched(struct output *output)
{
    struct ct_buf *matched = &output->lines.matched;

    if (matched->size == 0)
        return;
    int rc =
        output->filtered >= 0 ? ct_fs_write_all(output->filtered, matched->data, matched->size) : 0;
    if (rc != 0)
        give_up(output, &output->filtered, rc);
    ct_buf_clear(matched);
}

static void close_file(int *file)
{
    if (*file >= 0)
        (void)close(*file);
    *file = -1;
}

static void close_output(struct output *output)
{
    if (output->pipe < 0)
        return;
    ct_lines_end(&output->lines, lines_of(output));
    keep_matched(output);
    ct_console_flush(output->outputs->console);
    ct_fair_drop(&output->outputs->fair[output->stream], output->worker);
    output->poll->data = output->outputs;
    uv_close((uv_handle_t *)output->poll, on_closed);
    output->poll = NULL;
    close_file(&output->pipe);
    close_file(&output->file);
    close_file(&output->filtered);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static void keep(struct output *output, const char *data, size_t size)
{
    int rc = output->file >= 0 ? ct_fs_write_all(output->file, data, size) : 0;

    if (rc != 0)
        give_up(output, &output->file, rc);
}

/* Returns false when there was nothing to read, or the stream ended and is closed now. */
static bool read_once(struct output *output)
{
    char *scratch = output->outputs->scratch;
    ssize_t size = read(output->pipe, scratch, sizeof output->outputs->scratch);

    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (size <= 0) {
        close_output(output);
        return false;
    }
    keep(output, scratch, (size_t)size);
    ct_lines_feed(&output->lines, scratch, (size_t)size, lines_of(output));
    keep_matched(output);
    return true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct output *output = poll->data;
    struct ct_outputs *outputs = output->outputs;
    enum ct_console_stream stream = output->stream;

    (void)events;
    if (status < 0) {
        close_output(output);
        return;
    }
    if (output->console && !ct_fair_ask(&outputs->fair[stream], output->worker,
                                        ct_console_queued(outputs->console, stream))) {
        (void)uv_poll_stop(poll);
        return;
    }
    (void)read_once(output);
    ct_console_flush(outputs->console);
}

void ct_outputs_room(struct ct_outputs *outputs)
{
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++) {
        struct ct_fair *fair = &outputs->fair[stream];
        int64_t worker;

        while ((worker = ct_fair_next(
                    fair, ct_console_queued(outputs->console, (enum ct_console_stream)stream))) >=
               0) {
            struct output *output = output_of(outputs, (uint32_t)worker, stream);

            (void)uv_poll_start(output->poll, UV_READABLE, on_readable);
            (void)read_once(output);
        }
    }
    ct_console_flush(outputs->console);
}

bool ct_outputs_held(const struct ct_outputs *outputs, uint32_t worker)
{
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++) {
        const struct output *output = &outputs->all[worker * CT_CONSOLE_STREAMS + stream];

        if (output->pipe >= 0 && !uv_is_active((const uv_handle_t *)output->poll))
            return true;
    }
    return false;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

/* Open a log file, if there is to be one. */
static int open_file(const char *path, int *ret_file, struct ct_error *err)
{
    *ret_file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (path != NULL && *ret_file < 0)
        return ct_error_set(err, CT_ECANTCREAT, "the log file %s cannot be opened: %s", path,
                            ct_strerror(-errno));
    return 0;
}

int ct_output_open(struct ct_outputs *outputs, uint32_t worker, enum ct_console_stream stream,
                   const char *prefix, const struct ct_output_route *route, int *ret_fd,
                   struct ct_error *err)
{
    struct output *output = output_of(outputs, worker, stream);
    int ends[2], file = -1, filtered = -1;

    CT_ASSERT(output->pipe < 0);
    int rc = open_file(route->file, &file, err);
    if (rc == 0)
        rc = open_file(route->filtered_file, &filtered, err);
    if (rc != 0) {
        close_file(&file);
        return rc;
    }
    uv_poll_t *poll = malloc(sizeof *poll);
    if (poll == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        int error = poll == NULL ? ENOMEM : errno;
        close_file(&file);
        close_file(&filtered);
        free(poll);
        return ct_error_set(err, CT_EOS, "no pipe for a worker's output: %s%s", ct_strerror(-error),
                            error == EMFILE ? "; raise `ulimit -n`" : "");
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    CT_ASSERT(uv_poll_init(outputs->loop, poll, ends[0]) == 0);
    poll->data = output;
    output->poll = poll;
    output->stream = stream;
    output->worker = worker;
    output->pipe = ends[0];
    output->file = file;
    output->filtered = filtered;
    output->filter = route->filter;
    output->console = route->console;
    if (output->initialised)
        ct_lines_deinit(&output->lines);
    output->initialised = true;
    ct_lines_init(&output->lines, prefix);
    output->lines.bare = route->bare;
    if (filtered >= 0)
        ct_lines_filter(&output->lines, &output->filter);
    outputs->handles++;
    (void)uv_poll_start(output->poll, UV_READABLE, on_readable);
    *ret_fd = ends[1];
    return 0;
}

void ct_outputs_rename(struct ct_outputs *outputs, uint32_t worker, const char *prefix)
{
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++) {
        struct ct_lines *lines = &output_of(outputs, worker, stream)->lines;

        (void)ct_str_copy(lines->prefix, sizeof lines->prefix, prefix);
    }
}

/* ---- the end of a worker ----------------------------------------------------------------------
 */

void ct_outputs_drain(struct ct_outputs *outputs, uint32_t worker)
{
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++) {
        struct output *output = output_of(outputs, worker, stream);

        for (int i = 0; i < DRAIN_READS && output->pipe >= 0; i++)
            if (!read_once(output))
                break;
    }
    ct_console_flush(outputs->console);
}

void ct_outputs_end(struct ct_outputs *outputs, uint32_t worker)
{
    ct_outputs_drain(outputs, worker);
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++)
        close_output(output_of(outputs, worker, stream));
}

void ct_outputs_tail(const struct ct_outputs *outputs, uint32_t worker, size_t lines,
                     struct ct_buf *to)
{
    static const enum ct_console_stream preferred[] = {CT_CONSOLE_ERR, CT_CONSOLE_OUT};
    size_t size = 0;

    CT_ASSERT(worker < outputs->workers);
    for (size_t i = 0; i < CT_COUNT(preferred) && size == 0; i++) {
        const struct output *output =
            &outputs->all[worker * CT_CONSOLE_STREAMS + (uint32_t)preferred[i]];

        if (!output->initialised)
            continue;
        const char *tail = ct_lines_tail(&output->lines, lines, &size);
        (void)ct_buf_append(to, tail, size);
    }
}

void ct_outputs_free(struct ct_outputs *outputs)
{
    if (outputs == NULL)
        return;
    for (size_t i = 0; i < (size_t)outputs->workers * CT_CONSOLE_STREAMS; i++)
        close_output(&outputs->all[i]);
    drop_handle(outputs);
}
