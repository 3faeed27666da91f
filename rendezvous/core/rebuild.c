/* A rendezvous that knows less than its nodes: those who held the job's record are dead, or too
 * many of them. Its nodes know in which round they were and what their workers hold, so the record
 * is made again of what they say; the highest generation wins, and rounds go on from there.
 *
 * Two rendezvous must never do that for one job. One without any record does it only for a node
 * that knows all others who held it to be dead; one that has what a minority held does it because
 * it has proof itself that no majority lives. Everybody else's history is a living one, or an old
 * job's.
 *
 * Lost are: who was in the last round (the survivors are asked anew, as newcomers), what was
 * published, cordons, and how many restarts were used. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"

#include <inttypes.h>

enum {
    RETRY_MS = 100,
    ORPHAN_RETRY_MS = 500,
    ELSEWHERE_LEASES = 2, /* and ... */
    ELSEWHERE_MS = 5000,  /* ... this: a node that waits tries each holder it knows in turn */
};

void ct_rdzv_set_rebuild(struct ct_rdzv *job, enum ct_rdzv_rebuild rebuild)
{
    job->rebuild = rebuild;
}

void ct_rdzv_hear_for(struct ct_rdzv *job, uint64_t for_ms)
{
    job->hear_until_ms = job->now_ms + for_ms;
    job->due_ms = ct_rdzv_deadline(job);
}

/* No round of its own was begun, but for one that is made of what nodes have said. */
static bool has_no_round(const struct ct_rdzv *job)
{
    return job->roster.generation == 0 && (job->generation == 0 || job->lost_generation > 0);
}

static bool may_rebuild(const struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    return job->rebuild == CT_RDZV_REBUILD_OF_ALL ||
           (job->rebuild == CT_RDZV_REBUILD_OF_ORPHAN && join->orphan && has_no_round(job));
}

/* In how many ms the node may try again: its proof may be under way, or a record. 0: never. */
static uint32_t retry_ms(const struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    if (job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED)
        return 0;
    if (may_rebuild(job, join))
        return RETRY_MS;
    return job->rebuild == CT_RDZV_REBUILD_OF_ORPHAN && has_no_round(job) ? ORPHAN_RETRY_MS : 0;
}

bool ct_rdzv_is_elsewhere(const struct ct_rdzv *job)
{
    return job->rebuild == CT_RDZV_REBUILD_OF_ORPHAN && job->generation == 0 &&
           job->elsewhere_until_ms > job->now_ms;
}

void ct_rdzv_note_elsewhere(struct ct_rdzv *job, uint64_t now_ms, const char *host)
{
    bool is_news = job->elsewhere_until_ms == 0 && job->out != NULL;

    if (job->rebuild != CT_RDZV_REBUILD_OF_ORPHAN || job->generation > 0)
        return;
    job->elsewhere_until_ms =
        CT_MAX(job->elsewhere_until_ms,
               now_ms + ELSEWHERE_LEASES * (uint64_t)job->params.lease_ms + ELSEWHERE_MS);
    if (is_news)
        ct_rdzv_announce(job, CT_ANNOUNCE_UNHEARD,
                         "host %s was in a round of job %s, whose record others may hold: this "
                         "rendezvous waits for them, for the end of that ctrun, or for `ctrun "
                         "takeover`",
                         host, job->name);
}

/* A generation that was reserved here anew may have been a round that only the dead knew. */
bool ct_rdzv_is_ahead(const struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    return join->promised > job->generation ||
           join->acting > CT_MAX(job->roster.generation, job->lost_generation);
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
    bool is_busy = job->pending != 0 || job->publishing_seq != 0;

    if (is_busy || !may_rebuild(job, join) || retry_ms(job, join) == 0) {
        ct_rdzv_refuse(job, link, CT_EFENCED, retry_ms(job, join),
                       "the rendezvous knows job %s up to round %" PRIu64 ", but host %s was in "
                       "round %" PRIu64 " already: the job has ended meanwhile, or the daemon was "
                       "restarted without its journal (ctrund --journal keeps one)",
                       job->name, CT_MIN(job->generation, join->promised - 1), join->host,
                       join->promised);
        ct_rdzv_note_elsewhere(job, job->now_ms, join->host);
        return false;
    }
    ct_rdzv_announce(job, CT_ANNOUNCE_REBUILT,
                     "those who held the record of job %s are dead; it is rebuilt from what its "
                     "nodes say: host %s was in round %" PRIu64,
                     job->name, join->host, join->promised);
    job->generation = job->lost_generation = CT_MAX(job->generation, join->promised);
    job->reason = CT_RDZV_REASON_LOST;
    if (job->phase == CT_RDZV_PREPARE)
        begin_again(job);
    else if (ct_rdzv_acts(job))
        ct_rdzv_change(job, CT_RDZV_REASON_LOST, false);
    return true;
}
