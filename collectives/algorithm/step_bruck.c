/* See step_schedule.h: algorithms in ceil log2 p rounds, for any number p of ranks (Bruck, Ho,
 * Kipnis, Upfal, Weathersby 1997). Round k sends 2^k to the right: all of them, and the barrier,
 * use the same 2 ceil log2 p connections of a rank.
 *
 *     BRUCK    after round k a rank holds what the 2^(k+1) - 1 ranks to its left gave; slot j is of
 *              the rank j to the left, so what a round sends lies in one piece
 *     ROUTED   a block for the rank j to the right goes there in rounds, one for each bit of j;
 *              slot j is of the rank j to the left in the end, and before that on its way: as every
 *              rank sends alike, what leaves a slot is replaced by what comes for it */
#include "algorithm/step_build.h"

/* ---- everything to everyone ------------------------------------------------------------------*/

/* Round k of a gather in slots, as `phase`: block j there belongs to the rank j to the left, or
 * (one block a chunk) all are block 0. */
static void gather_round(struct ct_schedule *s, int phase, int k)
{
    int d = 1 << k, count = CT_MIN(d, s->world - d);
    int right = ct_step_right(s, d), left = ct_step_right(s, -d);

    for (int j = 0; j < count; j++)
        (j == 0 ? ct_step_send : ct_step_send_joined)(s, phase, right, ct_place_slot(j),
                                                      s->blocks == 1 ? 0 : ct_step_right(s, -j));
    for (int j = 0; j < count; j++)
        (j == 0 ? ct_step_recv : ct_step_recv_joined)(
            s, phase, left, ct_place_slot(d + j), s->blocks == 1 ? 0 : ct_step_right(s, -d - j));
}

/* The own input in slot 0, then all rounds. */
static void gather_in_slots(struct ct_schedule *s, int blocks)
{
    int rounds = ct_schedule_rounds(s->world);

    s->blocks = blocks;
    s->slots = s->world;
    s->phases = rounds + 1;
    s->held = rounds;
    ct_step_copy(s, 0, ct_place_slot(0), ct_place_input(0), blocks == 1 ? 0 : s->rank);
    for (int k = 0; k < rounds; k++)
        gather_round(s, k + 1, k);
}

void ct_build_bruck(struct ct_schedule *s)
{
    gather_in_slots(s, 1);
    s->leftward = true;
    ct_step_reduce_all(s, s->phases - 1, ct_place_output(0), ct_place_slot(0), 0);
}

void ct_build_bruck_gather(struct ct_schedule *s)
{
    gather_in_slots(s, s->world);
    for (int j = 0; j < s->world; j++) {
        int block = ct_step_right(s, -j);

        ct_step_copy(s, s->phases - 1, ct_place_output(block), ct_place_slot(j), block);
    }
}

/* ---- a block for each ------------------------------------------------------------------------*/

/* Where block j lies before round k. In a round as many come into slots as leave them, so there are
 * two banks: runs of 2^k slots lie in one, and in the end all lie in the first. */
static struct ct_place on_its_way(const struct ct_schedule *s, int j, int k)
{
    return ct_place_slot(__builtin_parity((unsigned)j >> k) * s->world + j);
}

/* Round k: all blocks whose way has bit k. Those of a run of 2^k slots go to the same rank, so they
 * are equally long; the first of them has not moved yet. */
static void route_sends(struct ct_schedule *s, int k)
{
    int d = 1 << k, right = ct_step_right(s, d);

    for (int first = d; first < s->world; first += 2 * d) {
        int block = ct_step_right(s, first), end = CT_MIN(first + d, s->world);

        ct_step_send(s, k, right, ct_place_input(block), block);
        for (int j = first + 1; j < end; j++)
            (j == first + 1 ? ct_step_send : ct_step_send_joined)(s, k, right, on_its_way(s, j, k),
                                                                  block);
    }
}

static void route_recvs(struct ct_schedule *s, int k)
{
    int d = 1 << k, left = ct_step_right(s, -d);

    for (int first = d; first < s->world; first += 2 * d) {
        int block = ct_step_right(s, first - d), end = CT_MIN(first + d, s->world);

        for (int j = first; j < end; j++)
            (j <= first + 1 ? ct_step_recv : ct_step_recv_joined)(s, k, left,
                                                                  on_its_way(s, j, k + 1), block);
    }
}

static void route(struct ct_schedule *s, struct ct_place result)
{
    int rounds = ct_schedule_rounds(s->world);

    s->blocks = s->world;
    s->slots = 2 * s->world;
    s->phases = rounds;
    s->held = rounds;
    s->leftward = true;
    for (int k = 0; k < rounds; k++) {
        route_sends(s, k);
        route_recvs(s, k);
    }
    ct_step_reduce_all(s, rounds - 1, result, ct_place_input(s->rank), s->rank);
}

void ct_build_routed_scatter(struct ct_schedule *s)
{
    route(s, ct_place_output(0));
}

/* The blocks `count` ranks to the left of `end`, it included, in ascending order: they lie in one
 * piece, or two at the end of the buffer. */
static void gather_blocks(struct ct_schedule *s, int phase, int peer, int end, int count, bool out)
{
    for (int i = count - 1; i >= 0; i--) {
        int block = ct_step_right(s, end - i);
        bool joined = i < count - 1 && block > 0;

        if (out)
            (joined ? ct_step_send_joined : ct_step_send)(s, phase, peer, ct_place_output(block),
                                                          block);
        else
            (joined ? ct_step_recv_joined : ct_step_recv)(s, phase, peer, ct_place_output(block),
                                                          block);
    }
}

void ct_build_routed(struct ct_schedule *s)
{
    int rounds = ct_schedule_rounds(s->world);

    route(s, ct_place_output(s->rank));
    for (int k = 0; k < rounds; k++) {
        int d = 1 << k, count = CT_MIN(d, s->world - d);

        gather_blocks(s, rounds + k, ct_step_right(s, d), 0, count, true);
        gather_blocks(s, rounds + k, ct_step_right(s, -d), -d, count, false);
    }
    s->phases = 2 * rounds;
}

/* The sums go to the root by a binomial tree. Slot 0 is nobody's while blocks are routed. */
void ct_build_routed_root(struct ct_schedule *s)
{
    route(s, ct_place_slot(0));
    ct_gather_to_root(s, s->phases);
    s->held = s->phases;
}
