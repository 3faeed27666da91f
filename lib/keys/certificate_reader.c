/* See certificate_reader.h. */
#include "keys/certificate_reader.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "keys/certificate_uri.h"

#include <stdlib.h>
#include <time.h>

enum { ID_BYTES = (CT_GRANT_ID - 1) / 2 };

static void read_subject(const struct ct_openssl *ssl, X509 *certificate, struct ct_grant *grant)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char name[256];
    unsigned size = 0;
    int length = ssl->X509_NAME_get_text_by_NID(ssl->X509_get_subject_name(certificate),
                                                NID_commonName, name, sizeof name);

    if (ssl->X509_digest(certificate, ssl->EVP_sha256(), digest, &size) == 1)
        ct_put_hex(digest, ID_BYTES, grant->id);
    if (length > 0)
        ct_certificate_name_clean(name, (size_t)length, grant->name);
    grant->by = CT_KEY_CERTIFICATE;
}

/* One name of a certificate: 1 when it is a URI of ours. */
static int read_name(const struct ct_openssl *ssl, const GENERAL_NAME *name, struct ct_grant *grant,
                     struct ct_error *err)
{
    if (name->type != GEN_URI)
        return 0;
    return ct_certificate_uri_read(
        ssl->ASN1_STRING_get0_data(name->d.uniformResourceIdentifier),
        (size_t)ssl->ASN1_STRING_length(name->d.uniformResourceIdentifier), grant, err);
}

static int read_names(const struct ct_openssl *ssl, const GENERAL_NAMES *names,
                      struct ct_grant *grants, struct ct_error *err)
{
    const OPENSSL_STACK *stack = (const OPENSSL_STACK *)names;
    int count = names != NULL ? ssl->OPENSSL_sk_num(stack) : 0, used = 0, code = 0;

    for (int i = 0; code >= 0 && i < count; i++) {
        struct ct_grant grant = grants[0];

        code = read_name(ssl, ssl->OPENSSL_sk_value(stack, i), &grant, err);
        if (code != 1)
            continue;
        if (used == CT_CERTIFICATE_URIS)
            return ct_error_set(err, CT_EDATA, "it has more than %d URIs ctrun://...",
                                CT_CERTIFICATE_URIS);
        grants[used] = grant;
        grants[used].next = NULL;
        if (used > 0)
            grants[used - 1].next = &grants[used];
        used++;
    }
    if (code >= 0 && used == 0)
        return ct_error_set(err, CT_EDATA,
                            "it has no URI ctrun://ROLE/JOBS among its names, as "
                            "subjectAltName=URI:ctrun://agent/ada-*");
    return CT_MIN(code, 0);
}

int ct_certificate_read(const struct ct_openssl *ssl, X509 *certificate,
                        struct ct_grant **ret_grants, struct ct_error *err)
{
    struct ct_grant *grants = calloc(CT_CERTIFICATE_URIS, sizeof grants[0]);

    if (grants == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a certificate");
    read_subject(ssl, certificate, &grants[0]);
    GENERAL_NAMES *names = ssl->X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int code = read_names(ssl, names, grants, err);
    ssl->GENERAL_NAMES_free(names);
    if (code != 0) {
        ct_error_prefix(err, "certificate %s",
                        grants[0].name[0] != '\0' ? grants[0].name : grants[0].id);
        free(grants);
        return code;
    }
    *ret_grants = grants;
    return 0;
}

int64_t ct_certificate_expires_s(const struct ct_openssl *ssl, const X509 *certificate)
{
    struct tm end = {0};

    return ssl->ASN1_TIME_to_tm(ssl->X509_get0_notAfter(certificate), &end) == 1 ? timegm(&end) : 0;
}

bool ct_certificate_is_tolerable(int error)
{
    return error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CRL_HAS_EXPIRED ||
           error == X509_V_ERR_UNABLE_TO_GET_CRL;
}
