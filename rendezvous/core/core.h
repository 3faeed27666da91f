/* The rounds of one job, as a pure function: events in, actions out.
 *
 * A job's nodes agree, round after round, on membership and ranks. This file has no clock, no
 * socket and no random numbers: the caller reports events with their times, and carries out the
 * actions in their order. The same code runs in ctrund, inside ctrun and in the simulator.
 *
 *      +---------> LOBBY, PAUSED       wait for MIN nodes: before the first round, after a round
 *      |             |       ^
 *      |   MIN nodes |       | below MIN
 *      |             v       |
 *      |           LAST_CALL           for more nodes: until last_call_ms without one, or MAX
 *      |             |
 *      |             v
 *      +------- PREPARE(g) <--------+  g becomes durable, then is sent to all: each stops acting
 *      |             |              |  in older rounds and promises never to act in them again
 *      |             | all promised |  from here the fence is up (see below)
 *      |             v              |
 *      |        COMMIT(g)           |  roster and base become durable
 *      |             |              |
 *      |             v              |
 *      +------- RECOVER(g) ---------+  the round is sent to all, who recover the base's state
 *      |             |              |
 *      |             | all hold it  |
 *      |             v              |
 *      +------- RUNNING(g) ---------+  to PREPARE(g + 1) when a node or worker is lost, one leaves
 *   below MIN        |                 or one joins; to PAUSED when fewer than MIN nodes remain
 *                    | all done
 *                    v
 *      any ---> CLOSING                the result becomes durable. From any state: restarts are
 *                    |                 spent, join_timeout_ms is over, no base is found, a stop
 *                    v
 *               CLOSED                 the result is sent to all; final
 *
 * From RECOVER a loss or failure leads to the next round at once. A node that leaves waits for
 * RUNNING too, but no longer than prepare_ms; one that joins waits for RUNNING.
 *
 * Terms: a generation is a round's number; it only grows, and it never has more than one roster.
 * The roster is the ordered list of members of a committed round; ranks follow from it. A lineage
 * is the generation in which a member's workers last had the job's common state; 0 is no state.
 *
 * Durability: the core asks for a record to be kept (CT_RDZV_DO_PERSIST) and sends no message about
 * its effect before CT_RDZV_ON_PERSISTED. Without a journal the caller answers at once.
 *
 * A publication is a result for readers outside the job: a checkpoint, a final result. It counts
 * once it is on record here, which is possible as long as its round may act: until the last member
 * has promised the next one. That moment is the fence, and the base is chosen after it, so that a
 * base descends from everything that was published; the fence needs no record of its own, COMMIT is
 * the first one after it.
 *
 * Every message of a member may be lost, repeated or late: heartbeats acknowledge what the member
 * has received, and the core retransmits the rest. A message of an older generation, of a replaced
 * connection or with an old sequence number changes nothing.
 *
 * One thread at a time. No allocation after ct_rdzv_new. */
#ifndef CT_RENDEZVOUS_CORE_H
#define CT_RENDEZVOUS_CORE_H

#include "base/error.h"
#include "wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_RDZV_NODES_LIMIT = 100000,  /* nodes a job may ask for */
    CT_RDZV_SLOTS_LIMIT = 4096,    /* workers a node may offer */
    CT_RDZV_HOST_BYTES = 128,      /* host name with terminator */
    CT_RDZV_ADDRESS_BYTES = 128,   /* address that other nodes reach, with terminator */
    CT_RDZV_ROLE_BYTES = 65,       /* torchrun's --role, with terminator */
    CT_RDZV_VERDICT_MS = 200,      /* a job about to end waits so long for an earlier failure */
    CT_RDZV_OTHERS = 16,           /* failures beside the root cause that are sent */
    CT_RDZV_OTHER_BYTES = 512,     /* the last output of each, with terminator */
    CT_RDZV_SETTINGS_BYTES = 2001, /* settings that all nodes share, with terminator */
    CT_RDZV_ACTIONS_LIMIT = 24,    /* actions of one step, see below */
    CT_RDZV_EFFECTS_LIMIT = 16,    /* of these, those that are no ANNOUNCE */
    CT_RDZV_REASON_BYTES = 200,    /* who cordoned a host and why, with terminator */
    CT_RDZV_CORDONS = 64,          /* hosts that are cordoned at a time */
    CT_RDZV_LEASE_MIN_MS = 100,    /* shorter leases are refused: a busy machine would lose nodes */
};

/* The parameters that all nodes of a job must agree on; the first node to join sets them. */
struct ct_rdzv_params {
    uint32_t nodes_min;
    uint32_t nodes_max;
    uint32_t max_restarts;    /* failures that the job survives, all nodes together */
    uint32_t join_timeout_ms; /* how long LOBBY and PAUSED wait for MIN nodes */
    uint32_t last_call_ms;    /* how long MIN nodes wait for more after the last newcomer */
    uint32_t lease_ms;        /* how long a silent node stays a member */
    uint32_t prepare_ms;      /* how long a node may take to stop its workers */
    uint32_t grow_ms;         /* how long joins are collected while a round runs */
    uint32_t autonomy_ms;     /* how long workers run without a daemon */
    uint32_t cordon_faults;   /* losses of a host within an hour that cordon it; 0: never */
    uint32_t world_divides;   /* the number of ranks must divide this; 0: any will do */
    uint64_t config_hash;     /* of what the nodes run; 0 is not compared */
    /* The settings behind that hash, one "--key=value" a line, truncated to the room: used only to
     * name a difference. */
    char settings[CT_RDZV_SETTINGS_BYTES];
};

/* Defaults of the times above (join 600 s, last call 300 ms, lease 5 s, prepare 30 s, grow 2 s,
 * autonomy 600 s), a cordon after 3 losses, one node, no restarts, any number of ranks. */
extern const struct ct_rdzv_params ct_rdzv_params_default;

/* Check the parameters. 0, or CT_EUSAGE with the sentence: MIN above MAX, a lease below the limit,
 * ... */
int ct_rdzv_params_check(const struct ct_rdzv_params *params, struct ct_error *err);

/* Return the heartbeat period in ms: a fifth of the lease, and half a millisecond per node of a
 * large job. */
uint32_t ct_rdzv_heartbeat_ms(const struct ct_rdzv_params *params);

/* Return the time in ms that a closed connection may stay away. */
uint32_t ct_rdzv_reattach_ms(uint32_t lease_ms);

/* ---- states, from states.def ---- */

enum ct_rdzv_phase {
#define CT_RDZV_PHASE(name, successors) CT_RDZV_##name,
#include "rendezvous/core/states.def"
#undef CT_RDZV_PHASE
    CT_RDZV_PHASES,
};

enum ct_rdzv_member_state {
#define CT_RDZV_MEMBER(name, successors) CT_RDZV_##name,
#include "rendezvous/core/states.def"
#undef CT_RDZV_MEMBER
    CT_RDZV_MEMBER_STATES,
};

const char *ct_rdzv_phase_name(enum ct_rdzv_phase phase);
const char *ct_rdzv_member_state_name(enum ct_rdzv_member_state state);

/* Why a round ends; the numbers are on the wire (PREPARE, REVOKE). */
enum ct_rdzv_reason {
    CT_RDZV_REASON_FORM,    /* the first round */
    CT_RDZV_REASON_FAILURE, /* a worker failed */
    CT_RDZV_REASON_LOST,    /* a node was lost */
    CT_RDZV_REASON_GROW,    /* nodes joined */
    CT_RDZV_REASON_LEAVE,   /* a node leaves in good order */
    CT_RDZV_REASON_RESTART, /* the daemon came back in the middle of a change */
    CT_RDZV_REASONS,
};
const char *ct_rdzv_reason_name(enum ct_rdzv_reason reason);

/* How a node leaves; the numbers are on the wire (LEAVE). */
enum ct_rdzv_leave {
    CT_RDZV_LEAVE_DRAIN,   /* this node goes, the job stays */
    CT_RDZV_LEAVE_STOP,    /* the user stops the whole job (Ctrl-C) */
    CT_RDZV_LEAVE_REQUEUE, /* the whole job stops here, to go on when it is started again */
    CT_RDZV_LEAVES,
};

/* How a job ended. code 0: all ranks are done. Failures and their strings are the job's; for agents
 * they live until on_closed returns. The cause is a worker's end or (code CT_ENODE_LOST) a node's:
 * the first of an incident. Its rank is -1 where it is neither. */
struct ct_rdzv_result {
    int32_t code;   /* enum ct_err */
    int32_t status; /* what every agent exits with: the worker's own, 128 + signal, or the code's */
    uint64_t generation;
    uint32_t restarts; /* how often the job was restarted */
    struct ct_wire_failure cause;
    const struct ct_wire_failure *others; /* for agents: what else failed in that round */
    size_t other_count;
};

/* A publication: a result for readers outside the job. */
struct ct_rdzv_publication {
    uint64_t generation; /* the round that made it; 0: none yet */
    uint64_t lineage;    /* the oldest that holds the state: the base's, if it is the base */
    uint64_t step;
    uint64_t digest; /* 0: not compared */
};

/* A host excluded from new rounds; its nodes that are in a round stay. */
struct ct_rdzv_cordon {
    uint64_t until_ms; /* UINT64_MAX: until it is uncordoned */
    bool by_operator;  /* else after many losses: such a host is taken when MIN needs it */
    char host[CT_RDZV_HOST_BYTES];
    char reason[CT_RDZV_REASON_BYTES];
};

/* ---- events ---- */

/* Whether a node may know of a generation that the job's record has not: see rebuild.c. */
enum ct_rdzv_rebuild {
    CT_RDZV_REBUILD_NEVER,     /* the record is all there is */
    CT_RDZV_REBUILD_OF_ORPHAN, /* a record without a round: if the node is an orphan */
    CT_RDZV_REBUILD_OF_ALL,    /* what a minority held, the others are proven dead */
};

struct ct_rdzv_join {
    struct ct_id id;
    struct ct_rdzv_params params;
    uint32_t slots;
    int32_t node_rank;  /* asked for; -1: none */
    int32_t slurm_node; /* SLURM_NODEID; -1: none */
    bool survivable;    /* its workers can live on from one round to the next */
    bool own;           /* the agent lives in this process: it has no lease to lose */
    uint64_t promised;  /* highest generation it has promised; 0 at first */
    uint64_t acting;    /* generation it acts in now; 0: none */
    uint64_t over;      /* newest generation that it has given up; 0: none */
    bool orphan;        /* all who held the job's record are proven dead, as it knows */
    const char *host;
    const char *address;
    const char *role;
};

enum ct_rdzv_event_kind {
    CT_RDZV_ON_TICK,       /* time passed: a deadline is due (harmless otherwise), and all that had
                            * arrived by then has been given to the core */
    CT_RDZV_ON_JOIN,       /* `link` is the caller's name for the connection, never 0 */
    CT_RDZV_ON_HEARTBEAT,  /* promised, generation, over, recovered; to PUBLISH: link, seq */
    CT_RDZV_ON_PREPARED,   /* generation, acted, lineage, step, digest, port */
    CT_RDZV_ON_FAILURE,    /* generation, failure */
    CT_RDZV_ON_DONE,       /* generation: all workers of the node exited with 0 */
    CT_RDZV_ON_LEAVE,      /* leave */
    CT_RDZV_ON_PUBLISH,    /* generation, step, digest */
    CT_RDZV_ON_DISCONNECT, /* `link` is gone; silent. Link 0: of a member that has none, whose
                            * process is known to be dead */
    CT_RDZV_ON_PERSISTED,  /* record `seq` is durable */
    CT_RDZV_ON_PERSIST_FAILED, /* record `seq` is not; it is asked for again later */
    CT_RDZV_ON_DRAIN,          /* `link` is an operator's here and below: order */
    CT_RDZV_ON_CORDON,         /* order */
    CT_RDZV_ON_UNCORDON,       /* order */
    CT_RDZV_EVENTS,
};

/* An operator's order for a host; each order is answered by one CT_RDZV_DO_ANSWER. */
struct ct_rdzv_order {
    const char *host;
    const char *author;
    const char *reason; /* may be "" */
    uint64_t for_ms;    /* CORDON: how long; 0: without end */
};

struct ct_rdzv_event {
    enum ct_rdzv_event_kind kind;
    uint32_t member; /* with `link`: the number that CT_RDZV_DO_WELCOME gave */
    uint64_t link;
    uint64_t seq; /* of the member's message: grows with each; or of the record */
    uint64_t generation;
    uint64_t promised;  /* heartbeat: highest generation promised */
    uint64_t over;      /* heartbeat: newest generation given up */
    uint64_t recovered; /* heartbeat: newest generation whose base all its workers hold */
    uint64_t acted;
    uint64_t lineage;
    uint64_t step;
    uint64_t digest;
    uint16_t port;
    bool silent; /* the connection was given up because nobody answered on it */
    enum ct_rdzv_leave leave;
    const struct ct_rdzv_join *join;
    const struct ct_wire_failure *failure; /* its code is not 0 */
    const struct ct_rdzv_order *order;
};

/* ---- actions ---- */

/* The number of actions of a step is bounded, independently of the number of members, leases,
 * cordons or messages: an action for many members is one to CT_RDZV_ALL, several PREPAREs of a step
 * are merged, and an ANNOUNCE is dropped when its place may be needed.
 *
 *      the event itself     WELCOME, REFUSE, ACK, RELEASE, PUBLISHED, or ANSWER and DRAIN     2
 *      one PREPARE, one ROUND, one CLOSE; REVOKE for one and for all                          5
 *      records: RESERVE (a round begins, or is given up) twice, COMMIT, CLOSE, MANIFEST,
 *               CORDON, the one that is tried again                                           7
 *      the operator whose order is on record: ANSWER                                          1 */
enum { CT_RDZV_ALL = 0 }; /* as an action's link: every connected member that the action concerns */

enum ct_rdzv_action_kind {
    CT_RDZV_DO_WELCOME,   /* link: accepted as `member`; generation: the round it is in, 0: none */
    CT_RDZV_DO_REFUSE,    /* link: not accepted; code, text; retry_ms > 0: may try again then */
    CT_RDZV_DO_PREPARE,   /* link or ALL that have not promised: generation, reason, at_boundary */
    CT_RDZV_DO_ROUND,     /* link or ALL of the roster: the committed round, see ct_rdzv.roster */
    CT_RDZV_DO_REVOKE,    /* link or ALL: generation is over, none follows yet; reason */
    CT_RDZV_DO_ACK,       /* link, member: heartbeat `seq` answered; member_state: how it is seen */
    CT_RDZV_DO_RELEASE,   /* link: it may go, the job goes on without it */
    CT_RDZV_DO_DRAIN,     /* link: an operator wants it to leave; text */
    CT_RDZV_DO_PUBLISHED, /* link: the answer for (generation, step): code, text */
    CT_RDZV_DO_ANSWER,    /* link (an operator's): code, text */
    CT_RDZV_DO_CLOSE,     /* link or ALL members: the job is over, see ct_rdzv.result */
    CT_RDZV_DO_PERSIST,   /* keep record `seq` of kind `record`, read from the state, then answer */
    CT_RDZV_DO_ANNOUNCE,  /* for logs and status: text is a sentence for people */
};

/* What an ANNOUNCE is about. */
enum ct_announcement {
#define CT_ANNOUNCEMENT(name, text, level) CT_ANNOUNCE_##name,
#include "rendezvous/core/announcement.def"
#undef CT_ANNOUNCEMENT
    CT_ANNOUNCEMENTS,
};

enum ct_rdzv_record {
    CT_RDZV_RECORD_RESERVE = 1, /* the job's parameters; its generation and restarts are used up */
    CT_RDZV_RECORD_COMMIT,      /* the roster of a generation, with its base */
    CT_RDZV_RECORD_CLOSE,       /* the result */
    CT_RDZV_RECORD_MANIFEST,    /* a publication */
    CT_RDZV_RECORD_CORDON,      /* all cordons */
    CT_RDZV_RECORDS,
};

struct ct_rdzv_action {
    enum ct_rdzv_action_kind kind;
    uint32_t member;
    uint64_t link;
    uint64_t generation;
    uint64_t seq;
    uint64_t step;
    enum ct_rdzv_reason reason;
    bool at_boundary; /* stop at the next step boundary, not in the middle */
    enum ct_rdzv_member_state member_state;
    enum ct_rdzv_record record;
    enum ct_announcement announcement;
    int32_t code;
    uint32_t retry_ms;
    char text[512];
};

struct ct_rdzv_actions {
    size_t count;
    struct ct_rdzv_action list[CT_RDZV_ACTIONS_LIMIT];
};

/* ---- state ---- */

struct ct_rdzv_member {
    enum ct_rdzv_member_state state;
    struct ct_id id;
    uint64_t link; /* 0: not connected now (a free place keeps its last) */
    uint64_t seq;  /* of its last message that counted */
    uint64_t received_ms;
    uint64_t lease_awake_ms; /* when its lease ends, on the clock of leases.c; UINT64_MAX: never */
    uint64_t eligible_ms; /* a host that was lost again and again joins no running round before */
    uint64_t prepare_sent_ms; /* when it was last asked to promise */
    uint64_t joined;          /* order of joining */
    uint64_t promised;        /* newest round that it has been asked for, as its heartbeat says */
    uint64_t acted; /* as it last promised: the newest round that its workers may have acted in */
    uint64_t lineage;
    uint64_t step;
    uint64_t digest;
    int32_t node_rank;
    int32_t slurm_node;
    int32_t place;     /* in the last committed round, -1: none */
    int32_t old_place; /* it came back after it was lost: what it had in that round, -1: none */
    uint32_t slots;
    uint16_t port; /* as it last promised */
    bool survivable;
    bool leaving;
    bool barred;     /* an operator keeps its host out of new rounds */
    bool presumed;   /* known from the journal alone, not heard of yet */
    bool hung_up;    /* its end closed the last connection */
    bool missed;     /* who led before has not heard it either: it is not the daemon's fault */
    bool own;        /* its agent lives in the daemon's process */
    bool spared;     /* since it was heard, its lease has been longer once, see leases.c */
    uint64_t failed; /* newest round in which it reported a failure */
    uint64_t contested_ms; /* when somebody else wanted its node rank; 0: nobody */
    char host[CT_RDZV_HOST_BYTES];
    char address[CT_RDZV_ADDRESS_BYTES];
    char role[CT_RDZV_ROLE_BYTES];
};

/* A place in a committed round, with a copy of the member's data, since the member may be gone. */
struct ct_rdzv_place {
    struct ct_id id;
    uint32_t slots;
    uint32_t first_rank;
    int32_t node_rank;
    uint16_t port;
    bool survivor;  /* was in the round before */
    bool recovered; /* its workers hold the base */
    bool done;      /* its workers have ended well */
    bool informed;  /* CLOSED: its node knows the result */
    char host[CT_RDZV_HOST_BYTES];
    char address[CT_RDZV_ADDRESS_BYTES];
    char role[CT_RDZV_ROLE_BYTES];
};

struct ct_rdzv_roster {
    uint64_t generation; /* 0: no round was committed yet */
    uint64_t lineage;    /* of the base; 0: nobody has state, begin from the checkpoint */
    uint64_t oldest;     /* states of older lineages are no history of the job any more */
    uint64_t base_step;
    uint64_t base_digest;
    int32_t base_node;                    /* place of a member that holds the base, -1 when none */
    struct ct_rdzv_publication published; /* the newest when the round was made */
    uint32_t count;
    uint32_t world;
    struct ct_rdzv_place *places; /* capacity nodes_max */
};

struct ct_rdzv;

/* Allocate a job without members, in LOBBY at time `now_ms`; NULL without memory. `epoch` is the
 * daemon's. `name` is the run id (copied, cut at 127 bytes). The parameters must have passed the
 * check. */
struct ct_rdzv *ct_rdzv_new(const char *name, const struct ct_rdzv_params *params, uint64_t epoch,
                            uint64_t now_ms);
void ct_rdzv_free(struct ct_rdzv *job);

/* Restore the records of a journal into a new job: the newest of each kind, in this order, then
 * call ct_rdzv_restored. See core_restore.c. */
void ct_rdzv_restore_reserve(struct ct_rdzv *job, uint64_t generation, uint32_t restarts,
                             bool charged, bool rebuilt);
int ct_rdzv_restore_commit(struct ct_rdzv *job, const struct ct_rdzv_roster *roster,
                           uint32_t restarts, struct ct_error *err);
void ct_rdzv_restore_manifest(struct ct_rdzv *job, const struct ct_rdzv_publication *published);
void ct_rdzv_restore_cordon(struct ct_rdzv *job, const struct ct_rdzv_cordon *cordon, size_t count);
void ct_rdzv_restore_close(struct ct_rdzv *job, const struct ct_rdzv_result *result);
void ct_rdzv_restored(struct ct_rdzv *job);

/* Then: a member that is alive comes back within this time. */
void ct_rdzv_restored_within(struct ct_rdzv *job, uint64_t within_ms);

/* Then: no roster is made for so long. Nodes that live come meanwhile, and may tell of rounds that
 * are not on record, whose numbers must not be used again. */
void ct_rdzv_hear_for(struct ct_rdzv *job, uint64_t for_ms);

/* Whether the record may be rebuilt of what nodes say; CT_RDZV_REBUILD_NEVER at first. */
void ct_rdzv_set_rebuild(struct ct_rdzv *job, enum ct_rdzv_rebuild rebuild);

/* A node of `host` that was in a round of this job was refused at `now_ms`, or `host` told then of
 * a record of it that nobody leads: those who hold it may live. For two leases and 5 s a record
 * without a round begins none. Announced during a step. */
void ct_rdzv_note_elsewhere(struct ct_rdzv *job, uint64_t now_ms, const char *host);

/* Then: the member whose id folds to `id` has been silent for so long already, as one who held the
 * record beside it says. */
void ct_rdzv_restored_silent(struct ct_rdzv *job, uint64_t id, uint64_t silent_ms);

/* Handle one event at time `now_ms` (never less than before). Fills `actions`, which the caller
 * carries out in order before the next step. */
void ct_rdzv_step(struct ct_rdzv *job, uint64_t now_ms, const struct ct_rdzv_event *event,
                  struct ct_rdzv_actions *actions);

/* Return the time at which a CT_RDZV_ON_TICK is due, in ms; UINT64_MAX if none is. */
uint64_t ct_rdzv_deadline(const struct ct_rdzv *job);

/* ---- queries ---- */

enum ct_rdzv_phase ct_rdzv_phase(const struct ct_rdzv *job);
uint64_t ct_rdzv_phase_since_ms(const struct ct_rdzv *job);
const char *ct_rdzv_name(const struct ct_rdzv *job);
uint64_t ct_rdzv_generation(const struct ct_rdzv *job); /* highest reserved */
uint32_t ct_rdzv_restarts(const struct ct_rdzv *job);
/* Return the failure behind the last restart; NULL when there was none, or the daemon was restarted
 * since. */
const struct ct_wire_failure *ct_rdzv_last_cause(const struct ct_rdzv *job);

/* Return the reason of the newest round. */
enum ct_rdzv_reason ct_rdzv_last_reason(const struct ct_rdzv *job);
const struct ct_rdzv_params *ct_rdzv_params(const struct ct_rdzv *job);
const struct ct_rdzv_result *ct_rdzv_result(const struct ct_rdzv *job);

/* Return the other failures in the round of the root cause, in the order of their reports; none
 * after a restart of the daemon. */
const struct ct_wire_failure *ct_rdzv_others(const struct ct_rdzv *job, size_t *ret_count);

/* Return the last committed round. */
const struct ct_rdzv_roster *ct_rdzv_roster(const struct ct_rdzv *job);

/* Return the newest publication on record. */
const struct ct_rdzv_publication *ct_rdzv_published(const struct ct_rdzv *job);

/* Return cordoned host number `index`, NULL beyond the last. */
const struct ct_rdzv_cordon *ct_rdzv_cordon(const struct ct_rdzv *job, size_t index);

/* Return the members by number, 0 <= index < capacity, which grows as nodes join; free places have
 * state CT_RDZV_FREE. */
size_t ct_rdzv_capacity(const struct ct_rdzv *job);
const struct ct_rdzv_member *ct_rdzv_member(const struct ct_rdzv *job, size_t index);

/* Return the member of incarnation `id`, NULL if none, in constant time. */
const struct ct_rdzv_member *ct_rdzv_member_of(const struct ct_rdzv *job, struct ct_id id);

/* Return whether the job has no members and may be freed: no round ran yet, here or as far as nodes
 * say elsewhere, or all nodes of the last round know the result or have had the time to ask for
 * it. */
bool ct_rdzv_is_idle(const struct ct_rdzv *job);

/* Return, for a CLOSED job without members, the time in ms until another job may take the name; 0:
 * now. Nodes that were cut off at the end may ask for the result until then. */
uint64_t ct_rdzv_reusable_ms(const struct ct_rdzv *job, uint64_t now_ms);

/* Print one sentence: the job's state and what it waits for. */
void ct_rdzv_describe(const struct ct_rdzv *job, char *text, size_t room);

/* Print the same for one member that is in no round while others are. False: it waits for what the
 * job waits for. */
bool ct_rdzv_describe_member(const struct ct_rdzv *job, size_t index, char *text, size_t room);

/* Print one line for transcripts and logs: an event, before its step; an action, after it. */
void ct_rdzv_event_print(const struct ct_rdzv *job, const struct ct_rdzv_event *event, char *line,
                         size_t room);
void ct_rdzv_action_print(const struct ct_rdzv *job, const struct ct_rdzv_action *action,
                          char *line, size_t room);

#endif
