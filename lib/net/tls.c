/* OpenSSL between two memory BIOs; see tls.h.
 *
 *   feed -> in (BIO) -> SSL_read -> plain text        plain text -> SSL_write -> out (BIO) -> drain
 *
 * A server makes its SSL object when the client's first record is whole: most of those who will
 * never prove a key send none, and the object is most of what a connection costs. */
#include "net/tls_inner.h"

#include "keys/tls_context.h"

#include "base/assert.h"
#include "base/str.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WRITE_PART = 64 << 10,
    RECORD = (16 << 10) + CT_TLS_HEADER, /* the longest in clear */
};

const unsigned char ct_tls_alert[CT_TLS_ALERT] = {0x15, 3, 3, 0, 2, 2, 40};

/* The library's cipher suite TLS_AES_128_GCM_SHA256, to which an external key is bound by its hash.
 */
static const unsigned char psk_suite[] = {0x13, 0x01};

static SSL_SESSION *session_for(struct ct_tls *tls, const struct ct_key *key, const char *key_tag,
                                const char *job_tag)
{
    const struct ct_openssl *ssl = tls->ssl;
    unsigned char psk[CT_PSK_BYTES];
    SSL_SESSION *session = ssl->SSL_SESSION_new();
    const SSL_CIPHER *cipher = ssl->SSL_CIPHER_find(tls->end, psk_suite);

    ct_psk_derive(ssl, key, key_tag, job_tag, psk);
    if (session != NULL && (cipher == NULL || !ssl->SSL_SESSION_set_cipher(session, cipher) ||
                            !ssl->SSL_SESSION_set1_master_key(session, psk, sizeof(psk)) ||
                            !ssl->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))) {
        ssl->SSL_SESSION_free(session);
        session = NULL;
    }
    explicit_bzero(psk, sizeof(psk));
    return session;
}

static struct ct_tls *tls_of(SSL *end)
{
    const struct ct_openssl *ssl = NULL;
    int code = ct_openssl_get(&ssl, NULL);

    CT_ASSERT(code == 0);
    return ssl->SSL_get_ex_data(end, 0);
}

/* OpenSSL asks a client for its key. */
static int use_session(SSL *end, const EVP_MD *hash, const unsigned char **ret_name,
                       size_t *ret_size, SSL_SESSION **ret_session)
{
    struct ct_tls *tls = tls_of(end);

    const char *name = tls->munge != NULL ? tls->munge->name : tls->name;

    (void)hash; /* both suites that we offer use SHA-256 */
    *ret_session = session_for(tls, &tls->key, tls->key_tag, tls->job_tag);
    *ret_name = (const unsigned char *)name;
    *ret_size = strlen(name);
    return *ret_session != NULL;
}

/* What a server answers to the key of a client for a job. */
static int answer(struct ct_tls *tls, const struct ct_key *key, const char *key_tag,
                  const char *job_tag, SSL_SESSION **ret_session)
{
    char all[CT_PSK_TAG];

    memcpy(tls->job_tag, job_tag, sizeof(tls->job_tag));
    *ret_session = session_for(tls, key, key_tag, job_tag);
    ct_psk_job_tag(tls->ssl, "", all);
    tls->is_for_all = strcmp(all, job_tag) == 0;
    return *ret_session != NULL;
}

/* OpenSSL asks a server for the key that a client named. None: the handshake fails, or goes on by
 * certificates. */
static int find_session(SSL *end, const unsigned char *name, size_t size, SSL_SESSION **ret_session)
{
    struct ct_tls *tls = tls_of(end);
    char key_tag[CT_PSK_TAG], job_tag[CT_PSK_TAG];

    *ret_session = NULL;
    if (ct_tls_munge_is(tls->munge, name, size, job_tag)) {
        tls->grant = &tls->munge->grant;
        return answer(tls, &tls->munge->credential.key, CT_PSK_MUNGE_TAG, job_tag, ret_session);
    }
    if (!ct_psk_parse(name, size, key_tag, job_tag))
        return 1;
    const struct ct_key *key = NULL;
    tls->grant = ct_key_ring_find(tls->ring, key_tag, &key);
    if (tls->grant == NULL) {
        memcpy(tls->peer_key, key_tag, sizeof(key_tag));
        return 1;
    }
    return answer(tls, key, key_tag, job_tag, ret_session);
}

/* OpenSSL shows a server the client's hello. One with a credential of munge waits until it is
 * open. */
static int on_hello(SSL *end, int *ret_alert, void *unused)
{
    struct ct_tls *tls = tls_of(end);

    (void)unused;
    if (tls->munge == NULL && ct_tls_munge_find(tls->ssl, end, &tls->munge) != 0)
        return SSL_CLIENT_HELLO_ERROR;
    return tls->munge == NULL ? SSL_CLIENT_HELLO_SUCCESS
                              : ct_tls_munge_judge(tls->munge, tls->ring, ret_alert);
}

/* One context serves all connections of the process: it holds settings and no secrets. */
static SSL_CTX *context;

static void make_context(void)
{
    const struct ct_openssl *ssl = NULL;

    if (ct_openssl_get(&ssl, NULL) == 0)
        context = ct_tls_context_new(ssl);
    if (context != NULL)
        ssl->SSL_CTX_set_client_hello_cb(context, on_hello, NULL);
}

/* OpenSSL asks a server for its certificate: the client has proved no key. 0: it gets none. */
static int begin_certificates(SSL *end, void *unused)
{
    struct ct_tls *tls = tls_of(end);

    (void)unused;
    if (tls->peer_key[0] != '\0') /* it has only that key */
        return 0;
    tls->turned_away = tls->may != NULL && !tls->may(tls->user);
    return !tls->turned_away;
}

/* OpenSSL tells how it likes the peer's certificate. */
static int verify_peer(int ok, X509_STORE_CTX *store)
{
    const struct ct_openssl *ssl = NULL;
    int code = ct_openssl_get(&ssl, NULL);

    CT_ASSERT(code == 0);
    SSL *end = ssl->X509_STORE_CTX_get_ex_data(store, ssl->SSL_get_ex_data_X509_STORE_CTX_idx());
    return ct_certificate_peer_verify(ssl, &tls_of(end)->peer, ok, store);
}

static void set_up_server(const struct ct_tls *tls)
{
    const struct ct_openssl *ssl = tls->ssl;

    ssl->SSL_set_accept_state(tls->end);
    ssl->SSL_set_psk_find_session_callback(tls->end, find_session);
    if (tls->certificates == NULL)
        return;
    ssl->SSL_CTX_set_client_hello_cb(ct_certificates_context(tls->certificates), on_hello, NULL);
    ssl->SSL_set_cert_cb(tls->end, begin_certificates, NULL);
    ssl->SSL_set_verify(tls->end, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, verify_peer);
}

/* With a key, the certificate of a server is no key of ours. */
static void set_up_client(const struct ct_tls *tls)
{
    const struct ct_openssl *ssl = tls->ssl;

    ssl->SSL_set_connect_state(tls->end);
    if (tls->certificates == NULL)
        ssl->SSL_set_psk_use_session_callback(tls->end, use_session);
    ssl->SSL_set_verify(tls->end, SSL_VERIFY_PEER, tls->certificates != NULL ? verify_peer : NULL);
}

/* The SSL object between its two BIOs. */
static int open_end(struct ct_tls *tls)
{
    const struct ct_openssl *ssl = tls->ssl;

    tls->end = ssl->SSL_new(tls->certificates != NULL ? ct_certificates_context(tls->certificates)
                                                      : context);
    if (tls->end == NULL)
        return CT_ENOMEM;
    tls->in = ssl->BIO_new(ssl->BIO_s_mem());
    tls->out = ssl->BIO_new(ssl->BIO_s_mem());
    ssl->SSL_set_bio(tls->end, tls->in, tls->out);
    if (tls->in == NULL || tls->out == NULL || !ssl->SSL_set_ex_data(tls->end, 0, tls))
        return CT_ENOMEM;
    if (tls->server)
        set_up_server(tls);
    else
        set_up_client(tls);
    return 0;
}

/* Either end, without its SSL object. */
static int new_end(struct ct_tls **ret_tls, struct ct_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct ct_openssl *ssl = NULL;
    int code = ct_openssl_get(&ssl, err);

    if (code != 0)
        return code;
    pthread_once(&once, make_context);
    if (context == NULL)
        return ct_error_set(err, CT_EUNSUPPORTED, "this OpenSSL knows no TLS 1.3 with X25519");
    struct ct_tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a TLS connection");
    tls->ssl = ssl;
    ct_buf_init(&tls->first, RECORD);
    *ret_tls = tls;
    return 0;
}

/* A client's end with its key, which its tag names. */
static int begin_client(struct ct_tls *tls, const struct ct_key *key, struct ct_tls **ret_tls,
                        struct ct_error *err)
{
    ct_net_key_copy(&tls->key, key);
    int code = open_end(tls);
    if (code != 0) {
        ct_tls_free(tls);
        return ct_error_set(err, code, "no memory for a TLS connection");
    }
    *ret_tls = tls;
    return 0;
}

int ct_tls_new_client(struct ct_tls **ret_tls, const struct ct_key *key, const char *job,
                      struct ct_error *err)
{
    struct ct_tls *tls = NULL;
    int code = new_end(&tls, err);

    if (tls == NULL)
        return code;
    ct_psk_job_tag(tls->ssl, job, tls->job_tag);
    if (key->kind == CT_KEY_CERTIFICATE) {
        tls->certificates = ct_certificates_ref(key->certificates);
        ct_str_copy(tls->job, sizeof tls->job, job);
        tls->peer.job = tls->job;
    } else {
        CT_ASSERT(key->kind == CT_KEY_SECRET);
        ct_psk_key_tag(tls->ssl, key, tls->key_tag);
        ct_psk_name(tls->key_tag, tls->job_tag, tls->name);
    }
    return begin_client(tls, key, ret_tls, err);
}

int ct_tls_new_munge_client(struct ct_tls **ret_tls, const struct ct_munge_credential *credential,
                            const char *job, struct ct_error *err)
{
    struct ct_tls *tls = NULL;
    int code = new_end(&tls, err);

    if (tls == NULL)
        return code;
    memcpy(tls->key_tag, CT_PSK_MUNGE_TAG, sizeof(CT_PSK_MUNGE_TAG));
    ct_psk_job_tag(tls->ssl, job, tls->job_tag);
    tls->munge = ct_tls_munge_new(credential->text);
    if (tls->munge == NULL) {
        ct_tls_free(tls);
        return ct_error_set(err, CT_ENOMEM, "no memory for a TLS connection");
    }
    ct_psk_munge_name(tls->job_tag, credential->text, tls->munge->name);
    return begin_client(tls, &credential->key, ret_tls, err);
}

int ct_tls_new_server(struct ct_tls **ret_tls, struct ct_key_ring *ring, struct ct_error *err)
{
    int code = new_end(ret_tls, err);

    if (code != 0)
        return code;
    (*ret_tls)->server = true;
    (*ret_tls)->ring = ct_key_ring_ref(ring);
    (*ret_tls)->certificates = ct_certificates_ref(ct_key_ring_certificates(ring));
    return 0;
}

void ct_tls_accept_expired(struct ct_tls *tls)
{
    tls->peer.accept_expired = true;
}

void ct_tls_set_gate(struct ct_tls *tls, bool (*may)(void *user), void *user)
{
    tls->may = may;
    tls->user = user;
}

void ct_tls_free(struct ct_tls *tls)
{
    if (tls == NULL)
        return;
    tls->ssl->SSL_free(tls->end);
    ct_net_key_wipe(&tls->key);
    ct_tls_munge_free(tls->munge);
    ct_key_ring_unref(tls->ring);
    ct_certificates_unref(tls->certificates);
    ct_certificate_peer_deinit(&tls->peer);
    ct_buf_deinit(&tls->first);
    free(tls);
}

/* A TLS peer opens with a handshake record, or with an alert. */
static bool opens_with_tls(const struct ct_tls *tls)
{
    return (tls->opening[0] == 0x16 || tls->opening[0] == 0x15) &&
           (tls->opening_size < 2 || tls->opening[1] == 3);
}

static int feed_end(struct ct_tls *tls, const void *data, size_t size)
{
    CT_ASSERT(size <= INT_MAX);
    return tls->ssl->BIO_write(tls->in, data, (int)size) == (int)size ? 0 : CT_ENOMEM;
}

/* Is the first record there, as far as it may be of use? */
static bool is_first_whole(const struct ct_tls *tls)
{
    size_t length = (size_t)tls->opening[3] << 8 | tls->opening[4];

    return tls->opening_size == CT_TLS_HEADER &&
           (tls->first.size >= CT_TLS_HEADER + length || CT_TLS_HEADER + length > RECORD);
}

/* A server's first bytes; those that follow in the same piece come with them. */
static int feed_first(struct ct_tls *tls, const void *data, size_t size)
{
    size_t kept = CT_MIN(size, RECORD - tls->first.size);

    if (ct_buf_append(&tls->first, data, kept) != 0)
        return CT_ENOMEM;
    if (!is_first_whole(tls))
        return 0;
    int code = open_end(tls);
    if (code == 0)
        code = feed_end(tls, tls->first.data, tls->first.size);
    if (code == 0 && size > kept)
        code = feed_end(tls, (const char *)data + kept, size - kept);
    ct_buf_deinit(&tls->first);
    return code;
}

int ct_tls_feed(struct ct_tls *tls, const void *data, size_t size)
{
    for (size_t i = 0; i < size && tls->opening_size < sizeof(tls->opening); i++)
        tls->opening[tls->opening_size++] = ((const unsigned char *)data)[i];
    if (size == 0 || tls->stranger)
        return 0;
    tls->fed += tls->ready ? 0 : size;
    if (tls->fed > CT_TLS_HANDSHAKE)
        return 0; /* the handshake tells */
    if (!opens_with_tls(tls)) {
        tls->stranger = true;
        if (tls->end == NULL)
            return 0; /* ct_tls_drain tells */
        return tls->ssl->BIO_write(tls->out, ct_tls_alert, CT_TLS_ALERT) > 0 ? 0 : CT_ENOMEM;
    }
    return tls->end == NULL ? feed_first(tls, data, size) : feed_end(tls, data, size);
}

/* 1 when done, 0 when more input is needed. */
static int shake_hands(struct ct_tls *tls, struct ct_error *err)
{
    if (tls->fed > CT_TLS_HANDSHAKE)
        return ct_error_set(err, CT_EAUTH, "the peer's TLS handshake has more than %d bytes",
                            CT_TLS_HANDSHAKE);
    if (tls->end == NULL)
        return 0;
    tls->ssl->ERR_clear_error();
    int result = tls->ssl->SSL_do_handshake(tls->end);
    if (result != 1) {
        int why = tls->ssl->SSL_get_error(tls->end, result);
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_CLIENT_HELLO_CB
                   ? 0
                   : ct_tls_refuse_handshake(tls, err);
    }
    /* Belt and braces: nothing else than our key or a certificate can have led here. */
    if (!tls->ssl->SSL_session_reused(tls->end) && !tls->peer.is_believed)
        return ct_error_set(err, CT_EAUTH, "the peer proved no key");
    if (tls->server && tls->peer.is_believed)
        tls->grant = tls->peer.grants;
    tls->ready = true;
    ct_net_key_wipe(&tls->key);
    if (tls->munge != NULL)
        ct_net_key_wipe(&tls->munge->credential.key);
    return 1;
}

int ct_tls_handshake(struct ct_tls *tls, struct ct_error *err)
{
    if (tls->stranger)
        return ct_tls_refuse_stranger(tls, err);
    return tls->ready ? 0 : CT_MIN(shake_hands(tls, err), 0);
}

long ct_tls_read(struct ct_tls *tls, void *to, size_t room, struct ct_error *err)
{
    if (tls->stranger)
        return ct_tls_refuse_stranger(tls, err);
    if (!tls->ready) {
        int code = shake_hands(tls, err);
        if (code <= 0)
            return code;
    }
    tls->ssl->ERR_clear_error();
    int result = tls->ssl->SSL_read(tls->end, to, (int)CT_MIN(room, (size_t)INT_MAX));
    if (result > 0) {
        tls->has_read = true;
        return result;
    }
    switch (tls->ssl->SSL_get_error(tls->end, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return ct_error_set(err, CT_ECLOSED, "the peer has closed the connection");
    default: {
        unsigned long last = tls->ssl->ERR_peek_last_error();
        const char *reason = tls->ssl->ERR_reason_error_string(last);
        /* A server judges a certificate when its client has done all of its part. */
        if (!tls->has_read && tls->certificates != NULL && ct_tls_is_refusal(ERR_GET_REASON(last)))
            return ct_tls_refuse_handshake(tls, err);
        return ct_error_set(err, CT_EPROTOCOL, "the TLS stream is damaged: %s",
                            reason != NULL ? reason : "no reason given");
    }
    }
}

int ct_tls_write(struct ct_tls *tls, const void *data, size_t size, struct ct_buf *out,
                 struct ct_error *err)
{
    CT_ASSERT(tls->ready);
    tls->ssl->ERR_clear_error();
    for (size_t done = 0; done < size;) { /* in pieces: a memory BIO keeps the room it once had */
        int chunk = (int)CT_MIN(size - done, (size_t)WRITE_PART);
        if (tls->ssl->SSL_write(tls->end, (const char *)data + done, chunk) != chunk ||
            ct_tls_drain(tls, out) != 0)
            return ct_error_set(err, CT_ENOMEM, "no memory to encrypt %zu bytes", size);
        done += (size_t)chunk;
    }
    return 0;
}

int ct_tls_drain(struct ct_tls *tls, struct ct_buf *out)
{
    if (tls->end == NULL) {
        bool tell = tls->stranger && !tls->alerted;
        tls->alerted = tls->stranger;
        return tell ? ct_buf_append(out, ct_tls_alert, CT_TLS_ALERT) : 0;
    }
    long size = tls->ssl->BIO_ctrl(tls->out, BIO_CTRL_PENDING, 0, NULL);

    if (size <= 0)
        return 0;
    void *to = ct_buf_reserve(out, (size_t)size);
    if (to == NULL)
        return CT_ENOMEM;
    int count = tls->ssl->BIO_read(tls->out, to, (int)size);
    CT_ASSERT(count == size);
    out->size += (size_t)size;
    return 0;
}

const char *ct_tls_credential(const struct ct_tls *tls, const char **ret_socket)
{
    if (!tls->server || tls->munge == NULL || tls->munge->is_judged)
        return NULL;
    *ret_socket = ct_key_ring_munge(tls->ring)->socket; /* else it was judged at once */
    return tls->munge->credential.text;
}

void ct_tls_opened(struct ct_tls *tls, const struct ct_munge_credential *credential,
                   const struct ct_error *why)
{
    CT_ASSERT(tls->server && tls->munge != NULL && !tls->munge->is_judged);
    ct_tls_munge_opened(tls->munge, tls->ring, credential, why);
}

bool ct_tls_ready(const struct ct_tls *tls)
{
    return tls->ready;
}

/* OpenSSL takes a session from a hello when it has verified the binder, and only then. With a
 * certificate the whole handshake shows it. */
bool ct_tls_is_bound(const struct ct_tls *tls, uint64_t *ret_hello)
{
    unsigned char bytes[sizeof(*ret_hello)];

    if (!tls->server || tls->end == NULL ||
        (!tls->ssl->SSL_session_reused(tls->end) && !(tls->ready && tls->peer.is_believed)) ||
        tls->ssl->SSL_get_client_random(tls->end, bytes, sizeof(bytes)) != sizeof(bytes))
        return false;
    memcpy(ret_hello, bytes, sizeof(bytes));
    return true;
}

const struct ct_grant *ct_tls_grant(const struct ct_tls *tls)
{
    return tls->grant;
}

bool ct_tls_user(const struct ct_tls *tls, unsigned *ret_uid)
{
    bool is_known = tls->server && tls->ready && tls->munge != NULL;

    if (is_known)
        *ret_uid = tls->munge->credential.user.uid;
    return is_known;
}

bool ct_tls_is_for(const struct ct_tls *tls, const char *job)
{
    char tag[CT_PSK_TAG];

    if (tls->is_for_all || tls->peer.is_believed)
        return true;
    ct_psk_job_tag(tls->ssl, job, tag);
    return strcmp(tag, tls->job_tag) == 0;
}

bool ct_tls_is_accepted(const struct ct_tls *tls, const struct ct_key_ring *ring)
{
    const struct ct_certificates *certificates = ct_key_ring_certificates(ring);

    if (ring == tls->ring)
        return true;
    if (!tls->peer.is_believed)
        return tls->grant != NULL && ct_key_ring_has(ring, tls->grant);
    return certificates != NULL && ct_certificates_believe(certificates, tls->end);
}

void ct_tls_close(struct ct_tls *tls)
{
    if (tls->ready)
        tls->ssl->SSL_shutdown(tls->end);
}
