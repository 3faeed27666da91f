/* The private state of a server:
 *
 *   server_uv.c           listeners, connections, the timer of the service
 *   server_journal_uv.c   records on disk, and the newer daemon that takes them over
 *   server_replica_uv.c   records on several agents: whether this server leads, and for whom
 *   server_founding_uv.c  when it may lead without the others
 *   server_voters_uv.c    who holds them, and who is told
 *
 * A server without a replica has its service from start to end; one with a replica has a service
 * while it leads. */
#ifndef CT_RENDEZVOUS_SERVICE_SERVER_STATE_UV_H
#define CT_RENDEZVOUS_SERVICE_SERVER_STATE_UV_H

#include "rendezvous/service/server_uv.h"

#include "base/log/log_limit.h"
#include "net/conn_uv.h"
#include "net/key.h"
#include "net/listen_uv.h"
#include "rendezvous/replica/replica.h"
#include "rendezvous/service/journal_file.h"
#include "rendezvous/service/replica_links_uv.h"
#include "rendezvous/service/service.h"

#include <limits.h>

/* Who holds a record. */
struct ct_server_voters {
    uint64_t epoch; /* of the leader; 0: not known to lead */
    uint64_t era;
    uint32_t count; /* 0: not known */
    struct ct_replica_server list[CT_REPLICA_SERVERS];
};

/* What is known of another voter. */
struct ct_server_voter {
    uint64_t id;
    uint64_t heard_ms; /* when its replica was last heard */
    uint64_t seen_ms;  /* when its node was last here */
    bool led;          /* ever: it was heard all the time, then */
};

enum { CT_SERVER_DEAD = 16 };

/* The replica of a server, its connections to others, and what it knows of them. */
struct ct_server_replica {
    struct ct_rdzv_server *server;
    struct ct_replica *replica;
    struct ct_replica_io io;
    struct ct_replica_links *links;
    struct ct_conn *endpoint_conn; /* to the job's endpoint, as its nodes were told; NULL: none */
    uv_timer_t timer;
    uint64_t due_ms; /* when it fires */
    uint64_t id;
    uint32_t election_ms, lease_ms;
    uint64_t led_by;                        /* the last other leader; 0: none */
    char address[CT_REPLICA_ADDRESS_BYTES]; /* where others reach it */
    char job_endpoint[CT_ENDPOINT_TEXT];    /* "": here */
    char host[CT_RDZV_HOST_BYTES];
    struct ct_id incarnation;
    struct ct_key key;
    bool has_key;
    bool changes;                  /* a voter is being added or removed */
    bool changed;                  /* that is over: the next one may be due at once */
    uint64_t adds;                 /* which; 0: none */
    struct ct_server_voters known; /* by others' words, while this one holds no record */
    struct ct_server_voters told;  /* to the members, while this one leads */
    struct ct_server_voter voters[CT_REPLICA_SERVERS];
    size_t voter_count;
    uint64_t dead[CT_SERVER_DEAD]; /* ids of processes that are known to be dead, the last ones */
    size_t dead_count;
};

/* A connection's user pointer is the server until it is open, then its peer; both begin with the
 * server, so that a callback can tell. NULL: it was turned away. */
struct ct_rdzv_server {
    struct ct_rdzv_server *self;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_idle_t soon;    /* the loop does not wait while it runs */
    uv_check_t read;   /* runs when the loop has read what there was */
    uv_timer_t watch;  /* looks for a newer daemon */
    uint64_t armed_ms; /* when the timer fires, UINT64_MAX: it does not */
    struct ct_service *service;
    struct ct_service_limits limits; /* of a service */
    struct ct_service_io io;
    struct ct_server_replica *replica; /* NULL: none */
    struct ct_journal_file *journal;   /* NULL: none */
    bool journal_failed;               /* told once */
    struct ct_error fenced;            /* by a newer daemon */
    bool takeover;
    void (*on_fenced)(void *user, const struct ct_error *why);
    void *user;
    struct ct_listener *listeners[CT_RDZV_LISTENERS_LIMIT];
    char endpoints[CT_RDZV_LISTENERS_LIMIT][CT_ENDPOINT_TEXT];
    size_t listener_count;
    struct ct_server_peer *peers; /* open connections, the newest first */
    const struct ct_clock *clock;
    const struct ct_log *log;
    struct ct_log_limit log_limit;
    char key_file[PATH_MAX]; /* "": none */
    char only_job[129];
    bool stopping;
    unsigned handles; /* that are not closed yet */
    void (*stopped)(void *context);
    void *stopped_context;
};

struct ct_server_peer {
    struct ct_rdzv_server *server;
    struct ct_server_peer *next, *prev;
    struct ct_conn *conn;
    uint64_t link;   /* in the service; 0: none */
    uint64_t id;     /* its incarnation, folded; 0: no HELLO yet */
    bool is_replica; /* another holder of the record, not a node */
    bool is_agent;   /* a node */
    bool offers;     /* a node that could hold it, at `address` */
    char address[CT_REPLICA_ADDRESS_BYTES];
};

/* ---- server_uv.c ---- */

uint64_t ct_server_now_ms(const struct ct_rdzv_server *server);

/* Let the timer fire when the service wants it, at the latest. */
void ct_server_arm(struct ct_rdzv_server *server);

/* A handle of the server is closed: the last one ends it. */
void ct_server_handle_closed(struct ct_rdzv_server *server);

/* ---- server_journal_uv.c ---- */

/* Of ct_service_io. */
int ct_server_keep_on_disk(void *context, uint64_t ticket, const void *record, size_t size,
                           bool may_compact);

/* Read the journal and begin the next tenure, which is durable before anybody is served. */
int ct_server_restore(struct ct_rdzv_server *server, const char *dir, struct ct_error *err);

/* ---- server_voters_uv.c ---- */

/* Who holds the record, as far as this server knows, in the order in which nodes try them. */
void ct_server_list_voters(const struct ct_server_replica *of, struct ct_server_voters *ret_voters);
void ct_server_send_voters(const struct ct_server_voters *voters, struct ct_conn *conn);
bool ct_server_is_dead(const struct ct_server_replica *of, uint64_t id);

/* What is known of voter `id`; NULL: it is none. */
struct ct_server_voter *ct_server_voter_of(struct ct_server_replica *of, uint64_t id);

/* Give up the connection to the job's endpoint, if there is one. */
void ct_server_leave_endpoint(struct ct_server_replica *of);

/* Something may have changed: connect to the voters, tell who they are, change them. */
void ct_server_update_voters(struct ct_server_replica *of);

/* ---- server_founding_uv.c ---- */

uint64_t ct_server_epoch(const struct ct_server_replica *of); /* of a service, should it lead */

/* Era number `count`, with 32 random bits: no other founder's, even if two found at once. */
uint64_t ct_server_new_era(uint64_t count);

/* A replica that holds nothing yet; NULL without memory. */
struct ct_replica *ct_server_new_replica(struct ct_server_replica *of, uint64_t era);

/* After which the one of two voters that led goes on without the other. */
uint64_t ct_server_silence_ms(const struct ct_server_replica *of);
void ct_server_go_on_without_silent(struct ct_server_replica *of);

/* Somebody was found dead: go on if all others are, and nothing can be lost. */
void ct_server_go_on_without_dead(struct ct_server_replica *of);

/* ---- server_replica_uv.c ---- */

/* When the listeners have their addresses: found a record, and lead; or wait for one. `key`: NULL
 * for none. */
int ct_server_replica_start(struct ct_rdzv_server *server,
                            const struct ct_rdzv_replica_options *options, const struct ct_key *key,
                            struct ct_error *err);
void ct_server_replica_stop(struct ct_rdzv_server *server);
void ct_server_replica_free(struct ct_server_replica *of);

/* Of ct_service_io. */
int ct_server_keep_in_replica(void *context, uint64_t ticket, const void *record, size_t size,
                              bool may_compact);

/* A message came that may be the replica's, or of a node that must go elsewhere. True: it was. */
bool ct_server_replica_message(struct ct_server_peer *peer, const struct ct_message *message);

/* A JOIN was accepted. */
void ct_server_replica_joined(const struct ct_server_peer *peer);

#endif
