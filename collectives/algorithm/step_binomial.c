/* See step_schedule.h: binomial trees, at whose root a call begins or ends. A place is counted from
 * the root: the root is 0, and the rank at place v is a neighbour of those at v + 2^k. */
#include "algorithm/step_build.h"

/* From the root to its right. Phase t doubles those who have it: place v < 2^t sends to v + 2^t. */
void ct_build_binomial(struct ct_schedule *s)
{
    int place = ct_step_right(s, -s->root), phase = 0;

    s->blocks = 1;
    for (int d = 1; d < s->world; d *= 2, phase++) {
        if (place < d && place + d < s->world)
            ct_step_send(s, phase, ct_step_right(s, d),
                         place == 0 ? ct_place_input(0) : ct_place_output(0), 0);
        else if (place >= d && place < 2 * d)
            ct_step_recv(s, phase, ct_step_right(s, -d), ct_place_output(0), 0);
        if (place == 0 && phase == 0)
            ct_step_copy(s, 0, ct_place_output(0), ct_place_input(0), 0);
    }
    s->phases = phase;
}

/* ---- a block of each rank --------------------------------------------------------------------
 *
 * Places are counted to the left, so that the rank j to the left of another has slot j there: a
 * subtree is a run of slots. */

static int place_leftward(const struct ct_schedule *s)
{
    return ct_step_right(s, -s->root) == 0 ? 0 : s->world - ct_step_right(s, -s->root);
}

/* The blocks of a subtree, whose own rank is `distance` to the left, between this rank and another.
 */
static void move_subtree(struct ct_schedule *s, int phase, bool out, int peer, int distance,
                         int count)
{
    for (int j = 0; j < count; j++) {
        struct ct_place at = ct_place_slot(distance + j);
        int block = s->blocks == 1 ? 0 : ct_step_right(s, -distance - j);

        if (out)
            (j == 0 ? ct_step_send : ct_step_send_joined)(s, phase, peer, at, block);
        else
            (j == 0 ? ct_step_recv : ct_step_recv_joined)(s, phase, peer, at, block);
    }
}

/* Places that are odd multiples of d and their parents, d to the right: `up` to the root or down
 * from it. */
static void gather_round(struct ct_schedule *s, int phase, int d, bool up)
{
    int place = place_leftward(s);

    if (place % (2 * d) == d)
        move_subtree(s, phase, up, ct_step_right(s, d), 0, CT_MIN(d, s->world - place));
    else if (place % (2 * d) == 0 && place + d < s->world)
        move_subtree(s, phase, !up, ct_step_right(s, -d), d, CT_MIN(d, s->world - place - d));
}

void ct_gather_to_root(struct ct_schedule *s, int phase)
{
    for (int d = 1; d < s->world; d *= 2)
        gather_round(s, phase++, d, true);
    for (int j = 0; j < s->world && s->rank == s->root && s->blocks > 1; j++) {
        int block = ct_step_right(s, -j);

        ct_step_copy(s, phase - 1, ct_place_output(block), ct_place_slot(j), block);
    }
    s->phases = phase;
}

static void gather_inputs(struct ct_schedule *s, int blocks)
{
    s->blocks = blocks;
    s->slots = s->world;
    ct_step_copy(s, 0, ct_place_slot(0), ct_place_input(0), blocks == 1 ? 0 : s->rank);
    ct_gather_to_root(s, 1);
    s->held = s->phases;
}

void ct_build_binomial_gather(struct ct_schedule *s)
{
    gather_inputs(s, s->world);
}

void ct_build_binomial_root(struct ct_schedule *s)
{
    gather_inputs(s, 1);
    s->leftward = true;
    if (s->rank == s->root)
        ct_step_reduce_all(s, s->phases - 1, ct_place_output(0), ct_place_slot(0), 0);
}

void ct_build_binomial_scatter(struct ct_schedule *s)
{
    int rounds = ct_schedule_rounds(s->world), phase = 1;

    s->blocks = s->world;
    s->slots = s->world;
    for (int j = 0; j < s->world && s->rank == s->root; j++) {
        int block = ct_step_right(s, -j);

        ct_step_copy(s, 0, ct_place_slot(j), ct_place_input(block), block);
    }
    for (int k = rounds - 1; k >= 0; k--)
        gather_round(s, phase++, 1 << k, false);
    ct_step_copy(s, phase - 1, ct_place_output(0), ct_place_slot(0), s->rank);
    s->phases = phase;
    s->held = phase;
}
