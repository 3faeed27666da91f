/* Asking NVML without waiting for it: ctrun starts itself as `ctrun gpus --ask` and reads what that
 * process finds out, a record at a time (health.h).
 *
 *   loop                          process of its own group, ends with the one that asks
 *   ct_look_start ------------->  loads NVML, asks card by card
 *     pipe        <-------------  records                   (any call may hang for ever)
 *   on_done: all is said, or the limit has passed: SIGKILL, and nobody waits for its end, which a
 *            process in an uninterruptible wait never comes to
 *
 * It holds nothing of the asking process but its end of the pipe. */
#ifndef CT_LAUNCH_LOOK_UV_H
#define CT_LAUNCH_LOOK_UV_H

#include "base/error.h"
#include "launch/health.h"

#include <uv.h>

struct ct_look;

/* Begin; `on_done` comes once, from the loop, with what is known: `late_ms` is 0, or the limit when
 * that has passed. The caller closes it then or before. 0, or a negative code with its sentence. */
int ct_look_start(struct ct_look **ret_look, uv_loop_t *loop, uint64_t limit_ms,
                  void (*on_done)(void *context, const struct ct_health *health, uint64_t late_ms),
                  void *context, struct ct_error *err);

/* End what still runs; no callback comes any more, the memory goes with the loop's next turn. NULL
 * is nothing. */
void ct_look_close(struct ct_look *look);

/* All of that at once, on a loop of its own: returns when all is said, or the limit has passed. */
int ct_look_wait(uint64_t limit_ms, struct ct_health *ret_health, uint64_t *ret_late_ms,
                 struct ct_error *err);

#endif
