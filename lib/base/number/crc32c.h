/* The running remainder of CRC32C, for hash.c: a file an architecture, which uses its instruction
 * for it where the machine has one. */
#ifndef CT_BASE_CRC32C_H
#define CT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define CT_CRC32C_POLYNOMIAL 0x82F63B78u /* bit 31 is its constant term */

/* Return the remainder `crc` after more bytes. */
uint32_t ct_crc32c_continue(uint32_t crc, const void *data, size_t size);

/* The same bit by bit, on any machine. */
static inline uint32_t ct_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (CT_CRC32C_POLYNOMIAL & (0u - (crc & 1u)));
    }
    return crc;
}

#endif
