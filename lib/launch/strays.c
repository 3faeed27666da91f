/* See strays.h. */
#include "launch/strays.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    PAUSE_MS = 5, /* for the killed to go, and for their children to get another parent */
    GENERATIONS = 64,
};

void ct_strays_mark(char mark[CT_MARK_TEXT])
{
    unsigned char random[CT_MARK_BYTES];

    mark[0] = '\0';
    if (getrandom(random, sizeof random, 0) == (ssize_t)sizeof random)
        ct_put_hex(random, sizeof random, mark);
}

/* ---- one process ---------------------------------------------------------------------------- */

static int open_of(pid_t pid, const char *file)
{
    char name[48];

    (void)snprintf(name, sizeof name, "/proc/%d/%s", (int)pid, file);
    return open(name, O_RDONLY | O_CLOEXEC);
}

static bool read_of(pid_t pid, const char *file, char *text, size_t room)
{
    int fd = open_of(pid, file);

    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, room - 1);
    (void)close(fd);
    text[CT_MAX(size, 0)] = '\0';
    return size > 0;
}

pid_t ct_strays_parent(pid_t pid)
{
    char text[512];
    int parent = 0;

    if (!read_of(pid, "stat", text, sizeof text))
        return 0;
    const char *end = strrchr(text, ')'); /* "PID (NAME) STATE PARENT ..." */
    return end != NULL && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Another user's memory is not looked into, as root neither: to read a page of it can take for
 * ever. The owner of /proc/PID says less: root has those that are not to be traced. */
static bool is_of_this_user(pid_t pid)
{
    char text[512];
    unsigned uid;

    if (!read_of(pid, "status", text, sizeof text))
        return false;
    const char *line = strstr(text, "\nUid:");
    return line != NULL && sscanf(line, " Uid: %u", &uid) == 1 && uid == getuid();
}

static bool has_mark(pid_t pid, const char *mark)
{
    static char text[1 << 14];
    size_t length = strlen(mark), kept = 0;
    int fd = is_of_this_user(pid) ? open_of(pid, "environ") : -1;
    ssize_t size = 0;
    bool found = false;

    while (fd >= 0 && !found && (size = read(fd, text + kept, sizeof text - kept)) > 0) {
        size_t here = kept + (size_t)size;

        found = memmem(text, here, mark, length) != NULL;
        kept = CT_MIN(here, length - 1); /* it may begin here and go on behind */
        memmove(text, text + here - kept, kept);
    }
    if (fd >= 0)
        (void)close(fd);
    return found;
}

static bool is_stray(pid_t pid, const char *mark, pid_t agent)
{
    for (int i = 0; i < GENERATIONS && pid > 1 && pid != getpid() && has_mark(pid, mark); i++) {
        pid = ct_strays_parent(pid);
        if (pid != 0 && (pid == agent || pid == getppid()))
            return true;
    }
    return false;
}

/* By a descriptor: the number may be given to another process meanwhile. */
static bool end_stray(pid_t pid, const char *mark, pid_t agent)
{
    int process = pidfd_open(pid, 0);
    bool found = process >= 0 && is_stray(pid, mark, agent);

    if (found)
        (void)pidfd_send_signal(process, SIGKILL, NULL, 0);
    if (process >= 0)
        (void)close(process);
    return found;
}

bool ct_strays_possible(pid_t agent)
{
    char file[32], text[64];
    int child = 0, end = 0;

    (void)snprintf(file, sizeof file, "task/%d/children", (int)agent);
    return !read_of(agent, file, text, sizeof text) || sscanf(text, "%d %n", &child, &end) != 1 ||
           child != getpid() || text[end] != '\0';
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Was there one? */
static bool scan_once(const char *mark, pid_t agent)
{
    static _Alignas(struct dirent64) char entries[1 << 15];
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t size = 0;
    bool found = false;

    while (fd >= 0 && (size = getdents64(fd, entries, sizeof entries)) > 0) {
        for (ssize_t at = 0; at < size;) {
            const struct dirent64 *entry = (const void *)(entries + at);

            if (isdigit((unsigned char)entry->d_name[0]))
                found |= end_stray((pid_t)strtol(entry->d_name, NULL, 10), mark, agent);
            at += entry->d_reclen;
        }
    }
    if (fd >= 0)
        (void)close(fd);
    return found;
}

void ct_strays_end(const char *mark, pid_t agent, uint64_t limit_ms)
{
    uint64_t begin_ms = ct_clock_mono_ms(&ct_clock_system);

    while (mark[0] != '\0' && scan_once(mark, agent) &&
           ct_clock_mono_ms(&ct_clock_system) - begin_ms < limit_ms)
        (void)poll(NULL, 0, PAUSE_MS);
}
