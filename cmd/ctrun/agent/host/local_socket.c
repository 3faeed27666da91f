/* See local_socket.h. */
#include "local_socket.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BASES = 3, BASE_BYTES = 58, FOLDER_BYTES = BASE_BYTES + 18 };

/* Base number `index` with this user's folder in it; false when there is none of that number. */
static bool folder_of(char *const *env, size_t index, char path[FOLDER_BYTES])
{
    static const char *const variables[BASES - 1] = {"XDG_RUNTIME_DIR", "TMPDIR"};
    const char *base = index < BASES - 1 ? ct_env_find(env, variables[index]) : "/tmp";

    if (base == NULL || base[0] != '/' || strlen(base) > BASE_BYTES)
        return false;
    (void)snprintf(path, FOLDER_BYTES, "%.58s/ctrun-%u", base, (unsigned)geteuid());
    return true;
}

/* The folder is there, this user's, and closed to others. */
static bool is_private(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

/* Somebody else has taken /tmp/ctrun-UID: this user's folder of a name that nobody could take
 * before, if there is one already. */
static bool find_spare(char path[FOLDER_BYTES])
{
    char prefix[32];
    bool found = false;
    DIR *dir = opendir("/tmp");

    (void)snprintf(prefix, sizeof prefix, "ctrun-%u.", (unsigned)geteuid());
    if (dir == NULL)
        return false;
    for (const struct dirent *entry = readdir(dir); entry != NULL && !found; entry = readdir(dir)) {
        if (!ct_starts_with(entry->d_name, prefix) ||
            strlen(entry->d_name) >= FOLDER_BYTES - sizeof "/tmp/")
            continue;
        (void)snprintf(path, FOLDER_BYTES, "/tmp/%.70s", entry->d_name);
        found = is_private(path);
    }
    (void)closedir(dir);
    return found;
}

static bool make_spare(char path[FOLDER_BYTES])
{
    if (find_spare(path))
        return true;
    (void)snprintf(path, FOLDER_BYTES, "/tmp/ctrun-%u.XXXXXX", (unsigned)geteuid());
    return mkdtemp(path) != NULL;
}

/* The process that a socket's name (PID.RANDOM.sock) tells of, 0 for another name. */
static pid_t owner_of(const char *name)
{
    char *end;
    size_t size = strlen(name);
    long pid = strtol(name, &end, 10);

    if (end == name || *end != '.' || size < 6 || strcmp(name + size - 5, ".sock") != 0)
        return 0;
    return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

enum { FRESH_S = 60 }; /* an older socket that refuses was not just made, to be listened on */

/* Does nobody listen there? */
static bool is_dead(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !ct_str_copy(address.sun_path, sizeof address.sun_path, path))
        return false;
    bool refused = connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 &&
                   errno == ECONNREFUSED;
    (void)close(fd);
    return refused;
}

/* May a dead socket be removed? Its process alone does not tell: the number may be another's by
 * now, and that of a live one may be unknown here, in another container. */
static bool is_left_behind(pid_t owner, const char *path)
{
    struct stat status;

    if (kill(owner, 0) != 0 && errno == ESRCH)
        return true;
    return lstat(path, &status) == 0 && time(NULL) - status.st_mtime > FRESH_S;
}

static const char *const endings[] = {".sock", ".held.sock"};

static enum local_socket kind_of(const char *name)
{
    return ct_ends_with(name, endings[LOCAL_SOCKET_HOLDER]) ? LOCAL_SOCKET_HOLDER
                                                            : LOCAL_SOCKET_HOST;
}

/* Walk through the sockets of a folder: those of the dead are removed, those of the living and of
 * the kind given back behind the first `count`. Returns how many there are then. */
static size_t walk(const char *folder, enum local_socket kind,
                   char paths[LOCAL_SOCKETS_MAX][LOCAL_SOCKET_BYTES], size_t count)
{
    DIR *dir = is_private(folder) ? opendir(folder) : NULL;

    if (dir == NULL)
        return count;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        pid_t owner = owner_of(entry->d_name);
        char path[LOCAL_SOCKET_BYTES + NAME_MAX + 2];

        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (owner == 0 || strlen(path) >= LOCAL_SOCKET_BYTES)
            continue;
        bool dead = is_dead(path);
        if (dead && is_left_behind(owner, path))
            (void)unlink(path);
        else if (!dead && paths != NULL && kind_of(path) == kind && count < LOCAL_SOCKETS_MAX)
            (void)ct_str_copy(paths[count++], LOCAL_SOCKET_BYTES, path);
    }
    (void)closedir(dir);
    return count;
}

int local_socket_path(char *const *env, enum local_socket kind, char ret_path[LOCAL_SOCKET_BYTES],
                      struct ct_error *err)
{
    char folder[FOLDER_BYTES];
    unsigned mark = 0; /* processes of two containers may have one number */
    int error = ENOENT;

    if (getrandom(&mark, sizeof mark, 0) != (ssize_t)sizeof mark)
        mark = (unsigned)getppid();
    for (size_t i = 0; i <= BASES; i++) {
        bool found = i < BASES
                         ? folder_of(env, i, folder) &&
                               (mkdir(folder, 0700) == 0 || errno == EEXIST) && is_private(folder)
                         : make_spare(folder);
        if (found) {
            (void)walk(folder, kind, NULL, 0);
            (void)snprintf(ret_path, LOCAL_SOCKET_BYTES, "%s/%d.%08x%s", folder, (int)getpid(),
                           mark, endings[kind]);
            return 0;
        }
        error = errno;
    }
    return ct_error_set(err, CT_ECANTCREAT,
                        "no private folder for ctrun's socket can be made under XDG_RUNTIME_DIR, "
                        "TMPDIR or /tmp: %s",
                        ct_strerror(-error));
}

size_t local_socket_find(char *const *env, enum local_socket kind,
                         char ret_paths[LOCAL_SOCKETS_MAX][LOCAL_SOCKET_BYTES])
{
    char folder[FOLDER_BYTES], last[FOLDER_BYTES] = "";
    size_t count = 0;

    for (size_t i = 0; i < BASES; i++) {
        if (!folder_of(env, i, folder) || strcmp(folder, last) == 0)
            continue;
        (void)ct_str_copy(last, sizeof last, folder);
        count = walk(folder, kind, ret_paths, count);
    }
    if (!is_private(last) && find_spare(folder)) /* `last` is /tmp's */
        count = walk(folder, kind, ret_paths, count);
    return count;
}
