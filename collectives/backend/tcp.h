/* The engine of backend tcp: collectives in waves (wave.h) over a full mesh of connections.
 *
 * All sends and receives of a wave run at once, straight from and into the caller's buffers. Both
 * ends of a connection list the messages of a wave in the same order, so bytes need no labels: only
 * the first message of a call between two ranks, in each direction, carries a header, by which they
 * compare their calls. */
#ifndef CT_COLL_TCP_H
#define CT_COLL_TCP_H

#include "backend/greeting.h"
#include "backend/wave.h"

/* One message of the current wave. */
struct ct_tcp_move {
    int peer;
    bool out;
    bool over;
    size_t header_left;
    size_t left;
    char *data; /* the next byte to go, or to come */
    unsigned char header[CT_GREETING_BYTES];
};

struct ct_tcp {
    int rank, size;
    int listener; /* while the group forms; then -1 */
    int *fds;     /* [lane][peer] */

    /* the collective under way */
    bool busy;
    uint64_t call; /* counts them */
    struct ct_wave wave;
    struct ct_tcp_move *moves;
    int move_count;
    uint64_t *greeted; /* [out, in][peer]: the last call whose header was listed */
    char *scratch;     /* two sets of slots */
    const void **sources;
    double *factors; /* of a premultiplied sum, by rank */

    unsigned char *headers; /* of the messages that are coming in, one a peer */
    short *wanted;          /* [lane][peer]: the poll events that would help */
    struct pollfd *polls;
};

/* One attempt to move header and data on a lane; counts what is left down. 1 all moved, 0 not yet,
 * or CT_ECLOSED. */
int ct_tcp_attempt(struct ct_tcp *tcp, int lane, struct ct_tcp_move *move, struct ct_error *err);

/* As ct_backend.progress. */
int ct_tcp_collective(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);
int ct_tcp_transfer(struct ct_tcp *tcp, struct ct_task *task, struct ct_error *err);

#endif
