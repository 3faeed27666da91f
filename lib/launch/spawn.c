/* See spawn.h. clone(2) with a stack of its own is what posix_spawn(3) does inside; posix_spawn
 * itself knows neither the parent-death signal nor the look at the parent. That stack is of the
 * heap: what AddressSanitizer marks in it would stay in ours, since execve(2) does not return. */
#include "launch/spawn.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_STACK = 32 * 1024 };

struct child {
    const struct ct_spawn *spawn;
    pid_t parent;
    int error; /* errno of what failed, 0 while nothing did */
};

/* Descriptors 0 .. CT_SPAWN_FDS - 1 become fds[]; the sources may be among them. */
static int place_descriptors(const int *fds)
{
    int from[CT_SPAWN_FDS];

    for (int i = 0; i < CT_SPAWN_FDS; i++) {
        from[i] = fds[i];
        if (fds[i] >= 0 && fds[i] < CT_SPAWN_FDS)
            from[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, CT_SPAWN_FDS);
        if (fds[i] >= 0 && from[i] < 0)
            return errno;
    }
    for (int i = 0; i < CT_SPAWN_FDS; i++) {
        if (from[i] < 0)
            (void)close(i);
        else if (dup2(from[i], i) < 0)
            return errno;
    }
    /* Descriptors that the agent inherited without close-on-exec. */
    (void)close_range(CT_SPAWN_FDS, ~0u, CLOSE_RANGE_CLOEXEC);
    return 0;
}

/* Handlers of the agent must not run in the memory that both share: signals stay blocked until none
 * has a handler. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int signal = 1; signal < NSIG; signal++)
        (void)sigaction(signal, &standard, NULL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Returns only when it failed. System calls alone: this is the agent's memory. */
static int run_child(void *context)
{
    struct child *child = context;
    const struct ct_spawn *spawn = child->spawn;

    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        child->error = errno;
        return 1;
    }
    if (getppid() != child->parent) /* the agent died before the signal was asked for */
        return 1;
    child->error = place_descriptors(spawn->fds);
    if (child->error != 0)
        return 1;
    if (spawn->cpus != NULL) /* a share, not a need: a CPU may just have gone offline */
        (void)sched_setaffinity(0, sizeof *spawn->cpus,
                                (const cpu_set_t *)(const void *)spawn->cpus);
    if (spawn->files != NULL)
        (void)setrlimit(RLIMIT_NOFILE, spawn->files);
    reset_signals();
    (void)execve(spawn->path, spawn->argv, spawn->envp);
    child->error = errno;
    return 1;
}

static int explain(const struct ct_spawn *spawn, int error, struct ct_error *err)
{
    switch (error) {
    case ENOEXEC:
        return ct_error_set(err, CT_ENOINPUT,
                            "%s cannot be executed: it is neither a program for this machine nor a "
                            "script with a #! line",
                            spawn->path);
    case ENOENT:
        return ct_error_set(
            err, CT_ENOINPUT,
            "%s cannot be executed: it, or the interpreter of its #! line, does not "
            "exist",
            spawn->path);
    case EAGAIN:
        return ct_error_set(err, CT_EOS,
                            "%s cannot be started: too many processes; raise `ulimit -u` or the "
                            "cgroup's pids.max",
                            spawn->path);
    case E2BIG:
        return ct_error_set(err, CT_EOS,
                            "%s cannot be executed: its arguments and environment are too long",
                            spawn->path);
    default:
        return ct_error_set(err, error == EACCES ? CT_ENOINPUT : CT_EOS,
                            "%s cannot be executed: %s", spawn->path, ct_strerror(-error));
    }
}

int ct_spawn(const struct ct_spawn *spawn, pid_t *ret_pid, struct ct_error *err)
{
    struct child child = {.spawn = spawn, .parent = getpid()};
    unsigned char *stack = malloc(CHILD_STACK);
    sigset_t all, before;

    if (stack == NULL)
        return ct_error_set(err, CT_ENOMEM, "%s cannot be started: out of memory", spawn->path);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(run_child, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &child);
    int error = pid < 0 ? errno : child.error;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    free(stack);
    if (error != 0) {
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        return explain(spawn, error, err);
    }
    *ret_pid = pid;
    return 0;
}
