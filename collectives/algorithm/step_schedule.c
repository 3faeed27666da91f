/* See step_schedule.h. Ranks are counted modulo the world, relative to this rank or to the root. */
#include "algorithm/step_schedule.h"

#include "base/assert.h"

static struct ct_place input(int block)
{
    return (struct ct_place){CT_SPACE_INPUT, block};
}

static struct ct_place output(int block)
{
    return (struct ct_place){CT_SPACE_OUTPUT, block};
}

static struct ct_place slot(int index)
{
    return (struct ct_place){CT_SPACE_SLOT, index};
}

static struct ct_place nowhere(void)
{
    return (struct ct_place){CT_SPACE_NONE, 0};
}

static void add(struct ct_schedule *s, struct ct_step step)
{
    CT_ASSERT(s->steps < s->capacity);
    CT_ASSERT(s->steps == 0 || s->step[s->steps - 1].phase <= step.phase);
    s->step[s->steps++] = step;
}

static void send(struct ct_schedule *s, int phase, int peer, struct ct_place from, int block)
{
    add(s, (struct ct_step){CT_STEP_SEND, phase, peer, block, false, from, nowhere(), nowhere()});
}

static void recv(struct ct_schedule *s, int phase, int peer, struct ct_place to, int block)
{
    add(s, (struct ct_step){CT_STEP_RECV, phase, peer, block, false, to, nowhere(), nowhere()});
}

static void copy(struct ct_schedule *s, int phase, struct ct_place to, struct ct_place from,
                 int block)
{
    add(s, (struct ct_step){CT_STEP_COPY, phase, -1, block, false, to, from, nowhere()});
}

static void reduce_all(struct ct_schedule *s, int phase, struct ct_place to, int block)
{
    add(s,
        (struct ct_step){CT_STEP_REDUCE_ALL, phase, -1, block, true, to, input(block), nowhere()});
}

/* Everyone sends everything to everyone. */
static void build_flat(struct ct_schedule *s)
{
    s->blocks = 1;
    s->phases = 1;
    s->slots = s->world;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        send(s, 0, to, input(0), 0);
        recv(s, 0, from, slot(from), 0);
    }
    reduce_all(s, 0, output(0), 0);
}

/* Block i of every rank goes to rank i, which adds them all up. */
static void direct_scatter(struct ct_schedule *s, struct ct_place result)
{
    s->blocks = s->world;
    s->phases = 1;
    s->slots = s->world;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        send(s, 0, to, input(to), to);
        recv(s, 0, from, slot(from), s->rank);
    }
    reduce_all(s, 0, result, s->rank);
}

/* Each rank's block goes to all others. */
static void direct_gather(struct ct_schedule *s, int phase, struct ct_place mine)
{
    s->blocks = s->world;
    s->phases = phase + 1;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        send(s, phase, to, mine, s->rank);
        recv(s, phase, from, output(from), from);
    }
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
        struct ct_place to = last ? result : slot(t);

        send(s, t, right, t == 0 ? input(out) : slot(t - 1), out);
        recv(s, t, left, slot(t), in);
        add(s, (struct ct_step){CT_STEP_REDUCE, t, -1, in, last, to, slot(t), input(in)});
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

        send(s, phase + t, right, t == 0 ? mine : output(out), out);
        recv(s, phase + t, left, output(in), in);
    }
}

/* Partners at distance 1, 2, 4, ... exchange their sums so far; both add them in the order of their
 * ranks, so both get the same bits. */
static void build_doubling(struct ct_schedule *s)
{
    int phase = 0;

    CT_ASSERT((s->world & (s->world - 1)) == 0);
    s->blocks = 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        int peer = s->rank ^ d;
        struct ct_place mine = phase == 0 ? input(0) : output(0), theirs = slot(phase);
        bool lower = s->rank < peer;

        send(s, phase, peer, mine, 0);
        recv(s, phase, peer, theirs, 0);
        add(s, (struct ct_step){CT_STEP_REDUCE, phase, -1, 0, d * 2 == s->world, output(0),
                                lower ? mine : theirs, lower ? theirs : mine});
    }
    s->phases = phase;
    s->slots = phase;
}

/* From the root to its right neighbour, and on. With several chunks under way every link is busy.
 */
static void build_chain(struct ct_schedule *s)
{
    int place = (s->rank - s->root + s->world) % s->world;

    s->blocks = 1;
    s->phases = s->world - 1;
    if (place > 0)
        recv(s, place - 1, (s->rank - 1 + s->world) % s->world, output(0), 0);
    else
        copy(s, 0, output(0), input(0), 0);
    if (place < s->world - 1)
        send(s, place, (s->rank + 1) % s->world, place == 0 ? input(0) : output(0), 0);
}

/* Phase t doubles those who have it: place v < 2^t sends to v + 2^t. */
static void build_binomial(struct ct_schedule *s)
{
    int place = (s->rank - s->root + s->world) % s->world;
    int phase = 0;

    s->blocks = 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        if (place < d && place + d < s->world)
            send(s, phase, (s->rank + d) % s->world, place == 0 ? input(0) : output(0), 0);
        else if (place >= d && place < 2 * d)
            recv(s, phase, (s->rank - d + s->world) % s->world, output(0), 0);
        if (place == 0 && phase == 0)
            copy(s, 0, output(0), input(0), 0);
    }
    s->phases = phase;
}

/* After phase t each rank has heard, through others, of the 2^(t+1) - 1 ranks to its left. */
static void build_dissemination(struct ct_schedule *s)
{
    int phase = 0;

    s->blocks = 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        send(s, phase, (s->rank + d) % s->world, input(0), 0);
        recv(s, phase, (s->rank - d + s->world) % s->world, output(0), 0);
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
        send(s, 0, s->root, input(0), 0);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int from = (s->rank + d) % s->world;

        recv(s, 0, from, slot(from), 0);
    }
    reduce_all(s, 0, output(0), 0);
}

/* The complete blocks go to the root: only that has an output, the others keep theirs in the slot
 * that nobody sends to. */
static void build_direct_root(struct ct_schedule *s)
{
    if (s->rank != s->root) {
        direct_scatter(s, slot(s->rank));
        send(s, 1, s->root, slot(s->rank), s->rank);
    } else {
        direct_scatter(s, output(s->rank));
        for (int d = 1; d < s->world; d++) {
            int from = (s->rank + d) % s->world;

            recv(s, 1, from, output(from), from);
        }
    }
    s->phases = 2;
}

static void build_gather(struct ct_schedule *s)
{
    s->blocks = s->world;
    s->phases = 1;
    if (s->rank != s->root) {
        send(s, 0, s->root, input(0), s->rank);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int from = (s->rank + d) % s->world;

        recv(s, 0, from, output(from), from);
    }
    copy(s, 0, output(s->rank), input(0), s->rank);
}

static void build_scatter(struct ct_schedule *s)
{
    s->blocks = s->world;
    s->phases = 1;
    if (s->rank != s->root) {
        recv(s, 0, s->root, output(0), s->rank);
        return;
    }
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world;

        send(s, 0, to, input(to), to);
    }
    copy(s, 0, output(0), input(s->rank), s->rank);
}

/* Block j of rank i becomes block i of rank j. In place, what comes must wait in a slot until what
 * it replaces has gone. */
static void build_exchange(struct ct_schedule *s, bool in_place)
{
    s->blocks = s->world;
    s->phases = 1;
    s->slots = in_place ? s->world : 0;
    for (int d = 1; d < s->world; d++) {
        int to = (s->rank + d) % s->world, from = (s->rank - d + s->world) % s->world;

        send(s, 0, to, input(to), to);
        recv(s, 0, from, in_place ? slot(from) : output(from), from);
    }
    for (int i = 0; in_place && i < s->world; i++)
        if (i != s->rank)
            copy(s, 0, output(i), slot(i), i);
    copy(s, 0, output(s->rank), input(s->rank), s->rank);
}

int ct_schedule_capacity(int world)
{
    return 6 * world + 64;
}

/* A world of one: what is left of every algorithm. */
static void build_alone(struct ct_schedule *s)
{
    s->blocks = 1;
    s->phases = 1;
    copy(s, 0, output(0), input(0), 0);
}

void ct_schedule_build(struct ct_schedule *schedule, enum ct_algorithm algorithm, int rank,
                       int world, int root)
{
    struct ct_schedule *s = schedule;

    CT_ASSERT(rank >= 0 && rank < world && root >= 0 && root < world);
    s->algorithm = algorithm;
    s->rank = rank;
    s->world = world;
    s->root = root;
    s->steps = s->slots = 0;
    if (world == 1) {
        build_alone(s);
        return;
    }
    switch (algorithm) {
    case CT_ALGO_FLAT:
        build_flat(s);
        break;
    case CT_ALGO_DIRECT:
        direct_scatter(s, output(rank));
        direct_gather(s, 1, output(rank));
        break;
    case CT_ALGO_DIRECT_SCATTER:
        direct_scatter(s, output(0));
        break;
    case CT_ALGO_DIRECT_GATHER:
        direct_gather(s, 0, input(0));
        copy(s, 0, output(rank), input(0), rank);
        break;
    case CT_ALGO_RING:
        ring_scatter(s, output(rank));
        ring_gather(s, world - 1, output(rank));
        break;
    case CT_ALGO_RING_SCATTER:
        ring_scatter(s, output(0));
        break;
    case CT_ALGO_RING_GATHER:
        ring_gather(s, 0, input(0));
        copy(s, world - 2, output(rank), input(0), rank);
        break;
    case CT_ALGO_DOUBLING:
        build_doubling(s);
        break;
    case CT_ALGO_CHAIN:
        build_chain(s);
        break;
    case CT_ALGO_BINOMIAL:
        build_binomial(s);
        break;
    case CT_ALGO_DISSEMINATION:
        build_dissemination(s);
        break;
    case CT_ALGO_FLAT_ROOT:
        build_flat_root(s);
        break;
    case CT_ALGO_DIRECT_ROOT:
        build_direct_root(s);
        break;
    case CT_ALGO_GATHER:
        build_gather(s);
        break;
    case CT_ALGO_SCATTER:
        build_scatter(s);
        break;
    default:
        CT_ASSERT(algorithm == CT_ALGO_EXCHANGE || algorithm == CT_ALGO_SWAP);
        build_exchange(s, algorithm == CT_ALGO_SWAP);
    }
    CT_ASSERT(s->phases >= 1 && s->steps > 0);
}
