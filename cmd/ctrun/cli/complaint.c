/* What is said on standard error before there is a job, or without one: a line of text, or a record
 * where the environment or the command line asks for log.format json. */
#include "commands.h"

#include "base/error.h"
#include "base/log/log.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool in_json; /* of the one command that this process is */

void ct_complaints_open(char *const *argv)
{
    static const char *const names[] = {"--log_format", "--log-format", "--log.format"};
    const char *format = getenv("CTRUN_LOG_FORMAT");

    for (size_t i = 1; argv[i] != NULL && strcmp(argv[i], "--") != 0; i++) {
        size_t length = strcspn(argv[i], "=");
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++)
            if (strlen(names[j]) == length && strncmp(argv[i], names[j], length) == 0)
                format = argv[i][length] == '=' ? argv[i] + length + 1 : argv[i + 1];
    }
    in_json = format != NULL && strcmp(format, "json") == 0;
}

bool ct_complaints_in_json(void)
{
    return in_json;
}

/* It may have several lines, and words of whoever answered: nothing of it drives the terminal. */
static void print_message(const char *who, enum ct_log_level level, const char *words)
{
    static const int stderr_fd = STDERR_FILENO;
    struct ct_buf clean;
    struct ct_log log;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, words, "\n\t");
    const char *text = ct_buf_str(&clean);

    if (in_json) {
        ct_log_init_fd(&log, who, &stderr_fd);
        log.json = true;
        ct_log_event(&log, level, level == CT_LOG_ERROR ? "failed" : "note", "%s", text);
    } else {
        (void)fprintf(stderr, "%s: %s%s\n", who,
                      level == CT_LOG_ERROR  ? "error: "
                      : level == CT_LOG_WARN ? "warning: "
                                             : "",
                      text);
    }
    ct_buf_deinit(&clean);
}

int ct_command_fail(const char *who, int code, const char *text)
{
    print_message(who, CT_LOG_ERROR, text);
    return ct_exit_status(code);
}

void ct_command_warn(const char *who, const char *text)
{
    print_message(who, CT_LOG_WARN, text);
}

void ct_command_note(const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_message("ctrun", CT_LOG_INFO, text);
}
