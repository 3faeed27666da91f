/* The files of the journal; see journal_file.h. */
#include "rendezvous/service/journal_file.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_COMPACT = 1 << 20, DEFAULT_LIMIT = 256 << 20, DIR_BYTES = 3072, CLAIMS = 16 };

struct ct_journal_file {
    struct ct_journal_options options;
    char dir[DIR_BYTES];
    DIR *listing; /* held open: looking for a newer epoch must not fail for want of descriptors */
    char path[DIR_BYTES + 64];
    uint64_t epoch; /* 0: none was claimed */
    bool has_lock;
    int lock_fd;
    int fd;
    struct ct_journal_tail tail;
    size_t size;
    size_t compacted_size; /* of the last snapshot */
    bool broken;           /* the end of the file is unknown */
};

/* ---- one daemon a directory ---- */

static void name_file(const struct ct_journal_file *file, uint64_t epoch, char path[DIR_BYTES + 64])
{
    (void)snprintf(path, DIR_BYTES + 64, "%s/journal.%" PRIu64, file->dir, epoch);
}

static bool try_lock(struct ct_journal_file *file)
{
    if (!file->has_lock)
        file->has_lock = flock(file->lock_fd, LOCK_EX | LOCK_NB) == 0;
    return file->has_lock;
}

static int lock(struct ct_journal_file *file, struct ct_error *err)
{
    char path[DIR_BYTES + 64];
    const char *dir = file->options.dir;
    int rc = ct_fs_make_dirs(dir, err);
    if (rc != 0)
        return rc;
    if ((size_t)snprintf(file->dir, sizeof(file->dir), "%s", dir) >= sizeof(file->dir))
        return ct_error_set(err, CT_EUSAGE, "the journal's path is too long: %s", dir);
    file->options.dir = file->dir;
    (void)snprintf(path, sizeof(path), "%s/lock", file->dir);
    file->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->lock_fd < 0)
        return ct_error_set(err, CT_ECANTCREAT, "cannot open %s: %s", path, strerror(errno));
    file->listing = opendir(file->dir);
    if (file->listing == NULL)
        return ct_error_set(err, CT_EIO, "cannot read the journal's directory %s: %s", file->dir,
                            strerror(errno));
    if (!try_lock(file) && !file->options.takeover)
        return ct_error_set(err, CT_EFENCED,
                            "another ctrund works with the journal in %s: stop it, give this one "
                            "its own --journal, or let it take over (--takeover yes)",
                            file->dir);
    return 0;
}

/* ---- epochs ---- */

/* The epoch in a file name, 0 when it is another file. */
static uint64_t epoch_of(const char *name)
{
    char *end;
    if (strncmp(name, "journal.", 8) != 0 || name[8] < '1' || name[8] > '9')
        return 0;
    errno = 0;
    uint64_t epoch = strtoull(name + 8, &end, 10);
    return errno == 0 && *end == '\0' ? epoch : 0;
}

/* What a crash in the midst of a replacement left: the epoch in "journal.EPOCH.XXXXXX", else 0. */
static uint64_t epoch_of_rest(const char *name)
{
    char journal[64];
    size_t length = strlen(name);
    if (length <= CT_FS_SUFFIX || length - CT_FS_SUFFIX >= sizeof(journal) ||
        name[length - CT_FS_SUFFIX] != '.')
        return 0;
    (void)snprintf(journal, sizeof(journal), "%.*s", (int)(length - CT_FS_SUFFIX), name);
    return epoch_of(journal);
}

/* Remove what crashed daemons of older epochs left: they write no more. */
static void remove_rests(const struct ct_journal_file *file)
{
    rewinddir(file->listing);
    for (const struct dirent *entry; (entry = readdir(file->listing)) != NULL;) {
        uint64_t epoch = epoch_of_rest(entry->d_name);
        if (epoch > 0 && epoch < file->epoch)
            (void)unlinkat(dirfd(file->listing), entry->d_name, 0);
    }
}

/* The newest epoch up to `limit` whose file has at least `least` bytes; 0: none. */
static int newest(const struct ct_journal_file *file, uint64_t limit, off_t least,
                  uint64_t *ret_epoch, struct ct_error *err)
{
    DIR *dir = file->listing;
    *ret_epoch = 0;
    rewinddir(dir);
    errno = 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        struct stat status;
        uint64_t epoch = epoch_of(entry->d_name);
        if (epoch > *ret_epoch && epoch <= limit &&
            (least == 0 ||
             (fstatat(dirfd(dir), entry->d_name, &status, 0) == 0 && status.st_size >= least)))
            *ret_epoch = epoch;
        errno = 0;
    }
    if (errno == 0)
        return 0;
    return ct_error_set(err, CT_EIO, "cannot read the journal's directory %s: %s", file->dir,
                        strerror(errno));
}

int ct_journal_check(struct ct_journal_file *file, struct ct_error *err)
{
    uint64_t epoch;
    (void)try_lock(file); /* whoever took over has it once the old daemon is gone */
    int rc = newest(file, UINT64_MAX, 0, &epoch, err);
    if (rc != 0 || epoch <= file->epoch)
        return rc;
    return ct_error_set(err, CT_EFENCED,
                        "a newer ctrund (epoch %" PRIu64 ") has taken over the journal in %s; this "
                        "one, of epoch %" PRIu64 ", ends",
                        epoch, file->dir, file->epoch);
}

/* Create the file of the next epoch: the point from which on an older daemon shows nothing. */
static int claim(struct ct_journal_file *file, struct ct_error *err)
{
    for (int i = 0; i < CLAIMS; i++) {
        uint64_t last;
        int rc = newest(file, UINT64_MAX - 1, 0, &last, err);
        if (rc != 0)
            return rc;
        name_file(file, last + 1, file->path);
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file->fd >= 0) {
            file->epoch = last + 1;
            if (ct_fs_sync_parent(file->path) == 0)
                return 0;
            return ct_error_set(err, CT_EIO, "cannot write %s: %s", file->path, strerror(errno));
        }
        if (errno != EEXIST)
            return ct_error_set(err, CT_ECANTCREAT, "cannot create %s: %s", file->path,
                                strerror(errno));
    }
    return ct_error_set(err, CT_EFENCED, "other daemons take over the journal in %s all the time",
                        file->dir);
}

/* Walk through the newest file with content below epoch `limit`. */
static int read_newest(struct ct_journal_file *file, uint64_t limit, ct_journal_each_fn each,
                       struct ct_error *err)
{
    char path[DIR_BYTES + 64];
    struct ct_buf content;
    size_t valid;
    uint64_t epoch;
    int rc = newest(file, limit, 1, &epoch, err);
    if (rc != 0 || epoch == 0)
        return rc;
    name_file(file, epoch, path);
    ct_buf_init(&content, 0);
    rc = ct_fs_read(path, file->options.limit_bytes, &content, err);
    if (rc == 0)
        rc = ct_journal_scan(content.data, content.size, each, file->options.context, &file->tail,
                             &valid, err);
    ct_buf_deinit(&content);
    if (rc != 0)
        ct_error_prefix(err, "%s", path);
    return rc;
}

static int check_nothing(void *context, const void *payload, size_t size, struct ct_error *err)
{
    (void)context, (void)payload, (void)size, (void)err;
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
    if (file->options.limit_bytes == 0)
        file->options.limit_bytes = DEFAULT_LIMIT;
    if (file->options.check == NULL)
        file->options.check = check_nothing;
    int rc = lock(file, err);
    if (rc == 0) /* a journal that cannot be read is left to the daemon that has it */
        rc = read_newest(file, UINT64_MAX, file->options.check, err);
    if (rc == 0)
        rc = claim(file, err);
    if (rc == 0)
        rc = read_newest(file, file->epoch - 1, options->replay, err);
    if (rc != 0) {
        ct_journal_close(file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

uint64_t ct_journal_epoch(const struct ct_journal_file *file)
{
    return file->epoch;
}

void ct_journal_close(struct ct_journal_file *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->epoch > 0 && file->size == 0)
        (void)unlink(file->path); /* claimed, but never begun */
    if (file->lock_fd >= 0)
        (void)close(file->lock_fd);
    if (file->listing != NULL)
        (void)closedir(file->listing);
    free(file);
}

/* ---- replacing the file by what is still needed ---- */

struct snapshot {
    struct ct_buf bytes;
    struct ct_journal_tail tail;
    size_t needed; /* bytes of all records, whether they had room or not */
};

static int emit(void *context, const void *record, size_t size)
{
    struct snapshot *snapshot = context;
    ct_journal_frame(&snapshot->tail, record, size, &snapshot->bytes);
    snapshot->needed += CT_JOURNAL_HEADER + size;
    return 0;
}

/* What is not read back must not be written. */
static int too_large(const struct ct_journal_file *file, size_t size, struct ct_error *err)
{
    return ct_error_set(err, CT_ELIMIT,
                        "the journal %s would have %zu bytes, more than the %zu that are read "
                        "back: nothing more is kept until jobs end; serve fewer jobs with one "
                        "ctrund",
                        file->path, size, file->options.limit_bytes);
}

static int compact(struct ct_journal_file *file, struct ct_error *err)
{
    struct snapshot snapshot = {.tail = {.seq = file->tail.seq}};
    ct_buf_init(&snapshot.bytes, file->options.limit_bytes);
    int rc = file->options.snapshot(file->options.context, emit, &snapshot);
    if (snapshot.needed > file->options.limit_bytes)
        rc = too_large(file, snapshot.needed, err);
    else if (rc != 0 || snapshot.bytes.failed)
        rc = ct_error_set(err, CT_ENOMEM, "no memory to rewrite %s", file->path);
    else
        rc = ct_fs_replace_private(file->path, snapshot.bytes.data, snapshot.bytes.size, err);
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

int ct_journal_begin(struct ct_journal_file *file, struct ct_error *err)
{
    uint64_t older = 0;
    int rc = compact(file, err);
    if (rc == 0)
        rc = ct_journal_check(file, err);
    while (rc == 0 && newest(file, file->epoch - 1, 0, &older, NULL) == 0 && older > 0) {
        char path[DIR_BYTES + 64];
        name_file(file, older, path);
        if (unlink(path) != 0)
            break; /* it is older, and so it will not be read */
    }
    if (rc == 0)
        remove_rests(file);
    return rc;
}

/* ---- records ---- */

/* Write and sync one record behind the others. */
static int write_record(struct ct_journal_file *file, struct ct_journal_record record,
                        struct ct_error *err)
{
    struct ct_buf bytes;
    struct ct_journal_tail tail = file->tail;
    ct_buf_init(&bytes, 0);
    ct_journal_frame(&tail, record.data, record.size, &bytes);
    int rc = bytes.failed ? -ENOMEM : ct_fs_write_all(file->fd, bytes.data, bytes.size);
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

/* Replace the file where that is due. 0 when `record` can be written behind it. */
static int mend(struct ct_journal_file *file, struct ct_journal_record record, struct ct_error *err)
{
    size_t added = CT_JOURNAL_HEADER + record.size;
    bool grown =
        file->size >= file->options.compact_bytes && file->size >= 2 * file->compacted_size;
    bool full = file->size + added > file->options.limit_bytes;
    if (file->broken && !record.may_compact)
        return ct_error_set(
            err, CT_EIO, "the end of the journal %s is unknown after a failed write", file->path);
    int rc = record.may_compact && (file->broken || grown || full) ? compact(file, err) : 0;
    if (rc != 0 && file->broken)
        return rc;
    if (file->size + added > file->options.limit_bytes)
        return too_large(file, file->size + added, err);
    return 0;
}

int ct_journal_append(struct ct_journal_file *file, struct ct_journal_record record,
                      struct ct_error *err)
{
    int rc = mend(file, record, err);
    if (rc == 0)
        rc = write_record(file, record, err);
    struct ct_error newer = {0};
    int checked = ct_journal_check(file, &newer);
    if (checked == 0)
        return rc;
    *err = newer; /* also when the record is not kept: nothing may be shown any more */
    return checked;
}
