/* See guard.h. The guard's own part runs in a fork of the agent: until its last act it calls
 * nothing that allocates, and it never logs. */
#include "launch/guard.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launch/cgroup.h"
#include "launch/strays.h"
#include "launch/worker_env.h"

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
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SHORT_LIVED_MS = 50, /* workers that end sooner are not worth a move between control groups */
    REMOVE_TRIES = 200,
    REMOVE_PAUSE_MS = 10,
    STRAYS_MS = 2000,
    FRESH_MS = 1000, /* so long a signal is news */
    SIGNALS = 65,
};

struct ct_guard_table {
    _Atomic(pid_t) workers[CT_GUARD_WORKERS]; /* process groups, 0 for none */
    _Atomic(uint64_t) received_ms[SIGNALS];   /* when the guard got that signal; 0: not, or told */
    atomic_bool orderly;                      /* the agent sees to its own files */
};

/* ---- the agent's side ----------------------------------------------------------------------- */

void ct_guard_set(const struct ct_guard *guard, uint32_t local_rank, pid_t pid)
{
    if (guard->link >= 0 && local_rank < CT_GUARD_WORKERS)
        atomic_store(&guard->table->workers[local_rank], pid);
}

void ct_guard_notify(const struct ct_guard *guard)
{
    if (guard->link >= 0)
        (void)send(guard->link, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool ct_guard_received(const struct ct_guard *guard, int signal)
{
    if (guard->link < 0 || signal <= 0 || signal >= SIGNALS)
        return false;
    uint64_t received_ms = atomic_exchange(&guard->table->received_ms[signal], 0);
    return received_ms != 0 && ct_clock_mono_ms(&ct_clock_system) - received_ms <= FRESH_MS;
}

struct ct_exit ct_guard_bury(struct ct_guard *guard)
{
    int status = 0;

    (void)close(guard->link);
    guard->link = -1;
    (void)munmap(guard->table, sizeof *guard->table);
    while (waitpid(guard->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return ct_exit_of(status);
}

void ct_guard_stop(struct ct_guard *guard)
{
    if (guard->link < 0)
        return;
    atomic_store(&guard->table->orderly, true);
    (void)ct_guard_bury(guard);
}

/* ---- the guard's side ----------------------------------------------------------------------- */

struct watch {
    int link, signals; /* descriptors */
    pid_t agent;
    struct ct_guard_table *table;
    const char *mark;              /* of all that the workers start */
    pid_t moved[CT_GUARD_WORKERS]; /* those that are in the control group */
    bool no_group;                 /* there can be none */
    struct ct_cgroup group;
};

/* Those that have lived for a while. */
static void move_workers(struct watch *watch)
{
    char own[PATH_MAX];

    if (watch->group.path[0] == '\0' && !watch->no_group)
        watch->no_group = !ct_cgroup_own("", own) || !ct_cgroup_make(&watch->group, own);
    for (uint32_t i = 0; i < CT_GUARD_WORKERS && !watch->no_group; i++) {
        pid_t pid = atomic_load(&watch->table->workers[i]);

        /* The number may have been given to another process meanwhile. */
        if (pid != 0 && pid != watch->moved[i] && ct_strays_parent(pid) == watch->agent)
            (void)ct_cgroup_add(&watch->group, pid);
        watch->moved[i] = pid;
    }
}

static void end_all(struct watch *watch)
{
    for (uint32_t i = 0; i < CT_GUARD_WORKERS; i++) {
        pid_t pid = atomic_load(&watch->table->workers[i]);

        if (pid > 0)
            (void)kill(-pid, SIGKILL);
    }
    ct_cgroup_kill(&watch->group);
    if (!atomic_load(&watch->table->orderly) || ct_strays_possible(watch->agent))
        ct_strays_end(watch->mark, watch->agent, STRAYS_MS);
    for (int i = 0; i < REMOVE_TRIES && !ct_cgroup_remove(&watch->group); i++)
        (void)poll(NULL, 0, REMOVE_PAUSE_MS);
}

/* Who is not seen is above: outside of this PID namespace. */
static bool is_above_agent(const struct watch *watch, pid_t pid)
{
    pid_t above = watch->agent;

    while (above > 0 && above != pid)
        above = ct_strays_parent(above);
    return above == pid;
}

static void receive_signal(struct watch *watch)
{
    struct signalfd_siginfo info;

    if (read(watch->signals, &info, sizeof info) == (ssize_t)sizeof info &&
        info.ssi_signo < SIGNALS && is_above_agent(watch, (pid_t)info.ssi_pid))
        atomic_store(&watch->table->received_ms[info.ssi_signo],
                     ct_clock_mono_ms(&ct_clock_system));
}

/* Until the agent is gone. */
static void listen_to_agent(struct watch *watch)
{
    bool is_due = false;
    char look;

    for (;;) {
        struct pollfd from[] = {{.fd = watch->link, .events = POLLIN},
                                {.fd = watch->signals, .events = POLLIN}};
        int ready = poll(from, CT_COUNT(from), is_due ? SHORT_LIVED_MS : -1);

        if (ready == 0)
            move_workers(watch);
        else if (ready > 0 && from[1].revents != 0)
            receive_signal(watch);
        else if (ready > 0 && recv(watch->link, &look, 1, 0) <= 0)
            return;
        is_due = ready != 0;
    }
}

/* In a worker of another ctrun, whose guard ends what has its mark: this one ends by itself, and
 * has its own workers to end first. */
static void hide(void)
{
    char *marks = getenv(CT_ENV_MARKS);

    if (marks != NULL)
        memset(marks, 0, strlen(marks));
}

static _Noreturn void run_guard(const struct ct_guard *guard, int link, pid_t agent,
                                const char *folder)
{
    static struct watch watch;
    static char mark[CT_MARK_TEXT];
    sigset_t all;

    memcpy(mark, guard->marks, sizeof mark - 1);
    hide();
    watch.mark = mark;
    watch.table = guard->table;
    watch.agent = agent;
    watch.link = dup3(link, 3, O_CLOEXEC) == 3 ? 3 : link;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "ctrun-guard");
    if (chdir("/") != 0) /* no folder is kept busy */
        _exit(1);
    if (watch.link == 3) {
        (void)close_range(0, 2, 0);
        (void)close_range(4, ~0u, 0);
    }
    watch.signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    listen_to_agent(&watch);
    end_all(&watch);
    if (!atomic_load(&watch.table->orderly) && folder[0] != '\0')
        (void)ct_fs_remove_tree(folder);
    _exit(0);
}

/* A mark of its own, before those of the agents that this one descends from. */
static void set_marks(struct ct_guard *guard)
{
    const char *outer = getenv(CT_ENV_MARKS);
    char mark[CT_MARK_TEXT];

    ct_strays_mark(mark);
    if (mark[0] == '\0')
        return;
    (void)snprintf(guard->marks, sizeof guard->marks, "%s:%.*s", mark,
                   (int)(sizeof guard->marks - sizeof mark - 1), outer != NULL ? outer : "");
}

void ct_guard_start(struct ct_guard *guard, const char *folder)
{
    int ends[2];
    pid_t agent = getpid();
    void *table = mmap(NULL, sizeof(struct ct_guard_table), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *guard = (struct ct_guard){.link = -1};
    if (table == MAP_FAILED)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        (void)munmap(table, sizeof(struct ct_guard_table));
        return;
    }
    guard->table = table;
    set_marks(guard);
    guard->pid = fork();
    if (guard->pid == 0)
        run_guard(guard, ends[1], agent, folder);
    (void)close(ends[1]);
    if (guard->pid > 0) {
        guard->link = ends[0];
        return;
    }
    (void)close(ends[0]);
    (void)munmap(table, sizeof(struct ct_guard_table));
}
