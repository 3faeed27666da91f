#include "cluster.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 10000 };

/* ---- what agents are told ---- */

static void on_waiting(void *context, const char *text)
{
    struct node *node = context;
    ct_str_copy(node->waiting, sizeof(node->waiting), text != NULL ? text : "");
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct node *node = context;
    (void)at_boundary;
    node->prepares++;
    node->reason = reason;
    node->generation = 0;
    struct ct_prepared prepared = {.generation = generation, .port = 1234};
    if (!node->hold)
        ct_agent_prepared(node->agent, &prepared);
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    struct node *node = context;
    (void)generation;
    node->generation = 0;
    node->reason = reason;
}

static void on_round(void *context, const struct ct_round *round)
{
    struct node *node = context;
    node->generation = round->generation;
    node->self = round->self;
    node->node_count = round->node_count;
    node->world = round->world;
    node->restarts = round->restarts;
    ct_str_copy(node->first_host, sizeof(node->first_host), round->nodes[0].host);
    cr_assert_str_eq(round->nodes[round->self].host, node->host);
    cr_assert_eq(round->nodes[0].port, 1234);
}

static void on_store_reply(void *context, const struct ct_msg_store_reply *reply)
{
    struct node *node = context;
    cr_assert(node->reply_count < CLUSTER_REPLIES);
    struct node_reply *to = &node->replies[node->reply_count++];
    *to = (struct node_reply){
        .request = reply->request, .code = reply->code, .number = reply->number};
    size_t size = CT_MIN(reply->value.size, sizeof(to->value) - 1);
    if (size > 0)
        memcpy(to->value, reply->value.data, size);
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    struct node *node = context;
    node->closed = true;
    node->result = *result;
    ct_failure_keep(&node->result.cause, &result->cause, node->cause_room,
                    sizeof(node->cause_room));
}

static void on_released(void *context)
{
    struct node *node = context;
    node->released = true;
}

static void on_link(void *context, bool connected, const char *why)
{
    struct node *node = context;
    (void)why;
    node->link_down = !connected;
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct node *node = context;
    node->failed = true;
    node->error = *error;
}

/* ---- starting and stopping ---- */

static void init(struct cluster *c, bool tcp, const char *only_job)
{
    memset(c, 0, sizeof(*c));
    cr_assert_eq(uv_loop_init(&c->loop), 0);
    ct_str_copy(c->dir, sizeof(c->dir), "/tmp/ct-rdzv-XXXXXX");
    cr_assert_not_null(mkdtemp(c->dir));
    char listen[128];
    if (tcp)
        ct_str_copy(listen, sizeof(listen), "127.0.0.1:0");
    else
        (void)snprintf(listen, sizeof(listen), "unix:%s/rdzv", c->dir);
    struct ct_rdzv_server_options options = {
        .listen = {listen}, .listen_count = 1, .only_job = only_job};
    struct ct_error err = {0};
    cr_assert_eq(ct_rdzv_server_start(&c->server, &c->loop, &options, &err), 0, "%s", err.text);
    ct_str_copy(c->endpoint, sizeof(c->endpoint), ct_rdzv_server_endpoint(c->server, 0));
    c->params = ct_rdzv_params_default;
    c->params.last_call_ms = 50;
    c->params.lease_ms = 1000;
}

void cluster_init(struct cluster *c, bool tcp, uint32_t nodes_min, uint32_t nodes_max)
{
    init(c, tcp, NULL);
    c->params.nodes_min = nodes_min;
    c->params.nodes_max = nodes_max;
}

void cluster_init_for(struct cluster *c, const char *only_job)
{
    init(c, false, only_job);
}

static struct node *add(struct cluster *c, const char *host, int32_t node_rank, const char *run_id)
{
    struct node *node = &c->nodes[c->node_count++];
    node->cluster = c;
    ct_str_copy(node->host, sizeof(node->host), host);
    struct ct_agent_options options = {
        .endpoint = c->endpoint,
        .run_id = run_id,
        .host = host,
        .address = "127.0.0.1",
        .params = c->params,
        .slots = 2,
        .node_rank = node_rank,
        .slurm_node = -1,
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
    struct ct_error err = {0};
    cr_assert_eq(ct_agent_start(&node->agent, &c->loop, &options, &callbacks, &err), 0, "%s",
                 err.text);
    return node;
}

struct node *cluster_add(struct cluster *c, const char *host, int32_t node_rank)
{
    return add(c, host, node_rank, "job");
}

struct node *cluster_add_for(struct cluster *c, const char *host, const char *run_id)
{
    return add(c, host, -1, run_id);
}

static void on_agent_stopped(void *context)
{
    struct node *node = context;
    node->cluster->stopped++;
}

void cluster_kill(struct node *node)
{
    ct_agent_stop(node->agent, on_agent_stopped);
    node->agent = NULL;
}

void cluster_deinit(struct cluster *c)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].agent != NULL)
            cluster_kill(&c->nodes[i]);
    if (c->server != NULL)
        ct_rdzv_server_stop(c->server, NULL, NULL);
    cr_assert_eq(uv_run(&c->loop, UV_RUN_DEFAULT), 0);
    cr_assert_eq(c->stopped, c->node_count);
    cr_assert_eq(uv_loop_close(&c->loop), 0);
    cr_assert_eq(ct_fs_remove_tree(c->dir), 0);
}

/* ---- waiting ---- */

static void on_patience(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static bool until(uv_loop_t *loop, bool (*condition)(const void *), const void *what)
{
    bool late = false;
    uv_timer_t timer;
    cr_assert_eq(uv_timer_init(loop, &timer), 0);
    timer.data = &late;
    cr_assert_eq(uv_timer_start(&timer, on_patience, PATIENCE_MS, 0), 0);
    while (!condition(what) && !late)
        (void)uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    (void)uv_run(loop, UV_RUN_NOWAIT);
    return condition(what);
}

struct cluster_condition {
    const struct cluster *cluster;
    bool (*holds)(const struct cluster *c);
};

static bool cluster_holds(const void *what)
{
    const struct cluster_condition *condition = what;
    return condition->holds(condition->cluster);
}

bool cluster_until(struct cluster *c, bool (*condition)(const struct cluster *c))
{
    struct cluster_condition what = {.cluster = c, .holds = condition};
    return until(&c->loop, cluster_holds, &what);
}

struct node_condition {
    const struct node *node;
    bool (*holds)(const struct node *node);
};

static bool node_holds(const void *what)
{
    const struct node_condition *condition = what;
    return condition->holds(condition->node);
}

bool cluster_until_node(struct node *node, bool (*condition)(const struct node *node))
{
    struct node_condition what = {.node = node, .holds = condition};
    return until(&node->cluster->loop, node_holds, &what);
}
