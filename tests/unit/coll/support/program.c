/* See program.h. */
#include "program.h"

#include "base/assert.h"
#include "base/number/rng.h"
#include "chance.h"

#include <string.h>

/* While a program is drawn. */
struct draft {
    struct program *program;
    struct ct_rng rng;
    bool freed[PROGRAM_TEAMS];
    int open[PROGRAM_TEAMS]; /* handles */
};

static int below(struct draft *draft, int bound)
{
    return (int)ct_rng_below(&draft->rng, (uint64_t)bound);
}

static bool chance(struct draft *draft, unsigned permille)
{
    return rng_chance(&draft->rng, permille) != 0;
}

/* ---- sizes -----------------------------------------------------------------------------------*/

/* Tiny, and other ones each time. */
static struct ct_tuning draw_tuning(struct draft *draft)
{
    static const size_t sizes[] = {64, 64, 128, 192, 256, 1024};

#define DRAW() sizes[below(draft, CT_COUNT(sizes))]
    struct ct_tuning tuning = {.local_chunk_bytes = DRAW(),
                               .local_flat_bytes = DRAW(),
                               .local_ring_bytes = DRAW(),
                               .tcp_block_bytes = DRAW(),
                               .tcp_flat_bytes = DRAW(),
                               .tcp_chain_bytes = DRAW(),
                               .tcp_bruck_bytes = DRAW(),
                               .tcp_message_bytes = DRAW(),
                               .tcp_doubling_bytes = DRAW(),
                               .tcp_tree_bytes = DRAW(),
                               .tcp_binomial_bytes = DRAW(),
                               .tcp_halving_bytes = DRAW(),
                               .tcp_chain_reduce_bytes = DRAW(),
                               .tcp_gather_bytes = DRAW(),
                               .local_direct_bytes = DRAW(),
                               .tcp_rails = 1 + (size_t)below(draft, 3),
                               .tcp_rail_bytes = DRAW(),
                               .tcp_direct_world = chance(draft, 500) ? 1 : 8};
#undef DRAW
    return tuning;
}

/* Mostly around the chunks. */
static size_t draw_count(struct draft *draft)
{
    switch (below(draft, 8)) {
    case 0:
        return (size_t)below(draft, 3);
    case 1:
        return 600 + (size_t)below(draft, 3000);
    case 2:
        return 8u << below(draft, 4);
    default:
        return 1 + (size_t)below(draft, 200);
    }
}

/* ---- teams -----------------------------------------------------------------------------------*/

/* Does `a` come before `b` in a group made with this team's keys? */
static bool before(const struct program_team *team, const struct program_team *parent, int a, int b)
{
    if (team->key[a] != team->key[b])
        return team->key[a] < team->key[b];
    return parent->rank[a] < parent->rank[b];
}

/* Who ends up where. */
static void settle_team(struct program *program, struct program_team *team)
{
    const struct program_team *parent = &program->teams[team->parent];
    int world = program->world;

    for (int r = 0; r < world; r++) {
        team->group[r] = -1;
        team->rank[r] = team->size[r] = 0;
        if (parent->group[r] < 0 || team->colour[r] < 0)
            continue;
        team->group[r] = parent->group[r] * 4 + team->colour[r];
        for (int other = 0; other < world; other++) {
            if (parent->group[other] != parent->group[r] || team->colour[other] != team->colour[r])
                continue;
            team->size[r]++;
            team->rank[r] += before(team, parent, other, r);
        }
    }
}

static void draw_split(struct draft *draft, struct program_step *step, int parent)
{
    struct program *program = draft->program;
    struct program_team *team = &program->teams[program->team_count];
    int colours = 1 + below(draft, 3), keys = 1 + below(draft, 4);

    *team = (struct program_team){.parent = parent};
    for (int r = 0; r < program->world; r++) {
        team->colour[r] = chance(draft, 100) ? CT_NO_COLOUR : below(draft, colours);
        team->key[r] = below(draft, keys) - 1;
    }
    settle_team(program, team);
    step->kind = PROGRAM_SPLIT;
    step->team = program->team_count++;
}

/* ---- steps -----------------------------------------------------------------------------------*/

static enum ct_reduce draw_reduce(struct draft *draft, enum ct_dtype dtype)
{
    enum ct_reduce reduce;

    do {
        reduce = (enum ct_reduce)below(draft, CT_REDUCE_COUNT);
    } while (!reference_supports(dtype, reduce));
    return reduce;
}

/* Roots and peers are brought down to the size of each group when it is performed. */
static void draw_operation(struct draft *draft, struct program_step *step, int team, int number)
{
    enum operation_verb verb = (enum operation_verb)below(draft, OPERATION_VERBS);
    enum ct_dtype dtype = (enum ct_dtype)below(draft, CT_DTYPE_COUNT);
    struct operation op = {.verb = verb,
                           .dtype = dtype,
                           .reduce = draw_reduce(draft, dtype),
                           .mode = (enum ct_reduce_mode)below(draft, 3),
                           .count = draw_count(draft),
                           .root = below(draft, PROGRAM_WORLD_MAX),
                           .peer = below(draft, PROGRAM_WORLD_MAX),
                           .uneven = chance(draft, 400),
                           .blocking = chance(draft, 400),
                           .symmetric = chance(draft, 250),
                           .tag = (uint32_t)below(draft, 3),
                           .seed = ct_rng_next(&draft->rng),
                           .base = (size_t)number << 32};

    op.in_place = chance(draft, 400) && !(op.uneven && verb == OPERATION_ALL_TO_ALL);
    if (verb == OPERATION_MESSAGE && draft->open[team] > 0)
        op.blocking = false;
    draft->open[team] += !op.blocking;
    *step = (struct program_step){.kind = PROGRAM_DEED, .team = team, .op = op};
}

static void draw_drain(struct draft *draft, struct program_step *step, int team)
{
    static const enum program_kind kinds[] = {PROGRAM_TEST_ALL, PROGRAM_WAIT_ALL,
                                              PROGRAM_WAIT_TEAM};

    step->kind = kinds[below(draft, CT_COUNT(kinds))];
    step->team = team;
    for (int i = 0; i < PROGRAM_TEAMS; i++)
        if (step->kind != PROGRAM_WAIT_TEAM || i == team)
            draft->open[i] = 0;
}

static void draw_step(struct draft *draft, struct program_step *step, int number)
{
    struct program *program = draft->program;
    int team, what = below(draft, 100);

    do {
        team = below(draft, program->team_count);
    } while (draft->freed[team]);
    *step = (struct program_step){.team = team};
    if (what < 12 && program->team_count < PROGRAM_TEAMS) {
        draw_split(draft, step, team);
    } else if (what < 16 && team > 0) {
        step->kind = PROGRAM_FREE;
        draft->freed[team] = true;
    } else if (what < 32) {
        draw_drain(draft, step, team);
    } else {
        draw_operation(draft, step, team, number);
    }
}

void program_draw(struct program *program, uint64_t seed, int world)
{
    static const int worlds[] = {1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8};
    struct draft draft = {.program = program};

    memset(program, 0, sizeof *program);
    ct_rng_init(&draft.rng, seed);
    program->seed = seed;
    program->world = world != 0 ? world : worlds[below(&draft, CT_COUNT(worlds))];
    program->tuning = draw_tuning(&draft);
    program->teams[0].parent = -1;
    for (int r = 0; r < program->world; r++) {
        program->teams[0].rank[r] = r;
        program->teams[0].size[r] = program->world;
    }
    program->team_count = 1;
    program->step_count = 4 + below(&draft, PROGRAM_STEPS - 3);
    for (int i = 0; i < program->step_count; i++)
        draw_step(&draft, &program->steps[i], i);
}

/* ---- printing --------------------------------------------------------------------------------*/

static void print_split(const struct program *program, int team, FILE *to)
{
    const struct program_team *made = &program->teams[team];

    fprintf(to, "split team %d into team %d: colours", made->parent, team);
    for (int r = 0; r < program->world; r++)
        fprintf(to, " %d", made->colour[r]);
    fprintf(to, ", keys");
    for (int r = 0; r < program->world; r++)
        fprintf(to, " %d", made->key[r]);
    fprintf(to, "\n");
}

void program_print(const struct program *program, FILE *to)
{
    const struct ct_tuning *t = &program->tuning;
    char text[200];

    fprintf(to,
            "program %llu: %d ranks; local chunk %zu, flat %zu, ring %zu; tcp block %zu, flat %zu, "
            "chain %zu, direct up to %zu ranks\n",
            (unsigned long long)program->seed, program->world, t->local_chunk_bytes,
            t->local_flat_bytes, t->local_ring_bytes, t->tcp_block_bytes, t->tcp_flat_bytes,
            t->tcp_chain_bytes, t->tcp_direct_world);
    for (int i = 0; i < program->step_count; i++) {
        const struct program_step *step = &program->steps[i];

        if (step->dropped)
            continue;
        fprintf(to, "  %2d: ", i);
        operation_print(&step->op, text, sizeof text);
        if (step->kind == PROGRAM_DEED)
            fprintf(to, "team %d: %s\n", step->team, text);
        else if (step->kind == PROGRAM_SPLIT)
            print_split(program, step->team, to);
        else if (step->kind == PROGRAM_FREE)
            fprintf(to, "free team %d\n", step->team);
        else if (step->kind == PROGRAM_TEST_ALL)
            fprintf(to, "test all that is open until nothing is\n");
        else if (step->kind == PROGRAM_WAIT_ALL)
            fprintf(to, "wait for all that is open, from team %d on\n", step->team);
        else
            fprintf(to, "wait for what is open on team %d\n", step->team);
    }
}
