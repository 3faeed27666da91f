/* The file of the journal. */
#include "rendezvous/journal_file.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_COMPACT = 1 << 20, READ_LIMIT = 256 << 20 };

struct ct_journal_file {
    struct ct_journal_options options;
    char path[4096];
    int lock_fd;
    int fd;
    struct ct_journal_tail tail;
    size_t size;
    size_t compacted_size; /* of the last snapshot */
    bool broken;           /* the end of the file is unknown */
};

static int lock(struct ct_journal_file *file, struct ct_error *err)
{
    const char *dir = file->options.dir;
    char path[sizeof(file->path)];
    int rc = ct_fs_make_dirs(dir, err);
    if (rc != 0)
        return rc;
    if ((size_t)snprintf(path, sizeof(path), "%s/lock", dir) >= sizeof(path))
        return ct_error_set(err, CT_EUSAGE, "the journal's path is too long: %s", dir);
    (void)snprintf(file->path, sizeof(file->path), "%s/journal", dir);
    file->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->lock_fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "cannot open %s: %s", path, strerror(errno));
    if (flock(file->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "another ctrund works with the journal in %s: "
                            "stop it, or give this one its own --journal",
                            dir);
    return 0;
}

/* Read what is there and cut a torn tail. */
static int replay(struct ct_journal_file *file, struct ct_error *err)
{
    struct ct_buf content;
    size_t valid = 0;
    int rc = 0;
    ct_buf_init(&content, 0);
    if (access(file->path, F_OK) == 0)
        rc = ct_fs_read(file->path, READ_LIMIT, &content, err);
    if (rc == 0)
        rc = ct_journal_scan(content.data, content.size, file->options.replay,
                             file->options.context, &file->tail, &valid, err);
    ct_buf_deinit(&content);
    if (rc != 0) {
        ct_error_prefix(err, "%s", file->path);
        return rc;
    }
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file->fd < 0 || ftruncate(file->fd, (off_t)valid) != 0 || fdatasync(file->fd) != 0 ||
        lseek(file->fd, 0, SEEK_END) < 0 || ct_fs_sync_parent(file->path) != 0)
        return ct_error_set(err, CT_ECANTCREAT, "cannot write %s: %s", file->path, strerror(errno));
    file->size = valid;
    return 0;
}

int ct_journal_open(struct ct_journal_file **ret_file, const struct ct_journal_options *options,
                    struct ct_error *err)
{
    struct ct_journal_file *file = calloc(1, sizeof(*file));
    if (file == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for the journal");
    file->options = *options;
    file->lock_fd = file->fd = -1;
    if (file->options.compact_bytes == 0)
        file->options.compact_bytes = DEFAULT_COMPACT;
    int rc = lock(file, err);
    if (rc == 0)
        rc = replay(file, err);
    if (rc != 0) {
        ct_journal_close(file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

void ct_journal_close(struct ct_journal_file *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->lock_fd >= 0)
        (void)close(file->lock_fd);
    free(file);
}

/* ---- replacing the file by what is still needed ---- */

struct snapshot {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
};

static void emit(void *context, const void *record, size_t size)
{
    struct snapshot *snapshot = context;
    ct_journal_frame(&snapshot->tail, record, size, &snapshot->bytes);
}

static int compact(struct ct_journal_file *file, struct ct_error *err)
{
    struct snapshot snapshot = {.tail = {.seq = file->tail.seq}};
    ct_buf_init(&snapshot.bytes, READ_LIMIT);
    file->options.snapshot(file->options.context, emit, &snapshot);
    int rc = snapshot.bytes.failed
                 ? ct_error_set(err, CT_ENOMEM, "no memory to rewrite %s", file->path)
                 : ct_fs_replace(file->path, snapshot.bytes.data, snapshot.bytes.size, err);
    int fd = rc == 0 ? open(file->path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (rc == 0 && fd < 0)
        rc = ct_error_set(err, CT_EIO, "cannot open %s again: %s", file->path, strerror(errno));
    if (rc == 0) {
        (void)close(file->fd);
        file->fd = fd;
        file->tail = snapshot.tail;
        file->size = file->compacted_size = snapshot.bytes.size;
        file->broken = false;
    }
    ct_buf_deinit(&snapshot.bytes);
    return rc;
}

int ct_journal_append(struct ct_journal_file *file, const void *record, size_t size,
                      struct ct_error *err)
{
    bool grown =
        file->size >= file->options.compact_bytes && file->size >= 2 * file->compacted_size;
    int rc = 0;
    if (file->broken || grown)
        rc = compact(file, err);
    if (rc != 0 && file->broken)
        return CT_EIO;
    struct ct_buf bytes;
    struct ct_journal_tail tail = file->tail;
    ct_buf_init(&bytes, 0);
    ct_journal_frame(&tail, record, size, &bytes);
    rc = bytes.failed ? -ENOMEM : ct_fs_write_all(file->fd, bytes.data, bytes.size);
    if (rc == 0 && fdatasync(file->fd) != 0)
        rc = -errno;
    if (rc == 0) {
        file->tail = tail;
        file->size += bytes.size;
    } else {
        file->broken = true;
        rc = ct_error_set(err, CT_EIO, "cannot write the journal %s: %s", file->path,
                          ct_strerror(rc));
    }
    ct_buf_deinit(&bytes);
    return rc;
}

size_t ct_journal_size(const struct ct_journal_file *file)
{
    return file->size;
}
