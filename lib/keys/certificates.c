/* See certificates.h.
 *
 *   X509_verify_cert --> ct_certificate_peer_verify, for each certificate from the CA to the peer's
 *        wrong in another way than by a date: no
 *        the shown one, and all is well: its URIs become the grants */
#include "keys/certificates.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fs.h"
#include "keys/certificate_reader.h"
#include "keys/tls_context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 4 << 20 };

struct ct_certificates {
    unsigned references;
    const struct ct_openssl *ssl;
    SSL_CTX *context;
    struct ct_grant *grants; /* its own */
    int64_t expires_s;
};

bool ct_certificate_files_given(const struct ct_certificate_files *files)
{
    return (files->chain != NULL && files->chain[0] != '\0') ||
           (files->key != NULL && files->key[0] != '\0') ||
           (files->ca != NULL && files->ca[0] != '\0');
}

struct ct_certificates *ct_certificates_ref(struct ct_certificates *certificates)
{
    if (certificates != NULL)
        certificates->references++;
    return certificates;
}

void ct_certificates_unref(struct ct_certificates *certificates)
{
    if (certificates == NULL || --certificates->references > 0)
        return;
    if (certificates->context != NULL)
        certificates->ssl->SSL_CTX_free(certificates->context);
    free(certificates->grants);
    free(certificates);
}

SSL_CTX *ct_certificates_context(const struct ct_certificates *certificates)
{
    return certificates->context;
}

const struct ct_grant *ct_certificates_grant(const struct ct_certificates *certificates)
{
    return certificates->grants;
}

int64_t ct_certificates_expire_s(const struct ct_certificates *certificates)
{
    return certificates->expires_s;
}

int ct_certificates_judge_time(const struct ct_certificates *certificates, int64_t now_s,
                               struct ct_error *err)
{
    const struct ct_grant *own = certificates->grants;
    const char *name = own->name[0] != '\0' ? own->name : own->id;
    time_t expires_s = (time_t)certificates->expires_s;
    int64_t left_s = certificates->expires_s - now_s;
    struct tm date;
    char text[64];

    if (left_s > CT_CERTIFICATE_WARN_S)
        return 0;
    (void)gmtime_r(&expires_s, &date);
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &date);
    if (left_s < 0)
        return ct_error_set(
            err, CT_EAUTH,
            "the certificate %s has expired on %s: jobs that run go on, nothing new "
            "begins; renew it in its file",
            name, text);
    return ct_error_set(
        err, CT_EUNAVAILABLE,
        "the certificate %s expires in %lld hours, on %s: renew it in its file, it is "
        "read again",
        name, (long long)left_s / 3600, text);
}

/* ---- the files ---- */

/* A regular file of a bounded size, that is not opened twice for nothing: OpenSSL would wait for
 * what a pipe has to say. */
static int check_file(const char *what, const char *path, struct ct_error *err)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code = 0;

    if (fd < 0)
        return ct_error_set(err, CT_ENOINPUT, "cannot open %s %s: %s", what, path, strerror(errno));
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        code = ct_error_set(err, CT_EDATA, "%s %s is no regular file", what, path);
    else if (stat.st_size > FILE_BYTES)
        code = ct_error_set(err, CT_EDATA, "%s %s has %lld bytes, %d at most", what, path,
                            (long long)stat.st_size, FILE_BYTES);
    close(fd);
    return code;
}

static const char *reason_of(const struct ct_openssl *ssl)
{
    const char *reason = ssl->ERR_reason_error_string(ssl->ERR_peek_last_error());

    return reason != NULL ? reason : "unknown";
}

/* OpenSSL would ask the terminal. */
static int give_no_passphrase(char *to, int size, int is_for_writing, void *user)
{
    (void)to, (void)size, (void)is_for_writing, (void)user;
    return 0;
}

static int load_chain(struct ct_certificates *to, const char *path, struct ct_error *err)
{
    int code = check_file("certificate file", path, err);

    if (code != 0)
        return code;
    to->ssl->ERR_clear_error();
    if (to->ssl->SSL_CTX_use_certificate_chain_file(to->context, path) != 1)
        return ct_error_set(err, CT_EDATA,
                            "%s has no certificate that can be used (%s): give a PEM file with the "
                            "certificate and those between it and the CA",
                            path, reason_of(to->ssl));
    return 0;
}

static int load_key(struct ct_certificates *to, const struct ct_certificate_files *files,
                    struct ct_error *err)
{
    off_t size = 0;
    int fd = -1, code = ct_net_secret_open("private key", files->key, &fd, &size, err);

    if (code != 0)
        return code;
    close(fd);
    to->ssl->ERR_clear_error();
    to->ssl->SSL_CTX_set_default_passwd_cb(to->context, give_no_passphrase);
    if (to->ssl->SSL_CTX_use_PrivateKey_file(to->context, files->key, SSL_FILETYPE_PEM) != 1 ||
        to->ssl->SSL_CTX_check_private_key(to->context) != 1)
        return ct_error_set(err, CT_EDATA,
                            "%s is not the private key of the certificate in %s, or has a "
                            "passphrase (%s)",
                            files->key, files->chain, reason_of(to->ssl));
    return 0;
}

/* A list of revoked certificates is looked at where there is one. */
static int load_ca(struct ct_certificates *to, const char *path, struct ct_error *err)
{
    struct ct_buf text;
    int code = check_file("CA file", path, err);

    if (code != 0)
        return code;
    ct_buf_init(&text, 0);
    code = ct_fs_read(path, FILE_BYTES, &text, err);
    bool has_list = code == 0 && strstr(ct_buf_str(&text), "-----BEGIN X509 CRL-----") != NULL;
    ct_buf_deinit(&text);
    if (code != 0)
        return code;
    to->ssl->ERR_clear_error();
    if (to->ssl->SSL_CTX_load_verify_locations(to->context, path, NULL) != 1)
        return ct_error_set(err, CT_EDATA,
                            "%s has no certificate of a CA that can be used (%s): give a PEM file "
                            "with it",
                            path, reason_of(to->ssl));
    if (has_list)
        to->ssl->X509_STORE_set_flags(to->ssl->SSL_CTX_get_cert_store(to->context),
                                      X509_V_FLAG_CRL_CHECK);
    return 0;
}

static int pass_tolerable(int ok, X509_STORE_CTX *store)
{
    const struct ct_openssl *ssl = NULL;

    if (ok == 1 || ct_openssl_get(&ssl, NULL) != 0)
        return ok;
    return ct_certificate_is_tolerable(ssl->X509_STORE_CTX_get_error(store));
}

/* X509_V_OK, or why it is not believed. */
static int verify(const struct ct_certificates *by, X509 *certificate, STACK_OF(X509) * chain)
{
    const struct ct_openssl *ssl = by->ssl;
    X509_STORE_CTX *store = ssl->X509_STORE_CTX_new();
    int error = X509_V_ERR_OUT_OF_MEM;

    if (store != NULL && ssl->X509_STORE_CTX_init(store, ssl->SSL_CTX_get_cert_store(by->context),
                                                  certificate, chain) == 1) {
        ssl->X509_STORE_CTX_set_verify_cb(store, pass_tolerable);
        error =
            ssl->X509_verify_cert(store) == 1 ? X509_V_OK : ssl->X509_STORE_CTX_get_error(store);
    }
    ssl->X509_STORE_CTX_free(store);
    return error;
}

static int judge_own(struct ct_certificates *to, const struct ct_certificate_files *files,
                     struct ct_error *err)
{
    const struct ct_openssl *ssl = to->ssl;
    X509 *own = ssl->SSL_CTX_get0_certificate(to->context);
    STACK_OF(X509) *chain = NULL;

    (void)ssl->SSL_CTX_ctrl(to->context, SSL_CTRL_GET_CHAIN_CERTS, 0, &chain);
    int error = verify(to, own, chain);
    if (error != X509_V_OK)
        return ct_error_set(err, CT_EDATA,
                            "the certificate in %s is not signed by the CA in %s, or not for this "
                            "use (%s)",
                            files->chain, files->ca, ssl->X509_verify_cert_error_string(error));
    int code = ct_certificate_read(ssl, own, &to->grants, err);
    if (code != 0)
        return ct_error_prefix(err, "%s", files->chain);
    to->expires_s = ct_certificate_expires_s(ssl, own);
    int count = chain != NULL ? ssl->OPENSSL_sk_num((const OPENSSL_STACK *)chain) : 0;
    for (int i = 0; i < count; i++) {
        const X509 *next = ssl->OPENSSL_sk_value((const OPENSSL_STACK *)chain, i);
        to->expires_s = CT_MIN(to->expires_s, ct_certificate_expires_s(ssl, next));
    }
    return 0;
}

static int load(struct ct_certificates *to, const struct ct_certificate_files *files,
                struct ct_error *err)
{
    int code = ct_openssl_get(&to->ssl, err);

    if (code != 0)
        return code;
    to->context = ct_tls_context_new(to->ssl);
    if (to->context == NULL)
        return ct_error_set(err, CT_EUNSUPPORTED, "this OpenSSL knows no TLS 1.3 with X25519");
    to->ssl->SSL_CTX_set_session_id_context(to->context, (const unsigned char *)"ctrun", 5);
    to->ssl->SSL_CTX_ctrl(to->context, SSL_CTRL_SET_MAX_CERT_LIST, CT_CERTIFICATE_CHAIN, NULL);
    code = load_chain(to, files->chain, err);
    if (code == 0)
        code = load_key(to, files, err);
    if (code == 0)
        code = load_ca(to, files->ca, err);
    return code == 0 ? judge_own(to, files, err) : code;
}

static bool is_named(const char *path)
{
    return path != NULL && path[0] != '\0';
}

int ct_certificates_load(const struct ct_certificate_files *files,
                         struct ct_certificates **ret_certificates, struct ct_error *err)
{
    if (!is_named(files->chain) || !is_named(files->key) || !is_named(files->ca))
        return ct_error_set(
            err, CT_EUSAGE,
            "--tls_cert, --tls_key and --tls_ca belong together: --tls_%s is missing",
            !is_named(files->chain) ? "cert"
            : !is_named(files->key) ? "key"
                                    : "ca");
    struct ct_certificates *made = calloc(1, sizeof *made);
    if (made == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a certificate");
    made->references = 1;
    int code = load(made, files, err);
    if (code != 0) {
        ct_certificates_unref(made);
        return code;
    }
    *ret_certificates = made;
    return 0;
}

/* ---- the other end ---- */

/* The certificate that was shown, which the CA has signed. */
static int judge(const struct ct_openssl *ssl, struct ct_certificate_peer *peer, X509 *certificate)
{
    struct ct_error why = {0};
    int code = ct_certificate_read(ssl, certificate, &peer->grants, &peer->why);

    if (code != 0)
        return code;
    const char *name = peer->grants->name[0] != '\0' ? peer->grants->name : peer->grants->id;
    for (struct ct_grant *at = peer->grants; at != NULL; at = (struct ct_grant *)at->next)
        at->expired = peer->expired;
    if (peer->job != NULL && peer->expired && !peer->accept_expired)
        code =
            ct_error_set(&peer->why, CT_EAUTH,
                         "the certificate %s of the other end has expired: renew it there", name);
    else if (peer->job != NULL &&
             ct_grant_may(peer->grants, CT_RIGHT_JOIN, peer->job, -1, &why) != 0)
        code =
            ct_error_set(&peer->why, CT_EAUTH,
                         "the other end may not serve %s%s, which takes the role all or agent: %s",
                         peer->job[0] != '\0' ? "job " : "all jobs", peer->job, why.text);
    return code;
}

int ct_certificate_peer_verify(const struct ct_openssl *ssl, struct ct_certificate_peer *peer,
                               int ok, X509_STORE_CTX *store)
{
    int error = ssl->X509_STORE_CTX_get_error(store);
    int depth = ssl->X509_STORE_CTX_get_error_depth(store);

    if (ok != 1 && !ct_certificate_is_tolerable(error)) {
        ct_error_set(&peer->why, CT_EAUTH, "the certificate of the other end is not believed: %s",
                     ssl->X509_verify_cert_error_string(error));
        return 0;
    }
    peer->expired = peer->expired || (ok != 1 && error == X509_V_ERR_CERT_HAS_EXPIRED);
    if (ok != 1 || depth > 0 || peer->is_believed)
        return 1;
    if (judge(ssl, peer, ssl->X509_STORE_CTX_get_current_cert(store)) != 0) {
        ssl->X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
    }
    peer->is_believed = true;
    return 1;
}

void ct_certificate_peer_deinit(struct ct_certificate_peer *peer)
{
    free(peer->grants);
    peer->grants = NULL;
}

bool ct_certificates_believe(const struct ct_certificates *certificates, SSL *end)
{
    const struct ct_openssl *ssl = certificates->ssl;
    X509 *certificate = ssl->SSL_get0_peer_certificate(end);

    return certificate != NULL &&
           verify(certificates, certificate, ssl->SSL_get_peer_cert_chain(end)) == X509_V_OK;
}
