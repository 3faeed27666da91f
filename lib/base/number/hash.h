/* Checksums and digests: XXH3 for identity, CRC32C for data on a disk or a wire. */
#ifndef CT_BASE_HASH_H
#define CT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Return the XXH3-64 of `size` bytes, chained through `seed`. */
uint64_t ct_hash64(const void *data, size_t size, uint64_t seed);

/* Return ct_hash64 of a string without its terminator, seed 0. */
uint64_t ct_hash_str(const char *text);

/* Return the CRC32C (Castagnoli), continuing from `crc` (0 to start). */
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t size);

/* Combine the CRC32C of a whole from its parts, in any order and by any process:
 *
 *     [ part 0 | part 1 | ... ]    ct_crc32c_zeros(bytes of the whole) ^ share 0 ^ share 1 ^ ...
 *
 * A part's share, with `behind` bytes of the whole behind it; CRC32C of that many zeros. */
uint32_t ct_crc32c_share(const void *data, size_t size, uint64_t behind);
uint32_t ct_crc32c_zeros(uint64_t size);

#endif
