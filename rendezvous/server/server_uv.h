/* The rendezvous server on a libuv loop: listeners, connections and a timer around service.h.
 *
 * Used by ctrund, and inside ctrun when the node hosts the rendezvous itself. It serves many jobs;
 * a job begins with the first node that joins it and is forgotten when it is over and all its nodes
 * have left. This file makes no decisions: bytes become messages, messages go to the service, its
 * answers are sent in one write per turn of the loop.
 *
 * All on the loop's thread. */
#ifndef CT_RENDEZVOUS_SERVICE_SERVER_UV_H
#define CT_RENDEZVOUS_SERVICE_SERVER_UV_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log/log.h"
#include "keys/key_ring.h"
#include "rendezvous/holder/holder.h"
#include "wire/wire.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { CT_RDZV_LISTENERS_LIMIT = 8 };

struct ct_peers;
struct ct_rdzv_server;

/* The record of the one job lives on several agents (rendezvous/replica). Such a server serves
 * while it leads; at other times it tells nodes where to go. */
struct ct_rdzv_replica_options {
    size_t listener;      /* that others reach this one at, by its endpoint */
    const char *host;     /* this node's name */
    const char *endpoint; /* of the job, as its nodes were told; NULL: this one listens there */
    uint32_t lease_ms;    /* of the job's nodes */
    const struct ct_msg_voters
        *voters; /* who holds the record; NULL: nobody yet, this one founds it */

    /* Of ct_holder_io, with their own context; ct_rdzv_server_nodes_known answers. NULL: nobody can
     * be asked. */
    void (*ask_nodes)(void *context, const char *const *hosts, size_t count);
    void *ask_context;

    /* With the same others from start to end, and a journal: the record is of all jobs. Then
     * `host`, `listener` and `lease_ms` count besides. NULL: none; copied */
    const struct ct_peers *peers;
};

struct ct_rdzv_server_options {
    const char *listen[CT_RDZV_LISTENERS_LIMIT]; /* "host:port" (port 0: any) or "unix:/path" */
    size_t listen_count;
    const char *key_file; /* the whole key; NULL: none */
    const char *key_ring; /* the keys that are accepted besides; NULL: none, those derived from it.
                             With neither only loopback and AF_UNIX may be listened on */
    const struct ct_certificate_files *tls; /* certificates besides (certificates.h); NULL: none */
    const char *journal;  /* directory of the journal; NULL: nothing outlives this server */
    bool takeover;        /* take journal and address over from a daemon that still lives */
    const char *only_job; /* the one job that it serves; NULL: any */
    struct ct_id own;     /* incarnation of the agent in this process; {0, 0}: there is none */
    const struct ct_rdzv_replica_options *replica; /* NULL: none; a journal only with peers */
    uint32_t links_max;                            /* connections; 0: 131072 */
    const struct ct_quotas *quotas; /* of many users, with accounts; NULL: none of these. Copied */
    const struct ct_clock *clock;   /* NULL: the machine's */
    const struct ct_log *log;       /* NULL: silent */
    const struct ct_log *audit;     /* orders and refusals, a record each; NULL: none */

    /* A newer daemon has taken over the journal; `why` has the sentence. This server sends nothing
     * any more and must be stopped, from the callback or later. May be NULL without a journal. */
    void (*on_fenced)(void *user, const struct ct_error *why);

    /* An event of a job has been noted. NULL: nobody wants to know. */
    void (*on_event)(void *user, const struct ct_service_event *event);
    void *user;
};

/* Replay the journal, bind and listen. On failure all is released and `err` names address and
 * reason; CT_EFENCED when another daemon has the journal, CT_EINUSE when the address is in use. */
int ct_rdzv_server_start(struct ct_rdzv_server **ret_server, uv_loop_t *loop,
                         const struct ct_rdzv_server_options *options, struct ct_error *err);

/* Return the endpoint that listener `index` got, as agents name it ("127.0.0.1:40123",
 * "unix:/run/x"). */
const char *ct_rdzv_server_endpoint(const struct ct_rdzv_server *server, size_t index);

/* Reload key file, key ring and certificates: new links need a key of now. Open links continue,
 * but those of keys that were taken out of the ring or changed, or of certificates that the CA
 * of now has not signed or has revoked. 0; a code of ct_key_ring_load with the sentence: the
 * keys of before stay in use. A no-op without keys. */
int ct_rdzv_server_reload(struct ct_rdzv_server *server, struct ct_error *err);

/* Close listeners and connections and free the server; `stopped` (may be NULL) is called last. */
void ct_rdzv_server_stop(struct ct_rdzv_server *server, void (*stopped)(void *context),
                         void *context);

/* Does it serve? One without a replica always does. */
bool ct_rdzv_server_leads(const struct ct_rdzv_server *server);

/* See ct_holder_nodes_known; for servers with a replica. */
void ct_rdzv_server_nodes_known(struct ct_rdzv_server *server, bool down, const char *text);

/* See ct_holder_duty and ct_holder_yield. One without a replica is needed; `text` says why. */
enum ct_holder_duty ct_rdzv_server_duty(struct ct_rdzv_server *server, char *text, size_t room);
void ct_rdzv_server_yield(struct ct_rdzv_server *server);

/* Are all who hold the record known to be dead, this server being none of them? */
bool ct_rdzv_server_is_orphan(const struct ct_rdzv_server *server);

/* The record lives there: wait to be added to its holders, and give up any other. What to offer to
 * the one that leads; valid as long as the server. For servers with a replica. */
struct ct_msg_offer ct_rdzv_server_follow(struct ct_rdzv_server *server,
                                          const struct ct_msg_voters *voters);

/* Return the number of jobs, of those that are not over and have nodes, and of connections. */
size_t ct_rdzv_server_jobs(const struct ct_rdzv_server *server);
size_t ct_rdzv_server_running(const struct ct_rdzv_server *server);
size_t ct_rdzv_server_links(const struct ct_rdzv_server *server);

/* Append one line of text a job that `reader` may see; of one that does not lead, who does. */
void ct_rdzv_server_describe(const struct ct_rdzv_server *server, const struct ct_grant *reader,
                             struct ct_buf *out);

/* An order of the page. */
struct ct_rdzv_order_of {
    const char *job;
    const char *peer;             /* whose it is: his address, ... */
    const struct ct_grant *grant; /* ... and what his key allows, which was looked at. Copied */
    const struct ct_msg_admin *admin;
};

/* Carry out an operator's order for a job, as one who has the key of the server: `on_answer` is
 * called once, with 0 and the answer or a code and its sentence, from here or later, at the latest
 * when the server stops. 0; otherwise it is not called: CT_ELIMIT when all links are taken,
 * CT_ENOMEM, CT_ECLOSED for a server that stops. */
int ct_rdzv_server_order(struct ct_rdzv_server *server, const struct ct_rdzv_order_of *order,
                         void (*on_answer)(void *context, int code, const char *text, size_t size),
                         void *context);

/* Have a refusal of the page in the audit log: of who is at the address `peer`. */
void ct_rdzv_server_audit(struct ct_rdzv_server *server, const char *peer,
                          const struct ct_service_deed *deed);

/* Return the keys that it accepts; NULL: none. Valid until the next reload. */
struct ct_key_ring *ct_rdzv_server_ring(const struct ct_rdzv_server *server);

/* Return whether they are those of a file: several users' then. */
bool ct_rdzv_server_has_ring_file(const struct ct_rdzv_server *server);

/* Return the service, for those who show it; NULL: this server does not lead now. */
const struct ct_service *ct_rdzv_server_service(const struct ct_rdzv_server *server);

/* Somebody looks at the service: see ct_service_look. */
void ct_rdzv_server_look(struct ct_rdzv_server *server);

/* Return the time by which the service counts. */
uint64_t ct_rdzv_server_now_ms(const struct ct_rdzv_server *server);

#endif
