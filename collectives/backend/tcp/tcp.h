/* The engine of backend tcp: collectives in pipeline steps (waves, pipelined.h) over a full mesh of
 * connections.
 *
 * Data goes straight from and into the caller's buffers. Both ends of a connection list their
 * messages in the same order, wave by wave, so bytes need no labels: only the first message of a
 * call between two ranks, in each direction, has a header, by which they compare their calls.
 * Several waves are listed at a time, and a message is sent as soon as its turn may start
 * (in_flight.h), so that the wire is busy while this rank reduces. */
#ifndef CT_COLL_TCP_H
#define CT_COLL_TCP_H

#include "backend/message/handshake.h"
#include "backend/message/in_flight.h"

enum { CT_TCP_NONE = -1 };

/* One message of a listed wave, or the part of it that goes over one connection. */
struct ct_tcp_move {
    int peer;
    bool out;
    int next; /* in its queue, or in the list of those that are free */
    struct ct_wave_turn turn;
    size_t header_left;
    size_t left;
    char *data; /* the next byte to go, or to come */
    unsigned char header[CT_GREETING_BYTES];
};

/* Of one connection and direction. */
struct ct_tcp_queue {
    int first, last; /* CT_TCP_NONE: empty */
};

struct ct_tcp {
    int rank, size;
    int listener;            /* while the group forms; then -1 */
    int bell;                /* an eventfd: somebody wants this thread awake */
    int rails;               /* connections of a pair that its collectives share */
    int lanes;               /* all connections of a pair */
    int *fds;                /* [lane][peer] */
    struct ct_tcp_tls **tls; /* [lane][peer]; NULL: in clear */

    /* the collective under way */
    bool busy;
    uint64_t call; /* counts them */
    struct ct_wave wave;
    struct ct_window window;
    struct ct_tcp_queue *queues; /* [out, in][rail][peer] */
    struct ct_tcp_move *moves;
    int free_move;
    uint64_t *greeted; /* [out, in][peer]: the last call whose header was listed */

    unsigned char *headers; /* of the messages that are coming in, one a peer */
    short *wanted;          /* [lane][peer]: the poll events that would help */
    size_t silence_ms;      /* tcp_silence.h */
    uint64_t asked_ns;      /* when the kernel was asked last */
    int lost;               /* a peer that is silent; or -1 */
    struct pollfd *polls;
};

/* CT_ECLOSED with its sentence; `error` is an errno, 0: an orderly end. */
int ct_tcp_closed(int peer, int error, struct ct_error *err);

/* One attempt to move header and data on a lane; counts what is left down. 1 all moved, 0 not yet,
 * or CT_ECLOSED. */
int ct_tcp_attempt(struct ct_tcp *tcp, int lane, struct ct_tcp_move *move, struct ct_error *err);

/* As ct_backend.progress. */
int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);
int ct_tcp_transfer(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);

#endif
