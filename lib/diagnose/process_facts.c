/* See process_facts.h. */
#include "diagnose/process_facts.h"

#include "base/assert.h"
#include "base/str.h"
#include "hardware/affinity.h"
#include "launch/strays.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1024, PROCESSES_MAX = 1 << 16, DEPTH_MAX = 8 };

/* A file of a process; false when it cannot be read. */
static bool read_file(pid_t pid, const char *name, char text[FILE_BYTES])
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return ct_sys_read("", path, text, FILE_BYTES);
}

static uint64_t field_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

bool ct_process_facts(pid_t pid, struct ct_process_facts *ret_facts)
{
    char text[FILE_BYTES];
    unsigned long long user, system, children_user, children_system;
    long tick = sysconf(_SC_CLK_TCK);
    int parent;
    char state;

    if (!read_file(pid, "stat", text))
        return false;
    const char *at = strrchr(text, ')'); /* its name may have anything in it */
    if (at == NULL ||
        sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &state,
               &parent, &user, &system, &children_user, &children_system) != 6)
        return false;
    *ret_facts = (struct ct_process_facts){
        .state = state,
        .parent = parent,
        .cpu_ms =
            (user + system + children_user + children_system) * 1000 / (uint64_t)CT_MAX(tick, 1L),
    };
    if (read_file(pid, "io", text))
        ret_facts->io_bytes = field_of(text, "rchar: ") + field_of(text, "wchar: ");
    return true;
}

/* ---- families ------------------------------------------------------------------------------- */

struct process {
    pid_t pid, parent;
};

static int compare(const void *a, const void *b)
{
    const struct process *one = a, *other = b;

    return (one->pid > other->pid) - (one->pid < other->pid);
}

static pid_t parent_of(const struct process *all, size_t count, pid_t pid)
{
    const struct process *found =
        bsearch(&(struct process){.pid = pid}, all, count, sizeof *all, compare);

    return found != NULL ? found->parent : 0;
}

/* All processes, by their pids; NULL without memory. */
static struct process *list_all(size_t *ret_count)
{
    struct process *all = NULL;
    size_t count = 0, room = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc");

    while (folder != NULL && (entry = readdir(folder)) != NULL && count < PROCESSES_MAX) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10), parent = ct_strays_parent(pid);
        if (parent == 0)
            continue;
        if (count == room) {
            room = room == 0 ? 256 : 2 * room;
            struct process *more = realloc(all, room * sizeof *all);
            if (more == NULL)
                break;
            all = more;
        }
        all[count++] = (struct process){pid, parent};
    }
    if (folder != NULL)
        (void)closedir(folder);
    if (count > 0)
        qsort(all, count, sizeof *all, compare);
    *ret_count = count;
    return all;
}

static void add(struct ct_process_family *family, pid_t pid)
{
    struct ct_process_facts facts;

    family->digest = family->digest * 1000003 + (uint64_t)pid;
    if (!ct_process_facts(pid, &facts))
        return;
    family->cpu_ms += facts.cpu_ms;
    family->io_bytes += facts.io_bytes;
    family->waiting |= facts.state == 'D';
}

void ct_process_families(struct ct_process_family *families, size_t count)
{
    size_t total;
    struct process *all = list_all(&total);

    for (size_t i = 0; i < count; i++)
        families[i] = (struct ct_process_family){.root = families[i].root};
    for (size_t k = 0; k < total; k++) {
        pid_t above = all[k].parent;

        for (int depth = 0; above > 1 && depth < DEPTH_MAX; depth++) {
            for (size_t i = 0; i < count; i++)
                if (families[i].root == above)
                    add(&families[i], all[k].pid);
            above = parent_of(all, total, above);
        }
    }
    free(all);
}

bool ct_process_is_python(pid_t pid)
{
    char path[64], target[PATH_MAX];

    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t size = readlink(path, target, sizeof target - 1);
    target[CT_MAX(size, 0)] = '\0';
    const char *slash = strrchr(target, '/');
    return slash != NULL &&
           (ct_starts_with(slash + 1, "python") || ct_starts_with(slash + 1, "pypy"));
}
