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

static void end_process(struct ct_nvml_probe *probe)
{
    if (probe->process < 0)
        return;
    (void)pidfd_send_signal(probe->process, SIGKILL, NULL, 0);
    (void)close(probe->process);
    probe->process = -1;
}

static void finish(struct ct_nvml_probe *probe, uint64_t late_ms)
{
    if (probe->done)
        return;
    probe->done = true;
    end_process(probe);
    (void)uv_read_stop((uv_stream_t *)&probe->pipe);
    (void)uv_timer_stop(&probe->limit);
    probe->options.on_done(probe->options.context, late_ms); /* which may close it */
}

static void on_limit(uv_timer_t *timer)
{
    struct ct_nvml_probe *probe = timer->data;

    finish(probe, probe->options.limit_ms);
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    struct ct_nvml_probe *probe = handle->data;

    (void)wanted;
    *ret_buffer = uv_buf_init(probe->chunk, sizeof probe->chunk);
}

/* Take in what is whole; false for what is no record. */
static bool parse_lines(struct ct_nvml_probe *probe)
{
    char *end;

    while (probe->line.size > 0 &&
           (end = memchr(probe->line.data, '\n', probe->line.size)) != NULL) {
        *end = '\0';
        if (probe->options.on_record(probe->options.context, ct_buf_str(&probe->line)) != 0)
            return false;
        ct_buf_consume(&probe->line, (size_t)(end + 1 - (char *)probe->line.data));
    }
    return true;
}

static void receive(struct ct_nvml_probe *probe, const char *bytes, size_t size)
{
    if (ct_buf_append(&probe->line, bytes, size) != 0 || !parse_lines(probe))
        finish(probe, 0);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct ct_nvml_probe *probe = stream->data;

    if (size < 0)
        finish(probe, 0);
    else
        receive(probe, buffer->base, (size_t)size);
}

void ct_nvml_probe_drain(struct ct_nvml_probe *probe)
{
    uv_os_fd_t pipe;
    ssize_t size;

    /* uv_pipe_open made it non-blocking; an end is left to the loop. */
    if (probe == NULL || probe->done || uv_fileno((uv_handle_t *)&probe->pipe, &pipe) != 0)
        return;
    while (!probe->done && (size = read(pipe, probe->chunk, sizeof probe->chunk)) > 0)
        receive(probe, probe->chunk, (size_t)size);
}

static void on_closed(uv_handle_t *handle)
{
    struct ct_nvml_probe *probe = handle->data;

    if (--probe->handles > 0)
        return;
    ct_buf_deinit(&probe->line);
    free(probe);
}

void ct_nvml_probe_close(struct ct_nvml_probe *probe)
{
    if (probe == NULL)
        return;
    probe->done = true;
    end_process(probe);
    uv_close((uv_handle_t *)&probe->pipe, on_closed);
    uv_close((uv_handle_t *)&probe->limit, on_closed);
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
    struct ct_nvml_probe *probe = calloc(1, sizeof *probe);
    int output = -1;

    if (probe == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for asking NVML");
    probe->process = -1;
    int rc = start(options->how, &output, &probe->process, err);
    if (rc != 0) {
        free(probe);
        return rc;
    }
    probe->options = *options;
    probe->handles = 2;
    ct_buf_init(&probe->line, 2 * CT_HEALTH_LINE_MAX);
    (void)uv_pipe_init(loop, &probe->pipe, 0);
    (void)uv_timer_init(loop, &probe->limit);
    probe->pipe.data = probe;
    probe->limit.data = probe;
    CT_ASSERT(uv_pipe_open(&probe->pipe, output) == 0);
    (void)uv_read_start((uv_stream_t *)&probe->pipe, on_room, on_read);
    if (options->limit_ms > 0)
        (void)uv_timer_start(&probe->limit, on_limit, options->limit_ms, 0);
    *ret_look = probe;
    return 0;
}

/* ---- and waiting for it --------------------------------------------------------------------- */

struct answer {
    struct ct_nvml_probe *probe;
    struct ct_health *health;
    uint64_t late_ms;
};

static int on_record(void *context, const char *line)
{
    struct answer *answer = context;

    return ct_health_parse(answer->health, line);
}

static void on_answer(void *context, uint64_t late_ms)
{
    struct answer *answer = context;

    answer->late_ms = late_ms;
    ct_nvml_probe_close(answer->probe);
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
    int rc = ct_nvml_probe_start(&answer.probe, &loop, &options, err);
    if (rc == 0)
        (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    *ret_late_ms = answer.late_ms;
    return rc;
}
