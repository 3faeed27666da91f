/* See host_uv.h. */
#include "host_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "cmd/ctrun/cli/key_option.h"
#include "endpoint_list.h"
#include "local_socket.h"
#include "net/address.h"
#include "net/descriptors.h"
#include "net/endpoint.h"
#include "own_address.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Connections that nodes and operators may have here. A worker takes up to DESCRIPTORS of the
 * launcher's own (pipes, files, its link, and again while it is replaced); PyTorch's store has half
 * of what is left. */
static uint32_t links_allowed(const struct job *job)
{
    enum { OWN = 64, DESCRIPTORS = 16, MOST = 131072 };
    uint32_t all = ct_descriptors_for_links(OWN + DESCRIPTORS * job->slots, MOST);

    return job->program.native ? all : CT_MAX(all / 2, 1u);
}

/* A job that grows to its most would find no room here; said at the start, for the limit of a
 * process cannot be raised later. */
static void warn_of_limit(const struct job *job, const struct ct_log *log)
{
    char text[CT_DESCRIPTORS_TEXT];
    uint32_t links = links_allowed(job);

    if (job->cfg.launch.nnodes.max > links)
        ct_log_event(log, CT_LOG_WARN, "limit",
                     "--nnodes lets in up to %lld nodes, but where this ctrun hosts the rendezvous "
                     "it has room for %s%s: nodes beyond them are turned away and come again; "
                     "raise the hard limit here before the start (`ulimit -Hn`), or give a ctrund "
                     "as --rdzv_endpoint",
                     (long long)job->cfg.launch.nnodes.max, ct_descriptors_describe(links, text),
                     job->program.native ? "" : ", as PyTorch's store has half of them");
}

/* ---- alone ---------------------------------------------------------------------------------- */

static int start_alone(struct host *host, uv_loop_t *loop, const struct job *job,
                       const struct ct_log *log, struct ct_error *err)
{
    struct ct_rdzv_server_options options = {.listen_count = 1,
                                             .only_job = job->cfg.launch.rdzv_id,
                                             .links_max = links_allowed(job),
                                             .own = host->id,
                                             .log = log};
    char path[LOCAL_SOCKET_BYTES];
    int rc = local_socket_path(job->env, LOCAL_SOCKET_HOST, path, err);

    if (rc != 0)
        return rc;
    (void)snprintf(host->endpoint, sizeof host->endpoint, "unix:%s", path);
    (void)ct_str_copy(host->address, sizeof host->address, "127.0.0.1");
    options.listen[0] = host->endpoint;
    return ct_rdzv_server_start(&host->server, loop, &options, err);
}

/* ---- among nodes ---------------------------------------------------------------------------- */

/* Debian's /etc/hosts gives a machine's own name an address of loopback. */
static bool name_means_loopback(const struct ct_endpoint *endpoint, const char *address)
{
    struct sockaddr_storage numeric[2];

    return ct_starts_with(address, "127.") && !endpoint->is_unix &&
           ct_address_numeric(endpoint->host, 1, numeric) == 0;
}

/* Slurm knows its nodes by name. Where node 0's name means loopback on node 0, it listens on all
 * interfaces, and publishes the address that srun knows it by. */
static void leave_loopback(struct host *host, struct ct_endpoint *endpoint,
                           const struct ct_slurm *slurm, char ret_first[CT_ENDPOINT_TEXT])
{
    struct sockaddr_storage launcher[2];

    endpoint->host[0] = '\0';
    (void)ct_endpoint_print(endpoint, ret_first);
    if (ct_address_numeric(slurm->launch_address, 1, launcher) == 0 ||
        !own_source((const struct sockaddr *)&launcher[0], host->address) ||
        ct_starts_with(host->address, "127."))
        own_interface(host->address);
}

static void warn_of_loopback(const struct ct_endpoint *endpoint, const char *address,
                             const struct ct_log *log)
{
    if (name_means_loopback(endpoint, address))
        ct_log_event(log, CT_LOG_WARN, "rdzv_loopback",
                     "the name %s means this machine alone here (see /etc/hosts): other machines "
                     "cannot reach it; give the address as rdzv_endpoint",
                     endpoint->host);
}

/* The endpoint that is served here, as this node dials it: one on all interfaces has no host. */
static void set_endpoint(struct host *host)
{
    struct ct_endpoint served = {.port = 0};
    char text[CT_ENDPOINT_TEXT];

    (void)ct_str_copy(text, sizeof text, ct_rdzv_server_endpoint(host->server, 0));
    if (ct_endpoint_parse(text, -1, &served, NULL) == 0 && !served.is_unix &&
        served.host[0] == '\0') {
        (void)ct_str_copy(served.host, sizeof served.host, host->address);
        (void)ct_endpoint_print(&served, text);
    }
    endpoint_list_set_first(host->endpoint, text);
}

/* The options of a server of several nodes, without what it listens on. */
static struct ct_rdzv_server_options options_of(struct host *host, const struct job *job,
                                                const struct ct_log *log)
{
    host->tls = key_option_source(&job->cfg).tls;
    return (struct ct_rdzv_server_options){
        .key_file = job->cfg.launch.key_file[0] != '\0' ? job->cfg.launch.key_file : NULL,
        .tls = &host->tls,
        .only_job = job->cfg.launch.rdzv_id,
        .links_max = links_allowed(job),
        .own = host->id,
        .log = log,
    };
}

/* ---- Slurm's word about other nodes ---------------------------------------------------------- */

/* A holder of the record runs on each of these; names are those that Slurm gives its nodes. */
static void ask_nodes(void *context, const char *const *hosts, size_t count)
{
    const struct host *host = context;
    const struct ct_slurm *allocation = host->allocation;
    size_t known = 0;

    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < allocation->nodes; k++)
            known += strcmp(hosts[i], allocation->hosts[k]) == 0;
    if (known == count)
        ct_scontrol_ask(host->slurm);
}

static void on_answered(void *context, bool down, const char *why)
{
    const struct host *host = context;

    if (host->server != NULL && host->replicated)
        ct_rdzv_server_nodes_known(host->server, down, why);
}

/* Slurm knows about the job's nodes where all of them are tasks of one step: the job has the step's
 * name, then. */
static void find_slurm(struct host *host, uv_loop_t *loop, const struct job *job)
{
    const struct ct_slurm *slurm = job->slurm;
    const char **others;
    size_t count = 0;

    if (slurm == NULL || slurm->place != CT_SLURM_TASK || slurm->hosts == NULL ||
        slurm->nodes < 2 || slurm->nodes > SLURM_NODES ||
        ct_config_origin(&job->cfg, &job->cfg.launch.rdzv_id)->layer != CT_CONFIG_PRESET)
        return;
    others = host->others;
    for (uint32_t i = 0; i < slurm->nodes; i++)
        if (i != slurm->node_rank)
            others[count++] = slurm->hosts[i];
    const struct ct_scontrol_options options = {.loop = loop,
                                                .path = ct_env_find(job->env, "PATH"),
                                                .nodes = others,
                                                .count = count,
                                                .context = host,
                                                .answered = on_answered};
    host->allocation = slurm;
    host->slurm = ct_scontrol_new(&options);
}

void host_close(struct host *host)
{
    ct_scontrol_free(host->slurm);
    host->slurm = NULL;
}

/* Any port of the address at which others reach this node. */
static const char *own_port(const struct host *host, char text[CT_ENDPOINT_TEXT])
{
    struct ct_endpoint own = {.port = 0};

    (void)ct_str_copy(own.host, sizeof own.host, host->address);
    return ct_endpoint_print(&own, text);
}

/* At the endpoint; and where other holders of the record reach this one, which is no place that a
 * ctrun started later could take. */
static int serve(struct host *host, uv_loop_t *loop, const struct job *job,
                 const struct ct_log *log, const char *endpoint, struct ct_error *err)
{
    struct ct_rdzv_server_options options = options_of(host, job, log);
    const struct ct_rdzv_replica_options replica = {.listener = 1,
                                                    .host = job->host,
                                                    .lease_ms = (uint32_t)job->cfg.launch.lease_ms,
                                                    .ask_nodes =
                                                        host->slurm != NULL ? ask_nodes : NULL,
                                                    .ask_context = host};
    char path[LOCAL_SOCKET_BYTES], local[LOCAL_SOCKET_BYTES + 8], own[CT_ENDPOINT_TEXT];

    options.listen[0] = endpoint;
    options.listen[1] = own_port(host, own);
    options.listen_count = 2;
    options.replica = &replica;
    /* For commands on this machine, if it can be had. */
    if (local_socket_path(job->env, LOCAL_SOCKET_HOST, path, NULL) == 0) {
        (void)snprintf(local, sizeof local, "unix:%s", path);
        options.listen[options.listen_count++] = local;
    }
    int rc = ct_rdzv_server_start(&host->server, loop, &options, err);
    host->replicated = rc == 0;
    if (rc == 0)
        return 0;
    /* It may be the second address that is not to be had: then the rendezvous is this host's alone.
     */
    options.replica = NULL;
    options.listen[1] = options.listen[2];
    options.listen_count--;
    *err = (struct ct_error){0};
    return ct_rdzv_server_start(&host->server, loop, &options, err);
}

/* Does this node host the rendezvous, as far as the list of endpoints says? Of several, the node at
 * the first does, unless somebody listens at another one by now: then the job lives, or daemons
 * serve. A node at another one listens there as soon as it may hold the record. */
static bool may_host(struct host *host, const struct job *job)
{
    bool is_list = strchr(host->endpoint, ',') != NULL;
    int own = is_list ? endpoint_list_own(host->endpoint, host->door) : 0;

    if (own != 0 || job->cfg.launch.node_rank > 0 || endpoint_list_answers(host->endpoint))
        return false;
    host->door[0] = '\0';
    return true;
}

static int start_among(struct host *host, uv_loop_t *loop, const struct job *job,
                       const struct ct_log *log, struct ct_error *err)
{
    struct ct_endpoint endpoint = {.port = 0};
    struct ct_error bind_error = {0};
    char first[CT_ENDPOINT_TEXT];
    int rc = endpoint_list_read(&job->cfg, &endpoint, host->endpoint, err);

    if (rc == 0)
        rc = own_address(&endpoint, job, host->address, err);
    if (rc != 0 || !may_host(host, job))
        return rc;
    (void)ct_endpoint_print(&endpoint, first);
    if (ct_config_origin(&job->cfg, &job->cfg.launch.rdzv_endpoint)->layer == CT_CONFIG_PRESET &&
        name_means_loopback(&endpoint, host->address))
        leave_loopback(host, &endpoint, job->slurm, first);
    warn_of_loopback(&endpoint, host->address, log);
    rc = serve(host, loop, job, log, first, &bind_error);
    if (rc == CT_EUNAVAILABLE || rc == CT_EINUSE) {
        host->unbound = bind_error;
        return 0;
    }
    if (rc != 0)
        return ct_error_set(err, rc, "%s", bind_error.text);
    set_endpoint(host);
    return 0;
}

/* Begin to listen as a holder: on a port of its own, for commands on this machine, and at the door.
 * The latter two are left out when they are not to be had. */
static void hold(struct host *host, uv_loop_t *loop, const struct job *job,
                 const struct ct_log *log, const struct ct_msg_voters *voters)
{
    struct ct_rdzv_server_options options = options_of(host, job, log);
    const struct ct_rdzv_replica_options replica = {
        .host = job->host,
        .endpoint = host->endpoint,
        .lease_ms = (uint32_t)job->cfg.launch.lease_ms,
        .voters = voters,
        .ask_nodes = host->slurm != NULL ? ask_nodes : NULL,
        .ask_context = host,
    };
    char own[CT_ENDPOINT_TEXT], path[LOCAL_SOCKET_BYTES], local[LOCAL_SOCKET_BYTES + 8];
    struct ct_error err = {0};

    options.replica = &replica;
    options.listen[options.listen_count++] = own_port(host, own);
    if (local_socket_path(job->env, LOCAL_SOCKET_HOLDER, path, NULL) == 0) {
        (void)snprintf(local, sizeof local, "unix:%s", path);
        options.listen[options.listen_count++] = local;
    }
    if (host->door[0] != '\0')
        options.listen[options.listen_count++] = host->door;
    int rc = ct_rdzv_server_start(&host->server, loop, &options, &err);
    while (rc != 0 && options.listen_count > 1) {
        options.listen_count--;
        rc = ct_rdzv_server_start(&host->server, loop, &options, &err);
    }
    host->replicated = rc == 0;
    if (rc == 0)
        warn_of_limit(job, log);
    else
        ct_log_event(log, CT_LOG_DEBUG, "replica", "this host cannot hold the record: %s",
                     err.text);
}

/* The page of the server here, if there is one, where --status wants it. */
static int show(struct host *host, uv_loop_t *loop, const struct job *job, struct ct_error *err)
{
    const struct ct_page_where where = {.endpoint = job->cfg.launch.status,
                                        .certificate = job->cfg.launch.status_tls,
                                        .token_file = job->cfg.launch.status_token};

    if (where.endpoint[0] == '\0' || host->server == NULL || host->page != NULL)
        return 0;
    return ct_page_start(loop, &where, host->server, &host->page, err);
}

void host_hide(struct host *host)
{
    ct_page_stop(host->page);
    host->page = NULL;
}

bool host_offer(struct host *host, uv_loop_t *loop, const struct job *job, const struct ct_log *log,
                const struct ct_msg_voters *voters, struct ct_msg_offer *ret_offer)
{
    struct ct_error err = {0};

    if (host->server == NULL) {
        hold(host, loop, job, log, voters);
        if (show(host, loop, job, &err) != 0)
            ct_log_event(log, CT_LOG_WARN, "status", "%s", err.text);
    }
    if (host->replicated)
        *ret_offer = ct_rdzv_server_follow(host->server, voters);
    return host->replicated;
}

bool host_is_orphan(const struct host *host)
{
    return host->server != NULL && ct_rdzv_server_is_orphan(host->server);
}

bool host_leads(const struct host *host)
{
    return host->server != NULL && ct_rdzv_server_leads(host->server);
}

int host_start(struct host *host, uv_loop_t *loop, const struct job *job, const struct ct_log *log,
               struct ct_error *err)
{
    *host = (struct host){.server = NULL};
    if (getrandom(&host->id, sizeof host->id, 0) != (ssize_t)sizeof host->id)
        return ct_error_set(err, CT_EOS, "getrandom gave no random bytes");
    if (!job->alone)
        find_slurm(host, loop, job);
    int rc = job->alone ? start_alone(host, loop, job, log, err)
                        : start_among(host, loop, job, log, err);
    if (rc == 0 && host->server != NULL)
        warn_of_limit(job, log);
    if (rc == 0)
        rc = show(host, loop, job, err);
    if (rc != 0)
        host_close(host);
    return rc;
}
