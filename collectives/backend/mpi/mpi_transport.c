/* See mpi_transport.h. */
#include "backend/mpi/mpi_transport.h"

#include "base/assert.h"

#include <stdlib.h>
#include <time.h>

enum {
    PART_BYTES = 1 << 30,  /* of a message: MPI counts with int */
    PROGRESS_CALLS = 1000, /* until a cancelled message has to be over */
    PAUSE_NS = 20000,
    PAUSE_MAX_NS = 500000,
};

/* A message under way: one request, or, where it is longer than MPI can count, several. */
struct ct_mpi_ticket {
    struct ct_mpi_ticket *next;
    union ct_mpi_handle one, *requests;
    size_t count, over;
};

static int tag_of(const struct ct_mpi_port *port, enum ct_engine_channel channel)
{
    return CT_MPI_FIRST_TAG + (int)(port->number * CT_CHANNELS + (uint32_t)channel);
}

void ct_mpi_pause(struct ct_mpi_port *port, uint64_t timeout_ns)
{
    uint64_t pause_ns = CT_MIN(CT_MAX(port->pause_ns, (uint64_t)PAUSE_NS), timeout_ns);
    const struct timespec pause = {.tv_nsec = (long)CT_MIN(pause_ns, (uint64_t)PAUSE_MAX_NS)};

    (void)nanosleep(&pause, NULL);
    port->pause_ns = CT_MIN(2 * pause_ns, (uint64_t)PAUSE_MAX_NS);
}

void ct_mpi_pause_reset(struct ct_mpi_port *port)
{
    port->pause_ns = 0;
}

/* ---- messages ---------------------------------------------------------------------------------*/

static struct ct_mpi_ticket *acquire_ticket(struct ct_mpi_port *port, size_t bytes)
{
    struct ct_mpi_ticket *ticket = port->tickets;
    size_t count = CT_MAX((bytes + PART_BYTES - 1) / PART_BYTES, (size_t)1);

    if (ticket != NULL)
        port->tickets = ticket->next;
    else
        ticket = calloc(1, sizeof *ticket);
    if (ticket == NULL)
        return NULL;
    *ticket = (struct ct_mpi_ticket){.count = count};
    ticket->requests = count == 1 ? &ticket->one : calloc(count, sizeof *ticket->requests);
    if (ticket->requests != NULL)
        return ticket;
    ticket->next = port->tickets;
    port->tickets = ticket;
    return NULL;
}

static void release_ticket(struct ct_mpi_port *port, struct ct_mpi_ticket *ticket)
{
    if (ticket->requests != &ticket->one)
        free(ticket->requests);
    ticket->next = port->tickets;
    port->tickets = ticket;
}

void ct_mpi_port_deinit(struct ct_mpi_port *port)
{
    while (port->tickets != NULL) {
        struct ct_mpi_ticket *ticket = port->tickets;

        port->tickets = ticket->next;
        free(ticket);
    }
}

static void finish(struct ct_peer_message *message, int code)
{
    message->code = code;
    message->request = NULL;
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_DONE, memory_order_release);
}

/* Post all parts of a message; false when MPI refused one. */
static bool post_parts(const struct ct_mpi_port *port, const struct ct_peer_message *message,
                       struct ct_mpi_ticket *ticket)
{
    struct ct_mpi_library *lib = &port->mpi->lib;

    for (size_t i = 0; i < ticket->count; i++) {
        char *data = message->data + i * PART_BYTES;
        size_t bytes = CT_MIN(message->bytes - i * PART_BYTES, (size_t)PART_BYTES);
        const struct ct_mpi_message part = {.send = message->out ? data : NULL,
                                            .recv = message->out ? NULL : data,
                                            .bytes = (int)bytes,
                                            .peer = message->peer < 0 ? CT_MPI_ANYONE
                                                                      : port->ranks[message->peer],
                                            .tag = tag_of(port, message->channel),
                                            .synchronous = message->synchronous};

        if (lib->abi->post(lib, &part, &ticket->requests[i]) != 0)
            return false;
    }
    return true;
}

static void post(void *context, struct ct_peer_message *message)
{
    struct ct_mpi_port *port = context;
    struct ct_mpi *mpi = port->mpi;

    (void)pthread_mutex_lock(&mpi->lock);
    struct ct_mpi_ticket *ticket = mpi->given_up ? NULL : acquire_ticket(port, message->bytes);
    message->request = ticket;
    if (ticket != NULL && !post_parts(port, message, ticket))
        mpi->given_up = true;
    if (ticket == NULL || mpi->given_up)
        finish(message, CT_ECLOSED);
    (void)pthread_mutex_unlock(&mpi->lock);
}

static void progress(void *context)
{
    struct ct_mpi_port *port = context;

    (void)pthread_mutex_lock(&port->mpi->lock);
    ct_mpi_work(port->mpi);
    (void)pthread_mutex_unlock(&port->mpi->lock);
}

/* Under the lock. An error of MPI ends the message. */
static bool poll_message(struct ct_mpi_port *port, struct ct_peer_message *message)
{
    struct ct_mpi *mpi = port->mpi;
    struct ct_mpi_ticket *ticket = message->request;

    while (!mpi->given_up && ticket->over < ticket->count) {
        bool over = false;
        int code = mpi->lib.abi->test(&mpi->lib, &ticket->requests[ticket->over], &over);

        if (code == 0 && !over)
            return false;
        ticket->over++;
        if (code != 0)
            message->code = CT_ECLOSED;
    }
    if (mpi->given_up) { /* the requests are left to MPI, which is not called any more */
        finish(message, CT_ECLOSED);
        return true;
    }
    release_ticket(port, ticket);
    finish(message, message->code);
    return true;
}

static bool is_done(void *context, struct ct_peer_message *message)
{
    struct ct_mpi_port *port = context;

    (void)pthread_mutex_lock(&port->mpi->lock);
    bool is_over =
        atomic_load(&message->state) != CT_PEER_MESSAGE_OPEN || poll_message(port, message);
    (void)pthread_mutex_unlock(&port->mpi->lock);
    return is_over;
}

/* A receive can be cancelled unless its data is on the way; a send cannot. */
static void cancel_open(struct ct_mpi_port *port, struct ct_peer_message *message)
{
    struct ct_mpi *mpi = port->mpi;
    struct ct_mpi_ticket *ticket = message->request;

    for (size_t i = ticket->over; !message->out && i < ticket->count; i++)
        (void)mpi->lib.abi->cancel(&mpi->lib, &ticket->requests[i]);
    for (int i = 0; i < PROGRESS_CALLS; i++)
        if (poll_message(port, message))
            return;
    mpi->given_up = true;
    finish(message, CT_ECLOSED);
}

static void cancel(void *context, struct ct_peer_message *message)
{
    struct ct_mpi_port *port = context;

    (void)pthread_mutex_lock(&port->mpi->lock);
    if (atomic_load(&message->state) == CT_PEER_MESSAGE_OPEN && !poll_message(port, message))
        cancel_open(port, message);
    (void)pthread_mutex_unlock(&port->mpi->lock);
}

static void drain(void *context)
{
    struct ct_mpi_port *port = context;

    (void)pthread_mutex_lock(&port->mpi->lock);
    for (int channel = 0; channel < CT_CHANNELS; channel++)
        ct_mpi_receive_all(port->mpi, tag_of(port, (enum ct_engine_channel)channel),
                           CT_MPI_DISCARDED);
    ct_mpi_work(port->mpi);
    (void)pthread_mutex_unlock(&port->mpi->lock);
}

static void wait(void *context, uint64_t timeout_ns)
{
    ct_mpi_pause(context, timeout_ns);
}

const struct ct_message_transport ct_mpi_transport = {
    .post = post,
    .progress = progress,
    .is_done = is_done,
    .cancel = cancel,
    .drain = drain,
    .wait = wait,
    /* mpirun ends all ranks when the first one has ended: that one is to report the cause. */
    .send_grace_ns = 20000000,
    .linger_ns = 500000000,
};
