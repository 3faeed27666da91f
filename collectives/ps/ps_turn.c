/* See ps_turn.h. */
#include "collectives/ps/ps_turn.h"

#include "base/assert.h"

#include <stddef.h>

void ct_ps_turn_init(struct ct_ps_turn *turn, int workers, uint64_t staleness, uint64_t step)
{
    struct ct_ps_seat *seats = turn->seats;

    CT_ASSERT(workers > 0 && seats != NULL);
    *turn = (struct ct_ps_turn){.workers = workers, .staleness = staleness, .seats = seats};
    for (int i = 0; i < workers; i++)
        seats[i] = (struct ct_ps_seat){.pushed = step, .here = true};
}

/* How far the slowest is. */
static uint64_t slowest(const struct ct_ps_turn *turn)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < turn->workers; i++)
        if (turn->seats[i].here || turn->staleness == 0)
            least = CT_MIN(least, turn->seats[i].pushed);
    return least;
}

bool ct_ps_turn_push(struct ct_ps_turn *turn, int worker, uint64_t step, enum ct_ps_due *ret_due)
{
    struct ct_ps_seat *seat = &turn->seats[worker];
    uint64_t before = slowest(turn);

    if (!seat->here || seat->pushed != step || seat->granted != step + 1)
        return false;
    seat->pushed++;
    if (turn->staleness > 0)
        *ret_due = CT_PS_ONE_DUE;
    else
        *ret_due = slowest(turn) > before ? CT_PS_SUM_DUE : CT_PS_NOT_DUE;
    return true;
}

bool ct_ps_turn_begin(struct ct_ps_turn *turn, int worker, uint64_t step)
{
    struct ct_ps_seat *seat = &turn->seats[worker];
    uint64_t least = slowest(turn);

    if (seat->pushed != step || (least < step && step - least > turn->staleness))
        return false;
    seat->granted = step + 1;
    return true;
}

void ct_ps_turn_wish(struct ct_ps_turn *turn)
{
    uint64_t next = 0;

    if (turn->leave_at != 0)
        return;
    for (int i = 0; i < turn->workers; i++) {
        const struct ct_ps_seat *seat = &turn->seats[i];
        next = CT_MAX(next, CT_MAX(seat->granted, seat->pushed));
    }
    turn->leave_at = next;
}

void ct_ps_turn_lose(struct ct_ps_turn *turn, int worker)
{
    turn->seats[worker].here = false;
}

uint64_t ct_ps_turn_step(const struct ct_ps_turn *turn)
{
    return turn->staleness == 0 ? slowest(turn) : turn->seats[0].pushed;
}
