/* The console: all that ctrun and its workers write to standard output and error.
 *
 *   lines of workers, messages  -->  queue of a sink  -->  write(2), as much as it takes
 *                                          |
 *   live line (a terminal) ---------- drawn below
 *
 * A sink never blocks the loop: terminals and pipes are opened a second time, non-blocking, so that
 * other users of the same descriptor are not affected. Both streams share one sink when they are
 * the same file. When the reader goes away, what is written is dropped: a job is worth more than
 * its console. When it is lost otherwise (a full disk), the other stream says so once. The live
 * line stays below the lines that are written.
 *
 * One a process, on the loop's thread. */
#ifndef CT_LAUNCH_CONSOLE_UV_H
#define CT_LAUNCH_CONSOLE_UV_H

#include "base/bytes.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum ct_console_stream { CT_CONSOLE_OUT, CT_CONSOLE_ERR, CT_CONSOLE_STREAMS };

struct ct_console;

/* A console on descriptors `out` and `err` (1 and 2; not owned). `on_room` (may be NULL) is called
 * from the loop whenever a queue has shrunk. NULL without memory. */
struct ct_console *ct_console_new(uv_loop_t *loop, int out, int err, void (*on_room)(void *context),
                                  void *context);

/* Bytes that wait to be written to `stream`. */
size_t ct_console_queued(const struct ct_console *console, enum ct_console_stream stream);

/* Append whole lines here, then call ct_console_flush. Nothing else may be called in between. */
struct ct_buf *ct_console_lines(struct ct_console *console, enum ct_console_stream stream);
void ct_console_flush(struct ct_console *console);

/* Whole lines, at once. */
void ct_console_write(struct ct_console *console, enum ct_console_stream stream, const char *lines,
                      size_t size);

/* Is there a terminal for a live line? */
bool ct_console_is_live(const struct ct_console *console);

/* Draw `text` as the live line, cut to the terminal's width; "" removes it. Nothing without a
 * terminal. */
void ct_console_live(struct ct_console *console, const char *text);

/* A log whose lines go to standard error through the console. */
void ct_console_log(struct ct_console *console, struct ct_log *ret_log, const char *program);

/* Tell `log`, when a stream is lost, and set `*ret_output_lost` when it is standard output; both
 * live as long as the console. */
void ct_console_tell(struct ct_console *console, const struct ct_log *log, bool *ret_output_lost);

/* Write out what is queued, waiting as long as the readers take, then free the console; `closed`
 * (may be NULL) is the last callback. */
void ct_console_close(struct ct_console *console, void (*closed)(void *context), void *context);

#endif
