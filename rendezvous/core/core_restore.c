/* A job as the journal knows it, for a daemon that came back.
 *
 * The members of the last round are presumed to be alive and at work: they are members without a
 * connection, with a lease that leaves them time to find the daemon again. If nothing changed
 * meanwhile no worker notices. A generation that was reserved but has no roster was perhaps
 * promised by some: it is given up, and a newer one is made. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

enum { GRACE_MS = 5000 }; /* beyond the lease, to find the daemon again */

void ct_rdzv_restore_reserve(struct ct_rdzv *job, uint64_t generation, uint32_t restarts,
                             bool charged, bool rebuilt)
{
    job->generation = generation;
    job->restarts = restarts;
    job->charged = charged;
    job->lost_generation = rebuilt ? generation - 1 : 0;
}

int ct_rdzv_restore_commit(struct ct_rdzv *job, const struct ct_rdzv_roster *roster,
                           uint32_t restarts, struct ct_error *err)
{
    job->restarts = CT_MAX(job->restarts, restarts);
    if (roster->count > job->params.nodes_max || roster->generation > job->generation)
        return ct_error_set(err, CT_EDATA, "a round of job %s does not fit the job", job->name);
    for (uint32_t i = 0; i < roster->count; i++)
        if (roster->places[i].node_rank >= (int32_t)job->params.nodes_max)
            return ct_error_set(err, CT_EDATA, "node rank %d of job %s does not fit the job",
                                roster->places[i].node_rank, job->name);
    struct ct_rdzv_place *places = job->roster.places;
    memcpy(places, roster->places, roster->count * sizeof(*places));
    job->roster = *roster;
    job->roster.places = places;
    if (roster->generation == job->generation) {
        job->charged = false;
        job->lost_generation = 0;
    }
    return 0;
}

void ct_rdzv_restore_manifest(struct ct_rdzv *job, const struct ct_rdzv_publication *published)
{
    job->published = *published;
}

/* `until_ms` of each is how long it had to run: what passed meanwhile is not known, and not
 * counted. */
void ct_rdzv_restore_cordon(struct ct_rdzv *job, const struct ct_rdzv_cordon *cordon, size_t count)
{
    job->cordon_count = CT_MIN(count, (size_t)CT_RDZV_CORDONS);
    job->cordon_ms = UINT64_MAX;
    for (size_t i = 0; i < job->cordon_count; i++) {
        struct ct_rdzv_cordon *to = &job->cordons[i];
        *to = cordon[i];
        if (to->until_ms != UINT64_MAX)
            to->until_ms += job->now_ms;
        job->cordon_ms = CT_MIN(job->cordon_ms, to->until_ms);
    }
}

void ct_rdzv_restore_close(struct ct_rdzv *job, const struct ct_rdzv_result *result)
{
    job->result = *result;
    ct_failure_keep(&job->result.cause, &result->cause, job->rooms.result,
                    sizeof(job->rooms.result));
    job->phase = CT_RDZV_CLOSED;
}

static void presume(struct ct_rdzv *job, uint32_t place_number, enum ct_rdzv_member_state state)
{
    const struct ct_rdzv_place *place = &job->roster.places[place_number];
    ct_rdzv_widen(job, place_number + 1);
    struct ct_rdzv_member *member = &job->members[place_number];
    *member = (struct ct_rdzv_member){
        .state = CT_RDZV_FREE,
        .id = place->id,
        .received_ms = job->now_ms,
        .lease_awake_ms = ct_rdzv_awake_ms(job) + job->params.lease_ms + GRACE_MS,
        .joined = ++job->join_serial,
        .node_rank = place->node_rank,
        .slurm_node = -1,
        .place = (int32_t)place_number,
        .old_place = -1,
        .slots = place->slots,
        .port = place->port,
        .presumed = true,
    };
    ct_str_copy(member->host, sizeof(member->host), place->host);
    ct_str_copy(member->address, sizeof(member->address), place->address);
    ct_str_copy(member->role, sizeof(member->role), place->role);
    ct_rdzv_set_member(job, member, state);
    job->scan_awake_ms = CT_MIN(job->scan_awake_ms, member->lease_awake_ms);
}

static void resume(struct ct_rdzv *job)
{
    bool is_whole = job->roster.generation == job->generation || job->phase == CT_RDZV_CLOSED;
    for (uint32_t i = 0; i < job->roster.count; i++)
        presume(job, i, is_whole ? CT_RDZV_ACTING : CT_RDZV_STANDBY);
    job->running_since_ms = job->contact_ms = job->phase_since_ms = job->now_ms;
    if (job->phase == CT_RDZV_CLOSED)
        ct_rdzv_mark_all_informed(job); /* nobody is connected: nobody is told */
    if (job->phase == CT_RDZV_CLOSED || job->roster.generation == 0)
        return;
    if (is_whole) {
        job->store_lost = true;
        job->phase = CT_RDZV_RECOVER; /* until all say that they hold the base, as they do by now */
        return;
    }
    job->phase = CT_RDZV_LAST_CALL; /* whose end begins the next round with the first tick */
    job->call_until_ms = job->now_ms;
    job->reason = CT_RDZV_REASON_RESTART;
}

void ct_rdzv_restored(struct ct_rdzv *job)
{
    resume(job);
    job->due_ms = ct_rdzv_deadline(job);
}

void ct_rdzv_restored_within(struct ct_rdzv *job, uint64_t within_ms)
{
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE)
            continue;
        member->missed = true; /* its silence until then is no sign that this daemon is cut off */
        member->lease_awake_ms = CT_MIN(member->lease_awake_ms, ct_rdzv_awake_ms(job) + within_ms);
        job->scan_awake_ms = CT_MIN(job->scan_awake_ms, member->lease_awake_ms);
    }
    job->due_ms = ct_rdzv_deadline(job);
}

/* Unless its lease is over, it has at least as long as a living agent takes to come back. */
void ct_rdzv_restored_silent(struct ct_rdzv *job, uint64_t id, uint64_t silent_ms)
{
    uint32_t lease_ms = job->params.lease_ms;
    uint64_t left_ms = silent_ms < lease_ms ? CT_MAX(lease_ms - silent_ms,
                                                     (uint64_t)ct_rdzv_heartbeat_ms(&job->params))
                                            : 1;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE || member->link != 0 || ct_id_fold(member->id) != id)
            continue;
        member->missed = true;
        member->lease_awake_ms = ct_rdzv_awake_ms(job) + left_ms;
        job->scan_awake_ms = CT_MIN(job->scan_awake_ms, member->lease_awake_ms);
    }
    job->due_ms = ct_rdzv_deadline(job);
}
