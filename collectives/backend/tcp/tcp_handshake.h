/* Mutual proof of two ranks that they are of one group, before their connection carries data:
 *
 *   dialler -> listener   HELLO     magic, lane, run, generation, group, from, to, nonce, proof
 *   listener -> dialler   ANSWER    magic, nonce, proof of both nonces
 *   dialler -> listener   CONFIRM   magic, proof of both nonces
 *
 * A proof is a keyed hash (base/siphash.h) of all bytes on this connection so far, under the
 * group's secret, which no connection carries: diallers use its first half, listeners the second.
 * Bytes captured on one connection are of no use on another: it is of other ranks or another
 * channel (lane), or the nonces differ. HELLO comes first and can be checked alone, so a listener
 * keeps no place for callers without it. Pure. */
#ifndef CT_COLL_TCP_HANDSHAKE_H
#define CT_COLL_TCP_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_SECRET_BYTES = 32,
    CT_NONCE_BYTES = 16,
    CT_HELLO_BYTES = 72,
    CT_ANSWER_BYTES = 36,
    CT_CONFIRM_BYTES = 20,
};

/* What all connections of a group have in common. */
struct ct_handshake {
    const unsigned char *secret; /* CT_SECRET_BYTES */
    uint64_t run, generation, group;
};

/* Which connection. */
struct ct_lane_ends {
    uint32_t from, to, lane;
};

void ct_hello_write(const struct ct_handshake *handshake, struct ct_lane_ends ends,
                    const unsigned char nonce[CT_NONCE_BYTES],
                    unsigned char ret_hello[CT_HELLO_BYTES]);

/* Is it a HELLO of this group? Then `*ret_ends` says for which connection, of any ranks. */
bool ct_hello_read(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   struct ct_lane_ends *ret_ends);

void ct_answer_write(const struct ct_handshake *handshake,
                     const unsigned char hello[CT_HELLO_BYTES],
                     const unsigned char nonce[CT_NONCE_BYTES],
                     unsigned char ret_answer[CT_ANSWER_BYTES]);
bool ct_answer_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                  const unsigned char answer[CT_ANSWER_BYTES]);

void ct_confirm_write(const struct ct_handshake *handshake,
                      const unsigned char hello[CT_HELLO_BYTES],
                      const unsigned char answer[CT_ANSWER_BYTES],
                      unsigned char ret_confirm[CT_CONFIRM_BYTES]);
bool ct_confirm_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   const unsigned char answer[CT_ANSWER_BYTES],
                   const unsigned char confirm[CT_CONFIRM_BYTES]);

#endif
