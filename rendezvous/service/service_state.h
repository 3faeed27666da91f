/* The private state of the service, for the files service*.c and those of operators. */
#ifndef CT_RENDEZVOUS_SERVICE_STATE_H
#define CT_RENDEZVOUS_SERVICE_STATE_H

#include "rendezvous/service/service.h"

#include "base/number/pace.h"
#include "rendezvous/history/figures.h"
#include "rendezvous/history/history.h"
#include "rendezvous/service/accounts.h"
#include "wire/node_runs.h"

enum {
    CT_SERVICE_SLOT_BITS = 20,
    CT_SERVICE_SLOT_MASK = (1 << CT_SERVICE_SLOT_BITS) - 1,
    CT_SERVICE_WAITING_MS = 200, /* how old the sentence of who waits for what may be */
    CT_SERVICE_WAITS_MS = 3000,  /* after which the word of PyTorch's store is none */
    CT_SERVICE_FOLLOWERS = 64,   /* operators that are told of events as they come */
    CT_SERVICE_LINES_PER_S = 25, /* of the log, about one account's jobs; and at once: */
    CT_SERVICE_LINES_BURST = 250,
    CT_SERVICE_TELL_MS = 10000, /* between two lines about the same full store */
};

struct ct_service_job;

/* The cached status text of a large job, for repeated requests (admin.c). */
struct ct_service_cached_text {
    char *text; /* NULL: nothing yet */
    uint64_t ms, generation;
    enum ct_rdzv_phase phase;
};

struct ct_service_link {
    uint64_t number; /* 0: the slot is free */
    void *peer;
    struct ct_account *account; /* whose it is; NULL: nobody's */
    struct ct_service_job *job;
    struct ct_id id;
    uint64_t epoch;    /* newest that the node has followed */
    uint32_t protocol; /* that is spoken with it */
    uint32_t member;   /* in the job's core */
    uint32_t open_requests;
    bool hello;
    bool admin;                   /* an operator's, not a node's */
    bool released;                /* its member has left in order */
    bool wants_events;            /* a node that asks to be told of its job's events, ... */
    bool follows;                 /* ... and is a member */
    uint64_t after;               /* number of the last that it has seen, as it said */
    const char *asks;             /* an operator: what he asked for last; static */
    struct ct_service_held *held; /* his order, until it is answered; NULL: none */
    struct ct_pace pace;
    char job_name[129];
};

/* The last SET of a node: its requests' numbers grow, so one that comes again is known. */
struct ct_service_set {
    struct ct_id id; /* its incarnation */
    uint64_t request;
};

struct ct_service_job {
    struct ct_service_job *next;
    struct ct_service *service;
    uint64_t due_ms; /* no tick of it is due before; a lower bound */
    struct ct_rdzv *core;
    struct ct_account *account; /* who began it; NULL: not known */
    struct ct_store *store;
    bool store_refused;     /* its account, or the daemon, has no room for what it was to hold */
    uint64_t store_told_ms; /* when that was told last */
    struct ct_history *history;
    struct ct_figures figures; /* of its nodes, while somebody looks */
    uint32_t links;            /* connections that have it */
    uint32_t followers;        /* of those, nodes that ask to be told of its events */
    uint64_t told, told_count; /* number of the last that one was told, how many came before */
    struct ct_id told_to;      /* which that was */
    struct ct_msg_progress progress;  /* the newest */
    uint64_t progress_ms;             /* when it came */
    double elapsed_s;                 /* how long the job had run then */
    uint64_t asked_step, asked_bytes; /* the last checkpoint that a node wants on record */
    uint64_t waiting_ms;              /* when `waiting` was written */
    enum ct_rdzv_phase waiting_phase;
    char waiting[1000];
    uint64_t waits_generation; /* of the round whose store of PyTorch `waits` speaks of */
    uint64_t waits_ms;         /* when it was told */
    char *waits;               /* a line each who waits there, and for what; NULL: none */
    struct ct_node_runs runs;  /* of round `runs_of`, a large one; in `runs_arena` */
    uint64_t runs_of;
    struct ct_arena runs_arena;
    struct ct_service_set *sets; /* by member, as far as one was made */
    uint32_t set_count;
    struct ct_service_cached_text cached[3]; /* enum ct_admin_form */
};

/* A record that is being kept: ct_service_kept tells how that ended. */
struct ct_service_record {
    uint64_t ticket;
    struct ct_service_job *job; /* NULL: it is gone */
    uint64_t seq;               /* of the record, as the job's core counts them */
};

struct ct_service {
    struct ct_service_limits limits;
    struct ct_service_io io;
    enum ct_rdzv_rebuild rebuild; /* of jobs' records */
    uint64_t epoch;
    struct ct_accounts accounts;
    struct ct_error refusal; /* of a quota, the last one */
    uint64_t due_ms;         /* the same of all jobs */
    struct ct_service_job *jobs;
    uint32_t job_count;
    struct ct_service_link *links;
    uint32_t link_room;
    uint32_t link_count;
    uint32_t first_free; /* no free slot before */
    uint64_t serial;
    uint64_t event_number;                    /* of the last event of any job's history */
    uint64_t ended_well, ended_badly;         /* jobs */
    uint64_t followers[CT_SERVICE_FOLLOWERS]; /* links of operators that are told of them */
    uint32_t follower_count;
    uint64_t looked_ms;        /* when somebody last looked at the jobs; 0: nobody did */
    struct ct_pace pace;       /* of all operators */
    char journal_trouble[512]; /* why nothing can be kept now; "": it can */
    uint64_t ticket;           /* of the last record that was given away */
    struct ct_service_record *open;
    size_t open_count, open_room;
};

/* May a reader of the page (NULL: of everything) see the job? */
bool ct_service_shows(const struct ct_grant *reader, const struct ct_service_job *job);

/* See io.may. */
int ct_service_may(const struct ct_service *service, const struct ct_service_link *link,
                   enum ct_right right, const char *job, struct ct_error *err);

/* May the sender of a HELLO go on: a node, or an operator, who has no job to come back to? 0;
 * CT_EAUTH. */
int ct_service_lets_in(const struct ct_service *service, const struct ct_service_link *link,
                       bool is_admin, const char *job, struct ct_error *err);

/* May this node join? One that may begin nothing new comes back alone. False: it was refused. */
bool ct_service_lets_join(struct ct_service *service, const struct ct_service_link *link,
                          const struct ct_msg_join *join);

/* Return whether somebody has looked at the job lately, and it is not too large to be shown node by
 * node. */
bool ct_service_is_watched(const struct ct_service_job *job, uint64_t now_ms);

/* Keep how a node is, if somebody looks. */
void ct_service_on_figures(const struct ct_service_link *link, uint64_t now_ms,
                           const struct ct_msg_figures *m);

struct ct_service_link *ct_service_link_of(const struct ct_service *service, uint64_t number);

/* Send to a link, if it is still open. */
void ct_service_send(struct ct_service *service, uint64_t link, const struct ct_message *message);

/* Release a member that has left in order. Sent again in answer to each message until the node
 * knows. */
void ct_service_release(struct ct_service_job *job, uint64_t number);

/* Close a link whose peer breaks the protocol. */
void ct_service_violation(struct ct_service *service, struct ct_service_link *link,
                          const char *sentence);

void ct_service_refuse(struct ct_service *service, uint64_t link, int code, uint32_t retry_ms,
                       const char *sentence);

/* ---- service_jobs.c ---- */

struct ct_service_job *ct_service_find_job(const struct ct_service *service, const char *name);

/* Create a job around `core`, and take ownership of it (it is freed on failure; NULL is a
 * failure). It is charged to nobody yet. */
struct ct_service_job *ct_service_add_job(struct ct_service *service, uint64_t now_ms,
                                          struct ct_rdzv *core);
void ct_service_remove_job(struct ct_service *service, struct ct_service_job *job);
void ct_service_free_job(struct ct_service_job *job);

/* What its tick depends on may have changed, of this job and of all. */
void ct_service_touch(struct ct_service_job *job);
void ct_service_touch_all(struct ct_service *service);

/* Forget the job when nothing about it is worth keeping. */
void ct_service_reap(struct ct_service_job *job);

/* Return the job that a JOIN means, begun if there is none; NULL when it was refused. */
struct ct_service_job *ct_service_demand_job(struct ct_service *service, uint64_t now_ms,
                                             const struct ct_service_link *link,
                                             const struct ct_rdzv_params *params, bool is_fresh);

/* ---- service_quota.c ---- */

/* Have a line about the job in the log, unless its account has had its share of those. */
void ct_service_log(struct ct_service_job *job, uint64_t now_ms, const char *text);

/* Tell the log that the job's store was refused room, if it was, once in a while. */
void ct_service_log_refusal(struct ct_service_job *job, uint64_t now_ms);

/* service_text.c: tell the log of a job that may grow beyond the connections there is room for. */
void ct_service_warn_of_limit(const struct ct_service *service, const char *name,
                              uint32_t nodes_max);

/* service_events.c: note that a job begins. */
void ct_service_note_begin(struct ct_service_job *job, uint64_t now_ms);

/* service_events.c: note an event in the job's history, and tell those who follow it; not when its
 * `number` is 0. */
void ct_service_note(struct ct_service_job *job, uint64_t now_ms,
                     const struct ct_history_event *event);

/* ---- service_audit.c: for io.audit ---- */

/* An operator orders this. */
void ct_service_audit_order(struct ct_service *service, struct ct_service_link *link,
                            const char *deed, const struct ct_msg_admin *order);

/* He is answered: an order whatever the code is, a question that is refused. */
void ct_service_audit_answer(struct ct_service *service, struct ct_service_link *link, int code,
                             const char *text);

/* Somebody is turned away. */
void ct_service_audit_refusal(struct ct_service *service, uint64_t link, int code,
                              const char *sentence);

/* The service ends: what is held is dropped. */
void ct_service_audit_deinit(struct ct_service *service);

/* Nobody waits for the answer of the order that is held, if there is one. */
void ct_service_audit_left(struct ct_service *service, struct ct_service_link *link);

/* ---- service_store.c ---- */

/* A request of a member for its job's store. A SET that is repeated after its connection broke is
 * answered, and done once. */
void ct_service_on_store(struct ct_service *service, uint64_t now_ms, struct ct_service_link *link,
                         const struct ct_message *message);

/* The store answers a link (ct_store_reply_fn); `context` is the job. */
void ct_service_on_reply(void *context, uint64_t client, const struct ct_msg_store_reply *reply);

/* ---- service_records.c ---- */

/* Have the record kept that `action` asks for: 0, CT_SERVICE_LATER, or why it is not. */
int ct_service_persist(struct ct_service_job *job, const struct ct_rdzv_action *action,
                       bool may_compact);
void ct_service_persist_forget(struct ct_service *service, const char *job);

/* The job goes: nobody waits any more for records of it that are open. */
void ct_service_forget_records(struct ct_service *service, const struct ct_service_job *job);

/* ---- service_send.c ---- */

/* Send the round with all its nodes, in as many parts as their names need: to a member, to all
 * (CT_RDZV_ALL), or to an operator. */
void ct_service_send_whole(struct ct_service_job *job, uint64_t link);

/* Give `event` to the job's core and carry out its actions, and those that follow from records
 * being kept. */
void ct_service_step(struct ct_service_job *job, uint64_t now_ms,
                     const struct ct_rdzv_event *event);

#endif
