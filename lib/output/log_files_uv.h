/* The log files of a node's workers, on a loop: file_writer.h's thread, and its warnings.
 *
 *   workers' output --> ct_written_append --> file_writer.h --> disk
 *        ^                                         |
 *        `---- on_room: read the pipes again <-----|
 *        warnings: given up, slow <----------------'
 *
 * One object an agent, for all its rounds, on the loop's thread. */
#ifndef CT_OUTPUT_LOG_FILES_UV_H
#define CT_OUTPUT_LOG_FILES_UV_H

#include "output/console_uv.h"
#include "output/file_writer.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Log files that could not be written to their ends. */
struct ct_output_losses {
    uint32_t count;
    char first[1056]; /* "PATH: No space left on device" */
};

struct ct_log_files;

enum { CT_LOG_FILES_NO_RANK = INT32_MAX /* a file of the job, in place of a local rank */ };

/* Create; warnings go to the console's log (ct_console_report_log); `on_room` is called from the
 * loop when ct_log_files_full was true and is no longer. NULL without memory. */
struct ct_log_files *ct_log_files_new(uv_loop_t *loop, struct ct_console *console,
                                      void (*on_room)(void *context), void *context);

/* Open a log file of a local rank, or make a folder for it, as in file_writer.h; CT_EOS when no
 * thread can be started. A NULL path is no file. */
int ct_log_files_open(struct ct_log_files *files, const char *path, uint32_t local_rank,
                      struct ct_written **ret_file, struct ct_error *err);
int ct_log_files_make_dirs(struct ct_log_files *files, const char *path, struct ct_error *err);

/* Return whether writers should wait. */
bool ct_log_files_full(struct ct_log_files *files);

/* Return whether all is written; reports lost files now. */
bool ct_log_files_idle(struct ct_log_files *files);

/* Flush, then call `flushed` from the loop, never from inside the call. A file whose server takes
 * `patience_ms` for one call is given up, and at `until_ms` of the loop's time all are. Another
 * call changes the times. */
struct ct_flush {
    uint64_t patience_ms, until_ms;
    void (*flushed)(void *context);
    void *context;
};

void ct_log_files_flush(struct ct_log_files *files, const struct ct_flush *flush);

const struct ct_output_losses *ct_log_files_losses(const struct ct_log_files *files);

/* Free it; the queue is flushed for at most CT_LOG_FILES_FREE_MS, or dropped when a flush has given
 * up. Losses are not reported any more. NULL is ignored. */
enum { CT_LOG_FILES_FREE_MS = 10000 };
void ct_log_files_free(struct ct_log_files *files);

#endif
