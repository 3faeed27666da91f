/* See ucx_worker.h: messages as tagged messages, and sleeping until one may have come. */
#include "backend/ucx/ucx_state.h"

#include "base/assert.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNEL_SHIFT = 16,
    GROUP_SHIFT = 18,
    SHORT_BYTES = 1024,    /* of what goes out from a ticket's memory */
    PROGRESS_CALLS = 1000, /* until messages of a disconnected peer have to be over */
};

/* ---- messages ---------------------------------------------------------------------------------*/

static struct ct_ucx_ticket *acquire_ticket(struct ct_ucx *ucx, struct ct_ucx_peer *peer,
                                            struct ct_peer_message *message)
{
    struct ct_ucx_ticket *ticket = ucx->tickets;

    if (ticket != NULL)
        ucx->tickets = ticket->next;
    else
        ticket = calloc(1, sizeof *ticket);
    if (ticket != NULL) {
        ticket->ucx = ucx;
        ticket->peer = peer;
        ticket->message = message;
        ticket->request = NULL;
        ucx->open++;
        if (peer != NULL)
            peer->open++;
    }
    return ticket;
}

static void release_ticket(struct ct_ucx_ticket *ticket)
{
    struct ct_ucx *ucx = ticket->ucx;

    ucx->open--;
    if (ticket->peer != NULL)
        ticket->peer->open--;
    ticket->next = ucx->tickets;
    ucx->tickets = ticket;
}

/* Mark the message as done, successful or not, and wake its group if that sleeps. */
static void finish(struct ct_ucx *ucx, struct ct_peer_message *message, ucs_status_t status)
{
    struct ct_ucx_port *port = message->owner;
    const uint64_t one = 1;

    message->code = status == UCS_OK ? 0 : CT_ECLOSED;
    message->request = NULL;
    atomic_store_explicit(&message->state, CT_PEER_MESSAGE_DONE, memory_order_release);
    if (port != ucx->progressing && atomic_load(&port->asleep) &&
        write(port->wakeup, &one, sizeof one) != sizeof one)
        return; /* it is readable already */
}

static void on_end(void *request, ucs_status_t status, struct ct_ucx_ticket *ticket)
{
    if (ticket->message != NULL)
        finish(ticket->ucx, ticket->message, status);
    ticket->ucx->lib.ucp_request_free(request);
    release_ticket(ticket);
}

static void on_sent(void *request, ucs_status_t status, void *ticket)
{
    on_end(request, status, ticket);
}

/* Make room for a message. */
static bool has_room(struct ct_ucx_ticket *ticket, size_t bytes)
{
    if (ticket->data_bytes >= bytes)
        return true;
    free(ticket->data);
    ticket->data = malloc(bytes);
    ticket->data_bytes = ticket->data != NULL ? bytes : 0;
    return ticket->data != NULL;
}

static void copy_received(const struct ct_ucx_ticket *ticket, size_t bytes)
{
    if (ticket->message != NULL && bytes > 0)
        memcpy(ticket->message->data, ticket->data, bytes);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *argument)
{
    struct ct_ucx_ticket *ticket = argument;

    if (status == UCS_OK)
        copy_received(ticket, info->length);
    on_end(request, status, ticket);
}

static uint64_t tag_of(const struct ct_ucx_port *port, const struct ct_peer_message *message,
                       int sender)
{
    return port->group << GROUP_SHIFT | (uint64_t)message->channel << CHANNEL_SHIFT |
           (uint64_t)sender;
}

static ucs_status_ptr_t send_message(const struct ct_ucx_port *port,
                                     const struct ct_peer_message *message,
                                     struct ct_ucx_ticket *ticket)
{
    const struct ct_ucx_library *lib = &port->ucx->lib;
    const struct ct_ucx_peer *peer = port->peers[message->peer];
    const ucp_request_param_t how = {.op_attr_mask =
                                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.send = on_sent,
                                     .user_data = ticket};
    uint64_t tag = tag_of(port, message, port->rank);
    const char *data = message->data;

    if (peer->failed)
        return UCS_STATUS_PTR(UCS_ERR_ENDPOINT_TIMEOUT);
    if (message->bytes <= SHORT_BYTES) {
        if (!has_room(ticket, SHORT_BYTES))
            return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        memcpy(ticket->data, data, message->bytes);
        data = ticket->data;
    }
    return message->synchronous
               ? lib->ucp_tag_send_sync_nbx(peer->endpoint, data, message->bytes, tag, &how)
               : lib->ucp_tag_send_nbx(peer->endpoint, data, message->bytes, tag, &how);
}

static ucs_status_ptr_t receive_message(const struct ct_ucx_port *port,
                                        const struct ct_peer_message *message,
                                        struct ct_ucx_ticket *ticket)
{
    const ucp_request_param_t how = {.op_attr_mask =
                                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.recv = on_received,
                                     .user_data = ticket};
    uint64_t any = message->peer < 0 ? (UINT64_C(1) << CHANNEL_SHIFT) - 1 : 0;

    if (!has_room(ticket, message->bytes))
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    ucs_status_ptr_t request = port->ucx->lib.ucp_tag_recv_nbx(
        port->ucx->worker, ticket->data, message->bytes,
        tag_of(port, message, any != 0 ? 0 : message->peer), ~any, &how);
    if (request == NULL) /* it was there already */
        copy_received(ticket, message->bytes);
    return request;
}

static int connect_peer(void *context, int peer, struct ct_error *err)
{
    struct ct_ucx_port *port = context;

    return port->peers[peer] != NULL ? 0 : port->make_endpoint(port, peer, err);
}

static void post(void *context, struct ct_peer_message *message)
{
    struct ct_ucx_port *port = context;
    struct ct_ucx *ucx = port->ucx;
    ucs_status_ptr_t request;

    ct_ucx_enter(ucx, port);
    struct ct_ucx_ticket *ticket =
        acquire_ticket(ucx, message->peer >= 0 ? port->peers[message->peer] : NULL, message);
    message->owner = port;
    message->request = ticket;
    if (ticket == NULL)
        request = UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    else
        request = message->out ? send_message(port, message, ticket)
                               : receive_message(port, message, ticket);
    if (UCS_PTR_IS_PTR(request)) {
        ticket->request = request;
    } else {
        if (ticket != NULL)
            release_ticket(ticket);
        finish(ucx, message, UCS_PTR_STATUS(request));
    }
    ct_ucx_leave(ucx);
}

static void progress(void *context)
{
    struct ct_ucx_port *port = context;

    ct_ucx_enter(port->ucx, port);
    (void)port->ucx->lib.ucp_worker_progress(port->ucx->worker);
    ct_ucx_leave(port->ucx);
}

static bool is_open(const struct ct_peer_message *message)
{
    return atomic_load_explicit(&message->state, memory_order_acquire) == CT_PEER_MESSAGE_OPEN;
}

/* Take the message from its request. A long send reads the message's memory: its peer is
 * disconnected. */
static void cancel_open(struct ct_ucx *ucx, struct ct_peer_message *message)
{
    struct ct_ucx_ticket *ticket = message->request;

    if (!message->out)
        ucx->lib.ucp_request_cancel(ucx->worker, ticket->request);
    if (is_open(message))
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    if (is_open(message) && message->out && message->bytes > SHORT_BYTES) {
        ct_ucx_disconnect(ucx, ticket->peer);
        for (int i = 0; i < PROGRESS_CALLS && is_open(message); i++)
            (void)ucx->lib.ucp_worker_progress(ucx->worker);
    }
    if (is_open(message))
        ticket->message = NULL;
}

/* A message from a dead peer that has not arrived never will. */
static bool is_done(void *context, struct ct_peer_message *message)
{
    struct ct_ucx_port *port = context;

    if (!is_open(message))
        return true;
    if (message->peer < 0 || !port->peers[message->peer]->failed)
        return false;
    ct_ucx_enter(port->ucx, port);
    if (is_open(message)) {
        cancel_open(port->ucx, message);
        message->code = CT_ECLOSED;
        atomic_store(&message->state, CT_PEER_MESSAGE_DONE);
    }
    ct_ucx_leave(port->ucx);
    return true;
}

static void cancel(void *context, struct ct_peer_message *message)
{
    struct ct_ucx_port *port = context;

    ct_ucx_enter(port->ucx, port);
    if (is_open(message))
        cancel_open(port->ucx, message);
    ct_ucx_leave(port->ucx);
}

/* No byte is received: the contents of a large message would have to be fetched from a sender that
 * may be gone, without end. */
void ct_ucx_drain(struct ct_ucx *ucx, uint64_t tag, uint64_t mask)
{
    ucp_request_param_t how = {.op_attr_mask =
                                   UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                               .cb.recv = on_received};
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;

    while ((message = ucx->lib.ucp_tag_probe_nb(ucx->worker, tag, mask, 1, &info)) != NULL) {
        struct ct_ucx_ticket *ticket = acquire_ticket(ucx, NULL, NULL);

        CT_ASSERT(ticket != NULL);
        how.user_data = ticket;
        if (!UCS_PTR_IS_PTR(ucx->lib.ucp_tag_msg_recv_nbx(ucx->worker, NULL, 0, message, &how)))
            release_ticket(ticket);
    }
}

static void drain(void *context)
{
    const struct ct_ucx_port *port = context;

    ct_ucx_enter(port->ucx, port);
    ct_ucx_drain(port->ucx, port->group << GROUP_SHIFT, ~UINT64_C(0) << GROUP_SHIFT);
    ct_ucx_leave(port->ucx);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

uint32_t ct_ucx_arm(struct ct_ucx_port *port)
{
    atomic_store(&port->asleep, true);
    ct_ucx_enter(port->ucx, port);
    ucs_status_t status = port->ucx->lib.ucp_worker_arm(port->ucx->worker);
    ct_ucx_leave(port->ucx);
    return status == UCS_OK;
}

/* `armed` 0: something has come already. */
void ct_ucx_park(struct ct_ucx_port *port, uint32_t armed, uint64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    struct pollfd fds[2] = {{.fd = port->ucx->efd, .events = POLLIN},
                            {.fd = port->wakeup, .events = POLLIN}};
    uint64_t rings;

    if (armed != 0 && timeout_ns > 0 && ppoll(fds, CT_COUNT(fds), &limit, NULL) > 0 &&
        fds[1].revents != 0 && read(port->wakeup, &rings, sizeof rings) < 0)
        rings = 0;
    atomic_store(&port->asleep, false);
}

static void wait(void *context, uint64_t timeout_ns)
{
    struct ct_ucx_port *port = context;

    ct_ucx_park(port, ct_ucx_arm(port), timeout_ns);
}

const struct ct_message_transport ct_ucx_transport = {
    .connect = connect_peer,
    .post = post,
    .progress = progress,
    .is_done = is_done,
    .cancel = cancel,
    .drain = drain,
    .wait = wait,
    .send_grace_ns = 1000000000, /* other groups share the endpoint that would be closed */
};
