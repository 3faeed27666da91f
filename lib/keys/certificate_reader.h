/* What is read of a certificate: who it is, what it allows, until when. For certificates.c. */
#ifndef CT_KEYS_CERTIFICATE_READER_H
#define CT_KEYS_CERTIFICATE_READER_H

#include "keys/certificates.h"

/* Make the grants of a certificate, one a URI, linked, in one block: free(3). 0; CT_EDATA with the
 * sentence when it has none, or a wrong one; CT_ENOMEM. */
int ct_certificate_read(const struct ct_openssl *ssl, X509 *certificate,
                        struct ct_grant **ret_grants, struct ct_error *err);

/* Return its last second, of Unix. */
int64_t ct_certificate_expires_s(const struct ct_openssl *ssl, const X509 *certificate);

/* Is this error of X509_verify_cert one of time alone, or that a CA has published no list of
 * revoked certificates? */
bool ct_certificate_is_tolerable(int error);

#endif
