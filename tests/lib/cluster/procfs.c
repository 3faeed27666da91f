/* See procfs.h. */
#include "cluster/procfs.h"

#include <dirent.h>
#include <inttypes.h>
#include <netinet/tcp.h>
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

bool procfs_is_stopped(void *pid)
{
    struct procfs_stat stat;

    return procfs_stat(*(const pid_t *)pid, &stat) && stat.state == 'T';
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

uint64_t procfs_proportional_bytes(pid_t pid)
{
    return 1024 * number_in(pid, "smaps_rollup", "Pss:");
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

/* ---- connections ---------------------------------------------------------------------------- */

static int by_inode(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static bool add_inode(struct procfs_network *network, uint64_t inode)
{
    if ((network->count & (network->count - 1)) == 0) { /* 0, or a power of two: it is full */
        size_t room = network->count == 0 ? 1 : 2 * network->count;
        uint64_t *inodes = realloc(network->inodes, room * sizeof *inodes);
        if (inodes == NULL)
            return false;
        network->inodes = inodes;
    }
    network->inodes[network->count++] = inode;
    return true;
}

/* Add those of net/tcp or net/tcp6:
 * "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode". */
static bool add_table(struct procfs_network *network, pid_t pid, const char *name)
{
    char line[512];
    unsigned state;
    uint64_t inode;
    bool good = true;
    FILE *file = open_file(pid, name);

    while (file != NULL && good && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, " %*d: %*s %*s %x %*s %*s %*s %*u %*u %" SCNu64, &state, &inode) == 2 &&
            state == TCP_ESTABLISHED)
            good = add_inode(network, inode);
    if (file != NULL)
        (void)fclose(file);
    return good;
}

bool procfs_network_read(pid_t pid, struct procfs_network *ret_network)
{
    struct procfs_network network = {0};
    struct procfs_stat stat;

    if (!add_table(&network, pid, "net/tcp") || !add_table(&network, pid, "net/tcp6") ||
        !procfs_stat(pid, &stat)) {
        procfs_network_free(&network);
        return false;
    }
    if (network.count > 0)
        qsort(network.inodes, network.count, sizeof *network.inodes, by_inode);
    *ret_network = network;
    return true;
}

void procfs_network_free(struct procfs_network *network)
{
    free(network->inodes);
    *network = (struct procfs_network){0};
}

static bool is_in(const struct procfs_network *network, uint64_t inode)
{
    return network->count > 0 && bsearch(&inode, network->inodes, network->count,
                                         sizeof *network->inodes, by_inode) != NULL;
}

long procfs_connections(pid_t pid, const struct procfs_network *network)
{
    char path[64], target[64];
    uint64_t inode;
    long count = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        count += sscanf(target, "socket:[%" SCNu64 "]", &inode) == 1 && is_in(network, inode);
    }
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

/* What is gathered of children. */
struct family {
    const char *name;
    struct procfs_child *children;
    int room, count, zombies;
};

/* Those that one thread has started. */
static void add_children(struct family *family, pid_t pid, const char *thread)
{
    char path[80];
    int child;
    struct procfs_stat stat;

    (void)snprintf(path, sizeof path, "task/%.40s/children", thread);
    FILE *file = open_file(pid, path);
    while (file != NULL && fscanf(file, "%d", &child) == 1) {
        if (!procfs_stat(child, &stat))
            continue;
        if (stat.state == 'Z')
            family->zombies++;
        else if (family->count < family->room && is_named(child, family->name))
            family->children[family->count++] = (struct procfs_child){child, stat.born};
    }
    if (file != NULL)
        (void)fclose(file);
}

static int by_birth(const void *a, const void *b)
{
    const struct procfs_child *x = a, *y = b;

    if (x->born != y->born)
        return x->born < y->born ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int procfs_children(pid_t pid, const char *name, struct procfs_child *children, int room,
                    int *ret_zombies)
{
    struct family family = {.name = name, .children = children, .room = room};
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            add_children(&family, pid, entry->d_name);
    if (folder != NULL)
        (void)closedir(folder);
    if (family.count > 0)
        qsort(children, (size_t)family.count, sizeof *children, by_birth);
    if (ret_zombies != NULL)
        *ret_zombies = family.zombies;
    return family.count;
}
