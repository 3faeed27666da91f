/* See log.h. */
#include "base/log.h"

#include "base/bytes.h"
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static void write_fd(void *context, const char *line, unsigned long size)
{
    int fd = *(const int *)context;

    while (size > 0) {
        ssize_t written = write(fd, line, size);
        if (written <= 0)
            return; /* nobody is left to tell */
        line += written;
        size -= (unsigned long)written;
    }
}

void ct_log_init_fd(struct ct_log *log, const char *program, const int *fd)
{
    *log = (struct ct_log){
        .write = write_fd,
        .context = (void *)(uintptr_t)fd,
        .clock = &ct_clock_system,
        .program = program,
        .level = CT_LOG_INFO,
    };
}

int ct_log_level_find(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(level_names[i], name) == 0)
            return i;
    return -1;
}

static void put_json(struct ct_buf *line, const struct ct_log *log, enum ct_log_level level,
                     const char *event, const char *message)
{
    uint64_t now_ns = ct_clock_wall_ns(log->clock);
    time_t seconds = (time_t)(now_ns / 1000000000u);
    struct tm utc;
    char stamp[40];

    (void)gmtime_r(&seconds, &utc);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)ct_buf_printf(line, "{\"time\":\"%s.%03uZ\",\"level\":\"%s\",\"program\":", stamp,
                        (unsigned)(now_ns / 1000000u % 1000u), level_names[level]);
    ct_json_string(line, log->program);
    (void)ct_buf_puts(line, ",\"event\":");
    ct_json_string(line, event);
    (void)ct_buf_puts(line, ",\"message\":");
    ct_json_string(line, message);
    (void)ct_buf_puts(line, "}\n");
}

void ct_log_event(const struct ct_log *log, enum ct_log_level level, const char *event,
                  const char *format, ...)
{
    char message[2048];
    struct ct_buf line;
    va_list args;

    if (log == NULL || level < log->level)
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ct_buf_init(&line, 0);
    if (log->json)
        put_json(&line, log, level, event, message);
    else
        (void)ct_buf_printf(&line, "%s: %s%s\n", log->program,
                            level == CT_LOG_ERROR  ? "error: "
                            : level == CT_LOG_WARN ? "warning: "
                                                   : "",
                            message);
    if (!line.failed)
        log->write(log->context, line.data, line.size);
    ct_buf_deinit(&line);
}
