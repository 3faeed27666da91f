/* The hosts of one job in virtual time: on each a real holder, a real member and its endpoints, as
 * a ctrun has them. Host 0 listens at the job's endpoint. Messages take 1 ms and arrive in order.
 * hosts.c: the hosts, hosts_net.c: the network between them. */
#ifndef TESTS_RDZV_HOSTS_H
#define TESTS_RDZV_HOSTS_H

#include "rendezvous/client/endpoints.h"
#include "rendezvous/client/member.h"
#include "rendezvous/holder/holder.h"

enum {
    HOSTS = 5,
    HOSTS_CONNS = 4096,
    HOSTS_LINKS = 16,
    HOSTS_LEASE_MS = 2000,
    HOSTS_USER_TIMEOUT_MS = 5000
};

enum conn_kind { CONN_AGENT, CONN_REPLICA, CONN_ENDPOINT };

/* A connection, never used again. */
struct conn {
    enum conn_kind kind;
    struct host *from, *to;       /* who dialled whom */
    uint64_t from_life, to_life;  /* of these; another one knows nothing of it */
    bool open;                    /* `to` has it */
    bool answered;                /* `from` has it */
    bool closed;                  /* by one of them */
    bool from_closed, to_closed;  /* told */
    struct ct_holder_conn holder; /* of `to` */
};

/* To another replica. */
struct link {
    uint64_t id;
    char address[CT_REPLICA_ADDRESS_BYTES];
    struct conn *conn; /* NULL: none */
    bool was_open;
    uint64_t dial_ms;
};

struct host {
    struct hosts *world;
    uint32_t index;
    uint64_t life; /* grows with each start */
    bool alive;
    bool holds; /* `holder` is there */
    uint64_t frozen_until_ms;
    bool astray; /* its agent finds nobody who leads */
    struct ct_id id;
    char name[16], address[32];
    struct ct_holder holder;
    struct ct_member member;
    struct ct_endpoints endpoints;
    struct ct_agent_options options;
    char endpoint[CT_ENDPOINT_TEXT]; /* being tried */
    struct conn *agent;              /* NULL: none */
    struct conn *there;              /* to the endpoint */
    uint64_t dial_there_ms;
    struct link links[HOSTS_LINKS];
    size_t link_count;
    uint64_t round;                      /* the last that began here */
    uint32_t asked;                      /* how often whether nodes are down ... */
    size_t asked_count;                  /* ... so many at the last time ... */
    char asked_host[16];                 /* ... of which this is the first */
    bool released;                       /* from the job */
    uint32_t told_count;                 /* VOTERS that came */
    uint64_t told_epoch;                 /* of the last */
    char told[CT_REPLICA_ADDRESS_BYTES]; /* its first address */
    char refusal[512];                   /* the last REFUSE */
};

/* What is under way. */
struct flight {
    struct flight *next;
    uint64_t at_ms, order;
    struct conn *conn;
    bool to_dialler;
    enum flight_kind {
        FLIGHT_DIAL,
        FLIGHT_ANSWER,
        FLIGHT_REFUSED,
        FLIGHT_TIMEOUT,
        FLIGHT_MESSAGE,
        FLIGHT_CLOSE,
        FLIGHT_SILENCE,
    } kind;
    size_t size;
    unsigned char frame[];
};

struct hosts {
    uint64_t now_ms, next_order;
    struct host list[HOSTS];
    uint32_t count;
    bool cut[HOSTS][HOSTS];
    struct conn conns[HOSTS_CONNS];
    size_t conn_count;
    struct flight *flights;
};

/* `count` hosts, the first of which founds the record; `lowest` nodes make a round. */
void hosts_init(struct hosts *world, uint32_t count, uint32_t lowest);
void hosts_deinit(struct hosts *world);

void hosts_run(struct hosts *world, uint64_t for_ms);

/* Its process ends, its kernel closes and refuses connections. */
void hosts_kill(struct hosts *world, uint32_t index);
void hosts_start(struct hosts *world, uint32_t index);

/* Nothing goes between `index` and the others; nobody is told. */
void hosts_cut(struct hosts *world, uint32_t index, bool cut);

/* It does nothing for a while. */
void hosts_freeze(struct hosts *world, uint32_t index, uint64_t for_ms);

/* The host that leads, -1 for none or several. */
int hosts_leader(const struct hosts *world);

/* The voters that `index` knows, one bit a host; those of other lives are bit 31. */
uint32_t hosts_voters(const struct hosts *world, uint32_t index);

/* ---- between the two files ---- */

extern const char hosts_endpoint[]; /* of the job */

struct conn *hosts_dial(struct host *from, enum conn_kind kind, const char *address);
void hosts_give_up_after(struct conn *conn, uint64_t after_ms); /* unless it opens */
void hosts_put(struct conn *conn, bool to_dialler, const struct ct_message *message);
void hosts_hang_up(struct conn *conn);

/* What is under way and arrives next: NULL, none; when, UINT64_MAX: a cut is in its way. */
struct flight *hosts_first_flight(struct hosts *world, uint64_t *ret_ready_ms);
void hosts_arrive(struct hosts *world, struct flight *flight); /* and free it */

void hosts_dial_next(struct host *host);
void hosts_note(struct host *host, const struct ct_message *message); /* that came for its agent */

#endif
