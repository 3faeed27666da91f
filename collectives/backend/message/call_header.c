/* See call_header.h. */
#include "backend/message/call_header.h"

#include "base/bytes.h"

#include <string.h>

enum { MAGIC = 0x63746d31 };

void ct_call_header_write(unsigned char *bytes, const struct ct_call_header *header)
{
    uint64_t scale;

    memcpy(&scale, &header->scale, sizeof scale);
    ct_put_le32(bytes, MAGIC);
    ct_put_le32(bytes + 4, (uint32_t)header->code);
    ct_put_le64(bytes + 8, header->call);
    ct_put_le64(bytes + 16, header->signature.count);
    ct_put_le64(bytes + 24, header->signature.rest);
    ct_put_le64(bytes + 32, scale);
}

int ct_call_header_check(const unsigned char *bytes, int rank, int peer,
                         struct ct_call_header *header, struct ct_error *err)
{
    uint64_t scale = ct_get_le64(bytes + 32);
    int code = (int)ct_get_le32(bytes + 4);
    struct ct_signature theirs = {ct_get_le64(bytes + 16), ct_get_le64(bytes + 24)};

    if (ct_get_le32(bytes) != MAGIC || code > 0)
        return ct_error_set(err, CT_EPROTOCOL, "rank %d sent what is no header", peer);
    if (code != 0)
        return ct_error_echo(err, code, "rank %d ended the group: %s", peer, ct_strerror(code));
    if (ct_get_le64(bytes + 8) != header->call || !ct_signature_equal(theirs, header->signature))
        return ct_signature_mismatch(header->signature, rank, theirs, peer, err);
    memcpy(&header->scale, &scale, sizeof scale);
    return 0;
}
