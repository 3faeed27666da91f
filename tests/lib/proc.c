/* See proc.h. */
#include "proc.h"

#include "base/fs.h"
#include "cluster/procfs.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double proc_now_s(void)
{
    return process_now_s();
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

void proc_start(struct proc *proc, const char *const argv[], const char *const env[])
{
    int rc = process_spawn(proc, argv, &(struct process_how){.env = env});

    cr_assert_eq(rc, 0, "%s: %s", argv[0], strerror(-rc));
}

static _Noreturn void give_up(struct proc *proc, const char *what, double seconds)
{
    (void)kill(-proc->pid, SIGKILL);
    (void)kill(proc->pid, SIGKILL);
    cr_assert_fail("%s did not come within %.1f s; the process said%s:\n%s", what, seconds,
                   proc->text.failed ? " more than the test expects" : "", ct_buf_str(&proc->text));
    abort();
}

const char *proc_wait_text(struct proc *proc, const char *needle, double seconds)
{
    const char *found = process_await_text(proc, needle, seconds);

    if (found == NULL)
        give_up(proc, needle, seconds);
    return found;
}

int proc_finish(struct proc *proc, double seconds)
{
    if (!process_await_end(proc, seconds) || proc->text.failed)
        give_up(proc, "the end", seconds);
    return proc->status;
}

int proc_run(struct proc *proc, const char *const argv[], const char *const env[], double seconds)
{
    proc_start(proc, argv, env);
    return proc_finish(proc, seconds);
}

void proc_free(struct proc *proc)
{
    process_free(proc);
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
    cr_assert(process_until(condition, context, seconds), "%s did not come within %.1f s", what,
              seconds);
}

bool proc_alive(pid_t pid)
{
    struct procfs_stat stat;

    return procfs_stat(pid, &stat) && procfs_is_alive(&stat);
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
