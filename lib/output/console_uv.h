/* The console: all that ctrun and its workers write to standard output and error.
 *
 *   lines of workers, messages  -->  queue of a sink  -->  write(2), as much as it takes
 *                                          |
 *   live line (a terminal) ---------- drawn below
 *
 * A sink never blocks the loop: terminals and pipes are opened a second time, non-blocking, so that
 * other users of the same descriptor are not affected. Both streams share one sink when they are
 * the same file. When the reader closes, output is dropped, and the job continues; a broken pipe
 * may instead end the writer (`breaks`). When a stream is lost, except by the end of a terminal,
 * the other one reports it once. The live line stays below the lines that are written.
 *
 * One a process, on the loop's thread. */
#ifndef CT_OUTPUT_CONSOLE_UV_H
#define CT_OUTPUT_CONSOLE_UV_H

#include "base/bytes.h"
#include "base/log/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum ct_console_stream { CT_CONSOLE_OUT, CT_CONSOLE_ERR, CT_CONSOLE_STREAMS };

struct ct_console;

/* Create a console on descriptors `out` and `err` (1 and 2; not owned). `on_room` (may be NULL) is
 * called from the loop whenever a queue has shrunk. NULL without memory. */
struct ct_console *ct_console_new(uv_loop_t *loop, int out, int err, void (*on_room)(void *context),
                                  void *context);

/* Return the number of bytes queued for `stream`. */
size_t ct_console_queued(const struct ct_console *console, enum ct_console_stream stream);

/* Append whole lines here, then call ct_console_flush. No other function may be called in
 * between. */
struct ct_buf *ct_console_lines(struct ct_console *console, enum ct_console_stream stream);
void ct_console_flush(struct ct_console *console);

/* When text is coloured: on a terminal, always, never. */
enum ct_console_colour { CT_CONSOLE_AUTO, CT_CONSOLE_ALWAYS, CT_CONSOLE_NEVER };

/* Set the colour; a `dumb` terminal has no escape sequences: no live line, no colour. */
void ct_console_dress(struct ct_console *console, enum ct_console_colour colour, bool dumb);

bool ct_console_is_terminal(const struct ct_console *console, enum ct_console_stream stream);
bool ct_console_is_coloured(const struct ct_console *console, enum ct_console_stream stream);

/* Return whether there is a terminal for a live line; return its width in columns. */
bool ct_console_is_live(const struct ct_console *console);
size_t ct_console_columns(const struct ct_console *console);

/* Draw `text`, which fits the terminal (ct_console_columns), as the live line; "" removes it. A
 * no-op without a terminal. */
void ct_console_live(struct ct_console *console, const char *text);

/* Initialise a log that writes to standard error through the console, with the time unless that is
 * a terminal, in colour as set by ct_console_dress. */
void ct_console_log(struct ct_console *console, struct ct_log *ret_log, const char *program);

/* Report a lost stream to `log`, and set `*ret_output_lost` when it is standard output and not
 * closed by its reader; both live as long as the console. `breaks`: the writing programs end with
 * their reader, so a broken pipe is not reported. */
void ct_console_report(struct ct_console *console, const struct ct_log *log, bool breaks,
                       bool *ret_output_lost);

/* Return whether the reader of a pipe has gone and its writers are to receive SIGPIPE. */
bool ct_console_broken(const struct ct_console *console, enum ct_console_stream stream);

/* Return that log, NULL if losses are not reported. */
const struct ct_log *ct_console_report_log(const struct ct_console *console);

/* Flush the queue, however long the readers take, then free the console; `closed` (may be NULL) is
 * the last callback. */
void ct_console_close(struct ct_console *console, void (*closed)(void *context), void *context);

#endif
