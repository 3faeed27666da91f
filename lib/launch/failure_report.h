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
#include "launch/error_file.h"
#include "launch/exit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_failure {
    const char *host;
    uint32_t rank, local_rank;
    int32_t pid;
    struct ct_exit end;
    bool stopped;     /* by ctrun, because of another failure */
    int64_t time_ms;  /* when it happened, since 1970 */
    const char *path; /* of its error file, or "" */
    const char *text; /* its callstack or message, the last lines of its log, or "" */
    bool shown;       /* this node's console has the text already */
};

/* Of two failures, is the first one the cause? The earlier is; of one moment, the likelier cause
 * (ct_exit_blame). False when nothing tells them apart. */
bool ct_failure_precedes(int64_t a_ms, struct ct_exit a, int64_t b_ms, struct ct_exit b);

/* Which of `count` (above 0) failures was the first; of equal ones, that of the lowest rank. Who
 * was stopped counts only when all were. */
size_t ct_report_first(const struct ct_failure *failures, size_t count);

/* Append the table for the program `entry_point`; `first` comes from ct_report_first. */
void ct_report_print(const char *entry_point, const struct ct_failure *failures, size_t count,
                     size_t first, struct ct_buf *to);

/* What an error file says about this failure, for those who read such files: its message is the
 * last line of the text, or how the worker ended. */
struct ct_error_file ct_report_error_file(const struct ct_failure *failure, struct ct_arena *arena);

#endif
