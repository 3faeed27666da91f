/* A relay from the inside: its state, shared by the side of the hub (relay_uv.c) and the side of
 * the clients (relay_line_uv.c). */
#ifndef CT_TCPSTORE_RELAY_STATE_UV_H
#define CT_TCPSTORE_RELAY_STATE_UV_H

#include "net/conn_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"
#include "rendezvous/tcpstore/tunnel_uv.h"

/* A client, and its stream to the hub. */
struct ct_line {
    struct ct_tunnel_stream stream;
    uv_tcp_t tcp;
    struct ct_tcpstore_relay *relay;
    struct ct_line *next, *prev; /* of all whose socket is open */
    uint64_t since_ms;           /* when it came */
    bool opened;                 /* the hub knows it */
    bool closed;                 /* the socket is being closed */
    bool gone;                   /* and its callback has run */
    bool reading;
    uv_write_t write;
    bool writing;
    struct ct_buf flying, out; /* in `write`, and behind that */
    size_t charged;            /* to the relay's `held` */
};

struct ct_tcpstore_relay {
    uv_loop_t *loop;
    uv_tcp_t tcp;
    uv_timer_t timer;   /* while `waiting` for a silent client to grow old */
    uv_timer_t silence; /* while there are silent ones: when to look at their age */
    unsigned handles;   /* whose close callback has not run */
    struct ct_tcpstore_relay_options options;
    struct ct_key key;
    char job[129];
    struct ct_endpoint endpoint;
    struct ct_id id;      /* by which the hub knows it again */
    struct ct_conn *conn; /* with the hub; NULL: none */
    bool conn_open;       /* and the hub has welcomed it */
    struct ct_tunnel tunnel;
    struct ct_line *lines, *oldest;
    uint32_t line_count, silent;
    size_t held;  /* for all clients */
    bool full;    /* that was the budget, and is not much less yet */
    bool woken;   /* it was: clients may be read again */
    bool waiting; /* libuv holds one accepted descriptor for us */
    bool stopped;
    char *input;
};

/* ---- relay_uv.c ---- */

/* Where streams go now; NULL: nowhere. */
static inline struct ct_conn *ct_relay_way(const struct ct_tcpstore_relay *relay)
{
    return relay->conn_open ? relay->conn : NULL;
}

/* Free, once it is stopped and all its handles are closed. */
void ct_relay_free(struct ct_tcpstore_relay *relay);

/* Take the connection that libuv holds, if it may come now. */
void ct_relay_admit(struct ct_tcpstore_relay *relay);

/* ---- relay_line_uv.c ---- */

/* Charge the bytes that are kept for this client now. */
void ct_line_charge(struct ct_line *line);

/* Close its socket. */
void ct_line_close(struct ct_line *line);

/* Forget a line whose number the hub has released, or whose hub is gone. */
void ct_line_forget(struct ct_line *line);

/* Handle the end of the client's connection: in order (NULL), or broken. */
void ct_line_end(struct ct_line *line, const struct ct_error *why);

/* Write to the client: at once, or when it reads again. */
void ct_line_write(struct ct_line *line, const unsigned char *data, size_t size);

/* Read from the client while the hub is connected and the tunnel has room. */
void ct_line_read(struct ct_line *line);

/* Resume reading from all clients, if the tunnel has room again. */
void ct_lines_wake(struct ct_tcpstore_relay *relay);

#endif
