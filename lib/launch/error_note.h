/* Error files on disk: a worker's error, and its time. */
#ifndef CT_LAUNCH_ERROR_NOTE_H
#define CT_LAUNCH_ERROR_NOTE_H

#include "launch/error_file.h"

#include <stdbool.h>

struct ct_error_note {
    struct ct_error_file file;
    int64_t time_ms; /* when the error happened, since 1970 */
};

/* Read the error file `path`; strings lie in `arena`. The moment is the file's own time stamp of
 * its last change where that falls into the second that the text tells, else the start of that
 * second. False when there is none, or (for `*why`) it is no plain file, unreadable, or not one:
 * links are not followed, pipes not waited for. */
bool ct_error_note_read(const char *path, struct ct_arena *arena, struct ct_error_note *ret_note,
                        struct ct_error *why);

#endif
