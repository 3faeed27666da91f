/* See nvml_probe_uv.h. */
#include "diagnose/nvml_probe_uv.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/str.h"
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

struct ct_nvml_probe {
    uv_pipe_t pipe;
    uv_timer_t limit;
    int handles; /* that are open */
    int process; /* a descriptor of it, as its number may be another's when it has ended; -1 */
    bool done;
    struct ct_nvml_probe_options options;
    struct ct_buf line; /* what has come of the next record */
    char chunk[CT_HEALTH_LINE_MAX];
};

static void end_process(struct ct_nvml_probe *look)
{
    if (look->process < 0)
        return;
    (void)pidfd_send_signal(look->process, SIGKILL, NULL, 0);
    (void)close(look->process);
    look->process = -1;
}

static void finish(struct ct_nvml_probe *look, uint64_t late_ms)
{
    if (look->done)
        return;
    look->done = true;
    end_process(look);
    (void)uv_read_stop((uv_stream_t *)&look->pipe);
    (void)uv_timer_stop(&look->limit);
    look->options.on_done(look->options.context, late_ms); /* which may close it */
}

static void on_limit(uv_timer_t *timer)
{
    struct ct_nvml_probe *look = timer->data;

    finish(look, look->options.limit_ms);
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    struct ct_nvml_probe *look = handle->data;

    (void)wanted;
    *ret_buffer = uv_buf_init(look->chunk, sizeof look->chunk);
}

/* Take in what is whole; false for what is no record. */
static bool take_lines(struct ct_nvml_probe *look)
{
    char *end;

    while (look->line.size > 0 && (end = memchr(look->line.data, '\n', look->line.size)) != NULL) {
        *end = '\0';
        if (look->options.on_record(look->options.context, ct_buf_str(&look->line)) != 0)
            return false;
        ct_buf_consume(&look->line, (size_t)(end + 1 - (char *)look->line.data));
    }
    return true;
}

static void take(struct ct_nvml_probe *look, const char *bytes, size_t size)
{
    if (ct_buf_append(&look->line, bytes, size) != 0 || !take_lines(look))
        finish(look, 0);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct ct_nvml_probe *look = stream->data;

    if (size < 0)
        finish(look, 0);
    else
        take(look, buffer->base, (size_t)size);
}

void ct_nvml_probe_drain(struct ct_nvml_probe *look)
{
    uv_os_fd_t pipe;
    ssize_t size;

    /* uv_pipe_open made it non-blocking; an end is left to the loop. */
    if (look == NULL || look->done || uv_fileno((uv_handle_t *)&look->pipe, &pipe) != 0)
        return;
    while (!look->done && (size = read(pipe, look->chunk, sizeof look->chunk)) > 0)
        take(look, look->chunk, (size_t)size);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_nvml_probe *look = handle->data;

    if (--look->handles > 0)
        return;
    ct_buf_deinit(&look->line);
    free(look);
}

void ct_nvml_probe_close(struct ct_nvml_probe *look)
{
    if (look == NULL)
        return;
    look->done = true;
    end_process(look);
    uv_close((uv_handle_t *)&look->pipe, on_closed);
    uv_close((uv_handle_t *)&look->limit, on_closed);
}

/* Start the process; its output's end and a descriptor of it. */
static int start(const char *how, int *ret_output, int *ret_process, struct ct_error *err)
{
    char program[] = "ctrun", command[] = "gpus", word[16];
    char *argv[] = {program, command, word, NULL};
    int ends[2], nothing = open("/dev/null", O_RDWR | O_CLOEXEC), rc;
    pid_t pid = -1;

    (void)ct_str_copy(word, sizeof word, how);
    if (nothing < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        rc = ct_error_set(err, CT_EOS, "no descriptor for asking NVML: %s", ct_strerror(-errno));
        if (nothing >= 0)
            (void)close(nothing);
        return rc;
    }
    const struct ct_spawn spawn = {.path = "/proc/self/exe",
                                   .argv = argv,
                                   .envp = environ,
                                   .fds = {nothing, ends[1], nothing, -1, -1, -1}};
    rc = ct_spawn(&spawn, &pid, err);
    (void)close(nothing);
    (void)close(ends[1]);
    if (rc != 0) {
        (void)close(ends[0]);
        return rc;
    }
    *ret_output = ends[0];
    *ret_process = pidfd_open(pid, 0);
    return 0;
}

int ct_nvml_probe_start(struct ct_nvml_probe **ret_look, uv_loop_t *loop,
                        const struct ct_nvml_probe_options *options, struct ct_error *err)
{
    struct ct_nvml_probe *look = calloc(1, sizeof *look);
    int output = -1;

    if (look == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for asking NVML");
    look->process = -1;
    int rc = start(options->how, &output, &look->process, err);
    if (rc != 0) {
        free(look);
        return rc;
    }
    look->options = *options;
    look->handles = 2;
    ct_buf_init(&look->line, 2 * CT_HEALTH_LINE_MAX);
    (void)uv_pipe_init(loop, &look->pipe, 0);
    (void)uv_timer_init(loop, &look->limit);
    look->pipe.data = look;
    look->limit.data = look;
    CT_ASSERT(uv_pipe_open(&look->pipe, output) == 0);
    (void)uv_read_start((uv_stream_t *)&look->pipe, on_room, on_read);
    if (options->limit_ms > 0)
        (void)uv_timer_start(&look->limit, on_limit, options->limit_ms, 0);
    *ret_look = look;
    return 0;
}

/* ---- and waiting for it --------------------------------------------------------------------- */

struct answer {
    struct ct_nvml_probe *look;
    struct ct_health *health;
    uint64_t late_ms;
};

static int on_record(void *context, const char *line)
{
    struct answer *answer = context;

    return ct_health_take(answer->health, line);
}

static void on_answer(void *context, uint64_t late_ms)
{
    struct answer *answer = context;

    answer->late_ms = late_ms;
    ct_nvml_probe_close(answer->look);
}

int ct_nvml_probe_wait(uint64_t limit_ms, struct ct_health *ret_health, uint64_t *ret_late_ms,
                       struct ct_error *err)
{
    struct answer answer = {.health = ret_health};
    const struct ct_nvml_probe_options options = {.how = "--ask",
                                                  .limit_ms = limit_ms,
                                                  .on_record = on_record,
                                                  .on_done = on_answer,
                                                  .context = &answer};
    uv_loop_t loop;

    *ret_health = (struct ct_health){.begun = false};
    if (uv_loop_init(&loop) != 0)
        return ct_error_set(err, CT_ENOMEM, "out of memory for asking NVML");
    int rc = ct_nvml_probe_start(&answer.look, &loop, &options, err);
    if (rc == 0)
        (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    *ret_late_ms = answer.late_ms;
    return rc;
}
