/* See store_uv.h. */
#include "store_uv.h"

#include "base/str.h"
#include "node_state_uv.h"
#include "port.h"
#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct store {
    struct node *node;
    enum ct_config_torch_store mode;
    bool alone; /* one node: all is on loopback */
    struct ct_key key;
    bool has_key;
    struct ct_tcpstore_server *server; /* of the promised or the running round; NULL: not here */
    struct ct_tcpstore_hub *hub;       /* LOCAL: what brings other nodes' workers to the server */
    struct ct_tcpstore_relay *relay;   /* LOCAL: what brings this node's to node 0 */
    struct port port;                  /* RANK0: reserved */
    struct ct_error error;             /* why nothing could be offered */
};

struct store *store_new(struct node *node, struct ct_error *err)
{
    const struct ct_config *cfg = &node->job->cfg;
    struct store *store = calloc(1, sizeof *store);

    if (store == NULL) {
        ct_error_set(err, CT_ENOMEM, "out of memory");
        return NULL;
    }
    store->node = node;
    store->alone = node->job->alone;
    store->mode = node->job->program.native ? CT_CONFIG_TORCH_STORE_RANK0 : cfg->launch.torch_store;
    store->port.fd = -1;
    store->has_key = store->mode == CT_CONFIG_TORCH_STORE_LOCAL && !store->alone &&
                     cfg->launch.key_file[0] != '\0';
    if (store->has_key && ct_net_key_load(cfg->launch.key_file, &store->key, err) != 0) {
        free(store);
        return NULL;
    }
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

/* Where other nodes reach this one: the address that it told them; all addresses when that is not
 * one of the machine's (a translated one). */
static struct ct_endpoint own_endpoint(const struct store *store, bool any)
{
    struct ct_endpoint endpoint = {.port = 0};

    if (!any)
        (void)ct_str_copy(endpoint.host, sizeof endpoint.host, store->node->host.address);
    return endpoint;
}

static int start_server(struct store *store, struct ct_tcpstore_server **ret_server,
                        struct ct_error *err)
{
    uv_loop_t *loop = &store->node->loop;
    bool open = store->mode == CT_CONFIG_TORCH_STORE_AGENT && !store->alone;
    const struct ct_tcpstore_server_options options = {
        .members_follow = open,
        .on_refused = on_refused,
        .user = store,
    };
    struct ct_endpoint endpoint = {.host = "127.0.0.1"};

    if (open)
        endpoint = own_endpoint(store, false);
    int rc = ct_tcpstore_server_start(loop, &endpoint, &options, ret_server, err);
    if (rc == CT_EUNAVAILABLE && open) {
        endpoint = own_endpoint(store, true);
        rc = ct_tcpstore_server_start(loop, &endpoint, &options, ret_server, err);
    }
    return rc;
}

static int start_hub(struct store *store, uint64_t generation, struct ct_error *err)
{
    uv_loop_t *loop = &store->node->loop;
    const struct ct_tcpstore_hub_options options = {
        .server = store->server,
        .generation = generation,
        .job = store->node->job->cfg.launch.rdzv_id,
        .key = store->has_key ? &store->key : NULL,
        .user = store,
    };
    struct ct_endpoint endpoint = own_endpoint(store, false);

    int rc = ct_tcpstore_hub_start(loop, &endpoint, &options, &store->hub, err);
    if (rc == CT_EUNAVAILABLE) {
        endpoint = own_endpoint(store, true);
        rc = ct_tcpstore_hub_start(loop, &endpoint, &options, &store->hub, err);
    }
    return rc;
}

static void stop_serving(struct store *store)
{
    ct_tcpstore_hub_stop(store->hub);
    if (store->server != NULL)
        ct_tcpstore_server_stop(store->server);
    ct_tcpstore_relay_stop(store->relay);
    store->hub = NULL;
    store->server = NULL;
    store->relay = NULL;
}

uint16_t store_offer(struct store *store, uint64_t generation)
{
    struct ct_tcpstore_server *server = NULL;

    if (store->mode == CT_CONFIG_TORCH_STORE_RANK0) {
        port_renew(&store->port);
        return store->port.number;
    }
    store->error = (struct ct_error){0};
    int rc = start_server(store, &server, &store->error);
    stop_serving(store); /* after the new one listens: so the port is another */
    store->server = server;
    if (rc == 0 && store->mode == CT_CONFIG_TORCH_STORE_LOCAL && !store->alone)
        rc = start_hub(store, generation, &store->error);
    if (rc != 0) {
        stop_serving(store);
        return 0;
    }
    return store->hub != NULL ? ct_tcpstore_hub_endpoint(store->hub)->port
                              : ct_tcpstore_server_endpoint(server)->port;
}

/* ---- a round ----------------------------------------------------------------------------------
 */

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

static void on_cut(void *user, const struct ct_error *why)
{
    const struct store *store = user;

    ct_log_event(&store->node->log, CT_LOG_WARN, "store_cut",
                 "the workers of this node have lost PyTorch's store on node 0: %s", why->text);
}

/* LOCAL, not on node 0: a door to the store there. */
static int start_relay(struct store *store, const struct ct_round *round, struct ct_error *err)
{
    const struct ct_config *cfg = &store->node->job->cfg;
    struct ct_tcpstore_relay_options options = {
        .hub = {.port = round->nodes[0].port},
        .generation = round->generation,
        .job = cfg->launch.rdzv_id,
        .key = store->has_key ? &store->key : NULL,
        .user_timeout_ms = (uint32_t)cfg->launch.lease_ms,
        .on_cut = on_cut,
        .user = store,
    };

    (void)ct_str_copy(options.hub.host, sizeof options.hub.host, round->nodes[0].address);
    return ct_tcpstore_relay_start(&store->node->loop, &options, &store->relay, err);
}

/* This is node 0, which serves. */
static int open_here(struct store *store, const struct ct_round *round,
                     struct round_master *ret_master, struct ct_error *err)
{
    bool local = store->mode == CT_CONFIG_TORCH_STORE_LOCAL || store->alone;
    int rc = 0;

    if (store->server == NULL)
        return ct_error_set(err, store->error.code, "PyTorch's store cannot be served here: %s",
                            store->error.text);
    if (!local)
        rc = let_in(store, round, err);
    *ret_master = (struct round_master){
        .address = local ? "127.0.0.1" : round->nodes[0].address,
        .port = ct_tcpstore_server_endpoint(store->server)->port,
        .served = true,
    };
    return rc;
}

int store_open(struct store *store, const struct ct_round *round, struct round_master *ret_master,
               struct ct_error *err)
{
    struct round_master there = {
        .address = store->alone ? "127.0.0.1" : round->nodes[0].address,
        .port = round->nodes[0].port,
        .served = store->mode != CT_CONFIG_TORCH_STORE_RANK0,
    };
    int rc = 0;

    if (there.served && round->self == 0)
        return open_here(store, round, ret_master, err);
    stop_serving(store);
    if (store->mode == CT_CONFIG_TORCH_STORE_LOCAL) {
        rc = start_relay(store, round, err);
        if (rc != 0)
            return ct_error_prefix(err, "PyTorch's store cannot be relayed here");
        there.address = "127.0.0.1";
        there.port = ct_tcpstore_relay_endpoint(store->relay)->port;
    }
    *ret_master = there;
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------
 */

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    stop_serving(store);
    port_release(&store->port);
}

void store_free(struct store *store)
{
    if (store != NULL)
        ct_net_key_wipe(&store->key);
    free(store);
}
