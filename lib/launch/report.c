/* The failures of a job; see report.h. */
#include "launch/report.h"

#include "base/assert.h"
#include "launch/summary.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { WIDEST = 60 };

/* ---- the first ---- */

/* The earliest and the latest moment at which it may have happened. */
static int64_t earliest_ms(const struct ct_failure *failure)
{
    int64_t told_ms = failure->file != NULL && failure->file->timestamp_s >= 0
                          ? failure->file->timestamp_s * 1000
                          : failure->seen_ms;

    return CT_MIN(told_ms, failure->seen_ms);
}

static int64_t latest_ms(const struct ct_failure *failure)
{
    int64_t told_ms = failure->file != NULL && failure->file->timestamp_s >= 0
                          ? failure->file->timestamp_s * 1000 + 999
                          : failure->seen_ms;

    return CT_MIN(told_ms, failure->seen_ms);
}

static bool is_likelier(const struct ct_failure *a, const struct ct_failure *b)
{
    int blame_a = ct_exit_blame(a->end), blame_b = ct_exit_blame(b->end);

    if (blame_a != blame_b)
        return blame_a > blame_b;
    return a->seen_ms != b->seen_ms ? a->seen_ms < b->seen_ms : a->rank < b->rank;
}

size_t ct_report_first(const struct ct_failure *failures, size_t count)
{
    bool all_stopped = true;
    int64_t until_ms = INT64_MAX;
    size_t first = SIZE_MAX;

    CT_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++)
        all_stopped = all_stopped && failures[i].stopped;
    for (size_t i = 0; i < count; i++)
        if (all_stopped || !failures[i].stopped)
            until_ms = CT_MIN(until_ms, latest_ms(&failures[i]));
    for (size_t i = 0; i < count; i++) {
        if ((failures[i].stopped && !all_stopped) || earliest_ms(&failures[i]) > until_ms)
            continue;
        if (first == SIZE_MAX || is_likelier(&failures[i], &failures[first]))
            first = i;
    }
    CT_ASSERT(first != SIZE_MAX);
    return first;
}

/* ---- the table ---- */

/* "Signal 9 (SIGKILL) received by PID 4711", as torchelastic says it. */
static void print_cause(const struct ct_failure *failure, struct ct_buf *to)
{
    char name[32];

    if (failure->file != NULL && failure->file->callstack[0] != '\0')
        (void)ct_buf_puts(to, failure->file->callstack);
    else if (failure->file != NULL)
        (void)ct_buf_puts(to, failure->file->message);
    else if (failure->end.signal != 0)
        (void)ct_buf_printf(to, "Signal %d (%s) received by PID %d", failure->end.signal,
                            ct_signal_name(failure->end.signal, name, sizeof name), failure->pid);
    else if (failure->text[0] != '\0')
        (void)ct_buf_puts(to, failure->text);
    else
        (void)ct_buf_puts(to, "<no error file and no output; PyTorch's record decorator writes "
                              "error files>");
}

static void print_time(int64_t ms, struct ct_buf *to)
{
    char text[32] = "?";
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &tm);
    (void)ct_buf_puts(to, text);
}

static void print_failure(const struct ct_failure *failure, size_t number, struct ct_buf *to)
{
    int code = failure->end.signal != 0 ? -failure->end.signal : failure->end.status;

    (void)ct_buf_printf(to, "[%zu]:\n  time      : ", number);
    print_time(earliest_ms(failure), to);
    (void)ct_buf_printf(to,
                        "\n  host      : %s\n  rank      : %" PRIu32 " (local_rank: %" PRIu32
                        ")\n  exitcode  : %d (pid: %d)\n  error_file: %s\n  traceback : ",
                        failure->host, failure->rank, failure->local_rank, code, failure->pid,
                        failure->path[0] != '\0' ? failure->path : "<N/A>");
    size_t start = to->size;
    print_cause(failure, to);
    while (to->size > start && to->data[to->size - 1] == '\n')
        to->data[--to->size] = '\0';
    (void)ct_buf_puts(to, "\n");
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

void ct_report_print(const char *entry_point, const struct ct_failure *failures, size_t count,
                     size_t first, struct ct_buf *to)
{
    struct ct_buf others, root;
    size_t number = 0;

    CT_ASSERT(first < count);
    ct_buf_init(&others, 0);
    ct_buf_init(&root, 0);
    for (size_t i = 0; i < count; i++)
        if (i != first && !failures[i].stopped)
            print_failure(&failures[i], ++number, &others);
    if (number == 0)
        (void)ct_buf_puts(&others, "  <NO_OTHER_FAILURES>\n");
    print_failure(&failures[first], 0, &root);
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

struct ct_error_file ct_report_error_file(const struct ct_failure *failure, struct ct_arena *arena)
{
    char name[32];
    struct ct_error_file file = {
        .callstack = failure->text,
        .timestamp_s = failure->seen_ms / 1000,
        .error_code = ct_exit_shell_status(failure->end),
    };

    if (failure->file != NULL) {
        file = *failure->file;
        file.error_code = ct_exit_shell_status(failure->end);
        return file;
    }
    if (failure->end.signal != 0)
        file.message =
            ct_arena_printf(arena, "Signal %d (%s) received by PID %d", failure->end.signal,
                            ct_signal_name(failure->end.signal, name, sizeof name), failure->pid);
    else
        file.message = ct_arena_printf(arena, "rank %" PRIu32 " exited with status %d",
                                       failure->rank, failure->end.status);
    if (file.message == NULL)
        file.message = "a worker failed";
    return file;
}
