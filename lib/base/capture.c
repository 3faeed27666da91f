/* See capture.h. */
#include "base/capture.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLICE_MS = 100 /* how late `stop` may be noticed */ };

extern char **environ;

/* Its output goes to `output`; its pid, or -1. */
static pid_t start(const char *program, char *const argv[], int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    pid_t pid = -1;

    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (posix_spawnp(&pid, program, &files, &attributes, argv, environ) != 0)
        pid = -1;
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return pid;
}

/* Read until the end, the limit of the buffer, the deadline, or `stop`. Is this the end? */
static bool read_all(int fd, uint64_t deadline_ms, const atomic_bool *stop, struct ct_buf *to)
{
    char chunk[4096];

    for (;;) {
        uint64_t now_ms = ct_clock_mono_ms(&ct_clock_system);
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        if (now_ms >= deadline_ms || (stop != NULL && atomic_load(stop)))
            return false;
        int ready = poll(&poll_fd, 1, (int)CT_MIN(deadline_ms - now_ms, (uint64_t)SLICE_MS));
        if (ready < 0)
            return false;
        if (ready == 0)
            continue;
        ssize_t size = read(fd, chunk, sizeof chunk);
        if (size <= 0)
            return size == 0;
        if (ct_buf_append(to, chunk, (size_t)size) != 0)
            return false;
    }
}

int ct_capture(const char *program, char *const argv[], uint64_t deadline_ms,
               const atomic_bool *stop, struct ct_buf *to)
{
    int ends[2], rc = CT_ENOINPUT;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return rc;
    pid_t pid = start(program, argv, ends[1]);
    (void)close(ends[1]);
    if (pid > 0) {
        rc = read_all(ends[0], deadline_ms, stop, to) ? 0 : CT_ETIMEOUT;
        (void)kill(-pid, SIGKILL);
        (void)waitpid(pid, NULL, 0); /* or the agent has been faster */
    }
    (void)close(ends[0]);
    return rc;
}
