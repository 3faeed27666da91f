/* See ucx_worker.h. */
#include "backend/ucx_worker.h"

#include "backend/ucx_library.h"
#include "base/assert.h"
#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LANE_SHIFT = 16, GROUP_SHIFT = 18, CLOSING_NS = 1000000000, TURNS = 1000 };

/* A request under way, and whose it is: nobody's (NULL) once the parcel was dropped, or where a
 * message is taken up only to be thrown away. */
struct ticket {
    struct ct_ucx *ucx;
    struct ct_parcel *parcel;
    void *request;
    struct ticket *next;
    char *landing; /* what is received comes here first: a message on its way, once matched, cannot
                      be called off, and its parcel's memory may be gone when it arrives */
    size_t landing_bytes;
};

struct ct_ucx_peer {
    struct ct_ucx_peer *next;
    ucp_ep_h endpoint;   /* NULL: closed */
    _Atomic bool failed; /* set under the lock */
    int users;
    size_t bytes;
    unsigned char address[];
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
    struct ticket *tickets;            /* unused */
    int open;                          /* requests, and closings, that have not ended */
    const struct ct_ucx_port *turning; /* who turns the worker: needs no bell */
};

static int ucx_error(const struct ct_ucx *ucx, struct ct_error *err, const char *what,
                     ucs_status_t status)
{
    return ct_error_set(err, CT_EUNAVAILABLE, "UCX: %s failed: %s", what,
                        ucx->lib.ucs_status_string(status));
}

/* ---- opening ---------------------------------------------------------------------------------*/

/* What is needed to hear of a death in time; the user's own settings of UCX_... win. */
static void configure(const struct ct_ucx *ucx, ucp_config_t *config)
{
    static const char *const settings[][2] = {
        {"KEEPALIVE_INTERVAL", "500ms"}, /* 20 s by default */
        {"MM_ERROR_HANDLING", "y"},      /* else shared memory is not used beside error handling */
        {"WARN_UNUSED_ENV_VARS", "n"},
    };

    for (size_t i = 0; i < CT_COUNT(settings); i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "UCX_%s", settings[i][0]);
        if (getenv(name) == NULL)
            (void)ucx->lib.ucp_config_modify(config, settings[i][0], settings[i][1]);
    }
}

static int make_context(struct ct_ucx *ucx, struct ct_error *err)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;
    ucs_status_t status = ucx->lib.ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return ucx_error(ucx, err, "ucp_config_read", status);
    configure(ucx, config);
    status =
        ucx->lib.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucx->context);
    ucx->lib.ucp_config_release(config);
    return status == UCS_OK ? 0 : ucx_error(ucx, err, "ucp_init", status);
}

static int make_worker(struct ct_ucx *ucx, struct ct_error *err)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucx->lib.ucp_worker_create(ucx->context, &params, &ucx->worker);

    if (status != UCS_OK)
        return ucx_error(ucx, err, "ucp_worker_create", status);
    status = ucx->lib.ucp_worker_get_efd(ucx->worker, &ucx->efd);
    if (status != UCS_OK)
        return ucx_error(ucx, err, "ucp_worker_get_efd", status);
    status = ucx->lib.ucp_worker_get_address(ucx->worker, &ucx->address, &ucx->address_bytes);
    return status == UCS_OK ? 0 : ucx_error(ucx, err, "ucp_worker_get_address", status);
}

int ct_ucx_open(struct ct_ucx **ret_ucx, struct ct_error *err)
{
    struct ct_ucx *ucx = calloc(1, sizeof *ucx);
    int code;

    if (ucx == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a UCX worker");
    (void)pthread_mutex_init(&ucx->lock, NULL);
    code = ct_ucx_library_load(&ucx->lib, err);
    if (code == 0)
        code = make_context(ucx, err);
    if (code == 0)
        code = make_worker(ucx, err);
    if (code != 0) {
        ct_ucx_close(ucx);
        return code;
    }
    *ret_ucx = ucx;
    return 0;
}

const void *ct_ucx_address(const struct ct_ucx *ucx, size_t *ret_bytes)
{
    *ret_bytes = ucx->address_bytes;
    return ucx->address;
}

/* ---- endpoints -------------------------------------------------------------------------------*/

static void on_failure(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ct_ucx_peer *peer = argument;

    (void)endpoint;
    (void)status;
    peer->failed = true;
}

/* Begin to close; the request, or NULL when it is done. */
static void *begin_close(struct ct_ucx *ucx, struct ct_ucx_peer *peer, uint32_t flags)
{
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucs_status_ptr_t request;

    if (peer->endpoint == NULL)
        return NULL;
    request = ucx->lib.ucp_ep_close_nbx(peer->endpoint, &how);
    peer->endpoint = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Turn the worker until `request` is over, for CLOSING_NS at most. */
static void await_close(struct ct_ucx *ucx, void *request)
{
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    if (request == NULL)
        return;
    while (ucx->lib.ucp_request_check_status(request) == UCS_INPROGRESS &&
           ct_clock_mono_ns(&ct_clock_system) - start_ns < CLOSING_NS)
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    ucx->open += ucx->lib.ucp_request_check_status(request) == UCS_INPROGRESS;
    ucx->lib.ucp_request_free(request);
}

/* Whatever is under way with it ends now. */
static void cut_off(struct ct_ucx *ucx, struct ct_ucx_peer *peer)
{
    peer->failed = true;
    await_close(ucx, begin_close(ucx, peer, UCP_EP_CLOSE_FLAG_FORCE));
}

static struct ct_ucx_peer *find_peer(const struct ct_ucx *ucx, const void *address, size_t bytes)
{
    struct ct_ucx_peer *peer = ucx->peers;

    while (peer != NULL &&
           (peer->failed || peer->bytes != bytes || memcmp(peer->address, address, bytes) != 0))
        peer = peer->next;
    return peer;
}

/* The dead whom no group knows any more. */
static void bury(struct ct_ucx *ucx)
{
    for (struct ct_ucx_peer **link = &ucx->peers; *link != NULL;) {
        struct ct_ucx_peer *peer = *link;

        if (!peer->failed || peer->users > 0) {
            link = &peer->next;
            continue;
        }
        cut_off(ucx, peer);
        *link = peer->next;
        free(peer);
    }
}

static int make_peer(struct ct_ucx *ucx, const void *address, size_t bytes,
                     struct ct_ucx_peer **ret_peer, struct ct_error *err)
{
    struct ct_ucx_peer *peer = calloc(1, sizeof *peer + bytes);

    if (peer == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a UCX endpoint");
    peer->bytes = bytes;
    memcpy(peer->address, address, bytes);
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = (const ucp_address_t *)peer->address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = on_failure, .arg = peer}};
    ucs_status_t status = ucx->lib.ucp_ep_create(ucx->worker, &params, &peer->endpoint);
    if (status != UCS_OK) {
        free(peer);
        return ucx_error(ucx, err, "ucp_ep_create", status);
    }
    peer->next = ucx->peers;
    ucx->peers = peer;
    *ret_peer = peer;
    return 0;
}

int ct_ucx_peer_get(struct ct_ucx *ucx, const void *address, size_t bytes,
                    struct ct_ucx_peer **ret_peer, struct ct_error *err)
{
    int code = 0;

    (void)pthread_mutex_lock(&ucx->lock);
    bury(ucx);
    *ret_peer = find_peer(ucx, address, bytes);
    if (*ret_peer == NULL)
        code = make_peer(ucx, address, bytes, ret_peer, err);
    CT_ASSERT(code != 0 || *ret_peer != NULL);
    if (code == 0)
        (*ret_peer)->users++;
    (void)pthread_mutex_unlock(&ucx->lock);
    return code;
}

void ct_ucx_peer_put(struct ct_ucx *ucx, struct ct_ucx_peer *peer)
{
    (void)pthread_mutex_lock(&ucx->lock);
    peer->users--;
    bury(ucx);
    (void)pthread_mutex_unlock(&ucx->lock);
}

/* ---- parcels ---------------------------------------------------------------------------------*/

static struct ticket *take_ticket(struct ct_ucx *ucx, struct ct_parcel *parcel)
{
    struct ticket *ticket = ucx->tickets;

    if (ticket != NULL)
        ucx->tickets = ticket->next;
    else
        ticket = calloc(1, sizeof *ticket);
    if (ticket != NULL) {
        ticket->ucx = ucx;
        ticket->parcel = parcel;
        ticket->request = NULL;
        ucx->open++;
    }
    return ticket;
}

static void give_ticket(struct ticket *ticket)
{
    struct ct_ucx *ucx = ticket->ucx;

    ucx->open--;
    ticket->next = ucx->tickets;
    ucx->tickets = ticket;
}

/* The parcel has come to its end, well or not. Rings for its group if that sleeps. */
static void finish(struct ct_ucx *ucx, struct ct_parcel *parcel, ucs_status_t status)
{
    struct ct_ucx_port *port = parcel->owner;
    const uint64_t one = 1;

    parcel->code = status == UCS_OK ? 0 : CT_ECLOSED;
    parcel->request = NULL;
    atomic_store_explicit(&parcel->state, CT_PARCEL_OVER, memory_order_release);
    if (port != ucx->turning && atomic_load(&port->asleep) &&
        write(port->bell, &one, sizeof one) != sizeof one)
        return; /* it rings already */
}

static void on_end(void *request, ucs_status_t status, struct ticket *ticket)
{
    if (ticket->parcel != NULL)
        finish(ticket->ucx, ticket->parcel, status);
    ticket->ucx->lib.ucp_request_free(request);
    give_ticket(ticket);
}

static void on_sent(void *request, ucs_status_t status, void *ticket)
{
    on_end(request, status, ticket);
}

/* Make room for a message. */
static bool has_landing(struct ticket *ticket, size_t bytes)
{
    if (ticket->landing_bytes >= bytes)
        return true;
    free(ticket->landing);
    ticket->landing = malloc(bytes);
    ticket->landing_bytes = ticket->landing != NULL ? bytes : 0;
    return ticket->landing != NULL;
}

static void land(const struct ticket *ticket, size_t bytes)
{
    if (ticket->parcel != NULL && bytes > 0)
        memcpy(ticket->parcel->data, ticket->landing, bytes);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *argument)
{
    struct ticket *ticket = argument;

    if (status == UCS_OK)
        land(ticket, info->length);
    on_end(request, status, ticket);
}

static uint64_t tag_of(const struct ct_ucx_port *port, const struct ct_parcel *parcel, int sender)
{
    return port->group << GROUP_SHIFT | (uint64_t)parcel->lane << LANE_SHIFT | (uint64_t)sender;
}

static ucs_status_ptr_t send_parcel(const struct ct_ucx_port *port, const struct ct_parcel *parcel,
                                    struct ticket *ticket)
{
    const struct ct_ucx_library *lib = &port->ucx->lib;
    const struct ct_ucx_peer *peer = port->peers[parcel->peer];
    const ucp_request_param_t how = {.op_attr_mask =
                                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.send = on_sent,
                                     .user_data = ticket};
    uint64_t tag = tag_of(port, parcel, port->rank);

    if (peer->failed)
        return UCS_STATUS_PTR(UCS_ERR_ENDPOINT_TIMEOUT);
    return parcel->taken
               ? lib->ucp_tag_send_sync_nbx(peer->endpoint, parcel->data, parcel->bytes, tag, &how)
               : lib->ucp_tag_send_nbx(peer->endpoint, parcel->data, parcel->bytes, tag, &how);
}

static ucs_status_ptr_t receive_parcel(const struct ct_ucx_port *port,
                                       const struct ct_parcel *parcel, struct ticket *ticket)
{
    const ucp_request_param_t how = {.op_attr_mask =
                                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                     .cb.recv = on_received,
                                     .user_data = ticket};
    uint64_t any = parcel->peer < 0 ? (UINT64_C(1) << LANE_SHIFT) - 1 : 0;

    if (!has_landing(ticket, parcel->bytes))
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    ucs_status_ptr_t request = port->ucx->lib.ucp_tag_recv_nbx(
        port->ucx->worker, ticket->landing, parcel->bytes,
        tag_of(port, parcel, any != 0 ? 0 : parcel->peer), ~any, &how);
    if (request == NULL) /* it was there already */
        land(ticket, parcel->bytes);
    return request;
}

static void post(void *context, struct ct_parcel *parcel)
{
    struct ct_ucx_port *port = context;
    struct ct_ucx *ucx = port->ucx;
    ucs_status_ptr_t request;

    (void)pthread_mutex_lock(&ucx->lock);
    struct ticket *ticket = take_ticket(ucx, parcel);
    parcel->owner = port;
    parcel->request = ticket;
    ucx->turning = port;
    if (ticket == NULL)
        request = UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    else
        request =
            parcel->out ? send_parcel(port, parcel, ticket) : receive_parcel(port, parcel, ticket);
    if (UCS_PTR_IS_PTR(request)) {
        ticket->request = request;
    } else {
        if (ticket != NULL)
            give_ticket(ticket);
        finish(ucx, parcel, UCS_PTR_STATUS(request));
    }
    (void)pthread_mutex_unlock(&ucx->lock);
}

static void turn(void *context)
{
    struct ct_ucx_port *port = context;

    (void)pthread_mutex_lock(&port->ucx->lock);
    port->ucx->turning = port;
    (void)port->ucx->lib.ucp_worker_progress(port->ucx->worker);
    (void)pthread_mutex_unlock(&port->ucx->lock);
}

/* Take the parcel from its request. What is being written to, or read from, is cut off. */
static void withdraw(struct ct_ucx *ucx, const struct ct_ucx_port *port, struct ct_parcel *parcel)
{
    struct ticket *ticket = parcel->request;

    if (!parcel->out)
        ucx->lib.ucp_request_cancel(ucx->worker, ticket->request);
    if (atomic_load(&parcel->state) == CT_PARCEL_OPEN)
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    if (atomic_load(&parcel->state) == CT_PARCEL_OPEN && parcel->peer >= 0)
        cut_off(ucx, port->peers[parcel->peer]);
    for (int i = 0; i < TURNS && atomic_load(&parcel->state) == CT_PARCEL_OPEN; i++)
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    if (atomic_load(&parcel->state) == CT_PARCEL_OPEN)
        ticket->parcel = NULL;
}

/* What is expected from a dead peer and has not come will not come. */
static bool over(void *context, struct ct_parcel *parcel)
{
    struct ct_ucx_port *port = context;

    if (atomic_load_explicit(&parcel->state, memory_order_acquire) != CT_PARCEL_OPEN)
        return true;
    if (parcel->peer < 0 || !port->peers[parcel->peer]->failed)
        return false;
    (void)pthread_mutex_lock(&port->ucx->lock);
    if (atomic_load(&parcel->state) == CT_PARCEL_OPEN) {
        withdraw(port->ucx, port, parcel);
        parcel->code = CT_ECLOSED;
        atomic_store(&parcel->state, CT_PARCEL_OVER);
    }
    (void)pthread_mutex_unlock(&port->ucx->lock);
    return true;
}

static void drop(void *context, struct ct_parcel *parcel)
{
    struct ct_ucx_port *port = context;

    (void)pthread_mutex_lock(&port->ucx->lock);
    if (atomic_load(&parcel->state) == CT_PARCEL_OPEN)
        withdraw(port->ucx, port, parcel);
    (void)pthread_mutex_unlock(&port->ucx->lock);
}

/* Take up and throw away what has come with a tag of these bits. No byte is taken: the contents of
 * a large message would have to be fetched from a sender that may be gone, without end. Under the
 * lock. */
static void drain_tags(struct ct_ucx *ucx, uint64_t tag, uint64_t mask)
{
    ucp_request_param_t how = {.op_attr_mask =
                                   UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                               .cb.recv = on_received};
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;

    while ((message = ucx->lib.ucp_tag_probe_nb(ucx->worker, tag, mask, 1, &info)) != NULL) {
        struct ticket *ticket = take_ticket(ucx, NULL);

        CT_ASSERT(ticket != NULL);
        how.user_data = ticket;
        if (!UCS_PTR_IS_PTR(ucx->lib.ucp_tag_msg_recv_nbx(ucx->worker, NULL, 0, message, &how)))
            give_ticket(ticket);
    }
}

static void drain(void *context)
{
    const struct ct_ucx_port *port = context;

    (void)pthread_mutex_lock(&port->ucx->lock);
    drain_tags(port->ucx, port->group << GROUP_SHIFT, ~UINT64_C(0) << GROUP_SHIFT);
    (void)pthread_mutex_unlock(&port->ucx->lock);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

uint32_t ct_ucx_arm(struct ct_ucx_port *port)
{
    atomic_store(&port->asleep, true);
    (void)pthread_mutex_lock(&port->ucx->lock);
    ucs_status_t status = port->ucx->lib.ucp_worker_arm(port->ucx->worker);
    (void)pthread_mutex_unlock(&port->ucx->lock);
    return status == UCS_OK;
}

/* `armed` 0: something has come already. */
void ct_ucx_park(struct ct_ucx_port *port, uint32_t armed, uint64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    struct pollfd fds[2] = {{.fd = port->ucx->efd, .events = POLLIN},
                            {.fd = port->bell, .events = POLLIN}};
    uint64_t rings;

    if (armed != 0 && timeout_ns > 0 && ppoll(fds, CT_COUNT(fds), &limit, NULL) > 0 &&
        fds[1].revents != 0 && read(port->bell, &rings, sizeof rings) < 0)
        rings = 0;
    atomic_store(&port->asleep, false);
}

static void rest(void *context, uint64_t timeout_ns)
{
    struct ct_ucx_port *port = context;

    ct_ucx_park(port, ct_ucx_arm(port), timeout_ns);
}

/* ---- closing ---------------------------------------------------------------------------------*/

static void close_peers(struct ct_ucx *ucx)
{
    uint64_t start_ns = ct_clock_mono_ns(&ct_clock_system);

    while (ucx->peers != NULL) {
        struct ct_ucx_peer *peer = ucx->peers;
        bool late = ct_clock_mono_ns(&ct_clock_system) - start_ns > CLOSING_NS;

        await_close(ucx,
                    begin_close(ucx, peer, peer->failed || late ? UCP_EP_CLOSE_FLAG_FORCE : 0));
        ucx->peers = peer->next;
        free(peer);
    }
}

static void free_tickets(struct ct_ucx *ucx)
{
    while (ucx->tickets != NULL) {
        struct ticket *ticket = ucx->tickets;

        ucx->tickets = ticket->next;
        free(ticket->landing);
        free(ticket);
    }
}

void ct_ucx_close(struct ct_ucx *ucx)
{
    if (ucx == NULL)
        return;
    if (ucx->worker != NULL)
        drain_tags(ucx, 0, 0);
    close_peers(ucx);
    for (int i = 0; i < TURNS && ucx->open > 0; i++)
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    if (ucx->open > 0) /* libucp ends the process of who destroys a worker with open requests */
        return;
    if (ucx->address != NULL)
        ucx->lib.ucp_worker_release_address(ucx->worker, ucx->address);
    if (ucx->worker != NULL)
        ucx->lib.ucp_worker_destroy(ucx->worker);
    if (ucx->context != NULL)
        ucx->lib.ucp_cleanup(ucx->context);
    free_tickets(ucx);
    (void)pthread_mutex_destroy(&ucx->lock);
    free(ucx);
}

const struct ct_courier ct_ucx_courier = {
    .post = post,
    .turn = turn,
    .over = over,
    .drop = drop,
    .drain = drain,
    .rest = rest,
};
