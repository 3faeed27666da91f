/* See store_uv.h. */
#include "store_uv.h"

#include "base/str.h"
#include "net/address.h"
#include "node_state_uv.h"
#include "port.h"
#include "rendezvous/tcpstore/tcpstore_uv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct store {
    struct node *node;
    enum ct_config_torch_store mode;
    struct ct_tcpstore_server *server; /* of the promised or the running round; NULL: not here */
    struct port port;                  /* RANK0: reserved */
    struct ct_error error;             /* why nothing could be offered */
};

struct store *store_new(struct node *node)
{
    struct store *store = calloc(1, sizeof *store);

    if (store == NULL)
        return NULL;
    store->node = node;
    store->mode =
        node->job->program.native ? CT_CONFIG_TORCH_STORE_RANK0 : node->job->cfg.launch.torch_store;
    store->port.fd = -1;
    return store;
}

/* ---- a server ---------------------------------------------------------------------------------
 */

static void on_refused(void *user, const char *host)
{
    const struct store *store = user;

    ct_log_event(
        &store->node->log, CT_LOG_WARN, "store_refused",
        "the store was asked for by %s, which is no node of this round, and refused: if it "
        "is one, name that address with --local_addr there, or use --torch_store local",
        host);
}

/* Listen at the address that this node told the others; on all when it is not one of the machine's
 * (a translated one). */
static int start_server(struct store *store, struct ct_tcpstore_server **ret_server,
                        struct ct_error *err)
{
    struct node *node = store->node;
    bool open = store->mode == CT_CONFIG_TORCH_STORE_AGENT && !node->job->alone;
    const struct ct_tcpstore_server_options options = {
        .members_follow = open,
        .on_refused = on_refused,
        .user = store,
    };
    struct ct_endpoint endpoint = {.host = "127.0.0.1"};

    if (open)
        (void)ct_str_copy(endpoint.host, sizeof endpoint.host, node->host.address);
    int rc = ct_tcpstore_server_start(&node->loop, &endpoint, &options, ret_server, err);
    if (rc == CT_EUNAVAILABLE && open) {
        endpoint.host[0] = '\0';
        rc = ct_tcpstore_server_start(&node->loop, &endpoint, &options, ret_server, err);
    }
    return rc;
}

static void stop_server(struct store *store)
{
    if (store->server != NULL)
        ct_tcpstore_server_stop(store->server);
    store->server = NULL;
}

uint16_t store_offer(struct store *store, uint64_t generation)
{
    struct ct_tcpstore_server *server = NULL;

    (void)generation;
    if (store->mode == CT_CONFIG_TORCH_STORE_RANK0) {
        port_renew(&store->port);
        return store->port.number;
    }
    store->error = (struct ct_error){0};
    (void)start_server(store, &server, &store->error);
    stop_server(store); /* after the new one listens: so the port is another */
    store->server = server;
    return server != NULL ? ct_tcpstore_server_endpoint(server)->port : 0;
}

/* The hosts of the round may come. */
static int let_in(struct store *store, const struct ct_round *round, struct ct_error *err)
{
    const char **hosts = calloc(round->node_count, sizeof *hosts);

    if (hosts == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a round of %u nodes",
                            round->node_count);
    for (uint32_t i = 0; i < round->node_count; i++)
        hosts[i] = round->nodes[i].address;
    int rc = ct_tcpstore_server_allow(store->server, hosts, round->node_count, err);
    free(hosts);
    return rc;
}

int store_open(struct store *store, const struct ct_round *round, struct round_master *ret_master,
               struct ct_error *err)
{
    bool alone = store->node->job->alone;
    struct round_master master = {
        .address = alone ? "127.0.0.1" : round->nodes[0].address,
        .port = round->nodes[0].port,
        .served = store->mode != CT_CONFIG_TORCH_STORE_RANK0,
    };
    int rc = 0;

    if (master.served && round->self != 0)
        stop_server(store);
    if (master.served && round->self == 0 && store->server == NULL)
        return ct_error_set(err, store->error.code, "PyTorch's store cannot be served here: %s",
                            store->error.text);
    if (store->server != NULL && !alone)
        rc = let_in(store, round, err);
    if (rc == 0)
        *ret_master = master;
    return rc;
}

/* ---- the end ----------------------------------------------------------------------------------
 */

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    stop_server(store);
    port_release(&store->port);
}

void store_free(struct store *store)
{
    free(store);
}
