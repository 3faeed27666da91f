/* By what one proves oneself with a certificate: the chain, its private key, and the CA that
 * signs who is believed. All are PEM files.
 *
 *      chain   the certificate, then those between it and the CA
 *      key     its private key, closed to others, without a passphrase
 *      ca      the CA's certificate, or several, and maybe its list of revoked ones (CRL)
 *
 * Both ends of a link show a certificate. What its holder may do is in the certificate
 * (certificate_uri.h), and so is what it is called; host names are not looked at, for nodes have
 * many, which come and go, and who may serve a job is what a client must know.
 *
 * A certificate that has expired begins nothing new, but comes back to the job that it is in, so
 * that no running job ends by a date: it is believed, and marked (ct_grant.expired,
 * CT_RIGHT_NEW). */
#ifndef CT_KEYS_CERTIFICATES_H
#define CT_KEYS_CERTIFICATES_H

#include "keys/grant.h"
#include "keys/openssl.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CT_CERTIFICATE_URIS = 16,               /* of one certificate */
    CT_CERTIFICATE_CHAIN = 32 << 10,        /* bytes of a chain that is shown */
    CT_CERTIFICATE_WARN_S = 7 * 86400,      /* before the end */
    CT_CERTIFICATE_AGAIN_MS = 86400 * 1000, /* until one is told of it again */
};

/* All or none (NULL or ""). */
struct ct_certificate_files {
    const char *chain, *key, *ca;
};

/* Return whether any is named. */
bool ct_certificate_files_given(const struct ct_certificate_files *files);

struct ct_certificates;

/* Read the files: they fit together, the CA has signed the certificate, and that has a URI of
 * ours. It may have expired. 0; CT_EUSAGE when one is not named; CT_ENOINPUT, CT_EAUTH, CT_EDATA
 * with the file and the remedy; CT_EUNSUPPORTED, CT_ENOMEM. */
int ct_certificates_load(const struct ct_certificate_files *files,
                         struct ct_certificates **ret_certificates, struct ct_error *err);

/* Hold them once more, and give them back. NULL is ignored. One thread. */
struct ct_certificates *ct_certificates_ref(struct ct_certificates *certificates);
void ct_certificates_unref(struct ct_certificates *certificates);

/* Return what connections are made of. */
SSL_CTX *ct_certificates_context(const struct ct_certificates *certificates);

/* Return who it says that one is: id, name, and what is allowed. */
const struct ct_grant *ct_certificates_grant(const struct ct_certificates *certificates);

/* Return when the first certificate of the chain expires, in seconds of Unix. */
int64_t ct_certificates_expire_s(const struct ct_certificates *certificates);

/* 0 when it is good for more than a week; CT_EAUTH when it has expired, CT_EUNAVAILABLE when it
 * will soon, with the sentence. */
int ct_certificates_judge_time(const struct ct_certificates *certificates, int64_t now_s,
                               struct ct_error *err);

/* ---- the other end ---- */

/* Zeroed but for `job`. */
struct ct_certificate_peer {
    const char *job; /* on a client: what the server must be allowed to serve; NULL: on a server */
    bool accept_expired;     /* on a client: of a job that runs */
    bool expired;            /* a date of its chain is over */
    bool is_believed;        /* its certificate is */
    struct ct_grant *grants; /* then: what it allows, linked */
    struct ct_error why;     /* else */
};

/* Judge a step of OpenSSL's verification, as its callback does: 1 to go on. */
int ct_certificate_peer_verify(const struct ct_openssl *ssl, struct ct_certificate_peer *peer,
                               int ok, X509_STORE_CTX *store);
void ct_certificate_peer_deinit(struct ct_certificate_peer *peer);

/* Return whether what the other end has shown is still believed by `certificates`, which may be
 * newer: another CA, a list of revoked ones. */
bool ct_certificates_believe(const struct ct_certificates *certificates, SSL *end);

#endif
