/* libssl, loaded at its first use: linked in the ordinary way it costs every start of a program
 * about 0.9 ms and 2 MiB, and most jobs run on one machine without a key. */
#ifndef CT_KEYS_OPENSSL_H
#define CT_KEYS_OPENSSL_H

#include "base/error.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

/* Pointers under the functions' own names: ssl->SSL_new(context). */
struct ct_openssl {
#define SSL_FUNCTION(name) __typeof__(&name) name;
#include "keys/openssl.def"
#undef SSL_FUNCTION
};

/* Return the loaded library, the same for the whole process and from any thread. 0; CT_EUNSUPPORTED
 * when it is missing or too old, with the package to install. */
int ct_openssl_get(const struct ct_openssl **ret_ssl, struct ct_error *err);

enum { CT_HMAC_BYTES = 32 };

/* HMAC-SHA256 (RFC 2104) of `size` bytes. */
void ct_openssl_hmac(const struct ct_openssl *ssl, const void *key, size_t key_size,
                     const void *data, size_t size, unsigned char ret_mac[CT_HMAC_BYTES]);

#endif
