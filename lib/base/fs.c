/* See fs.h. */
#include "base/fs.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, const char *path, size_t limit, struct ct_buf *buf,
                    struct ct_error *err)
{
    size_t start = buf->size;

    for (;;) {
        char *at = ct_buf_reserve(buf, 64 * 1024);
        if (at == NULL)
            return ct_error_set(err, CT_ENOMEM, "%s: out of memory while reading", path);
        ssize_t got = read(fd, at, 64 * 1024);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ct_error_set(err, CT_ENOINPUT, "%s: cannot be read: %s", path, strerror(errno));
        buf->size += (size_t)got;
        at[got] = '\0';
        if (got == 0)
            return 0;
        if (buf->size - start > limit)
            return ct_error_set(err, CT_ELIMIT, "%s: larger than the limit of %zu bytes", path,
                                limit);
    }
}

int ct_fs_read(const char *path, size_t limit, struct ct_buf *buf, struct ct_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int code = read_all(fd, path, limit, buf, err);
    (void)close(fd);
    return code;
}

int ct_fs_write_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t written = write(fd, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

int ct_fs_sync_parent(const char *path)
{
    char parent[PATH_MAX];

    if (!ct_str_copy(parent, sizeof parent, path))
        return -ENAMETOOLONG;
    char *slash = strrchr(parent, '/');
    if (slash == NULL)
        (void)ct_str_copy(parent, sizeof parent, ".");
    else
        slash[slash == parent] = '\0';
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int code = fsync(fd) != 0 ? -errno : 0;
    (void)close(fd);
    return code;
}

/* Create "PATH.XXXXXX", a name that nobody has; umask applies to `mode`. The descriptor, or a
 * negative errno. */
static int create_beside(const char *path, mode_t mode, char temporary[PATH_MAX])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    int length = snprintf(temporary, PATH_MAX, "%s.XXXXXX", path);

    if (length < 0 || length >= PATH_MAX)
        return -ENAMETOOLONG;
    for (;;) {
        unsigned char dice[CT_FS_SUFFIX - 1];
        if (getrandom(dice, sizeof dice, 0) != (ssize_t)sizeof dice)
            return -EIO;
        for (size_t i = 0; i < sizeof dice; i++)
            temporary[(size_t)length - sizeof dice + i] = letters[dice[i] % 32];
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : -errno;
    }
}

static int replace(const char *path, const void *data, size_t size, mode_t mode,
                   struct ct_error *err)
{
    char temporary[PATH_MAX];
    int fd = create_beside(path, mode, temporary);

    if (fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "%s: cannot be created: %s", path, strerror(-fd));
    int code = ct_fs_write_all(fd, data, size);
    if (code == 0 && fsync(fd) != 0)
        code = -errno;
    if (close(fd) != 0 && code == 0)
        code = -errno;
    if (code == 0 && rename(temporary, path) != 0)
        code = -errno;
    if (code == 0)
        code = ct_fs_sync_parent(path);
    else
        (void)unlink(temporary);
    if (code == 0)
        return 0;
    return ct_error_set(err, CT_EIO, "%s: cannot be written: %s", path, strerror(-code));
}

int ct_fs_replace(const char *path, const void *data, size_t size, struct ct_error *err)
{
    return replace(path, data, size, 0666, err);
}

int ct_fs_replace_private(const char *path, const void *data, size_t size, struct ct_error *err)
{
    return replace(path, data, size, 0600, err);
}

/* Is it there now? Else errno says why not. */
static bool make_dir(const char *path)
{
    struct stat info;

    return mkdir(path, 0755) == 0 ||
           (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

int ct_fs_make_dirs(const char *path, struct ct_error *err)
{
    char partial[PATH_MAX];

    if (path[0] == '\0' || !ct_str_copy(partial, sizeof partial, path))
        return ct_error_set(err, CT_ECANTCREAT, "directory \"%.64s\": not a usable path", path);
    if (make_dir(partial)) /* mostly its parents are there */
        return 0;
    for (char *at = partial + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        if (!make_dir(partial))
            return ct_error_set(err, CT_ECANTCREAT, "directory %s: cannot be created: %s", partial,
                                errno == EEXIST || errno == ENOTDIR
                                    ? "there is a file of that name; name another folder"
                                    : strerror(errno));
        *at = kept;
        if (kept == '\0')
            return 0;
    }
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path) != 0 ? -errno : 0;
}

int ct_fs_remove_tree(const char *path)
{
    int code = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);

    return code == -1 ? -errno : code;
}
