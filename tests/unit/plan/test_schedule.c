/* Pipeline schedules: every stage's turns, played together against the formulas of the papers. */
#include "collectives/plan/pipeline_schedule.h"

#include "base/assert.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

TestSuite(schedule, .timeout = 20);

enum { MAX_STAGES = 8, ARENA_BYTES = 1 << 26, FORWARD = 1, BACKWARD = 2 };

/* Stages that exchange between their runs, and beside them. */
#define BOTH(order, stages, chunks, micros) \
    {order, stages, chunks, micros, false}, \
    {                                       \
        order, stages, chunks, micros, true \
    }

static const struct ct_pipe shapes[] = {
    BOTH(CT_PLAN_GPIPE, 2, 1, 1),       BOTH(CT_PLAN_GPIPE, 4, 1, 8),
    BOTH(CT_PLAN_GPIPE, 8, 1, 3),       BOTH(CT_PLAN_1F1B, 2, 1, 1),
    BOTH(CT_PLAN_1F1B, 2, 1, 8),        BOTH(CT_PLAN_1F1B, 4, 1, 2),
    BOTH(CT_PLAN_1F1B, 4, 1, 16),       BOTH(CT_PLAN_1F1B, 8, 1, 11),
    BOTH(CT_PLAN_EAGER, 2, 1, 1),       BOTH(CT_PLAN_EAGER, 2, 1, 8),
    BOTH(CT_PLAN_EAGER, 4, 1, 3),       BOTH(CT_PLAN_EAGER, 4, 1, 16),
    BOTH(CT_PLAN_EAGER, 8, 1, 11),      BOTH(CT_PLAN_INTERLEAVED, 2, 2, 2),
    BOTH(CT_PLAN_INTERLEAVED, 2, 3, 8), BOTH(CT_PLAN_INTERLEAVED, 3, 2, 6),
    BOTH(CT_PLAN_INTERLEAVED, 4, 2, 8), BOTH(CT_PLAN_INTERLEAVED, 4, 4, 16),
    BOTH(CT_PLAN_INTERLEAVED, 8, 2, 8),
};

/* All stages' turns. */
struct all {
    const struct ct_pipe *pipe;
    struct ct_arena arena;
    struct ct_pipe_turns turns[MAX_STAGES];
};

static void all_init(struct all *all, const struct ct_pipe *pipe)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_pipe_check(pipe, &err), 0, "%s", err.text);
    all->pipe = pipe;
    ct_arena_init(&all->arena, ARENA_BYTES);
    for (int stage = 0; stage < pipe->stages; stage++)
        cr_assert_eq(ct_pipe_turns(pipe, stage, &all->arena, &all->turns[stage], &err), 0, "%s",
                     err.text);
}

/* ---- playing -------------------------------------------------------------------------------- */

/* A number for a task of the whole pipeline. */
static int number_of(const struct ct_pipe *pipe, struct ct_pipe_task task)
{
    int parts = pipe->stages * pipe->chunks;

    return ((task.backward ? parts : 0) + task.part) * pipe->micros + task.micro;
}

struct play {
    const struct all *all;
    bool buffered; /* a send is over at once */
    double *ready; /* by task: when its sender came to the exchange; < 0: not yet */
    double *asked; /* by task: when its receiver came */
    int at[MAX_STAGES];
    double clock[MAX_STAGES];
};

static bool post(double *table, int number, double now)
{
    if (table[number] >= 0)
        return false;
    table[number] = now;
    return true;
}

/* Turn `turn` of a stage, an exchange: post its messages; whether all have met their other side. */
static bool meets(struct play *play, int stage, const struct ct_pipe_turn *turn, bool *ret_news)
{
    const struct ct_pipe *pipe = play->all->pipe;
    double now = play->clock[stage], over = now;
    bool met = true;

    for (int i = 0; i < turn->send_count; i++) {
        int number = number_of(pipe, turn->send[i].task);
        *ret_news |= post(play->ready, number, now);
        met = met && (play->buffered || play->asked[number] >= 0);
        over = play->buffered ? over : fmax(over, play->asked[number]);
    }
    for (int i = 0; i < turn->receive_count; i++) {
        int number = number_of(pipe, turn->receive[i].task);
        *ret_news |= post(play->asked, number, now);
        met = met && play->ready[number] >= 0;
        over = fmax(over, play->ready[number]);
    }
    if (met)
        play->clock[stage] = over;
    return met;
}

/* One more turn of a stage, if it can be done. */
static bool advance(struct play *play, int stage)
{
    const struct ct_pipe_turns *turns = &play->all->turns[stage];
    bool news = false;

    if (play->at[stage] == turns->count)
        return false;
    const struct ct_pipe_turn *turn = &turns->turn[play->at[stage]];
    if (turn->runs)
        play->clock[stage] += turn->task.backward ? BACKWARD : FORWARD;
    else if (!meets(play, stage, turn, &news))
        return news;
    play->at[stage]++;
    return true;
}

/* Play all stages together; the time of the last. A test that would wait for ever fails. */
static double play_all(const struct all *all, bool buffered)
{
    const struct ct_pipe *pipe = all->pipe;
    size_t tasks = 2 * (size_t)(pipe->stages * pipe->chunks * pipe->micros);
    struct play play = {.all = all, .buffered = buffered};
    double last = 0;
    bool moved = true;

    play.ready = malloc(tasks * sizeof *play.ready);
    play.asked = malloc(tasks * sizeof *play.asked);
    cr_assert(play.ready != NULL && play.asked != NULL);
    for (size_t i = 0; i < tasks; i++)
        play.ready[i] = play.asked[i] = -1;
    while (moved) {
        moved = false;
        for (int stage = 0; stage < pipe->stages; stage++)
            moved |= advance(&play, stage);
    }
    for (int stage = 0; stage < pipe->stages; stage++) {
        cr_assert_eq(play.at[stage], all->turns[stage].count,
                     "stage %d of %d waits for ever at turn %d of %d", stage, pipe->stages,
                     play.at[stage], all->turns[stage].count);
        last = fmax(last, play.clock[stage]);
    }
    free(play.ready);
    free(play.asked);
    return last;
}

/* ---- playing with a second queue ------------------------------------------------------------- */

enum { RUNS, EXCHANGES, QUEUES };

struct beside {
    const struct all *all;
    double latency; /* of a message, once both sides are there */
    double *made;   /* by task: when it was over; < 0: not yet */
    double *sent, *asked, *came;
    int at[QUEUES][MAX_STAGES];
    double clock[QUEUES][MAX_STAGES];
};

/* Turn `turn` of a stage, an exchange: whether it is over, and when. */
static bool passes(struct beside *b, int stage, const struct ct_pipe_turn *turn, double *ret_over)
{
    const struct ct_pipe *pipe = b->all->pipe;
    double now = b->clock[EXCHANGES][stage], over = now;

    for (int i = 0; i < turn->send_count; i++) {
        double made = b->made[number_of(pipe, turn->send[i].task)];
        if (made < 0)
            return false;
        now = fmax(now, made);
    }
    bool met = true;
    for (int i = 0; i < turn->send_count; i++) {
        int number = number_of(pipe, turn->send[i].task);
        (void)post(b->sent, number, now);
        met = met && b->asked[number] >= 0;
        over = fmax(over, fmax(b->sent[number], b->asked[number]) + b->latency);
    }
    for (int i = 0; i < turn->receive_count; i++) {
        int number = number_of(pipe, turn->receive[i].task);
        (void)post(b->asked, number, now);
        met = met && b->sent[number] >= 0;
        over = fmax(over, fmax(b->sent[number], b->asked[number]) + b->latency);
    }
    for (int i = 0; i < turn->receive_count && met; i++)
        b->came[number_of(pipe, turn->receive[i].task)] = over;
    *ret_over = over;
    return met;
}

/* One more turn of a queue of a stage, if it can be done. */
static bool advance_queue(struct beside *b, int queue, int stage)
{
    const struct ct_pipe *pipe = b->all->pipe;
    const struct ct_pipe_turns *turns = &b->all->turns[stage];
    int *at = &b->at[queue][stage], parts = pipe->stages * pipe->chunks;
    double *clock = &b->clock[queue][stage];

    while (*at < turns->count && turns->turn[*at].runs != (queue == RUNS))
        ++*at;
    if (*at == turns->count)
        return false;
    const struct ct_pipe_turn *turn = &turns->turn[*at];
    struct ct_pipe_task before = turn->task;
    before.part += before.backward ? 1 : -1;
    if (queue == EXCHANGES) {
        if (!passes(b, stage, turn, clock))
            return false;
    } else {
        bool fed = before.part >= 0 && before.part < parts;
        if (fed && b->came[number_of(pipe, before)] < 0)
            return false;
        *clock = fmax(*clock, fed ? b->came[number_of(pipe, before)] : 0) +
                 (turn->task.backward ? BACKWARD : FORWARD);
        b->made[number_of(pipe, turn->task)] = *clock;
    }
    ++*at;
    return true;
}

/* Play stages that compute while messages of `latency` pass; the time of the last. */
static double play_beside(const struct all *all, double latency)
{
    const struct ct_pipe *pipe = all->pipe;
    size_t tasks = 2 * (size_t)(pipe->stages * pipe->chunks * pipe->micros);
    double *times = malloc(4 * tasks * sizeof *times), last = 0;
    struct beside b = {.all = all,
                       .latency = latency,
                       .made = times,
                       .sent = times + tasks,
                       .asked = times + 2 * tasks,
                       .came = times + 3 * tasks};
    bool moved = true;

    cr_assert_not_null(times);
    for (size_t i = 0; i < 4 * tasks; i++)
        times[i] = -1;
    while (moved) {
        moved = false;
        for (int stage = 0; stage < pipe->stages; stage++) {
            moved = advance_queue(&b, RUNS, stage) || moved;
            moved = advance_queue(&b, EXCHANGES, stage) || moved;
        }
    }
    for (int stage = 0; stage < pipe->stages; stage++)
        for (int queue = 0; queue < QUEUES; queue++) {
            cr_assert_eq(b.at[queue][stage], all->turns[stage].count, "stage %d waits for ever",
                         stage);
            last = fmax(last, b.clock[queue][stage]);
        }
    free(times);
    return last;
}

/* What the formula says: work of a stage and the bubble beside it, idle time where messages take
 * none: (stages - 1) / (chunks * micros) of the work. */
static double formula(const struct ct_pipe *pipe)
{
    double passes = pipe->chunks * pipe->micros;

    return (FORWARD + BACKWARD) * passes * (1 + (pipe->stages - 1) / passes);
}

/* The most tasks of `stage` whose forward pass was and whose backward pass was not. */
static int slots(const struct ct_pipe *pipe, int stage)
{
    int behind = pipe->stages - 1 - stage, passes = pipe->chunks * pipe->micros;

    if (pipe->order == CT_PLAN_GPIPE)
        return passes;
    if (pipe->order == CT_PLAN_1F1B)
        return CT_MIN(behind + 1, passes);
    return CT_MIN(2 * behind + (pipe->chunks - 1) * pipe->stages + 1, passes); /* eager, too */
}

/* ---- what holds for every schedule ----------------------------------------------------------- */

Test(schedule, every_stage_runs_each_of_its_tasks_once_with_its_input_at_hand)
{
    for (size_t i = 0; i < CT_COUNT(shapes); i++) {
        const struct ct_pipe *pipe = &shapes[i];
        int parts = pipe->stages * pipe->chunks, tasks = 2 * parts * pipe->micros;
        struct all all;
        all_init(&all, pipe);
        for (int stage = 0; stage < pipe->stages; stage++) {
            bool *here = calloc((size_t)tasks, sizeof *here), *ran = calloc((size_t)tasks, 1);
            int runs = 0;
            cr_assert(here != NULL && ran != NULL);
            for (int k = 0; k < all.turns[stage].count; k++) {
                const struct ct_pipe_turn *turn = &all.turns[stage].turn[k];
                struct ct_pipe_task task = turn->task, before = task;
                for (int m = 0; m < turn->receive_count; m++)
                    here[number_of(pipe, turn->receive[m].task)] = true;
                for (int s = 0; s < turn->send_count; s++)
                    cr_assert(ran[number_of(pipe, turn->send[s].task)], "sent before it is made");
                if (!turn->runs)
                    continue;
                runs++;
                before.part += task.backward ? 1 : -1;
                cr_assert_eq(task.part % pipe->stages, stage);
                cr_assert_not(ran[number_of(pipe, task)]);
                ran[number_of(pipe, task)] = true;
                cr_assert(before.part < 0 || before.part == parts || here[number_of(pipe, before)]);
                before = task;
                before.backward = false;
                cr_assert(ran[number_of(pipe, before)], "backward before forward");
            }
            cr_assert_eq(runs, 2 * pipe->chunks * pipe->micros);
            free(here);
            free(ran);
        }
        ct_arena_deinit(&all.arena);
    }
}

Test(schedule, backward_passes_of_a_part_go_by_number)
{
    for (size_t i = 0; i < CT_COUNT(shapes); i++) {
        struct all all;
        all_init(&all, &shapes[i]);
        for (int stage = 0; stage < shapes[i].stages; stage++) {
            int next[2][MAX_STAGES * 4] = {{0}};
            for (int k = 0; k < all.turns[stage].count; k++) {
                const struct ct_pipe_turn *turn = &all.turns[stage].turn[k];
                if (turn->runs)
                    cr_assert_eq(turn->task.micro, next[turn->task.backward][turn->task.part]++);
            }
        }
        ct_arena_deinit(&all.arena);
    }
}

Test(schedule, nothing_waits_for_ever_even_if_no_message_is_buffered)
{
    for (size_t i = 0; i < CT_COUNT(shapes); i++) {
        struct all all;
        all_init(&all, &shapes[i]);
        (void)play_all(&all, false);
        (void)play_all(&all, true);
        ct_arena_deinit(&all.arena);
    }
}

Test(schedule, the_bubble_is_that_of_the_formula)
{
    for (size_t i = 0; i < CT_COUNT(shapes); i++) {
        const struct ct_pipe *pipe = &shapes[i];
        bool enough = pipe->micros >= pipe->stages;
        struct all all;
        all_init(&all, pipe);
        double buffered = play_all(&all, true), bare = play_all(&all, false);
        double beside = play_beside(&all, 0);
        if (!pipe->beside && enough)
            cr_assert_float_eq(buffered, formula(pipe), 1e-9, "%zu: %g", i, buffered);
        if (!pipe->beside && pipe->order <= CT_PLAN_1F1B)
            cr_assert_float_eq(bare, formula(pipe), 1e-9, "%zu: %g", i, bare);
        if (pipe->beside && enough)
            cr_assert_float_eq(beside, formula(pipe), 1e-9, "%zu: %g", i, beside);
        ct_arena_deinit(&all.arena);
    }
}

/* A stage that computes meanwhile waits for a message twice: while the pipeline fills and while it
 * drains. In 1f1b, which has two micro-batches on their way, each waits for one. */
Test(schedule, eager_and_gpipe_have_messages_beside_their_runs_and_1f1b_waits_for_each)
{
    static const struct ct_pipe late[] = {
        {CT_PLAN_GPIPE, 2, 1, 8, true},
        {CT_PLAN_EAGER, 2, 1, 8, true},
        {CT_PLAN_EAGER, 4, 1, 16, true},
        {CT_PLAN_1F1B, 2, 1, 8, true},
    };
    const double latency = 0.75;

    for (size_t i = 0; i < CT_COUNT(late); i++) {
        const struct ct_pipe *pipe = &late[i];
        double bare = formula(pipe), ends = 2 * latency * (pipe->stages - 1);
        struct all all;
        all_init(&all, pipe);
        double time = play_beside(&all, latency);
        if (pipe->order == CT_PLAN_1F1B)
            cr_assert_float_eq(time, bare + latency * pipe->micros, 1e-9, "%g", time);
        else
            cr_assert_float_eq(time, bare + ends, 1e-9, "%zu: %g for %g", i, time, bare + ends);
        ct_arena_deinit(&all.arena);
    }
}

Test(schedule, no_more_micro_batches_are_kept_than_the_order_needs)
{
    for (size_t i = 0; i < CT_COUNT(shapes); i++) {
        const struct ct_pipe *pipe = &shapes[i];
        struct all all;
        all_init(&all, pipe);
        for (int stage = 0; stage < pipe->stages; stage++) {
            int kept = 0, most = 0;
            for (int k = 0; k < all.turns[stage].count; k++) {
                const struct ct_pipe_turn *turn = &all.turns[stage].turn[k];
                if (turn->runs)
                    kept += turn->task.backward ? -1 : 1;
                most = CT_MAX(most, kept);
            }
            cr_assert_eq(most, slots(pipe, stage), "%d of shape %zu", stage, i);
        }
        ct_arena_deinit(&all.arena);
    }
}

Test(schedule, in_the_steady_state_of_1f1b_both_directions_go_together)
{
    const struct ct_pipe pipe = {CT_PLAN_1F1B, 4, 1, 16, false};
    int together = 0;
    struct all all;

    all_init(&all, &pipe);
    for (int k = 0; k < all.turns[1].count; k++) {
        const struct ct_pipe_turn *turn = &all.turns[1].turn[k];
        together += turn->receive_count > 0 && turn->send_count > 0;
    }
    cr_assert_geq(together, 2 * (pipe.micros - pipe.stages), "only %d", together);
    ct_arena_deinit(&all.arena);
}

/* ---- bad shapes ----------------------------------------------------------------------------- */

static void expect(struct ct_pipe pipe, const char *text)
{
    struct ct_error err = {0};

    cr_assert_eq(ct_pipe_check(&pipe, &err), CT_ECONFIG);
    cr_assert_str_eq(err.text, text);
}

Test(schedule, shapes_that_are_not_possible_get_a_sentence)
{
    expect((struct ct_pipe){CT_PLAN_1F1B, 0, 1, 4, false},
           "parallel.pipeline is 0, must be from 1 to 1024");
    expect((struct ct_pipe){CT_PLAN_1F1B, 2, 65, 4, false},
           "parallel.chunks is 65, must be from 1 to 64");
    expect((struct ct_pipe){CT_PLAN_GPIPE, 2, 2, 4, false},
           "parallel.chunks is 2: parallel.schedule interleaved needs 2 or more, the others have "
           "1");
    expect((struct ct_pipe){CT_PLAN_INTERLEAVED, 2, 1, 4, false},
           "parallel.chunks is 1: parallel.schedule interleaved needs 2 or more, the others have "
           "1");
    expect((struct ct_pipe){CT_PLAN_INTERLEAVED, 4, 2, 6, false},
           "parallel.schedule interleaved needs micro-batches in a multiple of the 4 stages, and a "
           "step has 6: choose another batch.global or batch.micro, or 1f1b");
    expect((struct ct_pipe){CT_PLAN_1F1B, 1024, 1, 100000, false},
           "100000 micro-batches through 1024 parts of the model make too long a schedule: raise "
           "batch.micro");
}
