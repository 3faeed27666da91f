/* See output_uv.h.
 *
 * readable -> ask for a turn -> read once -> lines to the console's queue, bytes to the file's.
 * No turn: stop polling and stand in line until ct_outputs_room. No room in the queue of the files:
 * stop polling until ct_outputs_file_room. */
#include "output/output_uv.h"

#include "base/assert.h"
#include "output/fair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much a drain takes from a stream at most: a pipe holds 64 KiB, and a grandchild may go on. */
enum { DRAIN_READS = 16 };

static const char *const stream_names[CT_CONSOLE_STREAMS] = {"stdout", "stderr"};

struct output {
    uv_poll_t *poll; /* on the heap: a stream may be opened again before the loop lets go of it */
    struct ct_outputs *outputs;
    struct ct_lines lines;
    enum ct_console_stream stream;
    uint32_t worker;
    int pipe;                    /* -1: closed */
    struct ct_written *file;     /* NULL: none */
    struct ct_written *filtered; /* NULL: none */
    struct ct_filter filter;
    bool console;
    bool initialised;    /* lines are */
    bool waits;          /* until the files have room */
    uint64_t bytes;      /* read so far */
    struct ct_buf *copy; /* gets them as well; NULL: none */
};

struct ct_outputs {
    uv_loop_t *loop;
    struct ct_console *console;
    uint32_t workers;
    struct ct_fair fair[CT_CONSOLE_STREAMS]; /* of workers, one line a stream */
    uint32_t *waiting;                       /* memory of both */
    int handles;                             /* not yet closed, and one for the owner */
    struct ct_log_files *files;
    struct ct_recent *recent;
    char scratch[CT_FAIR_BUDGET];
    struct output all[]; /* worker * CT_CONSOLE_STREAMS + stream */
};

static struct output *output_of(struct ct_outputs *outputs, uint32_t worker, uint32_t stream)
{
    CT_ASSERT(worker < outputs->workers);
    return &outputs->all[worker * CT_CONSOLE_STREAMS + stream];
}

struct ct_outputs *ct_outputs_new(uv_loop_t *loop, uint32_t workers,
                                  const struct ct_output_sinks *sinks)
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
    outputs->console = sinks->console;
    outputs->workers = workers;
    outputs->files = sinks->files;
    outputs->recent = sinks->recent;
    outputs->handles = 1;
    for (uint32_t i = 0; i < CT_CONSOLE_STREAMS; i++)
        ct_fair_init(&outputs->fair[i], outputs->waiting + i * workers, workers);
    for (size_t i = 0; i < count; i++) {
        outputs->all[i].outputs = outputs;
        outputs->all[i].pipe = -1;
    }
    return outputs;
}

/* ---- the end of a stream -------------------------------------------------------------------- */

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

/* Write down the lines that matched; whole lines at once, as other streams append to this file. */
static void keep_matched(struct output *output)
{
    struct ct_buf *matched = &output->lines.matched;

    if (matched->size > 0 && output->filtered != NULL)
        ct_written_append(output->filtered, matched->data, matched->size);
    ct_buf_clear(matched);
}

static void close_output(struct output *output)
{
    if (output->pipe < 0)
        return;
    output->lines.wall_ns = ct_clock_wall_ns(&ct_clock_system);
    ct_lines_end(&output->lines, lines_of(output));
    keep_matched(output);
    ct_console_flush(output->outputs->console);
    ct_fair_drop(&output->outputs->fair[output->stream], output->worker);
    output->poll->data = output->outputs;
    uv_close((uv_handle_t *)output->poll, on_closed);
    output->poll = NULL;
    (void)close(output->pipe);
    output->pipe = -1;
    output->waits = false;
    ct_written_close(output->file);
    ct_written_close(output->filtered);
    output->file = output->filtered = NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool is_writable(const struct ct_written *file)
{
    return file != NULL && !ct_written_lost(file);
}

static bool is_kept(const struct output *output)
{
    return is_writable(output->file) || is_writable(output->filtered);
}

/* Does nobody get what comes here any more, and is its writer to learn it from a broken pipe? */
static bool is_broken(const struct output *output)
{
    return output->console && !is_kept(output) &&
           ct_console_broken(output->outputs->console, output->stream);
}

/* Is there no room in the queue of its files? Then it waits for ct_outputs_file_room, its pipe
 * fills, and its worker waits in write(2), as it would if it wrote to the file itself. */
static bool waits_for_files(struct output *output)
{
    if (!is_kept(output) || !ct_log_files_full(output->outputs->files))
        return false;
    (void)uv_poll_stop(output->poll);
    output->waits = true;
    return true;
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
    output->bytes += (uint64_t)size;
    if (output->copy != NULL)
        (void)ct_buf_append(output->copy, scratch,
                            CT_MIN((size_t)size, output->copy->limit - output->copy->size));
    if (output->file != NULL)
        ct_written_append(output->file, scratch, (size_t)size);
    output->lines.wall_ns = ct_clock_wall_ns(&ct_clock_system);
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
    if (status < 0 || is_broken(output)) {
        close_output(output);
        return;
    }
    if (waits_for_files(output))
        return;
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

            if (waits_for_files(output))
                continue;
            (void)uv_poll_start(output->poll, UV_READABLE, on_readable);
            if (is_broken(output))
                close_output(output);
            else
                (void)read_once(output);
        }
    }
    ct_console_flush(outputs->console);
}

void ct_outputs_file_room(struct ct_outputs *outputs)
{
    for (size_t i = 0; i < (size_t)outputs->workers * CT_CONSOLE_STREAMS; i++) {
        struct output *output = &outputs->all[i];

        if (output->waits)
            (void)uv_poll_start(output->poll, UV_READABLE, on_readable);
        output->waits = false;
    }
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

uint64_t ct_outputs_bytes(const struct ct_outputs *outputs, uint32_t worker)
{
    uint64_t bytes = 0;

    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++)
        bytes += outputs->all[worker * CT_CONSOLE_STREAMS + stream].bytes;
    return bytes;
}

void ct_outputs_copy(struct ct_outputs *outputs, uint32_t worker, struct ct_buf *to)
{
    CT_ASSERT(to == NULL || to->limit > 0);
    output_of(outputs, worker, CT_CONSOLE_ERR)->copy = to;
}

/* ---- opening -------------------------------------------------------------------------------- */

int ct_output_open(struct ct_outputs *outputs, uint32_t worker, enum ct_console_stream stream,
                   const struct ct_lines_origin *origin, const struct ct_output_route *route,
                   int *ret_fd, struct ct_error *err)
{
    struct output *output = output_of(outputs, worker, stream);
    struct ct_log_files *files = outputs->files;
    struct ct_written *file = NULL, *filtered = NULL;
    int ends[2] = {-1, -1};

    CT_ASSERT(output->pipe < 0);
    int rc = ct_log_files_open(files, route->file, worker, &file, err);
    if (rc == 0)
        rc = ct_log_files_open(files, route->filtered_file, worker, &filtered, err);
    uv_poll_t *poll = malloc(sizeof *poll);
    if (rc == 0 && (poll == NULL || pipe2(ends, O_CLOEXEC) != 0)) {
        int error = poll == NULL ? ENOMEM : errno;
        rc = ct_error_set(err, CT_EOS, "no pipe for a worker's output: %s%s", ct_strerror(-error),
                          error == EMFILE ? "; raise `ulimit -n`" : "");
    }
    if (rc != 0) {
        ct_written_close(file);
        ct_written_close(filtered);
        free(poll);
        return rc;
    }
    CT_ASSERT(poll != NULL);
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
    ct_lines_init(&output->lines, origin);
    if (route->json)
        ct_lines_record(&output->lines, stream_names[stream], route->has_records);
    output->lines.bare = route->bare;
    output->lines.recent = outputs->recent;
    output->lines.recent_stream = (uint8_t)stream;
    if (filtered != NULL)
        ct_lines_filter(&output->lines, &output->filter);
    outputs->handles++;
    (void)uv_poll_start(output->poll, UV_READABLE, on_readable);
    *ret_fd = ends[1];
    return 0;
}

void ct_outputs_rename(struct ct_outputs *outputs, uint32_t worker,
                       const struct ct_lines_origin *origin)
{
    for (uint32_t stream = 0; stream < CT_CONSOLE_STREAMS; stream++)
        ct_lines_rename(&output_of(outputs, worker, stream)->lines, origin);
}

/* ---- the end of a worker -------------------------------------------------------------------- */

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

/* Standard error, or when the worker wrote nothing there, standard output; NULL: neither. */
static const struct output *last_output(const struct ct_outputs *outputs, uint32_t worker)
{
    static const enum ct_console_stream preferred[] = {CT_CONSOLE_ERR, CT_CONSOLE_OUT};
    size_t size;

    CT_ASSERT(worker < outputs->workers);
    for (size_t i = 0; i < CT_COUNT(preferred); i++) {
        const struct output *output =
            &outputs->all[worker * CT_CONSOLE_STREAMS + (uint32_t)preferred[i]];

        if (!output->initialised)
            continue;
        (void)ct_lines_tail(&output->lines, 1, &size);
        if (size > 0)
            return output;
    }
    return NULL;
}

void ct_outputs_tail(const struct ct_outputs *outputs, uint32_t worker, size_t lines,
                     struct ct_buf *to)
{
    const struct output *output = last_output(outputs, worker);
    size_t size;

    if (output == NULL)
        return;
    const char *tail = ct_lines_tail(&output->lines, lines, &size);
    (void)ct_buf_append(to, tail, size);
}

bool ct_outputs_shown(const struct ct_outputs *outputs, uint32_t worker)
{
    const struct output *output = last_output(outputs, worker);

    return output != NULL && output->console;
}

void ct_outputs_free(struct ct_outputs *outputs)
{
    if (outputs == NULL)
        return;
    for (size_t i = 0; i < (size_t)outputs->workers * CT_CONSOLE_STREAMS; i++)
        close_output(&outputs->all[i]);
    drop_handle(outputs);
}
