/* Processes and what they say. See soak.h. */
#include "soak.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WORDS_MAX = 64, LINE_MAX_BYTES = 1 << 20 };

static int spawn(pid_t *ret_pid, const char *const argv[], const char *cwd, int output)
{
    const char *words[WORDS_MAX] = {"setpriv", "--pdeathsig", "KILL", "--"};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;

    for (size_t i = 0; argv[i] != NULL; i++) {
        CT_ASSERT(i + 5 < CT_COUNT(words));
        words[i + 4] = argv[i];
    }
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, output, 1);
    (void)posix_spawn_file_actions_adddup2(&files, output, 2);
    (void)posix_spawn_file_actions_addchdir_np(&files, cwd);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int code = posix_spawnp(ret_pid, words[0], &files, &attributes, (char *const *)(uintptr_t)words,
                            environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return code;
}

bool program_start(struct program *program, const char *const argv[], const char *cwd,
                   const char *log)
{
    int ends[2];

    CT_ASSERT(program->pid == 0);
    program_destroy(program);
    ct_buf_init(&program->line, LINE_MAX_BYTES);
    program->last[0] = '\0';
    program->status = -1;
    program->log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (program->log < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return false;
    int code = spawn(&program->pid, argv, cwd, ends[1]);
    (void)close(ends[1]);
    program->output = ends[0];
    (void)fcntl(program->output, F_SETFL, O_NONBLOCK);
    if (code != 0)
        program->pid = 0;
    return code == 0;
}

static void take_lines(struct program *program, struct soak *soak,
                       void (*on_line)(struct soak *, struct program *, const char *))
{
    char *line = program->line.data;
    char *end;
    size_t taken = 0;

    while ((end = memchr(line, '\n', program->line.size - taken)) != NULL) {
        *end = '\0';
        taken += (size_t)(end - line) + 1;
        if (!ct_starts_with(line, "epoch "))
            (void)ct_str_copy(program->last, sizeof program->last, line);
        on_line(soak, program, line);
        line = end + 1;
    }
    ct_buf_consume(&program->line, taken);
}

void program_pump(struct program *program, struct soak *soak,
                  void (*on_line)(struct soak *soak, struct program *program, const char *line))
{
    char text[16384];
    ssize_t got;

    if (program->output < 0)
        return;
    while ((got = read(program->output, text, sizeof text)) > 0) {
        (void)ct_fs_write_all(program->log, text, (size_t)got);
        if (ct_buf_append(&program->line, text, (size_t)got) != 0)
            ct_buf_clear(&program->line);
        else
            take_lines(program, soak, on_line);
    }
    if (got == 0) {
        (void)close(program->output);
        program->output = -1;
    }
}

bool program_ended(struct program *program)
{
    int status;

    if (program->pid == 0 || waitpid(program->pid, &status, WNOHANG) != program->pid)
        return false;
    program->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    program->pid = 0;
    return true;
}

void program_destroy(struct program *program)
{
    if (program->pid > 0) {
        (void)kill(program->pid, SIGKILL);
        (void)waitpid(program->pid, NULL, 0);
        program->pid = 0;
    }
    if (program->output >= 0)
        (void)close(program->output);
    if (program->log >= 0)
        (void)close(program->log);
    program->output = program->log = -1;
    ct_buf_deinit(&program->line);
}
