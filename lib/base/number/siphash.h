/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
 * INDOCRYPT 2012): it cannot be forged or predicted without the key. For proofs of a shared secret
 * over short messages, where loading a cryptography library is too much. */
#ifndef CT_BASE_SIPHASH_H
#define CT_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum { CT_SIPHASH_KEY = 16, CT_SIPHASH_BYTES = 16 };

void ct_siphash(const unsigned char key[CT_SIPHASH_KEY], const void *data, size_t size,
                unsigned char ret_hash[CT_SIPHASH_BYTES]);

/* Return its first 64 bits, for a hash table that resists collision attacks. */
uint64_t ct_siphash64(const unsigned char key[CT_SIPHASH_KEY], const void *data, size_t size);

#endif
