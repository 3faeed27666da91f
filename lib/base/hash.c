/* See hash.h. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

uint64_t ct_hash64(const void *data, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size, seed);
}

uint64_t ct_hash_str(const char *text)
{
    return ct_hash64(text, strlen(text), 0);
}

uint32_t ct_crc32c(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
    }
    return ~crc;
}
