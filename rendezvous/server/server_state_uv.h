/* The private state of a server:
 *
 *   server_uv.c           listeners, connections, one timer
 *   server_journal_uv.c   records on disk, and the newer daemon that takes them over
 *   server_local_uv.c     operators of this process
 *   server_audit.c        the audit log
 *   server_keys_uv.c      the keys that it accepts
 *   server_whose.c        whose a connection is, for quotas
 *   server_replica_uv.c   records on several agents: the connections of a holder (holder.h)
 *
 * A server without a replica has its service from start to end; one with a replica has a holder,
 * which has a service while it leads. */
#ifndef CT_RENDEZVOUS_SERVICE_SERVER_STATE_UV_H
#define CT_RENDEZVOUS_SERVICE_SERVER_STATE_UV_H

#include "rendezvous/server/server_uv.h"

#include "base/log/log_limit.h"
#include "keys/key.h"
#include "net/conn_uv.h"
#include "net/listen_uv.h"
#include "rendezvous/holder/holder.h"
#include "rendezvous/server/replica_links_uv.h"
#include "rendezvous/service/journal_file.h"
#include "rendezvous/service/service.h"

#include <limits.h>

/* The holder of a server, and its connections to others. */
struct ct_server_replica {
    struct ct_holder holder;
    struct ct_peers peers; /* count 0: none */
    struct ct_replica_links *links;
    struct ct_conn *endpoint_conn;       /* to the job's endpoint; NULL: none */
    uint32_t endpoint_protocol;          /* that the next HELLO to it offers */
    char job_endpoint[CT_ENDPOINT_TEXT]; /* as its nodes were told; "": here */
    char host[CT_RDZV_HOST_BYTES];
    const struct ct_key *key; /* the server's; NULL: none */
    void (*ask_nodes)(void *context, const char *const *hosts, size_t count); /* NULL: nobody */
    void *ask_context;
};

/* A connection's user pointer is the server until it is open, then its peer; both begin with the
 * server, so that a callback can tell. NULL: it was turned away. */
struct ct_rdzv_server {
    struct ct_rdzv_server *self;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_idle_t soon;                    /* the loop does not wait while it runs */
    uv_check_t read;                   /* runs when the loop has read what there was */
    uv_timer_t watch;                  /* looks for a newer daemon */
    uint64_t armed_ms;                 /* when the timer fires, UINT64_MAX: it does not */
    struct ct_service *service;        /* NULL: the holder has one, while it leads */
    struct ct_service_limits limits;   /* of a service */
    struct ct_service_io io;           /* likewise */
    struct ct_server_replica *replica; /* NULL: none */
    struct ct_journal_file *journal;   /* NULL: none */
    bool journal_failed;               /* told once */
    struct ct_error fenced;            /* by a newer daemon */
    bool takeover;
    void (*on_fenced)(void *user, const struct ct_error *why);
    void (*on_event)(void *user, const struct ct_service_event *event);
    void *user;
    struct ct_listener *listeners[CT_RDZV_LISTENERS_LIMIT];
    char endpoints[CT_RDZV_LISTENERS_LIMIT][CT_ENDPOINT_TEXT];
    size_t listener_count;
    struct ct_server_peer *peers; /* open connections, the newest first */
    const struct ct_clock *clock;
    const struct ct_log *log;
    unsigned skipped_type; /* the last message of a newer release that was told of */
    struct ct_log_limit log_limit;
    const struct ct_log *audit; /* NULL: none */
    struct ct_log_limit audit_limit;
    char key_file[PATH_MAX], ring_file[PATH_MAX]; /* "": none */
    char tls_files[3][PATH_MAX];                  /* certificate, its key, the CA; "": none */
    struct ct_key key;                            /* of the key file, else the certificate's */
    uv_timer_t certificate_timer;                 /* with certificates: when to warn again */
    struct ct_key_ring *ring;                     /* what it accepts; NULL: in clear */
    char only_job[129];
    bool stopping;
    unsigned handles; /* that are not closed yet */
    void (*stopped)(void *context);
    void *stopped_context;
};

struct ct_server_peer {
    struct ct_rdzv_server *server;
    struct ct_server_peer *next, *prev;
    struct ct_conn *conn;         /* NULL: one of this process, server_local_uv.c */
    uint64_t link;                /* in the service of a server without a replica */
    struct ct_holder_conn holder; /* of one with */
    bool joined;                  /* a node's */
};

/* ---- server_uv.c ---- */

uint64_t ct_server_now_ms(const struct ct_rdzv_server *server);

/* Let the timer fire when the service or the holder wants it, at the latest. */
void ct_server_arm(struct ct_rdzv_server *server);

/* A node has joined over this connection: it may send large messages. */
void ct_server_admit(struct ct_server_peer *peer);

/* A peer whose server and connection are set is there: its link is opened. False: there are too
 * many. Then what it says, and its end, after which it may be freed. */
bool ct_server_add_peer(struct ct_server_peer *peer);
void ct_server_message(struct ct_server_peer *peer, const struct ct_message *message);
void ct_server_drop_peer(struct ct_server_peer *peer, bool silent);

/* A handle of the server is closed: the last one ends it. */
void ct_server_handle_closed(struct ct_rdzv_server *server);

/* ---- server_audit.c ---- */

/* Whose deed it is. */
struct ct_server_origin {
    const char *peer;             /* its address */
    const struct ct_conn *conn;   /* NULL: none of the wire's */
    const struct ct_grant *grant; /* what his key allows; NULL: none */
};

struct ct_server_origin ct_server_origin_of(const struct ct_conn *conn);

/* Write a record of the deed. A no-op without an audit log. */
void ct_server_audit(struct ct_rdzv_server *server, const struct ct_server_origin *from,
                     const struct ct_service_deed *deed);

/* ---- server_keys_uv.c ---- */

/* Check that a key by munge names the account of this process, as which credentials are opened
 * here. 0; CT_EUSAGE. */
int ct_server_check_account(const struct ct_rdzv_server *server, struct ct_error *err);

/* Read the keys that the options name. 0; a code of ct_key_ring_load, CT_EUSAGE. */
int ct_server_load_keys(struct ct_rdzv_server *server, const struct ct_rdzv_server_options *options,
                        struct ct_error *err);
void ct_server_forget_keys(struct ct_rdzv_server *server);

/* Has it a key of its own, by which peers know each other? */
bool ct_server_has_key(const struct ct_rdzv_server *server);

/* See ct_service_io; `context` is the server. */
int64_t ct_server_certificate_expires_s(void *context);

/* Warn of its own certificate's end, now and each day. */
void ct_server_watch_certificates(struct ct_rdzv_server *server);

/* End the connection if the key that it proved is no longer in the ring. True: it was so. */
bool ct_server_is_revoked(struct ct_rdzv_server *server, struct ct_conn *conn);

/* ---- server_whose.c: of ct_service_io ---- */

bool ct_server_whose(void *context, void *peer, struct ct_account_name *ret_name);

/* ---- server_local_uv.c: of ct_service_io, for a peer without a connection ---- */

void ct_server_local_send(struct ct_server_peer *peer, const struct ct_message *message);
void ct_server_local_close(struct ct_server_peer *peer, int code, const char *sentence);

/* Return whose order it is: of the page's client. */
struct ct_server_origin ct_server_local_origin(const struct ct_server_peer *peer);

/* ---- server_journal_uv.c ---- */

/* Of ct_service_io. */
int ct_server_keep_on_disk(void *context, uint64_t ticket, const void *record, size_t size,
                           bool may_compact);

/* Read the journal and begin the next tenure, which is durable before anybody is served. */
int ct_server_restore(struct ct_rdzv_server *server, const char *dir, struct ct_error *err);

/* The same for a holder with peers; then of ct_holder_io. */
int ct_server_restore_holder(struct ct_rdzv_server *server, const char *dir, struct ct_error *err);
int ct_server_keep_of_holder(void *context, const void *record, size_t size);

/* ---- server_replica_uv.c ---- */

/* When the listeners have their addresses: found a record, and lead; or wait for one. */
int ct_server_replica_start(struct ct_rdzv_server *server,
                            const struct ct_rdzv_server_options *options, struct ct_error *err);
void ct_server_replica_stop(struct ct_rdzv_server *server);
void ct_server_replica_free(struct ct_server_replica *of);

#endif
