/* One process that is N nodes for a rendezvous: how fast do they form a round, and what does it
 * cost?
 *
 * usage: swarm PROGRAMS NODES [clear | tls | holders], where PROGRAMS is the folder of ctrund and
 * ctrun; all by default
 *
 * It starts the rendezvous on loopback (tests/lib/cluster): a ctrund in clear, another with TLS,
 * and then HOLDERS true nodes (ctrun), of which the first hosts it and all hold the job's record.
 *
 * Every node is the true agent (agent_uv.h) with a TCP connection of its own; they have no workers,
 * so a promise is given at once. What is measured, in this order:
 *
 *   join        from the first connect until the last node has its ROUND
 *   bytes       that the daemon has written meanwhile, a node (/proc/PID/io)
 *   memory      of the daemon, beyond what it had before, a node (/proc/PID/smaps_rollup)
 *   heartbeats  CPU of the daemon over three periods and more, a heartbeat (/proc/PID/stat)
 *   loss        30 % of the connections are closed at once: until the last of the others has the
 *               next ROUND, and how many rounds it took
 *   leader      (where nodes hold the record) the ctrun that leads is killed: until the last of the
 *               others has the next ROUND; bytes and memory of the one that leads then
 *
 * The nodes begin AT_ONCE a millisecond, each from an address of its own in 127.1.0.0/16: a daemon
 * takes few connections of one address that have not yet said who they are. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/number/hash.h"
#include "base/str.h"
#include "cluster/job.h"
#include "cluster/procfs.h"
#include "rendezvous/client/agent_uv.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    AT_ONCE = 16,
    NODES_MAX = CT_RDZV_NODES_LIMIT,
    LEASE_MS = 15 * 1000,
    PERIODS = 4,
    GIVE_UP_MS = 120 * 1000,
    HOLDERS = 5,
    GRACE_MS = 1000,
    LAST_CALL_MS = 5000, /* all are to be in the first round */
};

/* What a ctrun that runs a script by its default options agrees on with the others. */
static const char settings[] = "what runs:=a script\n--torch_store=auto\n";

struct swarm;

struct node {
    struct swarm *swarm;
    struct ct_agent *agent;
    uint64_t generation; /* of its last ROUND */
    bool stopped;
};

struct usage {
    uint64_t resident; /* bytes, private and shared */
    uint64_t written;  /* bytes */
    double cpu_s;
};

enum phase { JOINING, BEATING, LOSING, FOLLOWING, ENDED };

struct swarm {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_timer_t starter;
    struct proc *daemon;  /* the process of the rendezvous: a ctrund, or the ctrun that leads */
    struct proc *holders; /* HOLDERS of them; NULL: a ctrund */
    const char *endpoint;
    const char *key_file; /* NULL: in clear */
    struct ct_rdzv_params params;
    struct node *nodes;
    uint32_t count;
    uint32_t begun;    /* agents started */
    uint32_t lost;     /* the first ones, stopped in LOSING */
    uint32_t in_round; /* nodes that have the newest ROUND */
    uint64_t generation;
    enum phase phase;
    uint64_t begun_ms;
    struct usage before;
    struct usage joined;
    double own_s; /* CPU of the nodes when the first began, or when the leader died */
    int status;
};

static uint64_t now_ms(void)
{
    return ct_clock_mono_ms(&ct_clock_system);
}

/* ---- the daemon from outside ---- */

static struct usage usage_of(struct proc *daemon)
{
    struct procfs_stat stat = {0};
    process_drain(daemon); /* it logs errors alone: rarely anything */
    (void)procfs_stat(daemon->pid, &stat);
    return (struct usage){
        .resident = procfs_resident_bytes(daemon->pid, true),
        .written = procfs_written_bytes(daemon->pid),
        .cpu_s = stat.cpu_s,
    };
}

/* CPU of this process: of all its nodes. */
static double own_cpu_s(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- phases ---- */

static void end(struct swarm *swarm, int status)
{
    if (swarm->phase == ENDED)
        return;
    swarm->phase = ENDED;
    swarm->status = status;
    uv_stop(&swarm->loop);
}

static void on_late(uv_timer_t *timer)
{
    struct swarm *swarm = timer->data;
    (void)fprintf(stderr, "swarm: not done after %d s: %u of %u nodes have round %" PRIu64 "\n",
                  GIVE_UP_MS / 1000, swarm->in_round, swarm->count - swarm->lost,
                  swarm->generation);
    end(swarm, 1);
}

static void lose(uv_timer_t *timer);

static void joined(struct swarm *swarm)
{
    uint64_t ms = now_ms() - swarm->begun_ms;
    swarm->joined = usage_of(swarm->daemon);
    (void)printf("join        %8.2f s    %u nodes, until the last has round %" PRIu64 "\n",
                 (double)ms / 1e3, swarm->count, swarm->generation);
    (void)printf("  daemon    %8.2f s    of CPU\n", swarm->joined.cpu_s - swarm->before.cpu_s);
    (void)printf("  nodes     %8.2f s    of CPU, all together\n", own_cpu_s() - swarm->own_s);
    (void)printf("  bytes     %8.1f KiB  written to a node\n",
                 (double)(swarm->joined.written - swarm->before.written) / swarm->count / 1024);
    (void)printf("memory      %8.1f KiB  of the daemon a node, right after the round\n",
                 (double)(swarm->joined.resident - swarm->before.resident) / swarm->count / 1024);
    (void)fflush(stdout);
    swarm->phase = BEATING;
    swarm->begun_ms = now_ms();
    (void)uv_timer_start(&swarm->timer, lose, PERIODS * ct_rdzv_heartbeat_ms(&swarm->params), 0);
}

/* Heartbeats have been counted long enough: close 30 % of the connections. */
static void lose(uv_timer_t *timer)
{
    struct swarm *swarm = timer->data;
    struct usage now = usage_of(swarm->daemon);
    double s = (double)(now_ms() - swarm->begun_ms) / 1e3;
    double beats = s * 1e3 / ct_rdzv_heartbeat_ms(&swarm->params) * swarm->count;
    double cpu_s = now.cpu_s - swarm->joined.cpu_s;
    (void)printf(
        "heartbeats  %8.1f us   of CPU each: %.0f a second for %.0f s, %.1f %% of a core\n",
        cpu_s / beats * 1e6, beats / s, s, cpu_s / s * 100);
    (void)printf("memory      %8.1f KiB  of the daemon a node, at rest\n",
                 (double)(now.resident - swarm->before.resident) / swarm->count / 1024);
    (void)fflush(stdout);
    swarm->joined = now;
    swarm->phase = LOSING;
    swarm->in_round = 0;
    swarm->lost = swarm->count * 3 / 10;
    swarm->begun_ms = now_ms();
    for (uint32_t i = 0; i < swarm->lost; i++) {
        ct_agent_stop(swarm->nodes[i].agent, NULL);
        swarm->nodes[i].stopped = true;
    }
    (void)uv_timer_start(&swarm->timer, on_late, GIVE_UP_MS, 0);
}

/* The ctrun that leads dies: the kernel closes what it had open. */
static void kill_leader(struct swarm *swarm)
{
    for (int i = 1; i < HOLDERS; i++)
        process_drain(&swarm->holders[i]);
    swarm->phase = FOLLOWING;
    swarm->in_round = 0;
    swarm->begun_ms = now_ms();
    swarm->own_s = own_cpu_s();
    (void)kill(swarm->holders[0].pid, SIGKILL);
    (void)uv_timer_start(&swarm->timer, on_late, GIVE_UP_MS, 0);
}

/* All have the first round of the next leader: the holder that has used the most since. */
static void followed(struct swarm *swarm)
{
    uint64_t ms = now_ms() - swarm->begun_ms;
    struct usage most = {0};
    for (int i = 1; i < HOLDERS; i++) {
        struct usage one = usage_of(&swarm->holders[i]);
        most = one.cpu_s > most.cpu_s ? one : most;
    }
    (void)printf("leader dead %8.2f s    until the last of %u has round %" PRIu64 "\n",
                 (double)ms / 1e3, swarm->count - swarm->lost, swarm->generation);
    (void)printf("  nodes     %8.2f s    of CPU, all together\n", own_cpu_s() - swarm->own_s);
    (void)printf(
        "  next one  %8.2f s    of CPU, %.1f KiB written to a node and %.1f MiB of memory since "
        "it began\n",
        most.cpu_s, (double)most.written / swarm->count / 1024, (double)most.resident / (1 << 20));
    end(swarm, 0);
}

static void regrouped(struct swarm *swarm)
{
    uint64_t ms = now_ms() - swarm->begun_ms;
    struct usage now = usage_of(swarm->daemon);
    (void)printf("loss of 30 %%%8.2f s    until the last of %u has round %" PRIu64 "\n",
                 (double)ms / 1e3, swarm->count - swarm->lost, swarm->generation);
    (void)printf("  daemon    %8.2f s    of CPU\n", now.cpu_s - swarm->joined.cpu_s);
    if (swarm->holders != NULL)
        kill_leader(swarm);
    else
        end(swarm, 0);
}

/* ---- a node ---- */

static void on_waiting(void *context, const char *text)
{
    (void)context, (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct node *node = context;
    (void)reason, (void)at_boundary;
    ct_agent_prepared(node->agent, &(struct ct_prepared){.generation = generation});
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;
    struct swarm *swarm = node->swarm;
    if (round->generation > swarm->generation) {
        swarm->generation = round->generation;
        swarm->in_round = 0;
    }
    swarm->in_round += round->generation == swarm->generation;
    node->generation = round->generation;
    bool all = swarm->in_round == swarm->count - swarm->lost;
    if (all && swarm->phase == JOINING && round->node_count >= swarm->count)
        joined(swarm);
    else if (all && swarm->phase == LOSING)
        regrouped(swarm);
    else if (all && swarm->phase == FOLLOWING)
        followed(swarm);
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    (void)context, (void)generation, (void)reason;
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    (void)context, (void)reply;
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    const struct node *node = context;
    (void)fprintf(stderr, "swarm: the job ended: %s\n", result->cause.text);
    end(node->swarm, 1);
}

static void on_released(void *context)
{
    (void)context;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)context, (void)connected, (void)why;
}

static void on_failed(void *context, const struct ct_error *error)
{
    const struct node *node = context;
    (void)fprintf(stderr, "swarm: a node failed: %s\n", error->text);
    end(node->swarm, 1);
}

static void begin_node(struct swarm *swarm, uint32_t index)
{
    struct node *node = &swarm->nodes[index];
    char host[32], address[32];
    struct ct_error err = {0};
    (void)snprintf(host, sizeof(host), "node%05u", index);
    (void)snprintf(address, sizeof(address), "10.0.%u.%u", index >> 8, index & 255);
    struct ct_agent_options options = {
        .endpoint = swarm->endpoint,
        .key_file = swarm->key_file,
        .run_id = "swarm",
        .host = host,
        .address = address,
        .params = swarm->params,
        .slots = 1,
        .node_rank = -1,
        .slurm_node = -1,
        .source = (127u << 24) + (1u << 16) + index,
    };
    struct ct_agent_callbacks callbacks = {
        .context = node,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_store_reply = on_store_reply,
        .on_closed = on_closed,
        .on_released = on_released,
        .on_link = on_link,
        .on_failed = on_failed,
    };
    node->swarm = swarm;
    if (ct_agent_start(&node->agent, &swarm->loop, &options, &callbacks, &err) != 0) {
        (void)fprintf(stderr, "swarm: node %u: %s\n", index, err.text);
        node->stopped = true;
        end(swarm, 1);
    }
}

static void begin_more(uv_timer_t *timer)
{
    struct swarm *swarm = timer->data;
    for (unsigned i = 0; i < AT_ONCE && swarm->begun < swarm->count; i++)
        begin_node(swarm, swarm->begun++);
    if (swarm->begun == swarm->count)
        (void)uv_timer_stop(timer);
}

/* ---- all together ---- */

/* A descriptor a node, and some for the loop. */
static int raise_limit(uint32_t nodes)
{
    struct rlimit limit;
    rlim_t needed = nodes + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return -1;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= needed)
        return 0;
    (void)fprintf(stderr,
                  "swarm: %u nodes need %llu descriptors, but this process may have %llu: raise "
                  "the hard limit (ulimit -Hn), or take fewer nodes\n",
                  nodes, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    return -1;
}

static void finish(struct swarm *swarm)
{
    for (uint32_t i = 0; i < swarm->begun; i++)
        if (!swarm->nodes[i].stopped)
            ct_agent_stop(swarm->nodes[i].agent, NULL);
    uv_close((uv_handle_t *)&swarm->timer, NULL);
    uv_close((uv_handle_t *)&swarm->starter, NULL);
    (void)uv_run(&swarm->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&swarm->loop);
    free(swarm->nodes);
}

/* Measure a rendezvous that listens; the exit status. */
static int measure(const struct job *job, struct proc *daemon, struct proc *holders, uint32_t nodes)
{
    struct swarm swarm = {.daemon = daemon, .holders = holders, .count = nodes, .status = 1};
    swarm.endpoint = job->seats[0].endpoint;
    swarm.key_file = job->key[0] != '\0' ? job->key : NULL;
    swarm.params = ct_rdzv_params_default;
    swarm.params.nodes_min = swarm.count / 2;
    swarm.params.nodes_max = swarm.count + (holders != NULL ? HOLDERS : 0);
    swarm.params.max_restarts = 100;
    swarm.params.lease_ms = LEASE_MS;
    swarm.params.last_call_ms = LAST_CALL_MS;
    if (holders != NULL) {
        (void)ct_str_copy(swarm.params.settings, sizeof swarm.params.settings, settings);
        swarm.params.config_hash = ct_hash64(settings, strlen(settings), 0);
        swarm.params.prepare_ms += GRACE_MS;
    }
    swarm.nodes = calloc(swarm.count, sizeof(*swarm.nodes));
    if (swarm.nodes == NULL || uv_loop_init(&swarm.loop) != 0)
        return 1;
    (void)uv_timer_init(&swarm.loop, &swarm.timer);
    (void)uv_timer_init(&swarm.loop, &swarm.starter);
    swarm.timer.data = swarm.starter.data = &swarm;
    (void)uv_timer_start(&swarm.starter, begin_more, 0, 1);
    (void)uv_timer_start(&swarm.timer, on_late, GIVE_UP_MS, 0);
    swarm.before = usage_of(swarm.daemon);
    swarm.own_s = own_cpu_s();
    swarm.begun_ms = now_ms();
    (void)uv_run(&swarm.loop, UV_RUN_DEFAULT);
    finish(&swarm);
    return swarm.status;
}

/* Start a daemon, measure it, end it. */
static int run(struct job *job, uint32_t nodes, const char *how)
{
    static const char *const words[] = {"--log_level", "error", NULL};
    struct proc *daemon = &job->seats[0].daemon;
    int status = 1;
    (void)printf("-- %u nodes %s\n", nodes, how);
    (void)fflush(stdout);
    job->port = 0;
    if (job_start_daemon(job, 0, HOSTS_HERE, NULL, words) == 0 && job_await_daemon(job, 0, 10))
        status = measure(job, daemon, NULL, nodes);
    if (process_runs(daemon))
        (void)kill(daemon->pid, SIGTERM);
    if (!process_await_end(daemon, 30) || daemon->status != 0)
        status = 1;
    if (daemon->text.size > 0 || status != 0)
        (void)fprintf(stderr, "swarm: ctrund ended with status %d; it said:\n%s", daemon->status,
                      ct_buf_str(&daemon->text));
    job_end(job);
    return status;
}

/* Start the nodes that hold the record, measure them, end them. */
static int run_holders(struct job *job, uint32_t nodes)
{
    char range[32];
    static const char *const words[] = {"--rdzv_id", "swarm", "--last_call", "5s",
                                        "--grace",   "1s",    "--log.level", "debug",
                                        "--",        "sleep", NULL};
    const struct job_agent agent = {.endpoints = "127.0.0.1:29417",
                                    .nodes = range,
                                    .lease = "15s",
                                    .restarts = 100,
                                    .workers = 1,
                                    .options = words,
                                    .program = "3600"};
    int status = 1;
    (void)printf("-- %u nodes with TLS, and %d that hold the record\n", nodes, HOLDERS);
    (void)fflush(stdout);
    (void)snprintf(range, sizeof range, "%u:%u", nodes / 2, nodes + HOLDERS);
    (void)ct_str_copy(job->seats[0].endpoint, sizeof job->seats[0].endpoint, agent.endpoints);
    for (int i = 0; i < HOLDERS; i++)
        if (job_start_agent(job, i, HOSTS_HERE, NULL, &agent) != 0 ||
            (i == 0 && process_await_text(&job->agents[0], "this host leads", 20) == NULL))
            return 1;
    if (process_await_text(&job->agents[0], "is held by 5 hosts", 20) != NULL)
        status = measure(job, &job->agents[0], job->agents, nodes);
    for (int i = 0; status != 0 && i < HOLDERS; i++)
        (void)fprintf(stderr, "swarm: ctrun %d said:\n%s", i, ct_buf_str(&job->agents[i].text));
    job_end(job);
    return status;
}

static bool is_wanted(const char *only, const char *name)
{
    return only == NULL || strcmp(only, name) == 0;
}

int main(int argc, char **argv)
{
    static struct job job;
    char folder[] = "/tmp/ctrun-swarm-XXXXXX";
    struct hosts hosts;
    uint64_t count;
    const char *only = argc == 4 ? argv[3] : NULL;
    if (argc < 3 || argc > 4 || ct_parse_u64(argv[2], &count) != 0 || count < 10 ||
        count > NODES_MAX) {
        (void)fprintf(stderr, "usage: swarm PROGRAMS NODES [clear | tls | holders]\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (raise_limit((uint32_t)count) != 0 || mkdtemp(folder) == NULL)
        return 1;
    (void)hosts_up(&hosts, "swarm", 1, true);
    job_init(&job, &hosts, argv[1], folder);
    job.bare = true;
    int status = is_wanted(only, "clear") ? run(&job, (uint32_t)count, "in clear") : 0;
    if (status == 0 && !job_make_key(&job, 10)) /* all that follows uses it */
        status = 1;
    if (status == 0 && is_wanted(only, "tls"))
        status = run(&job, (uint32_t)count, "with TLS");
    if (status == 0 && is_wanted(only, "holders"))
        status = run_holders(&job, (uint32_t)count);
    (void)ct_fs_remove_tree(folder);
    return status;
}
