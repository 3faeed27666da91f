/* See symbols.h. */
#include "symbols.h"

#include "base/assert.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- expressions -----------------------------------------------------------------------------*/

enum kind { LEAF, SUM, SUM_ALL };

/* Of a leaf rank, block and chunk; of a sum its operands. */
struct expression {
    enum kind kind;
    int a, b, c;
    int leaves;
    uint64_t ranks[SYMBOLS_WORLD_MAX / 64];
    int block, chunk; /* of all leaves; -1: not the same */
};

enum { EXPRESSIONS = 1 << 18, HASH = 1 << 19 };

static struct {
    struct expression *list;
    int *hash;
    int count;
} known;

void symbols_reset(void)
{
    if (known.list == NULL) {
        known.list = calloc(EXPRESSIONS, sizeof *known.list);
        known.hash = malloc(HASH * sizeof *known.hash);
        CT_ASSERT(known.list != NULL && known.hash != NULL);
    }
    memset(known.hash, 0, HASH * sizeof *known.hash);
    known.count = 1;
}

/* The number of an expression; a new one, which `describe` is to complete, sets *ret_new. */
static symbol intern(enum kind kind, int a, int b, int c, bool *ret_new)
{
    uint64_t mixed = ((uint64_t)kind << 60 ^ (uint64_t)a * 0x9e3779b97f4a7c15u) + (uint64_t)b;
    size_t at = (size_t)((mixed * 0xff51afd7ed558ccdu + (uint64_t)c) * 0xc4ceb9fe1a85ec53u >> 43);

    for (; known.hash[at % HASH] != 0; at++) {
        const struct expression *e = &known.list[known.hash[at % HASH]];

        if (e->kind == kind && e->a == a && e->b == b && e->c == c) {
            *ret_new = false;
            return known.hash[at % HASH];
        }
    }
    CT_ASSERT(known.count < EXPRESSIONS);
    *ret_new = true;
    known.list[known.count] = (struct expression){.kind = kind, .a = a, .b = b, .c = c};
    return known.hash[at % HASH] = known.count++;
}

symbol symbol_leaf(int rank, int block, int chunk)
{
    bool is_new;
    symbol leaf = intern(LEAF, rank, block, chunk, &is_new);
    struct expression *e = &known.list[leaf];

    if (is_new) {
        e->leaves = 1;
        e->ranks[rank / 64] |= 1ull << rank % 64;
        e->block = block;
        e->chunk = chunk;
    }
    return leaf;
}

static symbol join(enum kind kind, symbol a, symbol b)
{
    bool is_new;

    cr_assert(a != 0 && b != 0, "a sum of what nobody has written");
    symbol sum = intern(kind, a, b, 0, &is_new);
    struct expression *e = &known.list[sum], *x = &known.list[a], *y = &known.list[b];

    if (is_new) {
        e->leaves = x->leaves + y->leaves;
        for (size_t i = 0; i < CT_COUNT(e->ranks); i++)
            e->ranks[i] = x->ranks[i] | y->ranks[i];
        e->block = x->block == y->block ? x->block : -1;
        e->chunk = x->chunk == y->chunk ? x->chunk : -1;
    }
    return sum;
}

symbol symbol_sum(symbol a, symbol b)
{
    return join(SUM, a, b);
}

symbol symbol_sum_all(symbol before, symbol next)
{
    return before == 0 ? next : join(SUM_ALL, before, next);
}

bool symbol_takes_all_once(symbol sum, int world, int block, int chunk)
{
    const struct expression *e = &known.list[sum];
    int ranks = 0;

    for (size_t i = 0; i < CT_COUNT(e->ranks); i++)
        ranks += __builtin_popcountll(e->ranks[i]);
    return sum != 0 && e->leaves == world && ranks == world && e->block == block &&
           e->chunk == chunk;
}

/* ---- ranks -----------------------------------------------------------------------------------*/

struct symbol_queue {
    symbol *values;
    int *blocks;
    int head, tail, room;
};

static void *make(size_t count, size_t size)
{
    void *memory = calloc(CT_MAX(count, 1u), size);

    CT_ASSERT(memory != NULL);
    return memory;
}

static void push(struct symbol_queue *queue, symbol value, int block)
{
    if (queue->tail == queue->room) {
        queue->room = CT_MAX(2 * queue->room, 16);
        queue->values = realloc(queue->values, (size_t)queue->room * sizeof *queue->values);
        queue->blocks = realloc(queue->blocks, (size_t)queue->room * sizeof *queue->blocks);
        CT_ASSERT(queue->values != NULL && queue->blocks != NULL);
    }
    queue->values[queue->tail] = value;
    queue->blocks[queue->tail++] = block;
}

static symbol *place(const struct symbol_world *world, const struct symbol_rank *rank, int chunk,
                     struct ct_place at)
{
    int blocks = CT_MAX(rank->schedule.blocks, 1);

    switch (at.space) {
    case CT_SPACE_INPUT:
        cr_assert_lt(at.index, blocks);
        return &(world->in_place ? rank->output : rank->input)[chunk * blocks + at.index];
    case CT_SPACE_OUTPUT:
        cr_assert_lt(at.index, blocks);
        return &rank->output[chunk * blocks + at.index];
    default:
        cr_assert_eq(at.space, CT_SPACE_SLOT);
        cr_assert_lt(at.index, rank->schedule.slots);
        return &rank->slots[chunk % SYMBOLS_SETS * rank->schedule.slots + at.index];
    }
}

symbol symbols_output(const struct symbol_world *world, int rank, int chunk, int block)
{
    return *place(world, &world->ranks[rank], chunk, (struct ct_place){CT_SPACE_OUTPUT, block});
}

static int step_count(const struct symbol_rank *rank)
{
    return (SYMBOLS_CHUNKS - 1) * ct_schedule_spacing(&rank->schedule, SYMBOLS_SETS) +
           rank->schedule.phases;
}

/* No two leaves are alike. */
static void prepare(struct symbol_world *world, enum ct_algorithm algorithm, int root)
{
    int capacity = ct_schedule_capacity(world->size);

    for (int r = 0; r < world->size; r++) {
        struct symbol_rank *rank = &world->ranks[r];

        rank->schedule = (struct ct_schedule){
            .step = make((size_t)capacity, sizeof *rank->schedule.step), .capacity = capacity};
        ct_schedule_build(&rank->schedule, algorithm, r, world->size, root);
        cr_assert_eq(rank->schedule.slots, world->ranks[0].schedule.slots, "slots set the blocks");
        cr_assert_eq(rank->schedule.phases, world->ranks[0].schedule.phases);
        cr_assert_eq(rank->schedule.held, world->ranks[0].schedule.held);
        cr_assert_leq(rank->schedule.slots, ct_schedule_slots(world->size));
        size_t blocks = SYMBOLS_CHUNKS * (size_t)rank->schedule.blocks;
        rank->input = make(blocks, sizeof *rank->input);
        rank->output = make(blocks, sizeof *rank->output);
        rank->slots = make(SYMBOLS_SETS * (size_t)rank->schedule.slots, sizeof *rank->slots);
        for (int chunk = 0; chunk < SYMBOLS_CHUNKS; chunk++)
            for (int b = 0; b < rank->schedule.blocks; b++)
                *place(world, rank, chunk, (struct ct_place){CT_SPACE_INPUT, b}) =
                    symbol_leaf(r, b, chunk);
    }
}

static bool is_active(const struct symbol_rank *rank, const struct ct_step *step, int *ret_chunk)
{
    int spacing = ct_schedule_spacing(&rank->schedule, SYMBOLS_SETS);
    int behind = rank->step - step->phase;

    *ret_chunk = behind / spacing;
    return behind >= 0 && behind % spacing == 0 && *ret_chunk < SYMBOLS_CHUNKS;
}

static void send_block(struct symbol_world *world, int r, const struct ct_step *step, int chunk)
{
    struct symbol_rank *rank = &world->ranks[r];

    cr_assert_neq(step->peer, r);
    push(&world->queues[r * world->size + step->peer], *place(world, rank, chunk, step->a),
         step->block);
    rank->sent_blocks++;
}

/* All of a step at once, as they may arrive in any order. */
static bool can_receive(const struct symbol_world *world, int r)
{
    const struct symbol_rank *rank = &world->ranks[r];
    int awaited[SYMBOLS_WORLD_MAX] = {0}, chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->schedule.step[i];

        if (step->kind == CT_STEP_RECV && is_active(rank, step, &chunk))
            awaited[step->peer]++;
    }
    for (int peer = 0; peer < world->size; peer++) {
        const struct symbol_queue *queue = &world->queues[peer * world->size + r];

        if (queue->tail - queue->head < awaited[peer])
            return false;
    }
    return true;
}

static bool transposes(const struct symbol_rank *rank)
{
    return rank->schedule.algorithm == CT_ALGO_EXCHANGE || rank->schedule.algorithm == CT_ALGO_SWAP;
}

static void receive_block(struct symbol_world *world, int r, const struct ct_step *step, int chunk)
{
    struct symbol_rank *rank = &world->ranks[r];
    struct symbol_queue *queue = &world->queues[step->peer * world->size + r];

    /* an exchange names a block by whom it goes to, and by whom it comes from */
    int block = transposes(rank) ? r : step->block;
    cr_assert_eq(queue->blocks[queue->head], block, "blocks in order");
    *place(world, rank, chunk, step->a) = queue->values[queue->head++];
}

/* All sends, or all receives, of the step that the rank is at. */
static void move_all(struct symbol_world *world, int r, enum ct_step_kind kind)
{
    const struct symbol_rank *rank = &world->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->schedule.step[i];

        if (step->kind != kind || !is_active(rank, step, &chunk))
            continue;
        if (kind == CT_STEP_SEND)
            send_block(world, r, step, chunk);
        else
            receive_block(world, r, step, chunk);
    }
}

/* What a send reads must not change while the step lasts: the bytes leave at any time. */
static void check_sources(struct symbol_world *world, int r, symbol *before, bool remember)
{
    struct symbol_rank *rank = &world->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->schedule.step[i];

        if (step->kind != CT_STEP_SEND || !is_active(rank, step, &chunk))
            continue;
        if (remember)
            before[i] = *place(world, rank, chunk, step->a);
        else
            cr_assert_eq(before[i], *place(world, rank, chunk, step->a));
    }
}

static symbol sum_of_all(const struct symbol_world *world, const struct symbol_rank *rank,
                         int chunk, const struct ct_step *step)
{
    symbol sum = 0;

    for (int i = 0; i < world->size; i++) {
        struct ct_place from = {CT_SPACE_SLOT, ct_schedule_source(&rank->schedule, i)};

        sum = symbol_sum_all(sum,
                             *place(world, rank, chunk, i == rank->schedule.rank ? step->b : from));
    }
    return sum;
}

static void compute_all(struct symbol_world *world, int r)
{
    struct symbol_rank *rank = &world->ranks[r];
    int chunk;

    for (int i = 0; i < rank->schedule.steps; i++) {
        const struct ct_step *step = &rank->schedule.step[i];

        if (!is_active(rank, step, &chunk))
            continue;
        if (step->kind == CT_STEP_COPY)
            *place(world, rank, chunk, step->a) = *place(world, rank, chunk, step->b);
        if (step->kind == CT_STEP_REDUCE_ALL)
            *place(world, rank, chunk, step->a) = sum_of_all(world, rank, chunk, step);
        if (step->kind == CT_STEP_REDUCE)
            *place(world, rank, chunk, step->a) = symbol_sum(*place(world, rank, chunk, step->b),
                                                             *place(world, rank, chunk, step->c));
    }
}

static bool advance(struct symbol_world *world, int r, symbol *before)
{
    struct symbol_rank *rank = &world->ranks[r];

    if (rank->step == step_count(rank))
        return false;
    if (!rank->sent) {
        move_all(world, r, CT_STEP_SEND);
        rank->sent = true;
        return true;
    }
    if (!can_receive(world, r))
        return false;
    check_sources(world, r, before, true);
    move_all(world, r, CT_STEP_RECV);
    check_sources(world, r, before, false);
    compute_all(world, r);
    rank->sent = false;
    rank->step++;
    return true;
}

struct symbol_world *symbols_run(enum ct_algorithm algorithm, int size, int root, bool in_place)
{
    struct symbol_world *world = make(1, sizeof *world);
    symbol *before = make((size_t)ct_schedule_capacity(size), sizeof *before);
    struct ct_rng rng;
    int idle = 0;

    CT_ASSERT(size <= SYMBOLS_WORLD_MAX);
    symbols_reset();
    world->size = size;
    world->in_place = in_place;
    world->ranks = make((size_t)size, sizeof *world->ranks);
    world->queues = make((size_t)size * (size_t)size, sizeof *world->queues);
    prepare(world, algorithm, root);
    ct_rng_init(&rng, (uint64_t)(size * 1000 + root));
    for (int next = 0; idle<size; next += idle> 0) {
        bool drawn = idle == 0 && ct_rng_below(&rng, 4) != 0;
        int r = drawn ? (int)ct_rng_below(&rng, (uint64_t)size) : next % size;

        idle = advance(world, r, before) || drawn ? 0 : idle + 1; /* all in turn */
    }
    for (int r = 0; r < size; r++) {
        cr_assert_eq(world->ranks[r].step, step_count(&world->ranks[r]),
                     "%s of %d: rank %d stands still", ct_algorithm_name(algorithm), size, r);
        for (int peer = 0; peer < size; peer++)
            cr_assert_eq(world->queues[r * size + peer].head, world->queues[r * size + peer].tail,
                         "nothing is left");
    }
    free(before);
    return world;
}

void symbols_free(struct symbol_world *world)
{
    for (int r = 0; r < world->size; r++) {
        free(world->ranks[r].schedule.step);
        free(world->ranks[r].input);
        free(world->ranks[r].output);
        free(world->ranks[r].slots);
    }
    for (int i = 0; i < world->size * world->size; i++) {
        free(world->queues[i].values);
        free(world->queues[i].blocks);
    }
    free(world->ranks);
    free(world->queues);
    free(world);
}

int schedule_peers(const struct ct_schedule *schedule)
{
    char *seen = make((size_t)schedule->world, 1);
    int peers = 0;

    for (int i = 0; i < schedule->steps; i++) {
        const struct ct_step *step = &schedule->step[i];

        if (step->peer < 0)
            continue;
        peers += seen[step->peer] == 0;
        seen[step->peer] = 1;
    }
    free(seen);
    return peers;
}
