/* Actions of a job's core become messages and records. */
#include "rendezvous/service/admin.h"
#include "rendezvous/service/service_state.h"

#include "base/assert.h"
#include "base/str.h"

#include <string.h>

static void send_to(struct ct_service_job *job, uint64_t link, const struct ct_message *message)
{
    ct_service_send(job->service, link, message);
}

/* The connected members whose state is in `states` (a bit set), or the one behind `link`. */
static void send_to_members(struct ct_service_job *job, uint64_t link, unsigned states,
                            const struct ct_message *message)
{
    if (link != CT_RDZV_ALL) {
        send_to(job, link, message);
        return;
    }
    for (size_t i = 0; i < ct_rdzv_capacity(job->core); i++) {
        const struct ct_rdzv_member *member = ct_rdzv_member(job->core, i);
        if (states >> member->state & 1u && member->link != 0)
            send_to(job, member->link, message);
    }
}

enum { RUNS_ARENA_BYTES = 16 << 20 };

enum {
    ANY = (1 << CT_RDZV_MEMBER_STATES) - 1 - (1 << CT_RDZV_FREE),
    PREPARING = 1 << CT_RDZV_PREPARING,
    IN_ROUND = 1 << CT_RDZV_ACTING | 1 << CT_RDZV_DONE,
};

static struct ct_wire_node node_of(const struct ct_rdzv_roster *roster, uint32_t index)
{
    _Static_assert(CT_RDZV_HOST_BYTES <= 256 && CT_RDZV_ADDRESS_BYTES <= 256 &&
                       CT_RDZV_ROLE_BYTES <= 65,
                   "what a place holds fits the fields of wire.def");
    const struct ct_rdzv_place *place = &roster->places[index];
    return (struct ct_wire_node){
        .index = index,
        .incarnation = place->id,
        .host = place->host,
        .address = place->address,
        .port = place->port,
        .slots = place->slots,
        .first_rank = place->first_rank,
        .role = place->role,
        .survivor = place->survivor,
    };
}

/* ROUND without its nodes. */
static struct ct_message round_of(const struct ct_service_job *job, uint32_t first)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    return (struct ct_message){
        .type = CT_MSG_ROUND,
        .round = {.generation = roster->generation,
                  .epoch = job->service->epoch,
                  .restart_count = ct_rdzv_restarts(job->core),
                  .lineage = roster->lineage,
                  .base_step = roster->base_step,
                  .base_digest = roster->base_digest,
                  .base_node = roster->base_node,
                  .published_generation = roster->published.generation,
                  .published_step = roster->published.step,
                  .world = roster->world,
                  .node_count = roster->count,
                  .first = first},
    };
}

static void send_part(struct ct_service_job *job, uint64_t link, uint32_t first)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    struct ct_wire_node nodes[CT_WIRE_PART];
    struct ct_message message = round_of(job, first);
    if (first >= roster->count)
        return;
    uint32_t count = CT_MIN(roster->count - first, (uint32_t)CT_WIRE_PART);
    for (uint32_t i = 0; i < count; i++)
        nodes[i] = node_of(roster, first + i);
    message.round.nodes.data = nodes;
    message.round.nodes.count = count;
    send_to_members(job, link, IN_ROUND, &message);
}

/* Find the runs of the newest round; false without memory. */
static bool find_runs(struct ct_service_job *job)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    if (job->runs_of == roster->generation)
        return true;
    job->runs_of = 0;
    ct_arena_deinit(&job->runs_arena);
    ct_arena_init(&job->runs_arena, RUNS_ARENA_BYTES);
    struct ct_wire_run *runs = ct_arena_array(&job->runs_arena, roster->count, sizeof(*runs));
    if (runs == NULL)
        return false;
    job->runs = (struct ct_node_runs){.data = runs};
    for (uint32_t i = 0; i < roster->count; i++)
        ct_node_runs_add(runs, &job->runs.count, roster->places[i].slots, roster->places[i].role);
    for (uint32_t i = 0; i < job->runs.count; i++) {
        runs[i].role = ct_arena_strdup(&job->runs_arena, runs[i].role);
        if (runs[i].role == NULL)
            return false;
    }
    job->runs_of = roster->generation;
    return true;
}

void ct_service_send_whole(struct ct_service_job *job, uint64_t link)
{
    uint32_t count = ct_rdzv_roster(job->core)->count;
    for (uint32_t first = 0; first < count; first += CT_WIRE_PART)
        send_part(job, link, first);
}

/* A large round: what every node needs of it, instead of N nodes to each of N. Node 0, where
 * PyTorch's store lets in the others' hosts, gets all. */
static void send_short(struct ct_service_job *job, const struct ct_rdzv_member *member)
{
    const struct ct_rdzv_roster *roster = ct_rdzv_roster(job->core);
    const int32_t wanted[] = {member->place, 0, roster->base_node};
    struct ct_wire_node nodes[CT_COUNT(wanted)];
    struct ct_message message = round_of(job, roster->count);
    uint32_t count = 0;
    if (member->link == 0 || !(IN_ROUND >> member->state & 1u) || member->place < 0)
        return;
    if (member->place == 0) {
        ct_service_send_whole(job, member->link);
        return;
    }
    for (size_t i = 0; i < CT_COUNT(wanted); i++) {
        bool is_known = wanted[i] < 0;
        for (size_t k = 0; k < i; k++)
            is_known = is_known || wanted[k] == wanted[i];
        if (!is_known)
            nodes[count++] = node_of(roster, (uint32_t)wanted[i]);
    }
    message.round.runs.data = job->runs.data;
    message.round.runs.count = job->runs.count;
    message.round.nodes.data = nodes;
    message.round.nodes.count = count;
    send_to(job, member->link, &message);
}

/* The roster: in as many parts as it needs, or in short. Without memory a member's next heartbeat
 * asks again. */
static void send_round(struct ct_service_job *job, uint64_t link)
{
    if (ct_rdzv_roster(job->core)->count <= job->service->limits.whole_round_nodes) {
        ct_service_send_whole(job, link);
        return;
    }
    if (!find_runs(job))
        return;
    const struct ct_service_link *to = ct_service_link_of(job->service, link);
    if (to != NULL && to->member < ct_rdzv_capacity(job->core))
        send_short(job, ct_rdzv_member(job->core, to->member));
    for (size_t i = 0; link == CT_RDZV_ALL && i < ct_rdzv_capacity(job->core); i++)
        send_short(job, ct_rdzv_member(job->core, i));
}

void ct_service_release(struct ct_service_job *job, uint64_t number)
{
    struct ct_service_link *link = ct_service_link_of(job->service, number);
    const struct ct_message message = {.type = CT_MSG_RELEASE,
                                       .release = {.generation = ct_rdzv_generation(job->core)}};
    if (link != NULL)
        link->released = true;
    send_to(job, number, &message);
}

static void send_welcome(struct ct_service_job *job, uint64_t now_ms,
                         const struct ct_rdzv_action *action)
{
    struct ct_service_link *link = ct_service_link_of(job->service, action->link);
    if (link == NULL)
        return;
    link->member = action->member;
    link->released = false;
    struct ct_message message = {
        .type = CT_MSG_WELCOME,
        .welcome = {.generation = action->generation,
                    .epoch = job->service->epoch,
                    .protocol = link->protocol,
                    .version = ""},
    };
    send_to(job, action->link, &message);
    ct_service_start_following(job, now_ms, link);
}

/* Who waits for what, at most CT_SERVICE_WAITING_MS old: thousands of members ask each second. A
 * node that is kept out of rounds is told why instead, in `own`. */
static const char *waiting(struct ct_service_job *job, uint64_t now_ms,
                           const struct ct_rdzv_action *ack, char own[512])
{
    enum ct_rdzv_phase phase = ct_rdzv_phase(job->core);
    if (ack->member_state == CT_RDZV_STANDBY &&
        ct_rdzv_describe_member(job->core, ack->member, own, 512))
        return own;
    if (phase == CT_RDZV_RECOVER || phase == CT_RDZV_RUNNING)
        return "";
    bool fresh = job->waiting[0] != '\0' && job->waiting_phase == phase &&
                 now_ms - job->waiting_ms < CT_SERVICE_WAITING_MS;
    if (!fresh) {
        ct_rdzv_describe(job->core, job->waiting, sizeof(job->waiting));
        job->waiting_ms = now_ms;
        job->waiting_phase = phase;
    }
    return job->waiting;
}

static void send_ack(struct ct_service_job *job, uint64_t now_ms,
                     const struct ct_rdzv_action *action)
{
    char own[512];
    struct ct_message message = {
        .type = CT_MSG_HEARTBEAT_ACK,
        .heartbeat_ack = {.generation = action->generation,
                          .epoch = job->service->epoch,
                          .seq = action->seq,
                          .state = (uint8_t)action->member_state,
                          .watched = ct_service_is_watched(job, now_ms),
                          .waiting = waiting(job, now_ms, action, own)},
    };
    send_to(job, action->link, &message);
}

/* All but the root cause itself. Returns how many. */
static uint32_t list_others(const struct ct_service_job *job,
                            struct ct_wire_failure list[CT_RDZV_OTHERS])
{
    size_t known;
    uint32_t count = 0;
    const struct ct_wire_failure *others = ct_rdzv_others(job->core, &known);
    int32_t cause = ct_rdzv_result(job->core)->cause.rank;

    for (size_t i = 0; i < known; i++)
        if (others[i].rank != cause)
            list[count++] = others[i];
    return count;
}

static void send_close(struct ct_service_job *job, uint64_t link)
{
    const struct ct_rdzv_result *result = ct_rdzv_result(job->core);
    struct ct_wire_failure others[CT_RDZV_OTHERS];
    struct ct_message message = {
        .type = CT_MSG_CLOSE,
        .close = {.generation = result->generation,
                  .status = result->status,
                  .code = result->code,
                  .restart_count = result->restarts,
                  .cause = result->cause,
                  .others = {.data = others, .count = list_others(job, others)}},
    };
    send_to_members(job, link, ANY, &message);
}

static void announce(struct ct_service_job *job, uint64_t now_ms,
                     const struct ct_rdzv_action *action)
{
    struct ct_history_event event = {
        .number = 1, .generation = ct_rdzv_generation(job->core), .kind = action->announcement};

    ct_str_copy(event.text, sizeof event.text, action->text);
    ct_service_note(job, now_ms, &event);
    ct_service_log(job, now_ms, action->text);
}

static void carry_out(struct ct_service_job *job, uint64_t now_ms,
                      const struct ct_rdzv_action *action)
{
    struct ct_service *service = job->service;
    struct ct_message message = {0};
    switch (action->kind) {
    case CT_RDZV_DO_WELCOME:
        send_welcome(job, now_ms, action);
        break;
    case CT_RDZV_DO_REFUSE:
        ct_service_refuse(service, action->link, action->code, action->retry_ms, action->text);
        break;
    case CT_RDZV_DO_PREPARE:
        if (!action->at_boundary)
            ct_store_revoke(job->store);
        message.type = CT_MSG_PREPARE;
        message.prepare = (struct ct_msg_prepare){.generation = action->generation,
                                                  .at_boundary = action->at_boundary,
                                                  .cause = (uint8_t)action->reason,
                                                  .reason = ct_rdzv_reason_name(action->reason)};
        send_to_members(job, action->link, PREPARING, &message);
        break;
    case CT_RDZV_DO_ROUND:
        if (action->link == CT_RDZV_ALL)
            ct_store_begin(job->store, action->generation);
        send_round(job, action->link);
        break;
    case CT_RDZV_DO_REVOKE:
        ct_store_revoke(job->store);
        message.type = CT_MSG_REVOKE;
        message.revoke = (struct ct_msg_revoke){.generation = action->generation,
                                                .cause = (uint8_t)action->reason,
                                                .reason = ct_rdzv_reason_name(action->reason)};
        send_to_members(job, action->link, ANY, &message);
        break;
    case CT_RDZV_DO_ACK:
        send_ack(job, now_ms, action);
        break;
    case CT_RDZV_DO_RELEASE:
        ct_service_release(job, action->link);
        break;
    case CT_RDZV_DO_DRAIN:
        message.type = CT_MSG_DRAIN;
        message.drain = (struct ct_msg_drain){.generation = ct_rdzv_generation(job->core),
                                              .text = action->text};
        send_to(job, action->link, &message);
        break;
    case CT_RDZV_DO_PUBLISHED:
        if (action->code == 0 && action->step == job->asked_step)
            ct_history_published(job->history, action->step, job->asked_bytes);
        message.type = CT_MSG_PUBLISHED;
        message.published = (struct ct_msg_published){.generation = action->generation,
                                                      .step = action->step,
                                                      .code = action->code,
                                                      .text = action->text};
        send_to(job, action->link, &message);
        break;
    case CT_RDZV_DO_ANSWER:
        ct_service_answer(service, action->link, action->code, action->text);
        break;
    case CT_RDZV_DO_CLOSE:
        ct_store_revoke(job->store);
        send_close(job, action->link);
        break;
    case CT_RDZV_DO_ANNOUNCE:
        announce(job, now_ms, action);
        break;
    case CT_RDZV_DO_PERSIST: /* the caller's */
        break;
    }
}

/* The answers to records that are to be given to the core, in order. */
struct answers {
    struct ct_rdzv_event list[CT_RDZV_ACTIONS_LIMIT];
    size_t count, given;
};

/* Does the core know of every record that was kept? */
static bool is_complete(const struct answers *answers)
{
    for (size_t i = answers->given; i < answers->count; i++)
        if (answers->list[i].kind == CT_RDZV_ON_PERSISTED)
            return false;
    return true;
}

enum { TRACE_BYTES = 2048 };

static void trace(const struct ct_service_job *job, const char *line)
{
    job->service->io.trace(job->service->io.context, ct_rdzv_name(job->core), line);
}

/* One step of the core, and its transcript for those who read it. */
static void step_core(struct ct_service_job *job, uint64_t now_ms,
                      const struct ct_rdzv_event *event, struct ct_rdzv_actions *actions)
{
    char received[TRACE_BYTES], line[TRACE_BYTES];
    bool is_heartbeat = event->kind == CT_RDZV_ON_TICK || event->kind == CT_RDZV_ON_HEARTBEAT;
    if (job->service->io.trace == NULL) {
        ct_rdzv_step(job->core, now_ms, event, actions);
        return;
    }
    ct_rdzv_event_print(job->core, event, received,
                        sizeof(received)); /* the step may forget who it is */
    ct_rdzv_step(job->core, now_ms, event, actions);
    bool is_answered = false;
    for (size_t i = 0; i < actions->count; i++)
        is_answered = is_answered || actions->list[i].kind != CT_RDZV_DO_ACK;
    if (is_heartbeat && !is_answered)
        return;
    trace(job, received);
    for (size_t i = 0; i < actions->count; i++) {
        if (actions->list[i].kind == CT_RDZV_DO_ANNOUNCE)
            continue;
        ct_rdzv_action_print(job->core, &actions->list[i], line, sizeof(line));
        trace(job, line);
    }
}

static void step(struct ct_service_job *job, uint64_t now_ms, const struct ct_rdzv_event *event,
                 struct answers *answers)
{
    struct ct_rdzv_actions actions;
    step_core(job, now_ms, event, &actions);
    if (event->kind == CT_RDZV_ON_JOIN && event->join->survivable)
        ct_history_reports(job->history);
    ct_history_phase(job->history, now_ms, ct_rdzv_phase(job->core),
                     ct_rdzv_result(job->core)->code);
    for (size_t i = 0; i < actions.count; i++) {
        const struct ct_rdzv_action *action = &actions.list[i];
        carry_out(job, now_ms, action);
        if (action->kind != CT_RDZV_DO_PERSIST)
            continue;
        int rc = ct_service_persist(job, action, is_complete(answers));
        if (rc == CT_SERVICE_LATER)
            continue; /* ct_service_kept brings the answer */
        CT_ASSERT(answers->count < CT_RDZV_ACTIONS_LIMIT);
        answers->list[answers->count++] = (struct ct_rdzv_event){
            .kind = rc == 0 ? CT_RDZV_ON_PERSISTED : CT_RDZV_ON_PERSIST_FAILED,
            .seq = action->seq,
        };
    }
}

void ct_service_step(struct ct_service_job *job, uint64_t now_ms, const struct ct_rdzv_event *event)
{
    struct answers answers = {.count = 0};
    step(job, now_ms, event, &answers);
    while (answers.given < answers.count)
        step(job, now_ms, &answers.list[answers.given++], &answers);
    ct_service_touch(job);
}
