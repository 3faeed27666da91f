/* Links and jobs, and the way of a message through them; see service.h.
 *
 * A link's number holds its place in the table (low 20 bits) and a serial number, so that a late
 * answer for a closed link finds nobody. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_OPEN_REQUESTS = 8192,
    DEFAULT_WHOLE = 1024,
    OTHER_DAEMON_MS = 1000, /* until a node that knows a newer daemon may ask this one again */
};

/* ---- links ---- */

struct ct_service *ct_service_new(const struct ct_service_limits *limits,
                                  const struct ct_service_io *io, uint64_t epoch)
{
    struct ct_service *service = calloc(1, sizeof(*service));
    if (service == NULL)
        return NULL;
    if (limits != NULL)
        service->limits = *limits;
    struct ct_quotas quotas = service->limits.quotas;
    if (service->limits.jobs != 0)
        quotas.total[CT_QUOTA_JOBS] = service->limits.jobs;
    if (service->limits.links != 0)
        quotas.total[CT_QUOTA_LINKS] = service->limits.links;
    ct_accounts_init(&service->accounts, &quotas);
    service->limits.links = (uint32_t)service->accounts.quotas.total[CT_QUOTA_LINKS];
    if (service->limits.whole_round_nodes == 0)
        service->limits.whole_round_nodes = DEFAULT_WHOLE;
    if (service->limits.open_requests == 0)
        service->limits.open_requests = DEFAULT_OPEN_REQUESTS;
    CT_ASSERT(service->limits.links <= CT_SERVICE_SLOT_MASK);
    service->io = *io;
    service->epoch = epoch;
    service->due_ms = UINT64_MAX;
    return service;
}

/* Its account has room for another one. */
static void leave(struct ct_service *service, const struct ct_service_link *link)
{
    ct_accounts_give(&service->accounts, link->account, CT_QUOTA_LINKS, 1);
    ct_accounts_leave(&service->accounts, link->account);
}

void ct_service_free(struct ct_service *service)
{
    if (service == NULL)
        return;
    for (struct ct_service_job *job = service->jobs, *next; job != NULL; job = next) {
        next = job->next;
        ct_service_free_job(job);
    }
    ct_service_audit_deinit(service);
    for (uint32_t i = 0; i < service->link_room; i++)
        if (service->links[i].number != 0)
            leave(service, &service->links[i]);
    ct_accounts_deinit(&service->accounts);
    free(service->links);
    free(service->open);
    free(service);
}

static bool grow_links(struct ct_service *service)
{
    uint32_t room = CT_MIN(CT_MAX(16u, service->link_room * 2), service->limits.links);
    if (room == service->link_room)
        return false;
    struct ct_service_link *links = realloc(service->links, room * sizeof(*links));
    if (links == NULL)
        return false;
    memset(links + service->link_room, 0, (room - service->link_room) * sizeof(*links));
    service->links = links;
    service->link_room = room;
    return true;
}

/* With a hold on it; NULL: nobody's. */
static struct ct_account *account_of(struct ct_service *service, void *peer)
{
    struct ct_account_name name;

    if (service->io.whose == NULL || !service->io.whose(service->io.context, peer, &name))
        return NULL;
    return ct_accounts_enter(&service->accounts, &name);
}

static bool take_place(struct ct_service *service, struct ct_account *account, uint32_t *ret_slot)
{
    uint32_t slot = service->first_free;

    if (ct_accounts_take(&service->accounts, account, CT_QUOTA_LINKS, 1, &service->refusal) != 0)
        return false;
    while (slot < service->link_room && service->links[slot].number != 0)
        slot++;
    *ret_slot = slot;
    if (slot < service->link_room || grow_links(service))
        return true;
    ct_error_set(&service->refusal, CT_ENOMEM, "the rendezvous has no memory for a connection");
    ct_accounts_give(&service->accounts, account, CT_QUOTA_LINKS, 1);
    return false;
}

uint64_t ct_service_open(struct ct_service *service, void *peer)
{
    struct ct_account *account = account_of(service, peer);
    uint32_t slot;
    if (!take_place(service, account, &slot)) {
        ct_accounts_leave(&service->accounts, account);
        return 0;
    }
    service->first_free = slot + 1;
    service->link_count++;
    struct ct_service_link *link = &service->links[slot];
    *link = (struct ct_service_link){.number = ++service->serial << CT_SERVICE_SLOT_BITS | slot,
                                     .peer = peer,
                                     .account = account,
                                     .member = UINT32_MAX};
    return link->number;
}

const char *ct_service_refusal(struct ct_service *service, uint64_t now_ms, uint32_t *ret_retry_ms)
{
    *ret_retry_ms = ct_accounts_retry_ms(&service->accounts, now_ms);
    return service->refusal.text;
}

struct ct_service_link *ct_service_link_of(const struct ct_service *service, uint64_t number)
{
    uint64_t slot = number & CT_SERVICE_SLOT_MASK;
    if (number == 0 || slot >= service->link_room || service->links[slot].number != number)
        return NULL;
    return &service->links[slot];
}

void ct_service_send(struct ct_service *service, uint64_t link, const struct ct_message *message)
{
    const struct ct_service_link *to = ct_service_link_of(service, link);
    if (to != NULL)
        service->io.send(service->io.context, to->peer, message);
}

static void drop(struct ct_service *service, uint64_t link, int code, const char *sentence)
{
    const struct ct_service_link *of = ct_service_link_of(service, link);
    if (of != NULL)
        service->io.close(service->io.context, of->peer, code, sentence);
}

bool ct_service_has_joined(const struct ct_service *service, uint64_t number)
{
    const struct ct_service_link *link = ct_service_link_of(service, number);
    return link != NULL && link->job != NULL && link->member != UINT32_MAX;
}

static void free_link(struct ct_service *service, struct ct_service_link *link)
{
    uint32_t slot = (uint32_t)(link - service->links);
    if (link->job != NULL) {
        link->job->links--;
        link->job->followers -= link->follows;
    }
    ct_service_audit_left(service, link);
    leave(service, link);
    *link = (struct ct_service_link){0};
    service->first_free = CT_MIN(service->first_free, slot);
    service->link_count--;
}

/* ---- what comes in ---- */

void ct_service_refuse(struct ct_service *service, uint64_t link, int code, uint32_t retry_ms,
                       const char *sentence)
{
    struct ct_message message = {
        .type = CT_MSG_REFUSE,
        .refuse = {.code = code, .retry_ms = retry_ms, .text = sentence},
    };
    if (retry_ms == 0)
        ct_service_audit_refusal(service, link, code, sentence);
    ct_service_send(service, link, &message);
    drop(service, link, code, sentence);
}

void ct_service_violation(struct ct_service *service, struct ct_service_link *link,
                          const char *sentence)
{
    ct_service_audit_refusal(service, link->number, CT_EPROTOCOL, sentence);
    drop(service, link->number, CT_EPROTOCOL, sentence);
}

static void on_hello(struct ct_service *service, struct ct_service_link *link,
                     const struct ct_msg_hello *hello)
{
    char text[512];
    const char *only = service->limits.only_job;
    bool is_admin = strcmp(hello->role, "admin") == 0;
    const char *job = is_admin && hello->job[0] == '\0' ? NULL : hello->job;
    struct ct_error why = {0};
    if (link->hello) {
        ct_service_violation(service, link, "a second HELLO");
    } else if (only != NULL && strcmp(only, hello->job) != 0 && !is_admin) {
        (void)snprintf(
            text, sizeof(text),
            "this rendezvous serves job %s alone, host %s asks for job %s: give all nodes "
            "one --rdzv_id, or use a ctrund for many jobs",
            only, hello->host, hello->job);
        ct_service_refuse(service, link->number, CT_EUSAGE, 0, text);
    } else if (hello->protocol < CT_WIRE_OLDEST) {
        (void)snprintf(text, sizeof(text),
                       "the ctrun of host %s is too old for this rendezvous (protocol %u, here %d "
                       "to %d): install its release of ctrun there",
                       hello->host, hello->protocol, CT_WIRE_OLDEST, CT_WIRE_PROTOCOL);
        ct_service_refuse(service, link->number, CT_EPROTOCOL, 0, text);
    } else if (!is_admin && hello->job[0] == '\0') {
        (void)snprintf(text, sizeof(text), "host %s names no job: give its nodes one --rdzv_id",
                       hello->host);
        ct_service_refuse(service, link->number, CT_EUSAGE, 0, text);
    } else if (ct_service_lets_in(service, link, is_admin, job, &why) != 0) {
        ct_error_prefix(&why, "host %s", hello->host);
        ct_service_refuse(service, link->number, CT_EAUTH, 0, why.text);
    } else {
        link->hello = true;
        link->protocol = CT_MIN(hello->protocol, (uint32_t)CT_WIRE_PROTOCOL);
        link->epoch = hello->epoch;
        link->admin = is_admin;
        link->id = hello->incarnation;
        ct_str_copy(link->job_name, sizeof(link->job_name), hello->job);
    }
}

static uint32_t clamp_u32(uint64_t value)
{
    return (uint32_t)CT_MIN(value, (uint64_t)UINT32_MAX / 2);
}

static struct ct_rdzv_params params_of(const struct ct_msg_join *m)
{
    struct ct_rdzv_params params = {
        .nodes_min = m->nodes_min,
        .nodes_max = m->nodes_max,
        .max_restarts = m->max_restarts,
        .join_timeout_ms = clamp_u32(m->join_timeout_ms),
        .last_call_ms = clamp_u32(m->last_call_ms),
        .lease_ms = clamp_u32(m->lease_ms),
        .prepare_ms = clamp_u32(m->prepare_ms),
        .grow_ms = clamp_u32(m->grow_ms),
        .autonomy_ms = clamp_u32(m->autonomy_ms),
        .cordon_faults = m->cordon_faults,
        .world_divides = m->world_divides,
        .config_hash = m->config_hash,
    };
    ct_str_copy(params.settings, sizeof(params.settings), m->settings);
    return params;
}

/* The agent in this process: {0, 0} is nobody's. */
static bool is_own(const struct ct_service *service, struct ct_id id)
{
    const struct ct_id none = {0}, own = service->limits.own;
    return ct_id_equal(id, own) && !ct_id_equal(own, none);
}

/* This service takes the place of a newer one that is no more. */
static bool may_succeed(struct ct_service *service, uint64_t epoch, bool orphan)
{
    return (orphan || service->rebuild == CT_RDZV_REBUILD_OF_ALL) && service->io.succeed != NULL &&
           service->io.succeed(service->io.context, epoch);
}

/* A node that has followed a newer daemon follows no older one. */
static void refuse_follower(struct ct_service *service, uint64_t now_ms,
                            const struct ct_service_link *link, const char *host)
{
    struct ct_service_job *job = ct_service_find_job(service, link->job_name);
    char text[512];
    if (job != NULL) {
        ct_rdzv_note_elsewhere(job->core, now_ms, host);
        ct_service_touch(job);
    }
    (void)snprintf(text, sizeof(text),
                   "host %s has followed epoch %" PRIu64 " of the rendezvous of job %s, this "
                   "one is in epoch %" PRIu64 ": two daemons serve one job, stop this one",
                   host, link->epoch, link->job_name, service->epoch);
    ct_service_refuse(service, link->number, CT_EFENCED, OTHER_DAEMON_MS, text);
}

static void on_join(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                    const struct ct_msg_join *m)
{
    if (m->incarnation.high != link->id.high || m->incarnation.low != link->id.low) {
        ct_service_violation(service, link, "JOIN of another incarnation than HELLO's");
        return;
    }
    if (link->epoch > service->epoch && !may_succeed(service, link->epoch, m->orphan != 0)) {
        refuse_follower(service, now_ms, link, m->host);
        return;
    }
    if (!ct_service_lets_join(service, link, m))
        return;
    struct ct_rdzv_join join = {
        .id = m->incarnation,
        .params = params_of(m),
        .slots = m->slots,
        .node_rank = m->node_rank,
        .slurm_node = m->slurm_node,
        .survivable = m->survivable != 0,
        .own = is_own(service, m->incarnation),
        .promised = m->generation,
        .acting = m->acting,
        .over = m->over,
        .orphan = m->orphan != 0,
        .host = m->host,
        .address = m->address,
        .role = m->role,
    };
    if (link->job == NULL) {
        link->job = ct_service_demand_job(service, now_ms, link, &join.params, m->generation == 0);
        if (link->job == NULL)
            return;
        link->job->links++;
    }
    ct_service_tell_end(link->job, now_ms, link);
    struct ct_rdzv_event event = {
        .kind = CT_RDZV_ON_JOIN, .link = link->number, .seq = m->seq, .join = &join};
    ct_service_step(link->job, now_ms, &event);
}

static void on_heartbeat(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                         const struct ct_msg_heartbeat *m)
{
    struct ct_rdzv_event event = {
        .kind = CT_RDZV_ON_HEARTBEAT,
        .member = link->member,
        .link = link->number,
        .seq = m->seq,
        .generation = m->acting,
        .promised = m->generation,
        .over = m->over,
        .recovered = m->recovered,
        .step = m->step,
    };
    uint64_t number = link->number;
    const struct ct_rdzv *core = link->job->core;
    const struct ct_rdzv_member *member = NULL;
    if (link->member < ct_rdzv_capacity(core))
        member = ct_rdzv_member(core, link->member);
    if (member != NULL && member->state != CT_RDZV_FREE && member->link == number)
        ct_service_step(link->job, now_ms, &event);
    else if (link->released) /* said before the answer to its leaving came */
        ct_service_release(link->job, number);
    else
        drop(service, number, CT_EFENCED,
             "the node is not a member any more: it was not heard in time");
}

/* A message of a link that has a job. */
static void on_member_message(struct ct_service *service, uint64_t now_ms,
                              struct ct_service_link *link, const struct ct_message *message)
{
    struct ct_wire_failure failure;
    struct ct_rdzv_event event = {.member = link->member, .link = link->number};
    switch (message->type) {
    case CT_MSG_HEARTBEAT:
        on_heartbeat(service, now_ms, link, &message->heartbeat);
        return;
    case CT_MSG_PROGRESS:
        ct_service_on_progress(link->job, now_ms, &message->progress);
        return;
    case CT_MSG_STORE_WAITS:
        ct_service_on_store_waits(link->job, now_ms, &message->store_waits);
        return;
    case CT_MSG_FIGURES:
        ct_service_on_figures(link, now_ms, &message->figures);
        return;
    case CT_MSG_FLIGHT_REPLY:
        ct_service_on_flight_reply(service, link, &message->flight_reply);
        return;
    case CT_MSG_LINES_QUERY:
        ct_service_on_lines_query(service, now_ms, link, &message->lines_query);
        return;
    case CT_MSG_LINES:
        ct_service_on_lines(service, link, &message->lines);
        return;
    case CT_MSG_PREPARED:
        event.kind = CT_RDZV_ON_PREPARED;
        event.seq = message->prepared.seq;
        event.generation = message->prepared.generation;
        event.acted = message->prepared.acted;
        event.lineage = message->prepared.lineage;
        event.step = message->prepared.step;
        event.digest = message->prepared.digest;
        event.port = message->prepared.port;
        break;
    case CT_MSG_FAILURE:
        failure = message->failure.failure;
        if (failure.code == 0) /* the worker gave none */
            failure.code = CT_EWORKER;
        event.kind = CT_RDZV_ON_FAILURE;
        event.seq = message->failure.seq;
        event.generation = message->failure.generation;
        event.failure = &failure;
        break;
    case CT_MSG_DONE:
        event.kind = CT_RDZV_ON_DONE;
        event.seq = message->done.seq;
        event.generation = message->done.generation;
        break;
    case CT_MSG_PUBLISH:
        event.kind = CT_RDZV_ON_PUBLISH;
        event.seq = message->publish.seq;
        event.generation = message->publish.generation;
        event.step = message->publish.step;
        event.digest = message->publish.digest;
        link->job->asked_step = message->publish.step;
        link->job->asked_bytes = message->publish.bytes;
        break;
    case CT_MSG_LEAVE:
        event.kind = CT_RDZV_ON_LEAVE;
        event.seq = message->leave.seq;
        event.leave = message->leave.how < CT_RDZV_LEAVES ? (enum ct_rdzv_leave)message->leave.how
                                                          : CT_RDZV_LEAVE_DRAIN;
        break;
    default:
        ct_service_violation(service, link, "a message that an agent does not send");
        return;
    }
    ct_service_step(link->job, now_ms, &event);
}

static void receive(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                    const struct ct_message *message)
{
    if (message->type == CT_MSG_HELLO)
        on_hello(service, link, &message->hello);
    else if (!link->hello)
        ct_service_violation(service, link, "a message before HELLO");
    else if (link->admin)
        ct_service_on_operator(service, now_ms, link, message);
    else if (ct_service_is_follow(link, message))
        ct_service_on_follow(link, message->admin.after);
    else if (message->type == CT_MSG_ADMIN || message->type == CT_MSG_FLIGHT_QUERY)
        ct_service_violation(service, link, "a message that does not go with the role in HELLO");
    else if (message->type == CT_MSG_JOIN)
        on_join(service, now_ms, link, &message->join);
    else if (link->job == NULL)
        ct_service_violation(service, link, "a message before JOIN");
    else if (ct_store_is_request(message))
        ct_service_on_store(service, now_ms, link, message);
    else
        on_member_message(service, now_ms, link, message);
}

void ct_service_message(struct ct_service *service, uint64_t now_ms, uint64_t number,
                        const struct ct_message *message)
{
    struct ct_service_link *link = ct_service_link_of(service, number);
    if (link == NULL)
        return;
    receive(service, now_ms, link, message);
    link = ct_service_link_of(service, number);
    if (link != NULL && link->job != NULL)
        ct_service_touch(link->job);
}

void ct_service_closed(struct ct_service *service, uint64_t now_ms, uint64_t number, bool silent)
{
    struct ct_service_link *link = ct_service_link_of(service, number);
    if (link == NULL)
        return;
    struct ct_service_job *job = link->job;
    struct ct_rdzv_event event = {
        .kind = CT_RDZV_ON_DISCONNECT, .member = link->member, .link = number, .silent = silent};
    free_link(service, link);
    if (job == NULL)
        return;
    ct_store_forget(job->store, number);
    ct_service_step(job, now_ms, &event);
    ct_service_touch(job);
    ct_service_reap(job);
}

/* ---- time ---- */

static void tick(struct ct_service_job *job, uint64_t now_ms)
{
    const struct ct_rdzv_event tick = {.kind = CT_RDZV_ON_TICK};
    struct ct_history_event event = {.generation = ct_rdzv_generation(job->core)};

    ct_store_tick(job->store, now_ms);
    ct_history_tick(job->history, now_ms, &event);
    ct_service_note(job, now_ms, &event);
    if (ct_rdzv_deadline(job->core) <= now_ms)
        ct_service_step(job, now_ms, &tick);
    ct_service_touch(job);
}

void ct_service_tick(struct ct_service *service, uint64_t now_ms)
{
    if (service->due_ms > now_ms)
        return;
    service->due_ms = UINT64_MAX;
    for (struct ct_service_job *job = service->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (job->due_ms > now_ms) {
            service->due_ms = CT_MIN(service->due_ms, job->due_ms);
            continue;
        }
        tick(job, now_ms);
        ct_service_reap(job);
    }
}

uint64_t ct_service_deadline(const struct ct_service *service)
{
    return service->due_ms;
}
