/* What another program prints, read on a thread that may wait for it: gdb's backtrace of a process,
 * Slurm's answer about its nodes. */
#ifndef CT_BASE_CAPTURE_H
#define CT_BASE_CAPTURE_H

#include "base/bytes.h"

#include <stdatomic.h>
#include <stdint.h>

/* Run `program` (found on PATH unless it has a slash) in a process group of its own, without input,
 * and append what it prints, on both streams, up to the limit of `to`. Its group is ended by
 * SIGKILL afterwards. How it exits is not known: an agent waits for all children and may be faster.
 * `stop` (may be NULL): another thread does not want it any more.
 *
 * 0; CT_ENOINPUT when it cannot be started; CT_ETIMEOUT when it was given up, at `deadline_ms` of
 * ct_clock_mono_ms, by `stop`, or because it printed too much. */
int ct_capture(const char *program, char *const argv[], uint64_t deadline_ms,
               const atomic_bool *stop, struct ct_buf *to);

#endif
