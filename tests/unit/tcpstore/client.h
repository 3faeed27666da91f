/* TCPStore clients of our own, written from the description of the bytes, for stores without
 * sockets: requests are composed, answers are taken apart, both with plain numbers as on the wire.
 */
#ifndef TESTS_UNIT_TCPSTORE_CLIENT_H
#define TESTS_UNIT_TCPSTORE_CLIENT_H

#include "base/bytes.h"
#include "rendezvous/tcpstore/tcpstore.h"

#include <stddef.h>
#include <stdint.h>

/* Codes from PyTorch 2.2 on, and of 1.9 to 2.0. */
enum {
    VALIDATE = 0,
    SET = 1,
    COMPARE_SET = 2,
    GET = 3,
    ADD = 4,
    CHECK = 5,
    WAIT = 6,
    GETNUMKEYS = 7,
    DELETE_KEY = 8,
    APPEND = 9,
    MULTI_GET = 10,
    MULTI_SET = 11,
    CANCEL_WAIT = 12,
    PING = 13,
    QUEUE_PUSH = 14,
    QUEUE_POP = 15,
    QUEUE_LEN = 16,
    LIST_KEYS = 17,
    BARRIER = 18,

    OLD_SET = 0,
    OLD_COMPARE_SET = 1,
    OLD_GET = 2,
    OLD_ADD = 3,
    OLD_CHECK = 4,
    OLD_WAIT = 5,
    OLD_GETNUMKEYS = 6,
    OLD_WATCH_KEY = 7,
    OLD_DELETE_KEY = 8,
};

/* ---- composing; each appends to `to` ---- */

/* One request: its code, then fields by `format`: 'b' text as bytes behind their length (const char
 * *), 'n' i64 (int64_t), 'm' u32 (unsigned). A count is an 'n'. */
void compose(struct ct_buf *to, int code, const char *format, ...);

/* VALIDATE with the right magic. */
void compose_hello(struct ct_buf *to);

/* ---- a store and its clients ---- */

struct client {
    struct ct_tcpstore_client *core; /* NULL: broken, and left */
    struct ct_buf got;               /* what it was sent and has not looked at */
    struct ct_error why;             /* it was broken */
};

enum { CLIENTS = 16 };

struct rig {
    struct ct_tcpstore *store;
    struct client clients[CLIENTS];
    int count;
    uint64_t now_ms;
};

extern struct rig rig;

/* Open a store with default limits, or with those given; closing checks for leaks. */
void rig_open(const struct ct_tcpstore_limits *limits);
void rig_close(void);

/* A new client from `host`, which has said nothing; one that has shaken hands; such a one from
 * 10.0.0.1; one of 1.13. */
struct client *join_silent(const char *host);
struct client *join_from(const char *host);
struct client *join(void);
struct client *join_old(void);

/* Send bytes of a client; all clients read the core's output for them. */
void send_bytes(struct client *client, const void *data, size_t size);

/* compose() and send_bytes(). */
void ask(struct client *client, int code, const char *format, ...);

void leave(struct client *client);

/* Deliver the core's output to its clients. */
void rig_collect(void);

/* ---- taking answers apart ---- */

int got_u8(struct client *client);
uint32_t got_u32(struct client *client);
int64_t got_i64(struct client *client);

/* Bytes behind their length; terminated, static, until the next but three. */
const char *got_bytes(struct client *client);

/* Return whether no further bytes were sent. */
bool got_nothing(const struct client *client);

/* The contents of a store, as counts. */
struct counts {
    size_t bytes;     /* charged */
    uint32_t clients; /* that have joined and not left */
    uint32_t silent;  /* of them: nothing came yet */
    uint32_t waiting;
};
struct counts counts_of(const struct ct_tcpstore *store);

#endif
