/* See step_schedule.h. Ranks are counted modulo the world, relative to this rank or to the root. */
#include "algorithm/step_build.h"

/* Everyone sends everything to everyone. */
static void build_flat(struct ct_schedule *s)
{
    s->blocks = 1;
    s->phases = 1;
    s->slots = s->world;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        ct_step_send(s, 0, to, ct_place_input(0), 0);
        ct_step_recv(s, 0, from, ct_place_slot(from), 0);
    }
    ct_step_reduce_all(s, 0, ct_place_output(0), ct_place_input(0), 0);
}

/* Block i of every rank goes to rank i, which adds them all up. */
static void direct_scatter(struct ct_schedule *s, struct ct_place result)
{
    s->blocks = s->world;
    s->phases = 1;
    s->slots = s->world;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        ct_step_send(s, 0, to, ct_place_input(to), to);
        ct_step_recv(s, 0, from, ct_place_slot(from), s->rank);
    }
    ct_step_reduce_all(s, 0, result, ct_place_input(s->rank), s->rank);
}

/* Each rank's block goes to all others. */
static void direct_gather(struct ct_schedule *s, int phase, struct ct_place mine)
{
    s->blocks = s->world;
    s->phases = phase + 1;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        ct_step_send(s, phase, to, mine, s->rank);
        ct_step_recv(s, phase, from, ct_place_output(from), from);
    }
}

static void build_direct(struct ct_schedule *s)
{
    direct_scatter(s, ct_place_output(s->rank));
    direct_gather(s, 1, ct_place_output(s->rank));
}

static void build_direct_scatter(struct ct_schedule *s)
{
    direct_scatter(s, ct_place_output(0));
}

static void build_direct_gather(struct ct_schedule *s)
{
    direct_gather(s, 0, ct_place_input(0));
    ct_step_copy(s, 0, ct_place_output(s->rank), ct_place_input(0), s->rank);
}

/* Partial sums travel around the ring: phase t brings the sum of block rank-1-t so far from the
 * left neighbour, this rank adds its own; after world-1 phases block rank+1 is complete, so blocks
 * are counted one further to end at the own block. */
static void ring_scatter(struct ct_schedule *s, struct ct_place result)
{
    int right = (s->rank + 1) % s->world, left = (s->rank - 1 + s->world) % s->world;

    s->blocks = s->world;
    s->phases = s->world - 1;
    s->slots = s->world - 1;
    for (int t = 0; t < s->world - 1; t++) {
        int out = (s->rank - 1 - t + 2 * s->world) % s->world;
        int in = (s->rank - 2 - t + 2 * s->world) % s->world;
        bool last = t == s->world - 2;
        struct ct_place to = last ? result : ct_place_slot(t);

        ct_step_send(s, t, right, t == 0 ? ct_place_input(out) : ct_place_slot(t - 1), out);
        ct_step_recv(s, t, left, ct_place_slot(t), in);
        ct_step_reduce(s, t, to, ct_place_slot(t), ct_place_input(in), in, last);
    }
}

/* Complete blocks travel around the ring. */
static void ring_gather(struct ct_schedule *s, int phase, struct ct_place mine)
{
    int right = (s->rank + 1) % s->world, left = (s->rank - 1 + s->world) % s->world;

    s->blocks = s->world;
    s->phases = phase + s->world - 1;
    for (int t = 0; t < s->world - 1; t++) {
        int out = (s->rank - t + s->world) % s->world;
        int in = (s->rank - 1 - t + s->world) % s->world;

        ct_step_send(s, phase + t, right, t == 0 ? mine : ct_place_output(out), out);
        ct_step_recv(s, phase + t, left, ct_place_output(in), in);
    }
}

static void build_ring(struct ct_schedule *s)
{
    ring_scatter(s, ct_place_output(s->rank));
    ring_gather(s, s->world - 1, ct_place_output(s->rank));
}

static void build_ring_scatter(struct ct_schedule *s)
{
    ring_scatter(s, ct_place_output(0));
}

static void build_ring_gather(struct ct_schedule *s)
{
    ring_gather(s, 0, ct_place_input(0));
    ct_step_copy(s, s->world - 2, ct_place_output(s->rank), ct_place_input(0), s->rank);
}

/* After phase t each rank has heard, through others, of the 2^(t+1) - 1 ranks to its left. */
static void build_dissemination(struct ct_schedule *s)
{
    int phase = 0;

    s->blocks = 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        ct_step_send(s, phase, (s->rank + d) % s->world, ct_place_input(0), 0);
        ct_step_recv(s, phase, (s->rank - d + s->world) % s->world, ct_place_output(0), 0);
    }
    s->phases = phase;
}

/* Everyone sends everything to the root. */
static void build_flat_root(struct ct_schedule *s)
{
    s->blocks = 1;
    s->phases = 1;
    s->slots = s->world;
    if (s->rank != s->root) {
        ct_step_send(s, 0, s->root, ct_place_input(0), 0);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int from = (s->rank + d) % s->world;

        ct_step_recv(s, 0, from, ct_place_slot(from), 0);
    }
    ct_step_reduce_all(s, 0, ct_place_output(0), ct_place_input(0), 0);
}

/* The complete blocks go to the root: only that has an output, the others keep theirs in the slot
 * that nobody sends to. */
static void build_direct_root(struct ct_schedule *s)
{
    if (s->rank != s->root) {
        direct_scatter(s, ct_place_slot(s->rank));
        ct_step_send(s, 1, s->root, ct_place_slot(s->rank), s->rank);
    } else {
        direct_scatter(s, ct_place_output(s->rank));
        for (int d = 1; d < s->world; d++) {
            int from = (s->rank + d) % s->world;

            ct_step_recv(s, 1, from, ct_place_output(from), from);
        }
    }
    s->phases = 2;
}

static void build_gather(struct ct_schedule *s)
{
    s->blocks = s->world;
    s->phases = 1;
    if (s->rank != s->root) {
        ct_step_send(s, 0, s->root, ct_place_input(0), s->rank);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int from = (s->rank + d) % s->world;

        ct_step_recv(s, 0, from, ct_place_output(from), from);
    }
    ct_step_copy(s, 0, ct_place_output(s->rank), ct_place_input(0), s->rank);
}

static void build_scatter(struct ct_schedule *s)
{
    s->blocks = s->world;
    s->phases = 1;
    if (s->rank != s->root) {
        ct_step_recv(s, 0, s->root, ct_place_output(0), s->rank);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world;

        ct_step_send(s, 0, to, ct_place_input(to), to);
    }
    ct_step_copy(s, 0, ct_place_output(0), ct_place_input(s->rank), s->rank);
}

/* Block j of rank i becomes block i of rank j. In place, what comes must wait in a slot until what
 * it replaces has gone. */
static void exchange(struct ct_schedule *s, bool in_place)
{
    s->blocks = s->world;
    s->phases = 1;
    s->slots = in_place ? s->world : 0;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        ct_step_send(s, 0, to, ct_place_input(to), to);
        ct_step_recv(s, 0, from, in_place ? ct_place_slot(from) : ct_place_output(from), from);
    }
    for (int i = 0; in_place && i < s->world; i++)
        if (i != s->rank)
            ct_step_copy(s, 0, ct_place_output(i), ct_place_slot(i), i);
    ct_step_copy(s, 0, ct_place_output(s->rank), ct_place_input(s->rank), s->rank);
}

static void build_exchange(struct ct_schedule *s)
{
    exchange(s, false);
}

static void build_swap(struct ct_schedule *s)
{
    exchange(s, true);
}

int ct_schedule_rounds(int world)
{
    int rounds = 0;

    while (1 << rounds < world)
        rounds++;
    return rounds;
}

int ct_schedule_capacity(int world)
{
    return world * (ct_schedule_rounds(world) + 8) + 64;
}

int ct_schedule_slots(int world)
{
    return 2 * world + 2;
}

int ct_schedule_spacing(const struct ct_schedule *schedule, int sets)
{
    return schedule->held / sets + 1;
}

int ct_schedule_source(const struct ct_schedule *schedule, int rank)
{
    int distance = schedule->rank - rank;

    if (!schedule->leftward)
        return rank;
    return distance < 0 ? distance + schedule->world : distance;
}

/* A world of one: what is left of every algorithm. */
static void build_alone(struct ct_schedule *s)
{
    s->blocks = 1;
    s->phases = 1;
    ct_step_copy(s, 0, ct_place_output(0), ct_place_input(0), 0);
}

static void (*const builders[CT_ALGO_COUNT])(struct ct_schedule *s) = {
    [CT_ALGO_FLAT] = build_flat,
    [CT_ALGO_DIRECT] = build_direct,
    [CT_ALGO_DIRECT_SCATTER] = build_direct_scatter,
    [CT_ALGO_DIRECT_GATHER] = build_direct_gather,
    [CT_ALGO_RING] = build_ring,
    [CT_ALGO_RING_SCATTER] = build_ring_scatter,
    [CT_ALGO_RING_GATHER] = build_ring_gather,
    [CT_ALGO_DOUBLING] = ct_build_doubling,
    [CT_ALGO_CHAIN] = ct_build_chain,
    [CT_ALGO_BINOMIAL] = ct_build_binomial,
    [CT_ALGO_DISSEMINATION] = build_dissemination,
    [CT_ALGO_FLAT_ROOT] = build_flat_root,
    [CT_ALGO_DIRECT_ROOT] = build_direct_root,
    [CT_ALGO_GATHER] = build_gather,
    [CT_ALGO_SCATTER] = build_scatter,
    [CT_ALGO_EXCHANGE] = build_exchange,
    [CT_ALGO_SWAP] = build_swap,
    [CT_ALGO_BRUCK] = ct_build_bruck,
    [CT_ALGO_BRUCK_GATHER] = ct_build_bruck_gather,
    [CT_ALGO_ROUTED] = ct_build_routed,
    [CT_ALGO_ROUTED_SCATTER] = ct_build_routed_scatter,
    [CT_ALGO_ROUTED_ROOT] = ct_build_routed_root,
    [CT_ALGO_BINOMIAL_ROOT] = ct_build_binomial_root,
    [CT_ALGO_BINOMIAL_GATHER] = ct_build_binomial_gather,
    [CT_ALGO_BINOMIAL_SCATTER] = ct_build_binomial_scatter,
    [CT_ALGO_HALVING] = ct_build_halving,
    [CT_ALGO_DOUBLE_TREE] = ct_build_double_tree,
    [CT_ALGO_DOUBLE_TREE_BROADCAST] = ct_build_double_tree_broadcast,
    [CT_ALGO_TREE_ROOT] = ct_build_tree_root,
    [CT_ALGO_CHAIN_REDUCE] = ct_build_chain_reduce,
    [CT_ALGO_CHAIN_ROOT] = ct_build_chain_root,
};

void ct_schedule_build(struct ct_schedule *schedule, enum ct_algorithm algorithm, int rank,
                       int world, int root)
{
    struct ct_schedule *s = schedule;

    CT_ASSERT(rank >= 0 && rank < world && root >= 0 && root < world);
    CT_ASSERT((unsigned)algorithm < CT_ALGO_COUNT && builders[algorithm] != NULL);
    s->algorithm = algorithm;
    s->rank = rank;
    s->world = world;
    s->root = root;
    s->steps = s->slots = 0;
    s->held = 1;
    s->streams = s->leftward = false;
    (world == 1 ? build_alone : builders[algorithm])(s);
    CT_ASSERT(s->phases >= 1 && s->steps > 0);
}
