/* A server's address in a round, and the secrets that admit a worker, as a value of the rendezvous'
 * store under ct_ps_address_key. Pure. */
#ifndef CT_COLL_PS_ADDRESS_H
#define CT_COLL_PS_ADDRESS_H

#include "base/error.h"
#include "collectives/ps/protocol.h"
#include "keys/key.h"
#include "net/endpoint.h"

#include <stdbool.h>

struct ct_ps_address {
    struct ct_endpoint endpoint;
    bool encrypted; /* TLS under `key` */
    struct ct_key key;
    uint64_t token[CT_PS_TOKEN_WORDS]; /* in HELLO */
};

enum {
    CT_PS_ADDRESS_KEY = 32,
    CT_PS_ADDRESS_BYTES = 1 + CT_KEY_BYTES + CT_PS_TOKEN_WORDS * 8 + CT_ENDPOINT_TEXT,
};

/* Write the store key of a server: "ps/3" for server 3. Return `key`. */
const char *ct_ps_address_key(int server, char key[CT_PS_ADDRESS_KEY]);

/* Encode an address, and return the number of bytes; decode one: 0, or CT_EPROTOCOL. */
size_t ct_ps_address_put(const struct ct_ps_address *address,
                         unsigned char bytes[CT_PS_ADDRESS_BYTES]);
int ct_ps_address_get(struct ct_ps_address *ret_address, const void *bytes, size_t size,
                      struct ct_error *err);

#endif
