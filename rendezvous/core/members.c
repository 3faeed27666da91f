/* Who is here: joining, coming back, heartbeats and leases, leaving.
 *
 * A member is one incarnation of an agent. It stays a member while it is heard within its lease; a
 * closed connection shortens that to the moment in which a living agent would connect again. What a
 * member seems to have missed is sent again with the answer to its heartbeat. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/str.h"
#include "rendezvous/core/settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ct_rdzv_refuse(struct ct_rdzv *job, uint64_t link, int code, uint32_t retry_ms,
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

bool ct_rdzv_is_eligible(const struct ct_rdzv *job, const struct ct_rdzv_member *member)
{
    return member->state == CT_RDZV_STANDBY && !member->leaving && !member->barred &&
           member->eligible_ms <= job->now_ms;
}

void ct_rdzv_release(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    ct_rdzv_push(job, CT_RDZV_DO_RELEASE, member->link);
    ct_rdzv_set_member(job, member, CT_RDZV_FREE);
}

/* ---- joining ---- */

/* The job's terms differ from the newcomer's: which, in words. */
static bool terms_differ(const struct ct_rdzv *job, const struct ct_rdzv_params *wanted, char *text,
                         size_t room)
{
    const struct ct_rdzv_params *p = &job->params;
    if (wanted->nodes_min != p->nodes_min || wanted->nodes_max != p->nodes_max)
        (void)snprintf(text, room, "--nnodes %u:%u here, %u:%u on the nodes before",
                       wanted->nodes_min, wanted->nodes_max, p->nodes_min, p->nodes_max);
    else if (wanted->max_restarts != p->max_restarts)
        (void)snprintf(text, room, "--max_restarts %u here, %u on the nodes before",
                       wanted->max_restarts, p->max_restarts);
    else if (wanted->lease_ms != p->lease_ms)
        (void)snprintf(text, room, "a lease of %u ms here, %u ms on the nodes before",
                       wanted->lease_ms, p->lease_ms);
    else if (wanted->world_divides != p->world_divides)
        (void)snprintf(text, room, "a global batch of %u units here, of %u on the nodes before",
                       wanted->world_divides, p->world_divides);
    else if (wanted->config_hash == p->config_hash || wanted->config_hash == 0 ||
             p->config_hash == 0)
        return false;
    else if (!ct_rdzv_settings_differ(wanted->settings, p->settings, text, room))
        (void)snprintf(text, room,
                       "the configuration has hash %016" PRIx64 " here, %016" PRIx64
                       " on the nodes before, though no key is set differently: their releases of "
                       "ctrun may have other keys; use one release for all nodes of a training",
                       wanted->config_hash, p->config_hash);
    return true;
}

/* How long somebody waits who wants what `holder` has: a host that came up again finds its own old
 * self still leased, which will not be heard again, and whose connection may just have closed.
 * 0: the holder was heard since, it lives. */
static uint32_t contest_ms(struct ct_rdzv *job, struct ct_rdzv_member *holder)
{
    uint32_t heartbeat = ct_rdzv_heartbeat_ms(&job->params);
    if (holder->hung_up && holder->link == 0)
        return CT_MIN(ct_rdzv_reattach_ms(job->params.lease_ms), heartbeat) + 1;
    bool is_new = holder->contested_ms == 0 ||
                  job->now_ms - holder->contested_ms > 2 * (uint64_t)job->params.lease_ms;
    if (is_new)
        holder->contested_ms = CT_MAX(job->now_ms, (uint64_t)1);
    return !is_new && holder->received_ms > holder->contested_ms ? 0 : heartbeat + heartbeat / 4;
}

/* The same for one of the places of a job that has all its nodes: the longest wait of any. */
static uint32_t contest_all_ms(struct ct_rdzv *job)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < job->capacity; i++) {
        if (job->members[i].state == CT_RDZV_FREE)
            continue;
        uint32_t wait = contest_ms(job, &job->members[i]);
        longest = CT_MAX(longest, wait);
    }
    return longest;
}

/* A newcomer that cannot be a member, or not yet: says why and returns true. */
static bool refused(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_join *join)
{
    const struct {
        const char *what, *text;
        size_t room;
    } names[] = {{"host name", join->host, CT_RDZV_HOST_BYTES},
                 {"address", join->address, CT_RDZV_ADDRESS_BYTES},
                 {"role", join->role, CT_RDZV_ROLE_BYTES}};
    for (size_t i = 0; i < CT_COUNT(names); i++) { /* cut, it would be another's */
        size_t size = strlen(names[i].text);
        if (size < names[i].room)
            continue;
        ct_rdzv_refuse(job, link, CT_EUSAGE, 0, "the %s %.40s... has %zu bytes: %zu are possible",
                       names[i].what, names[i].text, size, names[i].room - 1);
        return true;
    }
    if (join->slots == 0 || join->slots > CT_RDZV_SLOTS_LIMIT) {
        ct_rdzv_refuse(job, link, CT_EUSAGE, 0, "host %s offers %u workers: 1 to %d are possible",
                       join->host, join->slots, CT_RDZV_SLOTS_LIMIT);
        return true;
    }
    if (join->node_rank >= (int32_t)job->params.nodes_max) {
        ct_rdzv_refuse(job, link, CT_EUSAGE, 0,
                       "host %s asks for node rank %d, but the job has at most %u "
                       "nodes, ranks 0 to %u",
                       join->host, join->node_rank, job->params.nodes_max,
                       job->params.nodes_max - 1);
        return true;
    }
    struct ct_rdzv_member *holder = ct_rdzv_rank_holder(job, join->node_rank);
    if (holder != NULL) {
        ct_rdzv_refuse(
            job, link, CT_EUSAGE, contest_ms(job, holder),
            "node rank %d of host %s is already taken by host %s: give each node its own "
            "--node_rank",
            join->node_rank, join->host, holder->host);
        return true;
    }
    /* A spare is of no use to a job of a fixed size that ends with the first failure. */
    bool is_static =
        job->params.nodes_min == job->params.nodes_max && job->params.max_restarts == 0;
    if ((is_static && ct_rdzv_candidates(job) >= job->params.nodes_max) || !ct_rdzv_has_room(job)) {
        ct_rdzv_refuse(job, link, CT_ELIMIT, contest_all_ms(job),
                       "job %s already has %zu nodes of %u%s; host %s is one too many", job->name,
                       ct_rdzv_candidates(job), job->params.nodes_max,
                       is_static ? "" : " and as many spares as it keeps", join->host);
        return true;
    }
    return false;
}

/* The place of a node that was lost from the last round and comes back as the same incarnation. */
static int32_t old_place(const struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    for (uint32_t i = 0; join->promised > 0 && i < job->roster.count; i++)
        if (ct_id_equal(job->roster.places[i].id, join->id))
            return (int32_t)i;
    return -1;
}

static struct ct_rdzv_member *add(struct ct_rdzv *job, const struct ct_rdzv_join *join)
{
    struct ct_rdzv_member *member = ct_rdzv_free_member(job);
    const struct ct_rdzv_cordon *cordon = ct_rdzv_cordon_of(job, join->host);
    *member = (struct ct_rdzv_member){
        .state = CT_RDZV_FREE,
        .id = join->id,
        .eligible_ms = ct_rdzv_eligible_from(job, join->host),
        .joined = ++job->join_serial,
        .node_rank = join->node_rank,
        .slurm_node = join->slurm_node,
        .place = -1,
        .old_place = old_place(job, join),
        .slots = join->slots,
        .survivable = join->survivable,
        .own = join->own,
    };
    ct_str_copy(member->host, sizeof(member->host), join->host);
    ct_str_copy(member->address, sizeof(member->address), join->address);
    ct_str_copy(member->role, sizeof(member->role), join->role);
    ct_rdzv_set_member(job, member, CT_RDZV_STANDBY);
    ct_rdzv_set_out(job, member, false, cordon != NULL && cordon->by_operator);
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
    bool goes_on =
        is_in_round(member) || (member->state == CT_RDZV_PREPARING && member->place >= 0);
    action->generation = goes_on ? job->roster.generation : 0;
}

/* What the member seems to have missed: `acting` is the round that it says it is in. */
static void repeat_for(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t acting)
{
    if (job->phase == CT_RDZV_CLOSED) {
        ct_rdzv_push(job, CT_RDZV_DO_CLOSE, member->link);
    } else if (member->state == CT_RDZV_PREPARING && job->pending == 0) {
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
 * died before it could note it. Or it is still on its way into a round of that daemon, whose store
 * is gone, so that its workers cannot find each other. Nobody failed, but the round is over. */
static bool has_left_round(struct ct_rdzv *job, const struct ct_rdzv_member *member, uint64_t over,
                           uint64_t recovered)
{
    if (!ct_rdzv_acts(job) || !is_in_round(member))
        return false;
    bool is_stuck = job->store_lost && recovered < job->roster.generation;
    if (over < job->roster.generation && !is_stuck)
        return false;
    ct_rdzv_change(job, CT_RDZV_REASON_RESTART, false);
    return true;
}

void ct_rdzv_admit(struct ct_rdzv *job, struct ct_rdzv_member *newcomer)
{
    switch (job->phase) {
    case CT_RDZV_LOBBY:
    case CT_RDZV_LAST_CALL:
    case CT_RDZV_PAUSED:
        ct_rdzv_gather(job, true);
        break;
    case CT_RDZV_PREPARE:
        if (newcomer != NULL)
            ct_rdzv_draft_one(job, newcomer);
        else
            ct_rdzv_draft(job);
        break;
    case CT_RDZV_RUNNING:
        ct_rdzv_plan_growth(job, newcomer);
        break;
    default:
        break;
    }
}

/* The one called `id` is told the result. */
static void mark_informed(struct ct_rdzv *job, struct ct_id id)
{
    for (uint32_t i = 0; i < job->roster.count; i++)
        if (ct_id_equal(job->roster.places[i].id, id))
            job->roster.places[i].informed = true;
}

void ct_rdzv_on_join(struct ct_rdzv *job, const struct ct_rdzv_event *event)
{
    const struct ct_rdzv_join *join = event->join;
    char differs[512];
    ct_rdzv_contact(job);
    if (terms_differ(job, &join->params, differs, sizeof(differs))) {
        ct_rdzv_refuse(job, event->link, CT_ECONFIG, 0,
                       "host %s does not fit job %s: %s; all nodes must "
                       "be started alike",
                       join->host, job->name, differs);
        return;
    }
    if (ct_rdzv_is_ahead(job, join) && !ct_rdzv_rebuild(job, event->link, join))
        return;
    struct ct_rdzv_member *member = ct_rdzv_find(job, join->id);
    if (member != NULL && event->seq <= member->seq)
        return;
    if (job->phase == CT_RDZV_CLOSED) {
        if (member != NULL)
            member->link = event->link;
        mark_informed(job, join->id);
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
    member->presumed = member->hung_up = false;
    ct_rdzv_renew_lease(job, member);
    welcome(job, member);
    if (is_new) {
        ct_rdzv_announce(job, CT_ANNOUNCE_NODE_JOINED, "node %s joined with %u slot%s",
                         member->host, member->slots, member->slots == 1 ? "" : "s");
        ct_rdzv_admit(job, member);
    } else if (!has_left_round(job, member, join->over, UINT64_MAX)) {
        repeat_for(job, member, join->acting);
    }
}

/* ---- staying ---- */

void ct_rdzv_on_heartbeat(struct ct_rdzv *job, struct ct_rdzv_member *member,
                          const struct ct_rdzv_event *event)
{
    ct_rdzv_renew_lease(job, member);
    struct ct_rdzv_action *ack = ct_rdzv_push(job, CT_RDZV_DO_ACK, member->link);
    ack->seq = event->seq;
    ack->generation = job->generation;
    ack->member = event->member;
    ack->member_state = member->state;
    member->promised = event->promised;
    if (has_left_round(job, member, event->over, event->recovered))
        return;
    if (is_in_round(member) && event->recovered == job->roster.generation)
        ct_rdzv_recovered(job, member);
    repeat_for(job, member, event->generation);
}

void ct_rdzv_mark_all_informed(struct ct_rdzv *job)
{
    job->closed_ms = job->now_ms;
    for (size_t i = 0; i < job->capacity; i++) {
        const struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_FREE && member->link != 0 && member->place >= 0)
            job->roster.places[member->place].informed = true;
    }
}

/* ---- going ---- */

static void stop(struct ct_rdzv *job, const struct ct_rdzv_member *member, bool requeue)
{
    int code = requeue ? CT_EREQUEUE : CT_ECLOSED;
    char text[256];
    const struct ct_wire_failure cause = {
        .code = code, .rank = -1, .local_rank = -1, .host = member->host, .text = text};

    (void)snprintf(text, sizeof(text), "stopped %s on host %s",
                   requeue ? "to be queued again" : "by the user", member->host);
    ct_rdzv_close(job, code, requeue ? ct_exit_status(code) : 130, &cause);
}

void ct_rdzv_on_leave(struct ct_rdzv *job, struct ct_rdzv_member *member, enum ct_rdzv_leave how)
{
    if (job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED)
        return;
    if (how != CT_RDZV_LEAVE_DRAIN) {
        stop(job, member, how == CT_RDZV_LEAVE_REQUEUE);
        return;
    }
    if (member->leaving)
        return;
    ct_rdzv_set_out(job, member, true, member->barred);
    ct_rdzv_announce(job, CT_ANNOUNCE_NODE_LEAVES, "node %s leaves", member->host);
    if (member->state == CT_RDZV_STANDBY)
        repeat_for(job, member, 0);
    else if (job->phase == CT_RDZV_RUNNING)
        ct_rdzv_change(job, CT_RDZV_REASON_LEAVE, true);
    else if (job->phase == CT_RDZV_RECOVER && job->leave_until_ms == UINT64_MAX)
        job->leave_until_ms = job->now_ms + job->params.prepare_ms;
    else if (member->state == CT_RDZV_PROMISED && job->phase == CT_RDZV_PREPARE)
        ct_rdzv_release(job, member);
    if (job->phase == CT_RDZV_PREPARE)
        ct_rdzv_advance(job);
}
