/* The bound of a step (core.h): crowds of nodes of one host name, many cordons, leases and times
 * that end together, and messages at random. A step that had more to do than it has room for would
 * end the process. */
#include "rendezvous/core/core.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "chance.h"
#include "rdzv_check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(bounds, .timeout = 60);

enum { CROWD = 1100, RECORDS = 64 };

struct crowd {
    struct ct_rdzv *job;
    struct ct_rdzv_params params;
    uint64_t now_ms;
    uint64_t seq;
    size_t joined;
    size_t effects; /* the most in one step */
    size_t prepares;
    /* By number, counted from 1. */
    uint64_t link[CROWD + 1]; /* of its last connection */
    uint64_t self[CROWD + 1]; /* its incarnation */
    uint32_t member[CROWD + 1];
    uint64_t links;
    bool full_disk;
};

static void step(struct crowd *c, const struct ct_rdzv_event *first)
{
    struct ct_rdzv_event records[RECORDS];
    size_t count = 0, done = 0;
    struct ct_rdzv_event event = *first;
    struct ct_rdzv_actions actions;
    for (;;) {
        size_t effects = 0;
        ct_rdzv_step(c->job, c->now_ms, &event, &actions);
        for (size_t i = 0; i < actions.count; i++) {
            const struct ct_rdzv_action *action = &actions.list[i];
            effects += action->kind != CT_RDZV_DO_ANNOUNCE;
            c->prepares += action->kind == CT_RDZV_DO_PREPARE;
            for (size_t k = 1; action->kind == CT_RDZV_DO_WELCOME && k <= CROWD; k++)
                if (c->link[k] == action->link)
                    c->member[k] = action->member;
            if (action->kind != CT_RDZV_DO_PERSIST)
                continue;
            cr_assert(count < RECORDS);
            records[count++] = (struct ct_rdzv_event){
                .kind = c->full_disk ? CT_RDZV_ON_PERSIST_FAILED : CT_RDZV_ON_PERSISTED,
                .seq = action->seq};
        }
        c->effects = CT_MAX(c->effects, effects);
        cr_assert_leq(effects, CT_RDZV_EFFECTS_LIMIT);
        if (done == count)
            return;
        event = records[done++];
    }
}

static void init(struct crowd *c, uint32_t nodes_min, uint32_t nodes_max)
{
    *c = (struct crowd){.params = ct_rdzv_params_default, .now_ms = 1000};
    c->params.nodes_min = nodes_min;
    c->params.nodes_max = nodes_max;
    c->params.max_restarts = 1000;
    c->params.last_call_ms = 0;
    c->params.cordon_faults = 0;
    c->job = ct_rdzv_new("crowd", &c->params, 1, c->now_ms);
    cr_assert_not_null(c->job);
}

static void check(const struct crowd *c)
{
    struct ct_error err = {0};
    cr_assert_eq(rdzv_check(c->job, &err), 0, "%s", err.text);
}

static void join_as(struct crowd *c, size_t number, const char *host, uint64_t self)
{
    if (c->link[number] == 0 || c->self[number] != self || ++c->links % 4 != 0)
        c->link[number] = ++c->links; /* else it says JOIN again */
    c->self[number] = self;
    const struct ct_rdzv_join join = {
        .id = {.high = number, .low = self},
        .params = c->params,
        .slots = 1,
        .node_rank = -1,
        .slurm_node = -1,
        .host = host,
        .address = "",
        .role = "",
    };
    const struct ct_rdzv_event event = {
        .kind = CT_RDZV_ON_JOIN, .link = c->link[number], .seq = ++c->seq, .join = &join};
    step(c, &event);
}

static void join(struct crowd *c, const char *host)
{
    join_as(c, ++c->joined, host, 1);
}

static void send_event(struct crowd *c, size_t number, enum ct_rdzv_event_kind kind)
{
    const struct ct_rdzv_event event = {.kind = kind,
                                        .link = c->link[number],
                                        .member = c->member[number],
                                        .seq = ++c->seq,
                                        .promised = ct_rdzv_generation(c->job),
                                        .generation = ct_rdzv_generation(c->job)};
    step(c, &event);
}

static void order(struct crowd *c, enum ct_rdzv_event_kind kind, const char *host, uint64_t for_ms)
{
    const struct ct_rdzv_order what = {
        .host = host, .author = "ops", .reason = "", .for_ms = for_ms};
    const struct ct_rdzv_event event = {.kind = kind, .link = UINT64_MAX, .order = &what};
    step(c, &event);
}

static void tick(struct crowd *c, uint64_t now_ms)
{
    const struct ct_rdzv_event event = {.kind = CT_RDZV_ON_TICK};
    c->now_ms = now_ms;
    step(c, &event);
}

/* Time passes, with a tick whenever one is due. */
static void pass(struct crowd *c, uint64_t until_ms)
{
    while (ct_rdzv_deadline(c->job) < until_ms)
        tick(c, CT_MAX(c->now_ms, ct_rdzv_deadline(c->job)));
    tick(c, until_ms);
}

static size_t count_members(const struct crowd *c, enum ct_rdzv_member_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < ct_rdzv_capacity(c->job); i++)
        count += ct_rdzv_member(c->job, i)->state == state;
    return count;
}

static const size_t sizes[] = {24, 64, 1000};

Test(bounds, a_host_of_any_number_of_nodes_is_uncordoned_while_a_round_is_made)
{
    for (size_t k = 0; k < CT_COUNT(sizes); k++) {
        struct crowd c;
        init(&c, 1, 1100);
        join(&c, "a");
        order(&c, CT_RDZV_ON_CORDON, "localhost", 0);
        for (size_t i = 0; i < sizes[k]; i++)
            join(&c, "localhost");
        tick(&c, c.now_ms + 1);
        cr_assert_eq(ct_rdzv_phase(c.job), CT_RDZV_PREPARE);
        cr_assert_eq(count_members(&c, CT_RDZV_STANDBY), sizes[k]);
        c.prepares = 0;
        order(&c, CT_RDZV_ON_UNCORDON, "localhost", 0);
        cr_assert_eq(count_members(&c, CT_RDZV_PREPARING), sizes[k] + 1);
        cr_assert_eq(c.prepares, 1, "one action asks them all");
        check(&c);
        ct_rdzv_free(c.job);
    }
}

Test(bounds, as_many_cordons_as_there_may_be_end_in_one_tick)
{
    struct crowd c;
    char host[16];
    init(&c, 1, 1100);
    join(&c, "a");
    for (int i = 0; i < CT_RDZV_CORDONS; i++) {
        (void)snprintf(host, sizeof(host), "h%d", i);
        order(&c, CT_RDZV_ON_CORDON, host, 4000);
        for (int k = 0; k < 16; k++)
            join(&c, host);
    }
    tick(&c, c.now_ms + 1);
    cr_assert_eq(ct_rdzv_phase(c.job), CT_RDZV_PREPARE);
    tick(&c, c.now_ms + 4000);
    cr_assert_eq(count_members(&c, CT_RDZV_PREPARING), 1 + 16 * CT_RDZV_CORDONS);
    check(&c);
    ct_rdzv_free(c.job);
}

/* A round of 800 is being made and 200 spares wait. */
static void ask_a_crowd(struct crowd *c)
{
    init(c, 800, 800);
    for (int i = 0; i < 1000; i++)
        join(c, "localhost");
    cr_assert_eq(ct_rdzv_phase(c->job), CT_RDZV_PREPARE);
    cr_assert_eq(count_members(c, CT_RDZV_PREPARING), 800);
}

Test(bounds, leases_of_many_end_in_one_scan_while_spares_take_their_places)
{
    struct crowd c;
    ask_a_crowd(&c);
    uint64_t begun_ms = c.now_ms;
    for (int period = 1; period < 5; period++) {
        pass(&c, begun_ms + 1000 * (uint64_t)period);
        for (size_t i = 1; i <= 1000; i++)
            if (i > 800 || i <= 600) /* the others are silent */
                send_event(&c, i, CT_RDZV_ON_HEARTBEAT);
    }
    pass(&c, begun_ms + 5000);
    cr_assert_eq(count_members(&c, CT_RDZV_PREPARING), 800);
    cr_assert_eq(count_members(&c, CT_RDZV_STANDBY), 0);
    check(&c);
    ct_rdzv_free(c.job);
}

Test(bounds, many_do_not_stop_in_time_while_spares_take_their_places)
{
    struct crowd c;
    ask_a_crowd(&c);
    uint64_t begun_ms = c.now_ms;
    for (size_t i = 1; i <= 600; i++)
        send_event(&c, i, CT_RDZV_ON_PREPARED);
    while (c.now_ms < begun_ms + c.params.prepare_ms) {
        for (size_t i = 1; i <= 1000; i++)
            send_event(&c, i, CT_RDZV_ON_HEARTBEAT);
        pass(&c, c.now_ms + 1000);
    }
    cr_assert_eq(count_members(&c, CT_RDZV_PROMISED), 600);
    cr_assert_eq(count_members(&c, CT_RDZV_PREPARING), 200, "the spares");
    cr_assert_eq(count_members(&c, CT_RDZV_FREE), ct_rdzv_capacity(c.job) - 800);
    check(&c);
    ct_rdzv_free(c.job);
}

/* ---- anything, in any order ---- */

static const char *const hosts[] = {"localhost", "localhost", "b", ""};

static void anything(struct crowd *c, struct ct_rng *rng, size_t nodes)
{
    size_t number = ct_rng_below(rng, nodes) + 1;
    const char *host = hosts[ct_rng_below(rng, CT_COUNT(hosts))];
    const struct ct_wire_failure failure = {
        .code = (int32_t)ct_rng_below(rng, 40) - 35,
        .rank = (int32_t)ct_rng_below(rng, 6) - 1,
        .fatal = rng_chance(rng, 1) ? 1 : 0,
        .age_ms = ct_rng_below(rng, c->now_ms + 1),
        .text = "",
    };
    struct ct_rdzv_event event = {
        .kind = (enum ct_rdzv_event_kind)ct_rng_below(rng, CT_RDZV_EVENTS),
        .link = c->link[number],
        .member = rng_chance(rng, 900) ? c->member[number] : (uint32_t)ct_rng_next(rng),
        .seq = rng_chance(rng, 950) ? ++c->seq : ct_rng_next(rng) >> ct_rng_below(rng, 64),
        .generation = ct_rdzv_generation(c->job) - ct_rng_below(rng, 2),
        .promised = ct_rng_below(rng, 4),
        .over = rng_chance(rng, 999) ? 0 : ct_rdzv_generation(c->job),
        .recovered = ct_rdzv_generation(c->job) - ct_rng_below(rng, 2),
        .acted = ct_rng_next(rng) >> ct_rng_below(rng, 64),
        .lineage = rng_chance(rng, 700) ? 0 : ct_rdzv_roster(c->job)->generation,
        .step = ct_rng_below(rng, 3),
        .silent = rng_chance(rng, 500),
        .leave = rng_chance(rng, 1) ? CT_RDZV_LEAVE_STOP : CT_RDZV_LEAVE_DRAIN,
        .failure = &failure,
    };
    const struct ct_rdzv_order what = {.host = host,
                                       .author = "ops",
                                       .reason = "",
                                       .for_ms = ct_rng_next(rng) >> ct_rng_below(rng, 64)};
    event.order = &what;
    if (event.kind == CT_RDZV_ON_PREPARED && rng_chance(rng, 800))
        event.generation = ct_rdzv_generation(c->job);
    if (event.kind == CT_RDZV_ON_JOIN || rng_chance(rng, 100))
        join_as(c, number, host, ct_rng_below(rng, 3));
    else if (rng_chance(rng, 300))
        send_event(c, number, CT_RDZV_ON_PREPARED);
    else if (event.kind == CT_RDZV_ON_TICK)
        tick(c, c->now_ms + (ct_rng_next(rng) & 0xffff) % (rng_chance(rng, 10) ? 60000 : 100));
    else
        step(c, &event);
}

Test(bounds, no_order_of_messages_true_or_made_up_breaks_the_core)
{
    size_t effects = 0;
    uint64_t rounds = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct crowd c;
        struct ct_rng rng;
        ct_rng_init(&rng, seed);
        uint32_t max = (uint32_t)ct_rng_below(&rng, seed % 3 == 0 ? 60 : 6) + 1;
        init(&c, (uint32_t)ct_rng_below(&rng, CT_MIN(max, 8u)) + 1, max);
        for (int i = 0; i < 1500 && ct_rdzv_phase(c.job) != CT_RDZV_CLOSED; i++) {
            c.full_disk = rng_chance(&rng, 50);
            anything(&c, &rng, max + 3);
            check(&c);
        }
        effects = CT_MAX(effects, c.effects);
        rounds += ct_rdzv_roster(c.job)->generation;
        ct_rdzv_free(c.job);
    }
    cr_assert_gt(rounds, 200, "%lu rounds: too little was tried", (unsigned long)rounds);
    cr_assert_gt(effects, 3, "%zu actions at most: too little was tried", effects);
}
