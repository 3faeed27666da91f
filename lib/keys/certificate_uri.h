/* What a certificate allows, as its subject alternative names of type URI say it. Pure.
 *
 *      ctrun://ROLE/JOBS        ctrun://agent/ada-*        ctrun://operator/night,ada-x
 *
 * ROLE is one of key_role.def, JOBS are patterns of fnmatch(3) with commas between. A byte of
 * them may be written as %XX. A certificate may have several: each allows what it says. URIs of
 * another scheme are somebody else's. */
#ifndef CT_KEYS_CERTIFICATE_URI_H
#define CT_KEYS_CERTIFICATE_URI_H

#include "keys/grant.h"

#include <stddef.h>

/* Read a URI of `size` bytes into the role and the jobs of `grant`. 1; 0 when it is of another
 * scheme; CT_EDATA with the sentence when it is no such URI. */
int ct_certificate_uri_read(const void *uri, size_t size, struct ct_grant *grant,
                            struct ct_error *err);

/* Copy a certificate's common name as a grant's name: what is no letter, digit, '.', '_' or '-'
 * becomes '_', and what is too long is cut. */
void ct_certificate_name_clean(const void *name, size_t size, char ret_name[CT_GRANT_NAME]);

#endif
