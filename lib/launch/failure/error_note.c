/* See error_note.h. */
#include "launch/failure/error_note.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t moment_of(const struct stat *status, int64_t told_s)
{
    int64_t changed_ms =
        (int64_t)status->st_mtim.tv_sec * 1000 + (int64_t)status->st_mtim.tv_nsec / 1000000;

    /* The text is made a moment before the file. */
    if (told_s < 0 || (changed_ms / 1000 >= told_s && changed_ms / 1000 <= told_s + 1))
        return changed_ms;
    return told_s * 1000;
}

/* All of an open file; a little more than what counts as too much is too much. */
static int read_all(int fd, struct ct_buf *text)
{
    for (;;) {
        char *at = ct_buf_reserve(text, 16 * 1024);
        if (at == NULL)
            return CT_ENOMEM;
        ssize_t got = read(fd, at, 16 * 1024);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        text->size += (size_t)got;
        if (got == 0 || text->size > CT_ERROR_FILE_BYTES)
            return 0;
    }
}

static int read_note(int fd, const char *path, struct ct_arena *arena,
                     struct ct_error_note *ret_note, struct ct_error *why)
{
    struct stat status;
    struct ct_buf text;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return ct_error_set(why, CT_EDATA, "%s is no plain file", path);
    ct_buf_init(&text, 2 * CT_ERROR_FILE_BYTES);
    int rc = read_all(fd, &text);
    if (rc != 0)
        (void)ct_error_set(why, rc, "%s: %s", path, ct_strerror(rc));
    else
        rc = ct_error_file_parse(ct_buf_str(&text), text.size, arena, &ret_note->file, why);
    if (rc == 0)
        ret_note->time_ms = moment_of(&status, ret_note->file.timestamp_s);
    ct_buf_deinit(&text);
    return rc;
}

bool ct_error_note_read(const char *path, struct ct_arena *arena, struct ct_error_note *ret_note,
                        struct ct_error *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    *why = (struct ct_error){0};
    if (fd < 0) {
        if (errno != ENOENT)
            (void)ct_error_set(why, CT_ENOINPUT, "%s: %s", path, ct_strerror(-errno));
        return false;
    }
    int rc = read_note(fd, path, arena, ret_note, why);
    (void)close(fd);
    return rc == 0;
}
