/* The engine of backend tcp: collectives in pipeline steps (pipelined.h) over connections between
 * pairs of ranks, which are made when they are first needed (tcp_mesh.h).
 *
 * Data goes straight from and into the caller's buffers. Both ends of a connection list their
 * messages in the same order, step by step, so bytes need no labels: only the first message of a
 * call between two ranks, in each direction, has a header, by which they compare their calls.
 * Several steps are listed at a time, and a message is sent as soon as its chunk's phase may start
 * (in_flight.h), so that the wire is busy while this rank reduces. */
#ifndef CT_COLL_TCP_H
#define CT_COLL_TCP_H

#include "backend/message/call_header.h"
#include "backend/message/in_flight.h"

enum { CT_TCP_NONE = -1 };

/* One message of a listed step, or the part of it that goes over one connection. */
struct ct_tcp_move {
    int peer;
    bool out;
    int next; /* in its queue, or in the free list */
    struct ct_chunk_phase work;
    size_t header_left;
    size_t left;
    char *data; /* the next byte to send, or to receive */
    unsigned char header[CT_CALL_HEADER_BYTES];
};

/* The moves of one connection and direction. */
struct ct_tcp_queue {
    int first, last; /* CT_TCP_NONE: empty */
};

/* Indices of an array, each at most once, in ascending order: the first connection of a pair is
 * read before its other rails, for a member that fails says on it why. */
struct ct_tcp_list {
    int *at;
    int count;
    bool *has;
};

struct ct_tcp {
    int rank, size;
    int listener;            /* until the mesh has it; then -1 */
    int wakeup;              /* an eventfd: wakes the parked thread */
    int rails;               /* connections of a pair that its collectives share */
    int connections;         /* all connections of a pair */
    struct ct_mesh *mesh;    /* NULL: all connections are there, or the group has failed */
    uint64_t tended_ns;      /* when the mesh last took a step */
    int *fds;                /* [connection][peer]; CT_MESH_NONE, CT_MESH_COMING: not there */
    struct ct_tcp_tls **tls; /* [connection][peer], as they are used; NULL: in clear */
    char *name;              /* of the group in the job, for TLS */
    unsigned char *key;      /* of TLS */

    /* the collective under way */
    bool busy;
    uint64_t call; /* counts them */
    struct ct_pipelined pipelined;
    struct ct_in_flight window;
    struct ct_tcp_queue *queues; /* [out, in][rail][peer] */
    struct ct_tcp_list active;   /* of the queues: those that are not empty */
    struct ct_tcp_move *moves;
    int free_move;
    uint64_t *header_call; /* [out, in][peer]: the last call whose header was listed */

    unsigned char *headers;     /* of the messages that are coming in, one a peer */
    short *wanted;              /* [connection][peer]: the poll events that would help */
    struct ct_tcp_list waiting; /* of the connections: those that may want some */
    size_t silence_ms;          /* tcp_silence.h */
    uint64_t asked_ns;          /* when the kernel was last queried */
    int lost;                   /* a peer that is silent; or -1 */
    struct pollfd *polls;
};

void ct_tcp_list_add(struct ct_tcp_list *list, int index);
void ct_tcp_list_remove(struct ct_tcp_list *list, int place);

/* Return CT_ECLOSED with its sentence; `error` is an errno, 0: an orderly end. */
int ct_tcp_closed(int peer, int error, struct ct_error *err);

/* Try once to move header and data on a connection of the pair, and count down what is left; if it
 * is not there, ask for it. 1: all moved; 0: not yet; or an error, mostly CT_ECLOSED. */
int ct_tcp_attempt(struct ct_tcp *tcp, int connection, struct ct_tcp_move *move,
                   struct ct_error *err);

/* As ct_backend.progress. */
int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);
int ct_tcp_transfer(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);

#endif
