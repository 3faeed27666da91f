/* See e2e.h. */
#include "e2e.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cluster/job.h"
#include "cluster/procfs.h"
#include "cluster/status.h"
#include "speech.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[PATH_MAX];
static char folder[64];

void e2e_enter(void)
{
    static char programs[PATH_MAX];

    cr_assert_not_null(getcwd(root, sizeof root));
    cr_assert_not_null(realpath(proc_program("."), programs), "the programs are not built");
    (void)setenv("TEST_PROGRAMS", programs, 1);
    (void)ct_str_copy(folder, sizeof folder, proc_temp_dir());
    cr_assert_eq(chdir(folder), 0);
}

void e2e_leave(void)
{
    cr_assert_eq(chdir(root), 0);
    proc_remove_tree(folder);
}

static const char *join(const char *base, const char *path)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *at = paths[next++ % CT_COUNT(paths)];

    cr_assert_lt(snprintf(at, PATH_MAX, "%s/%s", base, path), PATH_MAX);
    return at;
}

const char *e2e_in_root(const char *path)
{
    return join(root, path);
}

const char *e2e_in_folder(const char *path)
{
    return join(folder, path);
}

const char *e2e_write(const char *name, const char *text)
{
    const char *path = e2e_in_folder(name);
    struct ct_error err = {0};

    cr_assert_eq(ct_fs_replace(path, text, strlen(text), &err), 0, "%s", err.text);
    return path;
}

const char *e2e_script(const char *name, const char *text)
{
    const char *path = e2e_write(name, text);

    cr_assert_eq(chmod(path, 0755), 0);
    return path;
}

const char *e2e_read(const char *path)
{
    static struct ct_buf content;
    struct ct_error err = {0};

    ct_buf_clear(&content);
    (void)ct_fs_read(path, 1u << 20, &content, &err);
    return ct_buf_str(&content);
}

bool e2e_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void start_with(struct proc *proc, const char *first, va_list rest)
{
    const char *argv[48] = {proc_program("ctrun"), first};
    size_t count = 2;

    for (const char *word = first; word != NULL; argv[count++] = word) {
        cr_assert_lt(count + 1, CT_COUNT(argv));
        word = va_arg(rest, const char *);
        if (word == NULL)
            break;
    }
    argv[count] = NULL;
    proc_start(proc, argv, NULL);
}

void e2e_start(struct proc *proc, const char *first, ...)
{
    va_list rest;

    va_start(rest, first);
    start_with(proc, first, rest);
    va_end(rest);
}

int e2e_run(struct proc *proc, const char *first, ...)
{
    va_list rest;

    va_start(rest, first);
    start_with(proc, first, rest);
    va_end(rest);
    return proc_finish(proc, 60);
}

void e2e_said(const struct proc *proc, const char *words)
{
    cr_assert_not_null(strstr(ct_buf_str(&proc->text), words), "\"%s\" is missing in:\n%s", words,
                       ct_buf_str(&proc->text));
}

void e2e_not_said(const struct proc *proc, const char *words)
{
    cr_assert_null(strstr(ct_buf_str(&proc->text), words), "\"%s\" is in:\n%s", words,
                   ct_buf_str(&proc->text));
}

void e2e_wrote(const struct proc *proc, const char *words)
{
    if (!speech_is_json())
        e2e_said(proc, words);
}

/* A walk of its own: strstr under AddressSanitizer measures the whole rest at each call. */
int e2e_count(const char *text, const char *words)
{
    size_t length = strlen(words);
    int count = 0;

    for (const char *at = text; *at != '\0'; at++)
        count += *at == words[0] && strncmp(at, words, length) == 0;
    return count;
}

static bool has_content(void *context)
{
    return e2e_read(context)[0] != '\0';
}

const char *e2e_wait_file(const char *path, double seconds)
{
    proc_until(has_content, (void *)(uintptr_t)path, seconds, path);
    return e2e_read(path);
}

const char *e2e_glob(const char *pattern)
{
    static char path[PATH_MAX];
    glob_t found;

    cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "nothing matches %s", pattern);
    cr_assert_eq(found.gl_pathc, 1u, "%zu paths match %s", found.gl_pathc, pattern);
    (void)ct_str_copy(path, sizeof path, found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static bool is_gone(void *context)
{
    return !proc_alive(*(const pid_t *)context);
}

void e2e_wait_gone(pid_t pid, double seconds)
{
    proc_until(is_gone, &pid, seconds, "the end of a process");
}

/* An agent has other children for moments (LeakSanitizer's, at its end). */
int e2e_workers(const struct proc *agent, pid_t *pids, int room)
{
    struct procfs_child workers[64];
    int count = procfs_children(agent->pid, "ctworker", workers,
                                CT_MIN(room, (int)CT_COUNT(workers)), NULL);

    for (int i = 0; i < count; i++)
        pids[i] = workers[i].pid;
    return count;
}

int e2e_loopback_socket(int *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

int e2e_free_port(void)
{
    int port, fd = e2e_loopback_socket(&port);

    (void)close(fd);
    return port;
}

const char *e2e_daemon(struct proc *daemon)
{
    static char endpoint[64];
    const char *port_file = e2e_in_folder("daemon.port");
    struct words words = {0};

    job_daemon_words(&words, proc_program("ctrund"), "127.0.0.1:0", port_file);
    proc_start(daemon, words.list, NULL);
    int port = job_await_port(port_file, 10);
    cr_assert_neq(port, 0, "the daemon does not listen");
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    return endpoint;
}

void e2e_get(const char *socket_name, const char *path, char *text, size_t room)
{
    (void)status_get(e2e_in_folder(socket_name), path, 500, text, room);
}
