/* A server that may hold the record of a job with others, and serves the job while it leads.
 *
 *      connections of nodes, operators         .-> service   while it leads; its records are puts
 *      and other holders, deaths, time --> holder
 *                                           |  '-> replica   who leads, what is agreed
 *                                           v
 *                                        actions: messages, connections, the log
 *
 *      found            a record of its own: it leads at once, alone
 *      follow           wait to be added to the record that lives elsewhere; another is given up
 *      it leads         a new service, restored from the map as a daemon's is from its journal; it
 *                       tells its members who holds the record and chooses the holders among those
 *                       that offer
 *      it follows       the service goes; nodes are told who holds the record and find the leader
 *      a death          of all other holders: it founds the record anew, if nothing can be lost
 *
 * The holder of a ctrund with peers holds the record of all jobs, on disk, with the same others
 * from the start: it restores what it kept, begins, and neither founds nor chooses anything.
 *
 * It has no socket, no clock and no random numbers of its own: the caller passes events, time and a
 * seed, and carries out the actions. The caller owns the holder's memory and that of its
 * connections. One thread at a time; an action may not call back into the holder. */
#ifndef CT_RENDEZVOUS_SERVICE_HOLDER_H
#define CT_RENDEZVOUS_SERVICE_HOLDER_H

#include "base/error.h"
#include "base/log/log.h"
#include "base/number/rng.h"
#include "rendezvous/holder/peers.h"
#include "rendezvous/replica/replica.h"
#include "rendezvous/service/service.h"

enum {
    CT_HOLDER_DEAD = 16,      /* dead processes that are remembered */
    CT_HOLDER_LATE_MS = 100,  /* after a stall that is so long, what arrived meanwhile ... */
    CT_HOLDER_READ_MS = 2,    /* ... is read for so long before anybody is judged */
    CT_HOLDER_AWAY_MS = 5000, /* a voter whose node is away for two leases and this is replaced */
};

/* The actions. `peer` is the argument of ct_holder_opened. */
struct ct_holder_io {
    void *context;

    /* Of the service, see ct_service_io; the holder's own messages go through `send`, too. */
    void (*send)(void *context, void *peer, const struct ct_message *message);
    void (*close)(void *context, void *peer, int code, const char *sentence);
    int (*may)(void *context, void *peer, enum ct_right right, const char *job,
               struct ct_error *err);
    bool (*whose)(void *context, void *peer, struct ct_account_name *ret_name); /* or NULL */
    void (*announce)(void *context, const char *job, const char *sentence);
    void (*noted)(void *context, const struct ct_service_event *event);           /* may be NULL */
    void (*audit)(void *context, void *peer, const struct ct_service_deed *deed); /* may be NULL */
    uint64_t (*wall_ms)(void *context);                                           /* may be NULL */
    int64_t (*certificate_expires_s)(void *context);                              /* may be NULL */
    void (*trace)(void *context, const char *job, const char *line);              /* may be NULL */

    /* As close, of a node that must go elsewhere or of a stranger: not worth a warning. */
    void (*turn_away)(void *context, void *peer, int code, const char *sentence);

    /* It is a member, or another holder: its messages may be as long as CT_WIRE_VALUE. */
    void (*admit)(void *context, void *peer);

    /* Send to the replica `id`, which listens at `address`; it may be lost. */
    void (*send_replica)(void *context, uint64_t id, const char *address,
                         const struct ct_message *message);

    /* Be connected to these replicas, and report when one of their processes is known to be dead.
     * Called often with the same. */
    void (*want)(void *context, const struct ct_replica_server *list, size_t count);

    /* Dial the endpoint that the job's nodes were told, until it opens: ct_holder_endpoint_opened;
     * ct_holder_endpoint_closed afterwards. False when that could not be begun. */
    bool (*dial_endpoint)(void *context);
    void (*send_endpoint)(void *context, const struct ct_message *message);
    void (*leave_endpoint)(void *context); /* close it or give up dialling; nothing is reported */

    /* Ask who manages the machines whether `hosts`, where the other holders run, and all other
     * nodes of the job are down; ct_holder_nodes_known tells. May be NULL: there is nobody to ask.
     */
    void (*ask_nodes)(void *context, const char *const *hosts, size_t count);

    /* Of a replica with peers, see ct_replica_io. */
    ct_replica_keep_fn keep;

    /* For logs. */
    void (*log)(void *context, enum ct_log_level level, const char *sentence);
};

struct ct_holder_options {
    const struct ct_service_limits *limits; /* of a service; copied. `own` names this process, and
                                             * `only_job`, which outlives the holder, the job */
    const char *host;                       /* this node's name; it outlives the holder */
    const char *address;                    /* where other holders reach this one; copied */
    bool at_endpoint;  /* it listens where the job's nodes meet: it dials no such place */
    uint32_t lease_ms; /* of the job's nodes */
    uint64_t seed;     /* of eras: random, or two founders may draw the same */
    uint64_t now_ms;
    const struct ct_holder_io *io; /* copied */
    const struct ct_peers *peers;  /* NULL: none. Outlives the holder; its own is `address` */
};

/* Who holds a record, in the order in which nodes try them. */
struct ct_holder_voters {
    uint64_t generation; /* of the job's newest round; 0: none, or not told */
    uint64_t epoch;      /* of the leader; 0: not known to lead */
    uint64_t era;
    uint32_t count; /* 0: not known */
    struct ct_replica_server list[CT_REPLICA_SERVERS];
};

/* What is known of another voter. */
struct ct_holder_voter {
    uint64_t id;
    uint64_t heard_ms; /* when its replica was last heard, here or by the leader */
    uint64_t seen_ms;  /* when its node was last here, or came */
    uint32_t offers;   /* connections of its node that offer: it is here */
    bool awaited;      /* its node has not come since this holder leads */
    bool led;          /* ever: it was heard all the time, then */
};

/* A connection of the server; its fields are the holder's. */
struct ct_holder_conn {
    struct ct_holder_conn *next, *prev;
    void *peer;
    uint64_t link;   /* in the service; 0: none */
    uint64_t id;     /* its incarnation, folded; 0: no HELLO yet */
    bool is_replica; /* another holder of the record, not a node */
    bool is_agent;   /* a node */
    bool is_admin;   /* an operator */
    uint64_t era;    /* another holder: of the record that it leads; 0: it has told of none ... */
    uint64_t epoch, generation;
    uint64_t told_ms; /* a node: when it was told who holds the record */
    bool offers;      /* a node that could hold it, at `address` ... */
    uint64_t add_ms;  /* ... from then on: it did not take the record in time */
    char address[CT_REPLICA_ADDRESS_BYTES];
};

/* What a node that has left the job owes to the others as a holder of its record. */
enum ct_holder_duty {
    CT_HOLDER_FREE,   /* nothing: another one leads, or this one has waited for that long enough */
    CT_HOLDER_YIELDS, /* ct_holder_yield: it leads, and the others can do without it */
    CT_HOLDER_NEEDED, /* it leads, and they cannot; or it led, and nobody leads yet */
};

enum ct_holder_endpoint { CT_HOLDER_AWAY, CT_HOLDER_DIALS, CT_HOLDER_THERE };

/* Its fields are private; tests read them. */
struct ct_holder {
    struct ct_holder_io io;
    struct ct_service_io service_io;
    struct ct_replica_io replica_io;
    struct ct_service_limits limits;
    struct ct_service *service; /* NULL: it does not lead */
    struct ct_replica *replica;
    struct ct_holder_conn *conns;  /* the newest first */
    struct ct_holder_conn *oldest; /* the last of them */
    struct ct_rng rng;
    const struct ct_peers *peers; /* NULL: none */
    const char *host;
    uint64_t now_ms;  /* of the event */
    uint64_t due_ms;  /* of the next tick, but for the service's */
    uint64_t read_ms; /* until then nobody is judged: what arrived during a stall is read */
    uint64_t id;
    uint32_t election_ms, lease_ms;
    bool at_endpoint;
    bool stopped;
    bool partial;        /* nodes may know of more than this record: it was a minority's */
    uint64_t led_by;     /* the last other leader; 0: none */
    uint64_t led_ms;     /* when it led last; 0: never */
    uint64_t unfit_ms;   /* it leads and cannot read the record: when to ask another; 0: it can */
    uint64_t yielded_ms; /* when it asked another one to lead; 0: never */
    char address[CT_REPLICA_ADDRESS_BYTES]; /* where others reach it */
    enum ct_holder_endpoint endpoint;       /* its connection to where the job's nodes meet */
    uint64_t endpoint_generation;           /* of which it told there */
    bool changes;                           /* a voter is being added or removed */
    bool changed;                           /* that is over: the next one may be due at once */
    uint64_t adds;                          /* which; 0: none */
    uint64_t add_ms;                        /* when one may be added anew; 0: none waits */
    uint64_t followed;             /* epoch of the record that it was told to follow; 0: none */
    uint64_t follows_generation;   /* ... and the newest round of its job, its leader said */
    size_t tellers;                /* connections of holders that told of a record that they lead */
    uint64_t waits_since_ms;       /* another told of a record that nobody leads; 0: none ... */
    uint64_t waits_for;            /* ... its id */
    uint64_t raises;               /* as its leader: the count that its epoch shall have; or 0 */
    uint64_t met_epoch;            /* when those who know less were told: its epoch ... */
    bool met_led;                  /* ... and that somebody led */
    struct ct_holder_voters known; /* by others' words, while this one holds no record */
    bool removed; /* they do not list this one, which its own record does: it was cut off then */
    struct ct_holder_voters told;      /* to the members, while this one leads */
    uint64_t left[CT_REPLICA_SERVERS]; /* who held the record when this one went on alone, and lived
                                        * (this one, too): the others may go on with it ... */
    size_t left_count;
    uint64_t left_ms; /* ... for a lease from then */
    struct ct_holder_voter voters[CT_REPLICA_SERVERS];
    size_t voter_count;
    uint64_t reported_led_by; /* with peers: whom the log says that it follows; 0: nobody */
    uint64_t unled_ms;        /* since when nobody leads; 0: somebody does, or the log says so */
    uint64_t ask_ms;          /* when nodes may be asked for again */
    char nodes_text[128];     /* the last answer, while this one waits for all others */
    struct {
        uint64_t id;
        char name[CT_RDZV_HOST_BYTES];
    } hosts[CT_REPLICA_SERVERS];   /* of other holders, as they said; the last first */
    uint64_t dead[CT_HOLDER_DEAD]; /* ids of processes that are known to be dead, the last first */
    size_t dead_count;
};

/* Initialise a holder of no record: ct_holder_found or ct_holder_follow comes next; with peers
 * ct_holder_restore and ct_holder_begin. 0; CT_EUSAGE for a long address; CT_ENOMEM. */
int ct_holder_init(struct ct_holder *holder, const struct ct_holder_options *options,
                   struct ct_error *err);

/* Release what it holds. It may be half-built, and its connections may still be there. */
void ct_holder_deinit(struct ct_holder *holder);

/* ---- events --------------------------------------------------------------------------------- */

/* Found the record: it leads at once. 0 or CT_ENOMEM. */
int ct_holder_found(struct ct_holder *holder, uint64_t now_ms);

/* The record lives there, its leader says: wait to be added to its holders, and give up any other.
 * Ignored unless its epoch is above that of the record held, and that of the record followed last:
 * what an agent was told may be late; and where this one votes, unless its job has had as many
 * rounds. One without a round that nobody leads is given up for any.
 * 0; CT_ENOMEM: all is as it was. */
int ct_holder_follow(struct ct_holder *holder, uint64_t now_ms, const struct ct_msg_voters *voters);

/* With peers: see ct_replica_restore, ct_replica_emit and ct_replica_begin. */
int ct_holder_restore(struct ct_holder *holder, const void *record, size_t size,
                      struct ct_error *err);
int ct_holder_emit(const struct ct_holder *holder, ct_replica_keep_fn emit, void *context);
void ct_holder_begin(struct ct_holder *holder, uint64_t now_ms);

/* Hand the lead to the best of the others, if this one has it. Only ct_holder_closed and
 * ct_holder_deinit may follow. A no-op before it has begun. */
void ct_holder_stop(struct ct_holder *holder, uint64_t now_ms);

/* Hand the lead to the best of the others, and go on as a holder; where ct_holder_duty says that
 * it may. Another call is for a lead that was not taken. */
void ct_holder_yield(struct ct_holder *holder, uint64_t now_ms);

/* A connection is open. False: this server has too many. */
bool ct_holder_opened(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                      void *peer);
void ct_holder_message(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                       const struct ct_message *message);

/* It is closed; `silent`: it was given up because the peer did not answer. */
void ct_holder_closed(struct ct_holder *holder, uint64_t now_ms, struct ct_holder_conn *conn,
                      bool silent);

/* The process of replica `id` is known to be dead. */
void ct_holder_died(struct ct_holder *holder, uint64_t now_ms, uint64_t id);

/* What became of ask_nodes: all of them are `down`, which proves the other holders dead, or `text`
 * says of which that is not known. */
void ct_holder_nodes_known(struct ct_holder *holder, uint64_t now_ms, bool down, const char *text);

/* The connection that dial_endpoint began is open; it was closed, or could not be had. */
void ct_holder_endpoint_opened(struct ct_holder *holder, uint64_t now_ms);
void ct_holder_endpoint_closed(struct ct_holder *holder, uint64_t now_ms);

/* What came on it: who listens there knows of another record of the job. */
void ct_holder_endpoint_message(struct ct_holder *holder, uint64_t now_ms,
                                const struct ct_message *message);

/* Time passes; after all that had arrived by then. */
void ct_holder_tick(struct ct_holder *holder, uint64_t now_ms);
uint64_t ct_holder_deadline(const struct ct_holder *holder); /* UINT64_MAX: none */

/* ---- queries -------------------------------------------------------------------------------- */

bool ct_holder_leads(const struct ct_holder *holder);

/* May the process of a node that has left the job end? `text` says why not. */
enum ct_holder_duty ct_holder_duty(struct ct_holder *holder, uint64_t now_ms, char *text,
                                   size_t room);

/* The highest generation that it knows as the leader; 0: none that anybody was told of, or will be,
 * whatever becomes of this host. */
uint64_t ct_holder_generation(const struct ct_holder *holder);

/* Are all others who hold the job's record known to be dead, while this one does not lead? It holds
 * none of it, or what it holds is older than a lease: they may have gone on without it. */
bool ct_holder_is_orphan(const struct ct_holder *holder);

/* With peers: append one line: who leads, or what is waited for. */
void ct_holder_describe(const struct ct_holder *holder, struct ct_buf *out);

/* What to offer to the one that leads; valid as long as the holder. */
struct ct_msg_offer ct_holder_offer(const struct ct_holder *holder);

/* The first message on a connection to another holder. */
struct ct_message ct_holder_hello(const char *job, const char *host, struct ct_id incarnation);

#endif
