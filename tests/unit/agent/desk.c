/* See desk.h. */
#include "desk.h"

#include "base/str.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SIGUSR1_BIT = 1 << 10, SIGUSR2_BIT = 1 << 12 };

void desk_open_with(struct desk *desk, const struct agent_settings *settings)
{
    *desk = (struct desk){.view = {.now_ms = 1000, .alive = desk->alive}};
    agent_core_init(&desk->core, settings, desk->survivors, desk->dismissed);
    (void)desk_step(desk, (struct agent_event){.kind = AGENT_ON_LINKED});
}

void desk_open(struct desk *desk, bool native)
{
    const struct agent_settings settings = {
        .slots = DESK_SLOTS,
        .native = native,
        .grace_ms = DESK_GRACE_MS,
        .ends = 1 << AGENT_SIGINT | 1 << AGENT_SIGTERM,
        .forwards = SIGUSR1_BIT,
        .requeues = SIGUSR2_BIT,
    };

    desk_open_with(desk, &settings);
}

static void live(struct desk *desk, bool alive)
{
    desk->view.running = alive;
    desk->view.stopping = false;
    for (int i = 0; i < DESK_SLOTS; i++)
        desk->alive[i] = alive;
}

const char *desk_step(struct desk *desk, struct agent_event event)
{
    struct ct_buf line;

    if (event.kind == AGENT_ON_FINISHED)
        live(desk, false);
    uint64_t actions = agent_core_step(&desk->core, &desk->view, &event);
    ct_buf_init(&line, 0);
    agent_step_print(&desk->core, &event, actions, &line);
    (void)ct_str_copy(desk->printed, sizeof desk->printed, ct_buf_str(&line));
    ct_buf_deinit(&line);
    if (agent_has(actions, AGENT_DO_BEGIN))
        live(desk, true);
    if (agent_has(actions, AGENT_DO_STOP) || agent_has(actions, AGENT_DO_KILL))
        desk->view.stopping = desk->view.running;
    return desk->printed;
}

const char *desk_prepare(struct desk *desk, uint64_t generation, bool at_boundary)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_PREPARE,
                                                .generation = generation,
                                                .at_boundary = at_boundary});
}

const char *desk_round(struct desk *desk, uint64_t generation)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_ROUND, .generation = generation});
}

const char *desk_ready(struct desk *desk, uint32_t local_rank, uint64_t generation, uint64_t step)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_READY,
                                                .local_rank = local_rank,
                                                .generation = generation,
                                                .able = true,
                                                .held = {generation, step, step + 7}});
}

const char *desk_left(struct desk *desk, uint32_t local_rank)
{
    desk->alive[local_rank] = false;
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_LEFT, .local_rank = local_rank});
}

const char *desk_finished(struct desk *desk, bool well)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_FINISHED, .well = well});
}

const char *desk_failure(struct desk *desk, uint32_t local_rank, int status)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_FAILURE,
                                                .local_rank = local_rank,
                                                .end = {.status = status}});
}

const char *desk_signal(struct desk *desk, int signal)
{
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_SIGNAL, .signal = signal});
}

const char *desk_wait(struct desk *desk, uint64_t ms)
{
    cr_assert_eq(agent_core_deadline(&desk->core), desk->view.now_ms + ms,
                 "the deadline is in %lld ms",
                 (long long)(agent_core_deadline(&desk->core) - desk->view.now_ms));
    desk->view.now_ms += ms;
    return desk_step(desk, (struct agent_event){.kind = AGENT_ON_TICK});
}

void desk_run(struct desk *desk)
{
    desk_expect(desk_prepare(desk, 1, false), "prepare g1: OFFER, PROMISE g1 with step 0");
    desk_expect(desk_round(desk, 1), "round g1: BEGIN g1, 0 live on");
    for (uint32_t i = 0; desk->core.settings.native && i < DESK_SLOTS; i++)
        (void)desk_step(desk, (struct agent_event){
                                  .kind = AGENT_ON_RECOVERED, .local_rank = i, .generation = 1});
    cr_assert_eq(desk->core.phase, AGENT_RUNNING);
}
