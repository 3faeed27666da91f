/* The failures of a job; see failure_report.h. */
#include "launch/failure/failure_report.h"

#include "base/assert.h"
#include "launch/failure/summary.h"

#include <string.h>
#include <time.h>

enum { WIDEST = 60 };

/* ---- the first ---- */

bool ct_failure_precedes(int64_t a_ms, struct ct_exit a, int64_t b_ms, struct ct_exit b)
{
    return a_ms != b_ms ? a_ms < b_ms : ct_exit_blame(a) > ct_exit_blame(b);
}

/* ---- the table ---- */

/* Text of several lines, the later ones set in, as torchelastic does it; its escape sequences as
 * text. */
static void print_text(const char *text, struct ct_buf *to)
{
    struct ct_buf clean;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, text, "\n\t");
    while (clean.size > 0 && clean.data[clean.size - 1] == '\n')
        clean.size--;
    for (size_t i = 0; i < clean.size; i++) {
        (void)ct_buf_append(to, &clean.data[i], 1);
        if (clean.data[i] == '\n')
            (void)ct_buf_puts(to, "  ");
    }
    ct_buf_deinit(&clean);
}

/* "Signal 9 (SIGKILL) received by PID 4711", as torchelastic says it. */
static void print_cause(const struct ct_wire_failure *failure, struct ct_buf *to)
{
    char name[32];

    if (failure->error_file[0] == '\0' && failure->signal != 0)
        (void)ct_buf_printf(to, "Signal %d (%s) received by PID %d", failure->signal,
                            ct_signal_name(failure->signal, name, sizeof name), failure->pid);
    else if (failure->text[0] != '\0')
        print_text(failure->text, to);
    else
        (void)ct_buf_puts(to, "see the worker's output; it left no error file");
    (void)ct_buf_puts(to, "\n");
}

static void print_time(uint64_t ms, struct ct_buf *to)
{
    char text[32] = "?";
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &tm);
    (void)ct_buf_puts(to, text);
}

static void print_failure(const struct ct_wire_failure *failure, size_t number, struct ct_buf *to)
{
    int code = failure->signal != 0 ? -failure->signal : failure->status;
    char name[32];

    (void)ct_buf_printf(to, "[%zu]:\n  time      : ", number);
    print_time(failure->time_ms, to);
    (void)ct_buf_printf(
        to, "\n  host      : %s\n  rank      : %d (local_rank: %d)\n  exitcode  : %d (pid: %d)",
        failure->host, failure->rank, failure->local_rank, code, failure->pid);
    if (failure->signal != 0)
        (void)ct_buf_printf(to, "  (%s)", ct_signal_name(failure->signal, name, sizeof name));
    (void)ct_buf_puts(to, "\n  error_file: ");
    ct_buf_put_clean(to, failure->error_file[0] != '\0' ? failure->error_file : "<N/A>", "");
    (void)ct_buf_puts(to, "\n  traceback : ");
    print_cause(failure, to);
}

static void print_rule(char sign, size_t width, struct ct_buf *to)
{
    for (size_t i = 0; i < width; i++)
        (void)ct_buf_append(to, &sign, 1);
    (void)ct_buf_puts(to, "\n");
}

/* As wide as the longest line, at most WIDEST. */
static size_t width_of(const char *text)
{
    size_t widest = 0;

    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        widest = CT_MAX(widest, length);
        text += length + (text[length] == '\n');
    }
    return CT_MIN(widest, (size_t)WIDEST);
}

void ct_report_print(const char *entry_point, const struct ct_worker_failure *failures,
                     size_t count, size_t first, struct ct_buf *to)
{
    struct ct_buf others, root;
    size_t number = 0;

    CT_ASSERT(first < count);
    ct_buf_init(&others, 0);
    ct_buf_init(&root, 0);
    for (size_t i = 0; i < count; i++)
        if (i != first && !failures[i].stopped)
            print_failure(&failures[i].record, ++number, &others);
    if (number == 0)
        (void)ct_buf_puts(&others, "  <NO_OTHER_FAILURES>\n");
    print_failure(&failures[first].record, 0, &root);
    size_t width = CT_MAX(width_of(ct_buf_str(&others)), width_of(ct_buf_str(&root)));
    print_rule('=', width, to);
    (void)ct_buf_printf(to, "%s FAILED\n", entry_point);
    print_rule('-', width, to);
    (void)ct_buf_printf(to, "Failures:\n%s", ct_buf_str(&others));
    print_rule('-', width, to);
    (void)ct_buf_printf(to, "Root Cause (first observed failure):\n%s", ct_buf_str(&root));
    print_rule('=', width, to);
    ct_buf_deinit(&others);
    ct_buf_deinit(&root);
}

/* The last line of a text that has something in it, in `arena`; NULL when none has. */
static const char *last_line(const char *text, struct ct_arena *arena)
{
    size_t end = strlen(text), start;

    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == ' '))
        end--;
    for (start = end; start > 0 && text[start - 1] != '\n'; start--)
        continue;
    return end > start ? ct_arena_strndup(arena, text + start, end - start) : NULL;
}

struct ct_error_file ct_report_error_file(const struct ct_wire_failure *failure,
                                          struct ct_arena *arena)
{
    char name[32];
    struct ct_error_file file = {
        .callstack = failure->text,
        .timestamp_s = (int64_t)(failure->time_ms / 1000),
        .error_code = ct_exit_shell_status(ct_failure_exit(failure)),
    };

    if (failure->error_file[0] == '\0' && failure->signal != 0)
        file.message =
            ct_arena_printf(arena, "Signal %d (%s) received by PID %d", failure->signal,
                            ct_signal_name(failure->signal, name, sizeof name), failure->pid);
    else
        file.message = last_line(failure->text, arena);
    if (file.message == NULL)
        file.message =
            ct_arena_printf(arena, "rank %d exited with status %d", failure->rank, failure->status);
    if (file.message == NULL)
        file.message = "a worker failed";
    return file;
}
