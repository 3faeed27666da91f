/* Files: read whole with a limit, write so that a crash leaves the old or the new file. */
#ifndef CT_BASE_FS_H
#define CT_BASE_FS_H

#include "base/bytes.h"
#include "base/error.h"

#include <stddef.h>

/* Append the whole of `path` to `buf`; a file above `limit` bytes is refused with CT_ELIMIT, a
 * directory or a missing file with CT_ENOINPUT. */
int ct_fs_read(const char *path, size_t limit, struct ct_buf *buf, struct ct_error *err);

/* Write all of `size` bytes; 0 or a negative errno (short writes and EINTR handled). */
int ct_fs_write_all(int fd, const void *data, size_t size);

/* Of the temporary file of a replacement, behind the path: a dot and six letters or digits. A crash
 * in the midst of a replacement leaves it behind. */
enum { CT_FS_SUFFIX = 7 };

/* Replace `path` by `size` bytes: temporary file, fsync, rename, fsync of the directory. On any
 * error (CT_EIO, CT_ECANTCREAT) the old file stays and no temporary is left. The new file has mode
 * 0666 less the umask; a private one 0600. */
int ct_fs_replace(const char *path, const void *data, size_t size, struct ct_error *err);
int ct_fs_replace_private(const char *path, const void *data, size_t size, struct ct_error *err);

/* Flush the directory of `path` (fsync). 0 or a negative errno. */
int ct_fs_sync_parent(const char *path);

/* Make the directory and its parents, unless they exist. 0 or CT_ECANTCREAT. */
int ct_fs_make_dirs(const char *path, struct ct_error *err);

/* Remove a file, or a directory with everything in it (symbolic links are removed, never followed).
 * 0 or a negative errno. */
int ct_fs_remove_tree(const char *path);

#endif
