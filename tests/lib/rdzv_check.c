/* See rdzv_check.h. */
#include "rdzv_check.h"

#include "rendezvous/core/core_state.h"
#include "rendezvous/service/service_state.h"

#include <inttypes.h>
#include <string.h>

enum { PAIRS_CHECKED = 256 };

#define BUG(...) ct_error_set(err, CT_EBUG, __VA_ARGS__)

static int check_counts(const struct ct_rdzv *job, struct ct_error *err)
{
    size_t count[CT_RDZV_MEMBER_STATES] = {0};
    size_t out[CT_RDZV_MEMBER_STATES] = {0};
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        count[member->state]++;
        out[member->state] += member->state != CT_RDZV_FREE && (member->leaving || member->barred);
    }
    for (enum ct_rdzv_member_state s = 0; s < CT_RDZV_MEMBER_STATES; s++)
        if (count[s] != job->count[s])
            return BUG("%zu members are %s, counted %zu", count[s], ct_rdzv_member_state_name(s),
                       job->count[s]);
    for (enum ct_rdzv_member_state s = 0; s < CT_RDZV_MEMBER_STATES; s++)
        if (out[s] != job->outside[s])
            return BUG("%zu members that are %s go, counted %zu", out[s],
                       ct_rdzv_member_state_name(s), job->outside[s]);
    return 0;
}

/* No incarnation and no connection is a member twice, and nobody outlives its lease. */
static int check_members(const struct ct_rdzv *job, struct ct_error *err)
{
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *a = &job->members[i];
        if (a->state == CT_RDZV_FREE)
            continue;
        uint64_t until = a->lease_awake_ms;
        if (job->ticked && until <= ct_rdzv_awake_ms(job) && a->received_ms < job->now_ms)
            return BUG("%s is a member %" PRIu64 " ms after its lease", a->host,
                       ct_rdzv_awake_ms(job) - until);
        if (until < job->scan_awake_ms)
            return BUG("nobody looks at the lease of %s in time", a->host);
        if (a->place >= (int32_t)job->roster.count)
            return BUG("%s has place %d of %u", a->host, a->place, job->roster.count);
        if (ct_rdzv_find(job, a->id) != a)
            return BUG("%s is a member twice, or cannot be found", a->host);
        if (a->node_rank >= 0 && job->by_rank[a->node_rank] != i + 1)
            return BUG("%s shares node rank %d", a->host, a->node_rank);
        /* The square of a large job is too much to look at after each step. */
        for (size_t k = i + 1; k < job->capacity && job->capacity <= PAIRS_CHECKED; k++) {
            const struct ct_rdzv_member *b = &job->members[k];
            if (b->state == CT_RDZV_FREE)
                continue;
            if (a->link == b->link && a->link != 0)
                return BUG("%s and %s share a connection", a->host, b->host);
            if (a->place == b->place && a->place >= 0)
                return BUG("%s and %s share place %d", a->host, b->host, a->place);
        }
    }
    return 0;
}

static int check_roster(const struct ct_rdzv *job, struct ct_error *err)
{
    const struct ct_rdzv_roster *roster = &job->roster;
    if (job->verdict_ms != UINT64_MAX && job->phase != CT_RDZV_RECOVER &&
        job->phase != CT_RDZV_RUNNING)
        return BUG("a job that is to end has moved on");
    if (roster->generation > job->generation)
        return BUG("round %" PRIu64 " was never reserved", roster->generation);
    if (roster->generation == 0)
        return roster->count == 0 ? 0 : BUG("a roster without a round");
    if (roster->count < job->params.nodes_min || roster->count > job->params.nodes_max)
        return BUG("round %" PRIu64 " has %u nodes", roster->generation, roster->count);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->places[i].first_rank != rank || roster->places[i].slots == 0)
            return BUG("place %u begins at rank %u, not %u", i, roster->places[i].first_rank, rank);
        rank += roster->places[i].slots;
    }
    if (rank != roster->world)
        return BUG("%u ranks in a world of %u", rank, roster->world);
    if (roster->base_node >= (int32_t)roster->count ||
        (roster->base_node >= 0) != (roster->lineage > 0) || roster->lineage >= roster->generation)
        return BUG("base node %d, lineage %" PRIu64 " in round %" PRIu64, roster->base_node,
                   roster->lineage, roster->generation);
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE || member->place < 0)
            continue;
        const struct ct_rdzv_place *place = &roster->places[member->place];
        if (place->id.high != member->id.high || place->id.low != member->id.low)
            return BUG("place %d is not that of %s", member->place, member->host);
    }
    return 0;
}

/* Which member states a phase allows. */
static int check_phase(const struct ct_rdzv *job, struct ct_error *err)
{
    size_t acting = job->count[CT_RDZV_ACTING] + job->count[CT_RDZV_DONE];
    size_t asked = job->count[CT_RDZV_PREPARING] + job->count[CT_RDZV_PROMISED];
    bool waits = job->phase == CT_RDZV_LOBBY || job->phase == CT_RDZV_LAST_CALL ||
                 job->phase == CT_RDZV_PAUSED;
    bool makes = job->phase == CT_RDZV_PREPARE || job->phase == CT_RDZV_COMMIT;
    if (waits && acting + asked > 0)
        return BUG("%s with members in a round", ct_rdzv_phase_name(job->phase));
    if (makes && acting > 0)
        return BUG("%s while members act", ct_rdzv_phase_name(job->phase));
    bool acts = ct_rdzv_acts(job);
    if (acts && asked > 0)
        return BUG("%s while members are asked", ct_rdzv_phase_name(job->phase));
    if (job->phase == CT_RDZV_COMMIT && job->count[CT_RDZV_PREPARING] > 0)
        return BUG("COMMIT before all have promised");
    if (job->phase == CT_RDZV_LOBBY && job->roster.generation > 0)
        return BUG("LOBBY after a round");
    if ((acts || makes) && job->generation == 0)
        return BUG("%s without a generation", ct_rdzv_phase_name(job->phase));
    if (acts && job->roster.generation != job->generation)
        return BUG("acting in round %" PRIu64 " of %" PRIu64, job->roster.generation,
                   job->generation);
    if (job->restarts > job->params.max_restarts)
        return BUG("%u restarts of %u", job->restarts, job->params.max_restarts);
    if (job->phase == CT_RDZV_RECOVER && job->recovered_count >= job->roster.count)
        return BUG("RECOVER when all %u hold the base", job->roster.count);
    if (job->roster.published.step > job->published.step)
        return BUG("round %" PRIu64 " knows of a publication that is not on record",
                   job->roster.generation);
    if (job->done_count > job->roster.count)
        return BUG("%u of %u places are done", job->done_count, job->roster.count);
    return 0;
}

int rdzv_check(const struct ct_rdzv *job, struct ct_error *err)
{
    int rc = check_counts(job, err);
    if (rc == 0)
        rc = check_members(job, err);
    if (rc == 0)
        rc = check_roster(job, err);
    return rc != 0 ? rc : check_phase(job, err);
}

const struct ct_rdzv *rdzv_job(const struct ct_service *service, size_t index)
{
    const struct ct_service_job *job = service->jobs;
    while (job != NULL && index-- > 0)
        job = job->next;
    return job != NULL ? job->core : NULL;
}
