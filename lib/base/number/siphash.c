/* See siphash.h. */
#include "base/number/siphash.h"

#include <string.h>

#include "base/bytes.h"

#include <stdint.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

void ct_siphash(const unsigned char key[CT_SIPHASH_KEY], const void *data, size_t size,
                unsigned char ret_hash[CT_SIPHASH_BYTES])
{
    const unsigned char *bytes = data;
    uint64_t k0 = ct_get_le64(key), k1 = ct_get_le64(key + 8), last = (uint64_t)size << 56;
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee,
                     k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
    size_t whole = size - size % 8;

    for (size_t at = 0; at < whole; at += 8)
        absorb(v, ct_get_le64(bytes + at));
    for (size_t at = whole; at < size; at++)
        last |= (uint64_t)bytes[at] << 8 * (at - whole);
    absorb(v, last);
    v[2] ^= 0xee;
    mix(v, 4);
    ct_put_le64(ret_hash, v[0] ^ v[1] ^ v[2] ^ v[3]);
    v[1] ^= 0xdd;
    mix(v, 4);
    ct_put_le64(ret_hash + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}

uint64_t ct_siphash64(const unsigned char key[CT_SIPHASH_KEY], const void *data, size_t size)
{
    unsigned char hash[CT_SIPHASH_BYTES];
    uint64_t first;

    ct_siphash(key, data, size, hash);
    memcpy(&first, hash, sizeof(first));
    return first;
}
