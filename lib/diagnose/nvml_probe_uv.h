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

/* The kind of the probe and its callbacks. Strings are copied. */
struct ct_nvml_probe_options {
    const char *how;   /* "--ask", "--watch" */
    uint64_t limit_ms; /* 0: none */
    /* Called with each record, without its newline; a result other than 0 ends the probe. */
    int (*on_record)(void *context, const char *line);
    /* Once, the last callback: `late_ms` is 0, or the limit when that has passed. */
    void (*on_done)(void *context, uint64_t late_ms);
    void *context;
};

/* Begin; callbacks come from the loop, or from ct_nvml_probe_drain. The caller closes it in
 * on_done, later or before. 0, or a negative code with its sentence. */
int ct_nvml_probe_start(struct ct_nvml_probe **ret_look, uv_loop_t *loop,
                        const struct ct_nvml_probe_options *options, struct ct_error *err);

/* Read the records that have arrived by now. NULL is ignored. */
void ct_nvml_probe_drain(struct ct_nvml_probe *probe);

/* End the probe without a further callback; freed by the next iteration of the loop. NULL is
 * ignored. */
void ct_nvml_probe_close(struct ct_nvml_probe *probe);

/* Probe the GPUs on a loop of its own. Returns when all records have arrived, or after the limit,
 * with the limit in `*ret_late_ms`. */
int ct_nvml_probe_wait(uint64_t limit_ms, struct ct_health *ret_health, uint64_t *ret_late_ms,
                       struct ct_error *err);

#endif
