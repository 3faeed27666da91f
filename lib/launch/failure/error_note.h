/* Error files on disk: a worker's error, and its time. */
#ifndef CT_LAUNCH_ERROR_NOTE_H
#define CT_LAUNCH_ERROR_NOTE_H

#include "launch/failure/error_file.h"

#include <stdbool.h>

struct ct_error_note {
    struct ct_error_file file;
    int64_t time_ms; /* when the error happened, since 1970 */
};

/* Read the error file `path`; strings lie in `arena`. The time is the file's modification time if
 * that falls into the second of the text's time stamp, else the start of that second. False when
 * there is no file, or (with `*why`) it is not a regular file, unreadable, or no error file; links
 * are not followed, pipes not opened. */
bool ct_error_note_read(const char *path, struct ct_arena *arena, struct ct_error_note *ret_note,
                        struct ct_error *why);

#endif
