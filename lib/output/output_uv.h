/* The output of a round's workers: from their pipes to the console and to files.
 *
 *   worker's stdout --> pipe --> [read in turn, fair.h] --> [lines.h] --> console, with prefix
 *                                                    \--> file of the rank, as it is
 *                                                     |-> file of lines that match, with prefix
 *                                                     \-> the last lines of the node (recent.h)
 *
 * When the console or the disk of the files is slow the pipes stay full and the workers wait in
 * write(2); nothing is lost and no stream starves another. The loop never waits for a disk
 * (log_files_uv.h). A file that cannot be written any more (disk full) is given up with one
 * message. One object a round, on the loop's thread. */
#ifndef CT_OUTPUT_UV_H
#define CT_OUTPUT_UV_H

#include "base/error.h"
#include "output/console_uv.h"
#include "output/filter.h"
#include "output/lines.h"
#include "output/log_files_uv.h"
#include "output/recent.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Where one stream of a worker goes. */
struct ct_output_route {
    bool console;
    const char *file; /* appended to; NULL: none */
    bool bare;        /* the console's lines have no prefix */
    bool json;        /* they are records */
    bool has_records; /* the worker is a program of ours, whose lines may be records themselves */

    struct ct_filter filter;   /* of the lines that go to `filtered_file`; its texts live on */
    const char *filtered_file; /* appended to by all workers; NULL: none */
};

struct ct_outputs;

/* Where all of them go. */
struct ct_output_sinks {
    struct ct_console *console;
    struct ct_log_files *files;
    struct ct_recent *recent; /* gets every line; NULL: none */
};

/* Create for `workers` workers with two streams each. NULL without memory. */
struct ct_outputs *ct_outputs_new(uv_loop_t *loop, uint32_t workers,
                                  const struct ct_output_sinks *sinks);

/* Open the stream of a worker, for the first time or after ct_outputs_end; `*ret_fd` is the write
 * end for the process, the caller's to close. CT_ECANTCREAT for a file that cannot be created,
 * CT_EOS without descriptors. */
int ct_output_open(struct ct_outputs *outputs, uint32_t worker, enum ct_console_stream stream,
                   const struct ct_lines_origin *origin, const struct ct_output_route *route,
                   int *ret_fd, struct ct_error *err);

/* Change the rank of a worker, and so the prefix of its lines. */
void ct_outputs_rename(struct ct_outputs *outputs, uint32_t worker,
                       const struct ct_lines_origin *origin);

/* Read the rest of an ended worker's pipes, whatever the console's state. */
void ct_outputs_drain(struct ct_outputs *outputs, uint32_t worker);

/* Read likewise, then close the pipes: unfinished lines are completed. */
void ct_outputs_end(struct ct_outputs *outputs, uint32_t worker);

/* Append the worker's last `lines` lines: those of standard error, or when it wrote none there,
 * those of standard output. */
void ct_outputs_tail(const struct ct_outputs *outputs, uint32_t worker, size_t lines,
                     struct ct_buf *to);

/* Return whether those lines are on the console as well. */
bool ct_outputs_shown(const struct ct_outputs *outputs, uint32_t worker);

/* Return whether output of the worker is held in its pipe, because the console or the files are
 * full. */
bool ct_outputs_held(const struct ct_outputs *outputs, uint32_t worker);

/* Return how many bytes of the worker's output have been read so far. */
uint64_t ct_outputs_bytes(const struct ct_outputs *outputs, uint32_t worker);

/* Append what the worker writes to standard error from now on to `to` as well, up to its limit;
 * NULL: no more. */
void ct_outputs_copy(struct ct_outputs *outputs, uint32_t worker, struct ct_buf *to);

/* Resume reading, since the console or the queue of the files has room again. */
void ct_outputs_room(struct ct_outputs *outputs);
void ct_outputs_file_room(struct ct_outputs *outputs);

/* Close all handles; freed when the loop has closed them. */
void ct_outputs_free(struct ct_outputs *outputs);

#endif
