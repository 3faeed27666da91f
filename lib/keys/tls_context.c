/* See tls_context.h. */
#include "keys/tls_context.h"

SSL_CTX *ct_tls_context_new(const struct ct_openssl *ssl)
{
    char groups[] = "X25519";
    SSL_CTX *made = ssl->SSL_CTX_new(ssl->TLS_method());

    if (made == NULL)
        return NULL;
    ssl->SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    ssl->SSL_CTX_ctrl(made, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN, NULL);
    ssl->SSL_CTX_ctrl(made, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    if (!ssl->SSL_CTX_ctrl(made, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) ||
        !ssl->SSL_CTX_ctrl(made, SSL_CTRL_SET_GROUPS_LIST, 0, groups) ||
        !ssl->SSL_CTX_set_num_tickets(made, 0) ||
        !ssl->SSL_CTX_set_ciphersuites(made,
                                       "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256")) {
        ssl->SSL_CTX_free(made);
        return NULL;
    }
    return made;
}
