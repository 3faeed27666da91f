/* Why a handshake failed, in sentences that name the likely cause. */
#include "net/tls_inner.h"

#include "base/assert.h"

#include <string.h>

static bool opens_with(const struct ct_tls *tls, const char *word)
{
    return memcmp(tls->opening, word, CT_MIN(tls->opening_size, strlen(word))) == 0;
}

int ct_tls_refuse_stranger(const struct ct_tls *tls, struct ct_error *err)
{
    bool http = opens_with(tls, "HTTP") || opens_with(tls, "GET ") || opens_with(tls, "POST");

    if (opens_with(tls, "CTR"))
        return ct_error_set(err, CT_EAUTH,
                            "the peer speaks in clear: it has no key file, this side has one");
    return ct_error_set(err, CT_EPROTOCOL, "the peer opened with the byte %02x: it speaks %s",
                        tls->opening[0], http ? "HTTP, no TLS" : "no TLS");
}

/* The client named a key that is not in the ring. */
static int refuse_key(const struct ct_tls *tls, struct ct_error *err)
{
    const struct ct_grant *whole = ct_key_ring_whole(tls->ring);

    if (whole == NULL && ct_key_ring_count(tls->ring) == 0)
        return ct_error_set(err, CT_EAUTH,
                            "the peer has a key file (tag %s), this side takes users by munge "
                            "alone: give the peer --key_file munge:",
                            tls->peer_key);
    if (whole == NULL)
        return ct_error_set(err, CT_EAUTH,
                            "the peer's key (tag %s) is not in this side's key ring: it was "
                            "revoked, or is another site's",
                            tls->peer_key);
    return ct_error_set(err, CT_EAUTH,
                        "the peer has another key (tag %s, this side's is %s): give both ends the "
                        "same key file",
                        tls->peer_key, whole->id);
}

bool ct_tls_is_refusal(int reason)
{
    switch (reason) {
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return true;
    default:
        return false;
    }
}

static int refuse_certificates(const struct ct_tls *tls, int reason, struct ct_error *err)
{
    if (tls->turned_away)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "more peers that are not known begin a TLS handshake by certificate "
                            "than are let in a second");
    if (tls->peer.why.code != 0)
        return ct_error_set(err, CT_EAUTH, "%s", tls->peer.why.text);
    if (!tls->server && reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR)
        return ct_error_set(err, CT_ECLOSED, "the peer has no time for a TLS handshake now");
    if (tls->server && reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return ct_error_set(err, CT_EAUTH,
                            "the peer has neither a key of this side nor a certificate");
    return 0;
}

int ct_tls_refuse_handshake(const struct ct_tls *tls, struct ct_error *err)
{
    unsigned long last = tls->ssl->ERR_peek_last_error();
    const char *text = tls->ssl->ERR_reason_error_string(last);
    int reason = ERR_GET_REASON(last);
    bool by_key = !tls->server && tls->certificates == NULL;
    int code = ct_tls_munge_refuse(tls->munge, tls->server, reason, err);

    if (code != 0)
        return code;
    if (tls->peer_key[0] != '\0')
        return refuse_key(tls, err);
    code = tls->certificates != NULL ? refuse_certificates(tls, reason, err) : 0;
    if (code != 0)
        return code;
    if (tls->certificates != NULL && ct_tls_is_refusal(reason))
        return ct_error_set(
            err, CT_EAUTH, "the peer did not accept this side's certificate (%s): %s",
            ct_certificates_grant(tls->certificates)->id, text != NULL ? text : "no reason given");
    if (ct_tls_is_refusal(reason) || (by_key && (reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR ||
                                                 reason == SSL_R_CERTIFICATE_VERIFY_FAILED)))
        return ct_error_set(err, CT_EAUTH,
                            "the peer did not accept this side's key (tag %s): it has another key "
                            "file, or none",
                            tls->key_tag);
    return ct_error_set(err, CT_EAUTH, "the TLS handshake failed: %s",
                        text != NULL ? text : "no reason given");
}
