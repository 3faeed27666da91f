/* The memory of a job: everything that it will ever need, taken once. What no member has used yet
 * is not written to, so that a job of many places costs what its nodes need, not what it asks for.
 */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>

/* Members beyond MAX are spares: a quarter of the job, at least 8. */
static size_t capacity_for(uint32_t nodes_max)
{
    return nodes_max + CT_MAX(8u, nodes_max / 4);
}

struct ct_rdzv *ct_rdzv_new(const char *name, const struct ct_rdzv_params *params, uint64_t epoch,
                            uint64_t now_ms)
{
    CT_ASSERT(ct_rdzv_params_check(params, NULL) == 0);
    struct ct_rdzv *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    ct_str_copy(job->name, sizeof(job->name), name);
    job->params = *params;
    job->now_ms = job->contact_ms = now_ms;
    job->cause = job->result.cause = ct_failure_none;
    job->epoch = epoch;
    job->room = capacity_for(params->nodes_max);
    job->members = calloc(job->room, sizeof(*job->members));
    job->order = calloc(job->room, sizeof(*job->order));
    job->holder = calloc(job->room + params->nodes_max, sizeof(*job->holder));
    uint32_t buckets = 16;
    while (buckets < 2 * job->room)
        buckets *= 2;
    job->id_mask = buckets - 1;
    job->by_id = calloc(buckets, sizeof(*job->by_id));
    job->by_rank = calloc(params->nodes_max, sizeof(*job->by_rank));
    job->roster.places = calloc(params->nodes_max, sizeof(*job->roster.places));
    job->next.places = calloc(params->nodes_max, sizeof(*job->next.places));
    if (job->by_id == NULL || job->by_rank == NULL || job->members == NULL || job->order == NULL ||
        job->holder == NULL || job->roster.places == NULL || job->next.places == NULL) {
        ct_rdzv_free(job);
        return NULL;
    }
    job->roster.base_node = -1;
    job->join_until_ms = now_ms + params->join_timeout_ms;
    job->grow_until_ms = job->verdict_ms = UINT64_MAX;
    job->retry_ms = job->leave_until_ms = UINT64_MAX;
    job->cordon_ms = job->cordon_retry_ms = UINT64_MAX;
    job->phase_since_ms = now_ms;
    job->scan_awake_ms = job->due_ms = UINT64_MAX;
    return job;
}

void ct_rdzv_free(struct ct_rdzv *job)
{
    if (job == NULL)
        return;
    free(job->members);
    free(job->order);
    free(job->holder);
    free(job->by_id);
    free(job->by_rank);
    free(job->roster.places);
    free(job->next.places);
    free(job);
}
