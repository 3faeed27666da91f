/* See pipeline_schedule.h. The order of a stage is a formula: so many forward passes first, then
 * one of each in turn, then the backward passes that are left. The timeline follows from the orders
 * of all stages: a task starts when its stage is free and its input was made. */
#include "collectives/plan/pipeline_schedule.h"

#include "base/assert.h"

#include <stdlib.h>

/* On the timeline. A message beside the tasks takes as long as a forward pass: then exchanges are
 * in an order in which none has to wait for what comes later, however much less they really take.
 */
enum { FORWARD_TIME = 1, BACKWARD_TIME = 2, MESSAGE_TIME = 1 };

/* Tasks of all stages together: above this it is not a schedule but a mistake. */
enum { MAX_TASKS = 1 << 24 };

/* ---- orders --------------------------------------------------------------------------------- */

static int parts_of(const struct ct_pipe *pipe)
{
    return pipe->stages * pipe->chunks;
}

/* Forward passes of one stage. */
static int passes_of(const struct ct_pipe *pipe)
{
    return pipe->chunks * pipe->micros;
}

int ct_pipe_check(const struct ct_pipe *pipe, struct ct_error *err)
{
    bool interleaved = pipe->order == CT_PLAN_INTERLEAVED;

    if (pipe->stages < 1 || pipe->stages > CT_PIPE_MAX_STAGES)
        return ct_error_set(err, CT_ECONFIG, "parallel.pipeline is %d, must be from 1 to %d",
                            pipe->stages, CT_PIPE_MAX_STAGES);
    if (pipe->chunks < 1 || pipe->chunks > CT_PIPE_MAX_CHUNKS)
        return ct_error_set(err, CT_ECONFIG, "parallel.chunks is %d, must be from 1 to %d",
                            pipe->chunks, CT_PIPE_MAX_CHUNKS);
    if (interleaved != (pipe->chunks > 1))
        return ct_error_set(err, CT_ECONFIG,
                            "parallel.chunks is %d: parallel.schedule interleaved needs 2 or more, "
                            "the others have 1",
                            pipe->chunks);
    if (interleaved && pipe->micros % pipe->stages != 0)
        return ct_error_set(err, CT_ECONFIG,
                            "parallel.schedule interleaved needs micro-batches in a multiple of "
                            "the %d stages, and a step has %d: choose another batch.global or "
                            "batch.micro, or 1f1b",
                            pipe->stages, pipe->micros);
    if (pipe->micros < 1 || pipe->micros > MAX_TASKS / parts_of(pipe) / 2)
        return ct_error_set(err, CT_ECONFIG,
                            "%d micro-batches through %d parts of the model make too long a "
                            "schedule: raise batch.micro",
                            pipe->micros, parts_of(pipe));
    return 0;
}

/* Forward passes in front of the first backward pass. */
static int warm_up(const struct ct_pipe *pipe, int stage)
{
    int passes = passes_of(pipe), behind = pipe->stages - 1 - stage;

    if (pipe->order == CT_PLAN_GPIPE)
        return passes;
    if (pipe->order == CT_PLAN_1F1B)
        return CT_MIN(behind, passes);
    if (pipe->order == CT_PLAN_EAGER)
        return CT_MIN(2 * behind, passes);
    return CT_MIN(2 * behind + (pipe->chunks - 1) * pipe->stages, passes);
}

/* The `k`-th pass of a direction: as many micro-batches as there are stages go through one chunk,
 * then the same through the next. */
static struct ct_pipe_task pass_at(const struct ct_pipe *pipe, int stage, bool backward, int k)
{
    int run = pipe->chunks > 1 ? pipe->stages : pipe->micros; /* micro-batches in a row */
    int chunk = k / run % pipe->chunks;

    if (backward)
        chunk = pipe->chunks - 1 - chunk;
    return (struct ct_pipe_task){.backward = backward,
                                 .part = chunk * pipe->stages + stage,
                                 .micro = k / (run * pipe->chunks) * run + k % run};
}

/* The `k`-th task of a stage. */
static struct ct_pipe_task task_at(const struct ct_pipe *pipe, int stage, int k)
{
    int passes = passes_of(pipe), first = warm_up(pipe, stage);
    int steady = k - first;

    if (steady < 0)
        return pass_at(pipe, stage, false, k);
    if (steady < 2 * (passes - first))
        return pass_at(pipe, stage, steady % 2 != 0, steady / 2 + (steady % 2 == 0 ? first : 0));
    return pass_at(pipe, stage, true, k - passes);
}

/* ---- the timeline --------------------------------------------------------------------------- */

struct timeline {
    const struct ct_pipe *pipe;
    int *start; /* by task; -1: not yet */
};

static int number_of(const struct ct_pipe *pipe, struct ct_pipe_task task)
{
    return ((task.backward ? parts_of(pipe) : 0) + task.part) * pipe->micros + task.micro;
}

static int start_of(const struct timeline *t, struct ct_pipe_task task)
{
    return t->start[number_of(t->pipe, task)];
}

static int end_of(const struct timeline *t, struct ct_pipe_task task)
{
    return start_of(t, task) + (task.backward ? BACKWARD_TIME : FORWARD_TIME);
}

/* The task in front of or behind `task` on the way of its micro-batch, in the same direction. */
static bool neighbour(const struct ct_pipe *pipe, struct ct_pipe_task task, int ahead,
                      struct ct_pipe_task *ret)
{
    *ret = task;
    ret->part += task.backward ? -ahead : ahead;
    return ret->part >= 0 && ret->part < parts_of(pipe);
}

/* When `task` can start on a stage that is free at `free_at`; -1: its input is not made yet. */
static int earliest(const struct timeline *t, struct ct_pipe_task task, int free_at)
{
    struct ct_pipe_task before;

    if (!neighbour(t->pipe, task, -1, &before))
        return free_at; /* the last part's own forward pass is earlier in its stage's order */
    if (start_of(t, before) < 0)
        return -1;
    return CT_MAX(free_at, end_of(t, before) + (t->pipe->beside ? MESSAGE_TIME : 0));
}

/* `at` and `free_at`: room for a number a stage, zero. */
static void fill(struct timeline *t, int *at, int *free_at)
{
    int tasks = 2 * passes_of(t->pipe), left = tasks * t->pipe->stages;

    for (int i = 0; i < left; i++)
        t->start[i] = -1;
    while (left > 0) {
        int before = left;
        for (int stage = 0; stage < t->pipe->stages; stage++)
            while (at[stage] < tasks) {
                struct ct_pipe_task task = task_at(t->pipe, stage, at[stage]);
                int start = earliest(t, task, free_at[stage]);
                if (start < 0)
                    break;
                t->start[number_of(t->pipe, task)] = start;
                free_at[stage] = end_of(t, task);
                at[stage]++;
                left--;
            }
        CT_ASSERT(left < before); /* the orders fit together */
    }
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* A message of the stage, and the moment at which it passes. */
struct event {
    int moment;
    bool receives;
    struct ct_pipe_message message;
};

static int by_moment(const void *left, const void *right)
{
    const struct event *a = left, *b = right;

    if (a->moment != b->moment)
        return a->moment < b->moment ? -1 : 1;
    if (a->receives != b->receives)
        return (int)a->receives - (int)b->receives;
    return a->message.peer - b->message.peer; /* one a moment and neighbour */
}

/* When the output of `from` passes to the stage of `to`. */
static int moment_of(const struct timeline *t, struct ct_pipe_task from, struct ct_pipe_task to)
{
    return t->pipe->beside ? end_of(t, from) : start_of(t, to);
}

static int find_events(const struct timeline *t, int stage, struct event *events)
{
    int stages = t->pipe->stages, count = 0;

    for (int k = 0; k < 2 * passes_of(t->pipe); k++) {
        struct ct_pipe_task task = task_at(t->pipe, stage, k), other;
        if (neighbour(t->pipe, task, -1, &other))
            events[count++] =
                (struct event){moment_of(t, other, task), true, {other, other.part % stages}};
        if (neighbour(t->pipe, task, 1, &other))
            events[count++] =
                (struct event){moment_of(t, task, other), false, {task, other.part % stages}};
    }
    qsort(events, (size_t)count, sizeof *events, by_moment);
    return count;
}

/* The exchange of the moment of `events[0]`; returns how many events it takes. */
static int exchange(const struct event *events, int count, struct ct_pipe_turn *turn)
{
    int taken = 0;

    *turn = (struct ct_pipe_turn){.runs = false};
    for (; taken < count && events[taken].moment == events[0].moment; taken++) {
        bool receives = events[taken].receives;
        int *number = receives ? &turn->receive_count : &turn->send_count;
        CT_ASSERT(*number < CT_PIPE_MAX_MESSAGES);
        (receives ? turn->receive : turn->send)[(*number)++] = events[taken].message;
    }
    return taken;
}

/* Each exchange in front of the task that is not over at its moment. */
static void put_turns(const struct timeline *t, int stage, const struct event *events, int count,
                      struct ct_pipe_turns *turns)
{
    int at = 0;

    for (int k = 0; k < 2 * passes_of(t->pipe); k++) {
        struct ct_pipe_task task = task_at(t->pipe, stage, k);
        while (at < count && events[at].moment < end_of(t, task))
            at += exchange(events + at, count - at, &turns->turn[turns->count++]);
        turns->turn[turns->count++] = (struct ct_pipe_turn){.runs = true, .task = task};
    }
    while (at < count)
        at += exchange(events + at, count - at, &turns->turn[turns->count++]);
}

int ct_pipe_turns(const struct ct_pipe *pipe, int stage, struct ct_arena *arena,
                  struct ct_pipe_turns *ret_turns, struct ct_error *err)
{
    size_t tasks = 2 * (size_t)passes_of(pipe), stages = (size_t)pipe->stages;
    struct timeline t = {pipe, calloc(tasks * stages, sizeof(int))};
    int *clocks = calloc(2 * stages, sizeof *clocks);
    struct event *events = malloc(2 * tasks * sizeof *events);
    struct ct_pipe_turns turns = {.turn = ct_arena_array(arena, 3 * tasks, sizeof *turns.turn),
                                  .count = 0};
    int code = CT_ENOMEM;

    CT_ASSERT(stage >= 0 && stage < pipe->stages && pipe->stages > 1);
    if (t.start != NULL && clocks != NULL && events != NULL && turns.turn != NULL) {
        fill(&t, clocks, clocks + stages);
        put_turns(&t, stage, events, find_events(&t, stage, events), &turns);
        *ret_turns = turns;
        code = 0;
    }
    free(t.start);
    free(clocks);
    free(events);
    return code == 0 ? 0 : ct_error_set(err, code, "no memory for a schedule of %zu tasks", tasks);
}
