/* The file of an audit log: for its owner alone, appended to by a thread (log_writer.h), so that no
 * disk makes the daemon wait. What cannot be written is counted in it afterwards. */
#ifndef CT_CTRUND_AUDIT_FILE_H
#define CT_CTRUND_AUDIT_FILE_H

#include "base/error.h"
#include "base/log/log.h"

/* Zeroed at first. */
struct audit_file {
    struct ct_log log; /* whose `write` takes a record */
    struct ct_log_writer *writer;
    const char *path; /* NULL: not open. Not owned */
    int fd;
};

/* Open, or create with mode 0600. 0; CT_ECANTCREAT with the reason; CT_ENOMEM. */
int audit_file_open(struct audit_file *file, const char *path, struct ct_error *err);

/* Open the path again: it was moved away, by logrotate for instance. A no-op if it is not open. On
 * failure the file of before stays: CT_ECANTCREAT. */
int audit_file_reopen(struct audit_file *file, struct ct_error *err);

/* Write what waits, for at most `patience_ms`, and close. */
void audit_file_close(struct audit_file *file, unsigned patience_ms);

#endif
