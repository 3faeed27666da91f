/* Rate limit of log lines that others can cause: per reason and in all, within 10 s. Pure.
 *
 * Reasons share CT_LOG_REASONS counters by their hash: two that collide share one limit, and never
 * have none. */
#ifndef CT_BASE_LOG_LIMIT_H
#define CT_BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_LOG_WINDOW_MS = 10000,
    CT_LOG_REASONS = 256,
    CT_LOG_PER_REASON = 32, /* lines in a window */
    CT_LOG_IN_ALL = 1024,
};

/* Zeroed at first. */
struct ct_log_limit {
    uint64_t until_ms; /* the window's end */
    uint32_t left_out; /* in it */
    uint32_t in_all;
    uint32_t of_reason[CT_LOG_REASONS];
};

/* Return whether a line of `reason` (a hash) may be written now. `ret_left_out`: the number of
 * lines suppressed in a past window, to be reported with this line; mostly 0. */
bool ct_log_limit_pass(struct ct_log_limit *limit, uint64_t now_ms, uint64_t reason,
                       uint32_t *ret_left_out);

#endif
