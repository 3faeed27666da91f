/* What the agent says on the node link: one function a message of wire.def, and what is said again
 * because the daemon does not seem to know it. */
#include "rendezvous/client/member_send.h"

#include "base/assert.h"
#include "base/str.h"
#include "rendezvous/service/admin.h"

static void send_message(struct ct_member *member, const struct ct_message *message)
{
    member->io.send(member->io.context, message);
}

void ct_member_send_hello(struct ct_member *member)
{
    const struct ct_agent_options *o = &member->options;
    struct ct_message message = {
        .type = CT_MSG_HELLO,
        .hello = {.generation = member->received,
                  .protocol = member->protocol,
                  .job = o->run_id,
                  .host = o->host,
                  .incarnation = o->id,
                  .role = "agent",
                  .epoch = member->epoch},
    };
    send_message(member, &message);
}

bool ct_member_speak_older(struct ct_member *member)
{
    const struct ct_error why = member->last_error;

    if (member->phase != CT_MEMBER_JOINING)
        return false;
    member->protocol = ct_wire_next_older(member->protocol);
    if (member->protocol != CT_WIRE_PROTOCOL)
        return true;
    ct_error_set(&member->last_error, why.code,
                 "%.700s (this ctrun speaks protocols %d to %d; upgrade the daemon first, then the "
                 "nodes)",
                 why.text, CT_WIRE_OLDEST, CT_WIRE_PROTOCOL);
    return false;
}

void ct_member_send_join(struct ct_member *member)
{
    const struct ct_agent_options *o = &member->options;
    struct ct_message message = {
        .type = CT_MSG_JOIN,
        .join = {.generation = member->received,
                 .seq = ++member->seq,
                 .acting = member->acting,
                 .over = member->over,
                 .incarnation = o->id,
                 .slots = o->slots,
                 .node_rank = o->node_rank,
                 .slurm_node = o->slurm_node,
                 .nodes_min = o->params.nodes_min,
                 .nodes_max = o->params.nodes_max,
                 .max_restarts = o->params.max_restarts,
                 .host = o->host,
                 .address = o->address,
                 .role = o->role != NULL ? o->role : "default",
                 .join_timeout_ms = o->params.join_timeout_ms,
                 .last_call_ms = o->params.last_call_ms,
                 .lease_ms = o->params.lease_ms,
                 .prepare_ms = o->params.prepare_ms,
                 .grow_ms = o->params.grow_ms,
                 .autonomy_ms = o->params.autonomy_ms,
                 .cordon_faults = o->params.cordon_faults,
                 .world_divides = o->params.world_divides,
                 .config_hash = o->params.config_hash,
                 .settings = o->params.settings,
                 .survivable = o->survivable,
                 .orphan = member->received > 0 && member->on.is_orphan != NULL &&
                           member->on.is_orphan(member->on.context)},
    };
    send_message(member, &message);
}

void ct_member_send_heartbeat(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_HEARTBEAT,
        .heartbeat = {.generation = member->received,
                      .seq = ++member->seq,
                      .acting = member->acting,
                      .over = member->over,
                      .recovered = member->recovered,
                      .step = member->step},
    };
    send_message(member, &message);
}

void ct_member_send_prepared(struct ct_member *member)
{
    const struct ct_prepared *p = &member->prepared;
    struct ct_message message = {
        .type = CT_MSG_PREPARED,
        .prepared = {.generation = p->generation,
                     .seq = ++member->seq,
                     .acted = p->untouched && member->begun > 0 ? member->begun - 1 : member->begun,
                     .lineage = p->lineage,
                     .step = p->step,
                     .digest = p->digest,
                     .port = p->port},
    };
    send_message(member, &message);
}

static void send_failure(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_FAILURE,
        .failure = {.generation = member->acting, .seq = ++member->seq, .failure = member->failure},
    };
    message.failure.failure.age_ms =
        member->failed_ms < member->now_ms ? member->now_ms - member->failed_ms : 0;
    send_message(member, &message);
}

static void send_done(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_DONE,
        .done = {.generation = member->done, .seq = ++member->seq},
    };
    send_message(member, &message);
}

void ct_member_send_leave(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_LEAVE,
        .leave = {.generation = member->received,
                  .seq = ++member->seq,
                  .how = (uint8_t)member->leave},
    };
    send_message(member, &message);
}

void ct_member_send_follow(struct ct_member *member)
{
    const struct ct_message message = {.type = CT_MSG_ADMIN,
                                       .admin = {.verb = CT_ADMIN_FOLLOW,
                                                 .host = "",
                                                 .author = "",
                                                 .reason = "",
                                                 .after = member->events_seen}};
    send_message(member, &message);
}

static void send_publish(struct ct_member *member)
{
    struct ct_message message = {.type = CT_MSG_PUBLISH, .publish = member->publication};
    message.publish.seq = ++member->seq;
    send_message(member, &message);
}

/* ---- what the node says and member.h declares ---- */

int ct_member_publish(struct ct_member *member, const struct ct_msg_publish *publication)
{
    if (publication->generation == 0 || publication->generation <= member->publication.generation)
        return CT_ELIMIT;
    member->publication = *publication;
    if (member->phase == CT_MEMBER_JOINED)
        send_publish(member);
    return 0;
}

void ct_member_progress(struct ct_member *member, const struct ct_msg_progress *progress)
{
    struct ct_message message = {.type = CT_MSG_PROGRESS, .progress = *progress};
    if (progress->generation != member->acting)
        return;
    member->step = progress->step;
    if (member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_store_waits(struct ct_member *member, const struct ct_msg_store_waits *waits)
{
    struct ct_message message = {.type = CT_MSG_STORE_WAITS, .store_waits = *waits};
    if (waits->generation == member->acting && member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_flight_reply(struct ct_member *member, const struct ct_msg_flight_reply *reply)
{
    struct ct_message message = {.type = CT_MSG_FLIGHT_REPLY, .flight_reply = *reply};
    if (member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_figures(struct ct_member *member, const struct ct_msg_figures *figures)
{
    const struct ct_message message = {.type = CT_MSG_FIGURES, .figures = *figures};
    if (member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_lines(struct ct_member *member, const struct ct_msg_lines *lines)
{
    struct ct_message message = {.type = CT_MSG_LINES, .lines = *lines};
    message.lines.incarnation = member->options.id;
    message.lines.generation = member->begun;
    if (member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_lines_query(struct ct_member *member, const struct ct_msg_lines_query *query)
{
    const struct ct_message message = {.type = CT_MSG_LINES_QUERY, .lines_query = *query};
    if (member->phase == CT_MEMBER_JOINED)
        send_message(member, &message);
}

void ct_member_prepared(struct ct_member *member, const struct ct_prepared *prepared)
{
    if (prepared->generation != member->requested || member->requested == 0 ||
        member->phase == CT_MEMBER_OVER)
        return;
    member->prepared = *prepared;
    member->has_prepared = true;
    member->over = CT_MAX(member->over, prepared->generation - 1);
    member->acting = 0;
    member->has_failure = false;
    member->done = 0;
    if (member->phase == CT_MEMBER_JOINED)
        ct_member_send_prepared(member);
}

void ct_member_state_recovered(struct ct_member *member, uint64_t generation)
{
    if (generation != member->acting || generation <= member->recovered)
        return;
    member->recovered = generation;
    if (member->phase == CT_MEMBER_JOINED)
        ct_member_send_heartbeat(member);
}

void ct_member_failure(struct ct_member *member, uint64_t now_ms, uint64_t generation,
                       const struct ct_wire_failure *failure)
{
    struct ct_wire_failure here = *failure;

    member->now_ms = now_ms;
    if (generation != member->acting || member->acting == 0 || member->has_failure)
        return;
    here.host = member->options.host;
    ct_failure_keep(&member->failure, &here, member->failure_room, sizeof(member->failure_room));
    member->failed_ms = now_ms - CT_MIN(now_ms, failure->age_ms);
    member->has_failure = true;
    if (member->phase == CT_MEMBER_JOINED)
        send_failure(member);
}

void ct_member_done(struct ct_member *member, uint64_t generation)
{
    if (generation != member->acting || member->acting == 0)
        return;
    member->done = generation;
    if (member->phase == CT_MEMBER_JOINED)
        send_done(member);
}

void ct_member_leave(struct ct_member *member, enum ct_rdzv_leave how)
{
    if (member->leaves && member->leave != CT_RDZV_LEAVE_DRAIN)
        return;
    member->leaves = true;
    member->leave = how;
    if (member->phase == CT_MEMBER_JOINED)
        ct_member_send_leave(member);
}

/* ---- again ---- */

/* All that the daemon may not know, to a daemon that sees this node in `state`. */
void ct_member_repeat(struct ct_member *member, enum ct_rdzv_member_state state)
{
    bool in_round = state == CT_RDZV_ACTING || state == CT_RDZV_DONE;
    if (state == CT_RDZV_PREPARING && member->has_prepared)
        ct_member_send_prepared(member);
    if (member->has_failure && (in_round || state == CT_RDZV_PREPARING))
        send_failure(member);
    bool may_be_done = state == CT_RDZV_ACTING || state == CT_RDZV_PREPARING;
    if (member->done > 0 && may_be_done && member->done == member->acting)
        send_done(member);
    if (member->publication.generation > 0)
        send_publish(member);
    if (member->leaves)
        ct_member_send_leave(member);
}
