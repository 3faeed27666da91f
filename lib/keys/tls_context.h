/* The settings that all our TLS has: 1.3 alone, X25519, AES-128-GCM or ChaCha20-Poly1305, no
 * tickets, no renegotiation. */
#ifndef CT_KEYS_TLS_CONTEXT_H
#define CT_KEYS_TLS_CONTEXT_H

#include "keys/openssl.h"

/* Make a context with these settings, without a key. NULL: without memory, or by an OpenSSL that
 * knows no TLS 1.3 with X25519. */
SSL_CTX *ct_tls_context_new(const struct ct_openssl *ssl);

#endif
