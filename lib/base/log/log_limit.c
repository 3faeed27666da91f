/* See log_limit.h. */
#include "base/log/log_limit.h"

bool ct_log_limit_pass(struct ct_log_limit *limit, uint64_t now_ms, uint64_t reason,
                       uint32_t *ret_left_out)
{
    uint32_t *of_reason = &limit->of_reason[reason % CT_LOG_REASONS];

    *ret_left_out = 0;
    if (now_ms >= limit->until_ms) {
        *ret_left_out = limit->left_out;
        *limit = (struct ct_log_limit){.until_ms = now_ms + CT_LOG_WINDOW_MS};
    }
    if (*of_reason >= CT_LOG_PER_REASON || limit->in_all >= CT_LOG_IN_ALL) {
        limit->left_out++;
        return false;
    }
    ++*of_reason;
    limit->in_all++;
    return true;
}
