/* See guard.h. The guard's own part runs in a fork of the agent: it calls nothing that allocates or
 * logs. */
#include "launch/guard.h"

#include "base/assert.h"
#include "launch/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SETTLED_MS = 50, /* workers that end sooner are not worth a move between control groups */
    REMOVE_TRIES = 200,
    REMOVE_PAUSE_MS = 10,
    TABLE_BYTES = CT_GUARD_WORKERS * sizeof(pid_t),
};

/* ---- the agent's side -------------------------------------------------------------------------
 */

void ct_guard_set(const struct ct_guard *guard, uint32_t local_rank, pid_t pid)
{
    if (guard->link >= 0 && local_rank < CT_GUARD_WORKERS)
        atomic_store(&guard->workers[local_rank], pid);
}

void ct_guard_look(const struct ct_guard *guard)
{
    if (guard->link >= 0)
        (void)send(guard->link, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ct_guard_stop(struct ct_guard *guard)
{
    if (guard->link < 0)
        return;
    (void)close(guard->link);
    guard->link = -1;
    (void)munmap((void *)guard->workers, TABLE_BYTES);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* ---- the guard's side -------------------------------------------------------------------------
 */

struct watch {
    int link;
    pid_t agent;
    const _Atomic(pid_t) *workers;
    pid_t moved[CT_GUARD_WORKERS]; /* those that are in the control group */
    bool no_group;                 /* there can be none */
    struct ct_cgroup group;
};

/* A number may have been given to another process meanwhile. */
static bool is_child_of(pid_t pid, pid_t parent)
{
    char name[32], text[512];
    const char *end;
    int of = 0;

    (void)snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[CT_MAX(size, 0)] = '\0';
    end = strrchr(text, ')'); /* "PID (NAME) STATE PARENT ..." */
    return end != NULL && sscanf(end + 1, " %*c %d", &of) == 1 && of == parent;
}

/* Those that have lived for a while. */
static void move_workers(struct watch *watch)
{
    char own[PATH_MAX];

    if (watch->group.path[0] == '\0' && !watch->no_group)
        watch->no_group = !ct_cgroup_own("", own) || !ct_cgroup_make(&watch->group, own);
    for (uint32_t i = 0; i < CT_GUARD_WORKERS && !watch->no_group; i++) {
        pid_t pid = atomic_load(&watch->workers[i]);

        if (pid != 0 && pid != watch->moved[i] && is_child_of(pid, watch->agent))
            (void)ct_cgroup_add(&watch->group, pid);
        watch->moved[i] = pid;
    }
}

static void end_all(struct watch *watch)
{
    for (uint32_t i = 0; i < CT_GUARD_WORKERS; i++) {
        pid_t pid = atomic_load(&watch->workers[i]);

        if (pid > 0)
            (void)kill(-pid, SIGKILL);
    }
    ct_cgroup_kill(&watch->group);
    for (int i = 0; i < REMOVE_TRIES && !ct_cgroup_remove(&watch->group); i++)
        (void)poll(NULL, 0, REMOVE_PAUSE_MS);
}

/* Until the agent is gone. */
static void listen_to_agent(struct watch *watch)
{
    bool is_due = false;
    char look;

    for (;;) {
        struct pollfd link = {.fd = watch->link, .events = POLLIN};
        int ready = poll(&link, 1, is_due ? SETTLED_MS : -1);

        if (ready == 0)
            move_workers(watch);
        else if (ready > 0 && recv(watch->link, &look, 1, 0) <= 0)
            return;
        is_due = ready != 0;
    }
}

static _Noreturn void run_guard(int link, pid_t agent, const _Atomic(pid_t) *workers)
{
    static struct watch watch;

    watch.workers = workers;
    watch.agent = agent;
    watch.link = dup3(link, 3, O_CLOEXEC) == 3 ? 3 : link;
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        (void)signal(signal_number, SIG_IGN);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "ctrun-guard");
    if (chdir("/") != 0) /* no folder is kept busy */
        _exit(1);
    if (watch.link == 3) {
        (void)close_range(0, 2, 0);
        (void)close_range(4, ~0u, 0);
    }
    listen_to_agent(&watch);
    end_all(&watch);
    _exit(0);
}

void ct_guard_start(struct ct_guard *guard)
{
    int ends[2];
    pid_t agent = getpid();
    void *table =
        mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *guard = (struct ct_guard){.link = -1};
    if (table == MAP_FAILED)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        (void)munmap(table, TABLE_BYTES);
        return;
    }
    guard->workers = table;
    guard->pid = fork();
    if (guard->pid == 0)
        run_guard(ends[1], agent, guard->workers);
    (void)close(ends[1]);
    if (guard->pid > 0) {
        guard->link = ends[0];
        return;
    }
    (void)close(ends[0]);
    (void)munmap(table, TABLE_BYTES);
}
