/* The inside of a mesh (tcp_mesh.h): tcp_mesh.c decides which connections are made, and waits;
 * tcp_pending.c takes one of them from the dial, or the call, to its admission. */
#ifndef CT_COLL_TCP_MESH_STATE_H
#define CT_COLL_TCP_MESH_STATE_H

#include "backend/tcp/tcp_mesh.h"

#include "base/number/rng.h"

enum { MESH_NETWORK_DOWN_S = 30 }; /* for how long the network may refuse while a group forms */

/* Dialled: CONNECTING, then HELLO_SENT, or BACKING_OFF until it is dialled again; accepted:
 * HELLO_AWAITED, then CONFIRM_AWAITED. OVER: to be freed. */
enum mesh_stage { OVER, CONNECTING, BACKING_OFF, HELLO_SENT, HELLO_AWAITED, CONFIRM_AWAITED };

/* A connection that is not in the mesh yet. */
struct mesh_pending {
    struct mesh_pending *next;
    int fd; /* none while it is BACKING_OFF */
    enum mesh_stage stage;
    bool dialled;
    int peer, connection; /* of one that was called, from its HELLO on */
    uint64_t at_ns;       /* of its stage: when it began; BACKING_OFF: when it is dialled again */
    uint64_t since_ns;    /* its first dial */
    unsigned dials;       /* so far */
    short found;          /* by the last poll */
    const char *why;      /* the last one did not succeed; NULL: none has failed */
    size_t have;          /* of `bytes`: what comes next */
    unsigned char bytes[CT_HELLO_BYTES], hello[CT_HELLO_BYTES], answer[CT_ANSWER_BYTES];
};

struct ct_mesh {
    struct ct_job *job;
    int rank, size;
    int connections; /* of a pair */
    int *fds;
    int open, all; /* connections */
    int listener;
    bool is_formed; /* from now on a refused dial is a member that has left */
    size_t silence_ms;
    struct ct_handshake handshake;
    unsigned char secret[CT_SECRET_BYTES];
    unsigned char *addresses; /* of all members, one behind the other */
    uint32_t *address_at;     /* where each begins, and the end of the last */
    struct ct_rng jitter;     /* so that not all dial again at once */
    struct mesh_pending *pending;
    int strangers; /* pending ones without a HELLO */
    struct pollfd *polls;
    size_t polls_room;
    uint64_t accept_ns;  /* no caller is accepted before */
    uint64_t refused_ns; /* since when callers cannot be accepted; 0: they can */
    int refused_error;   /* why */
};

/* The place of a connection in `fds`. */
static inline int *mesh_fd(const struct ct_mesh *mesh, int connection, int peer)
{
    return &mesh->fds[connection * mesh->size + peer];
}

/* ---- tcp_pending.c ---- */

/* Dial a connection that nothing is pending for. 0, or an error with its sentence. */
int mesh_dial(struct ct_mesh *mesh, int connection, int peer, struct ct_error *err);

/* Dial again if it is time, or end what has been dialled for too long. */
int mesh_redial(struct ct_mesh *mesh, struct mesh_pending *pending, uint64_t now_ns,
                struct ct_error *err);

/* Take up somebody who has called, and read at once what was sent. */
void mesh_take_call(struct ct_mesh *mesh, int fd, uint64_t now_ns);

/* Something may be read, or written while it is CONNECTING. An error ends the attempt; none comes
 * of those that have called. */
int mesh_advance(struct ct_mesh *mesh, struct mesh_pending *pending, struct ct_error *err);

/* What the network said, and what would help. */
void mesh_describe(int error, char *text, size_t room);

/* A member whose address has not answered in time: CT_ETIMEOUT, with that and the above. */
int mesh_unanswered(const struct ct_mesh *mesh, int peer, struct ct_error *err);

/* End it; its place is free again. */
void mesh_drop(struct ct_mesh *mesh, struct mesh_pending *pending);

#endif
