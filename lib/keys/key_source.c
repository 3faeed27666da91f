/* See key_source.h. */
#include "keys/key_source.h"

static bool has_file(const struct ct_key_source *source)
{
    return source->key_file != NULL && source->key_file[0] != '\0';
}

bool ct_key_source_given(const struct ct_key_source *source)
{
    return has_file(source) || ct_certificate_files_given(&source->tls);
}

int ct_key_source_load(const struct ct_key_source *source, struct ct_key *ret_key,
                       struct ct_error *err)
{
    struct ct_key key = {.kind = CT_KEY_CERTIFICATE};

    if (!ct_certificate_files_given(&source->tls))
        return ct_net_key_load(source->key_file, ret_key, err);
    if (has_file(source))
        return ct_error_set(err, CT_EUSAGE,
                            "--key_file and --tls_cert are given, and one proves itself by one of "
                            "both: leave out the other");
    int code = ct_certificates_load(&source->tls, &key.certificates, err);
    if (code == 0)
        *ret_key = key;
    return code;
}

void ct_key_source_reload(const struct ct_key_source *source, struct ct_key *key)
{
    struct ct_key now;

    if (key->kind == CT_KEY_MUNGE || ct_key_source_load(source, &now, NULL) != 0)
        return;
    ct_net_key_wipe(key);
    *key = now;
}
