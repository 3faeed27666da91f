/* See procfs.h. */
#include "cluster/procfs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *open_file(pid_t pid, const char *name)
{
    char path[96];

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

bool procfs_stat(pid_t pid, struct procfs_stat *ret_stat)
{
    char text[1024], state;
    unsigned long user, system;
    unsigned long long born;
    int parent;
    FILE *file = open_file(pid, "stat");

    if (file == NULL)
        return false;
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    const char *after = strrchr(text, ')'); /* a name may have blanks */
    if (after == NULL || sscanf(after,
                                ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d "
                                "%*d %*d %*d %*d %llu",
                                &state, &parent, &user, &system, &born) != 5)
        return false;
    *ret_stat =
        (struct procfs_stat){.state = state,
                             .parent = parent,
                             .born = born,
                             .cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK)};
    return true;
}

bool procfs_is_alive(const struct procfs_stat *stat)
{
    return stat->state != 'Z' && stat->state != 'X';
}

bool procfs_lives(pid_t pid, uint64_t born)
{
    struct procfs_stat now;

    return procfs_stat(pid, &now) && now.born == born && procfs_is_alive(&now);
}

/* The number behind `label` at the start of a line. */
static uint64_t number_in(pid_t pid, const char *name, const char *label)
{
    char line[256];
    uint64_t value = 0;
    FILE *file = open_file(pid, name);

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, label, strlen(label)) == 0)
            value = strtoull(line + strlen(label), NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return value;
}

uint64_t procfs_resident_bytes(pid_t pid, bool exact)
{
    return 1024 *
           (exact ? number_in(pid, "smaps_rollup", "Rss:") : number_in(pid, "status", "VmRSS:"));
}

uint64_t procfs_written_bytes(pid_t pid)
{
    return number_in(pid, "io", "wchar:");
}

long procfs_descriptors(pid_t pid)
{
    char path[64];
    long count = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder != NULL)
        (void)closedir(folder);
    return count;
}

static bool has_one_of(const char *line, const char *const words[])
{
    for (; *words != NULL; words++)
        if (strstr(line, *words) != NULL)
            return true;
    return false;
}

long procfs_mappings(pid_t pid, const char *const words[])
{
    char line[1024];
    long count = 0;
    FILE *file = open_file(pid, "maps");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        count += has_one_of(line, words);
    if (file != NULL)
        (void)fclose(file);
    return count;
}

static bool is_named(pid_t pid, const char *name)
{
    char text[32] = "";
    FILE *file = open_file(pid, "comm");

    if (file == NULL)
        return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return read && strcmp(text, name) == 0;
}

int procfs_children(pid_t pid, const char *name, struct procfs_child *children, int room,
                    int *ret_zombies)
{
    char path[64];
    int count = 0, zombies = 0, child;
    struct procfs_stat stat;

    (void)snprintf(path, sizeof path, "task/%d/children", (int)pid);
    FILE *file = open_file(pid, path);
    while (file != NULL && fscanf(file, "%d", &child) == 1) {
        if (!procfs_stat(child, &stat))
            continue;
        if (stat.state == 'Z')
            zombies++;
        else if (count < room && is_named(child, name))
            children[count++] = (struct procfs_child){child, stat.born};
    }
    if (file != NULL)
        (void)fclose(file);
    if (ret_zombies != NULL)
        *ret_zombies = zombies;
    return count;
}
