/* Registration of an allocation with a group: see ctrun.h, part "memory". */
#include "group/host_subgroup.h"
#include "job/job_resource.h"

#include "base/clock.h"

/* Compare whether all members have the same number, other than 0. */
static int compare(struct ct_group *group, uint64_t bytes, bool *ret_same, struct ct_error *err)
{
    int64_t range[2] = {(int64_t)bytes, -(int64_t)bytes};
    struct ct_group *host = group;
    int code = ct_host_subgroup_acquire(group, &host);

    if (code != 0)
        return ct_group_explain(group, code, err);
    code = ct_all_reduce(host, ct_inplace(range, 2, CT_I64), CT_REDUCE_MIN, NULL);
    *ret_same = range[0] > 0 && range[0] == -range[1];
    code = ct_group_explain(host, code, err);
    ct_host_subgroup_release(group, host);
    return code;
}

int ct_group_share(struct ct_group *group, void *memory, struct ct_error *err)
{
    uint64_t now_ns = ct_clock_mono_ns(&ct_clock_system);
    struct ct_error unread = {0};
    bool same = false;

    err = err != NULL ? err : &unread;
    if (group->backend->register_memory == NULL)
        return 0;
    int code = compare(group, ct_job_device_memory_bytes(group->job, memory), &same, err);
    if (code != 0 || !same)
        return code;
    ct_helper_acquire(group);
    code = group->backend->register_memory(group->state, memory,
                                           now_ns + group->timeout_ms * 1000000u, &group->failure);
    if (code != 0) {
        ct_group_break(group, code);
        code = ct_group_explain(group, code, err);
    }
    ct_helper_release(group);
    return code;
}
