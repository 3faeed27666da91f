/* Random programs of collectives (program.h) on every backend, against the reference. On hier the
 * groups that are split off choose for themselves, so that several backends are under way together.
 *
 * CTRUN_PROGRAMS: how many a backend (60), from seed CTRUN_PROGRAMS_FIRST (1) on, on the backend
 * CTRUN_PROGRAMS_ON (all); `make programs` runs 10,000 of them. A program that fails is run again
 * with ever fewer of its steps, as long as it fails, and what is left is printed. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/number/rng.h"
#include "chance.h"
#include "program.h"
#include "rig.h"
#include "sanitized.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES = 4, TIMEOUT_MS = 30000, SHRINK_S = 60 };

TestSuite(programs, .timeout = 3600);

/* Results that have to be the same at all members, by step and the job's rank; 0: none. */
struct run {
    const struct program *program;
    uint64_t digests[PROGRAM_STEPS][PROGRAM_WORLD_MAX];
    atomic_int failures;
};

/* One rank at work. */
struct rank {
    struct run *run;
    const struct program *program;
    int me; /* in the job */
    struct ct_group *groups[PROGRAM_TEAMS];
    struct open {
        struct performance *performance;
        int team, step;
    } open[PROGRAM_STEPS];
    int opened;
    struct ct_rng rng; /* of this rank alone */
};

/* ---- what is open ----------------------------------------------------------------------------*/

static int finish(struct rank *rank, int at, int line)
{
    struct open *open = &rank->open[at];
    const struct operation *op = &rank->program->steps[open->step].op;

    if (line == 0 && operation_is_for_all(op))
        rank->run->digests[open->step][rank->me] = operation_digest(open->performance);
    line = operation_finish(open->performance, line);
    *open = rank->open[--rank->opened];
    return line;
}

static int drop_open(struct rank *rank, int line)
{
    while (rank->opened > 0)
        line = finish(rank, rank->opened - 1, line != 0 ? line : __LINE__);
    return line;
}

static int test_all(struct rank *rank)
{
    int line = 0;

    while (rank->opened > 0 && line == 0) {
        int at = (int)ct_rng_below(&rank->rng, (uint64_t)rank->opened);
        int code = operation_test(rank->open[at].performance);

        if (code != 0)
            line = finish(rank, at, code == 1 ? 0 : __LINE__);
        else if (rng_chance(&rank->rng, 50))
            (void)sched_yield();
    }
    return line;
}

/* In an order of its own. */
static int wait_team(struct rank *rank, int team)
{
    int line = 0;

    for (;;) {
        int mine[PROGRAM_STEPS], count = 0;

        for (int i = 0; i < rank->opened; i++)
            if (rank->open[i].team == team)
                mine[count++] = i;
        if (count == 0 || line != 0)
            return line;
        int at = mine[ct_rng_below(&rank->rng, (uint64_t)count)];
        line = finish(rank, at, operation_wait(rank->open[at].performance) == 0 ? 0 : __LINE__);
    }
}

static int wait_all(struct rank *rank, int first)
{
    int line = 0;

    for (int i = 0; i < PROGRAM_TEAMS && line == 0; i++)
        line = wait_team(rank, (first + i) % PROGRAM_TEAMS);
    return line;
}

/* ---- steps -----------------------------------------------------------------------------------*/

/* Now and then this rank is late. */
static void jitter(struct rank *rank)
{
    uint64_t until = ct_clock_mono_ns(&ct_clock_system);

    switch (ct_rng_below(&rank->rng, 16)) {
    case 0:
        for (until += 50000; ct_clock_mono_ns(&ct_clock_system) < until;)
            (void)sched_yield();
        break;
    case 1:
    case 2:
        until += ct_rng_below(&rank->rng, 20000);
        while (ct_clock_mono_ns(&ct_clock_system) < until)
            ;
        break;
    case 3:
    case 4:
        (void)sched_yield();
        break;
    default:
        break;
    }
}

static int do_operation(struct rank *rank, int number)
{
    const struct program_step *step = &rank->program->steps[number];
    struct ct_group *group = rank->groups[step->team];
    struct operation op = step->op;
    int size = ct_group_size(group);

    op.root %= size;
    op.peer %= size;
    op.base += (size_t)rank->program->teams[step->team].group[rank->me] << 26;
    if (op.verb == OPERATION_MESSAGE && op.root == op.peer)
        return 0;
    if (!operation_concerns(&op, ct_group_rank(group)))
        return 0;
    struct open *open = &rank->open[rank->opened++];
    *open = (struct open){.team = step->team, .step = number};
    int line = operation_start(group, &op, &open->performance);
    if (line != 0 || op.blocking)
        return finish(rank, rank->opened - 1, line);
    return 0;
}

static int split(struct rank *rank, int number)
{
    const struct program_team *team = &rank->program->teams[number];
    struct ct_group **made = &rank->groups[number];
    int me = rank->me;

    if (ct_group_split(rank->groups[team->parent], team->colour[me], team->key[me], made, NULL) !=
        0)
        return __LINE__;
    if (team->group[me] < 0)
        return *made == NULL ? 0 : __LINE__;
    return ct_group_rank(*made) == team->rank[me] && ct_group_size(*made) == team->size[me]
               ? 0
               : __LINE__;
}

static int free_team(struct rank *rank, int team)
{
    int line = wait_team(rank, team);

    if (line == 0 && ct_barrier(rank->groups[team], NULL) != 0)
        line = __LINE__;
    if (line == 0) {
        ct_group_free(rank->groups[team]);
        rank->groups[team] = NULL;
    }
    return line;
}

static int do_step(struct rank *rank, int number)
{
    const struct program_step *step = &rank->program->steps[number];
    const struct program_team *team = &rank->program->teams[step->team];
    bool member = rank->groups[step->kind == PROGRAM_SPLIT ? team->parent : step->team] != NULL;

    jitter(rank);
    if (step->kind == PROGRAM_TEST_ALL)
        return test_all(rank);
    if (step->kind == PROGRAM_WAIT_ALL)
        return wait_all(rank, step->team);
    if (!member)
        return 0;
    switch (step->kind) {
    case PROGRAM_SPLIT:
        return split(rank, step->team);
    case PROGRAM_FREE:
        return free_team(rank, step->team);
    case PROGRAM_WAIT_TEAM:
        return wait_team(rank, step->team);
    default:
        return do_operation(rank, number);
    }
}

/* ---- a program -------------------------------------------------------------------------------*/

/* Where this rank stopped, and the sentences of the groups that failed at it: the rig knows the
 * world's alone. */
static void tell_failure(const struct rank *rank, int step)
{
    bool is_first = atomic_fetch_add(&rank->run->failures, 1) == 0;

    fprintf(stderr, "rank %d%s, at step %d\n", rank->me, is_first ? ": first to fail" : " stopped",
            step);
    for (int i = 1; i < PROGRAM_TEAMS; i++)
        if (rank->groups[i] != NULL && ct_group_failure(rank->groups[i])->code != 0)
            fprintf(stderr, "rank %d, team %d: %s\n", rank->me, i,
                    ct_group_failure(rank->groups[i])->text);
}

static int run_rank(struct ct_group *group, struct rig *rig)
{
    struct run *run = rig->shared;
    struct rank *rank = calloc(1, sizeof *rank);
    const struct program *program = run->program;
    int line = 0, step = 0;

    CT_ASSERT(rank != NULL);
    *rank = (struct rank){.run = run, .program = program, .me = ct_group_rank(group)};
    rank->groups[0] = group;
    ct_rng_init(&rank->rng, program->seed * 100 + (uint64_t)rank->me);
    for (; step < program->step_count && line == 0; step++)
        if (!program->steps[step].dropped)
            line = do_step(rank, step);
    if (line == 0)
        line = wait_all(rank, 0);
    if (line != 0)
        tell_failure(rank, step - 1);
    line = drop_open(rank, line);
    for (int i = PROGRAM_TEAMS - 1; i >= 1; i--)
        if (rank->groups[i] != NULL && line == 0)
            line = free_team(rank, i);
    for (int i = PROGRAM_TEAMS - 1; i >= 1; i--)
        ct_group_free(rank->groups[i]);
    free(rank);
    return line;
}

/* Members of a group have the same bits of what all were given. */
static int compare_digests(const struct run *run)
{
    const struct program *program = run->program;

    for (int s = 0; s < program->step_count; s++) {
        const struct program_team *team = &program->teams[program->steps[s].team];
        const uint64_t *digests = run->digests[s];

        for (int a = 0; a < program->world; a++)
            for (int b = a + 1; b < program->world; b++)
                if (team->group[a] == team->group[b] && digests[a] != digests[b]) {
                    fprintf(stderr, "step %d: ranks %d and %d got different bits\n", s, a, b);
                    return __LINE__;
                }
    }
    return 0;
}

/* Of hier each node has as many ranks, two or more. */
static int nodes_of(const struct program *program, const char *backend)
{
    if (strcmp(backend, "hier") != 0)
        return 1;
    return program->world > 4 && program->seed % 2 == 0 ? program->world / 2 : 2;
}

static int run_program(const struct program *program, const char *backend)
{
    struct run run = {.program = program};
    struct rig rig = {.backend = backend,
                      .world = program->world,
                      .nodes = nodes_of(program, backend),
                      .timeout_ms = TIMEOUT_MS,
                      .tuning = program->tuning,
                      .shared = &run};
    int line = rig_run(&rig, run_rank);

    return line != 0 ? line : compare_digests(&run);
}

/* Drop ever smaller runs of steps that the failure does not need. */
static void shrink(struct program *program, const char *backend)
{
    uint64_t end_ms = ct_clock_mono_ms(&ct_clock_system) + SHRINK_S * 1000;

    for (int width = program->step_count; width > 0; width /= 2)
        for (int at = 0; at < program->step_count; at += width) {
            struct program less = *program;

            for (int i = at; i < CT_MIN(at + width, program->step_count); i++)
                less.steps[i].dropped = true;
            if (ct_clock_mono_ms(&ct_clock_system) < end_ms && run_program(&less, backend) != 0)
                *program = less;
        }
}

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

/* Every SHARES-th program, so that the shares run side by side. */
static void run_share(const char *backend, int world, unsigned long share, unsigned long otherwise)
{
    unsigned long first = setting("CTRUN_PROGRAMS_FIRST", 1);
    unsigned long count = setting("CTRUN_PROGRAMS", otherwise);
    static const int even[] = {4, 6, 8};
    bool is_hier = strcmp(backend, "hier") == 0;
    struct program program;

    for (unsigned long i = share; i < count; i += SHARES) {
        program_draw(&program, first + i, is_hier ? even[(first + i) % CT_COUNT(even)] : world);
        int line = run_program(&program, backend);
        if (line == 0)
            continue;
        fprintf(stderr, "seed %lu on %s fails (line %d); looking for a smaller program\n",
                first + i, backend, line);
        shrink(&program, backend);
        program_print(&program, stderr);
        cr_assert(false, "seed %lu on backend %s: line %d", first + i, backend, line);
    }
}

enum { BACKENDS = 1 + RIG_BACKENDS, RUNS = SHARES * BACKENDS }; /* hier, then the rig's */

ParameterizedTestParameters(programs, random_ones_equal_the_reference)
{
    static int numbers[RUNS];

    for (int i = 0; i < RUNS; i++)
        numbers[i] = i;
    return cr_make_param_array(int, numbers, (size_t)(SHARES * (1 + rig_backend_count())));
}
ParameterizedTest(int *index, programs, random_ones_equal_the_reference)
{
    const char *only = getenv("CTRUN_PROGRAMS_ON");
    int place = *index / SHARES;
    const char *backend = place == 0 ? "hier" : rig_backends[place - 1];

    if (only == NULL || strcmp(only, backend) == 0)
        run_share(backend, 0, (unsigned long)(*index % SHARES), SANITIZED ? 20 : 60);
}

Test(programs, random_ones_of_a_rank_alone_equal_the_reference)
{
    for (unsigned long share = 0; share < SHARES; share++)
        run_share("self", 1, share, 40);
}
