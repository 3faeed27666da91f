/* See step_schedule.h: chains. A rank talks to its neighbours; with several chunks under way every
 * link is busy. Sums along a chain are in rank order. */
#include "algorithm/step_build.h"

/* From the root to its right neighbour, and on. */
void ct_build_chain(struct ct_schedule *s)
{
    int place = ct_step_right(s, -s->root);

    s->blocks = 1;
    s->phases = s->world - 1;
    s->streams = true;
    if (place > 0)
        ct_step_recv(s, place - 1, ct_step_right(s, -1), ct_place_output(0), 0);
    else
        ct_step_copy(s, 0, ct_place_output(0), ct_place_input(0), 0);
    if (place < s->world - 1)
        ct_step_send(s, place, ct_step_right(s, 1),
                     place == 0 ? ct_place_input(0) : ct_place_output(0), 0);
}

/* The sum so far comes from the left, this rank adds its own and sends it on: it lies in `sum`, and
 * in `total` at the last rank. */
static void add_along(struct ct_schedule *s, struct ct_place sum, struct ct_place total)
{
    int last = s->world - 1;

    s->blocks = 1;
    s->slots = 2;
    s->streams = true;
    if (s->rank > 0) {
        ct_step_recv(s, s->rank - 1, s->rank - 1, ct_place_slot(0), 0);
        ct_step_reduce(s, s->rank - 1, s->rank == last ? total : sum, ct_place_slot(0),
                       ct_place_input(0), 0, s->rank == last);
    }
    if (s->rank < last)
        ct_step_send(s, s->rank, s->rank + 1, s->rank == 0 ? ct_place_input(0) : sum, 0);
}

/* The result comes back along the chain. */
void ct_build_chain_reduce(struct ct_schedule *s)
{
    int last = s->world - 1, back = 2 * last - 1 - s->rank;

    add_along(s, ct_place_output(0), ct_place_output(0));
    if (s->rank < last)
        ct_step_recv(s, back, s->rank + 1, ct_place_output(0), 0);
    if (s->rank > 0)
        ct_step_send(s, back + 1, s->rank - 1, ct_place_output(0), 0);
    s->phases = 2 * last;
}

/* The result goes to the root, if that is not the last: only the root has an output. */
void ct_build_chain_root(struct ct_schedule *s)
{
    int last = s->world - 1;

    add_along(s, ct_place_slot(1), s->root == last ? ct_place_output(0) : ct_place_slot(1));
    if (s->root != last && s->rank == last)
        ct_step_send(s, last, s->root, ct_place_slot(1), 0);
    if (s->root != last && s->rank == s->root)
        ct_step_recv(s, last, last, ct_place_output(0), 0);
    s->phases = s->root == last ? last : last + 1;
}
