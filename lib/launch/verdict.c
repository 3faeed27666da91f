/* See verdict.h. The lists are short (a few groups a rank), so everything is found by looking. */
#include "launch/verdict.h"

#include "base/assert.h"
#include "wire/flight.h"
#include "wire/worker_record.h"

#include <string.h>

/* ---- looking up -------------------------------------------------------------------------------*/

static const struct ct_wire_trace_rank *rank_of(const struct ct_msg_traces *all, uint32_t rank)
{
    for (uint32_t i = 0; i < all->ranks.count; i++)
        if (all->ranks.data[i].rank == rank)
            return &all->ranks.data[i];
    return NULL;
}

static const struct ct_wire_trace_group *group_of(const struct ct_msg_traces *all, uint32_t rank,
                                                  uint64_t id)
{
    for (uint32_t i = 0; i < all->groups.count; i++)
        if (all->groups.data[i].rank == rank && all->groups.data[i].id == id)
            return &all->groups.data[i];
    return NULL;
}

static const struct ct_wire_trace_call *call_of(const struct ct_msg_traces *all, uint32_t rank,
                                                uint64_t group, uint64_t number)
{
    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *call = &all->calls.data[i];

        if (call->rank == rank && call->group == group && call->number == number)
            return call;
    }
    return NULL;
}

static struct ct_signature what_of(const struct ct_wire_trace_call *call)
{
    return (struct ct_signature){call->count, call->what};
}

/* ---- who waits for whom -----------------------------------------------------------------------*/

/* Does its process give no sign of life? */
static bool is_silent(const struct ct_wire_trace_rank *rank)
{
    if (rank->life == CT_TRACE_RUNS)
        return rank->silent_ms > CT_VERDICT_SILENT_MS;
    return rank->life != CT_TRACE_DOWN;
}

/* The collective that this rank is in or failed in; 0: none, CT_RECORD_TRANSFER: a transfer. */
static uint64_t stuck_in(const struct ct_wire_trace_group *group)
{
    if (group->waiting != 0)
        return group->waiting;
    if (group->failure == 0)
        return 0;
    return group->entered > group->completed ? group->completed + 1 : CT_RECORD_TRANSFER;
}

/* The group in which a rank waits for others: one that runs, or one that failed there. NULL: it
 * waits for nobody. */
static const struct ct_wire_trace_group *waits_in(const struct ct_msg_traces *all,
                                                  const struct ct_wire_trace_rank *rank)
{
    for (uint32_t i = 0; i < all->groups.count; i++) {
        const struct ct_wire_trace_group *group = &all->groups.data[i];

        if (group->rank != rank->rank || stuck_in(group) == 0)
            continue;
        if (group->failure != 0 || !is_silent(rank))
            return group;
    }
    return NULL;
}

/* Does who waits in `group` wait for `rank`? */
static bool waits_for(const struct ct_msg_traces *all, const struct ct_wire_trace_group *group,
                      const struct ct_wire_trace_rank *rank)
{
    uint64_t number = stuck_in(group);
    const struct ct_wire_trace_group *own = group_of(all, rank->rank, group->id);

    if (rank->rank == group->rank)
        return false;
    if (number == CT_RECORD_TRANSFER || own == NULL)
        return group->awaited == (int32_t)rank->rank;
    if (own->entered < number)
        return true;
    return own->completed < number && own->failure == 0 && is_silent(rank);
}

/* Mark who waits for those that are marked, until nobody comes to it; how many were. */
static uint32_t spread(const struct ct_msg_traces *all, const struct ct_wire_trace_rank *root,
                       uint64_t *ret_since)
{
    uint32_t count = 0, before;
    const struct ct_wire_trace_group *first = NULL;
    bool marked[4096] = {false};
    uint32_t ranks = CT_MIN(all->ranks.count, 4096u);

    *ret_since = 0;
    do {
        before = count;
        for (uint32_t i = 0; i < ranks; i++) {
            const struct ct_wire_trace_rank *rank = &all->ranks.data[i];
            const struct ct_wire_trace_group *group =
                rank == root || marked[i] ? NULL : waits_in(all, rank);
            bool waits = group != NULL && waits_for(all, group, root);

            for (uint32_t k = 0; group != NULL && !waits && k < ranks; k++)
                waits = marked[k] && waits_for(all, group, &all->ranks.data[k]);
            if (!waits)
                continue;
            marked[i] = true;
            count++;
            first = first == NULL || group->waited_ms > first->waited_ms ? group : first;
        }
    } while (count != before);
    *ret_since = first != NULL ? first->waited_ms : 0;
    return count;
}

/* ---- members that called different things -----------------------------------------------------*/

/* How many ranks made this call at this number, and how many made any there. */
static uint32_t count_alike(const struct ct_msg_traces *all, const struct ct_wire_trace_call *call,
                            uint32_t *ret_any)
{
    uint32_t alike = 0;

    *ret_any = 0;
    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *other = &all->calls.data[i];

        if (other->group != call->group || other->number != call->number)
            continue;
        ++*ret_any;
        alike += ct_signature_equal(what_of(other), what_of(call));
    }
    return alike;
}

/* Another rank's call at this number that is different, of the most common kind. */
static const struct ct_wire_trace_call *most_common_other(const struct ct_msg_traces *all,
                                                          const struct ct_wire_trace_call *call)
{
    const struct ct_wire_trace_call *found = NULL;
    uint32_t any, most = 0;

    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *other = &all->calls.data[i];

        if (other->group != call->group || other->number != call->number ||
            ct_signature_equal(what_of(other), what_of(call)))
            continue;
        uint32_t alike = count_alike(all, other, &any);
        if (alike > most) {
            most = alike;
            found = other;
        }
    }
    return found;
}

static struct ct_verdict_call place_of(const struct ct_msg_traces *all,
                                       const struct ct_wire_trace_call *call)
{
    return (struct ct_verdict_call){group_of(all, call->rank, call->group), call->number, call};
}

static bool name_mismatch(const struct ct_msg_traces *all, const struct ct_wire_trace_call *own,
                          const struct ct_wire_trace_call *other, struct ct_verdict *verdict)
{
    verdict->kind = CT_VERDICT_MISMATCH;
    verdict->culprit = rank_of(all, own->rank);
    verdict->own = place_of(all, own);
    verdict->awaited = place_of(all, other);
    verdict->other = other->rank;
    verdict->since_ms = CT_MIN(own->age_ms, other->age_ms);
    if (verdict->own.group == NULL || verdict->awaited.group == NULL)
        return false;
    return verdict->culprit != NULL;
}

/* The first number of a group at which members called different things; the fewest are wrong, of
 * two the later rank. */
static bool find_mismatch(const struct ct_msg_traces *all, struct ct_verdict *verdict)
{
    const struct ct_wire_trace_call *found = NULL;
    uint32_t fewest = 0;

    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *call = &all->calls.data[i];
        uint32_t any, alike;

        if (call->number == 0 ||
            (found != NULL && call->group == found->group && call->number > found->number))
            continue;
        alike = count_alike(all, call, &any);
        if (alike == any)
            continue;
        if (found == NULL || call->group != found->group || call->number < found->number ||
            alike < fewest || (alike == fewest && call->rank > found->rank)) {
            found = call;
            fewest = alike;
        }
    }
    return found != NULL && name_mismatch(all, found, most_common_other(all, found), verdict);
}

/* The other end of a send or recv that failed: the newest of its peer that goes the other way. */
static const struct ct_wire_trace_call *other_end(const struct ct_msg_traces *all,
                                                  const struct ct_wire_trace_call *call,
                                                  const struct ct_signature_fields *is)
{
    const struct ct_wire_trace_group *own = group_of(all, call->rank, call->group);
    const struct ct_wire_trace_call *found = NULL;

    for (uint32_t i = 0; own != NULL && i < all->calls.count; i++) {
        const struct ct_wire_trace_call *other = &all->calls.data[i];
        const struct ct_wire_trace_group *group = group_of(all, other->rank, other->group);
        struct ct_signature_fields fields;

        if (other->group != call->group || other->number != 0 || group == NULL ||
            group->member != is->peer || !ct_signature_unpack(other->what, &fields) ||
            fields.peer != own->member || fields.kind == is->kind)
            continue;
        if (fields.kind == CT_CALL_EXCHANGE ||
            (other->count == call->count && fields.dtype == is->dtype && fields.tag == is->tag))
            continue;
        if (found == NULL || other->age_ms < found->age_ms)
            found = other;
    }
    return found;
}

static bool find_transfer_mismatch(const struct ct_msg_traces *all, struct ct_verdict *verdict)
{
    for (uint32_t i = 0; i < all->calls.count; i++) {
        const struct ct_wire_trace_call *call = &all->calls.data[i];
        const struct ct_wire_trace_group *group = group_of(all, call->rank, call->group);
        struct ct_signature_fields is;

        if (call->number != 0 || call->state != CT_FLIGHT_FAILED || group == NULL ||
            group->failure != CT_EMISMATCH || !ct_signature_unpack(call->what, &is) ||
            is.kind == CT_CALL_EXCHANGE)
            continue;
        const struct ct_wire_trace_call *other = other_end(all, call, &is);
        if (other != NULL)
            return name_mismatch(all, other, call, verdict);
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
static struct ct_verdict_call newest(const struct ct_msg_traces *all,
                                     const struct ct_wire_trace_group *group)
{
    if (group == NULL || group->entered == 0)
        return (struct ct_verdict_call){NULL, 0, NULL};
    return (struct ct_verdict_call){group, group->entered,
                                    call_of(all, group->rank, group->id, group->entered)};
}

/* What a rank waits in there. */
static struct ct_verdict_call call_in(const struct ct_msg_traces *all,
                                      const struct ct_wire_trace_group *group)
{
    uint64_t number = stuck_in(group) == CT_RECORD_TRANSFER ? 0 : stuck_in(group);

    return (struct ct_verdict_call){group, number, call_of(all, group->rank, group->id, number)};
}

/* What the ranks wait in for the culprit: the call of the one that waits longest. */
static struct ct_verdict_call awaited_call(const struct ct_msg_traces *all,
                                           const struct ct_wire_trace_rank *culprit)
{
    const struct ct_wire_trace_group *found = NULL;

    for (uint32_t i = 0; i < all->ranks.count; i++) {
        const struct ct_wire_trace_group *group = waits_in(all, &all->ranks.data[i]);

        if (group != NULL && waits_for(all, group, culprit) &&
            (found == NULL || group->waited_ms > found->waited_ms))
            found = group;
    }
    return found != NULL ? call_in(all, found) : (struct ct_verdict_call){NULL, 0, NULL};
}

/* The call in which it waited for others when it gave its last sign of life; NULL: in none. */
static const struct ct_wire_trace_group *hangs_in(const struct ct_msg_traces *all,
                                                  const struct ct_wire_trace_rank *rank)
{
    for (uint32_t i = 0; i < all->groups.count; i++) {
        const struct ct_wire_trace_group *group = &all->groups.data[i];

        if (group->rank == rank->rank && group->waiting != 0 && group->failure == 0)
            return group;
    }
    return NULL;
}

static void describe(const struct ct_msg_traces *all, struct ct_verdict *verdict)
{
    const struct ct_wire_trace_rank *culprit = verdict->culprit;
    const struct ct_wire_trace_group *own = NULL, *inside = hangs_in(all, culprit);

    verdict->awaited = awaited_call(all, culprit);
    if (verdict->awaited.group != NULL)
        own = group_of(all, culprit->rank, verdict->awaited.group->id);
    verdict->own = newest(all, own);
    bool entered =
        own != NULL && verdict->awaited.number != 0 && own->entered >= verdict->awaited.number;
    if (culprit->life == CT_TRACE_ENDED) {
        verdict->kind = CT_VERDICT_DEAD;
    } else if (inside != NULL) {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->own = call_in(all, inside);
    } else if (entered) {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->own = verdict->awaited;
    } else {
        verdict->kind = is_slow(all, culprit) ? CT_VERDICT_SLOW : CT_VERDICT_MISSING;
    }
}

/* Of those that others wait for and that wait for nobody, the one that holds up most; the dead
 * before the living. */
static bool find_root(const struct ct_msg_traces *all, struct ct_verdict *verdict)
{
    for (uint32_t i = 0; i < all->ranks.count; i++) {
        const struct ct_wire_trace_rank *rank = &all->ranks.data[i];
        uint64_t since_ms;

        if (waits_in(all, rank) != NULL)
            continue;
        uint32_t waiting = spread(all, rank, &since_ms);
        bool dead = rank->life == CT_TRACE_ENDED;
        bool was_dead = verdict->culprit != NULL && verdict->culprit->life == CT_TRACE_ENDED;
        if (waiting == 0 || (was_dead && !dead) ||
            (was_dead == dead && waiting <= verdict->waiting))
            continue;
        verdict->culprit = rank;
        verdict->waiting = waiting;
        verdict->since_ms = since_ms;
    }
    if (verdict->culprit == NULL)
        return false;
    describe(all, verdict);
    return true;
}

/* ---- all wait for each other ------------------------------------------------------------------*/

/* How many wait in the same call as this one. */
static uint32_t count_with(const struct ct_msg_traces *all, const struct ct_wire_trace_group *group)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < all->ranks.count; i++) {
        const struct ct_wire_trace_group *other = waits_in(all, &all->ranks.data[i]);

        count += other != NULL && other->id == group->id && stuck_in(other) == stuck_in(group);
    }
    return count;
}

/* Everybody waits, for others that wait. Those who are fewest in their call are in the wrong one;
 * when all are in the same, whoever most wait for does not let go of it. */
static bool find_circle(const struct ct_msg_traces *all, struct ct_verdict *verdict)
{
    const struct ct_wire_trace_group *fewest = NULL, *most = NULL;
    uint32_t few = 0, many = 0;

    for (uint32_t i = 0; i < all->ranks.count; i++) {
        const struct ct_wire_trace_group *group = waits_in(all, &all->ranks.data[i]);
        uint32_t count = group != NULL ? count_with(all, group) : 0;

        if (group == NULL)
            continue;
        if (fewest == NULL || count <= few) {
            fewest = group;
            few = count;
        }
        if (most == NULL || count > many) {
            most = group;
            many = count;
        }
    }
    if (fewest == NULL)
        return false;
    verdict->own = call_in(all, fewest);
    verdict->since_ms = fewest->waited_ms;
    if (fewest->id != most->id || stuck_in(fewest) != stuck_in(most)) {
        verdict->kind = CT_VERDICT_MISMATCH;
        verdict->culprit = rank_of(all, fewest->rank);
        verdict->awaited = call_in(all, most);
        verdict->other = most->rank;
        verdict->waiting = many;
    } else {
        verdict->kind = CT_VERDICT_STUCK;
        verdict->culprit = rank_of(all, most->awaited >= 0 ? (uint32_t)most->awaited : most->rank);
        verdict->awaited = verdict->own;
        verdict->waiting = many - 1;
    }
    return verdict->culprit != NULL;
}

bool ct_verdict_find(const struct ct_msg_traces *traces, struct ct_verdict *ret_verdict)
{
    struct ct_verdict verdict = {.kind = CT_VERDICT_NONE};

    bool found = find_mismatch(traces, &verdict) || find_transfer_mismatch(traces, &verdict);
    if (!found) {
        verdict = (struct ct_verdict){.kind = CT_VERDICT_NONE};
        found = find_root(traces, &verdict) || find_circle(traces, &verdict);
    }
    *ret_verdict = verdict;
    return found;
}

bool ct_verdict_dead(const struct ct_msg_traces *traces, uint32_t rank,
                     struct ct_verdict *ret_verdict)
{
    struct ct_verdict verdict = {.kind = CT_VERDICT_DEAD, .culprit = rank_of(traces, rank)};

    if (verdict.culprit == NULL)
        return false;
    verdict.waiting = spread(traces, verdict.culprit, &verdict.since_ms);
    verdict.awaited = awaited_call(traces, verdict.culprit);
    for (uint32_t i = 0; i < traces->groups.count; i++) {
        const struct ct_wire_trace_group *group = &traces->groups.data[i];

        if (group->rank == rank && (group->entered > group->completed || verdict.own.group == NULL))
            verdict.own = newest(traces, group);
    }
    if (verdict.awaited.group == NULL && verdict.own.group == NULL)
        return false;
    *ret_verdict = verdict;
    return true;
}

/* ---- words ------------------------------------------------------------------------------------*/

const char *ct_verdict_name(enum ct_verdict_kind kind)
{
    static const char *const names[] = {
        [CT_VERDICT_NONE] = "NONE",         [CT_VERDICT_MISSING] = "MISSING",
        [CT_VERDICT_MISMATCH] = "MISMATCH", [CT_VERDICT_STUCK] = "STUCK",
        [CT_VERDICT_SLOW] = "SLOW",         [CT_VERDICT_DEAD] = "DEAD",
    };

    return names[kind];
}

/* "all_reduce of 650 F32, SUM, FAST (number 7 of group world/1, called from train+0x41)" */
static void print_call(const struct ct_verdict_call *of, struct ct_buf *to)
{
    char words[CT_SIGNATURE_TEXT] = "a collective";

    if (of->group == NULL) {
        (void)ct_buf_puts(to, "a collective");
        return;
    }
    if (of->call != NULL)
        ct_signature_print(what_of(of->call), words, sizeof words);
    else if (of->number == 0)
        (void)ct_buf_puts(to, "a send or recv");
    if (of->call != NULL || of->number != 0)
        (void)ct_buf_puts(to, words);
    if (of->number != 0)
        (void)ct_buf_printf(to, " (number %llu of group %s", (unsigned long long)of->number,
                            of->group->name);
    else
        (void)ct_buf_printf(to, " (in group %s", of->group->name);
    if (of->call != NULL && of->call->site[0] != '\0')
        (void)ct_buf_printf(to, ", called from %s", of->call->site);
    (void)ct_buf_puts(to, ")");
}

static void print_waiting(const struct ct_verdict *verdict, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "%u rank%s %s waited for it for %.1f s", verdict->waiting,
                        verdict->waiting == 1 ? "" : "s", verdict->waiting == 1 ? "has" : "have",
                        (double)verdict->since_ms / 1000);
}

/* What it did last, for who looks for the place in the program. */
static void print_last(const struct ct_verdict *verdict, struct ct_buf *to)
{
    const struct ct_verdict_call *own = &verdict->own;

    if (own->group == NULL)
        return;
    (void)ct_buf_puts(to, "; its last call of the group was ");
    print_call(own, to);
    if (own->call != NULL)
        (void)ct_buf_printf(to, ", %.1f s ago", (double)own->call->age_ms / 1000);
}

static void print_mismatch(const struct ct_verdict *verdict, struct ct_buf *to)
{
    (void)ct_buf_puts(to, " called ");
    print_call(&verdict->own, to);
    (void)ct_buf_printf(to, " where rank %u called ", verdict->other);
    print_call(&verdict->awaited, to);
    (void)ct_buf_printf(to, ", %.1f s ago", (double)verdict->since_ms / 1000);
}

void ct_verdict_print(const struct ct_verdict *verdict, struct ct_buf *to)
{
    const struct ct_wire_trace_rank *culprit = verdict->culprit;

    (void)ct_buf_printf(to, "%s: rank %u (host %s, pid %d)", ct_verdict_name(verdict->kind),
                        culprit->rank, culprit->host, culprit->pid);
    if (verdict->kind == CT_VERDICT_MISMATCH) {
        print_mismatch(verdict, to);
        return;
    }
    if (verdict->kind == CT_VERDICT_DEAD) {
        (void)ct_buf_puts(to, " has ended");
        if (culprit->status >= 0)
            (void)ct_buf_printf(to, " with status %d", culprit->status);
        if (verdict->waiting == 0) {
            print_last(verdict, to);
            return;
        }
        (void)ct_buf_puts(to, "; it is awaited in ");
    }
    if (verdict->kind == CT_VERDICT_STUCK) {
        (void)ct_buf_puts(to, " does not come out of ");
        print_call(&verdict->own, to);
    } else {
        if (verdict->kind != CT_VERDICT_DEAD)
            (void)ct_buf_puts(to, " has not entered ");
        print_call(&verdict->awaited, to);
    }
    (void)ct_buf_puts(to, ", ");
    print_waiting(verdict, to);
    if (verdict->kind == CT_VERDICT_SLOW)
        (void)ct_buf_printf(to, "; it usually takes %.1f s from one call to the next",
                            (double)culprit->gap_ms / 1000);
    else if (culprit->doing[0] != '\0' && verdict->kind != CT_VERDICT_DEAD)
        (void)ct_buf_printf(to, "; its process is %s", culprit->doing);
    if (verdict->kind != CT_VERDICT_STUCK)
        print_last(verdict, to);
}
