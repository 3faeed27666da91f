/* The inside of the worker of ucx_worker.h: for ucx_worker.c, which makes and frees it and its
 * endpoints, and ucx_transport.c, which carries messages over it. Not compiled where UCX's headers
 * are absent. */
#ifndef CT_COLL_UCX_STATE_H
#define CT_COLL_UCX_STATE_H

#include "backend/ucx/ucx_library.h"
#include "backend/ucx/ucx_worker.h"

#include <pthread.h>

struct ct_ucx_peer {
    struct ct_ucx_peer *next;
    ucp_ep_h endpoint;   /* NULL: closed */
    _Atomic bool failed; /* set under the lock */
    int users;           /* groups */
    int open;            /* requests */
    size_t bytes;
    unsigned char address[];
};

/* A request under way, and its message: NULL once the message was cancelled, or where a message is
 * received only to be discarded.
 *
 * Received data comes to `data` first, and short messages are sent from there: a request under way
 * cannot be recalled, and the message's memory may be gone when it ends. Such a request ends by
 * itself, after its message, and its endpoint, which other groups use, stays open. */
struct ct_ucx_ticket {
    struct ct_ucx *ucx;
    struct ct_ucx_peer *peer; /* NULL: anyone */
    struct ct_peer_message *message;
    void *request;
    struct ct_ucx_ticket *next;
    char *data;
    size_t data_bytes;
};

struct ct_ucx {
    struct ct_ucx_library lib;
    pthread_mutex_t lock; /* of all below */
    ucp_context_h context;
    ucp_worker_h worker;
    int efd;
    ucp_address_t *address;
    size_t address_bytes;
    struct ct_ucx_peer *peers;
    struct ct_ucx_ticket *tickets;         /* unused */
    int open;                              /* requests, and closings, that have not ended */
    const struct ct_ucx_port *progressing; /* the port whose thread has the lock: needs no wakeup */
};

/* Lock; callbacks that run until the unlock wake all ports but `port`. */
static inline void ct_ucx_enter(struct ct_ucx *ucx, const struct ct_ucx_port *port)
{
    (void)pthread_mutex_lock(&ucx->lock);
    ucx->progressing = port;
}

static inline void ct_ucx_leave(struct ct_ucx *ucx)
{
    (void)pthread_mutex_unlock(&ucx->lock);
}

/* Under the lock: end all that is under way with the peer, for all groups. */
void ct_ucx_disconnect(struct ct_ucx *ucx, struct ct_ucx_peer *peer);

/* Under the lock: receive and discard what has arrived with a tag of these bits. */
void ct_ucx_drain(struct ct_ucx *ucx, uint64_t tag, uint64_t mask);

#endif
