/* See cgroup.h. */
#include "launch/cgroup.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where ---------------------------------------------------------------------------------- */

/* The mount point of the cgroup2 tree: "36 25 0:32 / /sys/fs/cgroup rw - cgroup2 ...". */
static bool find_mount(const char *root, char mount[PATH_MAX])
{
    char name[PATH_MAX], line[2 * PATH_MAX];
    bool found = false;

    (void)snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(name, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, " - cgroup2 ") != NULL &&
                sscanf(line, "%*s %*s %*s %*s %4095s", mount) == 1;
    if (file != NULL)
        (void)fclose(file);
    return found;
}

/* The group of this process: "0::/user.slice/...". */
static bool find_group(const char *root, char group[PATH_MAX])
{
    char name[PATH_MAX], line[PATH_MAX];
    bool found = false;

    (void)snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, "0::/", 4) == 0;
        line[strcspn(line, "\n")] = '\0';
    }
    if (file != NULL)
        (void)fclose(file);
    if (found)
        (void)ct_str_copy(group, PATH_MAX, line + 3);
    return found;
}

bool ct_cgroup_own(const char *root, char path[PATH_MAX])
{
    char mount[PATH_MAX], group[PATH_MAX];

    if (!find_mount(root, mount) || !find_group(root, group))
        return false;
    int length = snprintf(path, PATH_MAX, "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);
    return length > 0 && length < PATH_MAX;
}

/* ---- a group -------------------------------------------------------------------------------- */

static bool write_to(const struct ct_cgroup *group, const char *name, const char *text)
{
    char path[PATH_MAX + 32];

    (void)snprintf(path, sizeof path, "%s/%s", group->path, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return done;
}

bool ct_cgroup_make(struct ct_cgroup *group, const char *own)
{
    char kill_file[PATH_MAX + 32];
    int length =
        snprintf(group->path, sizeof group->path, "%s/ctrun-%d-XXXXXX", own, (int)getpid());

    if (length < 0 || length >= (int)sizeof group->path || mkdtemp(group->path) == NULL) {
        group->path[0] = '\0';
        return false;
    }
    (void)snprintf(kill_file, sizeof kill_file, "%s/cgroup.kill", group->path);
    if (access(kill_file, W_OK) == 0)
        return true;
    (void)ct_cgroup_remove(group);
    group->path[0] = '\0';
    return false;
}

bool ct_cgroup_add(const struct ct_cgroup *group, pid_t pid)
{
    char number[16];

    (void)snprintf(number, sizeof number, "%d", (int)pid);
    return group->path[0] != '\0' && write_to(group, "cgroup.procs", number);
}

void ct_cgroup_kill(const struct ct_cgroup *group)
{
    if (group->path[0] != '\0')
        (void)write_to(group, "cgroup.kill", "1");
}

bool ct_cgroup_remove(struct ct_cgroup *group)
{
    if (group->path[0] != '\0' && rmdir(group->path) != 0 && errno != ENOENT)
        return false;
    group->path[0] = '\0';
    return true;
}
