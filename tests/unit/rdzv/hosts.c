#include "hosts.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- actions of a holder ---- */

static void io_send(void *context, void *peer, const struct ct_message *message)
{
    (void)context;
    hosts_put(peer, true, message);
}

static void io_close(void *context, void *peer, int code, const char *sentence)
{
    (void)context;
    (void)code;
    (void)sentence;
    hosts_hang_up(peer);
}

static void io_announce(void *context, const char *job, const char *sentence)
{
    const struct host *host = context;

    (void)job;
    if (getenv("HOSTS_LOG") != NULL)
        printf("[%6llu] %s: %s\n", (unsigned long long)host->world->now_ms, host->name, sentence);
}

static void io_admit(void *context, void *peer)
{
    (void)context;
    (void)peer;
}

static struct link *link_of(struct host *host, uint64_t id, const char *address)
{
    struct link *link = host->links;

    while (link < host->links + host->link_count && link->id != id)
        link++;
    if (link == host->links + host->link_count) {
        CT_ASSERT(host->link_count < HOSTS_LINKS);
        host->link_count++;
        *link = (struct link){.id = id};
        (void)ct_str_copy(link->address, sizeof link->address, address);
        link->conn = hosts_dial(host, CONN_REPLICA, address);
    }
    return link;
}

static void io_send_replica(void *context, uint64_t id, const char *address,
                            const struct ct_message *message)
{
    const struct link *link = link_of(context, id, address);

    if (link->conn != NULL)
        hosts_put(link->conn, false, message);
}

static void io_want(void *context, const struct ct_replica_server *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)link_of(context, list[i].id, list[i].address);
}

static bool io_dial_endpoint(void *context)
{
    struct host *host = context;

    host->there = hosts_dial(host, CONN_ENDPOINT, hosts_endpoint);
    return true;
}

static void io_send_endpoint(void *context, const struct ct_message *message)
{
    const struct host *host = context;

    hosts_put(host->there, false, message);
}

static void io_leave_endpoint(void *context)
{
    struct host *host = context;

    if (host->there != NULL)
        hosts_hang_up(host->there);
    host->there = NULL;
    host->dial_there_ms = UINT64_MAX;
}

static void io_ask_nodes(void *context, const char *const *hosts, size_t count)
{
    struct host *host = context;

    host->asked++;
    host->asked_count = count;
    (void)ct_str_copy(host->asked_host, sizeof host->asked_host, hosts[0]);
}

static void io_log(void *context, enum ct_log_level level, const char *sentence)
{
    const struct host *host = context;

    (void)level;
    if (getenv("HOSTS_LOG") != NULL)
        printf("[%6llu] %s: %s\n", (unsigned long long)host->world->now_ms, host->name, sentence);
}

static void start_holder(struct host *host, const struct ct_msg_voters *voters)
{
    const struct ct_holder_io io = {
        .context = host,
        .send = io_send,
        .close = io_close,
        .announce = io_announce,
        .turn_away = io_close,
        .admit = io_admit,
        .send_replica = io_send_replica,
        .want = io_want,
        .dial_endpoint = io_dial_endpoint,
        .send_endpoint = io_send_endpoint,
        .leave_endpoint = io_leave_endpoint,
        .ask_nodes = io_ask_nodes,
        .log = io_log,
    };
    const struct ct_service_limits limits = {.own = host->id, .only_job = "job"};
    const struct ct_holder_options options = {
        .limits = &limits,
        .host = host->name,
        .address = host->address,
        .at_endpoint = voters == NULL,
        .lease_ms = HOSTS_LEASE_MS,
        .seed = ct_id_fold(host->id),
        .now_ms = host->world->now_ms,
        .io = &io,
    };

    CT_ASSERT(ct_holder_init(&host->holder, &options, NULL) == 0);
    host->holds = true;
    if (voters == NULL)
        CT_ASSERT(ct_holder_found(&host->holder, host->world->now_ms) == 0);
    else
        CT_ASSERT(ct_holder_follow(&host->holder, host->world->now_ms, voters) == 0);
}

/* ---- the member ---- */

void hosts_dial_next(struct host *host)
{
    struct ct_endpoint_try next = ct_endpoints_next(&host->endpoints, host->world->now_ms);

    (void)ct_endpoint_print(next.endpoint, host->endpoint);
    host->agent = hosts_dial(host, CONN_AGENT, host->astray ? "10.0.0.0:9" : host->endpoint);
    hosts_give_up_after(host->agent, next.connect_ms);
}

static void io_connect(void *context, uint64_t give_up_ms)
{
    struct host *host = context;

    ct_endpoints_begin(&host->endpoints, host->world->now_ms, give_up_ms,
                       ct_member_nodes(&host->member));
    hosts_dial_next(host);
}

static void io_member_send(void *context, const struct ct_message *message)
{
    const struct host *host = context;

    if (host->agent != NULL)
        hosts_put(host->agent, false, message);
}

static void io_disconnect(void *context)
{
    struct host *host = context;

    if (host->agent != NULL)
        hosts_hang_up(host->agent);
    host->agent = NULL;
}

static void on_waiting(void *context, const char *text)
{
    (void)context;
    (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct host *host = context;

    (void)reason;
    (void)at_boundary;
    ct_member_prepared(&host->member, &(struct ct_prepared){.generation = generation});
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    (void)context;
    (void)generation;
    (void)reason;
}

static void on_round(void *context, const struct ct_round *round)
{
    ((struct host *)context)->round = round->generation;
}

static void on_closed(void *context, const struct ct_rdzv_result *result)
{
    (void)context;
    (void)result;
}

static void on_released(void *context)
{
    ((struct host *)context)->released = true;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)context;
    (void)connected;
    (void)why;
}

/* As host_offer. */
static void on_voters(void *context, const struct ct_msg_voters *voters)
{
    struct host *host = context;

    if (!host->holds)
        start_holder(host, voters);
    else
        CT_ASSERT(ct_holder_follow(&host->holder, host->world->now_ms, voters) == 0);
    const struct ct_message offer = {.type = CT_MSG_OFFER, .offer = ct_holder_offer(&host->holder)};
    ct_endpoints_set_own(&host->endpoints, offer.offer.address);
    io_member_send(host, &offer);
}

void hosts_note(struct host *host, const struct ct_message *message)
{
    if (message->type == CT_MSG_REFUSE)
        (void)ct_str_copy(host->refusal, sizeof host->refusal, message->refuse.text);
    if (message->type != CT_MSG_VOTERS)
        return;
    host->told_count++;
    host->told_epoch = message->voters.epoch;
    (void)ct_str_copy(host->told, sizeof host->told,
                      message->voters.servers.count > 0 ? message->voters.servers.data[0].address
                                                        : "");
    ct_endpoints_learn(&host->endpoints, &message->voters);
    if (message->voters.epoch != 0)
        on_voters(host, &message->voters);
}

static bool is_orphan(void *context)
{
    const struct host *host = context;

    return host->holds && ct_holder_is_orphan(&host->holder);
}

static void start_member(struct host *host)
{
    const struct ct_agent_callbacks callbacks = {
        .context = host,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_closed = on_closed,
        .on_released = on_released,
        .on_voters = on_voters,
        .is_orphan = is_orphan,
        .on_link = on_link,
    };
    const struct ct_member_io io = {.context = host,
                                    .send = io_member_send,
                                    .connect = io_connect,
                                    .disconnect = io_disconnect};

    CT_ASSERT(ct_endpoints_init(&host->endpoints, hosts_endpoint, NULL) == 0);
    host->options.endpoint = host->endpoint;
    host->options.run_id = "job";
    host->options.host = host->name;
    host->options.address = host->address;
    host->options.role = "default";
    host->options.slots = 1;
    host->options.node_rank = (int32_t)host->index;
    host->options.slurm_node = -1;
    host->options.survivable = true;
    host->options.id = host->id;
    ct_member_init(&host->member, &host->options, &callbacks, &io, ct_id_fold(host->id));
    ct_member_start(&host->member, host->world->now_ms);
}

/* ---- lives ---- */

void hosts_start(struct hosts *world, uint32_t index)
{
    struct host *host = &world->list[index];

    host->alive = true;
    host->life++;
    host->id = (struct ct_id){.high = index + 1, .low = host->life << 8};
    (void)snprintf(host->name, sizeof host->name, "host%u", index);
    (void)snprintf(host->address, sizeof host->address, "10.0.0.%u:%u", index,
                   (unsigned)(1000 + host->life));
    host->dial_there_ms = UINT64_MAX;
    host->round = 0;
    host->released = false;
    host->asked = 0;
    if (index == 0)
        start_holder(host, NULL);
    start_member(host);
}

static void end(struct host *host)
{
    if (!host->alive)
        return;
    host->alive = false;
    host->address[0] = '\0';
    ct_member_deinit(&host->member);
    if (host->holds)
        ct_holder_deinit(&host->holder);
    host->holds = false;
    host->agent = host->there = NULL;
    host->link_count = 0;
}

void hosts_kill(struct hosts *world, uint32_t index)
{
    struct host *host = &world->list[index];

    for (size_t i = 0; i < world->conn_count; i++) {
        struct conn *conn = &world->conns[i];

        if (conn->open && ((conn->from == host && conn->from_life == host->life) ||
                           (conn->to == host && conn->to_life == host->life)))
            hosts_hang_up(conn);
    }
    end(host);
}

void hosts_init(struct hosts *world, uint32_t count, uint32_t lowest)
{
    *world = (struct hosts){.count = count, .now_ms = 1000};
    for (uint32_t i = 0; i < count; i++) {
        struct host *host = &world->list[i];

        host->world = world;
        host->index = i;
        host->options.params = ct_rdzv_params_default;
        host->options.params.nodes_min = lowest;
        host->options.params.nodes_max = count;
        host->options.params.max_restarts = 20;
        host->options.params.lease_ms = HOSTS_LEASE_MS;
        hosts_start(world, i);
    }
}

void hosts_deinit(struct hosts *world)
{
    for (uint32_t i = 0; i < world->count; i++)
        end(&world->list[i]);
    for (struct flight *flight = world->flights, *next; flight != NULL; flight = next) {
        next = flight->next;
        free(flight);
    }
}

void hosts_freeze(struct hosts *world, uint32_t index, uint64_t for_ms)
{
    world->list[index].frozen_until_ms = world->now_ms + for_ms;
}

/* ---- time ---- */

static uint64_t due_of(const struct host *host)
{
    uint64_t due_ms = host->dial_there_ms;

    if (!host->alive)
        return UINT64_MAX;
    due_ms = CT_MIN(due_ms, ct_member_deadline(&host->member));
    if (host->holds)
        due_ms = CT_MIN(due_ms, ct_holder_deadline(&host->holder));
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].conn == NULL)
            due_ms = CT_MIN(due_ms, host->links[i].dial_ms);
    return CT_MAX(due_ms, host->frozen_until_ms);
}

static void act(struct host *host)
{
    uint64_t now_ms = host->world->now_ms;

    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].conn == NULL && host->links[i].dial_ms <= now_ms)
            host->links[i].conn = hosts_dial(host, CONN_REPLICA, host->links[i].address);
    if (host->dial_there_ms <= now_ms) {
        host->dial_there_ms = UINT64_MAX;
        host->there = hosts_dial(host, CONN_ENDPOINT, hosts_endpoint);
    }
    if (host->holds && ct_holder_deadline(&host->holder) <= now_ms)
        ct_holder_tick(&host->holder, now_ms);
    if (ct_member_deadline(&host->member) <= now_ms)
        ct_member_tick(&host->member, now_ms);
}

/* What has arrived is read before a timer judges. */
static bool step(struct hosts *world, uint64_t until_ms)
{
    uint64_t ready;
    struct flight *flight = hosts_first_flight(world, &ready);
    struct host *host = NULL;
    uint64_t due_ms = UINT64_MAX;

    for (uint32_t i = 0; i < world->count; i++)
        if (due_of(&world->list[i]) < due_ms) {
            host = &world->list[i];
            due_ms = due_of(host);
        }
    if (CT_MIN(due_ms, ready) > until_ms)
        return false;
    world->now_ms = CT_MAX(world->now_ms, CT_MIN(due_ms, ready));
    if (ready <= world->now_ms)
        hosts_arrive(world, flight);
    else
        act(host);
    return true;
}

void hosts_run(struct hosts *world, uint64_t for_ms)
{
    uint64_t until_ms = world->now_ms + for_ms;

    while (step(world, until_ms))
        continue;
    world->now_ms = until_ms;
}

/* ---- queries ---- */

int hosts_leader(const struct hosts *world)
{
    int leader = -1;

    for (uint32_t i = 0; i < world->count; i++) {
        const struct host *host = &world->list[i];

        if (!host->alive || !host->holds || !ct_holder_leads(&host->holder))
            continue;
        if (leader >= 0)
            return -1;
        leader = (int)i;
    }
    return leader;
}

uint32_t hosts_voters(const struct hosts *world, uint32_t index)
{
    struct ct_replica_server server;
    uint32_t bits = 0;

    for (size_t i = 0; ct_replica_server(world->list[index].holder.replica, i, &server); i++) {
        uint32_t bit = 31;

        for (uint32_t j = 0; j < world->count; j++)
            if (world->list[j].alive && ct_id_fold(world->list[j].id) == server.id)
                bit = j;
        bits |= UINT32_C(1) << bit;
    }
    return bits;
}
