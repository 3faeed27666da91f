/* The handshake by which two ranks prove to each other that they are of one group, before their
 * connection carries data:
 *
 *   dialler -> listener   HELLO     magic, connection, run, generation, group, from, to, nonce,
 *                                   proof
 *   listener -> dialler   ANSWER    magic, nonce, proof of both nonces
 *   dialler -> listener   CONFIRM   magic, proof of both nonces
 *
 * A proof is a keyed hash (base/siphash.h) of all bytes on this connection so far, under the
 * group's secret, which no connection carries: diallers use its first half, listeners the second.
 * Bytes captured on one connection are of no use on another: it is of other ranks or another
 * connection of the pair, or the nonces differ. HELLO comes first and can be checked alone, so a
 * listener keeps no slot for callers that send none. Pure. */
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

/* The secret and names that all connections of a group have in common. */
struct ct_handshake {
    const unsigned char *secret; /* CT_SECRET_BYTES */
    uint64_t run, generation, group;
};

/* One of the connections from one rank to another. */
struct ct_connection_id {
    uint32_t from, to, connection;
};

/* Write a HELLO for this connection. */
void ct_hello_write(const struct ct_handshake *handshake, struct ct_connection_id id,
                    const unsigned char nonce[CT_NONCE_BYTES],
                    unsigned char ret_hello[CT_HELLO_BYTES]);

/* Return whether it is a HELLO of this group; then `*ret_id` is its connection, of any ranks. */
bool ct_hello_read(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   struct ct_connection_id *ret_id);

/* Write an ANSWER to this HELLO; return whether it is one. */
void ct_answer_write(const struct ct_handshake *handshake,
                     const unsigned char hello[CT_HELLO_BYTES],
                     const unsigned char nonce[CT_NONCE_BYTES],
                     unsigned char ret_answer[CT_ANSWER_BYTES]);
bool ct_answer_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                  const unsigned char answer[CT_ANSWER_BYTES]);

/* Write the CONFIRM of this HELLO and its ANSWER; return whether it is that. */
void ct_confirm_write(const struct ct_handshake *handshake,
                      const unsigned char hello[CT_HELLO_BYTES],
                      const unsigned char answer[CT_ANSWER_BYTES],
                      unsigned char ret_confirm[CT_CONFIRM_BYTES]);
bool ct_confirm_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   const unsigned char answer[CT_ANSWER_BYTES],
                   const unsigned char confirm[CT_CONFIRM_BYTES]);

#endif
