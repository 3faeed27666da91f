/* The worker of ucx_worker.h from the inside: for ucx_worker.c, which makes it, its endpoints and
 * its end, and ucx_transport.c, which carries messages over it. Not seen where UCX's headers are
 * absent. */
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

/* A request under way, and whose it is: nobody's (NULL) once the message was dropped, or where a
 * message is taken up only to be thrown away.
 *
 * What is received comes to `data` first, and short messages go out from there: a message on its
 * way cannot be called off, and its message's memory may be gone when it comes or goes. Such a
 * request ends by itself, after its message, and its endpoint, which other groups use, lives on. */
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
    struct ct_ucx_ticket *tickets;     /* unused */
    int open;                          /* requests, and closings, that have not ended */
    const struct ct_ucx_port *turning; /* whose thread has the lock: needs no bell */
};

/* Take the lock; callbacks that run until it is given back ring for all but `port`. */
static inline void ct_ucx_enter(struct ct_ucx *ucx, const struct ct_ucx_port *port)
{
    (void)pthread_mutex_lock(&ucx->lock);
    ucx->turning = port;
}

static inline void ct_ucx_leave(struct ct_ucx *ucx)
{
    (void)pthread_mutex_unlock(&ucx->lock);
}

/* Under the lock: whatever is under way with the peer ends now, for all groups. */
void ct_ucx_cut_off(struct ct_ucx *ucx, struct ct_ucx_peer *peer);

/* Under the lock: take up and throw away what has come with a tag of these bits. */
void ct_ucx_drain(struct ct_ucx *ucx, uint64_t tag, uint64_t mask);

#endif
