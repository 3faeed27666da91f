/* See supervise.h. The table is the whole policy; step() turns times and counts into its inner
 * events (EMPTY, NOTICE, EXPIRED). */
#include "launch/supervise.h"

#include "base/assert.h"

#define NEVER UINT64_MAX

enum {
    ILLEGAL = 1 << 30, /* the caller may not feed this event here */
    SPAWN = CT_SUP_DO_SPAWN,
    SWEEP = CT_SUP_DO_SWEEP,
    BLAME = CT_SUP_DO_BLAME,
    TERM = CT_SUP_DO_TERM,
    KILL = CT_SUP_DO_KILL,
    REPORT = CT_SUP_DO_REPORT,
    FORGET = CT_SUP_DO_FORGET,
    FINISH = CT_SUP_DO_FINISH,
};

struct cell {
    enum ct_sup_state next;
    unsigned actions;
};

#define DONE CT_SUP_DONE
#define SPAWNING CT_SUP_SPAWNING
#define RUNNING CT_SUP_RUNNING
#define STOPPING CT_SUP_STOPPING
#define KILLING CT_SUP_KILLING

static const struct cell table[CT_SUP_STATES][CT_SUP_EVENTS] =
    {
        [DONE] =
            {
                [CT_SUP_START] = {SPAWNING, SPAWN},
                [CT_SUP_STARTED] = {DONE, ILLEGAL},
                [CT_SUP_START_FAILED] = {DONE, ILLEGAL},
                [CT_SUP_EXIT_OK] = {DONE, 0},
                [CT_SUP_EXIT_BAD] = {DONE, 0},
                [CT_SUP_EXIT_LOST] = {DONE, 0},
                [CT_SUP_REFILL] = {DONE, ILLEGAL},
                [CT_SUP_EMPTY] = {DONE, 0},
                [CT_SUP_STOP] = {DONE, 0},
                [CT_SUP_KILL] = {DONE, 0},
                [CT_SUP_NOTICE] = {DONE, 0},
                [CT_SUP_EXPIRED] = {DONE, 0},
            },
        [SPAWNING] =
            {
                [CT_SUP_START] = {SPAWNING, ILLEGAL},
                [CT_SUP_STARTED] = {RUNNING, 0},
                [CT_SUP_START_FAILED] = {KILLING, BLAME | KILL},
                [CT_SUP_EXIT_OK] = {SPAWNING, ILLEGAL},
                [CT_SUP_EXIT_BAD] = {SPAWNING, ILLEGAL},
                [CT_SUP_EXIT_LOST] = {SPAWNING, ILLEGAL},
                [CT_SUP_REFILL] = {SPAWNING, ILLEGAL},
                [CT_SUP_EMPTY] = {SPAWNING, ILLEGAL},
                [CT_SUP_STOP] = {SPAWNING, ILLEGAL},
                [CT_SUP_KILL] = {SPAWNING, ILLEGAL},
                [CT_SUP_NOTICE] = {SPAWNING, 0},
                [CT_SUP_EXPIRED] = {SPAWNING, 0},
            },
        [RUNNING] =
            {
                [CT_SUP_START] = {RUNNING, ILLEGAL},
                [CT_SUP_STARTED] = {RUNNING, ILLEGAL},
                [CT_SUP_START_FAILED] = {RUNNING, ILLEGAL},
                [CT_SUP_EXIT_OK] = {RUNNING, SWEEP},
                [CT_SUP_EXIT_BAD] = {STOPPING, SWEEP | BLAME | TERM},
                [CT_SUP_EXIT_LOST] = {RUNNING, SWEEP | BLAME},
                [CT_SUP_REFILL] = {SPAWNING, SPAWN},
                [CT_SUP_EMPTY] = {DONE, FINISH},
                [CT_SUP_STOP] = {STOPPING, TERM},
                [CT_SUP_KILL] = {KILLING, KILL},
                [CT_SUP_NOTICE] = {RUNNING, 0},
                [CT_SUP_EXPIRED] = {RUNNING, 0},
            },
        [STOPPING] =
            {
                [CT_SUP_START] = {STOPPING, ILLEGAL},
                [CT_SUP_STARTED] = {STOPPING, ILLEGAL},
                [CT_SUP_START_FAILED] = {STOPPING, ILLEGAL},
                [CT_SUP_EXIT_OK] = {STOPPING, 0},
                [CT_SUP_EXIT_BAD] = {STOPPING, 0},
                [CT_SUP_EXIT_LOST] = {STOPPING, 0},
                [CT_SUP_REFILL] = {STOPPING, ILLEGAL},
                [CT_SUP_EMPTY] = {DONE, FINISH},
                [CT_SUP_STOP] = {STOPPING, 0},
                [CT_SUP_KILL] = {KILLING, KILL},
                [CT_SUP_NOTICE] = {STOPPING, REPORT},
                [CT_SUP_EXPIRED] = {KILLING, KILL},
            },
        [KILLING] =
            {
                [CT_SUP_START] = {KILLING, ILLEGAL},
                [CT_SUP_STARTED] = {KILLING, ILLEGAL},
                [CT_SUP_START_FAILED] = {KILLING, ILLEGAL},
                [CT_SUP_EXIT_OK] = {KILLING, 0},
                [CT_SUP_EXIT_BAD] = {KILLING, 0},
                [CT_SUP_EXIT_LOST] = {KILLING, 0},
                [CT_SUP_REFILL] = {KILLING, ILLEGAL},
                [CT_SUP_EMPTY] = {DONE, FINISH},
                [CT_SUP_STOP] = {KILLING, 0},
                [CT_SUP_KILL] = {KILLING, KILL},
                [CT_SUP_NOTICE] = {KILLING, REPORT},
                [CT_SUP_EXPIRED] = {DONE, FORGET | FINISH},
            },
};

void ct_supervise_init(struct ct_supervise *sup, uint64_t grace_ms)
{
    *sup = (struct ct_supervise){
        .state = DONE, .grace_ms = grace_ms, .notice_at_ms = NEVER, .deadline_at_ms = NEVER};
}

static uint64_t after(uint64_t now_ms, uint64_t delay_ms)
{
    return delay_ms < NEVER - now_ms ? now_ms + delay_ms : NEVER;
}

static void enter(struct ct_supervise *sup, uint64_t now_ms, enum ct_sup_state next)
{
    if (next == sup->state)
        return;
    sup->state = next;
    sup->notice_at_ms = NEVER;
    sup->deadline_at_ms = NEVER;
    if (next == STOPPING || next == KILLING) {
        sup->notice_at_ms = after(now_ms, CT_SUP_NOTICE_MS);
        sup->deadline_at_ms =
            after(now_ms, next == STOPPING ? sup->grace_ms : (uint64_t)CT_SUP_PATIENCE_MS);
    }
    if (next == DONE)
        sup->live = 0;
}

static unsigned apply(struct ct_supervise *sup, uint64_t now_ms, enum ct_sup_event event)
{
    const struct cell *cell = &table[sup->state][event];

    CT_ASSERT((cell->actions & ILLEGAL) == 0);
    enter(sup, now_ms, cell->next);
    return cell->actions;
}

static unsigned tick(struct ct_supervise *sup, uint64_t now_ms)
{
    unsigned actions = 0;

    if (now_ms >= sup->notice_at_ms && now_ms < sup->deadline_at_ms) {
        sup->notice_at_ms = NEVER;
        actions |= apply(sup, now_ms, CT_SUP_NOTICE);
    }
    if (now_ms >= sup->deadline_at_ms)
        actions |= apply(sup, now_ms, CT_SUP_EXPIRED);
    return actions;
}

unsigned ct_supervise_step(struct ct_supervise *sup, uint64_t now_ms, enum ct_sup_event event,
                           uint32_t count)
{
    unsigned actions = 0;

    CT_ASSERT(event < CT_SUP_EMPTY);
    if (event == CT_SUP_TICK)
        return tick(sup, now_ms);
    if (event == CT_SUP_GONE) {
        if (sup->live > 0 && --sup->live == 0)
            actions = apply(sup, now_ms, CT_SUP_EMPTY);
        return actions;
    }
    if (event == CT_SUP_STARTED || event == CT_SUP_START_FAILED)
        sup->live = count;
    actions = apply(sup, now_ms, event);
    if (event == CT_SUP_START_FAILED && count == 0)
        actions |= apply(sup, now_ms, CT_SUP_EMPTY);
    return actions;
}

uint64_t ct_supervise_deadline(const struct ct_supervise *sup)
{
    return CT_MIN(sup->notice_at_ms, sup->deadline_at_ms);
}
