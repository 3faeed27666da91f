/* Dice of tests: shall it happen? */
#ifndef TESTS_LIB_CHANCE_H
#define TESTS_LIB_CHANCE_H

#include "base/number/rng.h"

/* True with probability `permille` / 1000. */
static inline int rng_chance(struct ct_rng *rng, unsigned permille)
{
    return ct_rng_below(rng, 1000) < permille;
}

#endif
