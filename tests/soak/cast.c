/* Who takes part: the daemon under a small supervisor, agents, their workers. See soak.h. */
#include "soak.h"

#include "base/assert.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WORDS_MAX = 56, ORPHAN_S = 3, ZOMBIE_S = 5, DRAIN_S = 25, MUTE_S = 5, END_S = 30 };

/* ---- what must never be said ------------------------------------------------------------------
 */

static const char *const forbidden[] = {
    "a bug in",        "iverged",
    "assert",          "Sanitizer",
    "runtime error:",  "egmentation",
    "corrupt",         "protocol",
    "out of memory",   "different collectives",
    "does not hold",   "internal error",
    "replicas differ", "cannot be written",
    "invariant",
};

static void on_line(struct soak *soak, struct program *program, const char *line)
{
    for (size_t i = 0; i < CT_COUNT(forbidden); i++)
        if (strstr(line, forbidden[i]) != NULL)
            report_alarm(soak, "%s says: %s", program->name, line);
}

/* ---- starting ---------------------------------------------------------------------------------
 */

static bool start(struct soak *soak, struct program *program, int host, const char *const argv[])
{
    const char *words[WORDS_MAX];
    char log[SOAK_PATH], name[32], *blank;

    (void)snprintf(name, sizeof name, "%s", program->name);
    while ((blank = strchr(name, ' ')) != NULL)
        *blank = '-';
    (void)snprintf(log, sizeof log, "%s/%s.log", soak->folder, name);
    /* Sometimes a host that comes back is known, sometimes it has never been seen. */
    if (host < SOAK_HOSTS && soak->cast.nodes[host].lives > 1 && ct_rng_chance(&soak->rng, 667))
        (void)snprintf(name, sizeof name, "host%d-%u", host, soak->cast.nodes[host].lives);
    else
        (void)snprintf(name, sizeof name, "host%d", host);
    hosts_command(&soak->hosts, host, name, argv, words, CT_COUNT(words));
    return program_start(program, words, soak->run, log);
}

bool cast_start_daemon(struct soak *soak)
{
    struct cast *cast = &soak->cast;
    char program[SOAK_PATH], status[SOAK_PATH + 8], journal[SOAK_PATH], port[SOAK_PATH];
    const char *argv[] = {program,        "--listen",
                          cast->endpoint, "--status",
                          status,         "--journal",
                          journal,        "--port_file",
                          port,           soak->hosts.spaces ? "--key_file" : NULL,
                          cast->key,      NULL};

    (void)snprintf(program, sizeof program, "%s/ctrund", soak->programs);
    (void)snprintf(status, sizeof status, "unix:%s/status", soak->folder);
    (void)snprintf(journal, sizeof journal, "%s/journal", soak->folder);
    (void)snprintf(port, sizeof port, "%s/port", soak->folder);
    (void)snprintf(cast->daemon.name, sizeof cast->daemon.name, "daemon");
    cast->answered_s = soak_now_s(soak);
    return start(soak, &cast->daemon, SOAK_HOSTS, argv);
}

bool cast_start_agent(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];
    char program[SOAK_PATH], lease[32], nodes[32], slots[16];
    const char *argv[] = {program,
                          "--rdzv_id=soak",
                          "--rdzv_endpoint",
                          soak->cast.endpoint,
                          "--nnodes",
                          nodes,
                          "--nproc_per_node",
                          slots,
                          "--lease",
                          lease,
                          "--max_restarts=1000000",
                          "--grace=2s",
                          "--join_timeout=60s",
                          "--local_addr",
                          hosts_address(&soak->hosts, host),
                          soak->hosts.spaces ? "--key_file" : "--tee=0",
                          soak->hosts.spaces ? soak->cast.key : "--redirects=0",
                          soak->config,
                          NULL};

    (void)snprintf(program, sizeof program, "%s/ctrun", soak->programs);
    (void)snprintf(lease, sizeof lease, "%.0fms", soak->lease_s * 1e3);
    (void)snprintf(nodes, sizeof nodes, "%d:%d", SOAK_MIN, SOAK_MAX);
    (void)snprintf(slots, sizeof slots, "%d", SOAK_SLOTS);
    (void)snprintf(node->agent.name, sizeof node->agent.name, "agent %d", host);
    node->leaving = false;
    node->busy_s = node->excused_s = node->zombie_s = 0;
    memset(node->workers, 0, sizeof node->workers);
    node->lives++;
    return start(soak, &node->agent, host, argv);
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

/* The daemon chose its port: wait until it says which. */
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
    (void)snprintf(soak->cast.endpoint, sizeof soak->cast.endpoint, "%s:%d",
                   hosts_address(&soak->hosts, SOAK_HOSTS), port);
    return port != 0;
}

bool cast_open(struct soak *soak)
{
    struct cast *cast = &soak->cast;

    cast->daemon.output = cast->daemon.log = -1;
    for (int i = 0; i < SOAK_HOSTS; i++)
        cast->nodes[i].agent.output = cast->nodes[i].agent.log = -1;
    (void)snprintf(cast->endpoint, sizeof cast->endpoint, "%s:0",
                   hosts_address(&soak->hosts, SOAK_HOSTS));
    if (soak->hosts.spaces && !make_key(soak))
        return false;
    if (!cast_start_daemon(soak) || !learn_port(soak))
        return false;
    for (int i = 0; i <= SOAK_MIN; i++)
        if (!cast_start_agent(soak, i))
            return false;
    return true;
}

/* ---- the daemon's figures ---------------------------------------------------------------------
 */

static bool get_metrics(struct soak *soak, char *text, size_t room)
{
    static const char request[] =
        "GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_usec = 300000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t size = 0;

    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/status", soak->folder);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0) {
        ssize_t got;
        while (size + 1 < room && (got = read(fd, text + size, room - 1 - size)) > 0)
            size += (size_t)got;
    }
    text[size] = '\0';
    (void)close(fd);
    return size > 0;
}

static double figure(const char *text, const char *name, double otherwise)
{
    size_t length = strlen(name);

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '{'))
            return strtod(line + length + strcspn(line + length, " "), NULL);
    }
    return otherwise;
}

static void watch_figures(struct soak *soak)
{
    struct cast *cast = &soak->cast;
    double now_s = soak_now_s(soak);
    char text[65536];

    if (cast->daemon.pid == 0 || now_s < cast->daemon_busy_s) {
        cast->answered_s = now_s;
        return;
    }
    if (!get_metrics(soak, text, sizeof text)) {
        if (now_s - cast->answered_s > MUTE_S) {
            report_alarm(soak, "the daemon has not answered for %d s", MUTE_S);
            cast->answered_s = now_s;
        }
        return;
    }
    double generation = figure(text, "ctrun_generation", cast->generation);
    double epoch = figure(text, "ctrun_epoch", cast->epoch);
    if (generation < cast->generation)
        report_alarm(soak, "the generation fell from %.0f to %.0f", cast->generation, generation);
    if (epoch < cast->epoch)
        report_alarm(soak, "the epoch fell from %.0f to %.0f", cast->epoch, epoch);
    cast->generation = generation;
    cast->epoch = epoch;
    cast->members = figure(text, "ctrun_members", 0);
    cast->world = figure(text, "ctrun_world_size", 0);
    cast->running = figure(text, "ctrun_running", 0);
    cast->answered_s = now_s;
}

/* ---- workers ----------------------------------------------------------------------------------
 */

static void add_orphan(struct soak *soak, struct worker worker)
{
    for (size_t i = 0; i < CT_COUNT(soak->cast.orphans); i++) {
        struct orphan *orphan = &soak->cast.orphans[i];
        if (orphan->worker.pid != 0)
            continue;
        *orphan = (struct orphan){worker, soak_now_s(soak) + ORPHAN_S};
        return;
    }
}

static void watch_orphans(struct soak *soak)
{
    for (size_t i = 0; i < CT_COUNT(soak->cast.orphans); i++) {
        struct orphan *orphan = &soak->cast.orphans[i];
        if (orphan->worker.pid == 0)
            continue;
        if (!census_lives(orphan->worker.pid, orphan->worker.born)) {
            orphan->worker.pid = 0;
        } else if (soak_now_s(soak) > orphan->due_s) {
            report_alarm(soak, "worker %d lives %d s after its agent", (int)orphan->worker.pid,
                         ORPHAN_S);
            (void)kill(orphan->worker.pid, SIGKILL);
            orphan->worker.pid = 0;
        }
    }
}

static bool is_listed(const struct worker *worker, const struct worker *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i].pid == worker->pid && list[i].born == worker->born)
            return true;
    return false;
}

static void watch_zombies(struct soak *soak, int host, int zombies)
{
    struct node *node = &soak->cast.nodes[host];
    double now_s = soak_now_s(soak);

    if (zombies == 0 || now_s < node->busy_s) {
        node->zombie_s = 0;
    } else if (node->zombie_s == 0) {
        node->zombie_s = now_s;
    } else if (now_s - node->zombie_s > ZOMBIE_S) {
        report_alarm(soak, "agent %d has left %d zombies for %d s", host, zombies, ZOMBIE_S);
        node->zombie_s = now_s;
    }
}

/* Who is there now, compared with who was: only those that a fault concerned may be gone. */
static void watch_workers(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];
    struct worker now[SOAK_SLOTS + 2];
    double now_s = soak_now_s(soak);
    int zombies = 0;
    int count = census_workers(node->agent.pid, now, SOAK_SLOTS + 2, &zombies);

    for (int i = 0; i < SOAK_SLOTS; i++) {
        struct worker *was = &node->workers[i];
        if (was->pid == 0 || is_listed(was, now, count))
            continue;
        if (now_s > was->excused_s && now_s > node->excused_s)
            report_alarm(soak, "worker %d of host %d ended, though no fault concerned it; %s: %s",
                         (int)was->pid, host, node->agent.name, node->agent.last);
        was->pid = 0;
    }
    for (int i = 0; i < count; i++) {
        if (is_listed(&now[i], node->workers, SOAK_SLOTS))
            continue;
        for (int k = 0; k < SOAK_SLOTS; k++) {
            if (node->workers[k].pid != 0)
                continue;
            node->workers[k] = now[i];
            break;
        }
    }
    watch_zombies(soak, host, zombies);
}

/* ---- watching ---------------------------------------------------------------------------------
 */

static void agent_ended(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];

    program_pump(&node->agent, soak, on_line);
    if (node->leaving)
        report_event(soak, "host %d has left with status %d", host, node->agent.status);
    else if (node->agent.status != 128 + SIGKILL)
        report_alarm(soak, "agent %d ended with status %d: %s", host, node->agent.status,
                     node->agent.last);
    for (int i = 0; i < SOAK_SLOTS; i++)
        if (node->workers[i].pid != 0)
            add_orphan(soak, node->workers[i]);
    memset(node->workers, 0, sizeof node->workers);
    node->leaving = false;
}

static void watch_node(struct soak *soak, int host)
{
    struct node *node = &soak->cast.nodes[host];

    program_pump(&node->agent, soak, on_line);
    if (program_ended(&node->agent)) {
        agent_ended(soak, host);
        return;
    }
    if (node->agent.pid == 0)
        return;
    if (node->leaving && soak_now_s(soak) > node->busy_s) {
        report_alarm(soak, "host %d was asked to leave and is still there: %s", host,
                     node->agent.last);
        node->busy_s += DRAIN_S;
    }
    watch_workers(soak, host);
}

void cast_watch(struct soak *soak)
{
    struct cast *cast = &soak->cast;

    program_pump(&cast->daemon, soak, on_line);
    if (program_ended(&cast->daemon)) {
        program_pump(&cast->daemon, soak, on_line);
        if (!cast->daemon_killed)
            report_alarm(soak, "the daemon ended with status %d: %s", cast->daemon.status,
                         cast->daemon.last);
        cast->daemon_killed = false;
    }
    for (int i = 0; i < SOAK_HOSTS; i++)
        watch_node(soak, i);
    watch_orphans(soak);
    watch_figures(soak);
}

int cast_up(const struct soak *soak)
{
    int count = 0;

    for (int i = 0; i < SOAK_HOSTS; i++)
        count += soak->cast.nodes[i].agent.pid != 0;
    return count;
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

/* ---- the end ----------------------------------------------------------------------------------
 */

static bool wait_end(struct soak *soak, struct program *program, double until_s)
{
    while (program->pid != 0 && soak_now_s(soak) < until_s) {
        program_pump(program, soak, on_line);
        if (program_ended(program))
            break;
        soak_pass(10);
    }
    program_pump(program, soak, on_line);
    return program->pid == 0;
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
    if (cast->daemon.pid == 0)
        return;
    (void)kill(cast->daemon.pid, SIGTERM);
    if (!wait_end(soak, &cast->daemon, soak_now_s(soak) + END_S) || cast->daemon.status != 0)
        report_alarm(soak, "the daemon ended with status %d after SIGTERM", cast->daemon.status);
}

void cast_destroy(struct soak *soak)
{
    for (int i = 0; i < SOAK_HOSTS; i++)
        program_destroy(&soak->cast.nodes[i].agent);
    program_destroy(&soak->cast.daemon);
}
