/* See parts.h. */
#include "parts.h"

#include "checkpoint_publish.h"
#include "planner/plan_options.h"

#include <inttypes.h>
#include <stdio.h>

/* In this file: a worker without a group is the only one, beside servers. */
int ct_parts_leave(struct ct_worker *worker, struct ct_error *err)
{
    int64_t stops = ct_stop_requested(worker->stop, worker->job);
    int code = 0;

    if (worker->group != NULL) {
        code = ct_all_reduce(worker->group, ct_inplace(&stops, 1, CT_I64), CT_REDUCE_MAX, NULL);
        code = ct_group_explain(worker->group, code, err);
    }
    worker->stopping = code == 0 && stops != 0;
    if (worker->stopping && worker->stop->signal == 0)
        worker->stop->signal = SIGTERM; /* what another rank was told holds here as well */
    if (code == 0)
        code = ct_publish_save(worker, err);
    if (code == 0)
        code = ct_publish_await(worker, err);
    return code == 0 && !worker->stopping ? ct_publish_finish(worker, err) : code;
}

/* The key that leaves each of several ranks a part, NULL if none does. One rank that is left alone
 * holds all, and yet lost what the others had. */
static const char *cause_of(const struct ct_config *cfg, char text[64])
{
    if (ct_planner_shard(cfg) != CT_PLAN_SHARD_NONE) {
        (void)snprintf(text, 64, "parallel.strategy %s",
                       ct_config_word(cfg, &cfg->parallel.strategy));
        return text;
    }
    if (cfg->parallel.tensor > 1)
        return "parallel.tensor";
    return cfg->parallel.pipeline > 1 ? "parallel.pipeline" : NULL;
}

void ct_parts_report_source(const struct ct_worker *worker)
{
    char text[64];
    const char *cause = cause_of(worker->cfg, text);

    if (cause == NULL || worker->me->rank != 0 || worker->me->generation < 2)
        return;
    if (worker->step > 0)
        ct_log_event(worker->log, CT_LOG_WARN, "parts",
                     "%s keeps one state over all workers of a round: this one goes on from the "
                     "checkpoint of step %" PRIu64,
                     cause, worker->step);
    else
        ct_log_event(worker->log, CT_LOG_WARN, "parts",
                     "%s keeps one state over all workers of a round, and no checkpoint is "
                     "published: this one begins anew",
                     cause);
}
