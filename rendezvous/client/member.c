/* The agent's end of the node link; the picture is in member.h.
 *
 * Two things are kept apart: the connection (phase) and the node's place in the rounds (asked,
 * acting, done). A lost connection changes nothing about the place; when it is back, WELCOME says
 * whether the daemon sees the place in the same way. */
#include "rendezvous/client/member_send.h"

#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>

enum {
    FIRST_HEARTBEAT_MS = 200, /* after WELCOME: brings what the job waits for */
    RETRY_MS = 100,           /* between connections, and jitter as much again */
    AGAIN_MS = 1000,          /* the wait after being turned away doubles: to 1 ms a node of the
                               * last round, to this where that is more or not known, ... */
    AGAIN_LEAST_MS = 50,      /* ... or this where that is less */
    FOREIGN_MS = 2000,        /* without an answer until the waiting is said to be for a stranger */
};

void ct_member_init(struct ct_member *member, const struct ct_agent_options *options,
                    const struct ct_agent_callbacks *callbacks, const struct ct_member_io *io,
                    uint64_t seed)
{
    *member = (struct ct_member){
        .options = *options,
        .on = *callbacks,
        .io = *io,
        .phase = CT_MEMBER_DOWN,
        .protocol = CT_WIRE_PROTOCOL,
        .connect_ms = UINT64_MAX,
    };
    ct_rng_init(&member->rng, seed);
    ct_relay_init(&member->relay);
}

void ct_member_deinit(struct ct_member *member)
{
    ct_relay_deinit(&member->relay);
    ct_assembly_free(member->assembly);
    ct_assembly_free(member->current);
    member->assembly = member->current = NULL;
}

/* ---- the connection ---- */

/* relay.c sends through this. */
static void send_request(void *context, const struct ct_message *message)
{
    const struct ct_member *member = context;
    member->io.send(member->io.context, message);
}

static void reply(void *context, const struct ct_msg_store_reply *answer)
{
    struct ct_member *member = context;
    if (member->muted)
        return;
    member->on.on_store_reply(member->on.context, answer);
}

static void try_connect(struct ct_member *member)
{
    const struct ct_rdzv_params *p = &member->options.params;
    if (member->give_up_ms == UINT64_MAX)
        member->give_up_ms = member->begun > 0 ? member->answered_ms + p->autonomy_ms
                                               : member->now_ms + p->join_timeout_ms;
    member->phase = CT_MEMBER_CONNECTING;
    uint64_t left = member->give_up_ms - CT_MIN(member->give_up_ms, member->now_ms);
    member->io.connect(member->io.context, CT_MAX(left, (uint64_t)1));
}

/* Jitter spreads the nodes of a daemon that came back. */
static void connect_later(struct ct_member *member, uint64_t wait_ms)
{
    member->phase = CT_MEMBER_DOWN;
    member->connect_ms = member->now_ms + wait_ms + ct_rng_below(&member->rng, wait_ms / 2 + 1);
}

static void set_waiting(struct ct_member *member, const char *text)
{
    if (strcmp(member->waiting, text) == 0)
        return;
    ct_str_copy(member->waiting, sizeof(member->waiting), text);
    member->on.on_waiting(member->on.context, text[0] != '\0' ? member->waiting : NULL);
}

/* `answer`: what it said that no rendezvous says; NULL: nothing. */
static void describe_foreign(const struct ct_member *member, const struct ct_error *answer,
                             struct ct_error *ret_why)
{
    const char *endpoint = member->options.endpoint;
    const char *detail = answer != NULL ? answer->text : "";
    if (endpoint == NULL)
        endpoint = "the endpoint";
    else if (ct_starts_with(detail, endpoint) && ct_starts_with(detail + strlen(endpoint), ": "))
        detail += strlen(endpoint) + 2;
    ct_error_set(ret_why, CT_ETIMEOUT,
                 "%s accepts connections but does not answer as a ctrun rendezvous%s%.300s%s: "
                 "another program may hold the port; check --rdzv_endpoint",
                 endpoint, detail[0] != '\0' ? " (" : "", detail, detail[0] != '\0' ? ")" : "");
}

static void note_foreign(struct ct_member *member, const struct ct_error *answer)
{
    struct ct_error why = {0};
    member->foreign_ms = UINT64_MAX;
    describe_foreign(member, answer, &why);
    set_waiting(member, why.text);
}

/* Whoever accepts the connections of a node that was never let in has not answered for a while,
 * over however many connections: say so once. */
static void report_foreign(struct ct_member *member)
{
    bool waits = member->phase == CT_MEMBER_JOINING || member->phase == CT_MEMBER_CONNECTING;
    if (waits && member->foreign_ms != 0 && member->foreign_ms <= member->now_ms)
        note_foreign(member, NULL);
}

/* The same of a connection that ended: what is no answer of a rendezvous is known at once. */
static void judge_foreign(struct ct_member *member, const struct ct_error *why)
{
    bool is_answer = why->code == CT_EPROTOCOL;
    report_foreign(member);
    if (member->foreign_ms == 0 || why->code == CT_EAUTH)
        return;
    if (is_answer)
        note_foreign(member, why);
    if (member->foreign_ms == UINT64_MAX)
        describe_foreign(member, is_answer ? why : NULL, &member->last_error);
}

static void over(struct ct_member *member)
{
    member->phase = CT_MEMBER_OVER;
    member->io.disconnect(member->io.context);
    ct_relay_revoke(&member->relay, UINT64_MAX, reply, member);
}

static void fail(struct ct_member *member, const struct ct_error *error)
{
    struct ct_error copy = *error;
    over(member);
    member->on.on_failed(member->on.context, &copy);
}

/* Nobody let it in for as long as it may wait: `last_error` says what stood in the way. A node that
 * was in the job ends its workers, for nobody else may know whether they still are the job. */
static void give_up(struct ct_member *member)
{
    struct ct_error error = member->last_error;
    /* The time may have ended in the next try, which says nothing of the reason. */
    if (member->refused_until_ms != 0 && member->now_ms < member->refused_until_ms + FOREIGN_MS)
        error = member->refusal;
    if (member->begun > 0)
        ct_error_set(&error, CT_ETIMEOUT,
                     "no rendezvous for %u s, the longest that workers go on alone (%.600s): start "
                     "ctrund again with its journal sooner, or raise the autonomy time",
                     member->options.params.autonomy_ms / 1000, member->last_error.text);
    fail(member, &error);
}

void ct_member_stop(struct ct_member *member)
{
    member->muted = true;
    if (member->phase != CT_MEMBER_OVER)
        over(member);
}

void ct_member_waiting(struct ct_member *member, uint64_t now_ms, const char *text, bool accepted)
{
    if (member->phase != CT_MEMBER_CONNECTING || member->was_joined)
        return;
    member->now_ms = now_ms;
    if (!accepted)
        member->foreign_ms = 0;
    else if (member->foreign_ms == 0)
        member->foreign_ms = now_ms + FOREIGN_MS;
    if (member->foreign_ms != UINT64_MAX)
        set_waiting(member, text);
}

void ct_member_start(struct ct_member *member, uint64_t now_ms)
{
    CT_ASSERT(member->phase == CT_MEMBER_DOWN);
    member->now_ms = now_ms;
    member->give_up_ms = UINT64_MAX;
    try_connect(member);
}

void ct_member_connected(struct ct_member *member, uint64_t now_ms)
{
    if (member->phase != CT_MEMBER_CONNECTING)
        return;
    member->now_ms = now_ms;
    member->phase = CT_MEMBER_JOINING;
    member->welcomed = 0; /* by nobody on this connection yet */
    member->answered_ms = now_ms;
    if (!member->was_joined && member->foreign_ms == 0)
        member->foreign_ms = now_ms + FOREIGN_MS;
    ct_member_send_hello(member);
    if (member->options.follows_events)
        ct_member_send_follow(member);
    ct_member_send_join(member);
}

/* The connection ended. Try again, unless that is of no use.
 *
 * Who does not share the key is no news of the daemon to a node that is in the job: anybody may
 * have taken the address while the daemon is away, and answers like that. It is told once. */
static void connection_lost(struct ct_member *member, const struct ct_error *why)
{
    bool was_joined = member->phase == CT_MEMBER_JOINED;
    bool is_stranger = why->code == CT_EAUTH && member->was_joined;
    if (was_joined)
        member->protocol = CT_WIRE_PROTOCOL; /* who answers next may be newer */
    member->last_error = *why;
    judge_foreign(member, why);
    ct_relay_broken(&member->relay, reply, member);
    if ((was_joined && !member->link_reported) || (is_stranger && !member->stranger_reported)) {
        member->link_reported = true;
        member->stranger_reported = is_stranger;
        member->on.on_link(member->on.context, false, why->text);
    }
    if (member->phase == CT_MEMBER_OVER)
        return; /* a callback ended it */
    if (why->code == CT_EAUTH && !is_stranger)
        fail(member, &member->last_error);
    else if (member->give_up_ms <= member->now_ms)
        give_up(member);
    else
        connect_later(member, was_joined ? 0 : RETRY_MS);
}

void ct_member_disconnected(struct ct_member *member, uint64_t now_ms, const struct ct_error *why)
{
    if (member->phase == CT_MEMBER_OVER || member->phase == CT_MEMBER_DOWN)
        return;
    member->now_ms = now_ms;
    connection_lost(member, why);
}

/* ---- what the daemon says ---- */

/* The round that the workers are in is over. */
static void revoke(struct ct_member *member, enum ct_rdzv_reason reason)
{
    uint64_t generation = member->acting;
    member->over = CT_MAX(member->over, generation);
    member->acting = 0;
    member->has_failure = false;
    member->done = 0;
    if (generation == 0)
        return;
    ct_relay_revoke(&member->relay, generation, reply, member);
    member->on.on_revoke(member->on.context, generation, reason);
}

static void on_welcome(struct ct_member *member, const struct ct_msg_welcome *m)
{
    if (member->phase != CT_MEMBER_JOINING)
        return;
    if (m->epoch < member->epoch) {
        struct ct_error why = {0};
        ct_error_set(&why, CT_EFENCED,
                     "a daemon of epoch %" PRIu64 " answers, after one of epoch %" PRIu64
                     ": two daemons serve one job",
                     m->epoch, member->epoch);
        member->io.disconnect(member->io.context);
        connection_lost(member, &why);
        return;
    }
    member->phase = CT_MEMBER_JOINED;
    member->welcomed = m->epoch;
    if (member->received > 0) /* before its first round it may also go back */
        member->epoch = CT_MAX(member->epoch, m->epoch);
    member->was_joined = true;
    member->was_away = false;
    member->give_up_ms = UINT64_MAX;
    member->turned_away = 0;
    uint64_t period = ct_rdzv_heartbeat_ms(&member->options.params);
    member->heartbeat_ms = member->now_ms + CT_MIN(period, (uint64_t)FIRST_HEARTBEAT_MS);
    if (member->link_reported) {
        member->link_reported = member->stranger_reported = false;
        member->on.on_link(member->on.context, true, "");
    }
    if (member->acting > 0 && member->acting != m->generation)
        revoke(member, CT_RDZV_REASON_LOST);
    ct_relay_flush(&member->relay, send_request, member);
    if (member->leaves)
        ct_member_send_leave(member);
}

static void on_refuse(struct ct_member *member, const struct ct_msg_refuse *m)
{
    ct_error_set(&member->last_error, m->code, "%s", m->text);
    if (m->code == CT_EPROTOCOL && ct_member_speak_older(member)) {
        member->io.disconnect(member->io.context);
        connect_later(member, 0);
        return;
    }
    if (m->code == CT_EAUTH && member->was_joined) {
        struct ct_error why = member->last_error;
        member->io.disconnect(member->io.context);
        connection_lost(member, &why);
        return;
    }
    if (m->retry_ms == 0) {
        fail(member, &member->last_error);
        return;
    }
    if (member->give_up_ms <= member->now_ms) {
        give_up(member);
        return;
    }
    /* Thousands that come again at once keep each other, and an election, waiting. */
    uint64_t nodes = ct_member_nodes(member);
    uint64_t longest_ms =
        nodes == 0 ? AGAIN_MS : CT_MIN(CT_MAX(nodes, (uint64_t)AGAIN_LEAST_MS), (uint64_t)AGAIN_MS);
    uint64_t again_ms = (uint64_t)m->retry_ms << CT_MIN(member->turned_away, 16u);
    member->turned_away++;
    set_waiting(member, m->text);
    member->io.disconnect(member->io.context);
    again_ms = CT_MIN(again_ms, CT_MAX((uint64_t)m->retry_ms, longest_ms));
    member->refusal = member->last_error;
    connect_later(member, again_ms);
    member->refused_until_ms = member->connect_ms;
}

static void on_prepare(struct ct_member *member, const struct ct_msg_prepare *m)
{
    enum ct_rdzv_reason reason = m->cause < CT_RDZV_REASONS ? m->cause : CT_RDZV_REASON_FORM;
    if (m->generation == member->requested) {
        if (member->has_prepared)
            ct_member_send_prepared(member);
        if (member->has_prepared || !member->requested_at_boundary || m->at_boundary != 0)
            return;
    } else if (m->generation <= member->received) {
        return;
    }
    bool again = m->generation == member->requested;
    member->epoch = CT_MAX(member->epoch, member->welcomed);
    member->received = m->generation;
    member->requested = m->generation;
    member->requested_at_boundary = m->at_boundary != 0;
    if (!again)
        member->has_prepared = false;
    if (!member->requested_at_boundary)
        ct_relay_revoke(&member->relay, m->generation - 1, reply, member);
    member->on.on_prepare(member->on.context, m->generation, reason, member->requested_at_boundary);
}

static void on_round(struct ct_member *member, const struct ct_msg_round *m)
{
    if (m->generation != member->requested || !member->has_prepared)
        return;
    struct ct_error err = {0};
    struct ct_assembly *assembly = member->assembly;
    if (assembly == NULL)
        assembly = member->assembly = ct_assembly_new();
    if (assembly == NULL) {
        ct_error_set(&err, CT_ENOMEM, "no memory for a round");
        fail(member, &err);
        return;
    }
    const struct ct_offer self = {member->options.id, member->options.slots};
    int rc = m->first == m->node_count ? ct_assembly_short(assembly, m, self, &err)
                                       : ct_assembly_add(assembly, m, self, &err);
    if (rc < 0)
        fail(member, &err);
    if (rc != 1)
        return;
    ct_assembly_free(member->current);
    member->current = assembly;
    member->assembly = NULL;
    assembly->round.max_restarts = member->options.params.max_restarts;
    ct_relay_revoke(&member->relay, m->generation - 1, reply, member);
    member->acting = member->begun = m->generation;
    member->requested = 0;
    member->has_prepared = false;
    member->has_failure = false;
    member->done = 0;
    set_waiting(member, "");
    member->on.on_round(member->on.context, &assembly->round);
    if (!member->options.reports_recovery)
        ct_member_state_recovered(member, m->generation);
}

static void on_published(struct ct_member *member, const struct ct_msg_published *m)
{
    const struct ct_msg_publish *open = &member->publication;
    if (open->generation == 0 || m->generation != open->generation || m->step != open->step)
        return;
    member->publication.generation = 0;
    member->on.on_published(member->on.context, m);
}

static void on_ack(struct ct_member *member, const struct ct_msg_heartbeat_ack *m)
{
    if (m->seq > member->seq || m->state >= CT_RDZV_MEMBER_STATES)
        return;
    set_waiting(member, m->waiting);
    if (member->phase == CT_MEMBER_JOINED)
        ct_member_repeat(member, m->state);
    if (m->watched != 0 && member->on.on_watched != NULL)
        member->on.on_watched(member->on.context);
}

static void on_close(struct ct_member *member, const struct ct_msg_close *m)
{
    struct ct_rdzv_result result = {
        .code = m->code,
        .status = m->status,
        .generation = m->generation,
        .restarts = m->restart_count,
        .cause = m->cause,
        .others = m->others.data,
        .other_count = m->others.count,
    };
    result.cause.code = m->code;
    over(member);
    member->on.on_closed(member->on.context, &result);
}

void ct_member_message(struct ct_member *member, uint64_t now_ms, const struct ct_message *message)
{
    if (member->phase != CT_MEMBER_JOINING && member->phase != CT_MEMBER_JOINED)
        return;
    member->now_ms = now_ms;
    member->answered_ms = now_ms;
    member->foreign_ms = 0;
    switch (message->type) {
    case CT_MSG_WELCOME:
        on_welcome(member, &message->welcome);
        break;
    case CT_MSG_REFUSE:
        on_refuse(member, &message->refuse);
        break;
    case CT_MSG_PREPARE:
        on_prepare(member, &message->prepare);
        break;
    case CT_MSG_ROUND:
        on_round(member, &message->round);
        break;
    case CT_MSG_REVOKE:
        if (message->revoke.generation >= member->acting)
            revoke(member, message->revoke.cause < CT_RDZV_REASONS ? message->revoke.cause
                                                                   : CT_RDZV_REASON_LOST);
        break;
    case CT_MSG_HEARTBEAT_ACK:
        on_ack(member, &message->heartbeat_ack);
        break;
    case CT_MSG_PUBLISHED:
        on_published(member, &message->published);
        break;
    case CT_MSG_DRAIN:
        if (member->on.on_drain != NULL)
            member->on.on_drain(member->on.context, message->drain.text);
        break;
    case CT_MSG_FLIGHT_QUERY:
        if (member->on.on_flight_query != NULL)
            member->on.on_flight_query(member->on.context, &message->flight_query);
        break;
    case CT_MSG_ADMIN_REPLY:
        if (member->on.on_events != NULL && message->admin_reply.code == 0)
            member->events_seen = member->on.on_events(member->on.context,
                                                       (const char *)message->admin_reply.text.data,
                                                       message->admin_reply.text.size);
        break;
    case CT_MSG_LINES_QUERY:
        if (member->on.on_lines_query != NULL)
            member->on.on_lines_query(member->on.context, &message->lines_query);
        break;
    case CT_MSG_LINES:
        if (member->on.on_lines != NULL)
            member->on.on_lines(member->on.context, &message->lines);
        break;
    case CT_MSG_CLOSE:
        on_close(member, &message->close);
        break;
    case CT_MSG_RELEASE:
        over(member);
        member->on.on_released(member->on.context);
        break;
    case CT_MSG_STORE_REPLY:
        (void)ct_relay_answer(&member->relay, &message->store_reply, reply, member);
        break;
    default:
        break;
    }
}

/* ---- time ---- */

/* How long the daemon may be silent before the connection counts as dead. */
static uint64_t silence_ms(const struct ct_member *member)
{
    return member->options.params.lease_ms;
}

/* Somebody has accepted, and is to let this node in: when to name him, and when to give up. */
static uint64_t admission_ms(const struct ct_member *member)
{
    return CT_MIN(member->foreign_ms != 0 ? member->foreign_ms : UINT64_MAX, member->give_up_ms);
}

uint32_t ct_member_nodes(const struct ct_member *member)
{
    return member->current != NULL ? member->current->round.node_count : 0;
}

uint64_t ct_member_deadline(const struct ct_member *member)
{
    switch (member->phase) {
    case CT_MEMBER_DOWN:
        return member->connect_ms;
    case CT_MEMBER_CONNECTING: /* io.connect has a limit, but for a handshake that has begun */
        return member->foreign_ms != 0 ? admission_ms(member) : UINT64_MAX;
    case CT_MEMBER_JOINING:
        return CT_MIN(admission_ms(member), member->answered_ms + silence_ms(member));
    case CT_MEMBER_JOINED:
        return CT_MIN(member->heartbeat_ms, member->answered_ms + silence_ms(member));
    default:
        return UINT64_MAX;
    }
}

/* The connection stands, and nothing of use comes over it. */
static void give_connection_up(struct ct_member *member)
{
    const char *endpoint = member->options.endpoint;
    struct ct_error why = {0};
    if (member->foreign_ms != 0)
        describe_foreign(member, NULL, &why);
    else if (member->phase == CT_MEMBER_JOINING && member->give_up_ms <= member->now_ms)
        ct_error_set(&why, CT_ETIMEOUT,
                     "the rendezvous at %s answers but did not let this node in in time",
                     endpoint != NULL ? endpoint : "the endpoint");
    else
        ct_error_set(&why, CT_ETIMEOUT, "the rendezvous did not answer for %" PRIu64 " ms",
                     silence_ms(member));
    member->io.disconnect(member->io.context);
    connection_lost(member, &why);
}

/* This agent was away until now, `late_ms` too long: answers may lie waiting, to be read first. */
static void forgive_own_absence(struct ct_member *member, uint64_t now_ms, uint64_t late_ms)
{
    member->answered_ms += late_ms;
    if (late_ms > RETRY_MS && member->give_up_ms <= now_ms && !member->was_away) {
        member->give_up_ms = now_ms + RETRY_MS;
        member->was_away = true;
    }
}

void ct_member_tick(struct ct_member *member, uint64_t now_ms)
{
    uint64_t due = ct_member_deadline(member);
    if (due > now_ms)
        return;
    member->now_ms = now_ms;
    if (member->phase == CT_MEMBER_DOWN) {
        try_connect(member);
        return;
    }
    forgive_own_absence(member, now_ms, now_ms - due);
    report_foreign(member);
    bool is_late = member->phase != CT_MEMBER_JOINED && member->give_up_ms <= now_ms;
    bool is_silent = member->phase != CT_MEMBER_CONNECTING &&
                     now_ms - CT_MIN(now_ms, member->answered_ms) >= silence_ms(member);
    if (is_late || is_silent) {
        give_connection_up(member);
        return;
    }
    if (member->phase == CT_MEMBER_JOINED && member->heartbeat_ms <= now_ms) {
        uint64_t period = ct_rdzv_heartbeat_ms(&member->options.params);
        uint64_t jitter = ct_rng_below(&member->rng, period * 2 / 5 + 1);
        member->heartbeat_ms = now_ms + CT_MAX(period * 4 / 5 + jitter, (uint64_t)1);
        ct_member_send_heartbeat(member);
    }
}

/* ---- the store; what else the node says is in member_send.c ---- */

int ct_member_store(struct ct_member *member, uint64_t request, const struct ct_message *op)
{
    int rc =
        member->phase == CT_MEMBER_OVER ? CT_ECLOSED : ct_relay_add(&member->relay, request, op);
    if (rc == 0 && member->phase == CT_MEMBER_JOINED)
        ct_relay_flush(&member->relay, send_request, member);
    return rc;
}
