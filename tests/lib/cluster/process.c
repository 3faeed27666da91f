/* See process.h. */
#include "cluster/process.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const struct process_speech *process_speech;

enum { TEXT_BYTES = 64 << 20, LINE_BYTES = 16 << 20 };

double process_now_s(void)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9;
}

/* ---- words ---------------------------------------------------------------------------------- */

void words_add(struct words *words, const char *word)
{
    CT_ASSERT(words->count + 1 < CT_COUNT(words->list));
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
}

void words_append(struct words *words, const char *const list[])
{
    for (; list != NULL && *list != NULL; list++)
        words_add(words, *list);
}

/* ---- starting ------------------------------------------------------------------------------- */

/* The environment with `extra` put over it, and `first` under both; a malloc'ed list of borrowed
 * words. */
static char **merge_env(const char *const extra[], const char *first)
{
    size_t own = 0;
    size_t added = 0;

    while (environ[own] != NULL)
        own++;
    while (extra != NULL && extra[added] != NULL)
        added++;
    char **list = calloc(own + added + 2, sizeof *list);
    CT_ASSERT(list != NULL);
    size_t used = 0;
    if (first != NULL)
        list[used++] = (char *)(uintptr_t)first;
    for (size_t i = 0; i < own; i++) {
        size_t name = strcspn(environ[i], "=") + 1;
        bool replaced = false;
        for (size_t j = 0; j < added; j++)
            replaced = replaced || strncmp(environ[i], extra[j], name) == 0;
        if (!replaced)
            list[used++] = environ[i];
    }
    for (size_t j = 0; j < added; j++)
        list[used++] = (char *)(uintptr_t)extra[j];
    return list;
}

static int spawn(pid_t *ret_pid, const struct words *words, const char *cwd, char **env, int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t signals;

    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, output, 1);
    (void)posix_spawn_file_actions_adddup2(&files, output, 2);
    if (cwd != NULL)
        (void)posix_spawn_file_actions_addchdir_np(&files, cwd);
    (void)posix_spawnattr_init(&attributes);
    /* A shell has what it starts with & ignore SIGINT, and ctrun goes by what it inherits. */
    (void)sigfillset(&signals);
    (void)posix_spawnattr_setsigdefault(&attributes, &signals);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    int code = posix_spawnp(ret_pid, words->list[0], &files, &attributes,
                            (char *const *)(uintptr_t)words->list, env);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return -code;
}

static int open_output(struct proc *proc, const char *log, int *ret_write_end)
{
    int ends[2];

    if (log != NULL)
        proc->log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (proc->log < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    proc->output = ends[0];
    *ret_write_end = ends[1];
    return 0;
}

int process_spawn(struct proc *proc, const char *const argv[], const struct process_how *how)
{
    static const char *const mortal[] = {"setpriv", "--pdeathsig", "KILL", "--", NULL};
    static const struct process_how plain;
    struct words words = {0};
    const char *added[3] = {NULL}, *variable = NULL;
    int write_end = -1;

    how = how != NULL ? how : &plain;
    *proc = (struct proc){.output = -1,
                          .status = -1,
                          .started_s = process_now_s(),
                          .on_line = how->on_line,
                          .context = how->context};
    (void)ct_str_copy(proc->name, sizeof proc->name, how->name != NULL ? how->name : "");
    ct_buf_init(&proc->text, TEXT_BYTES);
    ct_buf_init(&proc->line, LINE_BYTES);
    if (process_speech != NULL)
        process_speech->begin(proc, argv, added, &variable);
    int rc = open_output(proc, how->log, &write_end);
    if (rc != 0)
        return rc;
    words_append(&words, mortal);
    words_append(&words, argv);
    words_append(&words, added);
    char **env = merge_env(how->env, variable);
    rc = spawn(&proc->pid, &words, how->cwd, env, write_end);
    free(env);
    (void)close(write_end);
    if (rc != 0)
        proc->pid = 0;
    return rc;
}

bool process_runs(const struct proc *proc)
{
    return proc->pid > 0 && proc->status < 0;
}

/* ---- what it says --------------------------------------------------------------------------- */

static void take_lines(struct proc *proc)
{
    char *line = proc->line.data;
    char *end;
    size_t taken = 0;

    while ((end = memchr(line, '\n', proc->line.size - taken)) != NULL) {
        *end = '\0';
        taken += (size_t)(end - line) + 1;
        if (!ct_starts_with(line, "epoch "))
            (void)ct_str_copy(proc->last, sizeof proc->last, line);
        proc->on_line(proc->context, proc, line);
        line = end + 1;
    }
    ct_buf_consume(&proc->line, taken);
}

/* `size` bytes came; 0: the end. */
static void take(struct proc *proc, const char *data, size_t size)
{
    if (proc->log > 0 && size > 0)
        (void)ct_fs_write_all(proc->log, data, size);
    if (proc->on_line != NULL) {
        if (ct_buf_append(&proc->line, data, size) == 0)
            take_lines(proc);
        else
            ct_buf_clear(&proc->line);
    } else if (process_speech != NULL) {
        process_speech->take(proc, data, size);
    } else if (size > 0) {
        (void)ct_buf_append(&proc->text, data, size);
    }
}

bool process_pump(struct proc *proc, int milliseconds)
{
    struct pollfd poller = {proc->output, POLLIN, 0};
    char data[16384];

    if (proc->pid <= 0 || proc->output < 0)
        return false;
    if (poll(&poller, 1, milliseconds) <= 0)
        return true;
    ssize_t got = read(proc->output, data, sizeof data);
    if (got <= 0) {
        (void)close(proc->output);
        proc->output = -1;
    }
    take(proc, data, got > 0 ? (size_t)got : 0);
    return got > 0 && !proc->text.failed;
}

void process_drain(struct proc *proc)
{
    struct pollfd poller = {proc->output, POLLIN, 0};

    while (proc->pid > 0 && proc->output >= 0 && poll(&poller, 1, 0) > 0)
        (void)process_pump(proc, 0);
}

const char *process_await_text(struct proc *proc, const char *needle, double seconds)
{
    double deadline = process_now_s() + seconds;

    for (;;) {
        const char *found = strstr(ct_buf_str(&proc->text), needle);
        if (found != NULL)
            return found;
        if (!process_pump(proc, 20) || process_now_s() > deadline)
            return NULL;
    }
}

/* ---- its end -------------------------------------------------------------------------------- */

bool process_reap(struct proc *proc)
{
    int status;

    if (!process_runs(proc) || waitpid(proc->pid, &status, WNOHANG) != proc->pid)
        return false;
    proc->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    proc->seconds = process_now_s() - proc->started_s;
    return true;
}

bool process_await_end(struct proc *proc, double seconds)
{
    double deadline = process_now_s() + seconds;

    while (process_runs(proc) && !process_reap(proc)) {
        if (!process_pump(proc, 5))
            (void)poll(NULL, 0, 1);
        if (process_now_s() > deadline)
            return false;
    }
    double drained = process_now_s() + 1; /* a grandchild may hold the pipe open */
    while (process_pump(proc, 50) && proc->output >= 0 && process_now_s() < drained) {
        struct pollfd poller = {proc->output, POLLIN, 0};
        if (poll(&poller, 1, 50) == 0)
            break;
    }
    return true;
}

void process_free(struct proc *proc)
{
    if (proc->pid > 0 && proc->status < 0) {
        (void)kill(proc->pid, SIGKILL);
        (void)waitpid(proc->pid, NULL, 0);
    }
    if (process_speech != NULL || proc->log > 0)
        process_drain(proc); /* what nobody has waited for is looked at, too */
    if (proc->output > 0)
        (void)close(proc->output);
    if (proc->log > 0)
        (void)close(proc->log);
    ct_buf_deinit(&proc->text);
    ct_buf_deinit(&proc->line);
    proc->output = -1;
    proc->log = 0;
    proc->pid = 0;
}

bool process_until(bool (*condition)(void *context), void *context, double seconds)
{
    double deadline = process_now_s() + seconds;

    while (!condition(context)) {
        if (process_now_s() >= deadline)
            return false;
        (void)poll(NULL, 0, 2);
    }
    return true;
}
