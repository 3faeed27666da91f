/* ctrun flight [--rank N] [--json]: the flight recorders of the ranks on this machine. They lie in
 * shared memory that each agent keeps open, so they are found in /proc, and read whatever agents
 * and ranks are at. */
#include "commands.h"

#include "base/fs.h"
#include "base/str.h"
#include "launch/traces.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS = 1024 };

static const char usage[] = "usage: ctrun flight [--rank N] [--json]\n";

struct search {
    int64_t rank; /* -1: all */
    bool json;
    ino_t seen[RECORDS]; /* a worker may still have its own descriptor */
    size_t seen_count;
    size_t shown;
    struct ct_buf text;
};

static bool is_new(struct search *search, ino_t inode)
{
    for (size_t i = 0; i < search->seen_count; i++)
        if (search->seen[i] == inode)
            return false;
    if (search->seen_count < RECORDS)
        search->seen[search->seen_count++] = inode;
    return true;
}

static void show(struct search *search, int fd)
{
    const struct ct_worker_record *record;
    struct ct_record_view view;
    struct ct_error err = {0};

    if (ct_worker_record_look(fd, &record, &err) != 0)
        return; /* of another version */
    ct_worker_record_read(record, &view);
    if (view.opened && (search->rank < 0 || view.rank == search->rank)) {
        if (search->json)
            (void)ct_flight_print_json(record, ct_ticks_now(), &search->text);
        else
            (void)ct_flight_print(record, ct_ticks_now(), &search->text);
        search->shown++;
    }
    ct_worker_record_unmap(record);
}

/* Is this a descriptor of a worker's record? */
static void look_at(struct search *search, const char *path)
{
    static const char name[] = "/memfd:ctrun-record";
    char target[PATH_MAX];
    struct stat stat;
    ssize_t size = readlink(path, target, sizeof target - 1);

    target[size > 0 ? size : 0] = '\0';
    if (strncmp(target, name, sizeof name - 1) != 0)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && is_new(search, stat.st_ino))
        show(search, fd);
    (void)close(fd);
}

static void look_into(struct search *search, const char *pid)
{
    char folder[64], path[PATH_MAX];
    struct dirent *entry;

    (void)snprintf(folder, sizeof folder, "/proc/%.16s/fd", pid);
    DIR *entries = opendir(folder);
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        look_at(search, path);
    }
    if (entries != NULL)
        (void)closedir(entries);
}

static int complain(const char *text)
{
    (void)fprintf(stderr, "ctrun flight: error: %s\n", text);
    return ct_exit_status(CT_EUSAGE);
}

static int read_words(struct search *search, char **argv)
{
    for (int i = 1; argv[i] != NULL; i++) {
        const char *value = NULL;

        if (strcmp(argv[i], "--json") == 0) {
            search->json = true;
            continue;
        }
        if (strncmp(argv[i], "--rank=", 7) == 0)
            value = argv[i] + 7;
        else if (strcmp(argv[i], "--rank") == 0 && argv[i + 1] != NULL)
            value = argv[++i];
        if (value == NULL || ct_parse_i64(value, &search->rank) != 0 || search->rank < 0)
            return CT_EUSAGE;
    }
    return 0;
}

int ct_cmd_flight(int argc, char **argv)
{
    struct search search = {.rank = -1};
    struct dirent *entry;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (read_words(&search, argv) != 0) {
        (void)fputs(usage, stderr);
        return complain("it takes --rank with a number from 0 on, and --json");
    }
    ct_buf_init(&search.text, 0);
    DIR *entries = opendir("/proc");
    while (entries != NULL && (entry = readdir(entries)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            look_into(&search, entry->d_name);
    if (entries != NULL)
        (void)closedir(entries);
    int rc = ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&search.text), search.text.size);
    ct_buf_deinit(&search.text);
    if (search.shown == 0)
        return complain("no such rank of yours that uses ctrun's library runs on this machine");
    return rc == 0 ? 0 : ct_exit_status(CT_EIO);
}
