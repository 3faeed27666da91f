/* See hash.h. */
#include "base/number/hash.h"

#include "base/number/crc32c.h"

#define XXH_INLINE_ALL
#define XXH_FORCE_MEMORY_ACCESS 1 /* by packed structs: under sanitizers memcpy is a call */
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

/* ---- CRC32C: a polynomial over GF(2), bit 31 its constant term ------------------------------ */

static const uint32_t polynomial = CT_CRC32C_POLYNOMIAL;

static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        product ^= b & (0u - ((a & bit) != 0));
        b = (b >> 1) ^ (polynomial & (0u - (b & 1u)));
    }
    return product;
}

/* The remainder after `count` bytes of zeros: times x^8 for each, by squaring. */
static uint32_t append_zeros(uint32_t crc, uint64_t count)
{
    for (uint32_t power = 1u << (31 - 8); count != 0; count >>= 1, power = times(power, power))
        if ((count & 1) != 0)
            crc = times(crc, power);
    return crc;
}

uint32_t ct_crc32c(uint32_t crc, const void *data, size_t size)
{
    return ~ct_crc32c_continue(~crc, data, size);
}

uint32_t ct_crc32c_share(const void *data, size_t size, uint64_t behind)
{
    return append_zeros(ct_crc32c_continue(0, data, size), behind);
}

uint32_t ct_crc32c_zeros(uint64_t size)
{
    return ~append_zeros(~0u, size);
}
