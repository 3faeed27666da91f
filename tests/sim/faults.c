/* The faults of a run, drawn from its seed before it begins.
 *
 * Each seed has kinds that it never draws, so that the others come in
 * combinations that all kinds together would hardly make; in half of the seeds
 * faults come in bursts. A calm run has up to three, far apart, and what each
 * of them costs is counted (liveness.c). */
#include "sim.h"

#include "base/assert.h"
#include "base/str.h"
#include "chance.h"
#include "rendezvous/service/admin.h"

#include <inttypes.h>
#include <stdio.h>

enum { STOP_PERMILLE = 30, ORDER_AGAIN_MS = 5000, WAKE_MS = 20 };
enum { CALM_FAULTS = 3, CALM_FIRST_MS = 12000, CALM_APART_MS = 15000, DAY_MS = 24 * 3600 * 1000 };

/* Which kinds may come alone, for calm runs. */
static bool may_be_calm(enum fault_kind kind)
{
    static const char *const rounds[] = {
#define FAULT(name, cost, what) [FAULT_##name] = #cost,
#include "faults.def"
#undef FAULT
    };
    return rounds[kind][0] != 'N';
}

static uint64_t draw_length(struct sim *sim)
{
    struct ct_rng *rng = &sim->fault_rng;
    uint64_t most = 4 * (uint64_t)sim->params.lease_ms;
    if (sim->scale > 1 && rng_chance(rng, 200))
        return sim_between(rng, sim->faults_ms / 2, sim->faults_ms);
    return rng_chance(rng, 500) ? sim_between(rng, 1, CT_MIN(most, 2000 * (uint64_t)sim->scale))
                                : sim_between(rng, 1, most);
}

static enum fault_kind draw_kind(struct sim *sim, uint64_t kinds)
{
    for (;;) {
        enum fault_kind kind = (enum fault_kind)ct_rng_below(&sim->fault_rng, FAULT_KINDS);
        if ((kinds >> kind & 1u) != 0)
            return kind;
    }
}

/* The kinds of this seed: a bit set, not empty. */
static uint64_t draw_kinds(struct sim *sim)
{
    uint64_t all = (UINT64_C(1) << FAULT_KINDS) - 1;
    uint64_t kinds = ct_rng_next(&sim->fault_rng) & all;
    if (rng_chance(&sim->fault_rng, 500))
        kinds |= ct_rng_next(&sim->fault_rng) & all;
    if (!rng_chance(&sim->fault_rng, STOP_PERMILLE))
        kinds &= ~(UINT64_C(1) << FAULT_STOP);
    for (enum fault_kind kind = 0; sim->calm && kind < FAULT_KINDS; kind++)
        if (!may_be_calm(kind))
            kinds &= ~(UINT64_C(1) << kind);
    return kinds != 0 ? kinds : UINT64_C(1) << FAULT_NODE_CRASH;
}

void sim_draw_faults(struct sim *sim, uint64_t skip)
{
    struct ct_rng *rng = &sim->fault_rng;
    uint64_t kinds = draw_kinds(sim);
    bool bursts = rng_chance(rng, 500);
    uint64_t at = sim_between(rng, 500, sim->faults_ms - 1);
    sim->fault_count = sim->calm ? ct_rng_below(rng, CALM_FAULTS + 1) : ct_rng_below(rng, 30);
    for (size_t i = 0; i < sim->fault_count; i++) {
        struct fault *fault = &sim->faults[i];
        if (sim->calm)
            at = CALM_FIRST_MS + i * CALM_APART_MS;
        else if (bursts && rng_chance(rng, 700))
            at += ct_rng_below(rng, 2 * (uint64_t)sim->params.lease_ms);
        else
            at = sim_between(rng, 500, sim->faults_ms - 1);
        at = CT_MIN(at, sim->faults_ms - 1);
        *fault = (struct fault){
            .kind = draw_kind(sim, kinds),
            .node = (uint32_t)ct_rng_below(rng, sim->node_count),
            .at = at,
            .lasts = draw_length(sim),
            .skipped = (skip >> i & 1u) != 0,
        };
        if (fault->skipped)
            continue;
        sim_schedule(sim, fault->at, EV_FAULT_BEGIN, (uint32_t)i, 0);
        sim_schedule(sim, CT_MIN(fault->at + fault->lasts, sim->faults_ms), EV_FAULT_END,
                     (uint32_t)i, 0);
        if (sim->calm)
            sim_schedule(sim, at + CALM_APART_MS - 1, EV_CALM, (uint32_t)i, 0);
    }
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim_schedule(sim, ct_rng_below(rng, sim->calm ? 3000 : 6000), EV_START, sim_process(i), 0);
}

void sim_fault_print(const struct fault *fault, char *text, size_t room)
{
    static const char *const names[] = {
#define FAULT(name, rounds, what) #name,
#include "faults.def"
#undef FAULT
    };
    char node[16] = "";
    if (fault->kind < FAULT_ISOLATE)
        (void)snprintf(node, sizeof(node), " n%u", fault->node);
    (void)snprintf(text, room, "[%7" PRIu64 "] %s%s for %" PRIu64 " ms", fault->at,
                   names[fault->kind], node, fault->lasts);
}

/* ---- what they do ---- */

static void change_cut(struct sim *sim, uint32_t node, uint32_t daemon, int direction, int by)
{
    uint32_t *cut = &sim->nodes[node].cut[daemon][direction];
    *cut = (uint32_t)((int)*cut + by);
    sim_cut_changed(sim, node);
}

static void cut_one_way(struct sim *sim, uint32_t node, int direction, int by)
{
    for (uint32_t daemon = 0; daemon < SIM_DAEMONS; daemon++)
        change_cut(sim, node, daemon, direction, by);
}

/* Nodes `first` to `last` lose the daemons, and all that are not among them. */
static void split(struct sim *sim, const struct fault *fault, uint32_t first, uint32_t last, int by)
{
    for (uint32_t i = first; i <= last; i++) {
        cut_one_way(sim, i, 0, by);
        cut_one_way(sim, i, 1, by);
        sim->nodes[i].sides ^= UINT64_C(1) << (fault - sim->faults);
    }
}

static void isolate(struct sim *sim, uint32_t daemon, int by)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        change_cut(sim, i, daemon, 0, by);
        change_cut(sim, i, daemon, 1, by);
    }
}

static void pause(struct sim *sim, uint32_t process, uint64_t lasts)
{
    if (sim->processes[process].alive)
        sim_pause(sim, process, CT_MIN(sim->now + lasts, sim->faults_ms));
}

/* The daemon, or the whole machine, stands still until the fault is over; or for a part of that,
 * and wakes for a moment. */
void sim_stall(struct sim *sim, struct fault *fault)
{
    uint64_t ends = CT_MIN(fault->at + fault->lasts, sim->faults_ms);
    if (sim->now >= ends)
        return;
    uint64_t lasts = ends - sim->now;
    if (fault->split)
        lasts = sim_between(&sim->fault_rng, 1, CT_MIN(lasts, sim->params.lease_ms));
    pause(sim, fault->daemon, lasts);
    for (uint32_t i = 0; fault->kind == FAULT_MACHINE_PAUSE && i < sim->node_count; i++)
        pause(sim, sim_process(i), lasts + ct_rng_below(&sim->fault_rng, 3));
    sim_schedule(sim, sim->now + lasts + ct_rng_below(&sim->fault_rng, WAKE_MS), EV_STALL,
                 (uint32_t)(fault - sim->faults), 0);
}

static void reset(struct sim *sim, uint32_t node)
{
    uint32_t index = sim->nodes[node].conn;
    if (index == SIM_CONNS)
        return;
    for (uint64_t side = 0; side < 2; side++)
        sim_schedule(sim, sim->now, EV_CLOSED, index, side);
}

/* The other daemon starts; the one that serves is not asked. */
static void take_over(struct sim *sim, uint32_t served)
{
    uint32_t other = 1 - served;
    if (!sim->processes[other].alive)
        sim_daemon_start(sim, other);
}

static void set_wall(struct sim *sim, const struct fault *fault)
{
    int64_t day = (int64_t)ct_rng_below(&sim->fault_rng, 2 * DAY_MS + 1) - DAY_MS;
    sim->processes[sim_process(fault->node)].wall_ms += day;
    sim->processes[fault->daemon].wall_ms -= day;
}

static void begin_daemon_fault(struct sim *sim, struct fault *fault)
{
    switch (fault->kind) {
    case FAULT_ISOLATE:
        isolate(sim, fault->daemon, 1);
        break;
    case FAULT_DAEMON_CRASH:
        sim_daemon_crash(sim, fault->daemon);
        break;
    case FAULT_DAEMON_TEAR:
        sim->disk.tear_next = true;
        break;
    case FAULT_DAEMON_PAUSE:
    case FAULT_MACHINE_PAUSE:
        fault->split = sim->scenario == NULL && rng_chance(&sim->fault_rng, 500);
        sim_stall(sim, fault);
        break;
    case FAULT_TAKEOVER:
        take_over(sim, fault->daemon);
        break;
    case FAULT_RACE:
        sim->disk.race_next = true;
        break;
    case FAULT_DISK_FULL:
        sim->disk.full++;
        break;
    case FAULT_DISK_SLOW:
        sim->disk.slow++;
        break;
    case FAULT_WALL_JUMP:
        set_wall(sim, fault);
        break;
    default:
        break;
    }
}

/* Every other cordon comes while a round is made, if one is made in time: the order and the
 * promises cross. */
static bool waits_for_a_round(struct sim *sim, struct fault *fault)
{
    uint32_t number = (uint32_t)(fault - sim->faults);
    const struct ct_rdzv *job = sim_job(sim_newest_daemon(sim));
    bool is_made = job != NULL && ct_rdzv_phase(job) == CT_RDZV_PREPARE;
    if (fault->kind != FAULT_CORDON || number % 2 == 0 || sim->calm || is_made ||
        sim->now >= fault->at + fault->lasts / 2)
        return false;
    sim_schedule(sim, sim->now + 1, EV_FAULT_BEGIN, number, 0);
    return true;
}

void sim_fault_begin(struct sim *sim, struct fault *fault)
{
    char text[128];
    const struct sim_daemon *newest = sim_newest_daemon(sim);
    if (waits_for_a_round(sim, fault))
        return;
    fault->daemon = newest != NULL ? newest->index : 0;
    sim_fault_print(fault, text, sizeof(text));
    sim_trace(sim, "fault: %s", text + 10);
    sim->coverage.faults++;
    sim->coverage.fault_kinds[fault->kind]++;
    if (sim->calm)
        oracle_calm_begin(sim, fault);
    if (sim->embedded && sim_embedded_fault_begin(sim, fault))
        return;
    switch (fault->kind) {
    case FAULT_NODE_CRASH:
        sim_node_crash(sim, fault->node);
        break;
    case FAULT_NODE_PAUSE:
        pause(sim, sim_process(fault->node), fault->lasts);
        break;
    case FAULT_NODE_DRAIN:
        sim_node_signal(sim, fault->node, AGENT_SIGTERM);
        break;
    case FAULT_ORDER_DRAIN:
        sim_order(sim, CT_ADMIN_DRAIN, fault->node);
        oracle_calm_ordered(sim, fault);
        break;
    case FAULT_CORDON:
        sim_order(sim, CT_ADMIN_CORDON, fault->node);
        break;
    case FAULT_STOP:
        sim_node_signal(sim, fault->node, AGENT_SIGINT);
        break;
    case FAULT_WORKER_CRASH:
        sim_worker_crash(sim, fault->node);
        break;
    case FAULT_RESET:
        reset(sim, fault->node);
        break;
    case FAULT_CUT:
        split(sim, fault, fault->node, fault->node, 1);
        break;
    case FAULT_SPLIT:
        split(sim, fault, fault->node, sim->node_count - 1, 1);
        break;
    case FAULT_CUT_TO:
        cut_one_way(sim, fault->node, 0, 1);
        break;
    case FAULT_CUT_FROM:
        cut_one_way(sim, fault->node, 1, 1);
        break;
    case FAULT_STORM:
        sim->storms++;
        break;
    default:
        begin_daemon_fault(sim, fault);
        break;
    }
}

void sim_fault_end(struct sim *sim, struct fault *fault)
{
    if (sim->embedded && sim_embedded_fault_end(sim, fault))
        return;
    switch (fault->kind) {
    case FAULT_NODE_CRASH:
        sim_schedule(sim, sim->now, EV_START, sim_process(fault->node), 0);
        break;
    case FAULT_CORDON:
        sim_order(sim, CT_ADMIN_UNCORDON, fault->node);
        /* Again and again, until the newest daemon that can write must have heard it. */
        if (sim->faults_ended && sim->now < sim->faults_ms + 4 * ORDER_AGAIN_MS * sim->scale)
            sim_schedule(sim, sim->now + ORDER_AGAIN_MS * sim->scale, EV_FAULT_END,
                         (uint32_t)(fault - sim->faults), 0);
        break;
    case FAULT_CUT:
        split(sim, fault, fault->node, fault->node, -1);
        break;
    case FAULT_SPLIT:
        split(sim, fault, fault->node, sim->node_count - 1, -1);
        break;
    case FAULT_CUT_TO:
        cut_one_way(sim, fault->node, 0, -1);
        break;
    case FAULT_CUT_FROM:
        cut_one_way(sim, fault->node, 1, -1);
        break;
    case FAULT_ISOLATE:
        isolate(sim, fault->daemon, -1);
        break;
    case FAULT_STORM:
        sim->storms--;
        break;
    case FAULT_DISK_FULL:
        sim->disk.full--;
        sim->disk.full_until = sim->now;
        break;
    case FAULT_DISK_SLOW:
        sim->disk.slow--;
        break;
    default: /* over in a moment, or by a time that was set when it began */
        break;
    }
}

/* All faults have ended by now (their ends come first at this time). What is
 * down starts again. */
void sim_end_faults(struct sim *sim)
{
    sim_trace(sim, "faults end");
    sim->faults_ended = true;
    sim->loss_permille = sim->duplicate_permille = 0;
    if (sim->embedded)
        sim_schedule(sim, sim->now + sim->params.lease_ms + SIM_LED_MS, EV_LED, 0, 0);
    sim->disk.tear_next = sim->disk.race_next = false;
    sim->delay_ms = CT_MIN(sim->delay_ms, sim->params.lease_ms / 50);
    const struct sim_daemon *daemon = sim_newest_daemon(sim);
    for (uint32_t i = SIM_DAEMONS; i < SIM_PROCESSES; i++)
        sim->daemons[i].tears = 0;
    if (!sim->embedded &&
        (daemon == NULL || !sim_disk_is_newest(sim, daemon))) /* one that lives is fenced */
        sim_schedule(sim, sim->now, EV_START, daemon != NULL ? 1 - daemon->index : 0, 0);
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim_schedule(sim, sim->now + 1000, EV_START, sim_process(i), 0);
    for (uint32_t i = 0; i < sim->fault_count; i++)
        if (sim->faults[i].kind == FAULT_CORDON && !sim->faults[i].skipped)
            sim_schedule(sim, sim->now, EV_FAULT_END, i, 0);
}
