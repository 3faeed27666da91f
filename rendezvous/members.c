/* Who is here: joining, coming back, heartbeats and leases, leaving.
 *
 * A member is one incarnation of an agent. It stays a member while it is heard within its lease; a
 * closed connection shortens that to the moment in which a living agent would connect again. What a
 * member seems to have missed is sent again with the answer to its heartbeat. */
#include "rendezvous/core_state.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAP_WINDOW_MS = 3600 * 1000, /* losses further apart are not flapping */
    FLAP_FIRST_MS = 10 * 1000,    /* pause after the second loss; doubles with each */
    FLAP_LAST_MS = 1800 * 1000,
};

static bool same_id(struct ct_id a, struct ct_id b)
{
    return a.high == b.high && a.low == b.low;
}

static void refuse(struct ct_rdzv *job, uint64_t link, int code, uint32_t retry_ms,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

static void refuse(struct ct_rdzv *job, uint64_t link, int code, uint32_t retry_ms,
                   const char *format, ...)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_REFUSE, link);
    action->code = code;
    action->retry_ms = retry_ms;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(action->text, sizeof(action->text), format, list);
    va_end(list);
}

static void renew_lease(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    member->heard_ms = job->now_ms;
    member->lease_until_ms = job->now_ms + job->params.lease_ms;
    job->scan_ms = CT_MIN(job->scan_ms, member->lease_until_ms);
}

/* Was it heard so lately that it lives in all likelihood? */
static bool is_lively(const struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    return member->link != 0 &&
           job->now_ms - member->heard_ms <= 2 * ct_rdzv_heartbeat_ms(job->params.lease_ms);
}

/* ---- flapping hosts ---- */

static struct ct_rdzv_flap *flap_of(struct ct_rdzv *job, const char *host)
{
    uint64_t hash = ct_hash_str(host);
    struct ct_rdzv_flap *oldest = &job->flaps[0];
    for (size_t i = 0; i < CT_RDZV_FLAPS; i++) {
        if (job->flaps[i].host_hash == hash)
            return &job->flaps[i];
        if (job->flaps[i].lost_ms < oldest->lost_ms)
            oldest = &job->flaps[i];
    }
    *oldest = (struct ct_rdzv_flap){.host_hash = hash};
    return oldest;
}

static void note_loss(struct ct_rdzv *job, const char *host)
{
    struct ct_rdzv_flap *flap = flap_of(job, host);
    if (flap->count > 0 && job->now_ms - flap->lost_ms > FLAP_WINDOW_MS)
        flap->count = 0;
    flap->lost_ms = job->now_ms;
    flap->count++;
}

static uint64_t eligible_from(struct ct_rdzv *job, const char *host)
{
    const struct ct_rdzv_flap *flap = flap_of(job, host);
    if (flap->count < 2 || job->now_ms - flap->lost_ms > FLAP_WINDOW_MS)
        return 0;
    uint64_t pause = FLAP_LAST_MS;
    if (flap->count - 2 < 8)
        pause = CT_MIN((uint64_t)FLAP_FIRST_MS << (flap->count - 2), (uint64_t)FLAP_LAST_MS);
    return flap->lost_ms + pause;
}

bool ct_rdzv_is_eligible(const struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    return member->state == CT_RDZV_STANDBY && !member->leaving &&
           member->eligible_ms <= job->now_ms;
}

size_t ct_rdzv_candidates(const struct ct_rdzv *job)
{
    size_t leaving = 0;
    for (size_t i = 0; i < job->capacity; i++)
        leaving += job->members[i].state != CT_RDZV_FREE && job->members[i].leaving;
    return job->capacity - job->count[CT_RDZV_FREE] - leaving;
}

void ct_rdzv_release(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    ct_rdzv_push(job, CT_RDZV_DO_RELEASE, member->link);
    ct_rdzv_set_member(job, member, CT_RDZV_FREE);
}

/* ---- joining ---- */

/* The job's terms differ from the newcomer's: which, in words. */
static bool terms_differ(const struct ct_rdzv *job, const struct ct_rdzv_params *asked, char *text,
                         size_t room)
{
    const struct ct_rdzv_params *p = &job->params;
    if (asked->nodes_min != p->nodes_min || asked->nodes_max != p->nodes_max)
        (void)snprintf(text, room, "--nnodes %u:%u here, %u:%u on the nodes before",
                       asked->nodes_min, asked->nodes_max, p->nodes_min, p->nodes_max);
    else if (asked->max_restarts != p->max_restarts)
        (void)snprintf(text, room, "--max_restarts %u here, %u on the nodes before",
                       asked->max_restarts, p->max_restarts);
    else if (asked->lease_ms != p->lease_ms)
        (void)snprintf(text, room, "a lease of %u ms here, %u ms on the nodes before",
                       asked->lease_ms, p->lease_ms);
    else if (asked->config_hash != p->config_hash && asked->config_hash != 0 && p->config_hash != 0)
        (void)snprintf(text, room,
                       "the configuration has hash %016" PRIx64 " here, %016" PRIx64
                       " on the nodes before",
                       asked->config_hash, p->config_hash);
    else
        return false;
    return true;
}

/* Somebody else who asked for the same node rank. */
static const struct ct_rdzv_member *rank_holder(const struct ct_rdzv *job, int32_t node_rank)
{
    for (size_t i = 0; node_rank >= 0 && i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && member->node_rank == node_rank)
            return member;
    }
    return NULL;
}

static size_t lively_members(const struct ct_rdzv *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->capacity; i++)
        count += job->members[i].state != CT_RDZV_FREE && is_lively(job, &job->members[i]);
    return count;
}

/* A newcomer that cannot be a member, or not yet: says why and returns true. */
static bool refused(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_join *join)
{
    uint32_t soon = ct_rdzv_heartbeat_ms(job->params.lease_ms);
    if (join->slots == 0 || join->slots > CT_RDZV_SLOTS_LIMIT) {
        refuse(job, link, CT_EUSAGE, 0, "host %s offers %u workers: 1 to %d are possible",
               join->host, join->slots, CT_RDZV_SLOTS_LIMIT);
        return true;
    }
    if (join->node_rank >= (int32_t)job->params.nodes_max) {
        refuse(job, link, CT_EUSAGE, 0,
               "host %s asks for node rank %d, but the job has at most %u "
               "nodes, ranks 0 to %u",
               join->host, join->node_rank, job->params.nodes_max, job->params.nodes_max - 1);
        return true;
    }
    const struct ct_rdzv_member *holder = rank_holder(job, join->node_rank);
    if (holder != NULL) {
        /* A host that came up again finds its own old self still leased: it waits for that. */
        refuse(job, link, CT_EUSAGE, is_lively(job, holder) ? 0 : soon,
               "node rank %d of host %s is already taken by host %s: give each node its own "
               "--node_rank",
               join->node_rank, join->host, holder->host);
        return true;
    }
    bool is_static = job->params.nodes_min == job->params.nodes_max;
    if ((is_static && ct_rdzv_candidates(job) >= job->params.nodes_max) ||
        job->count[CT_RDZV_FREE] == 0) {
        size_t lively = lively_members(job);
        refuse(job, link, CT_ELIMIT, lively < job->params.nodes_max ? soon : 0,
               "job %s already has %zu nodes of %u%s; host %s is one too many", job->name,
               ct_rdzv_candidates(job), job->params.nodes_max,
               is_static ? "" : " and as many spares as it keeps", join->host);
        return true;
    }
    return false;
}

static struct ct_rdzv_member *find(struct ct_rdzv *job, struct ct_id id)
{
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && same_id(member->id, id))
            return member;
    }
    return NULL;
}

static struct ct_rdzv_member *add(struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    struct ct_rdzv_member *member = job->members;
    while (member->state != CT_RDZV_FREE)
        member++;
    *member = (struct ct_rdzv_member){
        .state = CT_RDZV_FREE,
        .id = join->id,
        .eligible_ms = eligible_from(job, join->host),
        .joined = ++job->join_serial,
        .node_rank = join->node_rank,
        .slurm_node = join->slurm_node,
        .place = -1,
        .slots = join->slots,
        .survivable = join->survivable,
    };
    ct_str_copy(member->host, sizeof(member->host), join->host);
    ct_str_copy(member->address, sizeof(member->address), join->address);
    ct_str_copy(member->role, sizeof(member->role), join->role);
    ct_rdzv_set_member(job, member, CT_RDZV_STANDBY);
    return member;
}

static bool is_in_round(const struct ct_rdzv_member *member)
{
    return member->state == CT_RDZV_ACTING || member->state == CT_RDZV_DONE;
}

static void welcome(struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_WELCOME, member->link);
    action->member = (uint32_t)(member - job->members);
    bool goes_on = is_in_round(member) || (member->state == CT_RDZV_ASKED && member->place >= 0);
    action->generation = goes_on ? job->roster.generation : 0;
}

/* What the member seems to have missed: `acting` is the round that it says it is in. */
static void repeat_for(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t acting)
{
    if (job->phase == CT_RDZV_CLOSED) {
        ct_rdzv_push(job, CT_RDZV_DO_CLOSE, member->link);
    } else if (member->state == CT_RDZV_ASKED && job->pending == 0) {
        ct_rdzv_push_prepare(job, member->link);
    } else if (is_in_round(member) && acting < job->roster.generation) {
        ct_rdzv_push(job, CT_RDZV_DO_ROUND, member->link)->generation = job->roster.generation;
    } else if (member->state == CT_RDZV_STANDBY && member->leaving) {
        ct_rdzv_release(job, member);
        ct_rdzv_gather(job, false);
    } else if (member->state == CT_RDZV_STANDBY && acting > 0 && job->pending == 0) {
        struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_REVOKE, member->link);
        action->generation = job->roster.generation;
        action->reason = job->reason;
    }
}

/* A member has given up the round that the daemon sees it in: it was told so by the daemon that
 * died before it could note it. Nobody failed, but the round is over. */
static bool has_left_round(struct ct_rdzv *job, const struct ct_rdzv_member *member, uint64_t over)
{
    if (job->phase != CT_RDZV_RUNNING || !is_in_round(member) || over < job->roster.generation)
        return false;
    ct_rdzv_change(job, CT_RDZV_REASON_RESTART, false);
    return true;
}

/* A newcomer changes what the job does now. */
static void take_in(struct ct_rdzv *job)
{
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_LAST_CALL:
    case CT_RDZV_PAUSED:
        ct_rdzv_gather(job, true);
        break;
    case CT_RDZV_PREPARE:
        ct_rdzv_draft(job);
        break;
    case CT_RDZV_RUNNING:
        ct_rdzv_plan_growth(job);
        break;
    default:
        break;
    }
}

void ct_rdzv_on_join(struct ct_rdzv *job, const struct ct_rdzv_event *event)
{
    const struct ct_rdzv_join *join = event->join;
    char differs[256];
    if (terms_differ(job, &join->params, differs, sizeof(differs))) {
        refuse(job, event->link, CT_ECONFIG, 0,
               "host %s does not fit job %s: %s; all nodes must "
               "be started alike",
               join->host, job->name, differs);
        return;
    }
    if (join->promised > job->generation) {
        refuse(job, event->link, CT_EFENCED, 0,
               "the rendezvous knows job %s up to round %" PRIu64 ", but host %s was in round "
               "%" PRIu64 " already: the job has ended meanwhile, or the daemon was restarted "
               "without its journal (ctrund --journal keeps one)",
               job->name, job->generation, join->host, join->promised);
        return;
    }
    struct ct_rdzv_member *member = find(job, join->id);
    if (member != NULL && event->seq <= member->seq)
        return;
    if (job->phase == CT_RDZV_CLOSED) {
        if (member != NULL)
            member->link = event->link;
        ct_rdzv_tell(job, join->id);
        ct_rdzv_push(job, CT_RDZV_DO_CLOSE, event->link);
        return;
    }
    bool is_new = member == NULL;
    if (is_new && refused(job, event->link, join))
        return;
    if (is_new)
        member = add(job, join);
    member->link = event->link;
    member->seq = event->seq;
    member->presumed = false;
    renew_lease(job, member);
    welcome(job, member);
    if (is_new) {
        ct_rdzv_announce(job, "node %s joined with %u slots", member->host, member->slots);
        take_in(job);
    } else if (!has_left_round(job, member, join->over)) {
        repeat_for(job, member, join->acting);
    }
}

/* ---- staying ---- */

void ct_rdzv_on_heartbeat(struct ct_rdzv *job, struct ct_rdzv_member *member,
                          const struct ct_rdzv_event *event)
{
    renew_lease(job, member);
    struct ct_rdzv_action *ack = ct_rdzv_push(job, CT_RDZV_DO_ACK, member->link);
    ack->seq = event->seq;
    ack->generation = job->generation;
    ack->member_state = member->state;
    if (!has_left_round(job, member, event->over))
        repeat_for(job, member, event->generation);
}

void ct_rdzv_extend_leases(struct ct_rdzv *job, uint64_t now_ms, uint64_t gap_ms)
{
    uint64_t least = now_ms + ct_rdzv_heartbeat_ms(job->params.lease_ms);
    job->excused_ms = now_ms + job->params.lease_ms;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE)
            member->lease_until_ms = CT_MAX(member->lease_until_ms + gap_ms, least);
    }
}

void ct_rdzv_tell_all(struct ct_rdzv *job)
{
    job->closed_ms = job->now_ms;
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && member->link != 0 && member->place >= 0)
            job->roster.places[member->place].told = true;
    }
}

void ct_rdzv_tell(struct ct_rdzv *job, struct ct_id id)
{
    for (uint32_t i = 0; i < job->roster.count; i++)
        if (same_id(job->roster.places[i].id, id))
            job->roster.places[i].told = true;
}

/* ---- going ---- */

/* The member is no more. Its place keeps what is known of it. */
static void drop(struct ct_rdzv *job, struct ct_rdzv_member *member, const char *why)
{
    enum ct_rdzv_member_state was = member->state;
    ct_rdzv_set_member(job, member, CT_RDZV_FREE);
    if (member->place >= 0 && was != CT_RDZV_DONE)
        note_loss(job, member->host);
    ct_rdzv_lost(job, member, was, why);
}

void ct_rdzv_scan_leases(struct ct_rdzv *job)
{
    uint64_t next = UINT64_MAX;
    job->scan_ms = UINT64_MAX;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE)
            continue;
        if (member->lease_until_ms > job->now_ms) {
            next = CT_MIN(next, member->lease_until_ms);
            continue;
        }
        char why[128];
        if (member->link == 0)
            (void)snprintf(why, sizeof(why), "its connection closed");
        else
            (void)snprintf(why, sizeof(why), "not heard for %" PRIu64 " ms",
                           job->now_ms - member->heard_ms);
        drop(job, member, why);
    }
    job->scan_ms = CT_MIN(job->scan_ms, next);
}

/* A closed connection leaves as long as a living agent needs to connect again. One that closed
 * while the daemon was away has a whole lease: its agent may be at its next attempt by now. */
void ct_rdzv_on_disconnect(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    member->link = 0;
    bool keep = job->phase != CT_RDZV_CLOSED;
    uint64_t until = job->now_ms + (keep ? ct_rdzv_reattach_ms(job->params.lease_ms) : 0);
    member->lease_until_ms =
        keep && job->excused_ms > until ? job->excused_ms : CT_MIN(member->lease_until_ms, until);
    job->scan_ms = CT_MIN(job->scan_ms, member->lease_until_ms);
}

void ct_rdzv_on_leave(struct ct_rdzv *job, struct ct_rdzv_member *member, enum ct_rdzv_leave how)
{
    if (job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED)
        return;
    if (how == CT_RDZV_LEAVE_STOP) {
        struct ct_rdzv_failure cause = {
            .generation = job->generation, .code = CT_ECLOSED, .rank = -1, .local_rank = -1};
        ct_str_copy(cause.host, sizeof(cause.host), member->host);
        (void)snprintf(cause.text, sizeof(cause.text), "stopped by the user on host %s",
                       member->host);
        ct_rdzv_close(job, CT_ECLOSED, 130, &cause);
        return;
    }
    if (member->leaving)
        return;
    member->leaving = true;
    ct_rdzv_announce(job, "node %s leaves", member->host);
    if (member->state == CT_RDZV_STANDBY)
        repeat_for(job, member, 0);
    else if (job->phase == CT_RDZV_RUNNING)
        ct_rdzv_change(job, CT_RDZV_REASON_LEAVE, true);
    else if (member->state == CT_RDZV_PROMISED && job->phase == CT_RDZV_PREPARE)
        ct_rdzv_release(job, member);
    if (job->phase == CT_RDZV_PREPARE)
        ct_rdzv_advance(job);
}
