/* See crc32c.h: the instruction of SSE4.2. */
#include "base/number/crc32c.h"

#include <immintrin.h>
#include <string.h>

__attribute__((target("sse4.2"))) static uint32_t
continue_sse42(uint32_t crc, const unsigned char *bytes, size_t size)
{
    uint64_t word, wide = crc;

    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--)
        crc = _mm_crc32_u8(crc, *bytes++);
    return crc;
}

uint32_t ct_crc32c_continue(uint32_t crc, const void *data, size_t size)
{
    return __builtin_cpu_supports("sse4.2") ? continue_sse42(crc, data, size)
                                            : ct_crc32c_portable(crc, data, size);
}
