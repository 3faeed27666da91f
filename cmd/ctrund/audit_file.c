/* See audit_file.h. */
#include "audit_file.h"

#include "base/clock.h"
#include "base/log/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int open_path(const char *path, int *ret_fd, struct ct_error *err)
{
    const int flags =
        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

    *ret_fd = open(path, flags, 0600); /* a pipe that nobody reads is refused, not waited for */
    if (*ret_fd >= 0)
        return 0;
    return ct_error_set(err, CT_ECANTCREAT, "cannot open the audit log %s: %s", path,
                        strerror(errno));
}

int audit_file_open(struct audit_file *file, const char *path, struct ct_error *err)
{
    int code = open_path(path, &file->fd, err);

    if (code != 0)
        return code;
    ct_log_init_fd(&file->log, "ctrund", &file->fd);
    file->log.json = true;
    file->writer = ct_log_writer_new(&file->log, file->fd);
    if (file->writer == NULL) {
        (void)close(file->fd);
        return ct_error_set(err, CT_ENOMEM, "no memory for the audit log");
    }
    file->path = path;
    return 0;
}

int audit_file_reopen(struct audit_file *file, struct ct_error *err)
{
    int fd;
    int code = file->path != NULL ? open_path(file->path, &fd, err) : 0;

    if (code != 0 || file->path == NULL)
        return code;
    (void)dup3(fd, file->fd, O_CLOEXEC); /* the thread writes to the same number */
    (void)close(fd);
    return 0;
}

void audit_file_close(struct audit_file *file, unsigned patience_ms)
{
    if (file->path == NULL)
        return;
    ct_log_writer_free(file->writer, patience_ms);
    (void)close(file->fd);
}
