/* See crc32c.h: the instruction that ARMv8.0 leaves to the maker and ARMv8.1 demands. */
#include "base/number/crc32c.h"

#include <string.h>
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1u << 7)
#endif

__attribute__((target("+crc"))) static uint32_t
continue_armv8(uint32_t crc, const unsigned char *bytes, size_t size)
{
    uint64_t word;

    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        __asm__("crc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; size > 0; size--)
        __asm__("crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*bytes++));
    return crc;
}

uint32_t ct_crc32c_continue(uint32_t crc, const void *data, size_t size)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? continue_armv8(crc, data, size)
                                                    : ct_crc32c_portable(crc, data, size);
}
