/* The failures of a job: the first one, and torchrun's table of them.
 *
 *     ============================================================
 *     train.py FAILED
 *     ------------------------------------------------------------
 *     Failures:
 *     [1]:
 *       time      : 2026-03-01_10:00:02
 *       host      : node1
 *       rank      : 3 (local_rank: 1)
 *       exitcode  : 1 (pid: 4712)
 *       error_file: <N/A>
 *       traceback : ...
 *     ------------------------------------------------------------
 *     Root Cause (first observed failure):
 *     [0]:
 *       ...
 *     ============================================================
 *
 * torchrun prints the failures that one node saw, including the workers that it stopped itself;
 * this table is the job's, without stopped workers. Pure except for the time zone. */
#ifndef CT_LAUNCH_FAILURE_REPORT_H
#define CT_LAUNCH_FAILURE_REPORT_H

#include "base/bytes.h"
#include "launch/failure/error_file.h"
#include "launch/failure/worker_failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return whether the first of two failures is the cause: the earlier one, or at the same time the
 * likelier cause (ct_exit_blame). False when neither is. */
bool ct_failure_precedes(int64_t a_ms, struct ct_exit a, int64_t b_ms, struct ct_exit b);

/* Append the table for the program `entry_point`; `first` is the cause among `failures`. */
void ct_report_print(const char *entry_point, const struct ct_worker_failure *failures,
                     size_t count, size_t first, struct ct_buf *to);

/* Convert the failure to an error file: its message is the last line of the text, or else the
 * worker's end. */
struct ct_error_file ct_report_error_file(const struct ct_wire_failure *failure,
                                          struct ct_arena *arena);

#endif
