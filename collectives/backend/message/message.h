/* The engine of backends ucx and mpi: collectives in pipeline steps (waves, pipelined.h), and send
 * and recv, over a transport that carries whole messages between any two ranks of a
 * group, those of one pair, direction and channel (lane) in the order in which they were posted.
 *
 *   first message of a call between two ranks, in each direction     handshake, then short data
 *   long data, and all that follows                                  data alone
 *
 * A receiver has room for the longest first message, whatever it expects: a mismatch is found by
 * the handshake before data of another size could do harm. A group that fails sends a final error
 * message on a channel of its own, where each member always listens. A leaving member sends the
 * number of messages that it has sent and taken: earlier ones are waited for, even if they arrive
 * after it, and a member that waits for more fails at once.
 *
 * A transport may buffer messages without a receiver yet; so that a rank that runs ahead cannot
 * fill another's memory, every 16th call waits until the other end has taken its handshake. */
#ifndef CT_COLL_MESSAGE_H
#define CT_COLL_MESSAGE_H

#include "backend/message/handshake.h"
#include "backend/message/pipelined.h"

#include <stdatomic.h>

enum ct_post_lane {
    CT_POST_COLLECTIVE,
    CT_POST_TRANSFER,
    CT_POST_DATA_LANES,
    CT_POST_CONTROL = CT_POST_DATA_LANES,
    CT_POST_LANES
};

enum ct_peer_message_state { CT_PEER_MESSAGE_UNUSED, CT_PEER_MESSAGE_OPEN, CT_PEER_MESSAGE_OVER };

/* A message on its way. Who posts it fills the first part; it stays where it is until it is over.
 */
struct ct_peer_message {
    enum ct_post_lane lane;
    int peer; /* a rank of the group; what is received on CT_POST_CONTROL may be from anyone: -1 */
    bool out;
    bool taken;      /* going out: over only when the other end has taken it up */
    uint64_t number; /* counts those of its lane, direction and peer; from 1 */
    char *data;
    size_t bytes; /* coming in: at most */

    /* the transport's */
    _Atomic int state;
    int code; /* once it is over: 0, or CT_ECLOSED when the peer is gone */
    void *request;
    void *owner;
};

/* One thread calls, but messages may be completed by another: it writes their state last. */
struct ct_message_transport {
    void (*post)(void *context, struct ct_peer_message *message);
    /* Progress sends and receives. */
    void (*turn)(void *context);
    /* Return whether it is over. Polled only after a turn. */
    bool (*over)(void *context, struct ct_peer_message *message);
    /* Nobody waits for it any more: when this returns its memory is not touched again. Other groups
     * are not disturbed, unless it is long and goes out. */
    void (*drop)(void *context, struct ct_peer_message *message);
    /* Discard messages for this group without a receiver. */
    void (*drain)(void *context);
    /* Sleep until something may have come; for connecting. */
    void (*rest)(void *context, uint64_t timeout_ns);
    /* How long a group that has failed waits for long messages that go out, while its round goes
     * on, before it drops them: its error is told only then. */
    uint64_t lent_ns;
    /* How long a member stays that was told of the failure by another: who knows why goes first. */
    uint64_t linger_ns;
};

/* Messages of one lane, direction and peer. */
struct ct_post_tally {
    uint64_t posted, over;
};

/* A leaving member's counts: by lane, how many it has sent to this one and taken from it. */
struct ct_post_left {
    bool left;
    uint64_t sent[CT_POST_DATA_LANES], taken[CT_POST_DATA_LANES];
};

struct ct_post_move {
    int peer;
    bool out, over;
    bool greets;  /* head is part of it, and has not been read yet */
    char *data;   /* where data that comes with the greeting goes */
    size_t bytes; /* of the data */
    unsigned char *slot;
    struct ct_peer_message head, body;
};

struct ct_post {
    const struct ct_message_transport *transport;
    void *context;
    const struct ct_job *job;
    struct ct_wave wave;
    uint64_t call; /* counts collectives */
    struct ct_post_move *moves;
    int move_count;
    struct ct_post_move *transfers;  /* [out, in][peer] */
    uint64_t *greeted;               /* [out, in][peer]: the last call that was greeted */
    uint64_t *calls;                 /* [lane][peer]: greetings sent */
    unsigned char *slots;            /* [lane][out, in][peer]: first messages */
    struct ct_peer_message *control; /* to each peer, and at [rank] from anyone */
    struct ct_post_tally *tallies;   /* [lane][out, in][peer] */
    struct ct_post_left *left;       /* by rank */
    bool met, failed;
    bool told; /* by another member, that the group has failed */
};

/* 0 or CT_ENOMEM; to be given to _deinit in either case. The transport is `context`'s. */
int ct_post_init(struct ct_post *post, const struct ct_setup *setup,
                 const struct ct_message_transport *transport, void *context);

/* Nothing is in flight any more (ct_post_drop), or it never was. */
void ct_post_deinit(struct ct_post *post);

/* Exchange a handshake with each member, until the setup's deadline. */
int ct_post_meet(struct ct_post *post, const struct ct_setup *setup, struct ct_error *err);

/* As the functions of struct ct_backend. */
int ct_post_progress(struct ct_post *post, struct ct_task *task, struct ct_error *err);
int ct_post_missing(const struct ct_post *post, const struct ct_task *task);
void ct_post_fail(struct ct_post *post, int code);

/* Drop all that is in flight; sends get a short time. */
void ct_post_drop(struct ct_post *post);

#endif
