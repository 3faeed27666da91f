/* See rng.h. */
#include "base/number/rng.h"

#include "base/assert.h"

static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0];
    uint32_t c2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];

    c[1] = (uint32_t)p1;
    c[3] = (uint32_t)p0;
    c[0] = c0;
    c[2] = c2;
}

void ct_philox(uint64_t key, const uint32_t counter[4], uint32_t ret_words[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};

    for (int round = 0; round < 10; round++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        ret_words[i] = c[i];
}

float ct_uniform_f32(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

uint64_t ct_mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

void ct_rng_init(struct ct_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9E3779B97F4A7C15u;
        rng->state[i] = ct_mix64(seed);
    }
}

static uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

uint64_t ct_rng_next(struct ct_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t ct_rng_below(struct ct_rng *rng, uint64_t bound)
{
    CT_ASSERT(bound > 0);
    uint64_t floor = (0 - bound) % bound; /* 2^64 mod bound: the words below it would bias */
    uint64_t word;

    do {
        word = ct_rng_next(rng);
    } while (word < floor);
    return word % bound;
}
