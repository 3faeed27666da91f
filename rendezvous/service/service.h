/* The rendezvous service: many jobs, many connections, no socket.
 *
 *      messages of wire.def          events             actions            messages, records
 *   link ------------------> service ------> job core ---------> service ------------------> io
 *                               |                                   ^
 *                               +----------> store of the job ------+
 *
 * It turns messages into events of the job's core and requests of its store, and carries out their
 * actions through `io`. server_uv.c gives it real connections and a journal; the simulator gives it
 * a network and a disk of its own.
 *
 * A link opens with HELLO (version, job, incarnation) and JOIN, which may come in one write. A job
 * begins with the first JOIN that names it. It is forgotten when it is over or never ran, and no
 * node is connected. One thread at a time. */
#ifndef CT_RENDEZVOUS_SERVICE_H
#define CT_RENDEZVOUS_SERVICE_H

#include "base/bytes.h"
#include "keys/grant.h"
#include "rendezvous/core/core.h"
#include "rendezvous/service/accounts.h"
#include "rendezvous/store/store.h"
#include "wire/wire.h"

struct ct_service;

/* An event of a job, as it is noted. `record` is its line of JSON, with the newline. */
struct ct_service_event {
    const char *job;
    enum ct_announcement kind;
    const char *name, *level; /* of the kind: announcement.def */
    uint64_t number, generation;
    const char *record;
    size_t size;
};

/* The effects of the service. `peer` is the argument of ct_service_open. */
/* What somebody did, or was refused. Texts are as they came, and valid during the call. */
struct ct_service_deed {
    const char *deed; /* "drain", "cordon", "status", "join", ... */
    const char *role; /* whom its connection says it is: "operator", "node" */
    bool is_order;    /* it changes something: it is told of whatever its verdict is */
    int code;         /* 0: done; else CT_E..., why not */
    const char *text; /* the verdict's sentence */
    const char *job;  /* "" for all that he may see */
    const char *host; /* NULL: none, and below */
    const char *author, *reason;
};

struct ct_service_io {
    void *context;

    /* Send; a connection that cannot take it is closed by the caller, later. */
    void (*send)(void *context, void *peer, const struct ct_message *message);

    /* Flush the sent messages, then close; ct_service_closed is called afterwards, never from
     * inside. */
    void (*close)(void *context, void *peer, int code, const char *sentence);

    /* Return 0 when what the peer has proved allows it to do what `right` says to `job` (NULL: to
     * some job); CT_EAUTH with the sentence in `err` (may be NULL). NULL: keys are unknown here, as
     * in the simulator, and everybody may do everything. */
    int (*may)(void *context, void *peer, enum ct_right right, const char *job,
               struct ct_error *err);

    /* Name the account that what the peer takes up is charged to; false: nobody's. NULL: there are
     * no accounts, what there is is for whoever comes first. */
    bool (*whose)(void *context, void *peer, struct ct_account_name *ret_name);

    /* Keep a record (see records.h) durably: 0 when that is done, a negative code when it cannot
     * be, CT_SERVICE_LATER when ct_service_kept will tell with `ticket`, which grows (0: nobody
     * wants to know). What is kept later is kept in order. `may_compact`: the service's state holds
     * all earlier records, so a snapshot may replace them. NULL: no state outlives the service. */
    int (*persist)(void *context, uint64_t ticket, const void *record, size_t size,
                   bool may_compact);

    /* A node that followed the newer `epoch` knows all who served it to be dead: call
     * ct_service_raise with a higher one, so that it may follow, or return false. NULL: never. */
    bool (*succeed)(void *context, uint64_t epoch);

    /* For logs: something happened to a job, as a sentence. */
    void (*announce)(void *context, const char *job, const char *sentence);

    /* For hooks: an event of a job has been noted. NULL: nobody wants to know. */
    void (*noted)(void *context, const struct ct_service_event *event);

    /* For an audit log: an order has its verdict, or somebody was refused. NULL: nobody wants to
     * know. */
    void (*audit)(void *context, void *peer, const struct ct_service_deed *deed);

    /* Return the wall clock, for those who print times; NULL: it is the time of the calls. */
    uint64_t (*wall_ms)(void *context);

    /* Return when the server's own certificate expires, in seconds of Unix; 0: it has none. May be
     * NULL. */
    int64_t (*certificate_expires_s)(void *context);

    /* For logs: an event of a job's core ("> a PREPARED g2 lineage=1 step=40"), or an action that
     * follows ("< all REVOKE g2 ..."). Ticks without an effect, heartbeats that are only
     * acknowledged, and announcements are left out. May be NULL. */
    void (*trace)(void *context, const char *job, const char *line);
};

enum {
    CT_SERVICE_LEASE_MS = 600 * 1000, /* the longest that a job may ask for, and below */
    CT_SERVICE_AUTONOMY_MS = 24 * 3600 * 1000,
    CT_SERVICE_JOIN_MS = 24 * 3600 * 1000,
    CT_SERVICE_STEP_MS = 2 * 3600 * 1000, /* last call, stopping workers, collecting newcomers */
    CT_SERVICE_LATER = 1,                 /* of io.persist */
    CT_METRICS_NODES = 1024,              /* jobs of more nodes have no figures of each node */
    CT_METRICS_RANKS = 1024,              /* jobs of more ranks have none of each rank */
    CT_SERVICE_LOOK_MS = 60 * 1000,       /* for which nodes tell how they are, after a look */
};

struct ct_service_limits {
    uint32_t jobs;              /* 0: as in `quotas`, and that: 1024 */
    uint32_t links;             /* 0: as in `quotas`, and that: 131072 */
    struct ct_quotas quotas;    /* see accounts.h */
    uint32_t whole_round_nodes; /* nodes up to which all names of a round are told; 0: 1024 */
    uint32_t open_requests;     /* store requests of one link that wait for an answer; 0: 8192 */
    struct ct_id own;     /* incarnation of the agent in this process; {0, 0}: there is none */
    const char *only_job; /* the one job that may be served (outlives the service); NULL: any */
    unsigned char hash_key[CT_SIPHASH_KEY]; /* random, of the stores' hash tables: see siphash.h */
};

/* Create a service without jobs, in tenure `epoch` (1 without a journal). NULL without memory. */
struct ct_service *ct_service_new(const struct ct_service_limits *limits,
                                  const struct ct_service_io *io, uint64_t epoch);
void ct_service_free(struct ct_service *service);

/* When restored: nodes that are alive come back within this time. */
void ct_service_restored_within(struct ct_service *service, uint64_t within_ms);

/* Another host holds records of jobs that have had a round, see ct_rdzv_note_elsewhere. */
void ct_service_note_elsewhere(struct ct_service *service, uint64_t now_ms, const char *host);

/* Then: no round begins for so long, see ct_rdzv_hear_for. */
void ct_service_hear_for(struct ct_service *service, uint64_t for_ms);

/* Whether records of jobs may be rebuilt of what nodes say; CT_RDZV_REBUILD_NEVER at first. */
void ct_service_set_rebuild(struct ct_service *service, enum ct_rdzv_rebuild rebuild);

/* Replay one record of the journal; when all are replayed, begin with ct_service_restored: the jobs
 * wait for their nodes to come back. CT_EDATA, CT_EPROTOCOL or CT_ELIMIT with the sentence. */
int ct_service_restore(struct ct_service *service, uint64_t now_ms, const void *record, size_t size,
                       struct ct_error *err);
void ct_service_restored(struct ct_service *service, uint64_t epoch);

/* Emit the records that replace all earlier ones in a new journal, one call each. 0; CT_ENOMEM; the
 * code of `emit`, which ends it. */
int ct_service_snapshot(const struct ct_service *service,
                        int (*emit)(void *context, const void *record, size_t size), void *context);

/* The record that io.persist answered with CT_SERVICE_LATER is kept (0), or cannot be. Not from
 * inside of io.persist. Unknown tickets change nothing. */
void ct_service_kept(struct ct_service *service, uint64_t now_ms, uint64_t ticket, int code);

/* Set, for the status, the reason why records cannot be kept now; "" when they can. */
void ct_service_set_trouble(struct ct_service *service, const char *sentence);

/* Register an open connection. Returns its number, which is never reused; 0 when there are too
 * many, in all or of its account. */
uint64_t ct_service_open(struct ct_service *service, void *peer);

/* Then: return why, and when it may be tried again. */
const char *ct_service_refusal(struct ct_service *service, uint64_t now_ms, uint32_t *ret_retry_ms);

/* Return whether a JOIN of this connection has been accepted. */
bool ct_service_has_joined(const struct ct_service *service, uint64_t number);

/* Handle a closed connection; `silent`: it was given up because the peer did not answer. */
void ct_service_closed(struct ct_service *service, uint64_t now_ms, uint64_t number, bool silent);

/* The process of a node is known to be dead, whose incarnation folds to `id` (ct_id_fold): a member
 * that has not come back since its daemon was replaced has as long as after a closed connection. */
void ct_service_node_died(struct ct_service *service, uint64_t now_ms, uint64_t id);

/* After ct_service_restored: the node whose incarnation folds to `id` has not been heard for
 * `silent_ms`, by who held the record beside it: its lease began then. */
void ct_service_node_silent(struct ct_service *service, uint64_t id, uint64_t silent_ms);

/* From now on this is tenure `epoch`, of the same daemon with all its links. */
void ct_service_raise(struct ct_service *service, uint64_t epoch);

/* The highest generation of its jobs; 0: no round ran, none was begun. */
uint64_t ct_service_generation(const struct ct_service *service);

/* Handle a message. */
void ct_service_message(struct ct_service *service, uint64_t now_ms, uint64_t number,
                        const struct ct_message *message);

/* Handle the passing of time, after all messages that had arrived by then. */
void ct_service_tick(struct ct_service *service, uint64_t now_ms);

/* Return the time at which ct_service_tick is due, in ms; UINT64_MAX if never. */
uint64_t ct_service_deadline(const struct ct_service *service);

/* ---- looking at it ---- */

/* Somebody looks: nodes are asked how they and their workers are, with their heartbeats, for
 * CT_SERVICE_LOOK_MS. */
void ct_service_look(struct ct_service *service, uint64_t now_ms);

/* Return the number of the last event of any job. */
uint64_t ct_service_events(const struct ct_service *service);

size_t ct_service_jobs(const struct ct_service *service);
size_t ct_service_running(const struct ct_service *service); /* not over, and with nodes */
size_t ct_service_links(const struct ct_service *service);

/* Return whether no job is on its way into a round or to its end. */
bool ct_service_is_settled(const struct ct_service *service);

/* Of the jobs that `reader` may see (NULL: all), append one line each: its phase, what it waits
 * for, and its progress. */
void ct_service_describe(const struct ct_service *service, const struct ct_grant *reader,
                         struct ct_buf *out);

/* Append their states in Prometheus' text format: metrics.def. What is the daemon's own is for
 * those who may see all jobs. */
void ct_service_metrics(const struct ct_service *service, uint64_t now_ms,
                        const struct ct_grant *reader, struct ct_buf *out);

#endif
