/* See handshake.h. */
#include "backend/message/handshake.h"

#include "base/bytes.h"

#include <string.h>

enum { MAGIC = 0x63746d31 };

void ct_greeting_write(unsigned char *bytes, const struct ct_greeting *greeting)
{
    uint64_t scale;

    memcpy(&scale, &greeting->scale, sizeof scale);
    ct_put_le32(bytes, MAGIC);
    ct_put_le32(bytes + 4, (uint32_t)greeting->code);
    ct_put_le64(bytes + 8, greeting->call);
    ct_put_le64(bytes + 16, greeting->signature.count);
    ct_put_le64(bytes + 24, greeting->signature.rest);
    ct_put_le64(bytes + 32, scale);
}

int ct_greeting_check(const unsigned char *bytes, int rank, int peer, struct ct_greeting *greeting,
                      struct ct_error *err)
{
    uint64_t scale = ct_get_le64(bytes + 32);
    int code = (int)ct_get_le32(bytes + 4);
    struct ct_signature theirs = {ct_get_le64(bytes + 16), ct_get_le64(bytes + 24)};

    if (ct_get_le32(bytes) != MAGIC || code > 0)
        return ct_error_set(err, CT_EPROTOCOL, "rank %d sent what is no header", peer);
    if (code != 0)
        return ct_error_echo(err, code, "rank %d ended the group: %s", peer, ct_strerror(code));
    if (ct_get_le64(bytes + 8) != greeting->call ||
        !ct_signature_equal(theirs, greeting->signature))
        return ct_signature_mismatch(greeting->signature, rank, theirs, peer, err);
    memcpy(&greeting->scale, &scale, sizeof scale);
    return 0;
}
