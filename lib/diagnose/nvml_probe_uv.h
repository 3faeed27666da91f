/* Queries NVML without blocking: ctrun starts itself as `ctrun gpus --ask` or `--watch` and reads
 * that process's results, one record per line (health.h, xid.h).
 *
 *   loop                          process of its own group, ends with the querying one
 *   ct_nvml_probe_start ------------->  loads NVML, queries each GPU, or waits for Xids
 *     pipe        <-------------  records                   (any call may hang for ever)
 *   on_done: complete, or the limit has passed: SIGKILL, without waiting for its end, which a
 *            process in an uninterruptible wait never reaches
 *
 * It holds nothing of the querying process but its end of the pipe. */
#ifndef CT_DIAGNOSE_NVML_PROBE_UV_H
#define CT_DIAGNOSE_NVML_PROBE_UV_H

#include "base/error.h"
#include "hardware/health.h"

#include <uv.h>

struct ct_nvml_probe;

/* How to look, and where what is seen goes. Strings are used up. */
struct ct_nvml_probe_options {
    const char *how;   /* "--ask", "--watch" */
    uint64_t limit_ms; /* 0: none */
    /* A record, without its newline; anything but 0 ends the look. */
    int (*on_record)(void *context, const char *line);
    /* Once, the last callback: `late_ms` is 0, or the limit when that has passed. */
    void (*on_done)(void *context, uint64_t late_ms);
    void *context;
};

/* Begin; callbacks come from the loop, or from ct_nvml_probe_drain. The caller closes it in
 * on_done, later or before. 0, or a negative code with its sentence. */
int ct_nvml_probe_start(struct ct_nvml_probe **ret_look, uv_loop_t *loop,
                        const struct ct_nvml_probe_options *options, struct ct_error *err);

/* Take in at once what has been said by now. NULL is nothing. */
void ct_nvml_probe_drain(struct ct_nvml_probe *probe);

/* End what still runs; no callback comes any more, the memory goes with the loop's next turn. NULL
 * is nothing. */
void ct_nvml_probe_close(struct ct_nvml_probe *probe);

/* How the GPUs are, on a loop of its own: returns when all is said, or the limit has passed, then
 * with `*ret_late_ms` the limit. */
int ct_nvml_probe_wait(uint64_t limit_ms, struct ct_health *ret_health, uint64_t *ret_late_ms,
                       struct ct_error *err);

#endif
