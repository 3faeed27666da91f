/* Real sockets in one loop: a server and its clients as the tests see them. */
#ifndef TESTS_UNIT_NET_NET_TEST_H
#define TESTS_UNIT_NET_NET_TEST_H

#include "net/conn_uv.h"
#include "net/listen_uv.h"

#include <stdbool.h>

enum { ENDS = 256 };

/* The events of one connection. */
struct end {
    struct ct_conn *conn;                            /* NULL once closed */
    int opened, closed, messages, waits, handshakes; /* handshakes: that on_waiting told of */
    uint64_t last_step; /* of the last HEARTBEAT, or generation of the last WELCOME */
    size_t last_size;   /* of the last STORE_SET's value */
    struct ct_error why;
    char waiting[512];
    bool accepted; /* as the last on_waiting of `waits` said */
    bool echo;     /* answer each message with WELCOME */
};

/* One loop with one listener; `ends` are the accepted connections in order of on_open. */
struct net {
    uv_loop_t loop;
    uv_timer_t guard;
    struct ct_listener *listener;
    struct end ends[ENDS];
    int accepted;
    int refused;
    struct ct_error refusal; /* the last one reported */
    bool echo;
    char directory[64]; /* of the unix socket; "" */
};

/* The fixture of a test: a fresh loop; net_tear_down closes everything and checks that nothing is
 * left in the loop. */
extern struct net net;
void net_set_up(void);
void net_tear_down(void);

/* Listen on `endpoint`; on 127.0.0.1, any port; on a unix socket in a new directory. */
void net_listen_on(const struct ct_endpoint *endpoint, const struct ct_listener_options *options);
void net_listen(const struct ct_listener_options *options);
void net_listen_unix(const struct ct_listener_options *options);
const struct ct_endpoint *net_endpoint(void);

/* Connect `end` to the listener. */
void net_connect(struct end *end, const struct ct_conn_options *options);
void net_connect_to(struct end *end, const struct ct_endpoint *endpoint,
                    const struct ct_conn_options *options);

/* Options of an agent's and of a server's end; the server's wants `key` when it is not NULL. */
struct ct_conn_options net_client(const struct ct_key *key);
struct ct_listener_options net_server(const struct ct_key *key);

/* Send HEARTBEAT (from an agent's end). */
int net_heartbeat(struct end *end, uint64_t step);

/* Is it OPEN and not yet closing? */
bool net_is_open(const struct ct_conn *conn);

/* The silence limit of an OPEN connection from now on. */
void net_set_idle(struct ct_conn *conn, uint32_t idle_ms);

/* Have an accepted connection be another account's from now on: on loopback all are one user's. */
void net_set_account(struct ct_conn *conn, uint64_t account);

/* Turn the loop until the condition holds; the test fails after 20 s. */
#define NET_UNTIL(condition)                          \
    do {                                              \
        while (!(condition))                          \
            net_turn(__FILE__, __LINE__, #condition); \
    } while (0)
void net_turn(const char *file, int line, const char *condition);

/* Let `ms` pass in the loop, for rules about time. */
void net_pass(uint64_t ms);

/* A plain blocking socket connected to the listener, for peers that misbehave. */
int net_raw(void);

/* What a client with `key` says first, into a new buffer. */
void net_make_hello(const struct ct_key *key, struct ct_buf *ret_hello);

/* Turn the loop until the raw socket has the peer's end of stream (or reset); what came before is
 * in `text` (terminated); returns its size. */
size_t net_raw_read_all(int fd, char *text, size_t room);

#endif
