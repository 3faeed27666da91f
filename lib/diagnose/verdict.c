/* See verdict.h. What is asked of the traces, evidence.h answers. */
#include "diagnose/verdict.h"

#include "base/assert.h"
#include "diagnose/evidence.h"
#include "wire/flight.h"
#include "wire/worker_record.h"

#include <stdlib.h>

enum {
    TRANSFERS = 16,  /* of a pair are compared, the newest ones */
    ROOTS_MAX = 128, /* ranks that wait for nobody whose victims are followed to the end */
};

static struct ct_signature what_of(const struct ct_wire_trace_call *call)
{
    return (struct ct_signature){call->count, call->what};
}

/* ---- members that called different things -----------------------------------------------------*/

/* Calls of one number of a group, or those of them that are the same: places of evidence->kinds. */
struct part {
    uint32_t first, end;
};

static const struct ct_wire_trace_call *kind_at(const struct ct_evidence *evidence, uint32_t place)
{
    return &evidence->all->calls.data[evidence->kinds[place]];
}

/* The part from `first` on, up to `end`, of one number and, `same`, of the same calls. */
static struct part part_from(struct ct_evidence *evidence, uint32_t first, uint32_t end, bool same)
{
    const struct ct_wire_trace_call *call = kind_at(evidence, first);
    struct part part = {first, first + 1};

    for (; part.end < end; part.end++) {
        const struct ct_wire_trace_call *other = kind_at(evidence, part.end);

        evidence->steps++;
        if (other->group != call->group || other->number != call->number ||
            (same && !ct_signature_equal(what_of(other), what_of(call))))
            break;
    }
    return part;
}

static bool name_mismatch(struct ct_evidence *evidence, const struct ct_wire_trace_call *own,
                          const struct ct_wire_trace_call *other, struct ct_verdict *verdict)
{
    *verdict = (struct ct_verdict){
        .kind = CT_VERDICT_MISMATCH,
        .culprit = ct_evidence_rank(evidence, own->rank),
        .own = {ct_evidence_group(evidence, own->rank, own->group), own->number, own},
        .awaited = {ct_evidence_group(evidence, other->rank, other->group), other->number, other},
        .other = other->rank,
        .since_ms = CT_MIN(own->age_ms, other->age_ms),
    };
    return verdict->culprit != NULL && verdict->own.group != NULL && verdict->awaited.group != NULL;
}

/* Members called different things at this number: the fewest are wrong, of equally many those with
 * the last rank; the most of the others are who is right. */
static bool judge_number(struct ct_evidence *evidence, struct part number,
                         struct ct_verdict *verdict)
{
    struct part wrong = {0, 0}, right = {0, 0}, same;

    for (uint32_t at = number.first; at < number.end; at = same.end) {
        same = part_from(evidence, at, number.end, true);
        uint32_t count = same.end - same.first, fewest = wrong.end - wrong.first;
        if (fewest == 0 || count < fewest ||
            (count == fewest &&
             kind_at(evidence, same.end - 1)->rank > kind_at(evidence, wrong.end - 1)->rank))
            wrong = same;
    }
    for (uint32_t at = number.first; at < number.end; at = same.end) {
        same = part_from(evidence, at, number.end, true);
        if (same.first != wrong.first && same.end - same.first > right.end - right.first)
            right = same;
    }
    return name_mismatch(evidence, kind_at(evidence, wrong.end - 1), kind_at(evidence, right.first),
                         verdict);
}

/* The first number of a group at which members called different things; of several groups, where
 * that was first. */
static bool find_mismatch(struct ct_evidence *evidence, struct ct_verdict *ret_verdict)
{
    uint32_t count = evidence->all->calls.count;
    const struct ct_wire_trace_call *last = NULL; /* of a group that is judged */
    struct ct_verdict verdict;
    struct part number;
    bool found = false;

    for (uint32_t at = 0; at < count; at = number.end) {
        const struct ct_wire_trace_call *call = kind_at(evidence, at);

        number = part_from(evidence, at, count, false);
        if (call->number == 0 || (last != NULL && last->group == call->group) ||
            part_from(evidence, at, number.end, true).end == number.end)
            continue;
        last = call;
        if (judge_number(evidence, number, &verdict) &&
            (!found || verdict.since_ms > ret_verdict->since_ms)) {
            *ret_verdict = verdict;
            found = true;
        }
    }
    return found;
}

/* Do the two ends of a message, the one of which is `is`, not fit together? */
static bool is_unfit(const struct ct_wire_trace_call *call, const struct ct_signature_fields *is,
                     const struct ct_wire_trace_call *other, uint32_t member)
{
    struct ct_signature_fields fields;

    if (!ct_signature_unpack(other->what, &fields) || fields.peer != member ||
        fields.kind == is->kind)
        return false;
    return fields.kind == CT_CALL_EXCHANGE || other->count != call->count ||
           fields.dtype != is->dtype || fields.tag != is->tag;
}

/* The other end of a send or recv that failed: the newest of its peer that goes the other way. */
static const struct ct_wire_trace_call *other_end(struct ct_evidence *evidence,
                                                  const struct ct_wire_trace_call *call,
                                                  const struct ct_wire_trace_group *own,
                                                  const struct ct_signature_fields *is)
{
    const struct ct_wire_trace_group *peer = ct_evidence_member(evidence, own->id, is->peer);
    uint32_t first = 0, count = 0;

    if (peer != NULL)
        count = ct_evidence_calls(evidence, peer->rank, own->id, 0, &first);
    for (uint32_t i = first; i < first + CT_MIN(count, (uint32_t)TRANSFERS); i++) {
        const struct ct_wire_trace_call *other = &evidence->all->calls.data[evidence->calls[i]];

        if (is_unfit(call, is, other, own->member))
            return other;
    }
    return NULL;
}

static bool find_transfer_mismatch(struct ct_evidence *evidence, struct ct_verdict *verdict)
{
    const struct ct_msg_traces *all = evidence->all;

    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *call = &all->calls.data[i];
        struct ct_signature_fields is;

        evidence->steps++;
        if (call->number != 0 || call->state != CT_FLIGHT_FAILED ||
            !ct_signature_unpack(call->what, &is) || is.kind == CT_CALL_EXCHANGE)
            continue;
        const struct ct_wire_trace_group *own =
            ct_evidence_group(evidence, call->rank, call->group);
        const struct ct_wire_trace_call *other = own != NULL && own->failure == CT_EMISMATCH
                                                     ? other_end(evidence, call, own, &is)
                                                     : NULL;
        if (other != NULL)
            return name_mismatch(evidence, other, call, verdict);
    }
    return false;
}

/* ---- the rank that waits for nobody -----------------------------------------------------------*/

/* Does it take that long every time? */
static bool is_slow(const struct ct_msg_traces *all, const struct ct_wire_trace_rank *rank)
{
    uint64_t others = 0;

    if (rank->life == CT_TRACE_STOPPED || rank->gap_ms == 0 ||
        rank->silent_ms > CT_VERDICT_SLOW_FACTOR * rank->gap_ms)
        return false;
    for (uint32_t i = 0; i < all->ranks.count; i++)
        if (all->ranks.data[i].rank != rank->rank)
            others = CT_MAX(others, all->ranks.data[i].gap_ms);
    return rank->gap_ms > 2 * others;
}

/* Its newest collective in a group. */
static struct ct_verdict_call newest(struct ct_evidence *evidence,
                                     const struct ct_wire_trace_group *group)
{
    if (group == NULL || group->entered == 0)
        return (struct ct_verdict_call){NULL, 0, NULL};
    return (struct ct_verdict_call){
        group, group->entered, ct_evidence_call(evidence, group->rank, group->id, group->entered)};
}

/* What a rank waits in there. */
static struct ct_verdict_call call_in(struct ct_evidence *evidence,
                                      const struct ct_wire_trace_group *group)
{
    uint64_t number = ct_evidence_stuck_in(group);

    number = number == CT_RECORD_TRANSFER ? 0 : number;
    return (struct ct_verdict_call){group, number,
                                    ct_evidence_call(evidence, group->rank, group->id, number)};
}

/* What the ranks wait in for the culprit: the call of the one that waits longest. */
static struct ct_verdict_call awaited_call(struct ct_evidence *evidence,
                                           const struct ct_wire_trace_rank *culprit)
{
    const struct ct_msg_traces *all = evidence->all;
    const struct ct_wire_trace_group *found = NULL;

    for (uint32_t i = 0; i < all->ranks.count; i++) {
        const struct ct_wire_trace_group *group = ct_evidence_waits(evidence, &all->ranks.data[i]);

        if (group != NULL && (found == NULL || group->waited_ms > found->waited_ms) &&
            ct_evidence_waits_for(evidence, group, culprit))
            found = group;
    }
    return found != NULL ? call_in(evidence, found) : (struct ct_verdict_call){NULL, 0, NULL};
}

/* The call in which it waited for others when it gave its last sign of life; NULL: in none. */
static const struct ct_wire_trace_group *hangs_in(struct ct_evidence *evidence,
                                                  const struct ct_wire_trace_rank *rank)
{
    uint32_t first, count = ct_evidence_groups(evidence, rank->rank, &first);

    for (uint32_t i = first; i < first + count; i++) {
        const struct ct_wire_trace_group *group = &evidence->all->groups.data[evidence->groups[i]];

        if (group->waiting != 0 && group->failure == 0)
            return group;
    }
    return NULL;
}

static void describe(struct ct_evidence *evidence, struct ct_verdict *verdict)
{
    const struct ct_wire_trace_rank *culprit = verdict->culprit;
    const struct ct_wire_trace_group *own = NULL, *inside = hangs_in(evidence, culprit);

    verdict->awaited = awaited_call(evidence, culprit);
    if (verdict->awaited.group != NULL)
        own = ct_evidence_group(evidence, culprit->rank, verdict->awaited.group->id);
    verdict->own = newest(evidence, own);
    bool entered =
        own != NULL && verdict->awaited.number != 0 && own->entered >= verdict->awaited.number;
    if (culprit->life == CT_TRACE_ENDED) {
        verdict->kind = CT_VERDICT_DEAD;
    } else if (inside != NULL) {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->own = call_in(evidence, inside);
    } else if (entered) {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->own = verdict->awaited;
    } else {
        verdict->kind = is_slow(evidence->all, culprit) ? CT_VERDICT_SLOW : CT_VERDICT_MISSING;
    }
}

/* A rank that others wait for and that waits for nobody. */
struct root {
    const struct ct_wire_trace_rank *rank;
    uint32_t near; /* how many wait for it itself */
};

/* The dead before the living, then who is awaited most. */
static bool comes_before(const struct root *a, const struct root *b)
{
    bool a_dead = a->rank->life == CT_TRACE_ENDED, b_dead = b->rank->life == CT_TRACE_ENDED;

    return a_dead != b_dead ? a_dead : a->near > b->near;
}

/* The ROOTS_MAX likeliest, in order; how many. */
static uint32_t find_roots(struct ct_evidence *evidence, struct root roots[ROOTS_MAX])
{
    const struct ct_msg_traces *all = evidence->all;
    uint32_t count = 0;

    for (uint32_t i = 0; i < all->ranks.count; i++) {
        struct root root = {.rank = &all->ranks.data[i]};

        if (ct_evidence_waits(evidence, root.rank) == NULL)
            root.near = ct_evidence_near(evidence, root.rank);
        if (root.near == 0 || (count == ROOTS_MAX && !comes_before(&root, &roots[count - 1])))
            continue;
        uint32_t at = count < ROOTS_MAX ? count++ : count - 1;
        for (; at > 0 && comes_before(&root, &roots[at - 1]); at--) {
            evidence->steps++;
            roots[at] = roots[at - 1];
        }
        roots[at] = root;
    }
    return count;
}

/* The root that holds up most; a dead one before the living. */
static bool find_root(struct ct_evidence *evidence, struct ct_verdict *verdict)
{
    struct root roots[ROOTS_MAX];
    uint32_t count = find_roots(evidence, roots);

    *verdict = (struct ct_verdict){.kind = CT_VERDICT_NONE};
    for (uint32_t i = 0; i < count && verdict->waiting < evidence->waiter_count; i++) {
        uint64_t since_ms;

        if (verdict->culprit != NULL && verdict->culprit->life == CT_TRACE_ENDED &&
            roots[i].rank->life != CT_TRACE_ENDED)
            break;
        uint32_t waiting = ct_evidence_follow(evidence, roots[i].rank, &since_ms);
        if (waiting <= verdict->waiting)
            continue;
        verdict->culprit = roots[i].rank;
        verdict->waiting = waiting;
        verdict->since_ms = since_ms;
    }
    if (verdict->culprit == NULL)
        return false;
    describe(evidence, verdict);
    return true;
}

/* ---- all wait for each other ------------------------------------------------------------------*/

/* The waiters from this place of the list on that wait in the same call. */
static uint32_t count_from(struct ct_evidence *evidence, uint32_t place)
{
    const struct ct_wire_trace_group *group = evidence->waits[evidence->waiters[place]];
    uint32_t count = 0;

    for (; place + count < evidence->waiter_count; count++) {
        const struct ct_wire_trace_group *other = evidence->waits[evidence->waiters[place + count]];

        evidence->steps++;
        if (other->id != group->id || ct_evidence_stuck_in(other) != ct_evidence_stuck_in(group))
            break;
    }
    return count;
}

/* The calls in which the fewest and the most ranks wait: the last and the first rank of them. */
struct extremes {
    uint32_t fewest, few, most, many; /* row of ranks, how many */
};

static struct extremes find_extremes(struct ct_evidence *evidence)
{
    struct extremes found = {.few = UINT32_MAX};
    uint32_t count;

    for (uint32_t place = 0; place < evidence->waiter_count; place += count) {
        count = count_from(evidence, place);
        uint32_t first = evidence->waiters[place], last = evidence->waiters[place + count - 1];

        if (count < found.few || (count == found.few && last > found.fewest)) {
            found.few = count;
            found.fewest = last;
        }
        if (count > found.many || (count == found.many && first < found.most)) {
            found.many = count;
            found.most = first;
        }
    }
    return found;
}

/* Is every rank of the largest group among the evidence? When the store of the round is lost, an
 * agent has its own node's ranks alone, and the one that they wait for may be elsewhere. */
static bool is_whole(const struct ct_evidence *evidence)
{
    const struct ct_msg_traces *all = evidence->all;
    uint32_t size = 0;

    for (uint32_t i = 0; i < all->groups.count; i++)
        size = CT_MAX(size, all->groups.data[i].size);
    return all->ranks.count >= size;
}

/* Everybody waits, for others that wait. Those who are fewest in their call are in the wrong one;
 * when all are in the same, whoever most wait for does not let go of it. */
static bool find_circle(struct ct_evidence *evidence, struct ct_verdict *verdict)
{
    struct extremes found = find_extremes(evidence);

    if (evidence->waiter_count == 0 || !is_whole(evidence))
        return false;
    const struct ct_wire_trace_group *fewest = evidence->waits[found.fewest];
    const struct ct_wire_trace_group *most = evidence->waits[found.most];
    verdict->own = call_in(evidence, fewest);
    verdict->since_ms = fewest->waited_ms;
    if (fewest->id != most->id || ct_evidence_stuck_in(fewest) != ct_evidence_stuck_in(most)) {
        verdict->kind = CT_VERDICT_MISMATCH;
        verdict->culprit = ct_evidence_rank(evidence, fewest->rank);
        verdict->awaited = call_in(evidence, most);
        verdict->other = most->rank;
        verdict->waiting = found.many;
    } else {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->culprit =
            ct_evidence_rank(evidence, most->awaited >= 0 ? (uint32_t)most->awaited : most->rank);
        verdict->awaited = verdict->own;
        verdict->waiting = found.many - 1;
    }
    return verdict->culprit != NULL;
}

/* ---- verdicts ---------------------------------------------------------------------------------*/

bool ct_verdict_find(const struct ct_msg_traces *traces, struct ct_verdict *ret_verdict)
{
    struct ct_verdict verdict = {.kind = CT_VERDICT_NONE};
    struct ct_evidence evidence;

    *ret_verdict = verdict;
    if (ct_evidence_init(&evidence, traces) != 0)
        return false;
    bool found = find_mismatch(&evidence, &verdict) ||
                 find_transfer_mismatch(&evidence, &verdict) || find_root(&evidence, &verdict) ||
                 find_circle(&evidence, &verdict);
    if (!found)
        verdict = (struct ct_verdict){.kind = CT_VERDICT_NONE};
    verdict.steps = evidence.steps;
    *ret_verdict = verdict;
    ct_evidence_deinit(&evidence);
    return found;
}

bool ct_verdict_stands(const struct ct_verdict *verdict)
{
    return verdict->kind != CT_VERDICT_NONE && verdict->since_ms >= CT_VERDICT_SILENT_MS;
}

static bool judge_dead(struct ct_evidence *evidence, uint32_t rank, struct ct_verdict *ret_verdict)
{
    struct ct_verdict verdict = {.kind = CT_VERDICT_DEAD,
                                 .culprit = ct_evidence_rank(evidence, rank)};
    uint32_t first, count = ct_evidence_groups(evidence, rank, &first);

    if (verdict.culprit == NULL)
        return false;
    verdict.waiting = ct_evidence_follow(evidence, verdict.culprit, &verdict.since_ms);
    verdict.awaited = awaited_call(evidence, verdict.culprit);
    for (uint32_t i = first; i < first + count; i++) {
        const struct ct_wire_trace_group *group = &evidence->all->groups.data[evidence->groups[i]];

        if (group->entered > group->completed || verdict.own.group == NULL)
            verdict.own = newest(evidence, group);
    }
    if (verdict.awaited.group == NULL && verdict.own.group == NULL)
        return false;
    *ret_verdict = verdict;
    return true;
}

bool ct_verdict_dead(const struct ct_msg_traces *traces, uint32_t rank,
                     struct ct_verdict *ret_verdict)
{
    struct ct_evidence evidence;

    if (ct_evidence_init(&evidence, traces) != 0)
        return false;
    bool found = judge_dead(&evidence, rank, ret_verdict);
    ct_evidence_deinit(&evidence);
    return found;
}
