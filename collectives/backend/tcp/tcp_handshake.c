/* See tcp_handshake.h. */
#include "backend/tcp/tcp_handshake.h"

#include "base/bytes.h"
#include "base/number/siphash.h"

#include <string.h>

enum {
    MAGIC = 0x636f6c32, /* of HELLO; ANSWER has the next number, CONFIRM the one after it */
    NONCE_AT = 40,
    HELLO_PROOF_AT = NONCE_AT + CT_NONCE_BYTES,
    ANSWER_PROOF_AT = 4 + CT_NONCE_BYTES,
};
_Static_assert(HELLO_PROOF_AT + CT_SIPHASH_BYTES == CT_HELLO_BYTES, "HELLO");
_Static_assert(ANSWER_PROOF_AT + CT_SIPHASH_BYTES == CT_ANSWER_BYTES, "ANSWER");
_Static_assert(4 + CT_SIPHASH_BYTES == CT_CONFIRM_BYTES, "CONFIRM");
_Static_assert(2 * CT_SIPHASH_KEY == CT_SECRET_BYTES, "a key for each side");

static const unsigned char *dialler_key(const struct ct_handshake *handshake)
{
    return handshake->secret;
}

static const unsigned char *listener_key(const struct ct_handshake *handshake)
{
    return handshake->secret + CT_SIPHASH_KEY;
}

/* Takes the same time wherever they differ. */
static bool equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned different = 0;

    for (size_t i = 0; i < size; i++)
        different |= (unsigned)(a[i] ^ b[i]);
    return different == 0;
}

void ct_hello_write(const struct ct_handshake *handshake, struct ct_connection_id id,
                    const unsigned char nonce[CT_NONCE_BYTES],
                    unsigned char ret_hello[CT_HELLO_BYTES])
{
    ct_put_le32(ret_hello, MAGIC);
    ct_put_le32(ret_hello + 4, id.connection);
    ct_put_le64(ret_hello + 8, handshake->run);
    ct_put_le64(ret_hello + 16, handshake->generation);
    ct_put_le64(ret_hello + 24, handshake->group);
    ct_put_le32(ret_hello + 32, id.from);
    ct_put_le32(ret_hello + 36, id.to);
    memcpy(ret_hello + NONCE_AT, nonce, CT_NONCE_BYTES);
    ct_siphash(dialler_key(handshake), ret_hello, HELLO_PROOF_AT, ret_hello + HELLO_PROOF_AT);
}

bool ct_hello_read(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   struct ct_connection_id *ret_id)
{
    unsigned char expected[CT_HELLO_BYTES];
    struct ct_connection_id id = {
        .from = ct_get_le32(hello + 32),
        .to = ct_get_le32(hello + 36),
        .connection = ct_get_le32(hello + 4),
    };

    ct_hello_write(handshake, id, hello + NONCE_AT, expected);
    if (!equal(hello, expected, CT_HELLO_BYTES))
        return false;
    *ret_id = id;
    return true;
}

/* A proof of HELLO and of the listener's nonce. */
static void prove(const unsigned char *key, const unsigned char *hello, const unsigned char *nonce,
                  unsigned char *ret_proof)
{
    unsigned char said[CT_HELLO_BYTES + CT_NONCE_BYTES];

    memcpy(said, hello, CT_HELLO_BYTES);
    memcpy(said + CT_HELLO_BYTES, nonce, CT_NONCE_BYTES);
    ct_siphash(key, said, sizeof said, ret_proof);
}

void ct_answer_write(const struct ct_handshake *handshake,
                     const unsigned char hello[CT_HELLO_BYTES],
                     const unsigned char nonce[CT_NONCE_BYTES],
                     unsigned char ret_answer[CT_ANSWER_BYTES])
{
    ct_put_le32(ret_answer, MAGIC + 1);
    memcpy(ret_answer + 4, nonce, CT_NONCE_BYTES);
    prove(listener_key(handshake), hello, nonce, ret_answer + ANSWER_PROOF_AT);
}

bool ct_answer_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                  const unsigned char answer[CT_ANSWER_BYTES])
{
    unsigned char expected[CT_ANSWER_BYTES];

    ct_answer_write(handshake, hello, answer + 4, expected);
    return equal(answer, expected, CT_ANSWER_BYTES);
}

void ct_confirm_write(const struct ct_handshake *handshake,
                      const unsigned char hello[CT_HELLO_BYTES],
                      const unsigned char answer[CT_ANSWER_BYTES],
                      unsigned char ret_confirm[CT_CONFIRM_BYTES])
{
    ct_put_le32(ret_confirm, MAGIC + 2);
    prove(dialler_key(handshake), hello, answer + 4, ret_confirm + 4);
}

bool ct_confirm_is(const struct ct_handshake *handshake, const unsigned char hello[CT_HELLO_BYTES],
                   const unsigned char answer[CT_ANSWER_BYTES],
                   const unsigned char confirm[CT_CONFIRM_BYTES])
{
    unsigned char expected[CT_CONFIRM_BYTES];

    ct_confirm_write(handshake, hello, answer, expected);
    return equal(confirm, expected, CT_CONFIRM_BYTES);
}
