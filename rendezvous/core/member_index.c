/* The member index: find and count members without a scan of all of them, so that a message costs
 * the same in a job of ten thousand nodes as in one of two.
 *
 *      by_id     incarnation -> member     a hash table, open addressing, at most half full
 *      by_rank   node rank   -> member     an array
 *      count     members in each state
 *      outside   those among them that no new round would have: they leave, or are barred
 *
 * All of it changes in ct_rdzv_set_member and ct_rdzv_set_out alone. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/number/rng.h"

#define TO(name) | 1u << CT_RDZV_##name
static const unsigned successors[CT_RDZV_MEMBER_STATES] = {
#define CT_RDZV_MEMBER(name, successors) [CT_RDZV_##name] = 0 successors,
#include "rendezvous/core/states.def"
#undef CT_RDZV_MEMBER
};
#undef TO

static uint32_t number_of(const struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    return (uint32_t)(member - job->members);
}

static uint32_t home_of(const struct ct_rdzv *job, struct ct_id id)
{
    return (uint32_t)ct_mix64(id.high ^ ct_mix64(id.low)) & job->id_mask;
}

static void enter(struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    uint32_t at = home_of(job, member->id);
    while (job->by_id[at] != 0)
        at = (at + 1) & job->id_mask;
    job->by_id[at] = number_of(job, member) + 1;
    if (member->node_rank >= 0)
        job->by_rank[member->node_rank] = number_of(job, member) + 1;
}

/* Those behind a removed entry move up, so that a search may end at the first empty one. */
static void strike(struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    uint32_t at = home_of(job, member->id);
    while (job->by_id[at] != number_of(job, member) + 1) {
        CT_ASSERT(job->by_id[at] != 0);
        at = (at + 1) & job->id_mask;
    }
    uint32_t hole = at;
    for (;;) {
        at = (at + 1) & job->id_mask;
        if (job->by_id[at] == 0)
            break;
        uint32_t home = home_of(job, job->members[job->by_id[at] - 1].id);
        if (((at - home) & job->id_mask) < ((at - hole) & job->id_mask))
            continue; /* its home lies behind the hole */
        job->by_id[hole] = job->by_id[at];
        hole = at;
    }
    job->by_id[hole] = 0;
    if (member->node_rank >= 0)
        job->by_rank[member->node_rank] = 0;
}

void ct_rdzv_set_member(struct ct_rdzv *job, struct ct_rdzv_member *member,
                        enum ct_rdzv_member_state state)
{
    CT_ASSERT((successors[member->state] >> state & 1u) != 0);
    CT_ASSERT(job->count[member->state] > 0);
    bool is_out = member->leaving || member->barred;
    job->count[member->state]--;
    job->count[state]++;
    job->outside[member->state] -= is_out;
    job->outside[state] += is_out;
    if (member->state == CT_RDZV_FREE)
        enter(job, member);
    member->state = state;
    if (state != CT_RDZV_FREE)
        return;
    job->outside[CT_RDZV_FREE] -= is_out; /* the member may still be read, its marks included */
    job->leavers -= member->leaving;
    strike(job, member);
    job->first_free = CT_MIN(job->first_free, (size_t)number_of(job, member));
}

void ct_rdzv_set_out(struct ct_rdzv *job, struct ct_rdzv_member *member, bool leaving, bool barred)
{
    job->outside[member->state] -= member->leaving || member->barred;
    job->outside[member->state] += leaving || barred;
    job->leavers -= member->leaving;
    job->leavers += leaving;
    member->leaving = leaving;
    member->barred = barred;
}

struct ct_rdzv_member *ct_rdzv_find(const struct ct_rdzv *job, struct ct_id id)
{
    for (uint32_t at = home_of(job, id); job->by_id[at] != 0; at = (at + 1) & job->id_mask)
        if (ct_id_equal(job->members[job->by_id[at] - 1].id, id))
            return &job->members[job->by_id[at] - 1];
    return NULL;
}

struct ct_rdzv_member *ct_rdzv_rank_holder(struct ct_rdzv *job, int32_t node_rank)
{
    if (node_rank < 0 || job->by_rank[node_rank] == 0)
        return NULL;
    return &job->members[job->by_rank[node_rank] - 1];
}

bool ct_rdzv_has_room(const struct ct_rdzv *job)
{
    return job->count[CT_RDZV_FREE] > 0 || job->capacity < job->room;
}

void ct_rdzv_widen(struct ct_rdzv *job, size_t count)
{
    CT_ASSERT(count <= job->room);
    for (; job->capacity < count; job->capacity++) {
        struct ct_rdzv_member *member = &job->members[job->capacity];
        member->place = member->old_place = -1;
        job->count[CT_RDZV_FREE]++;
    }
}

struct ct_rdzv_member *ct_rdzv_free_member(struct ct_rdzv *job)
{
    if (job->count[CT_RDZV_FREE] == 0)
        ct_rdzv_widen(job, job->capacity + 1);
    size_t number = job->first_free;
    while (job->members[number].state != CT_RDZV_FREE)
        number++;
    job->first_free = number;
    return &job->members[number];
}

size_t ct_rdzv_candidates(const struct ct_rdzv *job)
{
    size_t count = 0;
    for (enum ct_rdzv_member_state s = 0; s < CT_RDZV_MEMBER_STATES; s++)
        if (s != CT_RDZV_FREE)
            count += job->count[s] - job->outside[s];
    return count;
}

size_t ct_rdzv_drafted(const struct ct_rdzv *job)
{
    return job->count[CT_RDZV_PREPARING] - job->outside[CT_RDZV_PREPARING] +
           job->count[CT_RDZV_PROMISED] - job->outside[CT_RDZV_PROMISED];
}

static bool is_in_pool(const struct ct_rdzv *job, const struct ct_rdzv_member *member,
                       enum ct_rdzv_pool pool)
{
    bool drafted = member->state == CT_RDZV_PREPARING || member->state == CT_RDZV_PROMISED;
    if (member->state == CT_RDZV_FREE || member->leaving || member->barred)
        return false;
    switch (pool) {
    case CT_RDZV_POOL_DRAFTED:
        return drafted;
    case CT_RDZV_POOL_GROWTH:
        return member->state != CT_RDZV_STANDBY || ct_rdzv_is_eligible(job, member);
    default:
        return true;
    }
}

size_t ct_rdzv_usable(const struct ct_rdzv *job, enum ct_rdzv_pool pool)
{
    size_t most = job->params.nodes_max;
    uint32_t divides = job->params.world_divides;
    if (divides == 0 && pool == CT_RDZV_POOL_ALL)
        return CT_MIN(ct_rdzv_candidates(job), most);
    if (divides == 0 && pool == CT_RDZV_POOL_DRAFTED)
        return CT_MIN(ct_rdzv_drafted(job), most);
    size_t count = 0, usable = 0;
    uint64_t world = 0;
    for (size_t i = 0; i < job->capacity && count < most; i++) {
        if (!is_in_pool(job, &job->members[i], pool))
            continue;
        count++;
        world += job->members[i].slots;
        if (divides == 0 || divides % world == 0)
            usable = count;
    }
    return usable;
}
