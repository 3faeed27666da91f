/* See openssl.h. */
#include "keys/openssl.h"

#include "keys/library.h"

#include "base/assert.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct ct_openssl library;     /* written once by load */
static char missing[CT_LIBRARY_TEXT]; /* why it is not there; "" when it is */

static const struct ct_library_function functions[] = {
#define SSL_FUNCTION(name) {#name, offsetof(struct ct_openssl, name)},
#include "keys/openssl.def"
#undef SSL_FUNCTION
};

static void load(void)
{
    ct_library_load("libssl.so.3", functions, CT_COUNT(functions), &library, missing);
}

int ct_openssl_get(const struct ct_openssl **ret_ssl, struct ct_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (missing[0] != '\0')
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "a key needs OpenSSL 3 (package libssl3), which does not load: %s",
                            missing);
    *ret_ssl = &library;
    return 0;
}

void ct_openssl_hmac(const struct ct_openssl *ssl, const void *key, size_t key_size,
                     const void *data, size_t size, unsigned char ret_mac[CT_HMAC_BYTES])
{
    unsigned length = CT_HMAC_BYTES;

    ssl->HMAC(ssl->EVP_sha256(), key, (int)key_size, data, size, ret_mac, &length);
}
