/* One process that is N nodes of J jobs, at a rendezvous that somebody else has started: for
 * scripts/monitoring/scale.
 *
 * usage: agents ENDPOINTS KEY_FILE NODES JOBS [PROGRESS_MS]
 *
 * Every node is the true agent (agent_uv.h) with a connection of its own, as in swarm.c, of jobs
 * "job0", "job1", ... of equally many. They have no workers: each promises at once, tells invented
 * figures of one rank while somebody looks, and the first of each job a step each PROGRESS_MS
 * [1000]. It writes "joined SECONDS" once all jobs run with all their nodes, and ends with the end
 * of its input, or with status 1 when a node is refused or a job ends. */
#include "base/clock.h"
#include "base/str.h"
#include "rendezvous/client/agent_uv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { AT_ONCE = 16, NODES_MAX = 60000, LAST_CALL_MS = 5000 };

struct agents;

struct node {
    struct agents *agents;
    struct ct_agent *agent;
    uint32_t index;
    uint32_t rank;
    uint64_t generation; /* of its last round; 0: none */
    bool whole;          /* that had all nodes of the job */
};

struct agents {
    uv_loop_t loop;
    uv_timer_t starter, stepper;
    uv_pipe_t input;
    const char *endpoints, *key_file;
    struct node *nodes;
    uint64_t count, jobs, progress_ms;
    uint64_t begun, whole; /* agents that were started; that are in a round of all */
    uint64_t begun_ms, step;
    int status;
};

static uint64_t now_ms(void)
{
    return ct_clock_mono_ms(&ct_clock_system);
}

static void fail(struct node *node, const char *what, const char *why)
{
    (void)fprintf(stderr, "agents: node %u: %s: %s\n", node->index, what, why);
    node->agents->status = 1;
    uv_stop(&node->agents->loop);
}

/* ---- a node --------------------------------------------------------------------------------- */

static void on_waiting(void *context, const char *text)
{
    (void)context, (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    const struct node *node = context;
    (void)reason, (void)at_boundary;
    ct_agent_prepared(node->agent, &(struct ct_prepared){.generation = generation});
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;
    struct agents *agents = node->agents;
    bool was = node->whole;

    node->generation = round->generation;
    node->rank = round->own->first_rank;
    node->whole = round->node_count == agents->count / agents->jobs;
    agents->whole += (uint64_t)node->whole - (uint64_t)was;
    if (!was && agents->whole == agents->count) {
        (void)printf("joined %.2f\n", (double)(now_ms() - agents->begun_ms) / 1e3);
        (void)fflush(stdout);
    }
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    (void)context, (void)generation, (void)reason;
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    (void)context, (void)reply;
}

static void on_watched(void *context)
{
    const struct node *node = context;
    struct ct_wire_rank_figures rank = {.rank = node->rank,
                                        .pid = (int32_t)(1000 + node->index),
                                        .step = node->agents->step,
                                        .memory = 1u << 30,
                                        .step_s = 0.25,
                                        .awaits = -1};
    const struct ct_msg_figures figures = {.generation = node->generation,
                                           .memory = 12ull << 30,
                                           .memory_total = 64ull << 30,
                                           .load = 7.5,
                                           .trouble = "",
                                           .ranks = {.data = &rank, .count = 1}};
    if (node->generation != 0)
        ct_agent_figures(node->agent, &figures);
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    fail(context, "the job ended", result->cause.text);
}

static void on_released(void *context)
{
    fail(context, "released", "nobody asked for it");
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)context, (void)connected, (void)why;
}

static void on_failed(void *context, const struct ct_error *error)
{
    fail(context, "failed", error->text);
}

static void begin_node(struct agents *agents, uint32_t index)
{
    struct node *node = &agents->nodes[index];
    char job[32], host[32], address[32];
    struct ct_error err = {0};

    (void)snprintf(job, sizeof job, "job%u", (unsigned)(index % agents->jobs));
    (void)snprintf(host, sizeof host, "node%05u", index);
    (void)snprintf(address, sizeof address, "10.0.%u.%u", index >> 8, index & 255);
    struct ct_agent_options options = {
        .endpoint = agents->endpoints,
        .key_file = agents->key_file,
        .run_id = job,
        .host = host,
        .address = address,
        .params = ct_rdzv_params_default,
        .slots = 1,
        .node_rank = -1,
        .slurm_node = -1,
        .source = (127u << 24) + (1u << 16) + index,
    };
    options.params.nodes_min = 1;
    options.params.nodes_max = (uint32_t)(agents->count / agents->jobs);
    options.params.last_call_ms = LAST_CALL_MS;
    options.params.max_restarts = 100;
    const struct ct_agent_callbacks callbacks = {
        .context = node,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_store_reply = on_store_reply,
        .on_watched = on_watched,
        .on_closed = on_closed,
        .on_released = on_released,
        .on_link = on_link,
        .on_failed = on_failed,
    };
    node->agents = agents;
    node->index = index;
    if (ct_agent_start(&node->agent, &agents->loop, &options, &callbacks, &err) != 0)
        fail(node, "does not start", err.text);
}

/* ---- all together --------------------------------------------------------------------------- */

static void begin_more(uv_timer_t *timer)
{
    struct agents *agents = timer->data;

    for (unsigned i = 0; i < AT_ONCE && agents->begun < agents->count; i++)
        begin_node(agents, (uint32_t)agents->begun++);
    if (agents->begun == agents->count)
        (void)uv_timer_stop(timer);
}

static void step(uv_timer_t *timer)
{
    struct agents *agents = timer->data;
    double now_s = (double)(now_ms() - agents->begun_ms) / 1e3;

    agents->step++;
    for (uint64_t i = 0; i < agents->begun; i++) {
        const struct node *node = &agents->nodes[i];
        const struct ct_msg_progress progress = {.generation = node->generation,
                                                 .step = agents->step,
                                                 .loss = 2.0,
                                                 .samples_per_s = 1000,
                                                 .learning_rate = 1e-3,
                                                 .eta_s = -1,
                                                 .elapsed_s = now_s,
                                                 .trained_s = now_s};
        if (node->rank == 0 && node->generation != 0)
            ct_agent_progress(node->agent, &progress);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[64];
    (void)handle, (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_input(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    (void)buf;
    if (count < 0)
        uv_stop(stream->loop);
}

static int run(struct agents *agents)
{
    agents->nodes = calloc(agents->count, sizeof *agents->nodes);
    if (agents->nodes == NULL || uv_loop_init(&agents->loop) != 0)
        return 1;
    (void)uv_timer_init(&agents->loop, &agents->starter);
    (void)uv_timer_init(&agents->loop, &agents->stepper);
    (void)uv_pipe_init(&agents->loop, &agents->input, 0);
    agents->starter.data = agents->stepper.data = agents;
    if (uv_pipe_open(&agents->input, 0) != 0) {
        (void)fprintf(stderr, "agents: standard input is no pipe: its end ends this program\n");
        return 2;
    }
    (void)uv_read_start((uv_stream_t *)&agents->input, on_alloc, on_input);
    agents->begun_ms = now_ms();
    (void)uv_timer_start(&agents->starter, begin_more, 0, 1);
    (void)uv_timer_start(&agents->stepper, step, agents->progress_ms, agents->progress_ms);
    (void)uv_run(&agents->loop, UV_RUN_DEFAULT);
    for (uint64_t i = 0; i < agents->begun; i++)
        if (agents->nodes[i].agent != NULL)
            ct_agent_stop(agents->nodes[i].agent, NULL);
    uv_close((uv_handle_t *)&agents->starter, NULL);
    uv_close((uv_handle_t *)&agents->stepper, NULL);
    uv_close((uv_handle_t *)&agents->input, NULL);
    (void)uv_run(&agents->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&agents->loop);
    free(agents->nodes);
    return agents->status;
}

int main(int argc, char **argv)
{
    struct agents agents = {.progress_ms = 1000};
    struct rlimit limit;

    if (argc < 5 || argc > 6 || ct_parse_u64(argv[3], &agents.count) != 0 ||
        ct_parse_u64(argv[4], &agents.jobs) != 0 || agents.jobs == 0 || agents.count == 0 ||
        agents.count > NODES_MAX || agents.count % agents.jobs != 0 ||
        (argc == 6 &&
         (ct_parse_u64(argv[5], &agents.progress_ms) != 0 || agents.progress_ms == 0))) {
        (void)fprintf(stderr, "usage: agents ENDPOINTS KEY_FILE NODES JOBS [PROGRESS_MS], NODES a "
                              "multiple of JOBS\n");
        return 2;
    }
    agents.endpoints = argv[1];
    agents.key_file = argv[2];
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return run(&agents);
}
