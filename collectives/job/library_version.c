/* The library's version, and how the structures of ctrun.h lie in memory: libctrun.so.1 promises
 * both to programs that were compiled against an earlier one, and to lib/python/ctrun/_abi.py. A
 * line here changes only with the number behind .so. */
#include "ctrun.h"

#include "base/version.h"

#define LIES(type, field, at) \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field " has moved")
#define IS(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size")

LIES(ct_error, text, 4);
LIES(ct_error, echo, 1028);
IS(ct_error, 1032);

LIES(ct_assignment, base_rank, 32);
LIES(ct_assignment, published_step, 48);
LIES(ct_assignment, rank, 56);
LIES(ct_assignment, restart_count, 80);
IS(ct_assignment, 88);

LIES(ct_progress, loss, 32);
LIES(ct_progress, trained_s, 64);
IS(ct_progress, 88);
IS(ct_job_evaluation, 56);
IS(ct_ready, 24);

LIES(ct_job_step, group, 8);
LIES(ct_job_step, all_stop, 16);
LIES(ct_job_step, regrouped, 17);
IS(ct_job_step, 24);
IS(ct_state_calls, 24);

LIES(ct_group_options, backend, 24);
LIES(ct_group_options, timeout_ms, 32);
LIES(ct_group_options, encrypt, 40);
LIES(ct_group_options, device, 48);
IS(ct_group_options, 56);

LIES(ct_options, mode, 12);
LIES(ct_options, scale, 16);
IS(ct_options, 32);
LIES(ct_data, dtype, 24);
IS(ct_data, 32);
IS(ct_parts, 16);
LIES(ct_transfer, data, 8);
IS(ct_transfer, 40);

const char *ct_version(void)
{
    return CT_VERSION;
}
