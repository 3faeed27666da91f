/* `ctrun plan --calibrate`: a job of this program's own workers that measures this machine. */
#ifndef CT_CMD_PLAN_CALIBRATE_H
#define CT_CMD_PLAN_CALIBRATE_H

#include <stddef.h>

/* Start the job, with options of run in `words`; the calibration is written to `path`, or where the
 * environment says if NULL. Return the exit status. */
int ct_plan_calibrate(const char *path, int count, char **words);

/* Be one of its workers; `path` "" is NULL. Return the exit status. */
int ct_plan_calibrate_worker(const char *path);

#endif
