/* Logs: one line an event, text for people, JSON on request.
 *
 * A log belongs to a program, never to a library: libraries return errors. Two logs may live in one
 * process. Text: "ctrun: warning: message", after the time if the log is stamped; JSON: a record
 * (record.h). Safe from several threads: a line is one write. A message is always one line: control
 * characters are escaped. */
#ifndef CT_BASE_LOG_H
#define CT_BASE_LOG_H

#include "base/bytes.h"
#include "base/clock.h"

#include <stdbool.h>

enum ct_log_level { CT_LOG_DEBUG, CT_LOG_INFO, CT_LOG_WARN, CT_LOG_ERROR };

struct ct_log {
    void (*write)(void *context, const char *line, unsigned long size); /* a whole line with '\n' */
    void *context;
    const struct ct_clock *clock;
    const char *program; /* the prefix, "ctrun" */
    enum ct_log_level level;
    bool json;
    bool stamped;  /* text begins with the local time: it goes to a file, not to a person */
    bool journal;  /* lines begin with "<6>", their priority as journald reads it */
    bool coloured; /* "warning: " and "error: " */
    const int *node, *rank; /* fields of JSON; NULL while they are not known */
};

/* Initialise a log to a file descriptor (not owned) at level INFO, as text. */
void ct_log_init_fd(struct ct_log *log, const char *program, const int *fd);

/* Parse "debug", "info", "warn", "error"; -1 for another name. */
int ct_log_level_find(const char *name);

/* Is the descriptor the stream to systemd's journal that JOURNAL_STREAM ("DEVICE:INODE") names? */
bool ct_log_is_journal(int fd);

/* Append the prefix of a text line: the local time if the log is stamped, else nothing. */
void ct_log_stamp(const struct ct_log *log, struct ct_buf *line);

/* Log one event. `event` is a stable short name for programs ("worker_exit"); `format` the sentence
 * for people. A no-op below the log's level or when `log` is NULL. */
void ct_log_event(const struct ct_log *log, enum ct_log_level level, const char *event,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
