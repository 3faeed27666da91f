/* See tls_munge.h. */
#include "net/tls_munge.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

struct ct_tls_munge *ct_tls_munge_new(const char *text)
{
    struct ct_tls_munge *munge = calloc(1, sizeof *munge);

    if (munge != NULL)
        (void)ct_str_copy(munge->credential.text, sizeof munge->credential.text, text);
    return munge;
}

void ct_tls_munge_free(struct ct_tls_munge *munge)
{
    if (munge != NULL)
        explicit_bzero(munge, sizeof *munge);
    free(munge);
}

int ct_tls_munge_find(const struct ct_openssl *ssl, SSL *end, struct ct_tls_munge **ret_munge)
{
    char text[CT_MUNGE_CREDENTIAL];
    const unsigned char *extension = NULL;
    size_t size = 0;

    if (!ssl->SSL_client_hello_get0_ext(end, TLSEXT_TYPE_psk, &extension, &size) ||
        !ct_psk_munge_find(extension, size, text))
        return 0;
    *ret_munge = ct_tls_munge_new(text);
    return *ret_munge != NULL ? 0 : CT_ENOMEM;
}

static void judge(struct ct_tls_munge *munge, const struct ct_error *why)
{
    munge->is_judged = true;
    munge->why = *why;
}

int ct_tls_munge_judge(struct ct_tls_munge *munge, const struct ct_key_ring *ring, int *ret_alert)
{
    struct ct_error err = {0};

    if (!munge->is_judged && ct_key_ring_munge(ring) == NULL) {
        ct_error_set(&err, CT_EAUTH,
                     "the peer shows a munge credential, and this side takes none: give both ends "
                     "--key_file munge:, or this one lines of munge in its --key_ring");
        judge(munge, &err);
    }
    if (!munge->is_judged)
        return SSL_CLIENT_HELLO_RETRY;
    if (munge->why.code == 0)
        return SSL_CLIENT_HELLO_SUCCESS;
    *ret_alert = munge->why.code == CT_EAUTH ? SSL_AD_ACCESS_DENIED : SSL_AD_INTERNAL_ERROR;
    return SSL_CLIENT_HELLO_ERROR;
}

void ct_tls_munge_opened(struct ct_tls_munge *munge, const struct ct_key_ring *ring,
                         const struct ct_munge_credential *credential, const struct ct_error *why)
{
    const struct ct_munge_lines *lines = ct_key_ring_munge(ring);
    struct ct_error err = {0};

    if (why == NULL) {
        munge->credential.key = credential->key;
        munge->credential.user = credential->user;
        (void)ct_munge_lines_find(lines, &credential->user, &munge->grant, &err);
    }
    judge(munge, why != NULL ? why : &err);
}

bool ct_tls_munge_is(const struct ct_tls_munge *munge, const void *name, size_t size,
                     char ret_job_tag[CT_PSK_TAG])
{
    char text[CT_MUNGE_CREDENTIAL];

    return munge != NULL && munge->is_judged && munge->why.code == 0 &&
           ct_psk_munge_parse(name, size, ret_job_tag, text) &&
           strcmp(text, munge->credential.text) == 0;
}

int ct_tls_munge_refuse(const struct ct_tls_munge *munge, bool server, int reason,
                        struct ct_error *err)
{
    if (munge == NULL)
        return 0;
    if (server && munge->why.code != 0)
        return ct_error_set(err, munge->why.code, "%s", munge->why.text);
    if (server)
        return 0;
    switch (reason) {
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        return ct_error_set(err, CT_EAUTH,
                            "the peer refuses this user's munge credential, and its log says why: "
                            "it runs under another account than --key_file munge:ACCOUNT names, it "
                            "lets this user do nothing, or its machine has another munge key");
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
        return ct_error_set(err, CT_EUNAVAILABLE, "munged does not answer on the peer's machine");
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        return ct_error_set(err, CT_EAUTH,
                            "the peer takes no munge credentials: it has a key file, or none");
    default:
        return 0;
    }
}
