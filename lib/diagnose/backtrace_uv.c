/* See backtrace_uv.h. */
#include "diagnose/backtrace_uv.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/capture.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64, FILE_BYTES = 8192 };

struct diagnosis {
    uv_work_t work;
    struct ct_diagnose what;
    char *texts[CT_DIAGNOSE_PROCESSES]; /* of `what` */
    char *file, *preface;
    uint64_t deadline_ms;
    struct ct_error error;
    void (*done)(void *context, const char *failure);
    void *context;
};

/* ---- /proc ---------------------------------------------------------------------------------- */

/* A file of a process, without its last newline; "" when it cannot be read. */
static void read_proc(pid_t pid, const char *name, char *text, size_t room)
{
    char path[128];
    ssize_t size = -1;

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        size = read(fd, text, room - 1);
        (void)close(fd);
    }
    text[CT_MAX(size, 0)] = '\0';
    if (size > 0 && text[size - 1] == '\n')
        text[size - 1] = '\0';
}

/* The value of "Name:\tvalue" in a status file, or "". */
static const char *field_of(char *status, const char *name)
{
    char *at = strstr(status, name);

    if (at == NULL)
        return "";
    at += strlen(name);
    at += strspn(at, ":\t ");
    at[strcspn(at, "\n")] = '\0';
    return at;
}

void ct_diagnose_state(pid_t pid, char *text, size_t room)
{
    static const struct {
        char letter;
        const char *word;
    } states[] = {{'R', "running"},
                  {'S', "sleeping"},
                  {'D', "in an uninterruptible wait"},
                  {'T', "stopped by a signal"},
                  {'t', "stopped by a debugger"},
                  {'Z', "ended"}};
    char status[FILE_BYTES], channel[128];
    const char *word = "in an unknown state";

    read_proc(pid, "status", status, sizeof status);
    read_proc(pid, "wchan", channel, sizeof channel);
    char letter = field_of(status, "State")[0];
    for (size_t i = 0; i < CT_COUNT(states); i++)
        if (states[i].letter == letter)
            word = states[i].word;
    if ((letter == 'S' || letter == 'D') && channel[0] != '\0' && channel[0] != '0')
        (void)snprintf(text, room, "%s (%s)", word, channel);
    else
        (void)snprintf(text, room, "%s", word);
}

static void print_thread(pid_t pid, const char *tid, struct ct_buf *to)
{
    static const char *const files[] = {"wchan", "syscall", "stack"};
    char name[64], text[FILE_BYTES], status[FILE_BYTES];

    (void)snprintf(name, sizeof name, "task/%.32s/status", tid);
    read_proc(pid, name, status, sizeof status);
    const char *state = field_of(status, "State"); /* behind Name, which this leaves whole */
    (void)ct_buf_printf(to, "thread %s (%s): %s\n", tid, field_of(status, "Name"), state);
    for (size_t i = 0; i < CT_COUNT(files); i++) {
        (void)snprintf(name, sizeof name, "task/%.32s/%s", tid, files[i]);
        read_proc(pid, name, text, sizeof text);
        if (text[0] != '\0')
            (void)ct_buf_printf(to, "  %s: %s\n", files[i], text);
    }
}

static void print_threads(pid_t pid, struct ct_buf *to)
{
    char path[64];
    int count = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    struct dirent *entry;
    while (threads != NULL && count < THREADS_MAX && (entry = readdir(threads)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0])) {
            print_thread(pid, entry->d_name, to);
            count++;
        }
    if (threads != NULL)
        (void)closedir(threads);
}

/* ---- gdb ------------------------------------------------------------------------------------ */

static void print_backtrace(pid_t pid, uint64_t deadline_ms, struct ct_buf *to)
{
    char number[16], program[] = "gdb", batch[] = "--batch", quiet[] = "-nx", early[] = "-iex",
                     offline[] = "set debuginfod enabled off", p[] = "-p", ex[] = "-ex",
                     command[] = "thread apply all bt 64";
    char *argv[] = {program, batch, quiet, early, offline, p, number, ex, command, NULL};

    (void)snprintf(number, sizeof number, "%d", (int)pid);
    int rc = ct_capture(program, argv, deadline_ms, NULL, to);
    if (rc == CT_ENOINPUT)
        (void)ct_buf_puts(to, "gdb is not installed: no backtrace\n");
    else if (rc != 0)
        (void)ct_buf_puts(to, "\ngdb was given up\n");
}

/* ---- on the pool, and back ------------------------------------------------------------------ */

static void gather(uv_work_t *work)
{
    struct diagnosis *diagnosis = work->data;
    struct ct_buf all;

    ct_buf_init(&all, 0);
    (void)ct_buf_puts(&all, diagnosis->preface);
    for (int i = 0; i < CT_DIAGNOSE_PROCESSES; i++) {
        pid_t pid = diagnosis->what.pids[i];
        struct ct_buf one;

        if (pid <= 0)
            continue;
        ct_buf_init(&one, CT_DIAGNOSE_BYTES);
        (void)ct_buf_printf(&one, "==== %s (pid %d)\n", diagnosis->texts[i], (int)pid);
        print_threads(pid, &one);
        print_backtrace(pid, diagnosis->deadline_ms, &one);
        (void)ct_buf_append(&all, one.data, one.size);
        (void)ct_buf_puts(&all, "\n");
        ct_buf_deinit(&one);
    }
    (void)ct_fs_replace(diagnosis->file, ct_buf_str(&all), all.size, &diagnosis->error);
    ct_buf_deinit(&all);
}

static void release(struct diagnosis *diagnosis)
{
    for (int i = 0; i < CT_DIAGNOSE_PROCESSES; i++)
        free(diagnosis->texts[i]);
    free(diagnosis->file);
    free(diagnosis->preface);
    free(diagnosis);
}

static void on_gathered(uv_work_t *work, int status)
{
    struct diagnosis *diagnosis = work->data;

    (void)status; /* never cancelled */
    diagnosis->done(diagnosis->context, diagnosis->error.code != 0 ? diagnosis->error.text : NULL);
    release(diagnosis);
}

int ct_diagnose(uv_loop_t *loop, const struct ct_diagnose *what,
                void (*done)(void *context, const char *failure), void *context)
{
    struct diagnosis *diagnosis = calloc(1, sizeof *diagnosis);

    if (diagnosis == NULL)
        return CT_ENOMEM;
    diagnosis->what = *what;
    diagnosis->done = done;
    diagnosis->context = context;
    diagnosis->work.data = diagnosis;
    diagnosis->deadline_ms = ct_clock_mono_ms(&ct_clock_system) + CT_DIAGNOSE_MS;
    diagnosis->file = strdup(what->file);
    diagnosis->preface = strdup(what->preface != NULL ? what->preface : "");
    bool whole = diagnosis->file != NULL && diagnosis->preface != NULL;
    for (int i = 0; i < CT_DIAGNOSE_PROCESSES; i++) {
        diagnosis->texts[i] = strdup(what->titles[i] != NULL ? what->titles[i] : "");
        whole = whole && diagnosis->texts[i] != NULL;
    }
    int rc = whole ? uv_queue_work(loop, &diagnosis->work, gather, on_gathered) : CT_ENOMEM;
    if (rc != 0)
        release(diagnosis);
    return rc;
}
