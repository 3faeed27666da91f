/* Schedules, carried out on symbols: a value is the expression by which it came about.
 *
 * All ranks run in waves over several chunks, as backend tcp does, with a queue for each ordered
 * pair. Whose turn it is, is drawn; so ranks are in different waves at the same time. Input and
 * output share their storage in half of the runs. */
#include "algorithm/step_schedule.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(schedule, .timeout = 60);

enum { WORLD_MAX = 9, CHUNKS = 4, SLOTS = 16, QUEUE = 64, TEXT = 96, STEPS = 256 };

/* "" is a place that nobody has written. */
struct value {
    char text[TEXT];
};

struct queue {
    struct value values[QUEUE];
    int blocks[QUEUE];
    int head, tail;
};

struct rank {
    struct ct_schedule schedule;
    struct ct_step steps[STEPS];
    struct value input[CHUNKS][WORLD_MAX], output[CHUNKS][WORLD_MAX];
    struct value slots[2][SLOTS];
    int wave;
    bool sent;
};

struct cluster {
    int world;
    bool in_place;
    struct rank ranks[WORLD_MAX];
    struct queue queues[WORLD_MAX][WORLD_MAX];
    int sent_blocks[WORLD_MAX];
};

static void append(struct value *value, const char *more)
{
    size_t used = strlen(value->text), length = strlen(more);

    cr_assert_lt(used + length, TEXT);
    memcpy(value->text + used, more, length + 1);
}

static int ranks_of(const struct value *value, int world, char op)
{
    int count = 0;

    for (int i = 0; i < world; i++) {
        char name[3] = {op, (char)('0' + i), '\0'};

        count += strstr(value->text, name) != NULL;
    }
    return count;
}

static struct value *place(struct cluster *c, struct rank *rank, int chunk, struct ct_place at)
{
    switch (at.space) {
    case CT_SPACE_INPUT:
        return c->in_place ? &rank->output[chunk][at.index] : &rank->input[chunk][at.index];
    case CT_SPACE_OUTPUT:
        return &rank->output[chunk][at.index];
    default:
        cr_assert_eq(at.space, CT_SPACE_SLOT);
        cr_assert_lt(at.index, rank->schedule.slots);
        return &rank->slots[chunk & 1][at.index];
    }
}

/* Input block b of rank r in chunk c is "r3b0c1": no two are alike. */
static void prepare(struct cluster *c, enum ct_algorithm algorithm, int root)
{
    for (int r = 0; r < c->world; r++) {
        struct rank *rank = &c->ranks[r];

        rank->schedule = (struct ct_schedule){.step = rank->steps, .capacity = STEPS};
        ct_schedule_build(&rank->schedule, algorithm, r, c->world, root);
        cr_assert_leq(rank->schedule.steps, ct_schedule_capacity(c->world));
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            for (int b = 0; b < rank->schedule.blocks; b++) {
                struct ct_place at = {CT_SPACE_INPUT, b};

                (void)snprintf(place(c, rank, chunk, at)->text, TEXT, "r%db%dc%d", r, b, chunk);
            }
    }
}

static bool active(const struct rank *rank, const struct ct_step *step, int *ret_chunk)
{
    *ret_chunk = rank->wave - step->phase;
    return *ret_chunk >= 0 && *ret_chunk < CHUNKS;
}

static void send_all(struct cluster *c, int r)
{
    struct rank *rank = &c->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->steps[i];

        if (step->kind != CT_STEP_SEND || !active(rank, step, &chunk))
            continue;
        struct queue *queue = &c->queues[r][step->peer];
        const struct value *value = place(c, rank, chunk, step->a);

        cr_assert_neq(step->peer, r);
        cr_assert_lt(queue->tail - queue->head, QUEUE);
        queue->blocks[queue->tail % QUEUE] = step->block;
        queue->values[queue->tail++ % QUEUE] = *value;
        c->sent_blocks[r]++;
    }
    rank->sent = true;
}

static int count_steps(const struct rank *rank, enum ct_step_kind kind, int peer)
{
    int count = 0, chunk;

    for (int i = 0; i < rank->schedule.steps; i++)
        count += rank->steps[i].kind == kind && rank->steps[i].peer == peer &&
                 active(rank, &rank->steps[i], &chunk);
    return count;
}

static bool can_receive(const struct cluster *c, int r)
{
    for (int peer = 0; peer < c->world; peer++) {
        const struct queue *queue = &c->queues[peer][r];

        if (queue->tail - queue->head < count_steps(&c->ranks[r], CT_STEP_RECV, peer))
            return false;
    }
    return true;
}

static bool transposes(const struct rank *rank)
{
    return rank->schedule.algorithm == CT_ALGO_EXCHANGE || rank->schedule.algorithm == CT_ALGO_SWAP;
}

static void receive_all(struct cluster *c, int r)
{
    struct rank *rank = &c->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->steps[i];

        if (step->kind != CT_STEP_RECV || !active(rank, step, &chunk))
            continue;
        struct queue *queue = &c->queues[step->peer][r];

        /* an exchange names a block by whom it goes to, and by whom it comes from */
        int block = transposes(rank) ? r : step->block;
        cr_assert_eq(queue->blocks[queue->head % QUEUE], block, "blocks in order");
        *place(c, rank, chunk, step->a) = queue->values[queue->head++ % QUEUE];
    }
}

/* What a send reads must not change while the wave lasts: the bytes leave at any time. */
static void check_sources(struct cluster *c, int r, bool remember)
{
    static struct value before[STEPS];
    struct rank *rank = &c->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->steps[i];

        if (step->kind != CT_STEP_SEND || !active(rank, step, &chunk))
            continue;
        if (remember)
            before[i] = *place(c, rank, chunk, step->a);
        else
            cr_assert_str_eq(before[i].text, place(c, rank, chunk, step->a)->text);
    }
}

static void reduce_all(struct cluster *c, struct rank *rank, int chunk, const struct ct_step *step)
{
    struct value sum = {""};

    for (int i = 0; i < c->world; i++) {
        struct ct_place from = {CT_SPACE_SLOT, i};
        const struct value *x = place(c, rank, chunk, i == rank->schedule.rank ? step->b : from);

        append(&sum, i == 0 ? "" : "+");
        append(&sum, x->text);
    }
    *place(c, rank, chunk, step->a) = sum;
}

static void compute_all(struct cluster *c, int r)
{
    struct rank *rank = &c->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->steps[i];
        struct value sum;

        if (!active(rank, step, &chunk))
            continue;
        if (step->kind == CT_STEP_COPY)
            *place(c, rank, chunk, step->a) = *place(c, rank, chunk, step->b);
        if (step->kind == CT_STEP_REDUCE_ALL)
            reduce_all(c, rank, chunk, step);
        if (step->kind == CT_STEP_REDUCE) {
            sum = (struct value){"("};
            append(&sum, place(c, rank, chunk, step->b)->text);
            append(&sum, "+");
            append(&sum, place(c, rank, chunk, step->c)->text);
            append(&sum, ")");
            *place(c, rank, chunk, step->a) = sum;
        }
    }
}

static bool turn(struct cluster *c, int r)
{
    struct rank *rank = &c->ranks[r];

    if (rank->wave == CHUNKS + rank->schedule.phases - 1)
        return false;
    if (!rank->sent) {
        send_all(c, r);
        return true;
    }
    if (!can_receive(c, r))
        return false;
    check_sources(c, r, true);
    receive_all(c, r);
    check_sources(c, r, false);
    compute_all(c, r);
    rank->sent = false;
    rank->wave++;
    return true;
}

/* Run all ranks to the end; a standstill before it is a deadlock. */
static struct cluster *run(enum ct_algorithm algorithm, int world, int root, bool in_place)
{
    struct cluster *c = calloc(1, sizeof *c);
    struct ct_rng rng;
    int idle = 0;

    CT_ASSERT(c != NULL);
    c->world = world;
    c->in_place = in_place;
    prepare(c, algorithm, root);
    ct_rng_init(&rng, (uint64_t)(world * 100 + root));
    while (idle < 1000)
        idle = turn(c, (int)ct_rng_below(&rng, (uint64_t)world)) ? 0 : idle + 1;
    for (int r = 0; r < world; r++) {
        cr_assert_eq(c->ranks[r].wave, CHUNKS + c->ranks[r].schedule.phases - 1,
                     "%s of %d: rank %d stands still", ct_algorithm_name(algorithm), world, r);
        for (int peer = 0; peer < world; peer++)
            cr_assert_eq(c->queues[r][peer].head, c->queues[r][peer].tail, "nothing is left");
    }
    return c;
}

/* ---- what the expressions must be ------------------------------------------------------------*/

static void append_leaf(char *text, int rank, int block, int chunk)
{
    size_t used = strlen(text);

    (void)snprintf(text + used, TEXT - used, "r%db%dc%d", rank, block, chunk);
}

static void expect_rank_order(char *text, int world, int block, int chunk)
{
    text[0] = '\0';
    for (int i = 0; i < world; i++) {
        if (i > 0)
            (void)strcat(text, "+");
        append_leaf(text, i, block, chunk);
    }
}

static void expect_ring_order(char *text, int world, int block, int chunk)
{
    text[0] = '\0';
    for (int i = 2; i < world; i++)
        (void)strcat(text, "(");
    if (world > 1)
        (void)strcat(text, "(");
    for (int i = 0; i < world; i++) {
        if (i > 0)
            (void)strcat(text, "+");
        append_leaf(text, (block + 1 + i) % world, block, chunk);
        if (i > 0)
            (void)strcat(text, ")");
    }
}

static void expect_tree(char *text, int first, int ranks, int block, int chunk)
{
    if (ranks == 1) {
        append_leaf(text, first, block, chunk);
        return;
    }
    (void)strcat(text, "(");
    expect_tree(text, first, ranks / 2, block, chunk);
    (void)strcat(text, "+");
    expect_tree(text, first + ranks / 2, ranks / 2, block, chunk);
    (void)strcat(text, ")");
}

static void expect_sum(char *text, enum ct_algorithm algorithm, int world, int block, int chunk)
{
    text[0] = '\0';
    if (world == 1)
        append_leaf(text, 0, block, chunk);
    else if (algorithm == CT_ALGO_DOUBLING)
        expect_tree(text, 0, world, block, chunk);
    else if (algorithm == CT_ALGO_RING || algorithm == CT_ALGO_RING_SCATTER)
        expect_ring_order(text, world, block, chunk);
    else
        expect_rank_order(text, world, block, chunk);
}

static void check_all_reduce(enum ct_algorithm algorithm, int world, bool in_place)
{
    struct cluster *c = run(algorithm, world, 0, in_place);
    char expected[TEXT];

    for (int r = 0; r < world; r++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            for (int b = 0; b < c->ranks[r].schedule.blocks; b++) {
                expect_sum(expected, algorithm, world, b, chunk);
                cr_assert_str_eq(c->ranks[r].output[chunk][b].text, expected, "%s, rank %d of %d",
                                 ct_algorithm_name(algorithm), r, world);
            }
    free(c);
}

Test(schedule, every_rank_ends_with_the_documented_sum)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_FLAT, CT_ALGO_DIRECT, CT_ALGO_RING,
                                                   CT_ALGO_DOUBLING};

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int world = 1; world <= WORLD_MAX; world++) {
            if (algorithms[a] == CT_ALGO_DOUBLING && (world & (world - 1)) != 0)
                continue;
            check_all_reduce(algorithms[a], world, false);
            check_all_reduce(algorithms[a], world, true);
        }
}

Test(schedule, a_scatter_leaves_each_rank_the_sum_of_its_block)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_DIRECT_SCATTER, CT_ALGO_RING_SCATTER};
    char expected[TEXT];

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int world = 1; world <= WORLD_MAX; world++) {
            struct cluster *c = run(algorithms[a], world, 0, false);

            for (int r = 0; r < world; r++) {
                expect_sum(expected, algorithms[a], world, r, CHUNKS - 1);
                cr_assert_str_eq(c->ranks[r].output[CHUNKS - 1][0].text, expected);
            }
            free(c);
        }
}

Test(schedule, a_gather_brings_every_block_to_every_rank)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_DIRECT_GATHER, CT_ALGO_RING_GATHER};

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int world = 1; world <= WORLD_MAX; world++) {
            struct cluster *c = run(algorithms[a], world, 0, false);

            for (int r = 0; r < world; r++)
                for (int chunk = 0; chunk < CHUNKS; chunk++)
                    for (int b = 0; b < world; b++) {
                        char expected[TEXT] = "";

                        append_leaf(expected, b, 0, chunk);
                        cr_assert_str_eq(c->ranks[r].output[chunk][b].text, expected);
                    }
            free(c);
        }
}

Test(schedule, a_broadcast_reaches_all_from_any_root)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_CHAIN, CT_ALGO_BINOMIAL};

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int world = 1; world <= WORLD_MAX; world++)
            for (int root = 0; root < world; root++) {
                struct cluster *c = run(algorithms[a], world, root, (root & 1) != 0);

                for (int r = 0; r < world; r++)
                    for (int chunk = 0; chunk < CHUNKS; chunk++) {
                        char expected[TEXT] = "";

                        append_leaf(expected, root, 0, chunk);
                        cr_assert_str_eq(c->ranks[r].output[chunk][0].text, expected);
                    }
                free(c);
            }
}

/* Each rank must have heard, directly or through others, from all: reachability over the phases. */
Test(schedule, nobody_leaves_a_barrier_before_all_have_come)
{
    for (int world = 2; world <= WORLD_MAX; world++) {
        unsigned heard[WORLD_MAX], next[WORLD_MAX];
        struct cluster *c = run(CT_ALGO_DISSEMINATION, world, 0, false);

        for (int r = 0; r < world; r++)
            heard[r] = 1u << r;
        for (int phase = 0; phase < c->ranks[0].schedule.phases; phase++) {
            memcpy(next, heard, sizeof next);
            for (int r = 0; r < world; r++)
                for (int i = 0; i < c->ranks[r].schedule.steps; i++) {
                    const struct ct_step *step = &c->ranks[r].steps[i];

                    if (step->kind == CT_STEP_RECV && step->phase == phase)
                        next[r] |= heard[step->peer];
                }
            memcpy(heard, next, sizeof heard);
        }
        for (int r = 0; r < world; r++)
            cr_assert_eq(heard[r], (1u << world) - 1);
        free(c);
    }
}

Test(schedule, a_root_ends_with_the_documented_sum)
{
    static const enum ct_algorithm algorithms[] = {CT_ALGO_FLAT_ROOT, CT_ALGO_DIRECT_ROOT};
    char expected[TEXT];

    for (size_t a = 0; a < CT_COUNT(algorithms); a++)
        for (int world = 1; world <= WORLD_MAX; world++)
            for (int root = 0; root < world; root++) {
                struct cluster *c = run(algorithms[a], world, root, (root & 1) != 0);
                const struct rank *rank = &c->ranks[root];

                for (int chunk = 0; chunk < CHUNKS; chunk++)
                    for (int b = 0; b < rank->schedule.blocks; b++) {
                        expect_rank_order(expected, world, b, chunk);
                        cr_assert_str_eq(rank->output[chunk][b].text, expected);
                    }
                free(c);
            }
}

Test(schedule, a_root_gathers_and_scatters_every_block)
{
    for (int world = 1; world <= WORLD_MAX; world++)
        for (int root = 0; root < world; root++) {
            struct cluster *gather = run(CT_ALGO_GATHER, world, root, false);
            struct cluster *scatter = run(CT_ALGO_SCATTER, world, root, false);

            for (int r = 0; r < world; r++) {
                char gathered[TEXT] = "", scattered[TEXT] = "";

                append_leaf(gathered, r, 0, 1);
                cr_assert_str_eq(gather->ranks[root].output[1][r].text, gathered);
                append_leaf(scattered, root, r, 1);
                cr_assert_str_eq(scatter->ranks[r].output[1][0].text, scattered);
            }
            free(gather);
            free(scatter);
        }
}

Test(schedule, an_exchange_transposes_the_blocks_in_place_or_not)
{
    for (int in_place = 0; in_place < 2; in_place++)
        for (int world = 1; world <= WORLD_MAX; world++) {
            struct cluster *c =
                run(in_place != 0 ? CT_ALGO_SWAP : CT_ALGO_EXCHANGE, world, 0, in_place != 0);

            for (int r = 0; r < world; r++)
                for (int from = 0; from < world; from++) {
                    char expected[TEXT] = "";

                    append_leaf(expected, from, r, 1);
                    cr_assert_str_eq(c->ranks[r].output[1][from].text, expected);
                }
            free(c);
        }
}

/* The table in step_schedule.h. */
Test(schedule, phases_and_traffic_are_as_documented)
{
    static const struct {
        enum ct_algorithm algorithm;
        int phases, blocks_sent; /* at world 8, by rank 0, a chunk */
    } rows[] = {
        {CT_ALGO_FLAT, 1, 7},           {CT_ALGO_DIRECT, 2, 14},
        {CT_ALGO_DIRECT_SCATTER, 1, 7}, {CT_ALGO_DIRECT_GATHER, 1, 7},
        {CT_ALGO_RING, 14, 14},         {CT_ALGO_RING_SCATTER, 7, 7},
        {CT_ALGO_RING_GATHER, 7, 7},    {CT_ALGO_DOUBLING, 3, 3},
        {CT_ALGO_CHAIN, 7, 1},          {CT_ALGO_BINOMIAL, 3, 3},
        {CT_ALGO_DISSEMINATION, 3, 3},  {CT_ALGO_FLAT_ROOT, 1, 0},
        {CT_ALGO_DIRECT_ROOT, 2, 7},    {CT_ALGO_GATHER, 1, 0},
        {CT_ALGO_SCATTER, 1, 7},        {CT_ALGO_EXCHANGE, 1, 7},
        {CT_ALGO_SWAP, 1, 7},
    };

    cr_assert_eq(CT_COUNT(rows), CT_ALGO_SWAP);
    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct cluster *c = run(rows[i].algorithm, 8, 0, false);

        cr_assert_eq(c->ranks[0].schedule.phases, rows[i].phases);
        cr_assert_eq(c->sent_blocks[0], rows[i].blocks_sent * CHUNKS);
        free(c);
    }
}

Test(schedule, a_sum_takes_each_rank_once)
{
    struct cluster *c = run(CT_ALGO_RING, WORLD_MAX, 0, false);

    for (int r = 0; r < WORLD_MAX; r++) {
        cr_assert_eq(ranks_of(&c->ranks[r].output[0][3], WORLD_MAX, 'r'), WORLD_MAX);
        cr_assert_str_eq(c->ranks[r].output[0][3].text, c->ranks[0].output[0][3].text);
    }
    free(c);
}
