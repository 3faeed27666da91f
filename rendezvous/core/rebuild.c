/* A rendezvous that knows less than its nodes: those who held the job's record are dead, or too
 * many of them. Its nodes know in which round they were and what their workers hold, so the record
 * is made again of what they say; the highest generation wins, and rounds go on from there.
 *
 * Two rendezvous must never do that for one job. One without any record does it only for a node
 * that knows all who held it to be dead; one that has what a minority held, for a node that knows
 * that no majority of them lives. Everybody else's history is a living one, or an old job's.
 *
 * Lost are: who was in the last round (the survivors are asked anew, as newcomers), what was
 * published, cordons, and how many restarts were used. */
#include "rendezvous/core/core_state.h"

#include <inttypes.h>

enum { RETRY_MS = 100 }; /* while a record is under way */

static bool is_proven(const struct ct_rdzv *job, enum ct_rdzv_holders holders)
{
    bool knows_job = job->generation > 0;

    return holders == CT_RDZV_HOLDERS_ARE_DEAD || (holders == CT_RDZV_HOLDERS_ARE_FEW && knows_job);
}

/* A round that is made from less than there is begins again. */
static void begin_again(struct ct_rdzv *job)
{
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];

        if (member->state == CT_RDZV_PREPARING || member->state == CT_RDZV_PROMISED)
            ct_rdzv_set_member(job, member, CT_RDZV_STANDBY);
    }
    ct_rdzv_begin(job, CT_RDZV_REASON_LOST, false);
}

bool ct_rdzv_rebuild(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_join *join)
{
    bool is_over = job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED;

    if (is_over || !is_proven(job, join->holders)) {
        ct_rdzv_refuse(job, link, CT_EFENCED, 0,
                       "the rendezvous knows job %s up to round %" PRIu64 ", but host %s was in "
                       "round %" PRIu64 " already: the job has ended meanwhile, or the daemon was "
                       "restarted without its journal (ctrund --journal keeps one)",
                       job->name, job->generation, join->host, join->promised);
        return false;
    }
    if (job->pending != 0 || job->publishing_seq != 0) {
        ct_rdzv_refuse(job, link, CT_EUNAVAILABLE, RETRY_MS,
                       "the record of job %s is being rebuilt from what its nodes say", job->name);
        return false;
    }
    ct_rdzv_announce(job,
                     "those who held the record of job %s are dead; it is rebuilt from what its "
                     "nodes say: host %s was in round %" PRIu64,
                     job->name, join->host, join->promised);
    job->generation = job->lost_generation = join->promised;
    job->reason = CT_RDZV_REASON_LOST;
    if (job->phase == CT_RDZV_PREPARE)
        begin_again(job);
    else if (ct_rdzv_acts(job))
        ct_rdzv_change(job, CT_RDZV_REASON_LOST, false);
    return true;
}
