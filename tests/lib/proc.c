/* See proc.h. */
#include "proc.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const struct proc_speech *proc_speech;

double proc_now_s(void)
{
    return (double)ct_clock_mono_ns(&ct_clock_system) * 1e-9;
}

const char *proc_program(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    const char *folder = getenv("TEST_PROGRAMS");
    char *path = paths[next++ % 4];

    (void)snprintf(path, PATH_MAX, "%s/%s", folder != NULL ? folder : "build/release/bin", name);
    return path;
}

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
    cr_assert_not_null(list);
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

void proc_start(struct proc *proc, const char *const argv[], const char *const env[])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t signals;
    int ends[2];
    const char *added[3] = {NULL}, *variable = NULL;

    *proc = (struct proc){.status = -1, .started_s = proc_now_s()};
    ct_buf_init(&proc->text, 64u << 20);
    ct_buf_init(&proc->line, 16u << 20);
    if (proc_speech != NULL)
        proc_speech->begin(proc, argv, added, &variable);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    (void)posix_spawn_file_actions_adddup2(&files, ends[1], 2);
    (void)posix_spawnattr_init(&attributes);
    /* A shell has what it starts with & ignore SIGINT, and ctrun goes by what it inherits. */
    (void)sigfillset(&signals);
    (void)posix_spawnattr_setsigdefault(&attributes, &signals);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    char **merged = merge_env(env, variable);
    const char *arguments[64] = {"setpriv", "--pdeathsig", "KILL", "--"};
    size_t count = 4;
    for (size_t i = 0; argv[i] != NULL; i++) {
        cr_assert_lt(count + CT_COUNT(added), CT_COUNT(arguments));
        arguments[count++] = argv[i];
    }
    for (size_t i = 0; added[i] != NULL; i++)
        arguments[count++] = added[i];
    int code = posix_spawnp(&proc->pid, arguments[0], &files, &attributes,
                            (char *const *)(uintptr_t)arguments, merged);
    free(merged);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)close(ends[1]);
    proc->output = ends[0];
    cr_assert_eq(code, 0, "%s: %s", argv[0], strerror(code));
}

/* Read what is there within `milliseconds`; false at the end of the output. */
static bool pump(struct proc *proc, int milliseconds)
{
    struct pollfd poller = {proc->output, POLLIN, 0};

    if (proc->output < 0)
        return false;
    if (poll(&poller, 1, milliseconds) <= 0)
        return true;
    char data[16384];
    ssize_t got = read(proc->output, data, sizeof data);
    if (got <= 0) {
        (void)close(proc->output);
        proc->output = -1;
    }
    if (proc_speech != NULL)
        proc_speech->receive(proc, data, got > 0 ? (size_t)got : 0);
    else if (got > 0)
        (void)ct_buf_append(&proc->text, data, (size_t)got);
    cr_assert(!proc->text.failed, "the process printed more than the test expects");
    return got > 0;
}

static _Noreturn void give_up(struct proc *proc, const char *what, double seconds)
{
    (void)kill(-proc->pid, SIGKILL);
    (void)kill(proc->pid, SIGKILL);
    cr_assert_fail("%s did not come within %.1f s; the process said:\n%s", what, seconds,
                   ct_buf_str(&proc->text));
    abort();
}

const char *proc_wait_text(struct proc *proc, const char *needle, double seconds)
{
    double deadline = proc_now_s() + seconds;

    for (;;) {
        const char *found = strstr(ct_buf_str(&proc->text), needle);
        if (found != NULL)
            return found;
        if (!pump(proc, 20) || proc_now_s() > deadline)
            give_up(proc, needle, seconds);
    }
}

static bool reap(struct proc *proc)
{
    int status;
    pid_t got = waitpid(proc->pid, &status, WNOHANG);

    if (got == 0)
        return false;
    cr_assert_eq(got, proc->pid);
    proc->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    proc->seconds = proc_now_s() - proc->started_s;
    return true;
}

int proc_finish(struct proc *proc, double seconds)
{
    double deadline = proc_now_s() + seconds;

    while (proc->status < 0 && !reap(proc)) {
        if (!pump(proc, 5))
            (void)poll(NULL, 0, 1);
        if (proc_now_s() > deadline)
            give_up(proc, "the end", seconds);
    }
    double drained = proc_now_s() + 1; /* a grandchild may hold the pipe open */
    while (pump(proc, 50) && proc->output >= 0 && proc_now_s() < drained) {
        struct pollfd poller = {proc->output, POLLIN, 0};
        if (poll(&poller, 1, 50) == 0)
            break;
    }
    return proc->status;
}

int proc_run(struct proc *proc, const char *const argv[], const char *const env[], double seconds)
{
    proc_start(proc, argv, env);
    return proc_finish(proc, seconds);
}

void proc_free(struct proc *proc)
{
    if (proc->pid > 0 && proc->status < 0) {
        (void)kill(proc->pid, SIGKILL);
        (void)waitpid(proc->pid, NULL, 0);
    }
    struct pollfd poller = {proc->output, POLLIN, 0};
    while (proc_speech != NULL && proc->output >= 0 && poll(&poller, 1, 0) > 0)
        (void)pump(proc, 0); /* what nobody has waited for is looked at, too */
    if (proc->output >= 0)
        (void)close(proc->output);
    ct_buf_deinit(&proc->text);
    ct_buf_deinit(&proc->line);
    proc->output = -1;
    proc->pid = 0;
}

double proc_number_after(const struct proc *proc, const char *label)
{
    const char *at = strstr(ct_buf_str(&proc->text), label);

    cr_assert_not_null(at, "no \"%s\" in:\n%s", label, ct_buf_str(&proc->text));
    at += strlen(label);
    at += strcspn(at, "-0123456789");
    return strtod(at, NULL);
}

void proc_until(bool (*condition)(void *context), void *context, double seconds, const char *what)
{
    double deadline = proc_now_s() + seconds;

    while (!condition(context)) {
        cr_assert_lt(proc_now_s(), deadline, "%s did not come within %.1f s", what, seconds);
        (void)poll(NULL, 0, 2);
    }
}

bool proc_alive(pid_t pid)
{
    char path[64];
    char text[512];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    const char *state = strrchr(text, ')');
    return state != NULL && state[2] != 'Z' && state[2] != 'X';
}

const char *proc_temp_dir(void)
{
    static char path[64];

    (void)snprintf(path, sizeof path, "/tmp/ctrun-test-XXXXXX");
    cr_assert_not_null(mkdtemp(path));
    return path;
}

void proc_remove_tree(const char *path)
{
    (void)ct_fs_remove_tree(path);
}
