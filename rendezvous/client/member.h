/* The agent's end of the node link, as a pure state machine.
 *
 *      DOWN -----> CONNECTING -----> JOINING -----> JOINED -----> OVER
 *        ^  retry      |  connected     |  WELCOME     |   CLOSE, RELEASE, or no way on
 *        +-------------+----------------+--------------+
 *                 connection lost, refused for now, no answer within the lease
 *
 * It sends HELLO and JOIN, keeps the lease alive, directs the node through the callbacks, and
 * retransmits messages that the daemon has not confirmed: the promise, a failure, the end. Workers
 * run on while the connection is down. agent_uv.c gives it a socket and a timer, the simulator a
 * network.
 *
 * One thread at a time. Callbacks come only from ct_member_connected, _disconnected, _message and
 * _tick. */
#ifndef CT_RENDEZVOUS_CLIENT_MEMBER_H
#define CT_RENDEZVOUS_CLIENT_MEMBER_H

#include "base/clock.h"
#include "base/number/rng.h"
#include "rendezvous/client/relay.h"
#include "rendezvous/core/assembly.h"
#include "rendezvous/core/core.h"
#include "wire/failure.h"
#include "wire/wire.h"

/* ---- the agent's interface (also by agent_uv.h) ---- */

struct ct_agent_options {
    const char *endpoint; /* "host:port" or "unix:/path"; or several with commas, tried in turn: the
                           * daemon of the highest epoch is obeyed. To ct_member_init: a buffer that
                           * holds the one being tried; NULL: unknown */
    const char *key_file; /* NULL: no key (loopback and AF_UNIX only) */
    const char *run_id;
    const char *host;    /* this node's name in tables and messages */
    const char *address; /* that other nodes reach; "" when the job has one node */
    const char *role;    /* torchrun's --role; NULL: "default" */
    struct ct_rdzv_params params;
    uint32_t slots;
    int32_t node_rank;  /* asked for; -1: none */
    int32_t slurm_node; /* SLURM_NODEID; -1: none */
    bool survivable;
    bool follows_events; /* it wants to be told of the job's events, as the first node */
    uint32_t source;     /* IPv4 address to connect from, as a number; 0: any */
    bool
        reports_recovery; /* by ct_agent_state_recovered; else a round has recovered as it begins */
    struct ct_id id;      /* {0, 0}: drawn from getrandom(2) */
    const struct ct_clock *clock; /* NULL: the machine's */
};

/* The promise of ct_agent_prepared: the workers have stopped acting in every generation below
 * `generation`; (lineage, step, digest) is the state that they all hold, lineage 0 for none. */
struct ct_prepared {
    uint64_t generation;
    uint64_t lineage;
    uint64_t step;
    uint64_t digest;
    uint16_t port;  /* free for MASTER_PORT should this node become node 0; 0: none offered */
    bool untouched; /* the round before ended before any of its workers could take a step in it */
};

struct ct_agent_callbacks {
    void *context;

    /* Called on each change of what the job waits for, with a sentence; NULL: it waits no more. */
    void (*on_waiting)(void *context, const char *text);

    /* Round `generation` - 1 and all before it are over, `generation` is being made. Stop (or, with
     * at_boundary, let the workers reach the next step boundary; the same generation may come again
     * with at_boundary false: then stop at once), then answer with ct_agent_prepared(generation).
     */
    void (*on_prepare)(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary);

    /* The current round is over and no other one follows yet: the job waits for nodes. Survivable
     * workers wait, others are stopped. No answer is expected. */
    void (*on_revoke)(void *context, uint64_t generation, enum ct_rdzv_reason reason);

    /* The round begins. A base node that has lost the state that it promised (lineage, base_step)
     * reports a failure. */
    void (*on_round)(void *context, const struct ct_round *round);

    /* The answer to ct_agent_store; reply->request is the number given there. */
    void (*on_store_reply)(void *context, const struct ct_msg_store_reply *reply);

    /* The answer to ct_agent_publish: code 0, the publication is on record and readers may be
     * pointed to it; else it does not count. */
    void (*on_published)(void *context, const struct ct_msg_published *answer);

    /* An operator drains this node: as if ct_agent_leave(DRAIN) had been called. on_prepare at a
     * step boundary and on_released follow. May be NULL. */
    void (*on_drain)(void *context, const char *text);

    /* An operator queries the activity of this node's ranks: answer with ct_agent_flight_reply.
     * NULL: no answer is sent. */
    void (*on_flight_query)(void *context, const struct ct_msg_flight_query *query);

    /* Events of the job, a record a line (service_events.c): those that no node was told yet, of
     * which this is the first that asks for them. Returns the number of the last. NULL: none is
     * wanted. */
    uint64_t (*on_events)(void *context, const char *text, size_t size);

    /* Somebody looks at the job: tell him with ct_agent_figures. About as often as heartbeats; may
     * be NULL. */
    void (*on_watched)(void *context);

    /* The answer to ct_agent_lines_query, as often as lines come. May be NULL. */
    void (*on_lines)(void *context, const struct ct_msg_lines *lines);

    /* Somebody queries the lines of this node's workers: send them with ct_agent_lines. NULL:
     * none are sent. */
    void (*on_lines_query)(void *context, const struct ct_msg_lines_query *query);

    /* The record of the job lives on several agents: this one may hold it too, and answers with
     * ct_agent_offer, to the leader that has just sent this. NULL: it does not. */
    void (*on_voters)(void *context, const struct ct_msg_voters *voters);

    /* Return whether all who held the job's record are known to be dead. NULL: they are not. */
    bool (*is_orphan)(void *context);

    /* The job is over, for all nodes alike. */
    void (*on_closed)(void *context, const struct ct_rdzv_result *result);

    /* This node may leave; the job continues without it (after ct_agent_leave with DRAIN). */
    void (*on_released)(void *context);

    /* The connection is lost (false) or back (true). Workers continue meanwhile. false may be
     * called a second time, when a process without the key answers in the daemon's place. */
    void (*on_link)(void *context, bool connected, const char *why);

    /* The node cannot continue: no answer within join_timeout, refused, fenced, wrong key. */
    void (*on_failed)(void *context, const struct ct_error *error);
};

/* ---- the state machine ---- */

/* The effects of the state machine. */
struct ct_member_io {
    void *context;

    /* Send on the connection. Ignored when there is none. */
    void (*send)(void *context, const struct ct_message *message);

    /* Try to connect for at most `give_up_ms`: ends in ct_member_connected or _disconnected. */
    void (*connect)(void *context, uint64_t give_up_ms);

    /* Close the connection, or abort the attempt; no further callback comes from it. */
    void (*disconnect)(void *context);
};

enum ct_member_phase {
    CT_MEMBER_DOWN,
    CT_MEMBER_CONNECTING,
    CT_MEMBER_JOINING,
    CT_MEMBER_JOINED,
    CT_MEMBER_OVER,
};

struct ct_member {
    struct ct_agent_options options; /* its strings are the caller's */
    struct ct_agent_callbacks on;
    struct ct_member_io io;
    struct ct_rng rng; /* jitter */
    enum ct_member_phase phase;
    uint64_t now_ms;
    uint64_t connect_ms;    /* DOWN: when to connect */
    uint64_t heartbeat_ms;  /* JOINED: when the next is due */
    uint64_t answered_ms;   /* when the daemon was last heard */
    uint64_t give_up_ms;    /* when waiting to be let in ends */
    uint32_t turned_away;   /* times since it was let in last */
    bool was_away;          /* that was put off, because this agent did not run: once */
    uint64_t foreign_ms;    /* when to say that the endpoint does not answer as a rendezvous; 0: not
                            * now, UINT64_MAX: it is said */
    bool was_joined;        /* ever */
    bool link_reported;     /* on_link said that it is down */
    bool stranger_reported; /* ... and that somebody without the key answers */
    uint64_t seq;           /* of the last message sent */
    uint64_t epoch;         /* newest that was obeyed */
    uint64_t welcomed;      /* epoch of who let it in, to be obeyed with its first order */

    uint64_t received;  /* highest generation of a PREPARE or ROUND */
    uint64_t acting;    /* the round that the workers run in, 0: none */
    uint64_t begun;     /* the last that they were in */
    uint64_t over;      /* the newest that they will never act in again */
    uint64_t requested; /* generation to promise, 0: none */
    bool requested_at_boundary;
    bool has_prepared;
    struct ct_prepared prepared;
    uint64_t recovered;                /* newest round whose base all workers of this node hold */
    uint64_t done;                     /* generation that is done, 0: none */
    struct ct_msg_publish publication; /* that waits for its answer; generation 0: none */
    bool has_failure;
    struct ct_wire_failure failure; /* of `acting`, until the daemon has acted on it */
    uint64_t failed_ms;             /* when it happened */
    char failure_room[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)];
    bool leaves;
    enum ct_rdzv_leave leave;
    uint64_t step;
    uint64_t events_seen; /* number of the last event that it was told */

    struct ct_assembly *assembly; /* the round that is coming in */
    struct ct_assembly *current;  /* the last that was complete */
    struct ct_relay relay;
    bool muted; /* ct_member_stop: no more callbacks */
    char waiting[1001];
    struct ct_error last_error; /* why it is not let in */
    struct ct_error refusal;    /* the last one after which it was to ask again */
    uint64_t refused_until_ms;  /* then; 0: there was none */
};

/* Initialise a member that is DOWN. The strings of `options` must outlive it; options->id must be
 * set. */
void ct_member_init(struct ct_member *member, const struct ct_agent_options *options,
                    const struct ct_agent_callbacks *callbacks, const struct ct_member_io *io,
                    uint64_t seed);
void ct_member_deinit(struct ct_member *member);

/* Start: connects at once. */
void ct_member_start(struct ct_member *member, uint64_t now_ms);

/* Handle an opened connection. */
void ct_member_connected(struct ct_member *member, uint64_t now_ms);

/* Handle a lost connection or a failed attempt, with its reason. CT_EAUTH is final for a node that
 * was never in the job; later it counts as one more failed attempt. */
void ct_member_disconnected(struct ct_member *member, uint64_t now_ms, const struct ct_error *why);

void ct_member_message(struct ct_member *member, uint64_t now_ms, const struct ct_message *message);
void ct_member_tick(struct ct_member *member, uint64_t now_ms);
uint64_t ct_member_deadline(const struct ct_member *member);

/* Return the number of nodes in its last round; 0: it was in none. */
uint32_t ct_member_nodes(const struct ct_member *member);

/* Report the obstacle during an attempt to connect; `accepted`: the peer has accepted the
 * connection but not authenticated yet. */
void ct_member_waiting(struct ct_member *member, uint64_t now_ms, const char *text, bool accepted);

/* Stop: disconnects, and calls back no more. */
void ct_member_stop(struct ct_member *member);

/* The calls of agent_uv.h, described there. */
void ct_member_prepared(struct ct_member *member, const struct ct_prepared *prepared);
void ct_member_state_recovered(struct ct_member *member, uint64_t generation);
int ct_member_publish(struct ct_member *member, const struct ct_msg_publish *publication);
void ct_member_progress(struct ct_member *member, const struct ct_msg_progress *progress);
void ct_member_store_waits(struct ct_member *member, const struct ct_msg_store_waits *waits);
void ct_member_flight_reply(struct ct_member *member, const struct ct_msg_flight_reply *reply);
void ct_member_figures(struct ct_member *member, const struct ct_msg_figures *figures);
void ct_member_lines(struct ct_member *member, const struct ct_msg_lines *lines);
void ct_member_lines_query(struct ct_member *member, const struct ct_msg_lines_query *query);
void ct_member_failure(struct ct_member *member, uint64_t now_ms, uint64_t generation,
                       const struct ct_wire_failure *failure);
void ct_member_done(struct ct_member *member, uint64_t generation);
void ct_member_leave(struct ct_member *member, enum ct_rdzv_leave how);
int ct_member_store(struct ct_member *member, uint64_t request, const struct ct_message *op);

#endif
