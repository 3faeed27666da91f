/* The private state of a job, for the files of the core only:
 *
 *      core.c      one step               member_index.c      finding and counting members
 *      members.c   joining, leaving       leases.c    liveness
 *      rounds.c    round after round      failures.c  failures and their cost
 *      rebuild.c   a record that was lost
 *      ranks.c     rank assignment        publish.c   publications
 *      cordon.c    excluded hosts         core_*.c    texts, checks, memory, the journal */
#ifndef CT_RENDEZVOUS_CORE_STATE_H
#define CT_RENDEZVOUS_CORE_STATE_H

#include "rendezvous/core/core.h"
#include "wire/failure.h"

enum {
    CT_RDZV_NAME_BYTES = 129,
    CT_RDZV_FLAPS = 64,             /* hosts whose losses are remembered */
    CT_RDZV_PERSIST_RETRY_MS = 500, /* until a record that could not be kept is tried again */
};

/* How often a host was lost recently, for its exclusion with exponential back-off. */
struct ct_rdzv_flap {
    uint64_t host_hash;
    uint64_t lost_ms; /* the last time */
    uint32_t count;   /* times within an hour of each other */
};

struct ct_rdzv {
    char name[CT_RDZV_NAME_BYTES];
    struct ct_rdzv_params params;
    enum ct_rdzv_phase phase;
    uint64_t now_ms;
    uint64_t epoch;
    uint64_t generation; /* highest reserved */
    uint32_t restarts;

    /* The change under way (PREPARE, PAUSED, LAST_CALL): why, and how urgent. */
    enum ct_rdzv_reason reason;
    bool at_boundary;

    /* The failure that is being repaired. An incident lasts from a failure to the next committed
     * round and costs one restart, however much breaks meanwhile. */
    bool charged;
    bool has_cause;
    struct ct_wire_failure cause;
    uint64_t cause_at_ms;                          /* when it happened, on the clock here */
    uint32_t failure_count;                        /* of nodes that reported one in this incident */
    struct ct_wire_failure others[CT_RDZV_OTHERS]; /* those that are not the cause */
    size_t other_count;
    struct {
        char cause[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)];
        char others[CT_RDZV_OTHERS][CT_FAILURE_ROOM(CT_RDZV_OTHER_BYTES)];
        char result[CT_FAILURE_ROOM(CT_FAILURE_TEXT_BYTES)];
    } rooms;             /* of these failures, and of the result's cause (failure.h) */
    uint64_t verdict_ms; /* RECOVER, RUNNING: the job is to end then; UINT64_MAX: it is not */

    /* Durability: the record that the phase waits for, 0 when none. */
    enum ct_rdzv_record pending;
    uint64_t pending_seq;
    uint64_t record_seq;            /* of the last record asked for */
    uint64_t retry_ms;              /* when to ask again, UINT64_MAX: it is under way */
    bool journal_failure_announced; /* it was announced that the journal cannot be written */

    struct ct_rdzv_publication published;  /* the newest on record */
    struct ct_rdzv_publication publishing; /* whose record is under way; generation 0: none */
    uint64_t publishing_seq;               /* of the record */
    uint32_t publisher;                    /* the member that asked */

    uint64_t join_until_ms;
    uint64_t call_until_ms;
    uint64_t prepare_until_ms;
    uint64_t grow_until_ms;
    uint64_t leave_until_ms; /* RECOVER: who wants to leave waits no longer */
    uint64_t phase_since_ms;
    uint64_t running_since_ms;   /* the round was committed */
    uint64_t contact_ms;         /* when anybody was last heard */
    uint64_t contact_stalled_ms; /* `stalled_ms` then */
    bool is_cut_off;             /* nobody is: leases are held */

    /* The daemon's own stalls. Leases run on the clock of its waking time, ct_rdzv_awake_ms; so do
     * the times here that end in _awake_ms. */
    uint64_t due_ms;       /* of the step before: a later one was held up by the daemon itself */
    uint64_t stalled_ms;   /* held up so far, in all */
    uint64_t stall_ms;     /* when that last happened */
    uint64_t stall_sum_ms; /* of the last ones: a fifth of the time between them is taken off */
    uint64_t late_ms;      /* the step under way came so late */
    uint64_t excused_awake_ms; /* until then a closed connection may be due to its absence */
    uint64_t scan_awake_ms;    /* no lease ends before; a lower bound, so heartbeats cost nothing */
    bool ticked;               /* the last step looked at the clocks */

    struct ct_rdzv_member *members;
    size_t room;     /* members that there may ever be */
    size_t capacity; /* those of them that there have been at once, at most: grows as nodes join */
    size_t count[CT_RDZV_MEMBER_STATES];
    size_t outside[CT_RDZV_MEMBER_STATES]; /* of these, those that leave or are barred */
    size_t leavers;                        /* members that leave */
    size_t first_free;                     /* no free member before */
    uint64_t join_serial;
    uint32_t *by_id; /* open addressing: member number + 1, 0 is empty */
    uint32_t id_mask;
    uint32_t *by_rank; /* member number + 1 that asked for the node rank, 0: nobody */

    struct ct_rdzv_roster roster; /* last committed */
    struct ct_rdzv_roster next;   /* being committed */
    uint32_t done_count;          /* places that are done, their members here or gone */
    uint32_t recovered_count;     /* places whose workers hold the base */
    enum ct_rdzv_rebuild rebuild; /* may the record be? */
    uint64_t lost_generation;     /* up to here rounds may have been of which only nodes know */
    uint64_t elsewhere_until_ms;  /* a node was in a round of this job: none is begun here */
    uint64_t hear_until_ms;       /* no roster is made before: nodes tell first what they know */
    bool store_lost;              /* the round was committed by an earlier daemon */

    uint32_t *order; /* scratch: member numbers, room */
    int32_t *holder; /* scratch: member of each place, room + nodes_max */
    struct ct_rdzv_flap flaps[CT_RDZV_FLAPS];
    struct ct_rdzv_cordon cordons[CT_RDZV_CORDONS];
    size_t cordon_count;
    bool cordons_changed; /* the record of them is to be written */
    uint64_t cordon_seq;  /* of their record under way, 0: none */
    uint64_t cordon_link; /* the operator who waits for it, 0: none */
    uint64_t cordon_ms;   /* when the next of them ends */
    uint64_t cordon_retry_ms;
    struct ct_rdzv_result result;
    uint64_t closed_ms;
    struct ct_rdzv_actions *out; /* of the step under way */
};

/* ---- core.c ---- */
struct ct_rdzv_action *ct_rdzv_push(struct ct_rdzv *job, enum ct_rdzv_action_kind kind,
                                    uint64_t link);
void ct_rdzv_announce(struct ct_rdzv *job, enum ct_announcement kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ct_rdzv_set_phase(struct ct_rdzv *job, enum ct_rdzv_phase phase);
void ct_rdzv_persist(struct ct_rdzv *job, enum ct_rdzv_record record);

/* Ask for a record beside the one that the phase waits for: its number. */
uint64_t ct_rdzv_push_record(struct ct_rdzv *job, enum ct_rdzv_record record);

/* Ask a member, or all that have not promised, for the promise of job->generation. A step has one
 * such action: a second member makes it one to all. */
void ct_rdzv_push_prepare(struct ct_rdzv *job, uint64_t link);

/* Return whether the members of the last round act, or are about to. */
bool ct_rdzv_acts(const struct ct_rdzv *job);

/* ---- member_index.c: finding members and counting them in constant time ---- */

void ct_rdzv_set_member(struct ct_rdzv *job, struct ct_rdzv_member *member,
                        enum ct_rdzv_member_state state);
void ct_rdzv_set_out(struct ct_rdzv *job, struct ct_rdzv_member *member, bool leaving, bool barred);

struct ct_rdzv_member *ct_rdzv_find(const struct ct_rdzv *job, struct ct_id id);
struct ct_rdzv_member *ct_rdzv_rank_holder(struct ct_rdzv *job, int32_t node_rank);

/* Return whether there is a place for one more member. */
bool ct_rdzv_has_room(const struct ct_rdzv *job);
struct ct_rdzv_member *ct_rdzv_free_member(struct ct_rdzv *job);

/* Grow to at least the members 0 .. count-1. */
void ct_rdzv_widen(struct ct_rdzv *job, size_t count);

/* Return the number of members available to a new round (without leaving and barred ones). */
size_t ct_rdzv_candidates(const struct ct_rdzv *job);

/* Return the number of members drafted into the round being made: PREPARING or PROMISED. */
size_t ct_rdzv_drafted(const struct ct_rdzv *job);

/* How many nodes a round made of these would have: not more than MAX, and as many as give a world
 * that the job can use. */
enum ct_rdzv_pool {
    CT_RDZV_POOL_ALL,     /* all candidates */
    CT_RDZV_POOL_DRAFTED, /* those that the round being made has */
    CT_RDZV_POOL_GROWTH,  /* those in the round, and newcomers that may be taken in now */
};
size_t ct_rdzv_usable(const struct ct_rdzv *job, enum ct_rdzv_pool pool);

/* ---- members.c: who is here ---- */

/* Do not accept `link`; `retry_ms` > 0: it may try again then. */
void ct_rdzv_refuse(struct ct_rdzv *job, uint64_t link, int code, uint32_t retry_ms,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

void ct_rdzv_on_join(struct ct_rdzv *job, const struct ct_rdzv_event *event);
void ct_rdzv_on_heartbeat(struct ct_rdzv *job, struct ct_rdzv_member *member,
                          const struct ct_rdzv_event *event);
void ct_rdzv_on_leave(struct ct_rdzv *job, struct ct_rdzv_member *member, enum ct_rdzv_leave how);

/* CLOSED: note that all connected members know the result. */
void ct_rdzv_mark_all_informed(struct ct_rdzv *job);

/* Remove the members whose lease has expired. */
void ct_rdzv_scan_leases(struct ct_rdzv *job);

/* ---- rebuild.c: a record that was lost ---- */

/* Does the node know of a round that is not on this record? */
bool ct_rdzv_is_ahead(const struct ct_rdzv *job, const struct ct_rdzv_join *join);

/* Handle the JOIN of a node that is ahead: rebuild the record from what it says, if that is safe.
 * False: it was refused. */
bool ct_rdzv_rebuild(struct ct_rdzv *job, uint64_t link, const struct ct_rdzv_join *join);

/* The job may live elsewhere, so its first round is not to be begun here. */
bool ct_rdzv_is_elsewhere(const struct ct_rdzv *job);

/* ---- leases.c: liveness ---- */

/* Return the time in ms that the daemon has been awake, by which leases run: it stops while a step
 * is late. */
uint64_t ct_rdzv_awake_ms(const struct ct_rdzv *job);

/* Advance the time to `now_ms` before each step, and detect a stall of the daemon itself. */
void ct_rdzv_note_time(struct ct_rdzv *job, uint64_t now_ms);

/* Return the time at which the leases need a step, to end one or to detect a stall; UINT64_MAX if
 * none is. */
uint64_t ct_rdzv_lease_deadline(const struct ct_rdzv *job);

/* Return the time in ms without contact after which no agent runs any more. */
uint64_t ct_rdzv_outlived_ms(const struct ct_rdzv *job);

/* Record contact with a peer: a heartbeat arrived, or a peer closed its connection. */
void ct_rdzv_contact(struct ct_rdzv *job);

/* Return whether all members are silent at once: then the daemon is cut off, not they. */
bool ct_rdzv_is_isolated(const struct ct_rdzv *job);

void ct_rdzv_renew_lease(struct ct_rdzv *job, struct ct_rdzv_member *member);

/* Handle a lost connection; `silent`: it was given up because the peer did not answer. */
void ct_rdzv_on_disconnect(struct ct_rdzv *job, struct ct_rdzv_member *member, bool silent);

/* Return whether a newcomer may join the running round now. */
bool ct_rdzv_is_eligible(const struct ct_rdzv *job, const struct ct_rdzv_member *member);

/* Release a leaving member that has promised, or is in no round. */
void ct_rdzv_release(struct ct_rdzv *job, struct ct_rdzv_member *member);

/* ---- rounds.c: how rounds follow each other ---- */

/* LOBBY, PAUSED, LAST_CALL: check whether MIN nodes have joined. `newcomer`: one just joined. */
void ct_rdzv_gather(struct ct_rdzv *job, bool newcomer);

/* Reserve the next generation, and ask those who are in the last round and those who wait. */
void ct_rdzv_begin(struct ct_rdzv *job, enum ct_rdzv_reason reason, bool at_boundary);

/* End the running round because of `reason`: enter PREPARE of the next, or PAUSED. */
void ct_rdzv_change(struct ct_rdzv *job, enum ct_rdzv_reason reason, bool at_boundary);

/* PREPARE: draft newcomers while there is room. */
void ct_rdzv_draft(struct ct_rdzv *job);

/* PREPARE: commit when all members have promised; enter PAUSED when too few are left. */
void ct_rdzv_advance(struct ct_rdzv *job);

/* RUNNING: set the time at which newcomers are taken in: `newcomer`, or NULL for all. */
void ct_rdzv_plan_growth(struct ct_rdzv *job, const struct ct_rdzv_member *newcomer);

/* PREPARE: draft one newcomer if there is room. */
void ct_rdzv_draft_one(struct ct_rdzv *job, struct ct_rdzv_member *member);

/* Record that the workers of a member hold the base, or are done. */
void ct_rdzv_recovered(struct ct_rdzv *job, const struct ct_rdzv_member *member);

/* PREPARE: stop at once, since the step boundary will not be reached. */
void ct_rdzv_cancel_boundary(struct ct_rdzv *job, enum ct_rdzv_reason reason);

void ct_rdzv_on_prepared(struct ct_rdzv *job, struct ct_rdzv_member *member,
                         const struct ct_rdzv_event *event);
void ct_rdzv_on_done(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t generation);
void ct_rdzv_on_persisted(struct ct_rdzv *job);
void ct_rdzv_round_tick(struct ct_rdzv *job);

/* End the job; `cause` may be NULL. */
void ct_rdzv_close(struct ct_rdzv *job, int code, int status, const struct ct_wire_failure *cause);

/* ---- failures.c: failures and their cost ---- */

/* End a job that waits for its verdict, now. */
void ct_rdzv_conclude(struct ct_rdzv *job);

/* Handle the loss of a member that was in state `was` (its place and names are still readable). */
void ct_rdzv_lost(struct ct_rdzv *job, const struct ct_rdzv_member *member,
                  enum ct_rdzv_member_state was, const char *why);
void ct_rdzv_on_failure(struct ct_rdzv *job, struct ct_rdzv_member *member, uint64_t generation,
                        const struct ct_wire_failure *failure);

/* ---- publish.c: publications ---- */

void ct_rdzv_on_publish(struct ct_rdzv *job, const struct ct_rdzv_member *member,
                        const struct ct_rdzv_event *event);
void ct_rdzv_on_publish_record(struct ct_rdzv *job, bool is_kept);

/* ---- cordon.c: excluded hosts ---- */

/* Record the loss of a node of this host. */
void ct_rdzv_note_loss(struct ct_rdzv *job, const char *host);

/* Return the time from which a node of this host may join a running round: later after each
 * loss. */
uint64_t ct_rdzv_eligible_from(struct ct_rdzv *job, const char *host);

/* Return the cordon of this host, NULL if none. */
const struct ct_rdzv_cordon *ct_rdzv_cordon_of(const struct ct_rdzv *job, const char *host);

/* Put a member that is in no round on STANDBY. Its host may have been cordoned meanwhile. */
void ct_rdzv_stand_by(struct ct_rdzv *job, struct ct_rdzv_member *member);

/* Ask for the record of all cordons. */
void ct_rdzv_keep_cordons(struct ct_rdzv *job);

void ct_rdzv_on_order(struct ct_rdzv *job, const struct ct_rdzv_event *event);
void ct_rdzv_on_cordon_record(struct ct_rdzv *job, bool is_kept);
void ct_rdzv_cordon_tick(struct ct_rdzv *job);

/* Admit members that could not join before: `newcomer`, or NULL for any number of them. */
void ct_rdzv_admit(struct ct_rdzv *job, struct ct_rdzv_member *newcomer);

/* ---- ranks.c: rank assignment (pure functions of the members) ---- */

/* Fill job->next from the members that have promised. */
void ct_rdzv_assign(struct ct_rdzv *job);

/* Choose the base among them into job->next. CT_EDIVERGED with the sentence when two hold
 * different states of the same step. */
int ct_rdzv_choose_base(struct ct_rdzv *job, struct ct_error *err);

#endif
