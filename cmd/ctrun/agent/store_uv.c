/* See store_uv.h. */
#include "store_uv.h"

#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "host/port.h"
#include "net/descriptors.h"
#include "node_state_uv.h"
#include "rendezvous/tcpstore/hub_uv.h"
#include "rendezvous/tcpstore/relay_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    POLL_MS = 1000,     /* between two looks at who waits, and the shortest wait of interest */
    SHOWN = 20,         /* lines of waits that go to the rendezvous */
    NOTICED = 3,        /* and to the log */
    FIRST_MS = 30000,   /* a wait of this length is worth a line in the log */
    SECOND_MS = 300000, /* and of this another one */
};

/* A client of another node that left in the middle of something. */
struct loss {
    uint64_t at_ms; /* 0: none */
    char text[300];
};

/* What a round has here. */
struct serving {
    struct ct_tcpstore_server *server; /* node 0, and who offers to become it; else NULL */
    struct ct_tcpstore_hub *hub;       /* LOCAL: what brings other nodes' workers to the server */
    struct ct_tcpstore_relay *relay;   /* LOCAL, not on node 0: what brings this node's to node 0 */
};

struct store {
    struct node *node;
    enum ct_config_torch_store mode;
    bool alone; /* one node: all is on loopback */
    struct ct_key key;
    bool has_key;
    struct serving now;    /* of the round that runs, or the last one */
    struct serving offer;  /* of the one that was promised */
    struct port port;      /* RANK0: reserved */
    struct ct_error error; /* why nothing could be offered */
    struct rlimit files;   /* of workers */
    bool raised;           /* the agent has more */
    uv_timer_t timer;      /* while the server here is in use */
    bool waits_reported;   /* the rendezvous knows of some */
    uint64_t notice_ms;    /* a wait of this length is said next */
    bool check_dead;       /* one of this node's workers may be dead */
    struct loss loss;
};

const struct rlimit *store_files(const struct store *store)
{
    return store->raised ? &store->files : NULL;
}

/* What a key does not protect in this mode. */
static void warn_of_clear(const struct store *store)
{
    if (store->mode == CT_CONFIG_TORCH_STORE_AGENT && !store->alone &&
        key_option_given(&store->node->job->cfg))
        ct_log_event(&store->node->log, CT_LOG_WARN, "torch_store",
                     "PyTorch's store is served in clear, and lets in the nodes' hosts by their "
                     "addresses alone, whatever --key_file says: leave out --torch_store agent to "
                     "have it behind the key");
}

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
    if (store->mode == CT_CONFIG_TORCH_STORE_AUTO)
        store->mode = !store->alone && key_option_given(cfg) ? CT_CONFIG_TORCH_STORE_LOCAL
                                                             : CT_CONFIG_TORCH_STORE_AGENT;
    store->port.fd = -1;
    store->has_key =
        store->mode == CT_CONFIG_TORCH_STORE_LOCAL && !store->alone && key_option_given(cfg);
    const struct ct_key_source source = key_option_source(cfg);
    if (store->has_key && ct_key_source_load(&source, &store->key, err) != 0) {
        free(store);
        return NULL;
    }
    if (store->key.kind == CT_KEY_MUNGE) /* nodes serve it, whatever ctrund's account is */
        store->key.munge.account = geteuid();
    warn_of_clear(store);
    /* Every rank connects, some several times; and so does every node, where this one hosts. */
    store->raised = ct_descriptors_raise(&store->files);
    (void)uv_timer_init(&node->loop, &store->timer);
    store->timer.data = store;
    return store;
}

/* ---- what is told --------------------------------------------------------------------------- */

/* Which worker of this node has that pid? -1: none. */
static int32_t local_rank_of(const struct store *store, const char *host, uint32_t pid)
{
    const struct node *node = store->node;
    bool here = strncmp(host, "127.", 4) == 0 || strcmp(host, node->host.address) == 0;

    for (uint32_t i = 0; here && pid != 0 && i < node->job->slots; i++)
        if (ct_workers_pid(node->workers, i) == (pid_t)pid)
            return (int32_t)i;
    return -1;
}

/* "rank 3 (pid 77)", "node 1 (host, pid 77)", or what the connection shows. */
static void put_name(void *context, const struct ct_tcpstore_about *about, struct ct_buf *to)
{
    const struct store *store = context;
    const struct ct_round *round = store->node->round;
    int32_t local = local_rank_of(store, about->host, about->pid);

    if (round != NULL && local >= 0) {
        (void)ct_buf_printf(to, "rank %u (pid %u)", round->own->first_rank + (uint32_t)local,
                            about->pid);
        return;
    }
    for (uint32_t i = 0; round != NULL && round->nodes != NULL && i < round->node_count; i++) {
        if (strcmp(round->nodes[i].address, about->host) != 0)
            continue;
        (void)ct_buf_printf(to, "node %u (%s, pid %u)", i, round->nodes[i].host, about->pid);
        return;
    }
    (void)ct_buf_printf(to, "%s (pid %u)", about->host, about->pid);
}

/* Who waits for more than a second, for `ctrun status`. */
static void report_waits(struct store *store, uint64_t now_ms)
{
    struct node *node = store->node;
    const struct ct_tcpstore_waits how = {.now_ms = now_ms,
                                          .at_least_ms = POLL_MS,
                                          .most = SHOWN,
                                          .put_name = put_name,
                                          .context = store};
    struct ct_buf text;

    ct_buf_init(&text, CT_WIRE_WAITS_BYTES);
    size_t count =
        ct_tcpstore_print_waits(ct_tcpstore_server_store(store->now.server), &how, &text);
    if ((count > 0 || store->waits_reported) && node->agent != NULL && !text.failed)
        ct_agent_store_waits(node->agent,
                             &(struct ct_msg_store_waits){.generation = node->round->generation,
                                                          .text = ct_buf_str(&text)});
    store->waits_reported = count > 0;
    ct_buf_deinit(&text);
}

/* "a\nb\n" as "a; b". */
static const char *one_line(const struct ct_buf *text, struct ct_buf *line)
{
    const char *at = ct_buf_str(text);

    while (*at != '\0') {
        size_t length = strcspn(at, "\n");
        (void)ct_buf_printf(line, "%s%.*s", line->size > 0 ? "; " : "", (int)length, at);
        at += length + (at[length] == '\n');
    }
    return ct_buf_str(line);
}

/* A job that hangs before its first step mostly waits for a rank that never came. */
static void notice_waits(struct store *store, uint64_t now_ms)
{
    const struct ct_tcpstore_waits how = {.now_ms = now_ms,
                                          .at_least_ms = store->notice_ms,
                                          .most = NOTICED,
                                          .put_name = put_name,
                                          .context = store};
    struct ct_buf text, line;

    ct_buf_init(&text, 0);
    ct_buf_init(&line, 0);
    size_t count =
        ct_tcpstore_print_waits(ct_tcpstore_server_store(store->now.server), &how, &text);
    if (count > 0) {
        ct_log_event(&store->node->log, CT_LOG_INFO, "store_waits",
                     "%zu connection%s to PyTorch's store wait%s for keys that nobody sets: %s "
                     "(ctrun status shows more)",
                     count, count == 1 ? "" : "s", count == 1 ? "s" : "", one_line(&text, &line));
        store->notice_ms = store->notice_ms == FIRST_MS ? SECOND_MS : UINT64_MAX;
    }
    ct_buf_deinit(&text);
    ct_buf_deinit(&line);
}

/* A second has passed since, and the round goes on: so nobody else has told of it. */
static void report_loss(struct store *store, uint64_t now_ms)
{
    struct node *node = store->node;

    if (store->loss.at_ms == 0 || now_ms - store->loss.at_ms < POLL_MS)
        return;
    if (node->core.phase == AGENT_RUNNING)
        ct_log_event(&node->log, CT_LOG_INFO, "store_lost", "%s", store->loss.text);
    store->loss.at_ms = 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct store *store = timer->data;
    struct node *node = store->node;
    uint64_t now_ms = uv_now(&node->loop);

    if (store->check_dead) {
        store->check_dead = false;
        ct_workers_poll(node->workers);
    }
    if (store->now.server == NULL || node->round == NULL || agent_core_is_ending(&node->core))
        return;
    report_waits(store, now_ms);
    notice_waits(store, now_ms);
    report_loss(store, now_ms);
}

/* A hint, no more: what ends a worker is its exit, which its own agent sees. */
static void on_lost(void *user, const struct ct_tcpstore_lost *lost)
{
    struct store *store = user;
    const struct ct_tcpstore_about about = {.host = lost->host, .pid = lost->pid};
    struct ct_buf name;

    if (!lost->is_client || (!lost->waited && lost->why == NULL))
        return;
    if (local_rank_of(store, lost->host, lost->pid) >= 0) {
        store->check_dead = true;
        (void)uv_timer_start(&store->timer, on_timer, 0, POLL_MS);
        return;
    }
    if (store->loss.at_ms != 0)
        return;
    ct_buf_init(&name, sizeof store->loss.text / 2);
    put_name(store, &about, &name);
    (void)snprintf(store->loss.text, sizeof store->loss.text,
                   "%s left PyTorch's store in the middle of %s", ct_buf_str(&name),
                   lost->waited ? "a wait" : "its connection");
    store->loss.at_ms = uv_now(&store->node->loop);
    ct_buf_deinit(&name);
}

/* ---- a server ------------------------------------------------------------------------------- */

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

static int start_server(struct store *store, struct ct_error *err)
{
    uv_loop_t *loop = &store->node->loop;
    bool open = store->mode == CT_CONFIG_TORCH_STORE_AGENT && !store->alone;
    const struct ct_tcpstore_server_options options = {
        .members_follow = open,
        .on_lost = on_lost,
        .on_refused = on_refused,
        .user = store,
    };
    struct ct_endpoint endpoint = {.host = "127.0.0.1"};

    if (open)
        endpoint = own_endpoint(store, false);
    int rc = ct_tcpstore_server_start(loop, &endpoint, &options, &store->offer.server, err);
    if (rc == CT_EUNAVAILABLE && open) {
        endpoint = own_endpoint(store, true);
        rc = ct_tcpstore_server_start(loop, &endpoint, &options, &store->offer.server, err);
    }
    return rc;
}

/* The key of now; NULL: in clear. */
static const struct ct_key *key_of(struct store *store)
{
    if (!store->has_key)
        return NULL;
    const struct ct_key_source source = key_option_source(&store->node->job->cfg);
    ct_key_source_reload(&source, &store->key);
    return &store->key;
}

static int start_hub(struct store *store, uint64_t generation, struct ct_error *err)
{
    uv_loop_t *loop = &store->node->loop;
    const struct ct_tcpstore_hub_options options = {
        .server = store->offer.server,
        .generation = generation,
        .job = store->node->job->cfg.launch.rdzv_id,
        .key = key_of(store),
        .on_lost = on_lost,
        .user = store,
    };
    struct ct_endpoint endpoint = own_endpoint(store, false);

    int rc = ct_tcpstore_hub_start(loop, &endpoint, &options, &store->offer.hub, err);
    if (rc == CT_EUNAVAILABLE) {
        endpoint = own_endpoint(store, true);
        rc = ct_tcpstore_hub_start(loop, &endpoint, &options, &store->offer.hub, err);
    }
    return rc;
}

static void stop_serving(struct serving *serving)
{
    ct_tcpstore_hub_stop(serving->hub);
    if (serving->server != NULL)
        ct_tcpstore_server_stop(serving->server);
    ct_tcpstore_relay_stop(serving->relay);
    *serving = (struct serving){.server = NULL};
}

uint16_t store_offer(struct store *store, uint64_t generation)
{
    if (store->mode == CT_CONFIG_TORCH_STORE_RANK0) {
        port_renew(&store->port);
        return store->port.number;
    }
    stop_serving(&store->offer); /* of a round that never began */
    store->error = (struct ct_error){0};
    int rc = start_server(store, &store->error);
    if (rc == 0 && store->mode == CT_CONFIG_TORCH_STORE_LOCAL && !store->alone)
        rc = start_hub(store, generation, &store->error);
    if (rc != 0) {
        stop_serving(&store->offer);
        return 0;
    }
    return store->offer.hub != NULL ? ct_tcpstore_hub_endpoint(store->offer.hub)->port
                                    : ct_tcpstore_server_endpoint(store->offer.server)->port;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* The hosts of the round may come: node 0 is told all of them, however many there are. */
static int let_in(struct store *store, const struct ct_round *round, struct ct_error *err)
{
    const char **hosts = calloc(round->node_count, sizeof *hosts);

    if (hosts == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a round of %u nodes",
                            round->node_count);
    for (uint32_t i = 0; i < round->node_count; i++)
        hosts[i] = round->nodes[i].address;
    int rc = ct_tcpstore_server_allow(store->now.server, hosts, round->node_count, err);
    free(hosts);
    return rc;
}

static void on_cut(void *user, const struct ct_error *why)
{
    const struct store *store = user;
    const struct node *node = store->node;

    if (node->core.phase != AGENT_RUNNING || agent_core_is_ending(&node->core))
        return; /* they are being stopped */
    ct_log_event(&node->log, CT_LOG_WARN, "store_cut",
                 "the workers of this node have lost PyTorch's store on node 0: %s", why->text);
}

static void on_broken(void *user, const struct ct_error *why)
{
    const struct store *store = user;

    ct_log_event(&store->node->log, CT_LOG_WARN, "store_broken",
                 "the connection to PyTorch's store on node 0 broke and is made anew, its clients "
                 "wait meanwhile: %s",
                 why->text);
}

/* LOCAL, not on node 0: a door to the store there. */
static int start_relay(struct store *store, const struct ct_round *round, struct ct_error *err)
{
    const struct ct_config *cfg = &store->node->job->cfg;
    struct ct_tcpstore_relay_options options = {
        .hub = {.port = round->head->port},
        .generation = round->generation,
        .job = cfg->launch.rdzv_id,
        .key = key_of(store),
        .user_timeout_ms = (uint32_t)cfg->launch.lease_ms,
        .on_broken = on_broken,
        .on_cut = on_cut,
        .user = store,
    };

    (void)ct_str_copy(options.hub.host, sizeof options.hub.host, round->head->address);
    return ct_tcpstore_relay_start(&store->node->loop, &options, &store->now.relay, err);
}

/* This is node 0, which serves. */
static int open_here(struct store *store, const struct ct_round *round,
                     struct round_master *ret_master, struct ct_error *err)
{
    bool local = store->mode == CT_CONFIG_TORCH_STORE_LOCAL || store->alone;
    int rc = 0;

    store->now = store->offer;
    store->offer = (struct serving){.server = NULL};
    if (store->now.server == NULL)
        return ct_error_set(err, store->error.code, "PyTorch's store cannot be served here: %s",
                            store->error.text);
    if (!local)
        rc = let_in(store, round, err);
    store->waits_reported = store->check_dead = false;
    store->notice_ms = FIRST_MS;
    store->loss.at_ms = 0;
    (void)uv_timer_start(&store->timer, on_timer, POLL_MS, POLL_MS);
    *ret_master = (struct round_master){
        .address = local ? "127.0.0.1" : round->head->address,
        .port = ct_tcpstore_server_endpoint(store->now.server)->port,
        .served = true,
    };
    return rc;
}

int store_open(struct store *store, const struct ct_round *round, struct round_master *ret_master,
               struct ct_error *err)
{
    struct round_master there = {
        .address = store->alone ? "127.0.0.1" : round->head->address,
        .port = round->head->port,
        .served = store->mode != CT_CONFIG_TORCH_STORE_RANK0,
    };
    int rc = 0;

    (void)uv_timer_stop(&store->timer);
    stop_serving(&store->now); /* all nodes have stopped the workers that used it */
    if (there.served && round->self == 0)
        return open_here(store, round, ret_master, err);
    stop_serving(&store->offer);
    if (store->mode == CT_CONFIG_TORCH_STORE_LOCAL) {
        rc = start_relay(store, round, err);
        if (rc != 0)
            return ct_error_prefix(err, "PyTorch's store cannot be relayed here");
        there.address = "127.0.0.1";
        there.port = ct_tcpstore_relay_endpoint(store->now.relay)->port;
    }
    *ret_master = there;
    return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    stop_serving(&store->now);
    stop_serving(&store->offer);
    uv_close((uv_handle_t *)&store->timer, NULL);
    port_release(&store->port);
}

void store_free(struct store *store)
{
    if (store != NULL)
        ct_net_key_wipe(&store->key);
    free(store);
}
