/* See summary.h. */
#include "launch/failure/summary.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/log/record.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int signal, status; /* the one that is not 0 counts */
    const char *text;
} hints[] = {
    {SIGKILL, 0, "often the out-of-memory killer; check dmesg"},
    {SIGBUS, 0, "often a full /dev/shm, or a mapped file that was cut short"},
    {SIGSEGV, 0, "a crash in native code; `ulimit -c unlimited` keeps a core file"},
    {SIGILL, 0, "often a program built for another processor"},
    {SIGXCPU, 0, "a CPU time limit (ulimit -t) was reached"},
    {SIGXFSZ, 0, "a file size limit (ulimit -f) was reached"},
    {0, 126, "126 is how a shell says: found, but not executable"},
    {0, 127, "127 is how a shell says: command not found"},
    {0, 137, "137 is how a shell says: killed by SIGKILL, perhaps for want of memory"},
};

const char *ct_failure_hint(const struct ct_wire_failure *failure)
{
    if (failure->code == CT_EHUNG)
        return "launch.hang_timeout sets how long a rank may give no sign of life; with "
               "launch.log_dir "
               "its stack is kept in a file hang-*";
    for (size_t i = 0; i < CT_COUNT(hints); i++)
        if (failure->signal != 0 ? hints[i].signal == failure->signal
                                 : hints[i].status != 0 && hints[i].status == failure->status)
            return hints[i].text;
    return NULL;
}

const char *ct_signal_name(int signal, char *room, size_t size)
{
    const char *name = sigabbrev_np(signal);

    if (name != NULL)
        (void)snprintf(room, size, "SIG%s", name);
    else
        (void)snprintf(room, size, "signal %d", signal);
    return room;
}

/* Whatever stands in the text, which a worker or another node may have written. */
static void print_first_line(const char *text, struct ct_buf *to)
{
    struct ct_buf clean;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, text, "\n\t");
    (void)ct_buf_append(to, ct_buf_str(&clean), strcspn(ct_buf_str(&clean), "\n"));
    ct_buf_deinit(&clean);
}

void ct_failure_print(const struct ct_wire_failure *failure, int32_t node, struct ct_buf *to)
{
    char name[32];

    if (failure->rank < 0) {
        print_first_line(failure->text, to);
        return;
    }
    (void)ct_buf_printf(to, "rank %d (", failure->rank);
    if (node >= 0)
        (void)ct_buf_printf(to, "node %d, ", node);
    if (failure->host[0] != '\0')
        (void)ct_buf_printf(to, "host %s, ", failure->host);
    (void)ct_buf_printf(to, "local rank %d", failure->local_rank);
    if (failure->pid > 0)
        (void)ct_buf_printf(to, ", pid %d", failure->pid);
    (void)ct_buf_puts(to, ") ");
    if (failure->pid <= 0 && failure->code == CT_EREVOKED) /* it lives, and has left its round */
        (void)ct_buf_puts(to, "cannot go on");
    else if (failure->pid <= 0)
        (void)ct_buf_puts(to, "could not be started");
    else if (failure->code == CT_EHUNG)
        (void)ct_buf_puts(to, "hung and was killed by ctrun");
    else if (failure->signal != 0)
        (void)ct_buf_printf(to, "was killed by signal %d (%s)", failure->signal,
                            ct_signal_name(failure->signal, name, sizeof name));
    else
        (void)ct_buf_printf(to, "exited with status %d", failure->status);
}

/* Each line of `text` behind a bar; its escape sequences as text. */
static void print_quoted(const char *text, struct ct_buf *to)
{
    struct ct_buf clean;

    ct_buf_init(&clean, 0);
    ct_buf_put_clean(&clean, text, "\n\t");
    for (const char *line = ct_buf_str(&clean); *line != '\0';) {
        size_t length = strcspn(line, "\n");

        (void)ct_buf_puts(to, "  | ");
        (void)ct_buf_append(to, line, length);
        (void)ct_buf_puts(to, "\n");
        line += length + (line[length] == '\n');
    }
    ct_buf_deinit(&clean);
}

static bool has(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* "ctrun: job "digits" failed: rank 1 (...) exited with status 3", its last lines, a hint. */
static void print_cause(const char *run_id, const char *what, const struct ct_summary *summary,
                        const char *more, struct ct_buf *to)
{
    const struct ct_wire_failure *cause = &summary->cause;
    const char *hint = ct_failure_hint(cause);

    (void)ct_buf_puts(to, "ctrun: job ");
    if (strcmp(run_id, "none") != 0)
        (void)ct_buf_printf(to, "\"%s\" ", run_id);
    (void)ct_buf_puts(to, what);
    ct_failure_print(cause, summary->node, to);
    if (cause->rank >= 0 && summary->seen && (cause->signal == 0 || cause->code == CT_EHUNG))
        (void)ct_buf_puts(to, " (see above)");
    if (has(summary->also))
        (void)ct_buf_printf(to, "; %s failed for the same reason", summary->also);
    (void)ct_buf_printf(to, "%s\n", more);
    if (cause->rank >= 0 && !summary->seen)
        print_quoted(cause->text, to);
    if (hint != NULL)
        (void)ct_buf_printf(to, "  hint: %s\n", hint);
}

void ct_summary_stopped(const char *run_id, const struct ct_summary *summary, uint32_t others,
                        const char *checkpoint, int exit_status, struct ct_buf *to)
{
    char more[48] = "";

    if (others > 0)
        (void)snprintf(more, sizeof more, ", and %u other%s failed, too", others,
                       others == 1 ? "" : "s");
    print_cause(run_id, "did not stop in order: ", summary, more, to);
    (void)ct_buf_printf(to, "ctrun: %s%sexit status %d\n", checkpoint,
                        checkpoint[0] != '\0' ? "; " : "", exit_status);
}

void ct_summary_failed(const char *run_id, const struct ct_summary *summary, uint32_t restarts,
                       uint32_t max_restarts, int exit_status, struct ct_buf *to)
{
    const struct ct_wire_failure *cause = &summary->cause;
    bool has_status =
        cause->rank >= 0 && cause->pid > 0 && cause->signal == 0 && cause->status == exit_status;

    print_cause(run_id, "failed: ", summary, "", to);
    if (has_status && max_restarts == 0)
        return;
    (void)ct_buf_puts(to, "ctrun: ");
    if (cause->code == CT_EREPEATED)
        (void)ct_buf_printf(to,
                            "not restarted after %u restarts, as it fails at the same place "
                            "again and again; ",
                            restarts);
    else if (cause->rank >= 0 && restarts < max_restarts)
        (void)ct_buf_puts(to, "not restarted, it would end the same way; ");
    else if (max_restarts > 0)
        (void)ct_buf_printf(to, "%u of %u restarts were used; ", restarts, max_restarts);
    (void)ct_buf_printf(to, "exit status %d\n", exit_status);
}

/* Who failed and how, as far as both reports of a failure have it. */
static void begin_record(uint64_t wall_ns, const char *event, const struct ct_summary *summary,
                         struct ct_buf *to)
{
    const struct ct_wire_failure *cause = &summary->cause;
    const char *hint = ct_failure_hint(cause);
    struct ct_buf who;
    char name[32];

    ct_buf_init(&who, 0);
    ct_failure_print(cause, summary->node, &who);
    ct_record_begin(to, wall_ns, "failure");
    if (summary->node >= 0)
        ct_record_whole(to, "node", summary->node);
    if (cause->rank >= 0) {
        ct_record_whole(to, "rank", cause->rank);
        ct_record_whole(to, "local_rank", cause->local_rank);
        ct_record_whole(to, "pid", cause->pid);
    }
    if (cause->host[0] != '\0')
        ct_record_string(to, "host", cause->host);
    if (cause->signal != 0)
        ct_record_string(to, "signal", ct_signal_name(cause->signal, name, sizeof name));
    else if (cause->rank >= 0)
        ct_record_whole(to, "status", cause->status);
    ct_record_string(to, "level", "error");
    ct_record_string(to, "event", event);
    ct_record_string(to, "message", ct_buf_str(&who));
    ct_record_string(to, "text", cause->text);
    if (has(summary->also))
        ct_record_string(to, "also", summary->also);
    if (has(cause->error_file))
        ct_record_string(to, "error_file", cause->error_file);
    if (hint != NULL)
        ct_record_string(to, "hint", hint);
    ct_buf_deinit(&who);
}

void ct_summary_record(uint64_t wall_ns, const struct ct_summary *summary, uint32_t restarts,
                       int exit_status, struct ct_buf *to)
{
    begin_record(wall_ns, "job_failed", summary, to);
    ct_record_whole(to, "restarts", restarts);
    ct_record_whole(to, "exit_status", exit_status);
    ct_record_end(to);
}

void ct_summary_record_stopped(uint64_t wall_ns, const struct ct_summary *summary, uint32_t others,
                               const char *checkpoint, int exit_status, struct ct_buf *to)
{
    begin_record(wall_ns, "stop_failed", summary, to);
    ct_record_whole(to, "others", others);
    if (checkpoint[0] != '\0')
        ct_record_string(to, "checkpoint", checkpoint);
    ct_record_whole(to, "exit_status", exit_status);
    ct_record_end(to);
}
