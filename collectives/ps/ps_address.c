/* See ps_address.h: flag, key, token, then the endpoint as text. */
#include "collectives/ps/ps_address.h"

#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum { KEY_AT = 1, TOKEN_AT = KEY_AT + CT_KEY_BYTES, TEXT_AT = TOKEN_AT + CT_PS_TOKEN_WORDS * 8 };

const char *ct_ps_address_key(int server, char key[CT_PS_ADDRESS_KEY])
{
    (void)snprintf(key, CT_PS_ADDRESS_KEY, "ps/%d", server);
    return key;
}

size_t ct_ps_address_put(const struct ct_ps_address *address,
                         unsigned char bytes[CT_PS_ADDRESS_BYTES])
{
    char text[CT_ENDPOINT_TEXT];
    size_t size = strlen(ct_endpoint_print(&address->endpoint, text));

    bytes[0] = address->encrypted;
    memcpy(bytes + KEY_AT, address->key.secret, CT_KEY_BYTES);
    for (size_t i = 0; i < CT_PS_TOKEN_WORDS; i++)
        ct_put_le64(bytes + TOKEN_AT + 8 * i, address->token[i]);
    memcpy(bytes + TEXT_AT, text, size);
    return TEXT_AT + size;
}

int ct_ps_address_get(struct ct_ps_address *ret_address, const void *bytes, size_t size,
                      struct ct_error *err)
{
    const unsigned char *from = bytes;
    struct ct_ps_address address = {.encrypted = false};
    char text[CT_ENDPOINT_TEXT] = "";

    if (size <= TEXT_AT || size - TEXT_AT >= sizeof text || from[0] > 1)
        return ct_error_set(err, CT_EPROTOCOL, "the address of a parameter server has %zu bytes",
                            size);
    address.encrypted = from[0] == 1;
    memcpy(address.key.secret, from + KEY_AT, CT_KEY_BYTES);
    for (size_t i = 0; i < CT_PS_TOKEN_WORDS; i++)
        address.token[i] = ct_get_le64(from + TOKEN_AT + 8 * i);
    memcpy(text, from + TEXT_AT, size - TEXT_AT);
    if (ct_endpoint_parse(text, -1, &address.endpoint, err) != 0)
        return CT_EPROTOCOL;
    *ret_address = address;
    return 0;
}
