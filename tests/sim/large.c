/* A job of thousands of agents in virtual time; see large.h.
 *
 *      joining      all start within a second; until the last acts in round 1
 *      beating      some heartbeats of everybody: what one costs the daemon
 *      losing       30 % of the connections end in one moment; until the last of the others acts in
 *                   the next round
 *
 * Each message is encoded, takes 1 to 4 ms and is decoded. What is measured as the daemon's CPU is
 * the time inside ct_service_message alone. */
#include "large.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "rendezvous/client/member.h"
#include "rendezvous/service/journal.h"
#include "rendezvous/service/service.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEASE_MS = 5000,
    LARGE = 5000,
    LARGE_LEASE_MS = 15000,
    START_MS = 1000,
    HEARTBEATS = 3,
    LOST_PERCENT = 30,
    LIMIT_MS = 300 * 1000
};

enum what { DAEMON_TIMER, AGENT_TIMER, START, CONNECTED, TO_DAEMON, TO_AGENT, PROMISE };

struct happening {
    uint64_t at;
    uint64_t order;
    enum what what;
    uint32_t agent;
    uint64_t number; /* of the timer, or of the generation */
    size_t size;
    char *frame; /* TO_*: owned */
};

struct agent {
    struct large *large;
    uint32_t index;
    struct ct_member member;
    uint64_t link; /* 0: none */
    uint64_t timer;
    uint64_t last[2]; /* when the last message to the daemon, to the agent arrives */
    uint64_t acting;
    bool alive;
    char host[16];
};

struct traffic {
    uint64_t messages;
    uint64_t bytes;
    uint64_t cpu_ns; /* of the daemon, on the way in */
};

struct large {
    uint64_t now;
    uint64_t order;
    struct happening *heap;
    size_t count, room;
    struct ct_rng rng;
    struct ct_service *service;
    uint64_t daemon_timer;
    uint64_t daemon_due;
    struct ct_journal_tail tail;
    uint64_t journal_bytes;
    struct ct_rdzv_params params;
    struct agent *agents;
    uint32_t agent_count, acting; /* in the newest round */
    uint64_t generation;
    uint64_t broken; /* connections that ended, though nothing is wrong: the first is told */
    struct traffic in, out, heartbeats;
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- what will happen ---- */

static bool before(const struct happening *a, const struct happening *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct large *large, struct happening what)
{
    if (large->count == large->room) {
        large->room = large->room > 0 ? large->room * 2 : 1024;
        large->heap = realloc(large->heap, large->room * sizeof(*large->heap));
        CT_ASSERT(large->heap != NULL);
    }
    what.order = ++large->order;
    size_t i = large->count++;
    for (; i > 0 && before(&what, &large->heap[(i - 1) / 2]); i = (i - 1) / 2)
        large->heap[i] = large->heap[(i - 1) / 2];
    large->heap[i] = what;
}

static struct happening pop(struct large *large)
{
    struct happening top = large->heap[0];
    struct happening last = large->heap[--large->count];
    size_t i = 0;
    for (size_t child = 1; child < large->count; child = 2 * i + 1) {
        if (child + 1 < large->count && before(&large->heap[child + 1], &large->heap[child]))
            child++;
        if (!before(&large->heap[child], &last))
            break;
        large->heap[i] = large->heap[child];
        i = child;
    }
    large->heap[i] = last;
    return top;
}

static void post(struct large *large, enum what what, uint32_t agent,
                 const struct ct_message *message)
{
    struct ct_buf frame;
    struct ct_error err = {0};
    ct_buf_init(&frame, 0);
    int rc = ct_wire_encode(message, 0, &frame, &err);
    CT_ASSERT(rc == 0);
    struct traffic *traffic = what == TO_DAEMON ? &large->in : &large->out;
    traffic->messages++;
    traffic->bytes += frame.size;
    uint64_t *last = &large->agents[agent].last[what == TO_AGENT];
    uint64_t at = large->now + 1 + ct_rng_below(&large->rng, 4);
    *last = CT_MAX(*last, at);
    push(large,
         (struct happening){
             .at = *last, .what = what, .agent = agent, .size = frame.size, .frame = frame.data});
}

/* ---- the daemon ---- */

static void daemon_send(void *context, void *peer, const struct ct_message *message)
{
    const struct agent *agent = peer;
    post(context, TO_AGENT, agent->index, message);
}

static void daemon_close(void *context, void *peer, int code, const char *sentence)
{
    struct large *large = context;
    (void)code;
    if (large->broken++ == 0)
        (void)printf("the daemon closes the link of %s: %s\n", ((struct agent *)peer)->host,
                     sentence);
}

static void daemon_announce(void *context, const char *job, const char *sentence)
{
    (void)context;
    (void)job;
    (void)sentence;
}

static int daemon_persist(void *context, uint64_t ticket, const void *record, size_t size,
                          bool may_compact)
{
    (void)ticket;
    (void)may_compact;
    struct large *large = context;
    struct ct_buf bytes;
    ct_buf_init(&bytes, 0);
    ct_journal_frame(&large->tail, record, size, &bytes);
    large->journal_bytes += bytes.size;
    ct_buf_deinit(&bytes);
    return 0;
}

static void arm_daemon(struct large *large)
{
    uint64_t due = CT_MAX(ct_service_deadline(large->service), large->now);
    if (due == UINT64_MAX || due >= large->daemon_due)
        return;
    large->daemon_due = due;
    push(large,
         (struct happening){.at = due, .what = DAEMON_TIMER, .number = ++large->daemon_timer});
}

/* ---- the agents ---- */

static void arm_agent(struct agent *agent)
{
    uint64_t due = ct_member_deadline(&agent->member);
    agent->timer++;
    if (due != UINT64_MAX && agent->alive)
        push(agent->large, (struct happening){.at = CT_MAX(due, agent->large->now),
                                              .what = AGENT_TIMER,
                                              .agent = agent->index,
                                              .number = agent->timer});
}

static void agent_send(void *context, const struct ct_message *message)
{
    struct agent *agent = context;
    post(agent->large, TO_DAEMON, agent->index, message);
}

static void agent_connect(void *context, uint64_t give_up_ms)
{
    struct agent *agent = context;
    (void)give_up_ms;
    push(agent->large,
         (struct happening){.at = agent->large->now + 2, .what = CONNECTED, .agent = agent->index});
}

static void agent_disconnect(void *context)
{
    struct agent *agent = context;
    if (agent->large->broken++ == 0)
        (void)printf("%s gives the connection up\n", agent->host);
}

static void on_waiting(void *context, const char *text)
{
    (void)context;
    (void)text;
}

static void on_prepare(void *context, uint64_t generation, enum ct_rdzv_reason reason,
                       bool at_boundary)
{
    struct agent *agent = context;
    (void)reason;
    (void)at_boundary;
    push(agent->large, (struct happening){.at = agent->large->now + 1,
                                          .what = PROMISE,
                                          .agent = agent->index,
                                          .number = generation});
}

static void on_revoke(void *context, uint64_t generation, enum ct_rdzv_reason reason)
{
    (void)context;
    (void)generation;
    (void)reason;
}

static void on_round(void *context, const struct ct_round *round)
{
    struct agent *agent = context;
    struct large *large = agent->large;
    if (round->generation > large->generation) {
        large->generation = round->generation;
        large->acting = 0;
    }
    large->acting += agent->acting != large->generation;
    agent->acting = round->generation;
}

static void on_link(void *context, bool connected, const char *why)
{
    (void)context;
    (void)connected;
    (void)why;
}

static void on_failed(void *context, const struct ct_error *error)
{
    struct agent *agent = context;
    if (agent->large->broken++ == 0)
        (void)printf("%s fails: %s\n", agent->host, error->text);
}

static void make_agent(struct large *large, uint32_t index)
{
    struct agent *agent = &large->agents[index];
    const struct ct_agent_callbacks callbacks = {
        .context = agent,
        .on_waiting = on_waiting,
        .on_prepare = on_prepare,
        .on_revoke = on_revoke,
        .on_round = on_round,
        .on_link = on_link,
        .on_failed = on_failed,
    };
    const struct ct_member_io io = {.context = agent,
                                    .send = agent_send,
                                    .connect = agent_connect,
                                    .disconnect = agent_disconnect};
    *agent = (struct agent){.large = large, .index = index, .alive = true};
    (void)snprintf(agent->host, sizeof(agent->host), "node%05u", index);
    const struct ct_agent_options options = {
        .run_id = "large",
        .host = agent->host,
        .address = "10.0.0.1",
        .params = large->params,
        .slots = 8,
        .node_rank = -1,
        .slurm_node = -1,
        .survivable = true,
        .id = {.high = index + 1, .low = 1},
    };
    ct_member_init(&agent->member, &options, &callbacks, &io, ct_rng_next(&large->rng));
    push(large, (struct happening){
                    .at = ct_rng_below(&large->rng, START_MS), .what = START, .agent = index});
}

/* ---- one after the other ---- */

static void deliver(struct large *large, const struct happening *what)
{
    struct agent *agent = &large->agents[what->agent];
    struct ct_frame_reader reader;
    struct ct_frame frame;
    struct ct_arena arena;
    struct ct_message message;
    struct ct_error err = {0};
    bool to_daemon = what->what == TO_DAEMON;
    if (!agent->alive || agent->link == 0)
        return;
    ct_arena_init(&arena, 4 << 20);
    ct_frame_reader_init(&reader, to_daemon ? CT_FROM_NODE : CT_FROM_SERVER, CT_WIRE_VALUE);
    int rc = ct_frame_reader_push(&reader, what->frame, what->size);
    CT_ASSERT(rc == 0);
    rc = ct_frame_reader_next(&reader, &frame, &err);
    CT_ASSERT(rc == 1);
    rc = ct_wire_decode(&frame, &arena, &message, &err);
    CT_ASSERT(rc == 0);
    if (to_daemon) {
        uint64_t from = cpu_ns();
        ct_service_message(large->service, large->now, agent->link, &message);
        uint64_t spent = cpu_ns() - from;
        large->in.cpu_ns += spent;
        if (message.type == CT_MSG_HEARTBEAT) {
            large->heartbeats.messages++;
            large->heartbeats.cpu_ns += spent;
        }
        arm_daemon(large);
    } else {
        ct_member_message(&agent->member, large->now, &message);
        arm_agent(agent);
    }
    ct_frame_reader_deinit(&reader);
    ct_arena_deinit(&arena);
}

static void happen(struct large *large, const struct happening *what)
{
    struct agent *agent = large->agents + what->agent;
    switch (what->what) {
    case DAEMON_TIMER:
        if (what->number != large->daemon_timer)
            return;
        large->daemon_due = UINT64_MAX;
        ct_service_tick(large->service, large->now);
        arm_daemon(large);
        return;
    case AGENT_TIMER:
        if (what->number != agent->timer)
            return;
        ct_member_tick(&agent->member, large->now);
        break;
    case START:
        ct_member_start(&agent->member, large->now);
        break;
    case CONNECTED:
        agent->link = ct_service_open(large->service, agent);
        ct_member_connected(&agent->member, large->now);
        break;
    case PROMISE:
        ct_member_prepared(&agent->member, &(struct ct_prepared){.generation = what->number});
        break;
    case TO_DAEMON:
    case TO_AGENT:
        deliver(large, what);
        return;
    }
    arm_agent(agent);
}

/* Until `wanted` agents act in round `generation` or a newer one, or time is up. */
static bool run(struct large *large, uint32_t wanted, uint64_t generation, uint64_t until)
{
    while (large->count > 0 && large->heap[0].at <= until &&
           (large->generation < generation || large->acting < wanted)) {
        struct happening what = pop(large);
        large->now = what.at;
        if (what.what == DAEMON_TIMER || large->agents[what.agent].alive)
            happen(large, &what);
        free(what.frame); /* NOLINT(clang-analyzer-unix.Malloc) popped, so it is nobody else's */
    }
    return large->generation >= generation && large->acting >= wanted;
}

/* ---- the figures ---- */

static void print(const char *what, const struct large *large, uint64_t from_ms, uint64_t from_ns)
{
    double n = large->agent_count;
    (void)printf(
        "%-8s %6" PRIu64 " ms virtual, %5.2f s of CPU in all, daemon %5.2f s; an agent: %.1f "
        "messages in, %.1f out, %.0f bytes in, %.0f out\n",
        what, large->now - from_ms, (double)(cpu_ns() - from_ns) / 1e9,
        (double)large->in.cpu_ns / 1e9, (double)large->in.messages / n,
        (double)large->out.messages / n, (double)large->in.bytes / n, (double)large->out.bytes / n);
}

static void begin_phase(struct large *large, uint64_t *ret_ms, uint64_t *ret_ns)
{
    large->in = large->out = large->heartbeats = (struct traffic){0};
    *ret_ms = large->now;
    *ret_ns = cpu_ns();
}

static bool lose_some(struct large *large)
{
    uint32_t lost = large->agent_count * LOST_PERCENT / 100;
    uint64_t generation = large->generation;
    for (uint32_t i = 0; i < lost; i++) {
        struct agent *agent = &large->agents[i * (large->agent_count / lost)];
        agent->alive = false;
        ct_service_closed(large->service, large->now, agent->link, false);
    }
    arm_daemon(large);
    if (!run(large, large->agent_count - lost, generation + 1, large->now + LIMIT_MS))
        return false;
    (void)printf("lost     %u agents at once: %" PRIu64 " round(s)\n", lost,
                 large->generation - generation);
    return true;
}

static bool print_result(struct large *large)
{
    uint64_t ms, ns;
    begin_phase(large, &ms, &ns);
    if (!run(large, large->agent_count, 1, LIMIT_MS))
        return false;
    print("joined", large, ms, ns);
    (void)run(large, UINT32_MAX, 0, large->now + 2000); /* the workers recover */
    begin_phase(large, &ms, &ns);
    uint64_t period = ct_rdzv_heartbeat_ms(&large->params);
    (void)run(large, UINT32_MAX, 0, large->now + HEARTBEATS * period);
    print("beating", large, ms, ns);
    (void)printf("         every %" PRIu64 " ms; %.2f us of the daemon's CPU a heartbeat\n", period,
                 (double)large->heartbeats.cpu_ns /
                     (double)CT_MAX(large->heartbeats.messages, UINT64_C(1)) / 1e3);
    begin_phase(large, &ms, &ns);
    if (!lose_some(large))
        return false;
    print("losing", large, ms, ns);
    (void)printf("journal  %" PRIu64 " bytes\n", large->journal_bytes);
    return true;
}

int sim_large(uint32_t agents, uint64_t seed)
{
    struct large large = {.agent_count = agents, .daemon_due = UINT64_MAX};
    const struct ct_service_io io = {
        .context = &large,
        .send = daemon_send,
        .close = daemon_close,
        .persist = daemon_persist,
        .announce = daemon_announce,
    };
    ct_rng_init(&large.rng, seed);
    large.params = ct_rdzv_params_default;
    large.params.nodes_max = agents;
    large.params.nodes_min = agents / 2;
    large.params.max_restarts = 10;
    large.params.lease_ms = agents <= LARGE ? LEASE_MS : CT_MAX(LARGE_LEASE_MS, agents);
    large.params.prepare_ms = CT_MAX(large.params.prepare_ms, agents);
    large.service = ct_service_new(NULL, &io, 1);
    large.agents = calloc(agents, sizeof(*large.agents));
    CT_ASSERT(large.service != NULL && large.agents != NULL);
    for (uint32_t i = 0; i < agents; i++)
        make_agent(&large, i);
    bool good = print_result(&large) && large.broken == 0;
    if (!good)
        (void)printf("%u of %u agents act in round %" PRIu64 " after %" PRIu64 " ms\n",
                     large.acting, agents, large.generation, large.now);
    for (uint32_t i = 0; i < agents; i++)
        ct_member_deinit(&large.agents[i].member);
    ct_service_free(large.service);
    for (size_t i = 0; i < large.count; i++)
        free(large.heap[i].frame);
    free(large.heap);
    free(large.agents);
    return good ? 0 : 1;
}
