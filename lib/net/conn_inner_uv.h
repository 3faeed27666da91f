/* The inside of a connection, shared by conn_uv.c, dial_uv.c and listen_uv.c.
 *
 *   dial_uv.c     finds and connects the stream (client)        -> ct_conn_begin
 *   listen_uv.c   accepts the stream (server)                   -> ct_conn_begin
 *   conn_uv.c     handshake, messages in, deadlines, the end
 *   conn_out_uv.c messages out, the orderly end
 *   conn_proof_uv.c TLS: by what it is secured, what its peer has proved
 *   munge_uv.c    a credential of munge is sealed (client) or opened (server) by a worker */
#ifndef CT_NET_CONN_INNER_UV_H
#define CT_NET_CONN_INNER_UV_H

#include "net/address.h"
#include "net/conn_uv.h"
#include "net/pending_uv.h"
#include "net/tls.h"
#include "net/turns_uv.h"
#include "wire/frame.h"

struct ct_dial;
struct ct_munge_work;

enum ct_conn_state {
    CT_CONN_CONNECTING, /* `dial` works; io may be absent */
    CT_CONN_HANDSHAKE,  /* TLS; a client may still fall back to CONNECTING */
    CT_CONN_OPEN,
    CT_CONN_CLOSING, /* write out, shut down, wait for the peer's end; nothing is delivered */
    CT_CONN_ENDED,   /* handles close, then on_close and free */
};

/* Bytes of the buffer that reads go through: one half from the network, one half decrypted. */
enum { CT_CONN_CHUNK = 64 << 10 };

struct ct_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    bool io_exists; /* initialised, and its close callback has not run */
    uv_timer_t timer;
    bool timer_exists;
    uv_loop_t *loop;

    enum ct_conn_state state;
    struct ct_conn_callbacks callbacks;
    void *user;
    bool announced; /* the owner knows it: on_close is due */
    struct ct_conn_options options;
    struct ct_error why; /* of the end */

    struct ct_dial *dial; /* client, until OPEN */
    uv_connect_t connect;
    struct ct_tls *tls;          /* NULL in clear, and on a client until `munge` is done */
    struct ct_munge_work *munge; /* under way: nothing is read from the peer. NULL: none */

    struct ct_frame_reader reader;
    struct ct_arena lists; /* of the message being delivered */
    char *chunk;           /* 2 * CT_CONN_CHUNK; the listener's, or (client) its own */

    struct ct_buf plain;  /* a frame before encryption */
    struct ct_buf out;    /* collected */
    struct ct_buf flying; /* in `write` */
    uv_write_t write;
    bool writing;
    uv_shutdown_t shutdown;
    bool shut;
    uint32_t next_sequence;
    size_t charged; /* to options.budget */

    uint32_t flush_ms;    /* of CLOSING; 0: message_ms */
    uint64_t began_ms;    /* the state's begin: HANDSHAKE, OPEN, CLOSING */
    uint64_t message_ms;  /* when the message in progress began */
    uint64_t received_ms; /* the peer's last byte */
    bool spoke;           /* one has come */
    uint64_t armed_ms;    /* when the timer fires; 0: not armed */
    bool is_bound;        /* its hello was made with the key (TLS, on a server) */
    bool proven;          /* its first message has come */
    bool skipped;         /* on_skipped was called */

    char peer[CT_ENDPOINT_TEXT];

    struct ct_listener *listener;  /* server side */
    enum ct_place place;           /* among the listener's that have not proved themselves */
    struct ct_conn *older, *newer; /* there, in a list */
    uint32_t stranger_at;          /* there, among strangers */
    uint64_t account; /* whom its place is charged to: an address, a /64, a user of this machine */
    int64_t uid;      /* of a peer on this machine, as its listener knows it; -1: not asked */
    bool is_ours;     /* that user is this one, or root */
    uint64_t accepted_ms;

    struct ct_turns *turns;       /* its listener's */
    struct ct_turn_account *turn; /* of its account; NULL: it is not limited */
    bool waits_for_turn;          /* it does not read now; in a queue of the account: */
    int turn_queue;
    struct ct_conn *turn_before, *turn_behind;
};

/* Create a connection without a stream yet, its options filled up with the defaults. NULL without
 * memory. */
struct ct_conn *ct_conn_alloc(uv_loop_t *loop, const struct ct_conn_options *options,
                              const struct ct_conn_callbacks *callbacks, void *user);

/* By what a connection is secured: a client by its key, a server by the keys that it accepts. */
struct ct_conn_secret {
    const struct ct_key *key;
    struct ct_key_ring *ring;
};

/* Make its end of TLS (conn_proof_uv.c). 0; a code of ct_tls_new_client, ct_tls_new_server. */
int ct_conn_secure(struct ct_conn *conn, const struct ct_conn_secret *secret, struct ct_error *err);

/* Begin on the connected stream in `io`: enter HANDSHAKE (with a secret) or OPEN. Without one
 * (NULL) a peer on this machine must be this user's or root's. */
void ct_conn_begin(struct ct_conn *conn, const struct ct_conn_secret *secret);

/* End the connection at once, without a message to the peer. `why` is copied and prefixed with the
 * peer. */
void ct_conn_end(struct ct_conn *conn, const struct ct_error *why);

/* Close the stream while the connection lives on (a failed try); ct_dial_stream_closed follows. */
void ct_conn_drop_stream(struct ct_conn *conn);

/* Handle a libuv error of the stream, or UV_EOF. */
void ct_conn_stream_failed(struct ct_conn *conn, int status);

/* Go on reading, with what has come before first: a turn of its account has begun. */
void ct_conn_resume(struct ct_conn *conn);

/* Arm the timer for the state's next deadline or earlier. */
void ct_conn_arm(struct ct_conn *conn);

/* Go on with the handshake after `munge`. */
void ct_conn_shake_on(struct ct_conn *conn);

/* ---- conn_out_uv.c ---- */
/* Hand `out` to the kernel as far as it takes it, and the rest to one uv_write. */
void ct_conn_flush(struct ct_conn *conn);

/* Charge the budget with the bytes queued now; with 0 once the connection has `ended`. */
void ct_conn_charge(struct ct_conn *conn, bool ended);

/* Close with `why`: flush the queue, end the stream, and wait for the peer's end, because unread
 * bytes of the peer would make the kernel reset the connection and drop the last messages. */
void ct_conn_leave(struct ct_conn *conn, const struct ct_error *why);

/* ---- dial_uv.c ---- */
/* Handle a closed stream: retry or pause. */
void ct_dial_stream_closed(struct ct_dial *dial);
/* Retry after a handshake that failed in a way that another attempt may fix. */
void ct_dial_retry(struct ct_dial *dial, const struct ct_error *why);
/* End the dial, which frees itself. NULL is ignored. */
void ct_dial_end(struct ct_dial *dial);

/* ---- munge_uv.c ---- */
/* Works for the connections of a listener: few at once, so that workers are left for others. */
struct ct_munge_queue {
    uint32_t under_way;
    struct ct_munge_work *first, **end; /* those that wait */
};
void ct_munge_queue_init(struct ct_munge_queue *queue);
/* Have a client's credential sealed, or a server's peer's opened; ct_conn_shake_on or the end
 * follows. 0 or CT_ENOMEM, ... */
int ct_conn_seal(struct ct_conn *conn, const struct ct_key *key, struct ct_error *err);
int ct_conn_unseal(struct ct_conn *conn, struct ct_error *err);
/* Forget what is under way. */
void ct_conn_forget_munge(struct ct_conn *conn);

/* ---- listen_uv.c ---- */
/* Return its queue of credentials; the listener is there as long as one is under way. */
struct ct_munge_queue *ct_listener_munge(struct ct_listener *listener);
void ct_listener_hold(struct ct_listener *listener);
void ct_listener_release(struct ct_listener *listener);
/* Tell of the hello of a TLS client that holds the key, or copied it from one that does: `hello` is
 * the client's random number in it. */
void ct_listener_bound(struct ct_listener *listener, struct ct_conn *conn, uint64_t hello);
/* Return whether a peer that has proved no key may cost a handshake by certificate now: so many
 * a second of those that are not trusted. */
bool ct_listener_may_shake_hands(struct ct_listener *listener, const struct ct_conn *conn);
/* Mark a connection whose first message has arrived. */
void ct_listener_proven(struct ct_listener *listener, struct ct_conn *conn);
/* Return whether there are so many strangers that they are closed without a message. */
bool ct_listener_is_busy(const struct ct_listener *listener);
/* Forget a connection that is about to be freed. */
void ct_listener_gone(struct ct_listener *listener, struct ct_conn *conn);

#endif
