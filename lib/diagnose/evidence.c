/* See evidence.h. */
#include "diagnose/evidence.h"

#include "base/assert.h"
#include "diagnose/verdict.h"
#include "wire/worker_record.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_A_ROW = 64 }; /* at most, of all lists together */

/* ---- orders -----------------------------------------------------------------------------------*/

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* The first of the pairs in which the two differ; none: they come in the order of their rows. */
static int compare_all(struct ct_evidence *evidence, const uint64_t (*pairs)[2], int count)
{
    int order = 0;

    evidence->steps++;
    for (int i = 0; i < count && order == 0; i++)
        order = compare(pairs[i][0], pairs[i][1]);
    return order;
}

static int by_rank(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_rank *rows = evidence->all->ranks.data;

    return compare_all(evidence, (const uint64_t[][2]){{rows[x].rank, rows[y].rank}, {x, y}}, 2);
}

static int by_rank_and_id(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_group *rows = evidence->all->groups.data;

    return compare_all(
        evidence,
        (const uint64_t[][2]){{rows[x].rank, rows[y].rank}, {rows[x].id, rows[y].id}, {x, y}}, 3);
}

static int by_id_and_member(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_group *rows = evidence->all->groups.data;

    return compare_all(
        evidence,
        (const uint64_t[][2]){{rows[x].id, rows[y].id}, {rows[x].member, rows[y].member}, {x, y}},
        3);
}

static int by_number(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_call *rows = evidence->all->calls.data;

    return compare_all(evidence,
                       (const uint64_t[][2]){{rows[x].group, rows[y].group},
                                             {rows[x].number, rows[y].number},
                                             {rows[x].rank, rows[y].rank},
                                             {rows[x].age_ms, rows[y].age_ms},
                                             {x, y}},
                       5);
}

static int by_kind(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_call *rows = evidence->all->calls.data;

    return compare_all(evidence,
                       (const uint64_t[][2]){{rows[x].group, rows[y].group},
                                             {rows[x].number, rows[y].number},
                                             {rows[x].count, rows[y].count},
                                             {rows[x].what, rows[y].what},
                                             {rows[x].rank, rows[y].rank},
                                             {x, y}},
                       6);
}

static int by_call_waited_in(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct ct_wire_trace_group *p = evidence->waits[x], *q = evidence->waits[y];

    return compare_all(evidence,
                       (const uint64_t[][2]){{p->id, q->id},
                                             {ct_evidence_stuck_in(q), ct_evidence_stuck_in(p)},
                                             {x, y}},
                       3);
}

static int by_awaited(const void *a, const void *b, void *context)
{
    struct ct_evidence *evidence = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return compare_all(
        evidence,
        (const uint64_t[][2]){
            {(uint32_t)evidence->waits[x]->awaited, (uint32_t)evidence->waits[y]->awaited}, {x, y}},
        2);
}

/* ---- lists ------------------------------------------------------------------------------------*/

static uint32_t *list_of(struct ct_evidence *evidence, uint32_t count,
                         int (*order)(const void *, const void *, void *))
{
    uint32_t *list = ct_arena_array(&evidence->arena, CT_MAX(count, 1u), sizeof *list);

    for (uint32_t i = 0; list != NULL && i < count; i++)
        list[i] = i;
    if (list != NULL && order != NULL)
        qsort_r(list, count, sizeof *list, order, evidence);
    return list;
}

/* The first place of a list of `count` at which `is_before` is false: it is true up to there. */
static uint32_t place_of(struct ct_evidence *evidence, uint32_t count,
                         bool (*is_before)(const struct ct_evidence *evidence, uint32_t place,
                                           const uint64_t *key),
                         const uint64_t *key)
{
    uint32_t first = 0;

    while (first < count) {
        uint32_t middle = first + (count - first) / 2;

        evidence->steps++;
        if (is_before(evidence, middle, key))
            first = middle + 1;
        else
            count = middle;
    }
    return first;
}

/* Does its process give no sign of life? */
static bool is_silent(const struct ct_wire_trace_rank *rank)
{
    if (rank->life == CT_TRACE_RUNS)
        return rank->silent_ms > CT_VERDICT_SILENT_MS;
    return rank->life != CT_TRACE_DOWN;
}

/* Where each rank waits. */
static void find_waits(struct ct_evidence *evidence)
{
    const struct ct_msg_traces *all = evidence->all;

    for (uint32_t i = 0; i < all->groups.count; i++) {
        const struct ct_wire_trace_group *group = &all->groups.data[i];
        const struct ct_wire_trace_rank *rank = ct_evidence_rank(evidence, group->rank);

        if (rank == NULL || ct_evidence_stuck_in(group) == 0 ||
            evidence->waits[rank - all->ranks.data] != NULL ||
            (group->failure == 0 && is_silent(rank)))
            continue;
        evidence->waits[rank - all->ranks.data] = group;
    }
}

static void find_waiters(struct ct_evidence *evidence)
{
    uint32_t *waiters = evidence->waiters, *askers = evidence->askers;

    for (uint32_t i = 0; i < evidence->all->ranks.count; i++) {
        const struct ct_wire_trace_group *group = evidence->waits[i];

        if (group != NULL)
            waiters[evidence->waiter_count++] = i;
        if (group != NULL && group->awaited >= 0)
            askers[evidence->asker_count++] = i;
    }
    qsort_r(waiters, evidence->waiter_count, sizeof *waiters, by_call_waited_in, evidence);
    qsort_r(askers, evidence->asker_count, sizeof *askers, by_awaited, evidence);
    for (uint32_t i = 0; i < evidence->waiter_count; i++) {
        const struct ct_wire_trace_group *group = evidence->waits[waiters[i]];

        if (ct_evidence_stuck_in(group) == CT_RECORD_TRANSFER)
            continue;
        if (evidence->run_count == 0 || evidence->runs[evidence->run_count - 1].group != group->id)
            evidence->runs[evidence->run_count++] =
                (struct ct_evidence_run){.group = group->id, .first = i};
        evidence->runs[evidence->run_count - 1].count++;
    }
}

int ct_evidence_init(struct ct_evidence *evidence, const struct ct_msg_traces *traces)
{
    uint32_t ranks = CT_MAX(traces->ranks.count, 1u);
    size_t rows = (size_t)ranks + traces->groups.count + traces->calls.count;

    *evidence = (struct ct_evidence){.all = traces};
    ct_arena_init(&evidence->arena, (size_t)1 << 20 | rows * BYTES_A_ROW * 2);
    evidence->ranks = list_of(evidence, traces->ranks.count, by_rank);
    evidence->groups = list_of(evidence, traces->groups.count, by_rank_and_id);
    evidence->members = list_of(evidence, traces->groups.count, by_id_and_member);
    evidence->calls = list_of(evidence, traces->calls.count, by_number);
    evidence->kinds = list_of(evidence, traces->calls.count, by_kind);
    evidence->waiters = list_of(evidence, ranks, NULL);
    evidence->askers = list_of(evidence, ranks, NULL);
    evidence->queue = list_of(evidence, ranks, NULL);
    evidence->waits = ct_arena_array(&evidence->arena, ranks, sizeof(struct ct_wire_trace_group *));
    evidence->runs = ct_arena_array(&evidence->arena, ranks, sizeof *evidence->runs);
    evidence->marked = ct_arena_array(&evidence->arena, ranks, sizeof *evidence->marked);
    if (evidence->ranks == NULL || evidence->groups == NULL || evidence->members == NULL ||
        evidence->calls == NULL || evidence->kinds == NULL || evidence->waiters == NULL ||
        evidence->askers == NULL || evidence->queue == NULL || evidence->waits == NULL ||
        evidence->runs == NULL || evidence->marked == NULL) {
        ct_evidence_deinit(evidence);
        return CT_ENOMEM;
    }
    find_waits(evidence);
    find_waiters(evidence);
    return 0;
}

void ct_evidence_deinit(struct ct_evidence *evidence)
{
    ct_arena_deinit(&evidence->arena);
    *evidence = (struct ct_evidence){.all = NULL};
}

/* ---- looking up -------------------------------------------------------------------------------*/

static bool rank_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    return evidence->all->ranks.data[evidence->ranks[place]].rank < key[0];
}

const struct ct_wire_trace_rank *ct_evidence_rank(struct ct_evidence *evidence, uint32_t rank)
{
    const struct ct_msg_traces *all = evidence->all;
    uint32_t place = place_of(evidence, all->ranks.count, rank_before, (const uint64_t[]){rank});

    if (place == all->ranks.count || all->ranks.data[evidence->ranks[place]].rank != rank)
        return NULL;
    return &all->ranks.data[evidence->ranks[place]];
}

static bool group_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    const struct ct_wire_trace_group *row = &evidence->all->groups.data[evidence->groups[place]];

    return row->rank < key[0] || (row->rank == key[0] && row->id < key[1]);
}

const struct ct_wire_trace_group *ct_evidence_group(struct ct_evidence *evidence, uint32_t rank,
                                                    uint64_t id)
{
    uint32_t count = evidence->all->groups.count;
    uint32_t place = place_of(evidence, count, group_before, (const uint64_t[]){rank, id});
    const struct ct_wire_trace_group *row =
        place < count ? &evidence->all->groups.data[evidence->groups[place]] : NULL;

    return row != NULL && row->rank == rank && row->id == id ? row : NULL;
}

uint32_t ct_evidence_groups(struct ct_evidence *evidence, uint32_t rank, uint32_t *ret_first)
{
    uint32_t all = evidence->all->groups.count;

    *ret_first = place_of(evidence, all, group_before, (const uint64_t[]){rank, 0});
    return place_of(evidence, all, group_before, (const uint64_t[]){(uint64_t)rank + 1, 0}) -
           *ret_first;
}

static bool member_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    const struct ct_wire_trace_group *row = &evidence->all->groups.data[evidence->members[place]];

    return row->id < key[0] || (row->id == key[0] && row->member < key[1]);
}

const struct ct_wire_trace_group *ct_evidence_member(struct ct_evidence *evidence, uint64_t id,
                                                     uint32_t member)
{
    uint32_t count = evidence->all->groups.count;
    uint32_t place = place_of(evidence, count, member_before, (const uint64_t[]){id, member});
    const struct ct_wire_trace_group *row =
        place < count ? &evidence->all->groups.data[evidence->members[place]] : NULL;

    return row != NULL && row->id == id && row->member == member ? row : NULL;
}

static bool call_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    const struct ct_wire_trace_call *row = &evidence->all->calls.data[evidence->calls[place]];

    if (row->group != key[0])
        return row->group < key[0];
    return row->number < key[1] || (row->number == key[1] && row->rank < key[2]);
}

uint32_t ct_evidence_calls(struct ct_evidence *evidence, uint32_t rank, uint64_t group,
                           uint64_t number, uint32_t *ret_first)
{
    uint32_t all = evidence->all->calls.count;

    *ret_first = place_of(evidence, all, call_before, (const uint64_t[]){group, number, rank});
    return place_of(evidence, all, call_before,
                    (const uint64_t[]){group, number, (uint64_t)rank + 1}) -
           *ret_first;
}

const struct ct_wire_trace_call *ct_evidence_call(struct ct_evidence *evidence, uint32_t rank,
                                                  uint64_t group, uint64_t number)
{
    uint32_t first, count = ct_evidence_calls(evidence, rank, group, number, &first);

    return count > 0 ? &evidence->all->calls.data[evidence->calls[first]] : NULL;
}

/* ---- who waits for whom -----------------------------------------------------------------------*/

uint64_t ct_evidence_stuck_in(const struct ct_wire_trace_group *group)
{
    if (group->waiting != 0)
        return group->waiting;
    if (group->failure == 0)
        return 0;
    return group->entered > group->completed ? group->completed + 1 : CT_RECORD_TRANSFER;
}

const struct ct_wire_trace_group *ct_evidence_waits(const struct ct_evidence *evidence,
                                                    const struct ct_wire_trace_rank *rank)
{
    return evidence->waits[rank - evidence->all->ranks.data];
}

/* The last collective of the group in which nobody waits for this member of it. */
static uint64_t reached(const struct ct_wire_trace_group *group,
                        const struct ct_wire_trace_rank *rank)
{
    if (group->failure == 0 && is_silent(rank))
        return CT_MIN(group->entered, group->completed);
    return group->entered;
}

/* Whoever waits there knows for whom, and only so: is it this rank? */
static bool asks_for(struct ct_evidence *evidence, const struct ct_wire_trace_group *group,
                     const struct ct_wire_trace_rank *rank)
{
    return group->awaited == (int32_t)rank->rank && rank->rank != group->rank &&
           (ct_evidence_stuck_in(group) == CT_RECORD_TRANSFER ||
            ct_evidence_group(evidence, rank->rank, group->id) == NULL);
}

bool ct_evidence_waits_for(struct ct_evidence *evidence, const struct ct_wire_trace_group *group,
                           const struct ct_wire_trace_rank *rank)
{
    const struct ct_wire_trace_group *own = ct_evidence_group(evidence, rank->rank, group->id);
    uint64_t number = ct_evidence_stuck_in(group);

    if (number == CT_RECORD_TRANSFER || own == NULL)
        return asks_for(evidence, group, rank);
    return rank->rank != group->rank && number > reached(own, rank);
}

static bool run_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    return evidence->runs[place].group < key[0];
}

/* Who waits in collectives of the group; NULL: nobody. */
static struct ct_evidence_run *run_of(struct ct_evidence *evidence, uint64_t group)
{
    uint32_t place = place_of(evidence, evidence->run_count, run_before, (const uint64_t[]){group});

    if (place == evidence->run_count || evidence->runs[place].group != group)
        return NULL;
    return &evidence->runs[place];
}

static bool asker_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    return (uint32_t)evidence->waits[evidence->askers[place]]->awaited < key[0];
}

static bool waiter_before(const struct ct_evidence *evidence, uint32_t place, const uint64_t *key)
{
    const struct ct_wire_trace_group *group = evidence->waits[evidence->waiters[place]];

    return group->id < key[0] || (group->id == key[0] && ct_evidence_stuck_in(group) > key[1]);
}

uint32_t ct_evidence_near(struct ct_evidence *evidence, const struct ct_wire_trace_rank *rank)
{
    uint32_t first, groups = ct_evidence_groups(evidence, rank->rank, &first), count = 0;
    const uint64_t asked[] = {rank->rank}, after[] = {(uint64_t)rank->rank + 1};

    for (uint32_t i = first; i < first + groups; i++) {
        const struct ct_wire_trace_group *group = &evidence->all->groups.data[evidence->groups[i]];
        const struct ct_evidence_run *run = run_of(evidence, group->id);
        const uint64_t key[] = {group->id, reached(group, rank)};

        if (run != NULL)
            count += place_of(evidence, evidence->waiter_count, waiter_before, key) - run->first;
    }
    return count + place_of(evidence, evidence->asker_count, asker_before, after) -
           place_of(evidence, evidence->asker_count, asker_before, asked);
}

/* A walk from a rank to those that wait for it, to those that wait for them, and so on. */
struct walk {
    struct ct_evidence *evidence;
    uint32_t found;
    uint64_t since_ms;
};

static void find(struct walk *walk, uint32_t row)
{
    struct ct_evidence *evidence = walk->evidence;

    evidence->steps++;
    if (evidence->marked[row])
        return;
    evidence->marked[row] = true;
    evidence->queue[walk->found++] = row;
    if (evidence->waits[row] != NULL && walk->found > 1)
        walk->since_ms = CT_MAX(walk->since_ms, evidence->waits[row]->waited_ms);
}

/* Find who waits for this rank in the group, of those that were not found yet. */
static void find_in_group(struct walk *walk, const struct ct_wire_trace_rank *rank,
                          const struct ct_wire_trace_group *group)
{
    struct ct_evidence *evidence = walk->evidence;
    struct ct_evidence_run *run = run_of(evidence, group->id);

    for (; run != NULL && run->taken < run->count; run->taken++) {
        uint32_t row = evidence->waiters[run->first + run->taken];

        if (ct_evidence_stuck_in(evidence->waits[row]) <= reached(group, rank))
            break;
        find(walk, row);
    }
}

static void find_askers(struct walk *walk, const struct ct_wire_trace_rank *rank)
{
    struct ct_evidence *evidence = walk->evidence;
    const uint64_t key[] = {rank->rank};
    uint32_t i = place_of(evidence, evidence->asker_count, asker_before, key);

    for (; i < evidence->asker_count; i++) {
        const struct ct_wire_trace_group *group = evidence->waits[evidence->askers[i]];

        if (group->awaited != (int32_t)rank->rank)
            break;
        if (asks_for(evidence, group, rank))
            find(walk, evidence->askers[i]);
    }
}

uint32_t ct_evidence_follow(struct ct_evidence *evidence, const struct ct_wire_trace_rank *root,
                            uint64_t *ret_since_ms)
{
    struct walk walk = {.evidence = evidence};

    memset(evidence->marked, 0, evidence->all->ranks.count * sizeof *evidence->marked);
    for (uint32_t i = 0; i < evidence->run_count; i++)
        evidence->runs[i].taken = 0;
    find(&walk, (uint32_t)(root - evidence->all->ranks.data));
    for (uint32_t next = 0; next < walk.found; next++) {
        const struct ct_wire_trace_rank *rank = &evidence->all->ranks.data[evidence->queue[next]];
        uint32_t first, groups = ct_evidence_groups(evidence, rank->rank, &first);

        for (uint32_t i = first; i < first + groups; i++)
            find_in_group(&walk, rank, &evidence->all->groups.data[evidence->groups[i]]);
        find_askers(&walk, rank);
    }
    *ret_since_ms = walk.since_ms;
    return walk.found - 1;
}
