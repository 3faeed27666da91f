/* See dp.h. */
#include "dp.h"

#include "base/assert.h"
#include "base/str.h"
#include "collectives/planner/plan_options.h"

#include <stdlib.h>

int ct_dp_threads(const struct ct_config *cfg)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int64_t all = 1;
    int replicas = ct_planner_replicas(cfg);

    if (replicas == 0)
        return 0;
    if (text != NULL && (ct_parse_i64(text, &all) != 0 || all < 1))
        all = 1;
    return (int)CT_MAX(CT_MIN(all, 1024) / replicas, 1);
}

int ct_dp_check(const struct ct_worker *worker, struct ct_error *err)
{
    if (ct_planner_replicas(worker->cfg) == 0 || worker->me->world == 1)
        return 0;
    return ct_error_set(err, CT_ECONFIG,
                        "parallel.strategy dp is one worker with replicas as threads, and this job "
                        "has %d workers: start one, with parallel.replicate=%d, or use ddp",
                        worker->me->world, worker->me->world);
}
