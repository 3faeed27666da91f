/* The engine of backends ucx and mpi: collectives in pipeline steps (pipelined.h), and send and
 * recv, over a transport that carries whole messages between any two ranks of a group, those of one
 * pair, direction and channel in the order in which they were posted.
 *
 *   first message of a call between two ranks, in each direction     header, then short data
 *   long data, and all that follows                                  data alone
 *
 * A receiver has room for the longest first message, whatever it expects: the header shows a
 * mismatch before data of another size could do harm. A group that fails sends a final error
 * message on a channel of its own, where each member always listens. A leaving member sends the
 * number of messages that it has sent and received: its peers wait for earlier ones, even if they
 * arrive after it, and a member that waits for more fails at once.
 *
 * Over a transport that makes connections, a group of more than tcp_direct_world ranks connects its
 * neighbours in the ring while it forms, and any other pair when a call first needs it: each end
 * then sends the other an empty control message. A member that fails or leaves tells those that it
 * has been in contact with, and sends the store the list of them: whoever waits for a member that
 * it has not heard from asks there now and then whether that one is gone.
 *
 * A transport may buffer messages that no receive is posted for; so that a rank that runs ahead
 * cannot fill another's memory, every 16th call waits until its header has been received. */
#ifndef CT_COLL_MESSAGE_H
#define CT_COLL_MESSAGE_H

#include "backend/message/call_header.h"
#include "backend/message/pipelined.h"

#include <stdatomic.h>

enum ct_engine_channel {
    CT_CHANNEL_COLLECTIVE,
    CT_CHANNEL_TRANSFER,
    CT_DATA_CHANNELS,
    CT_CHANNEL_CONTROL = CT_DATA_CHANNELS,
    CT_CHANNELS
};

enum ct_peer_message_state { CT_PEER_MESSAGE_UNUSED, CT_PEER_MESSAGE_OPEN, CT_PEER_MESSAGE_DONE };

/* A message under way. The poster fills the first part, and keeps the struct in place until the
 * message is done. */
struct ct_peer_message {
    enum ct_engine_channel channel;
    int peer; /* a rank of the group; -1: receive from any, on CT_CHANNEL_CONTROL only */
    bool out;
    bool synchronous; /* a send: done only when the receiver has matched it */
    uint64_t number;  /* among those of its channel, direction and peer; from 1 */
    char *data;
    size_t bytes; /* a receive: at most */

    /* the transport's */
    _Atomic int state;
    int code; /* once it is done: 0, or CT_ECLOSED when the peer is gone */
    void *request;
    void *owner;
};

/* How messages move. One thread calls; another may complete messages: it writes their state
 * last. */
struct ct_message_transport {
    /* Make the connection with `peer`, before the first message in either direction; does not wait.
     * 0, or an error with its sentence. NULL: none is needed, and all members are in contact from
     * the start. */
    int (*connect)(void *context, int peer, struct ct_error *err);
    /* Start a send or a receive. Never blocks. */
    void (*post)(void *context, struct ct_peer_message *message);
    /* Progress sends and receives. */
    void (*progress)(void *context);
    /* Return whether the message is done. Polled only after `progress`. */
    bool (*is_done)(void *context, struct ct_peer_message *message);
    /* Cancel a message: its memory is not touched again after the return. Other groups are not
     * disturbed, unless it is a long send. */
    void (*cancel)(void *context, struct ct_peer_message *message);
    /* Discard messages for this group that no receive is posted for. */
    void (*drain)(void *context);
    /* Sleep until something may have arrived, at most `timeout_ns`; for connecting. */
    void (*wait)(void *context, uint64_t timeout_ns);
    /* How long a failed group waits for its long sends, while its round continues, before it
     * cancels them; it returns the error only then. */
    uint64_t send_grace_ns;
    /* How long a member stays that another one notified of the failure, so that the member that
     * knows the cause ends first. */
    uint64_t linger_ns;
};

/* Counts of messages of one channel, direction and peer. */
struct ct_engine_counts {
    uint64_t posted, done;
};

/* What a leaving member reports: how many messages it has sent to this one and received from it, by
 * channel. */
struct ct_engine_departure {
    bool left;
    uint64_t sent[CT_DATA_CHANNELS], received[CT_DATA_CHANNELS];
};

/* With each member: CONNECTED when this one has connected and sent a control message, HEARD when
 * one has come. */
enum ct_engine_contact { CT_CONTACT_CONNECTED = 1, CT_CONTACT_HEARD = 2 };

/* The queries to the store about members that were never heard from. */
struct ct_engine_queries {
    uint64_t next_ns, pause_ns;
    int turn; /* among the moves: which peer is next */
};

struct ct_engine_move {
    int peer;
    bool out, done;
    bool has_header; /* head is part of it, and has not been read yet */
    char *data;      /* where data that comes with the header goes */
    size_t bytes;    /* of the data */
    unsigned char *slot;
    struct ct_peer_message head, body;
};

struct ct_engine {
    const struct ct_message_transport *transport;
    void *context;
    const struct ct_job *job;
    struct ct_pipelined pipelined;
    uint64_t call; /* counts collectives */
    struct ct_engine_move *moves;
    int move_count;
    struct ct_engine_move *transfers;       /* [out, in][peer] */
    uint64_t *header_call;                  /* [out, in][peer]: the last call that has sent one */
    uint64_t *calls;                        /* [channel][peer]: headers sent */
    unsigned char *slots;                   /* [channel][out, in][peer]: first messages */
    struct ct_peer_message *control;        /* to each peer, and at [rank] from anyone */
    struct ct_engine_counts *counts;        /* [channel][out, in][peer] */
    struct ct_engine_departure *departures; /* by rank */
    unsigned char *contacts;                /* by rank: enum ct_engine_contact, or'ed */
    int contact_count;                      /* members with any */
    int unheard;                            /* those that are CONNECTED, not HEARD */
    struct ct_engine_queries queries;
    unsigned char
        *informed; /* a bit a rank: whom a member told that it leaves; the store's value */
    char *key;     /* the group's */
    uint64_t generation;
    bool formed, failed;
    bool notified; /* by another member, that the group has failed */
};

/* Initialise for a group; `transport` is called with `context`. Call _deinit in either case. 0 or
 * CT_ENOMEM. */
int ct_engine_init(struct ct_engine *engine, const struct ct_setup *setup,
                   const struct ct_message_transport *transport, void *context);

/* Free; nothing is in flight, after ct_engine_close or because nothing was posted. */
void ct_engine_deinit(struct ct_engine *engine);

/* Exchange a handshake with each member. 0, CT_ETIMEOUT at the setup's deadline, CT_EREVOKED,
 * CT_EUNAVAILABLE, CT_EPROTOCOL, or the failure of another member. */
int ct_engine_handshake(struct ct_engine *engine, const struct ct_setup *setup,
                        struct ct_error *err);

/* As the functions of struct ct_backend. */
int ct_engine_progress(struct ct_engine *engine, struct ct_task *task, struct ct_error *err);
int ct_engine_missing(const struct ct_engine *engine, const struct ct_task *task);
void ct_engine_fail(struct ct_engine *engine, int code);

/* Tell the members that this one leaves, and cancel all that is in flight, sends after a short
 * time. */
void ct_engine_close(struct ct_engine *engine);

#endif
