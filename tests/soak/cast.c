/* Who takes part: the daemon, agents, an operator; starting, counting and ending them. See soak.h.
 */
#include "soak.h"

#include "chance.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ORDER_S = 10, END_S = 30, PORT = 29400 };

/* ---- starting ------------------------------------------------------------------------------- */

bool cast_start_daemon(struct soak *soak, int seat, bool takeover)
{
    struct cast *cast = &soak->cast;
    const char *const words[] = {takeover ? "--takeover=yes" : "--takeover=no", NULL};

    cast->serving = seat;
    cast->seats[seat].killed = false;
    cast->seats[seat].fenced_s = 0;
    cast->answered_s = cast->started_s = soak_now_s(soak);
    return job_start_daemon(&soak->job, seat, SOAK_HOSTS + seat, "authority", words) == 0;
}

struct proc *cast_daemon(struct soak *soak)
{
    return soak->cast.seats[soak->cast.serving].daemon;
}

/* Who serves comes first: a command does not ask for long. */
static void list_endpoints(const struct soak *soak, char ret_list[160])
{
    int first = soak->cast.serving;

    if (soak->leaders) {
        (void)snprintf(ret_list, 160, "%s:%d", hosts_address(&soak->hosts, 0), soak->job.port);
        return;
    }
    (void)snprintf(ret_list, 160, "%s:%d,%s:%d", hosts_address(&soak->hosts, SOAK_HOSTS + first),
                   soak->job.port, hosts_address(&soak->hosts, SOAK_HOSTS + 1 - first),
                   soak->job.port);
}

bool cast_start_agent(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];
    char lease[32], nodes[32], hang[32], endpoints[160];
    const char *const options[] = {"--rdzv_id=soak", "--grace=2s", hang, "--join_timeout=60s",
                                   "--local_addr", hosts_address(&soak->hosts, host),
                                   /* leaders.c reads what debug says; newcomers join within 1 s */
                                   soak->leaders ? "--log.level=debug" : NULL, "--grow=200ms",
                                   NULL};
    const struct job_agent agent = {.endpoints = endpoints,
                                    .nodes = nodes,
                                    .lease = lease,
                                    .restarts = 1000000,
                                    .workers = SOAK_SLOTS,
                                    .options = options,
                                    .program = soak->config};

    list_endpoints(soak, endpoints);
    (void)snprintf(lease, sizeof lease, "%.0fms", soak->lease_s * 1e3);
    (void)snprintf(nodes, sizeof nodes, "%d:%d", SOAK_MIN, SOAK_MAX);
    (void)snprintf(hang, sizeof hang, "--hang_timeout=%ds", SOAK_HANG_S);
    leaders_forget(soak, host);
    node->leaving = node->ending = false;
    node->busy_s = node->excused_s = node->zombie_s = 0;
    memset(node->workers, 0, sizeof node->workers);
    node->lives++;
    /* Sometimes a host that comes back is known, sometimes it has never been seen. */
    if (node->lives > 1 && rng_chance(&soak->rng, 667))
        (void)snprintf(node->host_name, sizeof node->host_name, "host%d-%u", host, node->lives);
    else
        (void)snprintf(node->host_name, sizeof node->host_name, "host%d", host);
    return job_start_agent(&soak->job, host, host, node->host_name, &agent) == 0;
}

bool cast_order(struct soak *soak, const char *verb, int host)
{
    struct cast *cast = &soak->cast;
    const char *host_name = host < 0 ? NULL : cast->nodes[host].host_name;
    const char *key = soak->job.key[0] != '\0' ? soak->job.key : NULL;
    char program[SOAK_PATH], endpoints[160];
    const char *argv[] = {program,
                          verb,
                          "--rdzv_id=soak",
                          "--rdzv_endpoint",
                          endpoints,
                          key != NULL ? "--key_file" : host_name,
                          key,
                          host_name,
                          NULL};

    if (process_runs(&cast->desk))
        return false;
    (void)snprintf(program, sizeof program, "%s/ctrun", soak->programs);
    list_endpoints(soak, endpoints);
    cast->ordered = host;
    cast->order_s = soak_now_s(soak) + ORDER_S;
    cast->daemon_busy_s = soak_now_s(soak) + 1; /* the command needs it */
    return job_start(&soak->job, &cast->desk, "operator", SOAK_HOSTS + cast->serving, "desk",
                     argv) == 0;
}

static void name_everybody(struct soak *soak)
{
    job_init(&soak->job, &soak->hosts, soak->programs, soak->folder);
    soak->job.logs = true;
    soak->job.how =
        (struct process_how){.cwd = soak->run, .on_line = cast_on_line, .context = soak};
    for (int i = 0; i < SOAK_HOSTS; i++)
        soak->cast.nodes[i].agent = &soak->job.agents[i];
    for (int i = 0; i < SOAK_SEATS; i++)
        soak->cast.seats[i].daemon = &soak->job.seats[i].daemon;
}

/* A daemon; or none: the agent of host 0 is where the others meet first. */
static bool open_rendezvous(struct soak *soak)
{
    if (soak->leaders) {
        soak->job.port = PORT;
        return true;
    }
    return cast_start_daemon(soak, 0, false) && job_await_daemon(&soak->job, 0, 10);
}

bool cast_open(struct soak *soak)
{
    bool spaces = hosts_can_be_made() && hosts_up(&soak->hosts, "soak", SOAK_ALL_HOSTS, false);
    int agents = soak->leaders ? SOAK_HOSTS : SOAK_MIN + 1;

    if (!spaces && soak->leaders) /* on one loopback each agent could serve at the endpoint */
        return false;
    if (!spaces)
        (void)hosts_up(&soak->hosts, "soak", SOAK_ALL_HOSTS, true);
    name_everybody(soak);
    if (spaces && !job_make_key(&soak->job, 10))
        return false;
    if (!open_rendezvous(soak))
        return false;
    for (int i = 0; i < agents; i++)
        if (!cast_start_agent(soak, i))
            return false;
    return true;
}

/* ---- counting ----- */

int cast_up(const struct soak *soak)
{
    int count = 0;

    for (int i = 0; i < SOAK_HOSTS; i++)
        count += process_runs(soak->cast.nodes[i].agent);
    return count;
}

bool cast_is_complete(const struct soak *soak)
{
    const struct cast *cast = &soak->cast;

    if (soak->leaders)
        return leaders_are_complete(soak);
    return cast->figures_s > cast->started_s && cast->members == cast_up(soak);
}

int cast_sound(const struct soak *soak)
{
    int count = 0;

    for (int i = 0; i < SOAK_HOSTS; i++) {
        const struct node *node = &soak->cast.nodes[i];
        count += process_runs(node->agent) && !node->leaving && soak_now_s(soak) > node->busy_s;
    }
    return count;
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool wait_end(struct soak *soak, struct proc *program, double until_s)
{
    while (process_runs(program) && soak_now_s(soak) < until_s) {
        process_drain(program);
        if (process_reap(program))
            break;
        soak_pass(10);
    }
    process_drain(program);
    return !process_runs(program);
}

static void close_daemon(struct soak *soak, struct proc *daemon)
{
    if (!process_runs(daemon))
        return;
    (void)kill(daemon->pid, SIGTERM);
    if (!wait_end(soak, daemon, soak_now_s(soak) + END_S) || daemon->status != 0)
        report_alarm(soak, "%s ended with status %d after SIGTERM", daemon->name, daemon->status);
}

void cast_close(struct soak *soak)
{
    struct cast *cast = &soak->cast;
    double until_s = soak_now_s(soak) + END_S;

    if (process_runs(cast->nodes[0].agent))
        (void)kill(cast->nodes[0].agent->pid, SIGINT);
    for (int i = 0; i < SOAK_HOSTS; i++) {
        struct proc *agent = cast->nodes[i].agent;
        if (!process_runs(agent))
            continue;
        if (!wait_end(soak, agent, until_s))
            report_alarm(soak, "agent %d did not end within %d s of SIGINT: %s", i, END_S,
                         agent->last);
        else if (agent->status != 128 + SIGINT)
            report_alarm(soak, "agent %d ended with status %d after SIGINT: %s", i, agent->status,
                         agent->last);
    }
    for (int i = 0; i < SOAK_SEATS; i++)
        close_daemon(soak, cast->seats[i].daemon);
}

void cast_destroy(struct soak *soak)
{
    process_free(&soak->cast.desk);
    job_end(&soak->job);
    hosts_down(&soak->hosts);
}
