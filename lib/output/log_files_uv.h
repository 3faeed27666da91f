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

/* Warnings go to the console's log (ct_console_report_log); `on_room` is called from the loop when
 * ct_log_files_full was true and is no longer. NULL without memory. */
struct ct_log_files *ct_log_files_new(uv_loop_t *loop, struct ct_console *console,
                                      void (*on_room)(void *context), void *context);

/* Open a log file of a local rank, or make a folder for it, as file_writer.h says; CT_EOS when
 * there can be no thread. A NULL path is no file. */
int ct_log_files_open(struct ct_log_files *files, const char *path, uint32_t local_rank,
                      struct ct_written **ret_file, struct ct_error *err);
int ct_log_files_make_dirs(struct ct_log_files *files, const char *path, struct ct_error *err);

/* Should who writes to them wait? */
bool ct_log_files_full(struct ct_log_files *files);

/* Does nothing wait to be written? Whatever was given up is told now. */
bool ct_log_files_idle(struct ct_log_files *files);

/* Write out what waits, then call `flushed` from the loop, never from inside the call. A file whose
 * server takes `patience_ms` for one call is given up, and at `until_ms` of the loop's time all
 * are. Another call changes the times. */
struct ct_flush {
    uint64_t patience_ms, until_ms;
    void (*flushed)(void *context);
    void *context;
};

void ct_log_files_flush(struct ct_log_files *files, const struct ct_flush *flush);

const struct ct_output_losses *ct_log_files_losses(const struct ct_log_files *files);

/* Free it; what still waits is written in the time that is left to it (CT_LOG_FILES_FREE_MS), which
 * is none when a flush has given up. Nothing is told any more. NULL is fine. */
enum { CT_LOG_FILES_FREE_MS = 10000 };
void ct_log_files_free(struct ct_log_files *files);

#endif
