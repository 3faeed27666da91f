/* Who takes part: the daemon, agents, an operator; starting, counting and ending them. See soak.h.
 */
#include "soak.h"

#include "base/assert.h"
#include "chance.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 56, ORDER_S = 10, END_S = 30 };

/* ---- starting ------------------------------------------------------------------------------- */

static bool start(struct soak *soak, struct program *program, int host, const char *host_name,
                  const char *const argv[])
{
    const char *words[WORDS_MAX];
    char log[SOAK_PATH], name[32], *blank;

    (void)snprintf(name, sizeof name, "%s", program->name);
    while ((blank = strchr(name, ' ')) != NULL)
        *blank = '-';
    (void)snprintf(log, sizeof log, "%s/%s.log", soak->folder, name);
    hosts_command(&soak->hosts, host, host_name, argv, words, CT_COUNT(words));
    return program_start(program, words, soak->run, log);
}

bool cast_start_daemon(struct soak *soak, int seat, bool takeover)
{
    struct cast *cast = &soak->cast;
    struct program *daemon = &cast->seats[seat].daemon;
    char program[SOAK_PATH], status[SOAK_PATH + 16], journal[SOAK_PATH], port[SOAK_PATH];
    const char *argv[] = {program,
                          "--listen",
                          cast->seats[seat].endpoint,
                          "--status",
                          status,
                          "--journal",
                          journal,
                          "--port_file",
                          port,
                          "--takeover",
                          takeover ? "yes" : "no",
                          soak->hosts.spaces ? "--key_file" : NULL,
                          cast->key,
                          NULL};

    (void)snprintf(program, sizeof program, "%s/ctrund", soak->programs);
    (void)snprintf(status, sizeof status, "unix:%s/status.%d", soak->folder, seat);
    (void)snprintf(journal, sizeof journal, "%s/journal", soak->folder);
    (void)snprintf(port, sizeof port, "%s/port", soak->folder);
    (void)snprintf(daemon->name, sizeof daemon->name, "daemon %d", seat);
    cast->serving = seat;
    cast->seats[seat].killed = false;
    cast->seats[seat].fenced_s = 0;
    cast->answered_s = cast->started_s = soak_now_s(soak);
    return start(soak, daemon, SOAK_HOSTS + seat, "authority", argv);
}

struct program *cast_daemon(struct soak *soak)
{
    return &soak->cast.seats[soak->cast.serving].daemon;
}

/* Who serves comes first: a command does not ask for long. */
static void list_endpoints(const struct soak *soak, char ret_list[160])
{
    const struct cast *cast = &soak->cast;

    (void)snprintf(ret_list, 160, "%s,%s", cast->seats[cast->serving].endpoint,
                   cast->seats[1 - cast->serving].endpoint);
}

bool cast_start_agent(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];
    char program[SOAK_PATH], lease[32], nodes[32], slots[16], hang[32], endpoints[160];
    const char *argv[] = {program,
                          "--rdzv_id=soak",
                          "--rdzv_endpoint",
                          endpoints,
                          "--nnodes",
                          nodes,
                          "--nproc_per_node",
                          slots,
                          "--lease",
                          lease,
                          "--max_restarts=1000000",
                          "--grace=2s",
                          hang,
                          "--join_timeout=60s",
                          "--local_addr",
                          hosts_address(&soak->hosts, host),
                          soak->hosts.spaces ? "--key_file" : "--tee=0",
                          soak->hosts.spaces ? soak->cast.key : "--redirects=0",
                          soak->config,
                          NULL};

    (void)snprintf(program, sizeof program, "%s/ctrun", soak->programs);
    list_endpoints(soak, endpoints);
    (void)snprintf(lease, sizeof lease, "%.0fms", soak->lease_s * 1e3);
    (void)snprintf(nodes, sizeof nodes, "%d:%d", SOAK_MIN, SOAK_MAX);
    (void)snprintf(hang, sizeof hang, "--hang_timeout=%ds", SOAK_HANG_S);
    (void)snprintf(slots, sizeof slots, "%d", SOAK_SLOTS);
    (void)snprintf(node->agent.name, sizeof node->agent.name, "agent %d", host);
    node->leaving = node->ending = false;
    node->busy_s = node->excused_s = node->zombie_s = 0;
    memset(node->workers, 0, sizeof node->workers);
    node->lives++;
    /* Sometimes a host that comes back is known, sometimes it has never been seen. */
    if (node->lives > 1 && rng_chance(&soak->rng, 667))
        (void)snprintf(node->host_name, sizeof node->host_name, "host%d-%u", host, node->lives);
    else
        (void)snprintf(node->host_name, sizeof node->host_name, "host%d", host);
    return start(soak, &node->agent, host, node->host_name, argv);
}

bool cast_order(struct soak *soak, const char *verb, int host)
{
    struct cast *cast = &soak->cast;
    const char *host_name = host < 0 ? NULL : cast->nodes[host].host_name;
    char program[SOAK_PATH], endpoints[160];
    const char *argv[] = {program,
                          verb,
                          "--rdzv_id=soak",
                          "--rdzv_endpoint",
                          endpoints,
                          soak->hosts.spaces ? "--key_file" : host_name,
                          soak->hosts.spaces ? cast->key : NULL,
                          host_name,
                          NULL};

    if (cast->desk.pid != 0)
        return false;
    (void)snprintf(program, sizeof program, "%s/ctrun", soak->programs);
    list_endpoints(soak, endpoints);
    (void)snprintf(cast->desk.name, sizeof cast->desk.name, "operator");
    cast->ordered = host;
    cast->order_s = soak_now_s(soak) + ORDER_S;
    cast->daemon_busy_s = soak_now_s(soak) + 1; /* the command needs it */
    return start(soak, &cast->desk, SOAK_HOSTS + cast->serving, "desk", argv);
}

static bool make_key(struct soak *soak)
{
    char program[SOAK_PATH], log[SOAK_PATH];
    const char *const argv[] = {program, "key", "new", soak->cast.key, NULL};
    struct program key = {.output = -1, .log = -1};

    (void)snprintf(program, sizeof program, "%s/ctrun", soak->programs);
    (void)snprintf(soak->cast.key, sizeof soak->cast.key, "%s/key", soak->folder);
    (void)snprintf(log, sizeof log, "%s/key.log", soak->folder);
    bool made = program_start(&key, argv, soak->run, log);
    while (made && !program_ended(&key))
        soak_pass(5);
    made = made && key.status == 0;
    program_destroy(&key);
    return made;
}

static void name_endpoints(struct soak *soak, int port)
{
    for (int i = 0; i < SOAK_SEATS; i++)
        (void)snprintf(soak->cast.seats[i].endpoint, sizeof soak->cast.seats[i].endpoint, "%s:%d",
                       hosts_address(&soak->hosts, SOAK_HOSTS + i), port);
}

/* The daemon chose its port, all use the same: wait until it says which. */
static bool learn_port(struct soak *soak)
{
    char path[SOAK_PATH];
    int port = 0;

    (void)snprintf(path, sizeof path, "%s/port", soak->folder);
    for (int tries = 0; tries < 1000 && port == 0; tries++) {
        FILE *file = fopen(path, "re");
        soak_pass(10);
        if (file == NULL)
            continue;
        if (fscanf(file, "%d", &port) != 1)
            port = 0;
        (void)fclose(file);
    }
    name_endpoints(soak, port);
    return port != 0;
}

bool cast_open(struct soak *soak)
{
    name_endpoints(soak, 0);
    if (soak->hosts.spaces && !make_key(soak))
        return false;
    if (!cast_start_daemon(soak, 0, false) || !learn_port(soak))
        return false;
    for (int i = 0; i <= SOAK_MIN; i++)
        if (!cast_start_agent(soak, i))
            return false;
    return true;
}

/* ---- counting ----- */

int cast_up(const struct soak *soak)
{
    int count = 0;

    for (int i = 0; i < SOAK_HOSTS; i++)
        count += soak->cast.nodes[i].agent.pid != 0;
    return count;
}

bool cast_is_complete(const struct soak *soak)
{
    const struct cast *cast = &soak->cast;

    return cast->figures_s > cast->started_s && cast->members == cast_up(soak);
}

int cast_sound(const struct soak *soak)
{
    int count = 0;

    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        count += node->agent.pid != 0 && !node->leaving && soak_now_s(soak) > node->busy_s;
    }
    return count;
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool wait_end(struct soak *soak, struct program *program, double until_s)
{
    while (program->pid != 0 && soak_now_s(soak) < until_s) {
        program_pump(program, soak, cast_on_line);
        if (program_ended(program))
            break;
        soak_pass(10);
    }
    program_pump(program, soak, cast_on_line);
    return program->pid == 0;
}

static void close_daemon(struct soak *soak, struct program *daemon)
{
    if (daemon->pid == 0)
        return;
    (void)kill(daemon->pid, SIGTERM);
    if (!wait_end(soak, daemon, soak_now_s(soak) + END_S) || daemon->status != 0)
        report_alarm(soak, "%s ended with status %d after SIGTERM", daemon->name, daemon->status);
}

void cast_close(struct soak *soak)
{
    struct cast *cast = &soak->cast;
    double until_s = soak_now_s(soak) + END_S;

    if (cast->nodes[0].agent.pid != 0)
        (void)kill(cast->nodes[0].agent.pid, SIGINT);
    for (int i = 0; i < SOAK_HOSTS; i++) {
        struct program *agent = &cast->nodes[i].agent;
        if (agent->pid == 0)
            continue;
        if (!wait_end(soak, agent, until_s))
            report_alarm(soak, "agent %d did not end within %d s of SIGINT: %s", i, END_S,
                         agent->last);
        else if (agent->status != 128 + SIGINT)
            report_alarm(soak, "agent %d ended with status %d after SIGINT: %s", i, agent->status,
                         agent->last);
    }
    for (int i = 0; i < SOAK_SEATS; i++)
        close_daemon(soak, &cast->seats[i].daemon);
}

void cast_destroy(struct soak *soak)
{
    for (int i = 0; i < SOAK_HOSTS; i++)
        program_destroy(&soak->cast.nodes[i].agent);
    for (int i = 0; i < SOAK_SEATS; i++)
        program_destroy(&soak->cast.seats[i].daemon);
    program_destroy(&soak->cast.desk);
}
