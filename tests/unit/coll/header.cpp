// ctrun.h as a C++ program sees it: scripts/lint compiles this, with all warnings on.
#include "ctrun.h"

static int step(ct_group *group, float *gradient, size_t count)
{
    ct_options options = {};
    ct_transfer ring[] = {ct_transfer_to(0, gradient, count, CT_F32),
                          ct_transfer_from(0, gradient, count, CT_F32)};

    options.mode = CT_MODE_REPRODUCIBLE;
    if (ct_exchange(group, ring, 2, nullptr) != 0)
        return ct_group_failure(group)->code;
    int code = ct_reduce(group, ct_inplace(gradient, count, CT_F32), CT_REDUCE_SUM, 0, &options);
    return code != 0
               ? code
               : ct_broadcast(group, ct_from_to(nullptr, gradient, count, CT_F32), 0, nullptr);
}

int main()
{
    ct_job *job = nullptr;
    ct_group *group = nullptr, *half = nullptr;
    ct_error err = {};
    float gradient[4] = {};

    if (ct_job_open(&job, &err) != 0 || ct_group_new(job, nullptr, &group, &err) != 0 ||
        ct_group_split(group, ct_group_rank(group) % 2, 0, &half, &err) != 0)
        return 1;
    int code = step(half, gradient, 4);
    ct_group_free(half);
    ct_group_free(group);
    ct_job_close(job);
    return ct_exit_status(code);
}
