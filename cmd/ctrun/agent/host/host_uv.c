/* See host_uv.h. */
#include "host_uv.h"

#include "base/assert.h"
#include "base/str.h"
#include "local_socket.h"
#include "net/address.h"
#include "net/descriptors.h"
#include "net/endpoint.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEFAULT_PORT = 29400, ENDPOINTS_BYTES = sizeof((struct host *)0)->endpoint };

/* Connections that nodes and operators may have here. A worker takes up to DESCRIPTORS of the
 * launcher's own (pipes, files, its link, and again while it is replaced); PyTorch's store has half
 * of what is left. */
static uint32_t links_allowed(const struct job *job)
{
    enum { OWN = 64, DESCRIPTORS = 16, MOST = 65536 };
    uint32_t all = ct_descriptors_for_links(OWN + DESCRIPTORS * job->slots, MOST);

    return job->program.native ? all : CT_MAX(all / 2, 1u);
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
    int rc = local_socket_path(job->env, path, err);

    if (rc != 0)
        return rc;
    (void)snprintf(host->endpoint, sizeof host->endpoint, "unix:%s", path);
    (void)ct_str_copy(host->address, sizeof host->address, "127.0.0.1");
    options.listen[0] = host->endpoint;
    return ct_rdzv_server_start(&host->server, loop, &options, err);
}

/* ---- among nodes ---------------------------------------------------------------------------- */

/* The address that a packet to `to` would be sent from; nothing is sent. */
static bool source_address(const struct sockaddr *to, char text[CT_ADDRESS_TEXT])
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, to, ct_address_size(to)) == 0 &&
                 getsockname(fd, (struct sockaddr *)&from, &size) == 0;

    if (fd >= 0)
        (void)close(fd);
    if (found)
        (void)ct_address_host((const struct sockaddr *)&from, text);
    return found;
}

/* For a server on all interfaces: the first address that is not loopback. */
static void interface_address(char text[CT_ADDRESS_TEXT])
{
    struct ifaddrs *list;

    (void)ct_str_copy(text, CT_ADDRESS_TEXT, "127.0.0.1");
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
            (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP))
            continue;
        (void)ct_address_host(at->ifa_addr, text);
        break;
    }
    freeifaddrs(list);
}

/* The address that the user gave, in digits: a name that is good here may mean nothing elsewhere.
 */
static int resolve_own(const char *given, char text[CT_ADDRESS_TEXT], struct ct_error *err)
{
    struct sockaddr_storage numeric[2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;

    if (ct_address_numeric(given, 0, numeric) > 0) {
        (void)ct_address_host((const struct sockaddr *)&numeric[0], text);
        return 0;
    }
    int rc = getaddrinfo(given, NULL, &hints, &found);
    if (rc != 0)
        return ct_error_set(err, CT_EUSAGE,
                            "local_addr \"%s\" cannot be resolved here: %s; give the address",
                            given, gai_strerror(rc));
    (void)ct_address_host(found->ai_addr, text);
    freeaddrinfo(found);
    return 0;
}

/* How other nodes reach this one: as asked for, or as seen on the way to the endpoint. Numbers
 * only, here too. */
static int find_address(const struct ct_endpoint *endpoint, const struct job *job,
                        char text[CT_ADDRESS_TEXT], struct ct_error *err)
{
    struct sockaddr_storage numeric[2];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    bool ok;

    if (job->cfg.launch.local_addr[0] != '\0')
        return resolve_own(job->cfg.launch.local_addr, text, err);
    if (endpoint->is_unix || endpoint->host[0] == '\0') {
        interface_address(text);
        return 0;
    }
    if (ct_address_numeric(endpoint->host, 1, numeric) > 0) {
        ok = source_address((const struct sockaddr *)&numeric[0], text);
    } else {
        int rc = getaddrinfo(endpoint->host, "1", &hints, &found);

        if (rc != 0)
            return ct_error_set(err, CT_EUSAGE,
                                "the host \"%s\" of rdzv_endpoint cannot be resolved here: %s; "
                                "give its address",
                                endpoint->host, gai_strerror(rc));
        ok = source_address(found->ai_addr, text);
        freeaddrinfo(found);
    }
    if (!ok)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "there is no route from here to %s, the host of rdzv_endpoint: %s",
                            endpoint->host, ct_strerror(-errno));
    return 0;
}

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
                           const struct ct_slurm *slurm)
{
    struct sockaddr_storage launcher[2];

    endpoint->host[0] = '\0';
    (void)ct_endpoint_print(endpoint, host->endpoint);
    if (ct_address_numeric(slurm->launch_address, 1, launcher) == 0 ||
        !source_address((const struct sockaddr *)&launcher[0], host->address) ||
        ct_starts_with(host->address, "127."))
        interface_address(host->address);
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

/* The endpoints as the user gave them, rdzv_endpoint, or master_addr and master_port: the first,
 * and all of them with their ports as `ret_list`. */
static int read_endpoints(const struct job *job, struct ct_endpoint *ret_first,
                          char ret_list[ENDPOINTS_BYTES], struct ct_error *err)
{
    const struct ct_config *cfg = &job->cfg;
    const char *list = cfg->launch.rdzv_endpoint;
    int port = DEFAULT_PORT, rc = 0;
    size_t used = 0;

    if (list[0] == '\0') {
        list = cfg->launch.master_addr;
        port = (int)cfg->launch.master_port;
    }
    if (list[0] == '\0')
        return ct_error_set(err, CT_EUSAGE,
                            "%lld nodes need a place to meet: give all of them the same "
                            "--rdzv_endpoint HOST:PORT (HOST is one of them, or runs ctrund)",
                            (long long)cfg->launch.nnodes.max);
    do {
        char one[CT_ENDPOINT_TEXT];
        struct ct_endpoint endpoint = {.port = 0};

        ct_endpoint_next(&list, one);
        rc = ct_endpoint_parse(one, port, &endpoint, err);
        if (rc != 0)
            return rc;
        (void)ct_endpoint_print(&endpoint, one);
        if (used + strlen(one) + 2 > ENDPOINTS_BYTES)
            return ct_error_set(err, CT_EUSAGE, "rdzv_endpoint names too many endpoints");
        if (used == 0)
            *ret_first = endpoint;
        used += (size_t)snprintf(ret_list + used, ENDPOINTS_BYTES - used, "%s%s",
                                 used > 0 ? "," : "", one);
    } while (*list != '\0');
    return 0;
}

/* The endpoint that is served here, as this node dials it: one on all interfaces has no host. */
static void set_endpoint(struct host *host)
{
    struct ct_endpoint served = {.port = 0};
    const char *text = ct_rdzv_server_endpoint(host->server, 0);

    (void)ct_str_copy(host->endpoint, sizeof host->endpoint, text);
    if (ct_endpoint_parse(text, -1, &served, NULL) != 0 || served.is_unix || served.host[0] != '\0')
        return;
    (void)ct_str_copy(served.host, sizeof served.host, host->address);
    (void)ct_endpoint_print(&served, host->endpoint);
}

/* The options of a server of several nodes, without what it listens on. */
static struct ct_rdzv_server_options options_of(const struct host *host, const struct job *job,
                                                const struct ct_log *log)
{
    return (struct ct_rdzv_server_options){
        .key_file = job->cfg.launch.key_file[0] != '\0' ? job->cfg.launch.key_file : NULL,
        .only_job = job->cfg.launch.rdzv_id,
        .links_max = links_allowed(job),
        .own = host->id,
        .log = log,
    };
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
                 const struct ct_log *log, struct ct_error *err)
{
    struct ct_rdzv_server_options options = options_of(host, job, log);
    const struct ct_rdzv_replica_options replica = {
        .listener = 1, .host = job->host, .lease_ms = (uint32_t)job->cfg.launch.lease_ms};
    char path[LOCAL_SOCKET_BYTES], local[LOCAL_SOCKET_BYTES + 8], own[CT_ENDPOINT_TEXT];

    options.listen[0] = host->endpoint;
    options.listen[1] = own_port(host, own);
    options.listen_count = 2;
    options.replica = &replica;
    /* For commands on this machine, if it can be had. */
    if (local_socket_path(job->env, path, NULL) == 0) {
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

static int start_among(struct host *host, uv_loop_t *loop, const struct job *job,
                       const struct ct_log *log, struct ct_error *err)
{
    struct ct_endpoint endpoint = {.port = 0};
    struct ct_error bind_error = {0};
    int rc = read_endpoints(job, &endpoint, host->endpoint, err);

    if (rc == 0)
        rc = find_address(&endpoint, job, host->address, err);
    if (rc != 0)
        return rc;
    if (job->cfg.launch.node_rank > 0 || strchr(host->endpoint, ',') != NULL)
        return 0; /* several endpoints are those of daemons */
    if (ct_config_origin(&job->cfg, &job->cfg.launch.rdzv_endpoint)->layer == CT_CONFIG_PRESET &&
        name_means_loopback(&endpoint, host->address))
        leave_loopback(host, &endpoint, job->slurm);
    warn_of_loopback(&endpoint, host->address, log);
    rc = serve(host, loop, job, log, &bind_error);
    if (rc == CT_EUNAVAILABLE || rc == CT_EINUSE) {
        host->unbound = bind_error;
        return 0;
    }
    if (rc != 0)
        return ct_error_set(err, rc, "%s", bind_error.text);
    set_endpoint(host);
    return 0;
}

bool host_offer(struct host *host, uv_loop_t *loop, const struct job *job, const struct ct_log *log,
                const struct ct_msg_voters *voters, struct ct_msg_offer *ret_offer)
{
    struct ct_rdzv_server_options options = options_of(host, job, log);
    const struct ct_rdzv_replica_options replica = {
        .host = job->host,
        .endpoint = host->endpoint,
        .lease_ms = (uint32_t)job->cfg.launch.lease_ms,
        .voters = voters,
    };
    char own[CT_ENDPOINT_TEXT];
    struct ct_error err = {0};

    if (host->server == NULL) {
        options.listen[options.listen_count++] = own_port(host, own);
        options.replica = &replica;
        host->replicated = ct_rdzv_server_start(&host->server, loop, &options, &err) == 0;
        if (!host->replicated)
            ct_log_event(log, CT_LOG_DEBUG, "replica", "this host cannot hold the record: %s",
                         err.text);
    }
    if (host->replicated)
        *ret_offer = ct_rdzv_server_follow(host->server, voters);
    return host->replicated;
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
    return job->alone ? start_alone(host, loop, job, log, err)
                      : start_among(host, loop, job, log, err);
}
