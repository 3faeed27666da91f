/* See log.h. */
#include "base/log/log.h"

#include "base/bytes.h"
#include "base/log/record.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

bool ct_log_is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat stat;

    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(fd, &stat) == 0 && stat.st_dev == device && stat.st_ino == inode;
}

static void put_json(struct ct_buf *line, const struct ct_log *log, enum ct_log_level level,
                     const char *event, const char *message)
{
    ct_record_begin(line, ct_clock_wall_ns(log->clock), "log");
    if (log->node != NULL)
        ct_record_whole(line, "node", *log->node);
    if (log->rank != NULL)
        ct_record_whole(line, "rank", *log->rank);
    ct_record_string(line, "level", level_names[level]);
    ct_record_string(line, "program", log->program);
    ct_record_string(line, "event", event);
    ct_record_string(line, "message", message);
    ct_record_end(line);
}

void ct_log_stamp(const struct ct_log *log, struct ct_buf *line)
{
    time_t seconds = (time_t)(ct_clock_wall_ns(log->clock) / 1000000000u);
    struct tm tm = {0};
    char stamp[40];

    if (!log->stamped)
        return;
    (void)localtime_r(&seconds, &tm);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S ", &tm);
    (void)ct_buf_puts(line, stamp);
}

static void put_text(struct ct_buf *line, const struct ct_log *log, enum ct_log_level level,
                     const char *message)
{
    static const char *const words[] = {"", "", "warning: ", "error: "};
    static const char *const colours[] = {"", "", "\x1b[33m", "\x1b[31m"};
    bool coloured = log->coloured && words[level][0] != '\0';

    ct_log_stamp(log, line);
    (void)ct_buf_printf(line, "%s: %s%s%s", log->program, coloured ? colours[level] : "",
                        words[level], coloured ? "\x1b[0m" : "");
    ct_buf_put_clean(line, message, "");
    (void)ct_buf_puts(line, "\n");
}

void ct_log_event(const struct ct_log *log, enum ct_log_level level, const char *event,
                  const char *format, ...)
{
    static const char *const priorities[] = {"<7>", "<6>", "<4>", "<3>"};
    char message[2048];
    struct ct_buf line;
    va_list args;

    if (log == NULL || level < log->level)
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ct_buf_init(&line, 0);
    if (log->journal)
        (void)ct_buf_puts(&line, priorities[level]);
    if (log->json)
        put_json(&line, log, level, event, message);
    else
        put_text(&line, log, level, message);
    if (!line.failed)
        log->write(log->context, line.data, line.size);
    ct_buf_deinit(&line);
}
