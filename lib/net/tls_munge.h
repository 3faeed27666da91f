/* A credential of munge in a handshake of TLS; the inside of tls.c. */
#ifndef CT_NET_TLS_MUNGE_H
#define CT_NET_TLS_MUNGE_H

#include "keys/grant.h"
#include "keys/key_ring.h"
#include "keys/openssl.h"
#include "keys/psk_munge.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_tls_munge {
    struct ct_munge_credential credential;
    char name[CT_PSK_MUNGE]; /* on a client: the identity that it sends */
    /* on a server: */
    bool is_judged;
    struct ct_error why; /* its code is 0: it is open, and this is what its user may do: */
    struct ct_grant grant;
};

/* Make one with the credential's text; NULL without memory. Free it, wiping its key; NULL is
 * ignored. */
struct ct_tls_munge *ct_tls_munge_new(const char *text);
void ct_tls_munge_free(struct ct_tls_munge *munge);

/* Find a credential in the client's hello, in OpenSSL's callback: NULL when it has none. 0 or
 * CT_ENOMEM. */
int ct_tls_munge_find(const struct ct_openssl *ssl, SSL *end, struct ct_tls_munge **ret_munge);

/* Return what the callback is to answer, SSL_CLIENT_HELLO_...: a server whose ring lets nobody in
 * by munge has nothing opened. */
int ct_tls_munge_judge(struct ct_tls_munge *munge, const struct ct_key_ring *ring, int *ret_alert);

/* Keep what came of the credential, with what the ring says of its user. */
void ct_tls_munge_opened(struct ct_tls_munge *munge, const struct ct_key_ring *ring,
                         const struct ct_munge_credential *credential, const struct ct_error *why);

/* Is the identity that a client sends that of the credential, which is open? Its job. */
bool ct_tls_munge_is(const struct ct_tls_munge *munge, const void *name, size_t size,
                     char ret_job_tag[CT_PSK_TAG]);

/* Return why a handshake with a credential failed, on either end; 0: `reason` of OpenSSL has
 * nothing to do with one, or there is none (NULL). */
int ct_tls_munge_refuse(const struct ct_tls_munge *munge, bool server, int reason,
                        struct ct_error *err);

#endif
