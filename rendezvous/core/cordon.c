/* Hosts to do without: those that are lost again and again, and those that an operator names.
 *
 *      lost twice within an hour        joins no running round for 10 s, doubling to 30 min
 *      lost cordon_faults times         cordoned for an hour
 *      ctrun cordon HOST                cordoned as long as the operator says
 *
 * Who waits for any of these is a member and leased, but no new round asks it. What an operator
 * ordered holds in any case; the rest gives way when the job would have to wait below MIN. A node
 * that is in a round stays: `drain` is what removes it, at the next step boundary. */
#include "rendezvous/core/core_state.h"

#include "base/assert.h"
#include "base/number/hash.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAP_WINDOW_MS = 3600 * 1000, /* losses further apart are not flapping */
    FLAP_FIRST_MS = 10 * 1000,    /* pause after the second loss; doubles with each */
    FLAP_LAST_MS = 1800 * 1000,
};

static void answer(struct ct_rdzv *job, uint64_t link, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void answer(struct ct_rdzv *job, uint64_t link, int code, const char *format, ...)
{
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_ANSWER, link);
    action->code = code;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(action->text, sizeof(action->text), format, list);
    va_end(list);
}

/* ---- hosts that are lost again and again ---- */

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

static uint64_t flap_until_ms(const struct ct_rdzv *job, const struct ct_rdzv_flap *flap)
{
    if (flap->count < 2 || job->now_ms - flap->lost_ms > FLAP_WINDOW_MS)
        return 0;
    uint64_t pause = FLAP_LAST_MS;
    if (flap->count - 2 < 8)
        pause = CT_MIN((uint64_t)FLAP_FIRST_MS << (flap->count - 2), (uint64_t)FLAP_LAST_MS);
    return flap->lost_ms + pause;
}

uint64_t ct_rdzv_eligible_from(struct ct_rdzv *job, const char *host)
{
    const struct ct_rdzv_cordon *cordon = ct_rdzv_cordon_of(job, host);
    uint64_t until = flap_until_ms(job, flap_of(job, host));
    return cordon != NULL && !cordon->by_operator ? CT_MAX(until, cordon->until_ms) : until;
}

/* ---- the table of cordons ---- */

const struct ct_rdzv_cordon *ct_rdzv_cordon_of(const struct ct_rdzv *job, const char *host)
{
    for (size_t i = 0; i < job->cordon_count; i++)
        if (strcmp(job->cordons[i].host, host) == 0)
            return &job->cordons[i];
    return NULL;
}

const struct ct_rdzv_cordon *ct_rdzv_cordon(const struct ct_rdzv *job, size_t index)
{
    return index < job->cordon_count ? &job->cordons[index] : NULL;
}

/* A job that no record tells of yet has nothing to come back to: the cordons follow its first one.
 */
void ct_rdzv_keep_cordons(struct ct_rdzv *job)
{
    job->cordons_changed = true;
    if (job->cordon_seq != 0 || job->generation == 0)
        return;
    job->cordons_changed = false;
    job->cordon_seq = ct_rdzv_push_record(job, CT_RDZV_RECORD_CORDON);
}

static void find_next_end(struct ct_rdzv *job)
{
    job->cordon_ms = UINT64_MAX;
    for (size_t i = 0; i < job->cordon_count; i++)
        job->cordon_ms = CT_MIN(job->cordon_ms, job->cordons[i].until_ms);
}

/* What the cordon of its host, or none, means for a member that waits. */
static void apply_to(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    const struct ct_rdzv_cordon *cordon = ct_rdzv_cordon_of(job, member->host);
    ct_rdzv_set_out(job, member, member->leaving, cordon != NULL && cordon->by_operator);
    member->eligible_ms = ct_rdzv_eligible_from(job, member->host);
}

void ct_rdzv_stand_by(struct ct_rdzv *job, struct ct_rdzv_member *member)
{
    ct_rdzv_set_member(job, member, CT_RDZV_STANDBY);
    if (member->place < 0)
        apply_to(job, member);
}

/* The members of a host, after its cordon changed. True: one of them may be taken in now. */
static bool apply(struct ct_rdzv *job, const char *host)
{
    bool admits = false;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state != CT_RDZV_STANDBY || member->place >= 0 ||
            strcmp(member->host, host) != 0)
            continue;
        bool was_barred = member->barred;
        uint64_t was_eligible_ms = member->eligible_ms;
        apply_to(job, member);
        admits =
            admits || (!member->barred && (was_barred || member->eligible_ms < was_eligible_ms));
    }
    find_next_end(job);
    return admits;
}

/* True: somebody may be taken in now. */
static bool remove_entry(struct ct_rdzv *job, size_t index)
{
    char host[CT_RDZV_HOST_BYTES];
    ct_str_copy(host, sizeof(host), job->cordons[index].host);
    job->cordons[index] = job->cordons[--job->cordon_count];
    return apply(job, host);
}

/* The entry of a host, new or old; NULL when the table is full. */
static struct ct_rdzv_cordon *demand_entry(struct ct_rdzv *job, const char *host)
{
    const struct ct_rdzv_cordon *known = ct_rdzv_cordon_of(job, host);
    if (known != NULL)
        return &job->cordons[known - job->cordons];
    if (job->cordon_count == CT_RDZV_CORDONS)
        return NULL;
    struct ct_rdzv_cordon *cordon = &job->cordons[job->cordon_count++];
    *cordon = (struct ct_rdzv_cordon){0};
    ct_str_copy(cordon->host, sizeof(cordon->host), host);
    return cordon;
}

void ct_rdzv_note_loss(struct ct_rdzv *job, const char *host)
{
    struct ct_rdzv_flap *flap = flap_of(job, host);
    if (flap->count > 0 && job->now_ms - flap->lost_ms > FLAP_WINDOW_MS)
        flap->count = 0;
    flap->lost_ms = job->now_ms;
    flap->count++;
    if (job->params.cordon_faults == 0 || flap->count < job->params.cordon_faults)
        return;
    struct ct_rdzv_cordon *cordon = demand_entry(job, host);
    if (cordon == NULL || cordon->by_operator)
        return;
    cordon->until_ms = job->now_ms + FLAP_WINDOW_MS;
    (void)snprintf(cordon->reason, sizeof(cordon->reason), "lost %u times within an hour",
                   flap->count);
    ct_rdzv_announce(job, CT_ANNOUNCE_CORDONED, "host %s is cordoned for an hour: %s", host,
                     cordon->reason);
    (void)apply(job, host);
    ct_rdzv_keep_cordons(job);
}

/* ---- what operators order ---- */

/* The order is carried out; its answer follows the record, if one is to be written. */
static void keep_order(struct ct_rdzv *job, uint64_t link)
{
    job->cordon_link = link;
    ct_rdzv_keep_cordons(job);
    if (job->cordon_seq == 0)
        ct_rdzv_on_cordon_record(job, true);
}

static void cordon(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_order *order)
{
    struct ct_rdzv_cordon *cordon = demand_entry(job, order->host);
    if (cordon == NULL) {
        answer(job, link, CT_ELIMIT,
               "%d hosts of job %s are cordoned, and no more can be: uncordon one", CT_RDZV_CORDONS,
               job->name);
        return;
    }
    cordon->by_operator = true;
    uint64_t longest_ms = UINT64_MAX - job->now_ms;
    cordon->until_ms =
        order->for_ms > 0 ? job->now_ms + CT_MIN(order->for_ms, longest_ms) : UINT64_MAX;
    (void)snprintf(cordon->reason, sizeof(cordon->reason), "by %.60s%s%.120s", order->author,
                   order->reason[0] != '\0' ? ": " : "", order->reason);
    ct_rdzv_announce(job, CT_ANNOUNCE_CORDONED, "host %s is cordoned %s", order->host,
                     cordon->reason);
    if (apply(job, order->host)) /* its own cordon, after losses, was of another kind */
        ct_rdzv_admit(job, NULL);
    keep_order(job, link);
}

static void uncordon(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_order *order)
{
    const struct ct_rdzv_cordon *cordon = ct_rdzv_cordon_of(job, order->host);
    if (cordon == NULL) {
        answer(job, link, CT_ENOTFOUND, "host %s is not cordoned in job %s", order->host,
               job->name);
        return;
    }
    flap_of(job, order->host)->count = 0;
    if (remove_entry(job, (size_t)(cordon - job->cordons)))
        ct_rdzv_admit(job, NULL);
    ct_rdzv_announce(job, CT_ANNOUNCE_UNCORDONED, "host %s is uncordoned by %s", order->host,
                     order->author);
    keep_order(job, link);
}

/* The node of a host that is to leave next; `ret_seen` whether the host has any. */
static struct ct_rdzv_member *next_to_drain(struct ct_rdzv *job, const char *host, bool *ret_seen)
{
    *ret_seen = false;
    for (size_t i = 0; i < job->capacity; i++) {
        struct ct_rdzv_member *member = &job->members[i];
        if (member->state == CT_RDZV_FREE || strcmp(member->host, host) != 0)
            continue;
        *ret_seen = true;
        if (!member->leaving)
            return member;
    }
    return NULL;
}

static void drain(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_order *order)
{
    bool found;
    struct ct_rdzv_member *member = next_to_drain(job, order->host, &found);
    if (!found) {
        answer(job, link, CT_ENOTFOUND, "job %s has no node on host %s", job->name, order->host);
        return;
    }
    if (member == NULL) {
        answer(job, link, 0, "host %s is leaving job %s already", order->host, job->name);
        return;
    }
    size_t staying = ct_rdzv_candidates(job) - !member->barred;
    if (staying < job->params.nodes_min) {
        answer(job, link, CT_EUNAVAILABLE,
               "without host %s job %s would have %zu nodes of at least %u and stop: start another "
               "node first",
               order->host, job->name, staying, job->params.nodes_min);
        return;
    }
    answer(job, link, 0, "host %s leaves job %s at the next step boundary", order->host, job->name);
    struct ct_rdzv_action *action = ct_rdzv_push(job, CT_RDZV_DO_DRAIN, member->link);
    (void)snprintf(action->text, sizeof(action->text), "drained by %.60s%s%.300s", order->author,
                   order->reason[0] != '\0' ? ": " : "", order->reason);
    ct_rdzv_on_leave(job, member, CT_RDZV_LEAVE_DRAIN);
}

void ct_rdzv_on_order(struct ct_rdzv *job, const struct ct_rdzv_event *event)
{
    if (job->phase == CT_RDZV_CLOSING || job->phase == CT_RDZV_CLOSED)
        answer(job, event->link, CT_ECLOSED, "job %s has ended", job->name);
    else if (event->order->host[0] == '\0')
        answer(job, event->link, CT_EUSAGE, "the order names no host");
    else if (strlen(event->order->host) >= CT_RDZV_HOST_BYTES)
        answer(job, event->link, CT_EUSAGE, "the host name %.40s... has %zu bytes: %d are possible",
               event->order->host, strlen(event->order->host), CT_RDZV_HOST_BYTES - 1);
    else if (event->kind == CT_RDZV_ON_DRAIN)
        drain(job, event->link, event->order);
    else if (job->cordon_link != 0)
        answer(job, event->link, CT_EUNAVAILABLE, "another order waits for the journal: try again");
    else if (event->kind == CT_RDZV_ON_CORDON)
        cordon(job, event->link, event->order);
    else
        uncordon(job, event->link, event->order);
}

/* ---- records and time ---- */

void ct_rdzv_on_cordon_record(struct ct_rdzv *job, bool is_kept)
{
    job->cordon_seq = 0;
    if (!is_kept) {
        job->cordons_changed = true;
        job->cordon_retry_ms = job->now_ms + CT_RDZV_PERSIST_RETRY_MS;
    } else if (job->cordons_changed && job->generation > 0) {
        ct_rdzv_keep_cordons(job);
        return;
    }
    if (job->cordon_link != 0 && is_kept)
        answer(job, job->cordon_link, 0, "done");
    else if (job->cordon_link != 0)
        answer(job, job->cordon_link, CT_EIO,
               "done, but the journal cannot be written: a daemon that restarts forgets it");
    job->cordon_link = 0;
}

void ct_rdzv_cordon_tick(struct ct_rdzv *job)
{
    bool ended = false, admits = false;
    for (size_t i = 0; job->cordon_ms <= job->now_ms && i < job->cordon_count;) {
        const struct ct_rdzv_cordon *cordon = &job->cordons[i];
        if (cordon->until_ms > job->now_ms) {
            i++;
            continue;
        }
        ct_rdzv_announce(job, CT_ANNOUNCE_UNCORDONED, "the cordon of host %s is over",
                         cordon->host);
        admits |= remove_entry(job, i);
        ended = true;
    }
    if (admits)
        ct_rdzv_admit(job, NULL);
    bool retries = job->cordon_retry_ms <= job->now_ms;
    if (retries)
        job->cordon_retry_ms = UINT64_MAX;
    if (ended || (retries && job->cordons_changed))
        ct_rdzv_keep_cordons(job);
}
