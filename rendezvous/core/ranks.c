/* Who gets which ranks, and whose state the round starts from.
 *
 * Survivors keep their order. A newcomer takes the place of somebody who is gone: its own (it was
 * lost and came back) or its node's (same node rank asked for, or same host) first, then one with
 * as many slots, then any. More newcomers go to the end; places that stay empty are closed up. So a
 * replacement disturbs nobody's rank, a larger round numbers the new ranks last, a smaller one
 * keeps the order.
 *
 *      before:   A B C D      gone: B C      new: E       after:   A E D
 *
 * When the job can only use some worlds (world_divides) the last nodes are left out, as spares.
 *
 * The base descends from all that was published, for it is chosen when no older round can publish
 * any more; a state behind the newest publication, or from before the round that made it, is
 * nobody's base.
 *
 * Newcomers are ordered by the node rank they asked for, then by their Slurm node number, then by
 * the natural order of their host names (node2 before node10), then by arrival. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that were given come before those that were not. */
static int compare_optional(int32_t a, int32_t b)
{
    if ((a < 0) != (b < 0))
        return a < 0 ? 1 : -1;
    return (a > b) - (a < b);
}

static int by_key(const void *left, const void *right, void *context)
{
    const struct ct_rdzv_member *members = context;
    const struct ct_rdzv_member *a = &members[*(const uint32_t *)left];
    const struct ct_rdzv_member *b = &members[*(const uint32_t *)right];
    int order = compare_optional(a->node_rank, b->node_rank);
    if (order == 0)
        order = compare_optional(a->slurm_node, b->slurm_node);
    if (order == 0)
        order = ct_natural_compare(a->host, b->host);
    if (order == 0)
        order = (a->joined > b->joined) - (a->joined < b->joined);
    return order;
}

enum fit { FIT_SAME_NODE, FIT_SAME_SLOTS, FIT_ANY, FITS };

static bool fits(const struct ct_rdzv_place *place, const struct ct_rdzv_member *member,
                 enum fit fit)
{
    switch (fit) {
    case FIT_SAME_NODE:
        return place->slots == member->slots &&
               (member->node_rank >= 0 ? place->node_rank == member->node_rank
                                       : strcmp(place->host, member->host) == 0);
    case FIT_SAME_SLOTS:
        return place->slots == member->slots;
    default:
        return true;
    }
}

/* Put newcomers (their numbers in job->order) into the empty places of the last round; those who
 * found one are marked UINT32_MAX. */
static void fill_holes(struct ct_rdzv *job, size_t newcomers)
{
    size_t left = newcomers;
    for (size_t i = 0; i < newcomers; i++) {
        int32_t place = job->members[job->order[i]].old_place;
        if (place < 0 || job->holder[place] >= 0)
            continue;
        job->holder[place] = (int32_t)job->order[i];
        job->order[i] = UINT32_MAX;
        left--;
    }
    for (enum fit fit = 0; fit < FITS; fit++) {
        for (uint32_t place = 0; place < job->roster.count && left > 0; place++) {
            for (size_t i = 0; i < newcomers && job->holder[place] < 0; i++) {
                uint32_t number = job->order[i];
                if (number == UINT32_MAX ||
                    !fits(&job->roster.places[place], &job->members[number], fit))
                    continue;
                job->holder[place] = (int32_t)number;
                job->order[i] = UINT32_MAX;
                left--;
            }
        }
    }
}

static void fill_place(struct ct_rdzv_place *place, const struct ct_rdzv_member *member,
                       uint32_t first_rank)
{
    *place = (struct ct_rdzv_place){
        .id = member->id,
        .slots = member->slots,
        .first_rank = first_rank,
        .node_rank = member->node_rank,
        .port = member->port,
        .survivor = member->place >= 0,
    };
    ct_str_copy(place->host, sizeof(place->host), member->host);
    ct_str_copy(place->address, sizeof(place->address), member->address);
    ct_str_copy(place->role, sizeof(place->role), member->role);
}

/* The oldest lineage that is still the job's history: that of the last round, unless one of its
 * members knows that it took no part in a step of it. Each step needs all, so there was none, and
 * what could have been the base of that round still can be one. Any where the record was lost. */
static uint64_t oldest_lineage(const struct ct_rdzv *job, uint32_t count)
{
    if (job->lost_generation > 0)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ct_rdzv_member *member = &job->members[job->holder[i]];
        bool took_part = member->place >= 0 || member->old_place >= 0;
        if (took_part && member->acted < job->roster.generation)
            return job->roster.oldest;
    }
    return job->roster.generation;
}

/* May a round start from what this member holds? It must be of the job's history (or just what the
 * last round began with, should nobody hold more), and of what was published: the published state
 * itself, or one from after it. */
static bool may_be_base(const struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    const struct ct_rdzv_publication *published = &job->published;
    const struct ct_rdzv_roster *last = &job->roster;
    bool is_history = member->lineage >= job->next.oldest &&
                      member->lineage <= CT_MAX(last->generation, job->lost_generation);
    bool is_last_base =
        last->base_node >= 0 && member->lineage == last->lineage && member->step == last->base_step;
    bool is_published = member->lineage == published->lineage && member->step == published->step;
    bool is_later = member->lineage >= published->generation && member->step >= published->step;
    return member->lineage > 0 && (is_history || is_last_base) && (is_published || is_later);
}

/* The first of `count` holders with the newest state, -1: nobody has one. */
static int32_t newest_holder(const struct ct_rdzv *job, uint32_t count)
{
    const struct ct_rdzv_member *best = NULL;
    int32_t index = -1;
    for (uint32_t i = 0; i < count; i++) {
        const struct ct_rdzv_member *member = &job->members[job->holder[i]];
        if (!may_be_base(job, member))
            continue;
        if (best != NULL && (member->lineage != best->lineage ? member->lineage < best->lineage
                                                              : member->step <= best->step))
            continue;
        best = member;
        index = (int32_t)i;
    }
    return index;
}

/* Nodes go until the world is one that the job can use: they stay members, and are spares. The last
 * newcomer goes first, then the last survivor, never the base. `count` holders; how many are left.
 */
static uint32_t trim(struct ct_rdzv *job, uint32_t count)
{
    uint64_t world = 0;
    for (uint32_t i = 0; i < count; i++)
        world += job->members[job->holder[i]].slots;
    while (job->params.world_divides != 0 && count > 0 && job->params.world_divides % world != 0) {
        int32_t base = newest_holder(job, count);
        uint32_t goes = count;
        for (uint32_t i = 0; i < count; i++)
            if ((int32_t)i != base && job->members[job->holder[i]].place < 0)
                goes = i;
        if (goes == count)
            goes = base == (int32_t)count - 1 && count > 1 ? count - 2 : count - 1;
        world -= job->members[job->holder[goes]].slots;
        memmove(&job->holder[goes], &job->holder[goes + 1],
                (count - goes - 1) * sizeof(*job->holder));
        count--;
    }
    return count;
}

void ct_rdzv_assign(struct ct_rdzv *job)
{
    uint32_t places = job->roster.count;
    size_t newcomers = 0;
    for (uint32_t i = 0; i < places; i++)
        job->holder[i] = -1;
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_PROMISED)
            continue;
        if (member->place >= 0)
            job->holder[member->place] = (int32_t)i;
        else
            job->order[newcomers++] = (uint32_t)i;
    }
    qsort_r(job->order, newcomers, sizeof(*job->order), by_key, job->members);
    fill_holes(job, newcomers);
    for (size_t i = 0; i < newcomers; i++)
        if (job->order[i] != UINT32_MAX)
            job->holder[places++] = (int32_t)job->order[i];

    uint32_t count = 0;
    for (uint32_t i = 0; i < places; i++)
        if (job->holder[i] >= 0)
            job->holder[count++] = job->holder[i];
    struct ct_rdzv_roster *next = &job->next;
    next->generation = job->generation;
    next->oldest = oldest_lineage(job, count);
    next->count = trim(job, count);
    next->world = 0;
    CT_ASSERT(next->count <= job->params.nodes_max);
    for (uint32_t i = 0; i < next->count; i++) {
        const struct ct_rdzv_member *member = &job->members[job->holder[i]];
        fill_place(&next->places[i], member, next->world);
        next->world += member->slots;
    }
}

int ct_rdzv_choose_base(struct ct_rdzv *job, struct ct_error *err)
{
    struct ct_rdzv_roster *next = &job->next;
    next->published = job->published;
    next->lineage = next->base_step = next->base_digest = 0;
    next->base_node = newest_holder(job, next->count);
    if (next->base_node >= 0) {
        const struct ct_rdzv_member *base = &job->members[job->holder[next->base_node]];
        next->lineage = base->lineage;
        next->base_step = base->step;
        next->base_digest = base->digest;
    }
    for (uint32_t i = 0; next->base_node >= 0 && i < next->count; i++) {
        const struct ct_rdzv_member *member = &job->members[job->holder[i]];
        if (member->lineage == next->lineage && member->step == next->base_step &&
            member->digest != next->base_digest && member->digest != 0 && next->base_digest != 0)
            return ct_error_set(err, CT_EDIVERGED,
                                "hosts %s and %s hold different states of step "
                                "%" PRIu64 ": digests %016" PRIx64 " and %016" PRIx64,
                                next->places[next->base_node].host, member->host, member->step,
                                next->base_digest, member->digest);
    }
    return 0;
}
