/* See cost.h. Rounds and bytes are those of step_schedule.h. */
#include "algorithm/cost.h"

#include "algorithm/step_schedule.h"
#include "base/assert.h"

#include <math.h>

/* ---- costs -----------------------------------------------------------------------------------*/

/* Chunks of c bytes follow each other through `phases`; a rank sends each `times`: the best c has
 * been chosen (pipelined.c). */
static double stream(double phases, double times, double n, double h)
{
    return phases * h + times * n + 2 * sqrt(phases * h * times * n);
}

/* Rounds of the largest power of two, and two more where others have to be let in. */
static double halving_rounds(int p, double twice)
{
    int rounds = ct_schedule_rounds(p);
    bool power_of_two = 1 << rounds == p;

    return power_of_two ? twice * rounds : twice * (rounds - 1) + 2;
}

double ct_cost(enum ct_algorithm algorithm, int p, double n, double h)
{
    double r = ct_schedule_rounds(p), others = p - 1, share = others / p;
    bool power_of_two = 1 << ct_schedule_rounds(p) == p;

    switch (algorithm) {
    case CT_ALGO_DOUBLING:
        return halving_rounds(p, 1) * (h + n);
    case CT_ALGO_HALVING:
        return halving_rounds(p, 2) * h + (power_of_two ? 2 * share : 4) * n;
    case CT_ALGO_DOUBLE_TREE:
        return stream(2 * r, 2, n, h);
    case CT_ALGO_RING:
        return 2 * others * h + 2 * share * n;
    case CT_ALGO_BRUCK:
        return r * h + others * n;
    case CT_ALGO_ROUTED:
        return 2 * r * h + (r / 2 + share) * n;
    case CT_ALGO_CHAIN_REDUCE:
        return stream(2 * others, 2, n, h);
    case CT_ALGO_DOUBLE_TREE_BROADCAST:
        return stream(r + 1, 1, n, h);
    case CT_ALGO_CHAIN:
        return stream(others, 1, n, h);
    case CT_ALGO_BINOMIAL:
        return r * (h + n);
    default:
        return 0;
    }
}

/* ---- where they cross ------------------------------------------------------------------------*/

double ct_cost_cutover(enum ct_algorithm small, enum ct_algorithm large, int p, double most)
{
    double low = 0, high = most;

    if (ct_cost(large, p, most, 1) >= ct_cost(small, p, most, 1))
        return most;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;

        if (ct_cost(large, p, middle, 1) < ct_cost(small, p, middle, 1))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Fewer ranks have other algorithms. */
enum { FEWEST = 9 };

static const struct pair {
    enum ct_algorithm small, large;
} pairs[CT_TUNABLES] = {
    [CT_SIZE_tcp_doubling_bytes] = {CT_ALGO_DOUBLING, CT_ALGO_DOUBLE_TREE},
    [CT_SIZE_tcp_tree_bytes] = {CT_ALGO_DOUBLE_TREE, CT_ALGO_RING},
    [CT_SIZE_tcp_binomial_bytes] = {CT_ALGO_BINOMIAL, CT_ALGO_DOUBLE_TREE_BROADCAST},
    [CT_SIZE_tcp_bruck_bytes] = {CT_ALGO_BRUCK, CT_ALGO_ROUTED},
    [CT_SIZE_tcp_chain_reduce_bytes] = {CT_ALGO_ROUTED, CT_ALGO_CHAIN_REDUCE},
};

size_t ct_cost_extrapolate(enum ct_tunable size, size_t value, int measured, int ranks)
{
    static const double most = 1 << 20; /* messages' worth */
    const struct pair *pair = &pairs[size];

    if (pair->small == CT_ALGO_NONE || measured == ranks || measured < FEWEST || ranks < FEWEST)
        return value;
    double factor = ct_cost_cutover(pair->small, pair->large, ranks, most) /
                    ct_cost_cutover(pair->small, pair->large, measured, most);
    double carried = (double)value * factor;

    return (size_t)CT_MAX(CT_MIN(carried, 0x1p30), 1.0);
}
