/* See wandb_python.h. The assembler puts the text in; make knows that it is used (Makefile). */
#include "wandb_python.h"

#include "launch/spawn.h"
#include "launch/worker_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".section .rodata\n"
        "ctrun_wandb_text: .incbin \"cmd/ctrun/agent/job/wandb_follow.py\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char ctrun_wandb_text[] __attribute__((visibility("hidden")));

enum {
    CHECK_MS = 10000, /* an interpreter on a slow file system */
    WORDS = 7,
};

int wandb_spawn(const char *python, char *const *env, const char *const *args, const int fds[3],
                pid_t *ret_pid, struct ct_error *err)
{
    const char *words[WORDS] = {python, "-c", ctrun_wandb_text};
    size_t count = 3;

    while (*args != NULL && count < WORDS - 1)
        words[count++] = *args++;
    const struct ct_spawn how = {.path = python,
                                 .argv = (char *const *)(uintptr_t)words,
                                 .envp = env,
                                 .fds = {fds[0], fds[1], fds[2], -1, -1, -1}};
    return ct_spawn(&how, ret_pid, err);
}

/* The exit status of a child of ours; -1 when it took too long, and was killed. */
static int await_child(pid_t pid)
{
    int fd = pidfd_open(pid, 0), status = 0;
    struct pollfd end = {.fd = fd, .events = POLLIN};
    int ready = fd >= 0 ? poll(&end, 1, CHECK_MS) : 1;

    if (ready <= 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (fd >= 0)
        (void)close(fd);
    return ready > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int wandb_find(const struct ct_config *cfg, char *const *env, struct ct_arena *arena,
               const char **ret_python, struct ct_error *err)
{
    static const char *const check[] = {"check", NULL};
    const char *python;
    pid_t pid;

    *ret_python = NULL;
    if (cfg->log.wandb == CT_CONFIG_WANDB_OFF)
        return 0;
    int rc = ct_program_python(env, arena, &python, err);
    if (rc != 0)
        return rc;
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    rc = wandb_spawn(python, env, check, (const int[]){null_fd, null_fd, null_fd}, &pid, err);
    if (null_fd >= 0)
        (void)close(null_fd);
    if (rc != 0)
        return rc;
    if (await_child(pid) > 0)
        return ct_error_set(err, CT_ECONFIG,
                            "log.wandb: %s has no package wandb; install it (%s -m pip install "
                            "wandb), name an interpreter that has it in PYTHON_EXEC, or set "
                            "log.wandb to off",
                            python, python);
    *ret_python = python;
    return 0;
}
