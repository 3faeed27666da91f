/* What processes hold, as /proc shows it: descriptors, shared memory, memory. See soak.h. */
#include "soak.h"

#include "base/assert.h"
#include "base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a process may hold at most: twice what the largest world needs (a worker: two connections to
 * each other rank), so that one descriptor lost a round is seen within minutes. And how much memory
 * more than at its first census after a minute. An agent that may hold the record has connections
 * of the other agents, and one each way to each other holder. */
enum {
    MOST_FDS = 40,
    MORE_FDS_HOLDER = 3 * SOAK_HOSTS,
    MOST_MEMFDS = 6,
    MORE_RSS_KIB = 6144,
    WARM_S = 60
};

/* ---- holdings ------------------------------------------------------------------------------- */

static struct tracked *find(struct census *census, pid_t pid, uint64_t born)
{
    struct tracked *unused = NULL;

    for (size_t i = 0; i < SOAK_TRACKED; i++) {
        struct tracked *it = &census->tracked[i];
        if (it->pid == pid && it->born == born)
            return it;
        if (it->pid == 0 || !procfs_lives(it->pid, it->born))
            unused = it;
    }
    if (unused != NULL)
        *unused = (struct tracked){.pid = pid, .born = born};
    return unused;
}

static void compare(struct soak *soak, const struct tracked *it)
{
    static const char *const names[ROLE_COUNT] = {"the daemon", "agent", "worker"};
    const struct holding *first = &it->first, *last = &it->last;
    bool holder = soak->leaders && it->role == ROLE_AGENT;
    long most_fds = MOST_FDS + (holder ? MORE_FDS_HOLDER : 0);

    if (last->fds > most_fds)
        report_alarm(soak, "%s %d of host %d has %ld descriptors, %ld after its start",
                     names[it->role], (int)it->pid, it->host, last->fds, first->fds);
    if (last->memfds > MOST_MEMFDS)
        report_alarm(soak, "%s %d of host %d maps %ld pieces of shared memory, %ld after its start",
                     names[it->role], (int)it->pid, it->host, last->memfds, first->memfds);
    if (last->rss_kib > first->rss_kib + MORE_RSS_KIB)
        report_alarm(soak, "%s %d of host %d holds %ld KiB, %ld after its first minute",
                     names[it->role], (int)it->pid, it->host, last->rss_kib, first->rss_kib);
}

static struct holding holding_of(pid_t pid)
{
    static const char *const ours[] = {"/memfd:ctrun-", "/dev/shm/", NULL};

    return (struct holding){procfs_descriptors(pid), procfs_mappings(pid, ours),
                            (long)(procfs_resident_bytes(pid, false) / 1024)};
}

static void track(struct soak *soak, enum role role, int host, pid_t pid)
{
    double now_s = soak_now_s(soak);
    struct procfs_stat stat;

    if (pid == 0 || !procfs_stat(pid, &stat))
        return;
    struct tracked *it = find(&soak->census, pid, stat.born);
    if (it == NULL)
        return;
    it->role = role;
    it->host = host;
    it->last = holding_of(pid);
    it->last_s = now_s;
    if (it->times == 0) {
        it->first = it->last;
        it->first_s = now_s;
    } else if (it->sum_t == 0) { /* memory counts from the first census after a minute */
        it->first.rss_kib = it->last.rss_kib;
    }
    it->times++;
    if (now_s - it->first_s > WARM_S) {
        double minutes = (now_s - it->first_s) / 60;
        it->samples++;
        it->sum_t += minutes;
        it->sum_tt += minutes * minutes;
        it->sum_m += (double)it->last.rss_kib;
        it->sum_tm += minutes * (double)it->last.rss_kib;
    }
    compare(soak, it);
    struct tracked *eldest = &soak->census.eldest[role];
    if (it->last_s - it->first_s >= eldest->last_s - eldest->first_s)
        *eldest = *it;
}

double census_slope(const struct tracked *it)
{
    double n = it->samples;
    double spread = n * it->sum_tt - it->sum_t * it->sum_t;

    return spread > 0 ? (n * it->sum_tm - it->sum_t * it->sum_m) / spread : 0;
}

/* 0: it is not running. */
static pid_t pid_of(const struct proc *proc)
{
    return process_runs(proc) ? proc->pid : 0;
}

void census_take(struct soak *soak)
{
    track(soak, ROLE_DAEMON, SOAK_HOSTS + soak->cast.serving, pid_of(cast_daemon(soak)));
    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        track(soak, ROLE_AGENT, i, pid_of(node->agent));
        for (int k = 0; k < SOAK_SLOTS; k++)
            track(soak, ROLE_WORKER, i, node->workers[k].pid);
    }
    soak->census.taken++;
}

/* ---- when nothing moves any more ------------------------------------------------------------ */

/* Where each thread of a process stands, by gdb when it is there, in stack.PID beside the logs. */
static void write_stack(struct soak *soak, pid_t pid)
{
    char command[SOAK_PATH + 256];

    if (pid == 0)
        return;
    (void)snprintf(command, sizeof command,
                   "{ grep -H . /proc/%d/task/*/wchan; gdb -p %d -batch -ex 'thread apply all bt'; "
                   "} >%s/stack.%d 2>/dev/null",
                   (int)pid, (int)pid, soak->folder, (int)pid);
    if (system(command) != 0)
        report_event(soak, "where process %d stands is not known", (int)pid);
}

void census_stacks(struct soak *soak)
{
    write_stack(soak, pid_of(cast_daemon(soak)));
    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        write_stack(soak, pid_of(node->agent));
        for (int k = 0; k < SOAK_SLOTS; k++)
            write_stack(soak, node->workers[k].pid);
    }
}

/* ---- after the end -------------------------------------------------------------------------- */

/* All programs were started in the soak's folder: who is still there was left. */
static void find_processes(struct soak *soak)
{
    DIR *folder = opendir("/proc");

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[300], target[SOAK_PATH];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        (void)snprintf(path, sizeof path, "/proc/%s/cwd", entry->d_name);
        ssize_t size = readlink(path, target, sizeof target - 1);
        if (size <= 0)
            continue;
        target[size] = '\0';
        if (!ct_starts_with(target, soak->folder))
            continue;
        report_alarm(soak, "process %s was left behind", entry->d_name);
        (void)kill((pid_t)atoi(entry->d_name), SIGKILL);
    }
    if (folder != NULL)
        (void)closedir(folder);
}

static void find_files(struct soak *soak, const char *path, const char *prefix)
{
    DIR *folder = opendir(path);

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.' && ct_starts_with(entry->d_name, prefix))
            report_alarm(soak, "%s/%s was left behind", path, entry->d_name);
    if (folder != NULL)
        (void)closedir(folder);
}

static int count_files(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

void census_leftovers(struct soak *soak)
{
    static const struct {
        const char *path;
        int most;
    } folders[] = {
        {"journal", 3},         /* the lock, the newest tenure's file, one that was taken over */
        {"run/checkpoints", 4}, /* two that are kept, one that was being written, latest */
        {"run/log", 3},         /* the configuration, the run's line, the metrics */
        {"tmp/ctrun-0", 0},     /* local sockets of a ctrun that serves, of root */
    };
    char path[SOAK_PATH];

    find_processes(soak);
    for (size_t i = 0; i < CT_COUNT(folders); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", soak->folder, folders[i].path);
        int count = count_files(path);
        if (count > folders[i].most)
            report_alarm(soak, "%s holds %d files, %d should do", path, count, folders[i].most);
    }
    find_files(soak, "/dev/shm", "ctrun");
    (void)snprintf(path, sizeof path, "%s/tmp/ctrun-0", soak->folder);
    if (soak->leaders) /* it is made once, for all */
        (void)rmdir(path);
    (void)snprintf(path, sizeof path, "%s/tmp", soak->folder);
    find_files(soak, path, "");
}
