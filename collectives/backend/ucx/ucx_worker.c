/* See ucx_worker.h: the worker, its endpoints, and its end. */
#include "backend/ucx/ucx_state.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSING_NS = 1000000000, PROGRESS_CALLS = 1000 };

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

void ct_ucx_disconnect(struct ct_ucx *ucx, struct ct_ucx_peer *peer)
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

/* Free failed peers without users. */
static void free_failed_peers(struct ct_ucx *ucx)
{
    for (struct ct_ucx_peer **link = &ucx->peers; *link != NULL;) {
        struct ct_ucx_peer *peer = *link;

        if (peer->failed && peer->users == 0)
            ct_ucx_disconnect(ucx, peer);
        if (!peer->failed || peer->users > 0 || peer->open > 0) {
            link = &peer->next;
            continue;
        }
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

    ct_ucx_enter(ucx, NULL);
    free_failed_peers(ucx);
    *ret_peer = find_peer(ucx, address, bytes);
    if (*ret_peer == NULL)
        code = make_peer(ucx, address, bytes, ret_peer, err);
    CT_ASSERT(code != 0 || *ret_peer != NULL);
    if (code == 0)
        (*ret_peer)->users++;
    ct_ucx_leave(ucx);
    return code;
}

void ct_ucx_peer_put(struct ct_ucx *ucx, struct ct_ucx_peer *peer)
{
    ct_ucx_enter(ucx, NULL);
    peer->users--;
    free_failed_peers(ucx);
    ct_ucx_leave(ucx);
}

/* ---- closing ---------------------------------------------------------------------------------*/

/* What a peer has not taken by then is cut off. */
static void close_peers(struct ct_ucx *ucx)
{
    uint64_t end_ns = ct_clock_mono_ns(&ct_clock_system) + CLOSING_NS;

    for (struct ct_ucx_peer *peer = ucx->peers; peer != NULL; peer = peer->next) {
        bool late = false;

        while (peer->open > 0 && !peer->failed && !late) {
            (void)ucx->lib.ucp_worker_progress(ucx->worker);
            late = ct_clock_mono_ns(&ct_clock_system) > end_ns;
        }
        await_close(ucx,
                    begin_close(ucx, peer, peer->failed || late ? UCP_EP_CLOSE_FLAG_FORCE : 0));
    }
}

static void free_all(struct ct_ucx *ucx)
{
    while (ucx->peers != NULL) {
        struct ct_ucx_peer *peer = ucx->peers;

        ucx->peers = peer->next;
        free(peer);
    }
    while (ucx->tickets != NULL) {
        struct ct_ucx_ticket *ticket = ucx->tickets;

        ucx->tickets = ticket->next;
        free(ticket->data);
        free(ticket);
    }
}

void ct_ucx_close(struct ct_ucx *ucx)
{
    if (ucx == NULL)
        return;
    if (ucx->worker != NULL)
        ct_ucx_drain(ucx, 0, 0);
    close_peers(ucx);
    for (int i = 0; i < PROGRESS_CALLS && ucx->open > 0; i++)
        (void)ucx->lib.ucp_worker_progress(ucx->worker);
    if (ucx->open > 0) /* libucp ends the process of who destroys a worker with open requests */
        return;
    if (ucx->address != NULL)
        ucx->lib.ucp_worker_release_address(ucx->worker, ucx->address);
    if (ucx->worker != NULL)
        ucx->lib.ucp_worker_destroy(ucx->worker);
    if (ucx->context != NULL)
        ucx->lib.ucp_cleanup(ucx->context);
    free_all(ucx);
    (void)pthread_mutex_destroy(&ucx->lock);
    free(ucx);
}
