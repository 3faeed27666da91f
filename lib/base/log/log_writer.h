/* A log whose reader may stall: lines go into a ring of 256 KiB, a thread of its own writes them.
 *
 *   ct_log_event -> ring -> thread -> write(2), as long as that takes
 *                     | full       `- the disk is full
 *                     v  the line is dropped and counted; a later line says how many
 *
 * Only a thread keeps a program from waiting in write(2) whatever standard error is: a pipe or
 * terminal of another process cannot be opened again as non-blocking, O_NONBLOCK on a shared
 * description changes it for all holders, and poll(2) calls a file on a dead server writable. */
#ifndef CT_BASE_LOG_WRITER_H
#define CT_BASE_LOG_WRITER_H

#include "base/log/log.h"

struct ct_log_writer;

/* Move `log`, which was set up for a descriptor (ct_log_init_fd), to a writer thread; it must not
 * be changed any more. NULL without memory or thread: the log stays as it was. */
struct ct_log_writer *ct_log_writer_new(struct ct_log *log, int fd);

/* Flush the queued lines for at most `patience_ms`, drop the rest and free. The log must not be
 * used afterwards. NULL is ignored. */
void ct_log_writer_free(struct ct_log_writer *writer, unsigned patience_ms);

#endif
