/* Randomness.
 *
 * ct_philox: counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011;
 * Philox4x32-10). The numbers for (key, counter) are the same wherever and in whatever order they
 * are computed: initialisation, dropout and sampling use it, so every layout draws the same.
 *
 * ct_rng: a small sequential generator (xoshiro256++, Blackman and Vigna) for simulators, jitter
 * and tests. Not for secrets: those come from getrandom(2). */
#ifndef CT_BASE_RNG_H
#define CT_BASE_RNG_H

#include <stdint.h>

/* Generate four uniform 32-bit words for `counter` (128 bits, low words first) and the 64-bit
 * `key`. */
void ct_philox(uint64_t key, const uint32_t counter[4], uint32_t ret_words[4]);

/* Return a uniform float in [0, 1), a multiple of 2^-24, from one word. */
float ct_uniform_f32(uint32_t word);

struct ct_rng {
    uint64_t state[4];
};

void ct_rng_init(struct ct_rng *rng, uint64_t seed);
uint64_t ct_rng_next(struct ct_rng *rng);

/* Return a uniform number in [0, bound), bound > 0, without modulo bias. */
uint64_t ct_rng_below(struct ct_rng *rng, uint64_t bound);

/* Mix `value` into a well-distributed 64-bit word (splitmix64's finaliser). */
uint64_t ct_mix64(uint64_t value);

#endif
