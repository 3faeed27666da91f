/* See step_schedule.h: recursive doubling and halving. The first q = 2^k <= p ranks pair up at
 * distance 1, 2, 4, ...; a rank beyond them gives its data to the one q to its left before, and
 * gets the result after. Both of a pair add in the order of their ranks, so both get the same bits:
 * those of INVARIANT where p is a power of two. */
#include "algorithm/step_build.h"

/* How the sums of a call lie while it goes on: in the input at first, then in the output. */
struct halving {
    int active;     /* ranks that pair up: q */
    int folded;     /* of them, those that have another one's data, too */
    int phase;      /* the next one */
    bool in_output; /* this rank's sums so far */
    int low, count; /* the blocks that it still adds up */
    int slot;       /* the first that no phase has used */
};

static struct halving begin(const struct ct_schedule *s)
{
    int active = 1 << ct_schedule_rounds(s->world);

    active = active > s->world ? active / 2 : active;
    return (struct halving){.active = active, .folded = s->world - active};
}

static struct ct_place sum_of(const struct halving *h, int block)
{
    return h->in_output ? ct_place_output(block) : ct_place_input(block);
}

static void send_blocks(struct ct_schedule *s, const struct halving *h, int peer, int low,
                        int count)
{
    for (int i = 0; i < count; i++)
        (i == 0 ? ct_step_send : ct_step_send_joined)(s, h->phase, peer, sum_of(h, low + i),
                                                      low + i);
}

static void recv_blocks(struct ct_schedule *s, const struct halving *h, int peer, int low,
                        int count)
{
    for (int i = 0; i < count; i++)
        (i == 0 ? ct_step_recv : ct_step_recv_joined)(s, h->phase, peer, ct_place_output(low + i),
                                                      low + i);
}

/* Receive another rank's sums of these blocks, in slots of their own, and add them to this one's.
 * */
static void add_blocks(struct ct_schedule *s, struct halving *h, int peer, int low, int count,
                       bool last)
{
    bool lower = s->rank < peer;

    for (int i = 0; i < count; i++)
        (i == 0 ? ct_step_recv : ct_step_recv_joined)(s, h->phase, peer, ct_place_slot(h->slot + i),
                                                      low + i);
    for (int i = 0; i < count; i++) {
        struct ct_place mine = sum_of(h, low + i), theirs = ct_place_slot(h->slot + i);

        ct_step_reduce(s, h->phase, ct_place_output(low + i), lower ? mine : theirs,
                       lower ? theirs : mine, low + i, last);
    }
    h->slot += count;
    h->in_output = true;
}

/* The ranks beyond the power of two, before the others pair up and after. */
static void fold(struct ct_schedule *s, struct halving *h)
{
    if (h->folded == 0)
        return;
    if (s->rank >= h->active)
        send_blocks(s, h, s->rank - h->active, 0, s->blocks);
    else if (s->rank < h->folded)
        add_blocks(s, h, s->rank + h->active, 0, s->blocks, false);
    h->phase++;
}

static void unfold(struct ct_schedule *s, struct halving *h)
{
    if (h->folded == 0)
        return;
    if (s->rank >= h->active)
        recv_blocks(s, h, s->rank - h->active, 0, s->blocks);
    else if (s->rank < h->folded)
        send_blocks(s, h, s->rank + h->active, 0, s->blocks);
    h->phase++;
}

void ct_build_doubling(struct ct_schedule *s)
{
    struct halving h = begin(s);

    s->blocks = 1;
    s->slots = ct_schedule_rounds(h.active) + 1;
    fold(s, &h);
    for (int d = 1; d < h.active; d *= 2, h.phase++)
        if (s->rank < h.active) {
            send_blocks(s, &h, s->rank ^ d, 0, 1);
            add_blocks(s, &h, s->rank ^ d, 0, 1, d * 2 == h.active);
        }
    unfold(s, &h);
    s->phases = h.phase;
}

/* Each pair splits the blocks that it adds up, one half each; when all are split, the complete ones
 * go back the same way (Rabenseifner 2004). */
void ct_build_halving(struct ct_schedule *s)
{
    struct halving h = begin(s);

    s->blocks = h.active;
    s->slots = h.folded > 0 ? 2 * h.active : h.active;
    h.count = h.active;
    fold(s, &h);
    for (int d = 1; d < h.active; d *= 2, h.phase++) {
        int kept, given;

        if (s->rank >= h.active)
            continue;
        h.count /= 2;
        kept = (s->rank & d) != 0 ? h.low + h.count : h.low;
        given = (s->rank & d) != 0 ? h.low : h.low + h.count;
        send_blocks(s, &h, s->rank ^ d, given, h.count);
        add_blocks(s, &h, s->rank ^ d, kept, h.count, d * 2 == h.active);
        h.low = kept;
    }
    for (int d = h.active / 2; d > 0; d /= 2, h.phase++) {
        int other = (s->rank & d) != 0 ? h.low - h.count : h.low + h.count;

        if (s->rank >= h.active)
            continue;
        send_blocks(s, &h, s->rank ^ d, h.low, h.count);
        recv_blocks(s, &h, s->rank ^ d, other, h.count);
        h.low = CT_MIN(h.low, other);
        h.count *= 2;
    }
    unfold(s, &h);
    s->phases = h.phase;
}
