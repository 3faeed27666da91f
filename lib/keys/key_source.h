/* Where one's key comes from: a key file, or the files of a certificate. */
#ifndef CT_KEYS_KEY_SOURCE_H
#define CT_KEYS_KEY_SOURCE_H

#include "keys/certificates.h"
#include "keys/key.h"

#include <stdbool.h>

/* NULL or "": not given. */
struct ct_key_source {
    const char *key_file;
    struct ct_certificate_files tls;
};

/* Return whether there is a key at all. */
bool ct_key_source_given(const struct ct_key_source *source);

/* Read the key, to be wiped with ct_net_key_wipe. 0; CT_EUSAGE when both are given; a code of
 * ct_net_key_load or ct_certificates_load. */
int ct_key_source_load(const struct ct_key_source *source, struct ct_key *ret_key,
                       struct ct_error *err);

/* Read it again, for it may have been replaced: files that cannot be read now, or do not fit
 * together, leave `key` as it was. */
void ct_key_source_reload(const struct ct_key_source *source, struct ct_key *key);

#endif
