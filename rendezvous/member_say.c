/* What the agent says on the node link: one function a message of wire.def, and what is said again
 * because the daemon does not seem to know it. */
#include "rendezvous/member_say.h"

static void say(struct ct_member *member, const struct ct_message *message)
{
    member->io.send(member->io.context, message);
}

void ct_member_send_hello(struct ct_member *member)
{
    const struct ct_agent_options *o = &member->options;
    struct ct_message message = {
        .type = CT_MSG_HELLO,
        .hello = {.generation = member->heard,
                  .protocol = CT_WIRE_PROTOCOL,
                  .job = o->run_id,
                  .host = o->host,
                  .incarnation = o->id,
                  .role = "agent",
                  .epoch = member->epoch},
    };
    say(member, &message);
}

void ct_member_send_join(struct ct_member *member)
{
    const struct ct_agent_options *o = &member->options;
    struct ct_message message = {
        .type = CT_MSG_JOIN,
        .join = {.generation = member->heard,
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
                 .survivable = o->survivable},
    };
    say(member, &message);
}

void ct_member_send_heartbeat(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_HEARTBEAT,
        .heartbeat = {.generation = member->heard,
                      .seq = ++member->seq,
                      .acting = member->acting,
                      .over = member->over,
                      .healed = member->healed,
                      .step = member->step},
    };
    say(member, &message);
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
    say(member, &message);
}

void ct_member_send_failure(struct ct_member *member)
{
    const struct ct_rdzv_failure *f = &member->failure;
    struct ct_message message = {
        .type = CT_MSG_FAILURE,
        .failure = {.generation = f->generation,
                    .seq = ++member->seq,
                    .rank = f->rank,
                    .local_rank = f->local_rank,
                    .pid = f->pid,
                    .status = f->status,
                    .signal = f->signal,
                    .code = f->code,
                    .fatal = f->fatal,
                    .host = f->host,
                    .text = f->text,
                    .time_ms = f->time_ms,
                    .age_ms = f->at_ms < member->now_ms ? member->now_ms - f->at_ms : 0,
                    .error_file = f->error_file},
    };
    say(member, &message);
}

void ct_member_send_done(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_DONE,
        .done = {.generation = member->done, .seq = ++member->seq},
    };
    say(member, &message);
}

void ct_member_send_leave(struct ct_member *member)
{
    struct ct_message message = {
        .type = CT_MSG_LEAVE,
        .leave = {.generation = member->heard, .seq = ++member->seq, .how = (uint8_t)member->leave},
    };
    say(member, &message);
}

void ct_member_send_publish(struct ct_member *member)
{
    struct ct_message message = {.type = CT_MSG_PUBLISH, .publish = member->publication};
    message.publish.seq = ++member->seq;
    say(member, &message);
}

/* All that the daemon may not know, to a daemon that sees this node in `state`. */
void ct_member_repeat(struct ct_member *member, enum ct_rdzv_member_state state)
{
    bool in_round = state == CT_RDZV_ACTING || state == CT_RDZV_DONE;
    if (state == CT_RDZV_ASKED && member->has_prepared)
        ct_member_send_prepared(member);
    if (member->has_failure && (in_round || state == CT_RDZV_ASKED))
        ct_member_send_failure(member);
    bool may_be_done = state == CT_RDZV_ACTING || state == CT_RDZV_ASKED;
    if (member->done > 0 && may_be_done && member->done == member->acting)
        ct_member_send_done(member);
    if (member->publication.generation > 0)
        ct_member_send_publish(member);
    if (member->leaves)
        ct_member_send_leave(member);
}
