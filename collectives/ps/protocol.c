/* See protocol.h. A field is eight bytes in the struct as on the wire, so one loop does for all. */
#include "collectives/ps/protocol.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

enum { WORD = 8 };

static const struct {
    const char *name;
    size_t bytes;
} heads[] = {
#define HEAD(name, fields) {#name, sizeof(struct ct_ps_##name)},
#include "collectives/ps/protocol.def"
};

#define HEAD(name, fields)                                              \
    _Static_assert(sizeof(struct ct_ps_##name) % WORD == 0 &&           \
                       sizeof(struct ct_ps_##name) <= CT_PS_HEAD_BYTES, \
                   #name);
#include "collectives/ps/protocol.def"

size_t ct_ps_put(enum ct_ps_head kind, const void *head, unsigned char at[CT_PS_HEAD_BYTES])
{
    CT_ASSERT(kind < CT_PS_HEAD_COUNT);
    for (size_t i = 0; i < heads[kind].bytes; i += WORD) {
        uint64_t word;
        memcpy(&word, (const char *)head + i, WORD);
        ct_put_le64(at + i, word);
    }
    return heads[kind].bytes;
}

int ct_ps_get(enum ct_ps_head kind, struct ct_bytes body, void *ret_head, struct ct_bytes *ret_data,
              struct ct_error *err)
{
    CT_ASSERT(kind < CT_PS_HEAD_COUNT);
    size_t bytes = heads[kind].bytes;

    if (body.size < bytes)
        return ct_error_set(err, CT_EPROTOCOL, "%s: %zu bytes, a head has %zu", heads[kind].name,
                            body.size, bytes);
    for (size_t i = 0; i < bytes; i += WORD) {
        uint64_t word = ct_get_le64(body.data + i);
        memcpy((char *)ret_head + i, &word, WORD);
    }
    *ret_data = (struct ct_bytes){body.data + bytes, body.size - bytes};
    return 0;
}

const char *ct_ps_method_name(unsigned method)
{
    switch (method) {
#define METHOD(NAME, name, number) \
    case number:                   \
        return name;
#include "collectives/ps/protocol.def"
    default:
        return "?";
    }
}
