/* The loop of a run: take the next event, let it happen, check the invariants.
 *
 * An event for a process that stands still is put off until it goes on; one for
 * an earlier life of a process or connection is dropped. */
#include "sim.h"

#include "base/assert.h"
#include "base/number/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STANDSTILL = 100000, /* events of one moment */
    EXTENSIONS = 6,
    EXTENSION_MS = 10000,
};

/* ---- the heap: by time, then by order of making ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct sim *sim, const struct event *event)
{
    if (sim->heap_count == sim->heap_room) {
        sim->heap_room = sim->heap_room > 0 ? sim->heap_room * 2 : 256;
        sim->heap = realloc(sim->heap, sim->heap_room * sizeof(*sim->heap));
        CT_ASSERT(sim->heap != NULL);
    }
    size_t i = sim->heap_count++;
    while (i > 0 && before(event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = *event;
}

static struct event pop(struct sim *sim)
{
    struct event top = sim->heap[0];
    struct event last = sim->heap[--sim->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= sim->heap_count)
            break;
        if (child + 1 < sim->heap_count && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!before(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return top;
}

static uint32_t end_of(const struct sim *sim, uint32_t index, int side)
{
    const struct conn *conn = &sim->conns[index];
    return side == AT_DAEMON ? conn->daemon : sim_process(conn->node);
}

static bool is_of_conn(enum event_kind kind)
{
    return kind == EV_OPENED || kind == EV_CLOSED || kind == EV_UNANSWERED || kind == EV_DIAL ||
           kind == EV_DIAL_END;
}

/* Whose event it is: a process, or none (UINT32_MAX). */
static uint32_t process_of(const struct sim *sim, enum event_kind kind, uint32_t a, uint64_t b)
{
    switch (kind) {
    case EV_TIMER:
    case EV_TICK:
    case EV_POLL:
        return a;
    case EV_CONNECT:
    case EV_READY:
    case EV_GONE:
    case EV_AGENT:
    case EV_BASE_LOST:
    case EV_DONE:
        return sim_process(a);
    case EV_DELIVER:
        return end_of(sim, sim->chunks[a].conn, sim->chunks[a].side);
    case EV_OPENED:
    case EV_CLOSED:
    case EV_UNANSWERED:
        return end_of(sim, a, (int)b);
    case EV_DIAL_END:
        return end_of(sim, a, AT_NODE);
    default:
        return UINT32_MAX;
    }
}

static uint32_t life_of(const struct sim *sim, enum event_kind kind, uint32_t a, uint64_t b)
{
    if (is_of_conn(kind))
        return sim->conns[a].life;
    if (kind == EV_MEMBER_STEP)
        return sim->processes[sim_process(a)].life;
    if (kind == EV_DELIVER)
        return 0;
    uint32_t process = process_of(sim, kind, a, b);
    return process != UINT32_MAX ? sim->processes[process].life : 0;
}

void sim_schedule(struct sim *sim, uint64_t at, enum event_kind kind, uint32_t a, uint64_t b)
{
    struct event event = {
        .at = CT_MAX(at, sim->now),
        .order = ++sim->event_order,
        .kind = kind,
        .a = a,
        .life = life_of(sim, kind, a, b),
        .b = b,
    };
    push(sim, &event);
}

/* ---- clocks ---- */

uint64_t sim_local_ms(const struct sim *sim, uint32_t process)
{
    const struct process *p = &sim->processes[process];
    int64_t drift = (int64_t)sim->now * p->rate_ppm / 1000000;
    return p->offset_ms + sim->now + (uint64_t)drift;
}

void sim_arm(struct sim *sim, uint32_t process, uint64_t due)
{
    struct process *p = &sim->processes[process];
    p->timer++;
    if (due == UINT64_MAX)
        return;
    uint64_t local = sim_local_ms(sim, process);
    uint64_t wait =
        due > local ? (due - local) * 1000000 / (uint64_t)(1000000 + p->rate_ppm) + 1 : 0;
    sim_schedule(sim, sim->now + wait, EV_TIMER, process, p->timer);
}

void sim_pause(struct sim *sim, uint32_t process, uint64_t until)
{
    struct process *p = &sim->processes[process];
    uint64_t from = CT_MAX(sim->now, p->paused_until);
    if (until <= from)
        return;
    if (p->paused_until <= sim->now)
        p->paused_from = sim->now;
    /* What is shorter, in one piece, than the time between two of its looks is not noticed. */
    uint64_t noticed = p->paused_from + ct_rdzv_heartbeat_ms(&sim->params) / 2 + 1;
    p->stalled_ms += CT_MAX(until, noticed) - CT_MAX(from, noticed);
    p->paused_until = until;
}

/* ---- words ---- */

static void put_line(struct sim *sim, enum voice voice, const char *format, va_list list)
    __attribute__((format(printf, 3, 0)));

static void put_line(struct sim *sim, enum voice voice, const char *format, va_list list)
{
    char line[1024];
    (void)vsnprintf(line, sizeof(line), format, list);
    sim->hash = ct_hash64(line, strlen(line), sim->hash + sim->now);
    if (sim->voice < voice)
        return;
    if (sim->transcript != NULL)
        (void)ct_buf_printf(sim->transcript, "[%7" PRIu64 "] %s\n", sim->now, line);
    else
        (void)printf("[%7" PRIu64 "] %s\n", sim->now, line);
}

void sim_log(struct sim *sim, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put_line(sim, VOICE_ALL, format, list);
    va_end(list);
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    put_line(sim, VOICE_STORY, format, list);
    va_end(list);
}

/* The rules, but for a few, are those of one job. */
static bool holds_of_two(const char *rule)
{
    static const char *const rules[] = {"R1:", "R4:", "R9:", "S15", "L8: time"};
    for (size_t i = 0; i < CT_COUNT(rules); i++)
        if (strncmp(rule, rules[i], strlen(rules[i])) == 0)
            return true;
    return false;
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list list;
    if (sim->failure[0] != '\0' || (sim->divided && !holds_of_two(format)))
        return;
    va_start(list, format);
    (void)vsnprintf(sim->failure, sizeof(sim->failure), format, list);
    va_end(list);
    sim_log(sim, "FAILURE %s", sim->failure);
}

/* ---- the loop ---- */

static void start_process(struct sim *sim, uint32_t process)
{
    if (sim->processes[process].alive)
        return;
    if (process < SIM_DAEMONS)
        sim_daemon_start(sim, process);
    else
        sim_node_start(sim, process - SIM_DAEMONS);
}

static void on_timer(struct sim *sim, uint32_t process, uint64_t serial)
{
    if (sim->processes[process].timer != serial)
        return;
    if (process < SIM_DAEMONS)
        sim_daemon_timer(sim, process);
    else
        sim_node_timer(sim, process - SIM_DAEMONS);
}

static void check_calm(struct sim *sim, const struct fault *fault, uint64_t what)
{
    if (what == 0)
        oracle_calm_end(sim, fault);
    else if (what == 1)
        oracle_calm_out(sim, fault);
    else
        oracle_calm_left(sim, fault);
}

static void happen_to_workers(struct sim *sim, const struct event *event)
{
    switch (event->kind) {
    case EV_READY:
        sim_worker_ready(sim, event->a, event->b);
        break;
    case EV_GONE:
        sim_worker_gone(sim, event->a, event->b);
        break;
    case EV_AGENT:
        sim_node_feed(sim, event->a,
                      &(struct agent_event){.kind = (enum agent_event_kind)event->b});
        break;
    case EV_BASE_LOST:
        sim_workers_base_lost(sim, event->a, event->b);
        break;
    case EV_DONE:
        sim_workers_done(sim, event->a, event->b);
        break;
    default:
        break;
    }
}

static void happen(struct sim *sim, const struct event *event)
{
    int side = (int)event->b;
    switch (event->kind) {
    case EV_TIMER:
        on_timer(sim, event->a, event->b);
        break;
    case EV_TICK:
        if (event->a < SIM_DAEMONS)
            sim_daemon_tick(sim, event->a);
        else
            sim_host_tick(sim, event->a - SIM_DAEMONS);
        break;
    case EV_STALL:
        sim_stall(sim, &sim->faults[event->a]);
        break;
    case EV_POLL:
        sim_daemon_poll(sim, event->a);
        break;
    case EV_CONNECT:
        sim_try_connect(sim, event->a, event->b);
        break;
    case EV_DIAL:
        sim_dial_arrives(sim, event->a);
        break;
    case EV_DIAL_END:
        sim_dial_ends(sim, event->a, event->b != 0);
        break;
    case EV_OPENED:
        sim_opened(sim, event->a, side);
        break;
    case EV_DELIVER:
        sim_deliver(sim, event->a);
        break;
    case EV_CLOSED:
        sim_closed(sim, event->a, side);
        break;
    case EV_UNANSWERED:
        sim_unanswered(sim, event->a, side);
        break;
    case EV_STEP:
        sim_training_step(sim);
        break;
    case EV_MEMBER_STEP:
        sim_member_step(sim, event->a, event->b);
        break;
    case EV_FAULT_BEGIN:
        sim_fault_begin(sim, &sim->faults[event->a]);
        break;
    case EV_FAULT_END:
        sim_fault_end(sim, &sim->faults[event->a]);
        break;
    case EV_CALM:
        check_calm(sim, &sim->faults[event->a], event->b);
        break;
    case EV_START:
        start_process(sim, event->a);
        break;
    case EV_LED:
        if (oracle_led(sim, event->a == 1))
            sim_take_over(sim);
        break;
    case EV_QUIET:
        oracle_quiet(sim);
        break;
    case EV_FAULTS_END:
        sim_end_faults(sim);
        break;
    default:
        happen_to_workers(sim, event);
        break;
    }
}

/* Put off or drop what cannot happen now. */
static bool is_due(struct sim *sim, struct event *event)
{
    uint32_t process = process_of(sim, event->kind, event->a, event->b);
    if (event->life != life_of(sim, event->kind, event->a, event->b))
        return false;
    if (process == UINT32_MAX || sim->processes[process].paused_until <= sim->now)
        return true;
    event->at = sim->processes[process].paused_until;
    if (event->kind == EV_TIMER)
        event->order = 0; /* a loop looks at its timers before its sockets */
    push(sim, event);
    return false;
}

static void begin(struct sim *sim, uint64_t skip)
{
    uint64_t seed = sim->seed;
    ct_rng_init(&sim->setup_rng, ct_mix64(seed));
    ct_rng_init(&sim->net_rng, ct_mix64(seed + 0x1000000000));
    ct_rng_init(&sim->fault_rng, ct_mix64(seed + 0x2000000000));
    ct_rng_init(&sim->work_rng, ct_mix64(seed + 0x3000000000));
    ct_rng_init(&sim->disk_rng, ct_mix64(seed + 0x4000000000));
    sim_draw_setting(sim);
    if (sim->scenario != NULL)
        sim_stage(sim);
    else
        sim_draw_faults(sim, skip);
    if (!sim->embedded)
        sim_schedule(sim, 0, EV_START, 0, 0);
    sim_schedule(sim, 0, EV_STEP, 0, 0);
    sim_schedule(sim, sim->faults_ms, EV_FAULTS_END, 0, 0);
    sim_schedule(sim, sim->faults_ms + (sim->ends_ms - sim->faults_ms) * 3 / 4, EV_QUIET, 0, 0);
}

static void run_until_end(struct sim *sim)
{
    while (sim->heap_count > 0 && sim->failure[0] == '\0' && !sim->over) {
        struct event event = pop(sim);
        if (event.at > sim->ends_ms) {
            push(sim, &event);
            break;
        }
        sim->same_time = event.at == sim->now ? sim->same_time + 1 : 0;
        if (sim->same_time > STANDSTILL)
            sim_fail(sim, "L8: time stands still, something happens again and again");
        sim->now = event.at;
        if (!is_due(sim, &event))
            continue;
        sim->coverage.events++;
        happen(sim, &event);
        sim_flush(sim);
    }
}

/* Without a daemon, nodes that hold another record end when their `autonomy` does, others when an
 * operator says so, at any time: what that brings about has some more time to come. */
static bool may_still_come(struct sim *sim, unsigned extensions)
{
    bool is_late = (sim->failure[0] == 'L' && strchr("12357", sim->failure[1]) != NULL) ||
                   strncmp(sim->failure, "R9", 2) == 0;
    if (!sim->embedded || !is_late || extensions >= EXTENSIONS)
        return false;
    sim->failure[0] = '\0';
    sim->ends_ms += EXTENSION_MS * sim->scale;
    return true;
}

void sim_run(struct sim *sim, uint64_t skip)
{
    sim_watch_moves(&sim->coverage);
    begin(sim, skip);
    for (unsigned extensions = 0;; extensions++) {
        run_until_end(sim);
        if (sim->failure[0] != '\0' || sim->scenario != NULL)
            break;
        oracle_end(sim);
        if (!may_still_come(sim, extensions))
            break;
    }
    sim->coverage.virtual_ms = sim->now;
}

void sim_free(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_NODES; i++)
        if (sim->nodes[i].has_member)
            ct_member_deinit(&sim->nodes[i].member);
    for (uint32_t i = 0; i < SIM_DAEMONS; i++)
        ct_service_free(sim->daemons[i].service);
    for (uint32_t i = 0; i < SIM_NODES; i++)
        sim_host_end(sim, i);
    agreement_free(sim);
    sim_disk_free(sim);
    sim_net_free(sim);
    free(sim->heap);
}
